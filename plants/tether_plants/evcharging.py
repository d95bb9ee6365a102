"""SustainGym's EVChargingEnv: 54 chargers of a garage at Caltech, which charge at once or when power is clean.

**What is promised.** A driver names an energy and a time of departure. A round's cost is the energy (kWh) that is
missing at the times that were named for its end; a car that leaves earlier than was named costs nothing, for anybody.
The reward is the environment's own: profit less carbon and overload, dollars, with carbon at 190 dollars a tonne, not
30.85, at which there is next to nothing to gain. The prior charges every car at once with 32 A, as garages do.

What the certificate rests on is in `tether_plants.evstructure`.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import gymnasium
import numpy as np

import tether
from tether_plants.evlearner import CARBON, learner
from tether_plants.evstructure import AMPERE, CHARGERS, FINE, HOURS, ROUNDS, Shadowed, flow, pilots
from tether_plants.learners import sb3
from tether_plants.plant import Check, Plant


@cache
def _original() -> tuple[Any, Any]:
    """The class, and days drawn from its mixtures, which ship with it; only `reset` uses them, with a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old imports, and mixtures that an older scikit-learn pickled
        from sustaingym.envs.evcharging import EVChargingEnv, GMMsTraceGenerator

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


def lipschitz(contract: tether.Contract) -> tether.LipschitzCertificate:
    """An ampere for five minutes is 0.0173 kWh; a gap stays, and is feared in every round to come."""
    gain = AMPERE * HOURS * CHARGERS**0.5
    return tether.LipschitzCertificate(contract, tether.Sensitivity(gain, gain, tether.geometric(1.0)))


def shadowed(contract: tether.Contract) -> tether.Structured:
    """The prior replayed car by car."""
    return tether.Structured(contract, Shadowed(tuple(bool(each) for each in Garage().fine)))


def checks(days: int) -> list[Check]:
    """Whether batteries follow the flow, who comes and goes whatever is played, and signals arrive as they are sent."""
    env, random = Garage(), np.random.default_rng(0)
    moved, off, rounds = 0.0, 0.0, 0
    for day in range(min(days, 5)):
        seen, _ = env.reset(options={"episode": 900_000 + day})
        for _ in range(ROUNDS):
            action = random.uniform(0.0, 32.0, CHARGERS)
            cars, before = env._before, seen[:CHARGERS]
            seen, *_, info = env.step(action)
            expected = flow(before, info["signals"] * AMPERE, HOURS)
            stayed = [old is new and old is not None for old, new in zip(cars, env._before, strict=True)]
            sent = env.original._simulator.pilot_signals[:, env.original.t - 1]
            moved = max(moved, float(np.max(np.abs(expected - seen[:CHARGERS]) * stayed)))
            off, rounds = max(off, float(np.abs(sent - info["signals"]).max())), rounds + 1
    return [
        Check("energy missing after a round, flow against battery, kWh", rounds, moved, 1e-9),
        Check("pilot signals that arrive against those sent, A", rounds, off, 0.0),
    ]


PLANT = Plant(
    name="evcharging",
    title="Car park with 54 chargers",
    source="sustaingym 0.1.7, EVChargingEnv (Caltech, GMM of summer 2019, no projection)",
    prior_title="charges every car at once, with 32 A",
    cost_title="kWh missing at the times that drivers named",
    reward_title="profit less carbon and overload, dollars",
    contract=tether.Contract(lam=0.2, b=0.02, horizon=ROUNDS, cost_floor=0.0),
    make=Garage,
    prior=greedy,
    certificates={"lipschitz": lipschitz, "shadowed": shadowed},
    episodes=lambda seed, count: (
        range(100_000 + 1_000 * seed, 100_000 + 1_000 * seed + 24),
        range(1_000 * seed, 1_000 * seed + count),
    ),
    learners={"ours": learner, "sb3": sb3(8 * ROUNDS * 2)},
    checks=checks,
    most=20,
    few={"lipschitz": 5},
)
