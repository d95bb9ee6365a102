"""Policy networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class ReluNetwork(eqx.Module):
    """A ReLU after every layer, the last one included: the policies that the paper's authors published.

    The observation is the carbon system's, (mu_h, C_h, a_{h-1}, x_{h-1}); the action is a number of at least 0.
    """

    weights: tuple[jax.Array, ...]
    """Of each layer [out, in]."""
    biases: tuple[jax.Array, ...]
    """Of each layer [out]."""

    def __call__(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """Observation [in] to action [1]."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            observation = jnp.maximum(weight @ observation + bias, 0.0)
        return observation


def load_authors_network(path: str | Path, name: str) -> ReluNetwork:
    """Read one of the authors' trained policies.

    Args:
        path: A .npz file with the arrays `NAME/LAYER_linear.weight` and `.bias` for the layers input, hidden, output.
        name: For example `rl` or `acrl_lambda2_b2`.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file} not found; expected the authors' networks (.npz)")
    layers = [f"{name}/{layer}_linear" for layer in ("input", "hidden", "output")]
    with np.load(file) as stored:
        if f"{layers[0]}.weight" not in stored:
            names = sorted({key.split("/")[0] for key in stored})
            raise ValueError(f"{file} has no network {name!r}; it holds {', '.join(names)}")
        return ReluNetwork(
            tuple(stored[f"{layer}.weight"] for layer in layers),
            tuple(stored[f"{layer}.bias"] for layer in layers),
        )
