"""What the guards of BuildingEnv know: three numbers, what follows from the model, or the prior's own day."""

from __future__ import annotations

from functools import cache
from typing import Any

import tether
from tether.certificates import Shadowing
from tether_plants.building.model import Office, lipschitz_constants, structure_of


def lipschitz(contract: tether.Contract) -> tether.LipschitzCertificate:
    """Three numbers."""
    return tether.LipschitzCertificate(contract, lipschitz_constants())


def shadowed(contract: tether.Contract) -> Shadowing:
    """The prior's own day is replayed: the weather of a round is seen once it is over."""
    return Shadowing(contract, structure_of(), Office())


@cache
def compiled(contract: tether.Contract) -> Any:
    """From the model alone."""
    return tether.compile(Office().model(), contract)
