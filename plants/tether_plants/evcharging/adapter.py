"""SustainGym's EVChargingEnv without its projection, what is promised as its cost; and the prior."""

from __future__ import annotations

import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np

from tether_plants.evcharging.structure import CHARGERS, FINE, ROUNDS, pilots

PROFIT, CARBON = 0.03, 0.19
"""Dollars a kWh, and a kg of carbon, which is not the environment's own price of 0.03085."""


@cache
def _original() -> tuple[Any, Any]:
    """The class, and days drawn from its mixtures, which ship with it; only `reset` uses them, with a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old imports, and mixtures that an older scikit-learn pickled
        from acnportal.acnsim.models.evse import FiniteRatesEVSE
        from sustaingym.envs.evcharging import EVChargingEnv, GMMsTraceGenerator

        # Whether a charger takes a signal is asked 54 times a round, and is half of the time: each answer is kept.
        asked = FiniteRatesEVSE._valid_rate
        known = cache(lambda rates, pilot: asked(SimpleNamespace(allowable_rates=rates), pilot))
        FiniteRatesEVSE._valid_rate = lambda self, pilot: known(tuple(self.allowable_rates), float(pilot))
        return EVChargingEnv, GMMsTraceGenerator("caltech", "Summer 2019", seed=0)


class Garage(gymnasium.Env[Any, Any]):
    """The original without its projection; [54] energies missing, rounds to the times named, who is new, and the grid.

    The grid: kg CO2/kWh now, mean and least of the forecast for three hours, and the time of day.
    """

    def __init__(self) -> None:
        made, days = _original()
        with warnings.catch_warnings():  # it would silence all warnings for good
            self.original = made(days, project_action_in_env=False)
        self.original.CARBON_COST_FACTOR = self.original.A_PERS_TO_KWH * CARBON
        self.fine = np.asarray(self.original.cn.min_pilot_signals) == FINE
        self.action_space = gymnasium.spaces.Box(0.0, 32.0, (CHARGERS,), np.float64)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3 * CHARGERS + 4,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the day that `options["episode"]` seeds."""
        number = (options or {}).get("episode", seed)
        self._before: list[Any] = [None] * CHARGERS
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.original.reset(seed=number)
        return self._look(), {}

    def step(self, action: Any) -> Any:
        """Charge for five minutes."""
        cars = self._before
        due = [car for car in cars if car is not None and car.estimated_departure == self.original.t + 1]
        signals = np.where([car is not None for car in cars], pilots(np.asarray(action), self.fine), 0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of overloaded cables, which it prices
            _, reward, *_ = self.original.step(signals / 32.0)
        info = {"cost": float(sum(max(car.remaining_demand, 0.0) for car in due)), "signals": signals}
        return self._look(), float(reward), self.original.t >= ROUNDS, False, info

    def _look(self) -> Any:
        original, old = self.original, self._before
        network = original._simulator.network
        cars = [network._EVSEs[name].ev for name in network.station_ids]
        missing = np.array([0.0 if car is None else max(car.remaining_demand, 0.0) for car in cars])
        left = [0.0 if car is None else car.estimated_departure - original.t for car in cars]
        new = [float(car is not None and car is not was) for car, was in zip(cars, old, strict=True)]
        self._before = cars
        now, *coming = original.moer[original.t]
        return np.concatenate([missing, left, new, [now, np.mean(coming), min(coming), original.t / ROUNDS]])


def greedy(observation: Any) -> Any:
    """Every car that is there, at once."""
    return np.where(np.asarray(observation)[:CHARGERS] > 0.0, 32.0, 0.0)
