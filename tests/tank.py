"""A system of somebody's own, installed nowhere: a tank that is pumped out. `tether attack tank:system` finds it.

Level x, inflow w in [0, 1], seen before acting; a is pumped, of which a share v in [0.8, 1] leaves the tank.

    x' = x/2 + w - v a        cost   1 + |x'|        reward   -a^2        prior   pi(x) = clip(x/2 + w, 0, 3)

Under the prior x' rises with x, by at most 1/2 a unit: two levels that are e apart are at most e/2 + |a - pi(x)| apart
after a round in which one plays a, and the costs differ by no more than the levels do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import tether
from tether.certificates import Bounds, Structure
from tether.data import Episodes
from tether.envs import Env, Step
from tether.systems import System
from tether.systems.base import namespace


class TankState(NamedTuple):
    level: Any


@dataclass(frozen=True)
class TankStructure(Structure):
    """One gap, e >= |x - x+|."""

    kind = "tank"
    low, high = 0.0, 3.0
    gap_names = ("apart",)

    def start(self, zero):
        return (zero,)

    def read(self, observation):
        return observation[1], observation[0]

    def gaps_between(self, seen, prior_seen, ops):
        return (abs(seen[0] - prior_seen[0]),)

    def bounds(self, now, action, plan, ops):
        level, inflow = now.seen
        after = 0.5 * now.gaps[0] + abs(action - now.prior)
        ceiling = 1.0 + abs(0.5 * level + inflow) + action
        return Bounds.from_differences([after, 0.5 * after], 0.5 * after, now, ceiling, (after,))

    def close(self, step, cost, epsilon, ops):
        return ops.maximum(cost - step[0], 1.0), step

    def gaps_from_features(self, above, below):
        return (above,)


@dataclass(frozen=True)
class Tank(Env):
    series = ("inflow", "strength")
    observation_names = ("inflow", "level")
    hidden = {"strength": "uniform"}  # noqa: RUF012
    low, high, cost_floor = 0.0, 3.0, 1.0
    sensitivity = tether.Sensitivity(immediate=1.0, carried=0.5, perturbation=tether.geometric(0.5))
    structure = TankStructure()

    def limits(self):
        return {"inflow": (0.0, 1.0), "strength": (0.8, 1.0)}

    def search_ranges(self):
        return {"level": (-6.0, 6.0)}

    def initial(self):
        return TankState(0.0)

    def observe(self, state, drawn):
        xp = namespace(drawn["inflow"])
        return xp.stack([xp.asarray(drawn["inflow"]), xp.asarray(state.level)])

    def step(self, state, drawn, action):
        level = 0.5 * state.level + drawn["inflow"] - drawn["strength"] * action
        return Step(TankState(level), -(action**2), 1.0 + abs(level))

    def prior(self, observation, key=None):
        xp = namespace(observation)
        seen = xp.asarray(observation)
        return xp.clip(0.5 * seen[..., 1] + seen[..., 0], 0.0, 3.0)


def draw(seed, n, horizon=24):
    rng = np.random.default_rng(seed)
    return Episodes(
        {"inflow": rng.uniform(0.0, 1.0, (n, horizon)), "strength": rng.uniform(0.8, 1.0, (n, horizon))}
    )


system = System(name="tank", title="A tank that is pumped out", env=Tank, draw=draw)
