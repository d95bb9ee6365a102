"""Plants whose sensors, actuators and meters have few digits, and what the promise means there.

**What the promise compares with.** J_h(prior) is what the trusted policy costs *on this plant*, with its sensors, its
actuators and its meters. A plant that rounds is a plant like any other: the f_h and c_h of its rounds round, and the
prior is replayed on the same ones. That is what an operator who let the prior run would have paid and read off. It is
also the only comparison that the prior itself keeps under every contract: on actuators that round it costs another sum
than on exact ones, now more, now less, and where that is more than the contract leaves (lam = b = 0 leaves nothing) no
guard can make up for it, since nothing is safer than to play the prior. So what both plants round alike is nobody's
fault, and there is no allowance for it: a cost above the bound is a violation.

Only an actuator of which nobody knows what it does, `tether.assure.scenarios.sloppy`, is judged by the prior *as it
decides*: what it would have made of other actions is not known either.

**Why it can be kept.** As long as only the prior was played, both plants are the same to the last bit, and so are their
costs. From the first deviation on they may be rounded apart in every round to come, whoever plays: that must be paid
for in advance, when the deviation is decided.

- A structure does so by its reserve: 4 eps (H + 16) of all that was added up and of its `scale`, the cost of a round,
  for a `resolution` of eps.
- Lipschitz constants know of no such scale. Let t be the most by which what a plant plays is off what the prior would
  decide there if it saw exactly. Then the guarded plant deviates by d + t at most, the prior's own by t, and the costs
  are apart by no more than the deviations d + 2 t can cost: a tolerance of 2 t (`tether.certificates.lipschitz`). It
  costs Gamma 2 t a round, and where a round does not earn that no such certificate can be made.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.core.projection import length
from tether.data.episodes import Episodes
from tether.systems.base import Env, Step

CORNERS = 2_000
"""Situations in which the prior is asked what sensors do to it."""


def trusted(env: Env) -> Env:
    """The plant on which the prior is played that the promise compares with: this one; see the module."""
    plant: Env = getattr(env, "decided", env)
    return plant


@cache
def coarse(env: Env, observation: str, action: str, cost: str) -> Env:
    """The system whose observations, actions and costs are rounded to these types on their way.

    Its attribute `resolution` is the relative round-off of the coarsest, `units` those of sensors, actuators and
    meters; `exact` is the system without it.
    """
    kind: Any = type(env)

    class Coarse(kind):  # type: ignore[misc]
        """See `coarse`."""

        exact = env
        units = tuple(float(np.finfo(each).eps) for each in (observation, action, cost))
        resolution = max(units)

        def observe(self, state: Any, drawn: Any) -> Any:
            """With the digits of the sensors."""
            return _rounded(super().observe(state, drawn), observation)

        def step(self, state: Any, drawn: Any, played: Any) -> Step:
            """With the digits of actuators and meter."""
            after: Step = super().step(state, drawn, _rounded(played, action))
            return after._replace(cost=_rounded(after.cost, cost))

    plant: Env = Coarse(**{each.name: getattr(env, each.name) for each in dataclasses.fields(kind)})
    return plant


def _rounded(values: Any, dtype: str) -> Any:
    return values.astype(dtype).astype(values.dtype)


def apart(env: Any, episodes: Episodes) -> float:
    """2 t of the module, in the norm of a `coarse` plant.

    An actuator is off by half a unit of the largest action. What sensors do to the prior is the most that is found,
    with every number that is seen off by half a unit of its size, one way or the other.

    Args:
        env: Made by `coarse`.
        episodes: What is drawn there; states are anywhere in their `search_ranges`.
    """
    sensors, actuators, _ = env.units
    low, high = env.action_range()
    actuated = 0.5 * actuators * np.maximum(abs(low), abs(high))
    return 2.0 * float(length(actuated + _misled(env.exact, episodes, sensors), env.norm))


def _misled(env: Env, episodes: Episodes, unit: float) -> NDArray[np.float64]:
    """[*action_shape] the most by which the prior's action was found to change with what it sees off by half a unit."""
    rng, ranges, most = np.random.default_rng(0), env.search_ranges(), np.zeros(env.action_shape)
    for i in range(CORNERS):
        state = env.initial()
        for name in set(state._fields).intersection(ranges):
            low, high = (np.asarray(end, dtype=np.float64) for end in ranges[name])
            place = rng.uniform(size=low.shape)
            state = state._replace(**{name: low + (high - low) * (np.round(place) if i % 2 else place)})
        at = int(rng.integers(len(episodes))), int(rng.integers(episodes.horizon))
        seen = env.observation(state, {name: np.asarray(episodes[name][at]) for name in env.drawn_names})
        ways = rng.choice([-0.5, 0.5], size=np.shape(seen))
        off = np.asarray(env.prior(seen * (1.0 + unit * ways))) - np.asarray(env.prior(seen))
        most = np.maximum(most, abs(off))
    return most
