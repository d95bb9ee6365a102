"""BuildingEnv as a model of ours: to learn on, to replay the prior on, and to compile from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

import tether
from tether.data import Episodes
from tether.envs import Env, Step
from tether.systems.base import namespace
from tether_plants.building.adapter import DAYS, GAIN, HORIZON, TARGET, UNIT, Building
from tether_plants.building.linear import LinearStructure

TINY = 1e-30
"""A root of 0 has no slope."""


@cache
def plant_of() -> tuple[Any, Any, Any, Any, tuple[Any, Any], tuple[Any, Any]]:
    """(A, B, E, weather [T, 3], range of the weather, range of its change in a round)."""
    env = Building().env.unwrapped
    weather = np.stack([env.out_temp, env.ground_temp, env.ghi], axis=1)
    # What is shown has the digits of float32.
    off = 1e-6 * np.abs(weather).max(axis=0)
    changed = np.abs(np.diff(weather, axis=0)).max(axis=0) + 2.0 * off
    seen = weather.min(axis=0) - off, weather.max(axis=0) + off
    return env.A_d, env.BD_d[:, 3:9], env.BD_d[:, [2, 1, 9]], weather, seen, (-changed, changed)


class Temperatures(NamedTuple):
    """Between two rounds."""

    zones: Any
    """[6] degrees."""


@dataclass(frozen=True)
class Office(Env):
    """BuildingEnv without occupants, as its authors configure it: linear. The weather is seen a round late."""

    series: ClassVar[tuple[str, ...]] = ("weather", "change")
    hidden: ClassVar[dict[str, Any]] = {"change": "uniform"}
    observation_names: ClassVar[tuple[str, ...]] = (
        *(f"zones_{i}" for i in range(1, 7)),
        *(f"weather_{i}" for i in range(1, 4)),
    )
    action_shape: ClassVar[tuple[int, ...]] = (6,)
    low, high, cost_floor = -1.0, 1.0, 0.0

    def initial(self) -> Temperatures:
        """At the target."""
        return Temperatures(np.full(6, TARGET))

    def observe(self, state: Temperatures, drawn: Any) -> Any:
        """[9] temperatures; outside, ground, sun as they were last."""
        return namespace(drawn["weather"]).concat([state.zones, drawn["weather"]])

    def step(self, state: Temperatures, drawn: Any, action: Any) -> Step:
        """The reward is minus the energy, kWh, and the cost the discomfort."""
        xp, (A, B, E, *_) = namespace(drawn["weather"]), plant_of()
        after = A @ state.zones + B @ action + E @ (drawn["weather"] + drawn["change"])
        energy = UNIT * xp.sqrt(xp.sum(action**2) + TINY)
        return Step(Temperatures(after), -energy, 0.999 * xp.sqrt(xp.sum((after - TARGET) ** 2) + TINY))

    def prior(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """A proportional rule with saturation, zone by zone."""
        return namespace(observation).clip(GAIN * (TARGET - observation[..., :6]), -1.0, 1.0)

    def limits(self) -> dict[str, Any]:
        """Of a year's weather, and of its change in five minutes."""
        return dict(zip(self.series, plant_of()[4:], strict=True))

    def search_ranges(self) -> dict[str, Any]:
        """Where bounds are looked for."""
        return {**self.limits(), "zones": (np.full(6, TARGET - 6.0), np.full(6, TARGET + 6.0))}

    @property
    def sensitivity(self) -> tether.Sensitivity:
        """See `lipschitz_constants`."""
        return lipschitz_constants()

    @property
    def structure(self) -> LinearStructure:
        """See `structure_of`."""
        return structure_of()


def days(numbers: Any) -> Episodes:
    """The weather of these days of the year, as `Office` takes it."""
    weather = plant_of()[3]
    starts = [int(day / DAYS * len(weather)) for day in numbers]
    drawn = np.array([weather[(start + np.arange(HORIZON)) % len(weather)] for start in starts])
    # The first observation shows the weather of its own round, each other one that of the round before.
    seen = np.concatenate([drawn[:, :1], drawn[:, :-1]], axis=1)
    return Episodes({"weather": seen, "change": drawn - seen}, np.zeros(len(drawn), dtype=int))


@cache
def lipschitz_constants() -> tether.Sensitivity:
    """Constants that hold in every state, saturated or not.

    A saturated zone does not correct: a round takes a gap to (A - B S K) e with any S of diag [0, 1]. As A and B have
    no negative entry and k B <= 2 A (checked), |A - B S K| <= A entry by entry, so what a deviation d does to the cost
    n rounds later is at most 0.999 |A^n B| |d| in the spectral norm, which falls like the largest eigenvalue of A.
    """
    A, B, *_ = plant_of()
    if np.any(A < 0.0) or np.any(B < 0.0) or np.any(GAIN * B > 2.0 * A):
        raise ValueError("the entries of A and B are not as the constants of this building need them")
    rho = float(np.abs(np.linalg.eigvals(A)).max())
    later = [np.linalg.norm(np.linalg.matrix_power(A, n) @ B, 2) / rho ** (n - 1) for n in range(1, HORIZON)]
    return tether.Sensitivity(
        immediate=0.999 * float(np.linalg.norm(B, 2)),
        carried=0.999 * float(max(later)),
        perturbation=tether.geometric(rho),
    )


@cache
def structure_of() -> LinearStructure:
    """What is known of the building: its matrices, and how far the weather of a year can push it in a round."""
    A, B, E, _, (low, high), _ = plant_of()
    disturbance = tuple(
        tuple((np.maximum(sign * E, 0.0) @ first - np.maximum(-sign * E, 0.0) @ second).tolist())
        for sign, first, second in ((1.0, low, high), (1.0, high, low))
    )
    rows = (tuple(map(tuple, matrix.tolist())) for matrix in (A, B))
    return LinearStructure(*rows, disturbance, TARGET, GAIN, 0.999)
