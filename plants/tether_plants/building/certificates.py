"""What the guards of BuildingEnv know: three numbers, what follows from the model, or the prior's own day."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import tether
from tether.certificates import Shadowing
from tether_plants.building.adapter import TARGET
from tether_plants.building.model import Office, lipschitz_constants, plant_of, structure_of


def lipschitz(contract: tether.Contract) -> tether.LipschitzCertificate:
    """Three numbers."""
    return tether.LipschitzCertificate(contract, lipschitz_constants())


def shadowed(contract: tether.Contract) -> Shadowing:
    """The prior's own day is replayed: the weather of a round is seen once it is over."""
    return Shadowing(contract, structure_of(), Office())


SMOOTH = 0.1
"""Degrees: interval analysis cannot bound the slope of a root at 0, so the compiled guard keeps an account of a cost
that is rounded there, and above the environment's by at most 0.999 of this."""


@cache
def compiled(contract: tether.Contract) -> Any:
    """From the model alone. With c <= s <= c + d, sum s <= (1 + lam) sum s+ + h (b - (1 + lam) d) is the promise."""
    model = replace(Office().model(), play=None, step=_after, cost=_smooth)
    b = contract.b - (1.0 + contract.lam) * 0.999 * SMOOTH
    return tether.compile(model, replace(contract, b=b))


def _after(x: Any, z: Any, a: Any, w: Any) -> Any:
    A, B, E, *_ = plant_of()
    return A @ x + B @ a + E @ (z + w)


def _smooth(x: Any, z: Any, a: Any, w: Any) -> Any:
    import jax.numpy as jnp

    return 0.999 * jnp.sqrt(SMOOTH**2 + jnp.sum((_after(x, z, a, w) - TARGET) ** 2))


def charged(_observation: Any, _action: Any, _after: Any, info: Any) -> float:
    """What the compiled guard's account is told: `_smooth` of the same temperatures."""
    return float(np.hypot(info["cost"], 0.999 * SMOOTH))
