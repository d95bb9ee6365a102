"""What is assumed of Vessim's microgrid, compared with the original."""

from __future__ import annotations

from typing import Any

import numpy as np
import vessim

from tether.assure.verify import gymnasium_simulator
from tether_plants.microgrid.adapter import Hourly, store
from tether_plants.microgrid.model import KNOWN, MODEL
from tether_plants.microgrid.structure import CAPACITY, HOURS, POWER, band
from tether_plants.plant import Check
from tether_plants.verifying import verified


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
    found = [
        Check(name, days * HOURS, *pair) for name, *pair in zip(worst, worst.values(), allowed, strict=True)
    ]
    return [*found, *constants()]


def constants() -> list[Check]:
    """The Lipschitz constants, by `tether.verify` on Vessim's own microgrid; a state is the charge, and the sun's."""

    def put(env: Any, state: Any) -> None:
        series = env.series.copy()
        series[:, 0] = state[1]
        env.begin(series)
        env.battery.charge_level, env.battery._soc = 1e3 * state[0], state[0] / CAPACITY
        env.original.sample(0)

    low, high = band()
    simulator = gymnasium_simulator(
        Hourly(),
        put,
        store,
        states=(np.array([0.0, low.min()]), np.array([CAPACITY, high.max()])),
        get_state=lambda _, seen: seen[:2],
        shared=(1,),
    )
    return verified(simulator, KNOWN)
