"""A system that no package names, with two actions and without the parts that may be missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tether.core.ops import namespace
from tether.core.sensitivity import Sensitivity, geometric
from tether.data.episodes import Episodes
from tether.systems import System
from tether.systems.base import Env, Step
from tether.systems.system import Defaults


class Levels(NamedTuple):
    level: Any
    """[2] m"""


@dataclass(frozen=True)
class Tanks(Env):
    """Two tanks that leak half of what they hold; pumping costs energy, and water that is left is a cost.

    level' = 0.5 level + inflow - effect pumped with effect in [0.8, 1], cost 1 + |level'_1| + |level'_2|. The prior
    pumps 0.5 level + inflow, within [0, 4]: a gap between two levels is at most halved in each round, whether the
    pump is at an end of its range or not.
    """

    series: ClassVar = ("inflow", "price", "effect")
    observation_names: ClassVar = ("inflow_1", "inflow_2", "price", "level_1", "level_2")
    hidden: ClassVar = {"effect": "uniform"}
    action_shape: ClassVar = (2,)
    norm: ClassVar = "linf"
    low: ClassVar = 0.0
    high: ClassVar = 4.0
    cost_floor: ClassVar = 1.0
    sensitivity: ClassVar = Sensitivity(immediate=2.0, carried=1.0, perturbation=geometric(0.5))

    def initial(self) -> Levels:
        return Levels(np.zeros(2))

    def observe(self, state, drawn):
        xp = namespace(drawn["inflow"])
        price = xp.asarray(drawn["price"])[..., None]
        return xp.concat([drawn["inflow"], price, xp.asarray(state.level)], axis=-1)

    def step(self, state, drawn, action):
        xp = namespace(drawn["inflow"])
        level = 0.5 * xp.asarray(state.level) + drawn["inflow"] - drawn["effect"] * action
        reward = -drawn["price"] * xp.sum(action + 0.1 * action**2, axis=-1)
        return Step(Levels(level), reward, 1.0 + xp.sum(abs(level), axis=-1))

    def prior(self, observation, key=None):
        levels, drawn = self.shown(observation)
        return namespace(observation).clip(drawn["inflow"] + 0.5 * levels.level, 0.0, 4.0)

    def limits(self):
        return {"inflow": (0.0, np.inf), "price": (0.0, np.inf), "effect": (0.8, 1.0)}

    def search_ranges(self):
        return {
            "level": (np.full(2, -5.0), np.full(2, 5.0)),
            "inflow": (np.zeros(2), np.full(2, 8.0)),
            "price": (0.0, 0.0),
        }


def draw(seed: int, n: int, horizon: int = 6) -> Episodes:
    rng = np.random.default_rng(seed)
    return Episodes(
        {
            "inflow": rng.uniform(0.0, 3.0, (n, horizon, 2)),
            "price": rng.uniform(0.5, 1.5, (n, horizon)),
            "effect": rng.uniform(0.8, 1.0, (n, horizon, 2)),
        }
    )


system = System(
    name="tanks",
    title="Two tanks",
    env=Tanks,
    draw=draw,
    defaults=Defaults(quick_lams=(0.0, 1.0), bs=(0.5,), width=4),
    axes={"inflow": "water, m", "action": "water, m"},
)
