"""A chiller plant with steps instead of a dial, and a prior that only looks at what nobody changes.

Temperature x above the setpoint, heat w that comes in (seen before acting), a taken out, of which a share v has effect.

    x' = keep x + heat (w - v a)        cost   1 + |x'|        reward   -a        prior   the least step of at least w

Under the prior two temperatures that are e apart are keep e apart a round later, whatever the heat; a deviation moves
the temperature by at most heat times itself. So immediate = heat, carried = keep heat and rho = keep, all of them
reached where v = 1 and both are too hot. With two switches (`pair`) their values add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

import tether
from tether.data import Episodes
from tether.envs import Env, Step
from tether.systems.base import namespace


class ChillerState(NamedTuple):
    temperature: Any


@dataclass(frozen=True)
class Chillers(Env):
    series: ClassVar[tuple[str, ...]] = ("heat", "effect", "script")
    observation_names: ClassVar[tuple[str, ...]] = ("heat", "temperature", "script")
    hidden: ClassVar[dict[str, str]] = {"effect": "uniform"}
    norm = "l1"

    steps: int = 5
    keep: float = 0.8
    warming: float = 1.0
    pair: bool = False

    @property
    def action_shape(self):
        return (2,) if self.pair else ()

    @property
    def levels(self):
        """Of a switch, heat units."""
        return np.linspace(0.0, 2.0 if self.pair else 4.0, self.steps)

    @property
    def actions(self):
        levels = self.levels
        return (
            tether.FiniteActions.grid(levels, levels, norm="l1")
            if self.pair
            else tether.FiniteActions(levels)
        )

    low = 0.0
    high = 4.0
    cost_floor = 1.0

    @property
    def sensitivity(self):
        return tether.Sensitivity(self.warming, self.keep * self.warming, tether.geometric(self.keep))

    def limits(self):
        return {"heat": (0.0, 4.0), "effect": (0.8, 1.0)}

    def initial(self):
        return ChillerState(0.0)

    def observe(self, state, drawn):
        xp = namespace(drawn["heat"])
        return xp.stack(
            [xp.asarray(drawn["heat"]), xp.asarray(state.temperature), xp.asarray(drawn["script"])]
        )

    def staging(self, heat):
        """The number of the least step of at least so much heat; of a pair, of each."""
        share = 2.0 if self.pair else 1.0
        return (heat / share > self.levels[:-1] + 1e-9).sum()

    def prior(self, observation, key=None):
        xp = namespace(observation)
        level = xp.asarray(self.levels)[self.staging(observation[0])]
        return xp.stack([level, level]) if self.pair else level

    def step(self, state, drawn, action):
        xp = namespace(drawn["heat"])
        taken = xp.sum(action) if self.pair else action
        after = self.keep * state.temperature + self.warming * (drawn["heat"] - drawn["effect"] * taken)
        return Step(ChillerState(after), -taken, 1.0 + abs(after))


def hostile(env):
    """Plays the value that the script says."""

    def policy(observation, key):
        xp = namespace(observation)
        script = xp.where(observation[2] > 90.0, xp.nan, observation[2])
        return xp.stack([script, 4.0 - script]) if env.pair else script

    return policy


def draw(env, count, horizon, rng):
    """Heat and effect at their ends mostly, and scripts of extremes: held, switched, mixed, and what is no number."""
    shape = (count, horizon)
    ends = rng.choice([0.0, 4.0], size=(2, count, 1))
    later = np.arange(horizon) >= rng.integers(horizon, size=(count, 1))
    mixed = rng.uniform(size=shape) < 0.5
    second = np.where(rng.uniform(size=(count, 1)) < 0.5, later, mixed)
    script = np.where(second, ends[1], ends[0])
    script = np.where(rng.uniform(size=shape) < 0.1, rng.uniform(0.0, 4.0, size=shape), script)
    script = np.where(rng.uniform(size=shape) < 0.02, 99.0, script)
    heat = np.where(
        rng.uniform(size=(count, 1)) < 0.5, rng.uniform(0.0, 4.0, shape), rng.choice(env.levels, shape)
    )
    effect = np.where(rng.uniform(size=(count, 1)) < 0.7, 1.0, rng.uniform(0.8, 1.0, shape))
    return Episodes({"heat": heat, "effect": effect, "script": script})
