"""Two tanks in a row (levels in m): a pump fills the first, a pipe joins them, customers draw from the second."""

import jax.numpy as jnp
import numpy as np

import tether


def levels(x, z, a, w):  # z: demand and price of electricity; w: what customers take more or less
    pipe = 0.4 * (x[0] - x[1])
    return jnp.clip(jnp.stack([x[0] - pipe + a, x[1] + pipe - z[0] - w]), 0.0, 5.0)


tanks = tether.Model(
    step=levels,
    cost=lambda x, z, a, w: 1.0 + 2.0 * jnp.maximum(abs(levels(x, z, a, w)[1] - 2.0) - 0.3, 0.0),
    prior=lambda x, z: jnp.clip(z[0] + 0.3 * (3.0 - x[0]) + 0.3 * (2.0 - x[1]), 0.0, 1.2),
    reward=lambda x, z, a, w: -z[1] * (a + 0.3 * a**2),  # pumping
    state=([0.0, 0.0], [5.0, 5.0]), action=(0.0, 1.2), context=([0.2, 0.0], [0.8, 3.0]), draws=(-0.05, 0.05),
    initial=[3.0, 2.0],
)  # fmt: skip
constants = tether.Sensitivity(immediate=2.0, carried=2.0, perturbation=tether.geometric(1.0))
system = tether.systems.from_model(
    "two_tanks", "Two tanks", tanks, cost_floor=1.0, sensitivity=constants,
    profile=lambda h: np.stack([0.45 + 0.2 * np.sin((h - 6) * np.pi / 12), 1.5 + np.sin((h - 9) * np.pi / 12)], 1),
)  # fmt: skip
