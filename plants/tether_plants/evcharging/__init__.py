"""SustainGym's EVChargingEnv: 54 chargers of a garage at Caltech, which charge at once or when power is clean.

**What is promised.** A driver names an energy and a time of departure. A round's cost is the energy (kWh) that is
missing at the times that were named for its end; a car that leaves earlier than was named costs nothing, for anybody.
The reward is the environment's own: profit less carbon and overload, dollars, with carbon at 190 dollars a tonne, not
30.85, at which there is next to nothing to gain. The prior charges every car at once with 32 A, as garages do.

What the certificate rests on is in `tether_plants.evcharging.structure`.
"""

from __future__ import annotations

import tether
from tether_plants.evcharging.adapter import Garage, greedy
from tether_plants.evcharging.checks import checks
from tether_plants.evcharging.learner import learner
from tether_plants.evcharging.model import Compiled, Stays
from tether_plants.evcharging.structure import AMPERE, CHARGERS, HOURS, ROUNDS, Shadowed
from tether_plants.learners import sb3
from tether_plants.plant import Plant


def lipschitz(contract: tether.Contract) -> tether.LipschitzCertificate:
    """An ampere for five minutes is 0.0173 kWh; a gap stays, and is feared in every round to come."""
    gain = AMPERE * HOURS * CHARGERS**0.5
    return tether.LipschitzCertificate(contract, tether.Sensitivity(gain, gain, tether.geometric(1.0)))


def shadowed(contract: tether.Contract) -> tether.Structured:
    """The prior replayed car by car."""
    return tether.Structured(contract, Shadowed(fine()))


def compiled(contract: tether.Contract) -> Compiled:
    """The prior replayed car by car; what a round does to a stay is compiled from the model of one."""
    return Compiled(contract, Stays(fine()))


def fine() -> tuple[bool, ...]:
    """[54] which chargers take every whole number of amperes from 6 on."""
    return tuple(bool(each) for each in Garage().fine)


CONTRACT = tether.Contract(lam=0.2, b=0.02, horizon=ROUNDS, cost_floor=0.0)
PLANT = Plant(
    name="evcharging",
    title="Car park with 54 chargers",
    source="sustaingym 0.1.7, EVChargingEnv (Caltech, GMM of summer 2019, no projection)",
    prior_title="charges every car at once, with 32 A",
    cost_title="kWh missing at the times that drivers named",
    reward_title="profit less carbon and overload, dollars",
    contract=CONTRACT,
    make=Garage,
    prior=greedy,
    certificates={"lipschitz": lipschitz, "compiled": compiled, "shadowed": shadowed},
    episodes=lambda seed, count: (
        range(100_000 + 1_000 * seed, 100_000 + 1_000 * seed + 24),
        range(1_000 * seed, 1_000 * seed + count),
    ),
    learners={"ours": learner, "sb3": sb3(8 * ROUNDS * 2)},
    checks=checks,
    most=40,
)
