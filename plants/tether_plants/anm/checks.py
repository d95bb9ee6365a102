"""What is assumed of ANM6Easy, compared with the original."""

from __future__ import annotations

import numpy as np

from tether_plants.anm.adapter import BASE, ROUNDS, Grid, prior, table
from tether_plants.anm.flow import OFF, held, played
from tether_plants.plant import Check


def checks(episodes: int) -> list[Check]:
    """Power flow, battery, prior and what the prior pays, against the original environment."""
    env, rng, off, rounds = Grid(), np.random.default_rng(0), np.zeros(5), 0
    for episode in (0, 1)[:episodes]:
        observation, _ = env.reset(options={"episode": episode})
        off[4] = max(off[4], observation[1])
        idle = bool(episode % 2)
        for _ in range(ROUNDS // (1 if idle else 4)):
            action = prior(observation) if idle else rng.uniform([0.0, 0.0, -20.0], [20.0, 25.0, 20.0])
            lost, penalty, charge = played(*observation[:2], action)
            paid = held()[0][int(observation[0])]
            after, reward, _, _, info = env.step(action)
            off[:4] = np.maximum(off[:4], [
                abs(penalty - info["cost"]), abs(BASE * lost + reward), abs(charge - after[1]),
                abs(paid - info["cost"]) if idle else 0.0,
            ])  # fmt: skip
            observation, rounds = after, rounds + 1
    return [
        Check("penalty as by our power flow, cost units", rounds, float(off[0]), OFF),
        Check("energy lost as by our power flow, MWh", rounds, float(off[1]), 0.01),
        Check("charge after a round, MWh", rounds, float(off[2]), 1e-3),
        Check("what the MPC pays against the table, cost units", rounds, float(off[3]), OFF),
        Check("charge at the beginning, MWh", rounds, float(off[4]), 1.0),
        holding(),
    ]


def holding(places: int = 8, rounds: int = 6) -> Check:
    """Whether holding costs no more than is claimed, in the original environment from any charge and time of day."""
    env, rng, most = Grid(), np.random.default_rng(1), -np.inf
    env.reset(options={"episode": 0})
    inner = env.env.unwrapped
    for _ in range(places):
        clock, charge = int(rng.integers(ROUNDS)), rng.uniform(0.0, BASE)
        inner.state[-1], inner.simulator.devices[6].soc = float(clock), charge / BASE
        for _ in range(rounds):
            _, _, _, _, info = env.step(table()[clock, 0])
            most = max(most, info["cost"] - held()[1][clock])
            clock = (clock + 1) % ROUNDS
    return Check("cost of holding beyond what is claimed, cost units", places * rounds, float(most), OFF)
