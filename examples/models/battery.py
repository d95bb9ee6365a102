"""A battery (kWh) that trades on a tariff and must be there when the grid fails: a low charge is a risk, and costs."""

import jax.numpy as jnp
import numpy as np

import tether


def charge(x, z, a, w):  # a kWh are bought, below 0 sold, with efficiency w[0]; w[1] is lost
    return jnp.clip(x + w[0] * jnp.maximum(a, 0.0) - jnp.maximum(-a, 0.0) / w[0] - w[1], 0.0, 20.0)


battery = tether.Model(
    step=charge,
    cost=lambda x, z, a, w: 1.0 + 0.05 * jnp.maximum(14.0 - charge(x, z, a, w), 0.0) ** 2,
    prior=lambda x, z: jnp.clip(15.0 - x, -4.0, 4.0),  # keep it at 15 kWh
    reward=lambda x, z, a, w: -z * a - 0.02 * a**2,  # the tariff, wear
    state=(0.0, 20.0), action=(-4.0, 4.0), context=(0.0, 3.0), draws=([0.9, 0.0], [0.98, 0.1]),
    initial=15.0,
)  # fmt: skip
constants = tether.Sensitivity(immediate=1.56, carried=1.56, perturbation=tether.geometric(1.0))
system = tether.systems.from_model(
    "battery", "Battery with a tariff", battery, cost_floor=1.0, sensitivity=constants,
    profile=lambda h: 1.2 + 0.8 * np.sin((h - 12) * np.pi / 12) + 0.6 * ((h >= 17) & (h < 20)),
)  # fmt: skip
