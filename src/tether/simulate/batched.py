"""Policies that JAX cannot trace, such as those of torch, in compiled episodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tether.core.ops import namespace


@dataclass(frozen=True)
class BatchedPolicy:
    """A function of many observations at once, in plain Python, as a policy for `tether.rollout` and `tether.pace`.

    It is asked once a round for all episodes (and all candidates of `tether.pace`), in float32, so that a network of
    another library plays thousands of episodes in the compiled program. It must give the same answer to the same
    question, and must not use JAX. Online it is asked with a batch of one.

    Args:
        function: [N, o] observations to [N, ...] actions.
        shape: Of an action: () for a number, (n,) for a vector.

    Example:
        >>> import tether
        >>> env, episodes = tether.envs.Carbon(), tether.data.synthetic_carbon(seed=0, n=10)
        >>> thrifty = BatchedPolicy(lambda observations: np.minimum(observations[:, 0], observations[:, 1]))
        >>> tether.rollout(env, thrifty, episodes).costs.shape
        (10, 24)
        >>> float(thrifty(np.array([4.0, 3.0, 0.0, 0.0])))
        3.0
    """

    function: Callable[[Any], Any]
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be callable as function(observations), got {self.function!r}")

    def __call__(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """Observation [o] to action [*shape]."""
        if namespace(observation) is np:
            return self._ask(np.asarray(observation))
        import jax
        import jax.numpy as jnp

        # Callbacks run on another thread, which does not know that this program computes in float64.
        answer: Any = jax.eval_shape(lambda: jnp.zeros(self.shape, jnp.float32))
        seen = observation.astype(jnp.float32)
        return jax.pure_callback(self._ask, answer, seen, vmap_method="broadcast_all").astype(
            observation.dtype
        )

    def _ask(self, observations: Any) -> Any:
        """[..., o] to [..., *shape]."""
        seen = np.asarray(observations, dtype=np.float32)
        before = seen.shape[:-1]
        actions = np.asarray(self.function(seen.reshape(-1, seen.shape[-1])), dtype=np.float32)
        if actions.size != math.prod((*before, *self.shape)):
            raise ValueError(
                f"{math.prod(before)} observations must give {math.prod(before)} actions of shape {self.shape}, got "
                f"{actions.shape}"
            )
        return actions.reshape((*before, *self.shape))
