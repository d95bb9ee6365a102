"""SustainGym's BuildingEnv: a small office in Tucson, six zones, days of 288 rounds; comfort promised, energy saved."""

from __future__ import annotations

from typing import Any

import numpy as np

import tether
from tether_plants.building.adapter import DAYS, HORIZON, UNIT, Building, prior
from tether_plants.building.certificates import compiled, lipschitz, shadowed
from tether_plants.building.checks import checks
from tether_plants.building.model import Office, days
from tether_plants.learners import always, ours, sb3
from tether_plants.plant import Plant


def split(seed: int, n: int) -> tuple[Any, Any]:
    """160 days of the year to learn on, n of the others to test on."""
    order = np.random.default_rng(seed).permutation(DAYS)
    if n > DAYS - 160:
        raise ValueError(f"there are {DAYS - 160} days of the year to test on, got {n}")
    return order[:160], order[160 : 160 + n]


PLANT = Plant(
    name="building",
    title="SustainGym BuildingEnv: a small office in Tucson",
    source="sustaingym 0.1.7, BuildingEnv",
    prior_title="a proportional rule with saturation in each zone",
    cost_title="discomfort: distance of six temperatures from 22 °C",
    reward_title="minus kWh of energy",
    contract=tether.Contract(lam=2.0, b=2.0, horizon=HORIZON, cost_floor=0.0),
    make=Building,
    prior=prior,
    certificates={"lipschitz": lipschitz, "compiled": compiled, "shadowed": shadowed},
    episodes=split,
    learners={
        "off": always(lambda _: np.zeros(6)),
        "ours": ours(Office, days, passes=16, taught={"compiled": "shadowed"}),
        "sb3": sb3(18_432),
    },
    checks=checks,
    measures={"zones_kwh": lambda played: -UNIT * float(np.abs(played.actions).sum(axis=(1, 2)).mean())},
)
