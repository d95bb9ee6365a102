"""Vessim's microgrid: solar power, servers, a battery and the grid, with its DefaultDispatchPolicy as the prior.

**What is promised.** The battery is also what keeps the servers up when the grid fails: a round (an hour) costs
1 + 0.05 times the square of the kWh that are missing to a reserve of 14 kWh at its end. The reward is what the grid
pays less what it charges, cents; it buys for half of what it sells. The prior stores what the sun leaves over and
takes from the battery what it does not give, as Vessim does unless told otherwise. Days are drawn here: Vessim's own
data sets would have to be downloaded.

What the certificate rests on is in `tether_plants.microgrid.structure`; `tether_plants.microgrid.live` lets Vessim run
by itself, with the guard as a service.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tether
from tether_plants.learners import sb3
from tether_plants.microgrid.adapter import Hourly, store
from tether_plants.microgrid.checks import checks
from tether_plants.microgrid.learner import learner
from tether_plants.microgrid.model import KNOWN, Env, day
from tether_plants.microgrid.model import system as system
from tether_plants.microgrid.structure import HOURS, Reserve
from tether_plants.plant import Plant


@cache
def compiled(contract: tether.Contract) -> Any:
    """From the model alone."""
    return tether.compile(Env().model(), contract)


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
        "compiled": compiled,
        "shadowed": lambda contract: tether.Structured(contract, Reserve()),
    },
    episodes=lambda seed, count: (
        range(100_000 + 1_000 * seed, 100_200 + 1_000 * seed),
        range(1_000 * seed, 1_000 * seed + count),
    ),
    learners={"ours": learner(day), "sb3": sb3(HOURS * 8 * 40)},
    checks=checks,
)
