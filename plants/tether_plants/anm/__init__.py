"""gym-anm's ANM6Easy: six buses, sun, wind and a battery; overloads are promised, lost energy is saved."""

from __future__ import annotations

from typing import Any

import numpy as np

import tether
from tether_plants.anm.adapter import LEVELS, ROUNDS, Grid, forecast, prior, table
from tether_plants.anm.checks import checks
from tether_plants.anm.model import Day, QuickGrid, days
from tether_plants.anm.structure import GridStructure
from tether_plants.learners import always, ours, sb3
from tether_plants.plant import Plant


def split(seed: int, n: int) -> tuple[Any, Any]:
    """12 episodes to learn on, n others to test on."""
    return 100_000 + 1000 * seed + np.arange(12), 1000 * seed + np.arange(n)


def greedy(observation: Any) -> Any:
    """All sun and wind; the battery is charged from what is left over, and emptied when it is not enough."""
    surplus = float(np.sum(forecast(np.float64(observation[0]))))
    return np.array([30.0, 50.0, -15.0 if surplus > 0.0 else 20.0])


def jumps() -> str:
    """Why there are no constants, and nothing to compile."""
    by_level = np.abs(np.diff(table(), axis=1)).max(axis=(0, 2))
    most = int(np.argmax(by_level))
    return (
        f"the prior is a table of what the MPC plays by steps of the charge, and jumps by {by_level[most]:.0f} MW at "
        f"{LEVELS[most + 1]:g} MWh: no slope bounds what a small gap does under it"
    )


PLANT = Plant(
    name="anm",
    title="gym-anm ANM6Easy: a distribution grid with a battery",
    source="gym-anm 2.0.1, ANM6Easy",
    prior_title="its own MPCAgentConstant",
    cost_title="its penalty for overloaded lines and voltages",
    reward_title="minus MWh of energy lost",
    contract=tether.Contract(lam=0.2, b=0.1, horizon=ROUNDS, cost_floor=0.0),
    make=Grid,
    prior=prior,
    certificates={"shadowed": lambda contract: tether.Structured(contract, GridStructure())},
    episodes=split,
    learners={
        "ours": ours(Day, days, passes=100, batch=6),
        "sb3": sb3(23_040, spread=0.3, make=QuickGrid, learning_rate=1e-3, gamma=0.9),
        "greedy": always(greedy),
    },
    checks=checks,
    absent={"lipschitz": jumps, "compiled": jumps},
    most=40,
)
