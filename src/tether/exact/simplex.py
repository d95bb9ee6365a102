"""The simplex of theta: least squares on it (the paper's value-targeted regression), and its lattices."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tether.exact.mixture import Floats


def _supports(dimension: int) -> Any:
    """Every non-empty set of coordinates that may be positive: [2^d - 1, d] of 0 and 1."""
    return np.array([each for each in itertools.product((0.0, 1.0), repeat=dimension) if any(each)])


def fit_moments(gram: Any, moment: Any) -> Any:
    """The theta on the simplex [d] that minimises theta' gram theta - 2 moment' theta.

    Exact: for each set of positive coordinates the minimiser on the plane sum(theta) = 1 solves a linear system; the
    best of those that are not negative is the solution. A ridge of 1e-10 towards the centre of the simplex, relative
    to the gram's trace, decides where the data do not.
    """
    dimension = moment.shape[0]
    scale = jnp.trace(gram) / dimension
    scale = jnp.where(scale > 0.0, scale, 1.0)
    ridge = 1e-10
    matrix = gram / scale + ridge * jnp.eye(dimension)
    vector = moment / scale + ridge / dimension

    def on_support(free: Any) -> tuple[Any, Any]:
        masked = matrix * free[:, None] * free[None, :] + jnp.diag(1.0 - free)
        border = jnp.concat([masked, free[:, None]], axis=1)
        system = jnp.concat([border, jnp.append(free, 0.0)[None]], axis=0)
        theta = jnp.linalg.solve(system, jnp.append(vector * free, 1.0))[:dimension] * free
        allowed = jnp.all(theta >= -1e-9)
        theta = jnp.maximum(theta, 0.0) / jnp.sum(jnp.maximum(theta, 0.0))
        loss = theta @ matrix @ theta - 2.0 * vector @ theta
        return theta, jnp.where(allowed & jnp.isfinite(loss), loss, jnp.inf)

    thetas, losses = jax.vmap(on_support)(jnp.asarray(_supports(dimension)))
    return thetas[jnp.argmin(losses)]


def fit_theta(features: Any, targets: Any) -> Floats:
    """Value-targeted regression: the theta on the simplex [d] with the least squared error.

    Args:
        features: [N, d] E[V(s')] = <features, theta>.
        targets: [N] V(s') of the states that came.
    """
    X, y = np.asarray(features, dtype=float), np.asarray(targets, dtype=float)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"features must be [N, d] and targets [N], got {X.shape} and {y.shape}")
    if X.shape[1] > 12:
        raise ValueError(f"theta may have at most 12 entries (every support is tried), got {X.shape[1]}")
    with jax.enable_x64(True):
        return np.asarray(_compiled_fit(jnp.asarray(X.T @ X), jnp.asarray(X.T @ y)))


_compiled_fit = jax.jit(fit_moments)


def simplex_lattice(dimension: int, denominator: int) -> Floats:
    """All points of the simplex [J, d] whose entries are multiples of 1 / denominator."""
    bars = itertools.combinations(range(denominator + dimension - 1), dimension - 1)
    edges = np.array([(-1, *each, denominator + dimension - 1) for each in bars], dtype=float)
    return np.asarray((np.diff(edges, axis=1) - 1.0) / denominator)


def finest_denominator(dimension: int, points: int) -> int:
    """The largest denominator for which `simplex_lattice` has at most `points` points."""
    denominator = 1
    while dimension > 1 and math.comb(denominator + dimension, dimension - 1) <= points:
        denominator += 1
    return denominator
