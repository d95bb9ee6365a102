"""A building of four zones (degrees Celsius): linear, heated zone by zone, with walls between neighbours."""

import jax.numpy as jnp
import numpy as np

import tether

A = np.array([[0.82, 0.06, 0.0, 0.0], [0.06, 0.8, 0.04, 0.0], [0.0, 0.04, 0.8, 0.06], [0.0, 0.0, 0.06, 0.82]])
leak = 1.0 - A.sum(axis=1)  # to the outside
B, K, E = 0.6 * np.eye(4), -0.8 * np.eye(4), np.stack([leak, np.zeros(4)], axis=1)
building = tether.Model.linear(
    A, B, K,
    cost=lambda x, z, a, w: 1.0 + jnp.sum(jnp.maximum(abs(A @ x + B @ a + E @ z + w - 21.0) - 1.0, 0.0)),
    reward=lambda x, z, a, w: -z[1] * jnp.sum(a + 0.05 * a**2),  # z: outside, price of electricity
    target=24.0, initial=np.full(4, 21.0),
    state=(np.full(4, 0.0), np.full(4, 45.0)), action=(np.zeros(4), np.full(4, 6.0)),
    context=([-5.0, 0.0], [15.0, 2.0]), draws=(np.full(4, -0.2), np.full(4, 0.2)),
)  # fmt: skip
constants = tether.Sensitivity(immediate=2.4, carried=2.2, perturbation=tether.geometric(0.9))
system = tether.systems.from_model(
    "building", "Building with four zones", building, cost_floor=1.0, sensitivity=constants, norm="linf",
    profile=lambda h: np.stack([5 - 5 * np.cos((h - 3) * np.pi / 12), 1 + 0.6 * np.sin((h - 11) * np.pi / 12)], 1),
)  # fmt: skip
