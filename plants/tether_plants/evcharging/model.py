"""One charger of the garage as a model that `tether.compile` takes, and what comes of it.

The promise is a sum over chargers: if each keeps lam and b / 54, the garage keeps lam and b.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

import tether
from tether_plants.evcharging.structure import CHARGERS, FULL, HOURS

MOST = FULL * HOURS
"""kWh of a round at 32 A."""


def missing(x: Any, z: Any, a: Any, w: Any) -> Any:  # noqa: ARG001
    """KWh that the car misses after a round that gives it a; z: whether it is new, with how much, whether it is due."""
    return jnp.clip(
        z[0] * z[1] + (1.0 - z[0]) * x - a, 0.0, 40.0
    )  # intervals do not know that a mean stays inside


CHARGER = tether.Model(
    step=missing,
    cost=lambda x, z, a, w: z[2] * missing(x, z, a, w),
    prior=lambda x, z: jnp.minimum(z[0] * z[1] + (1.0 - z[0]) * x, MOST),
    state=(0.0, 40.0), action=(0.0, MOST), context=([0.0, 0.0, 0.0], [1.0, 40.0, 1.0]),
)  # fmt: skip


def kept_back(contract: tether.Contract, rounds: int = 12) -> str:
    """How much the compiled certificate of one charger lets be kept back, an hour into the day."""
    certificate = tether.compile(CHARGER, replace(contract, b=contract.b / CHARGERS))
    guard = tether.Guard(certificate, CHARGER.policy, 0.0, MOST)
    for _ in range(rounds):
        guard.act([0.0, 0.0, 0.0, 0.0], 0.0)
        guard.observe(0.0)
    played = float(guard.act([0.0, 1.0, 10.0, 0.0], 0.0).action)
    return (
        f"of one charger, which has b / {CHARGERS}, {32.0 * (1.0 - played / MOST):.2g} of 32 A can be kept back from a "
        "car that misses 10 kWh and is not due: intervals do not know that a gap is paid for once, at a departure, and "
        "fear it in each of the rounds to come"
    )
