"""Vessim's microgrid: solar power, servers, a battery and the grid, with its DefaultDispatchPolicy as the prior.

**What is promised.** The battery is also what keeps the servers up when the grid fails: a round (an hour) costs
1 + 0.05 times the square of the kWh that are missing to a reserve of 14 kWh at its end. The reward is what the grid
pays less what it charges, cents; it buys for half of what it sells. The prior stores what the sun leaves over and
takes from the battery what it does not give, as Vessim does unless told otherwise. Days are drawn here: Vessim's own
data sets would have to be downloaded.

What the certificate rests on is in `tether_plants.reserve`; `tether_plants.live` lets Vessim run by itself, with the
guard as a service.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import vessim
from vessim.microgrid import Microgrid

import tether
from tether_plants.gridlearner import SELL, learner, stored
from tether_plants.gridmodel import KNOWN, MODEL, Env, day
from tether_plants.gridmodel import system as system
from tether_plants.learners import sb3
from tether_plants.plant import Check, Plant
from tether_plants.reserve import CAPACITY, HOURS, POWER, RESERVE, START, Reserve


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
        self.series, self.hour = day(int((options or {}).get("episode", seed or 0))), 0
        actors, (self.battery, self.grid), signals = parts(self.series)
        self.policy = Dispatch()
        self.original = Microgrid(3600, actors, [self.battery, self.grid], self.policy, signals)
        return self._look(), {}

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


def checks(days: int) -> list[Check]:
    """Battery, cost, reward and prior of the model against Vessim's."""
    env, random = Hourly(), np.random.default_rng(0)
    worst = {
        "charge, kWh": 0.0,
        "reward, cents": 0.0,
        "prior's power against DefaultDispatchPolicy's, kW": 0.0,
    }
    for number in range(days):
        seen, _ = env.reset(options={"episode": 500_000 + number})
        for _ in range(HOURS):
            theirs = vessim.DefaultDispatchPolicy()
            theirs.apply(1e3 * seen[1], 3600, [env.battery, env.grid])
            off = [0.0, 0.0, abs(env.battery.current_power / 1e3 - store(seen)[0])]
            action, before = random.uniform(-POWER, POWER, 1), seen
            seen, reward, *_ = env.step(action)
            off[0] = abs(float(np.clip(before[0] + action[0], 0.0, CAPACITY)) - seen[0])
            off[1] = abs(float(MODEL.reward(before[0], before[1:], action[0], 0.0)) - reward)  # type: ignore[misc]
            worst = {
                name: max(most, float(each)) for (name, most), each in zip(worst.items(), off, strict=True)
            }
    allowed = (1e-9, 1e-3, 1e-9)
    return [
        Check(name, days * HOURS, *pair) for name, *pair in zip(worst, worst.values(), allowed, strict=True)
    ]


PLANT = Plant(
    name="microgrid",
    title="Microgrid with a battery",
    source="vessim 0.16, SimpleBattery and GridConnection",
    prior_title="Vessim's DefaultDispatchPolicy: store what is left over",
    cost_title="1 + 0.05 (kWh below a reserve of 14)^2",
    reward_title="what the grid pays less what it charges, cents",
    contract=tether.Contract(lam=0.5, b=0.2, horizon=HOURS, cost_floor=1.0),
    make=Hourly,
    prior=store,
    certificates={
        "lipschitz": lambda contract: tether.LipschitzCertificate(contract, KNOWN),
        "compiled": lambda contract: tether.compile(Env().model(), contract),
        "shadowed": lambda contract: tether.Structured(contract, Reserve()),
    },
    episodes=lambda seed, count: (
        range(100_000 + 1_000 * seed, 100_200 + 1_000 * seed),
        range(1_000 * seed, 1_000 * seed + count),
    ),
    learners={"ours": learner(day), "sb3": sb3(HOURS * 8 * 40)},
    checks=checks,
    few={"compiled": 10},
    only={"compiled": ["ours"]},
)
