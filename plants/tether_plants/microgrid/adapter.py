"""Vessim's microgrid, hour by hour; and its DefaultDispatchPolicy as the prior."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import vessim
from vessim.microgrid import Microgrid

from tether_plants.microgrid.learner import SELL, stored
from tether_plants.microgrid.model import day
from tether_plants.microgrid.structure import CAPACITY, HOURS, POWER, RESERVE, START


class Dispatch(vessim.DispatchPolicy):
    """The battery does what it is told, as far as it can, and the grid does the rest."""

    power = 0.0
    """W, above 0 to charge."""

    def apply(self, p_delta: Any, duration: Any, dispatchables: Any, grid_signals: Any = None) -> None:  # noqa: ARG002
        """Set both."""
        battery, grid = dispatchables
        low, high = battery.feasible_range(duration)
        battery.set_power(min(max(self.power, low), high), duration)
        grid.set_power(p_delta - battery.current_power, duration)


def parts(series: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Actors, dispatchables and grid signals of a day of Vessim's."""
    clock = pd.to_timedelta(np.arange(HOURS), unit="h")
    surplus = vessim.Trace(pd.Series(1e3 * series[:, 0], clock))
    price = vessim.Trace(pd.Series(series[:, 1], clock))
    battery = vessim.SimpleBattery(
        "battery", 1e3 * CAPACITY, initial_soc=START / CAPACITY, c_rate=POWER / CAPACITY
    )
    return [vessim.Actor("servers and sun", surplus)], [battery, vessim.GridConnection()], {"price": price}


class Hourly(gymnasium.Env[Any, Any]):
    """A day of Vessim's: kWh stored, kW left over, cents a kWh, the hour; an action is kW into the battery."""

    action_space = gymnasium.spaces.Box(-POWER, POWER, (1,), np.float64)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the day `options["episode"]`."""
        self.begin(day(int((options or {}).get("episode", seed or 0))))
        return self._look(), {}

    def begin(self, series: Any) -> None:
        """Set Vessim up for the day [24, 3]."""
        self.series, self.hour = series, 0
        actors, (self.battery, self.grid), signals = parts(self.series)
        self.policy = Dispatch()
        self.original = Microgrid(3600, actors, [self.battery, self.grid], self.policy, signals)

    def step(self, action: Any) -> Any:
        """Let an hour pass."""
        self.policy.power = 1e3 * float(np.ravel(action)[0])
        self.original.advance(3600 * self.hour)
        self.original.finish(3600 * (self.hour + 1))
        price, sold = self.series[self.hour, 1], self.original.p_grid / 1e3
        reward = price * (SELL * max(sold, 0.0) - max(-sold, 0.0))
        cost = 1.0 + 0.05 * max(RESERVE - self.battery.charge_level / 1e3, 0.0) ** 2
        self.hour += 1
        over = self.hour >= HOURS
        return self._look(), reward, over, False, {"cost": cost, "revealed": {}}

    def _look(self) -> Any:
        row = self.series[min(self.hour, HOURS - 1)]
        if self.hour < HOURS:
            self.original.sample(3600 * self.hour)
            row = [sum(self.original._powers.values()) / 1e3, *row[1:]]
        return np.array([self.battery.charge_level / 1e3, *row])


def store(observation: Any) -> Any:
    """What Vessim's DefaultDispatchPolicy does with battery and grid, in this order; the checks compare them."""
    return stored(np.asarray(observation))[None]
