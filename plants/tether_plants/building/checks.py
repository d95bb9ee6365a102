"""What is assumed of BuildingEnv, compared with the original."""

from __future__ import annotations

from typing import Any

import numpy as np

import tether
from tether.assure.verify import gymnasium_simulator
from tether_plants.building.adapter import DAYS, HORIZON, TARGET, Building, prior
from tether_plants.building.model import Office, days, lipschitz_constants, plant_of
from tether_plants.plant import Check
from tether_plants.verifying import verified


def checks(episodes: int) -> list[Check]:
    """The model, the prior and the ranges against the original environment, under random actions."""
    env, rng, known = Building(), np.random.default_rng(0), Office()
    numbers = rng.permutation(DAYS)[:episodes]
    series, off = days(numbers), np.zeros(4)
    (low, high), (least, most) = plant_of()[4:]
    for i, day in enumerate(numbers):
        observation, _ = env.reset(options={"episode": int(day)})
        for h in range(HORIZON):
            action = rng.uniform(-1.0, 1.0, 6) if h % 2 else prior(observation)
            drawn = {name: series[name][i, h] for name in series.names}
            state = known.initial()._replace(zones=observation[:6].astype(float))
            expected = known.step(state, drawn, action)
            after, reward, _, _, info = env.step(action)
            change = info["revealed"]["change"]
            seen = np.maximum(low - after[6:9], after[6:9] - high)
            off = np.maximum(off, [
                np.abs(expected.state.zones - after[:6]).max(),
                abs(float(expected.cost) - info["cost"]),
                abs(float(expected.reward) - reward),
                max(seen.max(), (least - change).max(), (change - most).max()),
            ])  # fmt: skip
            observation = after
    rounds = episodes * HORIZON
    return [
        Check("next temperatures as in the model (float32), degrees", rounds, float(off[0]), 1e-5),
        Check("discomfort as in the model, cost units", rounds, float(off[1]), 1e-5),
        Check("energy as in the model, kWh", rounds, float(off[2]), 1e-4),
        Check("weather and its change beyond their ranges", rounds, float(off[3]), 0.0),
        *constants(lipschitz_constants()),
    ]


def constants(claimed: tether.Sensitivity) -> list[Check]:
    """Lipschitz constants, by `tether.verify` on the original environment."""

    def put(env: Any, zones: Any) -> None:
        env.unwrapped.state = np.concatenate([zones, env.unwrapped.state[6:]])

    simulator = gymnasium_simulator(
        Building(),
        put,
        prior,
        states=(np.full(6, TARGET - 6.0), np.full(6, TARGET + 6.0)),
        get_state=lambda env, _: env.unwrapped.X_new,  # before it is rounded to float32
        seeds=DAYS,
    )
    return verified(simulator, claimed)
