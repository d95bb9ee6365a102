"""The microgrid as a model, which `tether.compile` takes, and as a system, which every command takes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import tether
from tether.data.episodes import Episodes
from tether.systems.system import System
from tether_plants.microgrid.learner import SELL
from tether_plants.microgrid.structure import CAPACITY, HOURS, POWER, RESERVE, START, Reserve, band


def day(number: int) -> Any:
    """[24, 3] of a day: kW that the sun leaves over, below 0 lacking; cents a kWh; the hour as a share of the day."""
    random, hours = np.random.default_rng([18, number]), np.arange(HOURS)
    low, high = band()
    surplus = low + (high - low) * np.clip(
        random.uniform(0.0, 1.0) + random.normal(0.0, 0.25, HOURS), 0.0, 1.0
    )
    price = 15.0 + 30.0 * ((hours >= 17) & (hours < 21))
    return np.stack([surplus, price * random.uniform(0.8, 1.2), hours / HOURS], axis=1)


def charged(x: Any, z: Any, a: Any, w: Any) -> Any:  # noqa: ARG001
    """The model: kWh after the hour; w is what is lost, nothing in Vessim's SimpleBattery."""
    return jnp.clip(x + a - w, 0.0, CAPACITY)


def bill(x: Any, z: Any, a: Any, w: Any) -> Any:
    """Cents of the hour."""
    sold = z[0] - (charged(x, z, a, w) - x)
    return z[1] * (SELL * jnp.maximum(sold, 0.0) - jnp.maximum(-sold, 0.0))


_LOW, _HIGH = (
    np.stack([end, np.full(HOURS, price), np.arange(HOURS) / HOURS], axis=1)
    for end, price in zip(band(), (0.0, 60.0), strict=True)
)
MODEL = tether.Model(
    step=charged,
    cost=lambda x, z, a, w: 1.0 + 0.05 * jnp.maximum(RESERVE - charged(x, z, a, w), 0.0) ** 2,
    prior=lambda x, z: jnp.clip(jnp.clip(z[0], -POWER, POWER), -x, CAPACITY - x),
    reward=bill, initial=START, state=(0.0, CAPACITY), action=(-POWER, POWER), context=(_LOW.min(0), _HIGH.max(0)),
    draws=(0.0, 0.0), band=(_LOW, _HIGH),
)  # fmt: skip
KNOWN = tether.Sensitivity(immediate=1.4, carried=1.4, perturbation=tether.geometric(1.0))
"""0.1 * 14 a kWh at most, and a gap stays."""


def drawn(numbers: Any) -> Episodes:
    """These days, for training on the model."""
    context = np.array([day(int(number)) for number in numbers])
    return Episodes({"context": context, "draws": np.zeros(context.shape[:2])})


_MADE = tether.systems.from_model(
    "microgrid", "Microgrid", MODEL, horizon=HOURS, cost_floor=1.0, sensitivity=KNOWN,
    draw=lambda seed, n, _horizon=HOURS: drawn(range(1_000 * seed, 1_000 * seed + n)),
)  # fmt: skip


class Env(_MADE.env):  # type: ignore[name-defined, misc]
    """The model as an environment of tether's, with a structure of its own."""

    structure = Reserve()


system = System("microgrid", "Microgrid", Env, _MADE.draw)
"""For `tether serve`, `tether attack` and the others: `tether_plants.microgrid:system`."""
