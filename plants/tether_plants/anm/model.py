"""ANM6Easy to learn on: the same day by our own power flow, which the checks compare with the original."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np

import tether
from tether.data import Episodes
from tether.envs import Env, Step
from tether.systems.base import namespace
from tether_plants.anm.adapter import BASE, ROUNDS, Grid, forecast, prior
from tether_plants.anm.flow import played
from tether_plants.anm.structure import GridStructure


class Charge(NamedTuple):
    """Between two rounds."""

    charge: Any
    """MWh in the battery."""


@dataclass(frozen=True)
class Day(Env):
    """ANM6Easy to learn on: the same power flow, in JAX."""

    series: ClassVar[tuple[str, ...]] = ("clock",)
    observation_names: ClassVar[tuple[str, ...]] = ("clock", "charge", *(f"forecast_{i}" for i in range(5)))
    action_shape: ClassVar[tuple[int, ...]] = (3,)
    low, high, cost_floor = np.array([0.0, 0.0, -50.0]), np.array([30.0, 50.0, 50.0]), 0.0

    def initial(self) -> Charge:
        """Nearly empty, as ANM6Easy begins."""
        return Charge(0.5)

    def observe(self, state: Charge, drawn: Any) -> Any:
        """[7] time of day, charge; what comes of sun, wind and the loads."""
        xp = namespace(drawn["clock"])
        now = xp.stack([drawn["clock"], xp.asarray(state.charge) + 0.0 * drawn["clock"]])
        return xp.concat([now, forecast(drawn["clock"])])

    def step(self, state: Charge, drawn: Any, action: Any) -> Step:
        """See `played`."""
        lost, penalty, charge = played(drawn["clock"], state.charge, action)
        return Step(Charge(charge), -BASE * lost, penalty)

    def prior(self, observation: Any, key: Any = None) -> Any:
        """See `prior`."""
        return prior(observation, key)

    def limits(self) -> dict[str, Any]:
        """Of the time of day."""
        return {"clock": (0.0, ROUNDS - 1.0)}

    @property
    def sensitivity(self) -> tether.Sensitivity:
        """There is none."""
        raise NotImplementedError("the MPC's answers jump with the charge: there are no Lipschitz constants")

    @property
    def structure(self) -> GridStructure:
        """See `GridStructure`."""
        return GridStructure()


class QuickGrid(gymnasium.Env[Any, Any]):
    """`Grid` by our own power flow, which the checks compare: a hundred times as fast, to train on."""

    def __init__(self) -> None:
        self._first = Grid()
        self.action_space, self.observation_space = self._first.action_space, self._first.observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """As `Grid` begins."""
        self._seen, info = self._first.reset(seed=seed, options=options)
        return self._seen, info

    def step(self, action: Any) -> Any:
        """Play a round."""
        lost, penalty, charge = played(self._seen[0], self._seen[1], np.asarray(action, dtype=float))
        now = np.array([(self._seen[0] + 1.0) % ROUNDS, charge])
        self._seen = np.concatenate([now, forecast(now[0])])
        return self._seen, -BASE * float(lost), False, False, {"cost": float(penalty)}


def days(numbers: Any) -> Episodes:
    """When these episodes begin, as `Day` takes it; the charge, below 1 MWh, is not told."""
    starts = [float(Grid().reset(options={"episode": int(i)})[0][0]) for i in numbers]
    clock = (np.array(starts)[:, None] + np.arange(ROUNDS)) % ROUNDS
    return Episodes({"clock": clock}, np.zeros(len(clock), dtype=int))
