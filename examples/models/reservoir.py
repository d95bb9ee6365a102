"""A reservoir (million m3): a gate releases by the square root of the level; too full and too empty cost."""

import jax.numpy as jnp
import numpy as np

import tether


def volume(x, z, a, w):  # z: inflow and price of power; w: rain and evaporation; below 1 nothing flows out
    return jnp.clip(x + z[0] + w - 0.8 * a * jnp.sqrt(x), 1.0, 12.0)


def cost(x, z, a, w):
    return 1.0 + 0.4 * jnp.maximum(abs(volume(x, z, a, w) - 7.0) - 1.0, 0.0) ** 2


reservoir = tether.Model(
    volume, cost,
    prior=lambda x, z: jnp.clip((z[0] + 0.4 * (x - 7.0)) / (0.8 * jnp.sqrt(x)), 0.0, 1.0),
    reward=lambda x, z, a, w: z[1] * a * jnp.sqrt(x) * (0.5 + 0.1 * x),  # turbines, by flow and head
    state=(1.0, 12.0), action=(0.0, 1.0), context=([0.2, 0.0], [1.4, 3.0]), draws=(-0.1, 0.1), initial=7.0,
)  # fmt: skip
constants = tether.Sensitivity(immediate=8.9, carried=8.9, perturbation=tether.geometric(1.0))
system = tether.systems.from_model(
    "reservoir", "Reservoir", reservoir, cost_floor=1.0, sensitivity=constants,
    profile=lambda h: np.stack([0.8 + 0.4 * np.sin(h * np.pi / 12), 1.2 + np.sin((h - 11) * np.pi / 12)], axis=1),
)  # fmt: skip
