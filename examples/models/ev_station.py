"""An EV station: cars bring energy to be charged (100 kWh) by a forecast that is right to 15 %; waiting costs."""

import jax.numpy as jnp
import numpy as np

import tether

hours = np.arange(24)
arrivals = 0.6 + 1.2 * np.exp(-((hours - 8.5) ** 2) / 6) + 1.6 * np.exp(-((hours - 18) ** 2) / 8)
price = 1.0 + 0.5 * np.sin((hours - 12) * np.pi / 12) + 0.4 * (hours >= 17) * (hours < 21)
usual = np.stack([arrivals, price], axis=1)


def queue(x, z, a, w):  # after walk-ins w and a charge of a
    return jnp.clip(x + z[0] + w - a, 0.0, 12.0)


station = tether.Model(
    step=queue,
    cost=lambda x, z, a, w: 1.0 + queue(x, z, a, w) + 0.25 * queue(x, z, a, w) ** 2,
    prior=lambda x, z: jnp.minimum(x + z[0] + 0.1, 3.0),  # charge whoever is there, at most 300 kW
    reward=lambda x, z, a, w: (2.0 - z[1]) * jnp.minimum(a, x + z[0]) - 0.3 * a**2,  # margin, demand charge
    state=(0.0, 12.0), action=(0.0, 3.0), context=([0.0, 0.0], [3.0, 2.5]), draws=(0.0, 0.2),
    band=(0.85 * usual, 1.15 * usual), initial=0.0,
)  # fmt: skip
constants = tether.Sensitivity(immediate=7.0, carried=7.0, perturbation=tether.geometric(1.0))
system = tether.systems.from_model("ev_station", "EV station", station, cost_floor=1.0, sensitivity=constants)
