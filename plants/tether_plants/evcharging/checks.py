"""What is assumed of EVChargingEnv, compared with the original."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import tether
from tether.assure.verify import functions
from tether_plants.evcharging.adapter import Garage
from tether_plants.evcharging.structure import AMPERE, CHARGERS, HOURS, ROUNDS, flow
from tether_plants.plant import Check
from tether_plants.verifying import verified


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
        *constants(),
    ]


def constants() -> list[Check]:
    """The Lipschitz constants of a charger, by `tether.verify` on acnportal's own battery: it costs what is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from acnportal.acnsim import Linear2StageBattery

    def after(missing: Any, ampere: Any, _draw: Any) -> Any:
        battery = Linear2StageBattery(100.0, 100.0 - float(missing), 100.0)
        battery.charge(float(ampere), 208.0, 60.0 * HOURS)
        return np.float64(100.0 - battery._current_charge)

    garage = functions(
        cost=after,
        step=after,
        prior=lambda _: np.float64(32.0),
        states=(0.0, 40.0),
        actions=(0.0, 32.0),
        draws=(0.0, 1.0),
    )
    gain = AMPERE * HOURS
    return verified(garage, tether.Sensitivity(gain, gain, tether.geometric(1.0)))
