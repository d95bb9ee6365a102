"""Stable-Baselines3 models as policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def policy_from_sb3(
    model: Any, *, deterministic: bool = True, shape: tuple[int, ...] | None = None
) -> Callable[[Any], Any]:
    """A Stable-Baselines3 model, or anything with its `predict`, as a function from observation to proposal.

    Args:
        model: For example `PPO.load("model.zip")`. If it was trained on appended memory, or behind a wrapper
            that rescales actions or normalises observations, that has to be done around the function too.
        deterministic: Whether to take the mean action instead of a sampled one.
        shape: Shape to give the proposal, () for a number; None to leave it as the model gives it.
            `tether.Guard` takes a vector only in the shape of its prior's actions; `Guarded` takes any.

    Example:
        >>> class Model:
        ...     def predict(self, observation, deterministic=False):
        ...         return np.array([observation.sum()]), None
        >>> propose = policy_from_sb3(Model(), shape=())
        >>> float(propose([1.0, 2.0]))
        3.0
    """
    if not callable(getattr(model, "predict", None)):
        raise TypeError(f"model must have predict(observation, deterministic=...), got {model!r}")

    def propose(observation: Any) -> Any:
        given = observation if isinstance(observation, Mapping) else np.asarray(observation)
        action, _ = model.predict(given, deterministic=deterministic)
        return action if shape is None else np.reshape(action, shape)

    return propose
