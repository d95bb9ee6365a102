"""A learned policy as plain arrays: trained by JAX, played anywhere, NumPy included.

The network is written once against an array namespace, so that what was trained is what plays in the online guard.
"""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tether._files import complete_file
from tether.envs.base import namespace

VERSION = 2
MEMORY = 3
"""How many numbers the guard's memory adds to an observation: see `LipschitzCertificate.features`."""


@dataclass(frozen=True, eq=False)
class NetworkPolicy:
    """A fully connected network with ReLU layers and an output that respects the action box and cannot die.

    With `uses_memory` the input is the observation followed by the guard's features (allowance, margin, carried
    deviation): the paper's augmented state, which ACRL plans on. `tether.rollout` appends them by itself; online,
    `policy(np.concatenate([observation, guard.features(observation)]))` does.

    Example:
        >>> policy = NetworkPolicy.fresh(np.zeros(2), np.ones(2), low=0.0, high=math.inf, center=4.0, width=8, seed=0)
        >>> float(policy(np.array([0.5, -0.5]))) > 0.0
        True
    """

    weights: tuple[Any, ...]
    """Of each layer [in, out]."""
    biases: tuple[Any, ...]
    """Of each layer [out]."""
    input_mean: tuple[float, ...]
    """[o] subtracted from the observation ..."""
    input_scale: tuple[float, ...]
    """[o] ... and what it is then divided by."""
    center: tuple[float, ...]
    """[n] where the first actions are: the prior's mean action."""
    low: tuple[float, ...]
    """[n] lower bounds of the action."""
    high: tuple[float, ...]
    """[n] upper bounds of the action."""
    scalar: bool
    """Whether an action is a number rather than a vector."""
    uses_memory: bool

    @classmethod
    def fresh(
        cls,
        input_mean: Any,
        input_scale: Any,
        *,
        low: Any,
        high: Any,
        center: Any,
        width: int,
        seed: int,
        uses_memory: bool = False,
    ) -> NetworkPolicy:
        """An untrained policy with two hidden layers, whose actions are near `center`.

        Args:
            input_mean: [o] of the observations; memory features need none.
            input_scale: [o] of the observations.
            low: Lower bounds of the action, a number or [n].
            high: Upper bounds of the action, a number or [n].
            center: The mean of the prior's actions, a number or [n].
            width: Neurons of a hidden layer.
            seed: Of the weights.
            uses_memory: Whether the guard's features follow the observation.
        """
        middle = np.atleast_1d(np.asarray(center, dtype=np.float64))
        sizes = [len(input_mean) + (MEMORY if uses_memory else 0), width, width, middle.size]
        rng = np.random.default_rng(seed)
        gains = [math.sqrt(2.0), math.sqrt(2.0), 0.1]
        weights = tuple(
            rng.normal(size=(before, after)) * gain / math.sqrt(before)
            for before, after, gain in zip(sizes[:-1], sizes[1:], gains, strict=True)
        )
        return cls(
            weights=weights,
            biases=tuple(np.zeros(size) for size in sizes[1:]),
            input_mean=_numbers(input_mean),
            input_scale=_numbers(input_scale),
            center=_numbers(middle),
            low=_numbers(np.broadcast_to(low, middle.shape)),
            high=_numbers(np.broadcast_to(high, middle.shape)),
            scalar=np.ndim(center) == 0,
            uses_memory=uses_memory,
        )

    def __call__(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """Observation [o] (followed by the memory, if it is used) to action."""
        xp = namespace(observation)
        seen = xp.asarray(observation)
        count = len(self.input_mean)
        layer = (seen[:count] - xp.asarray(self.input_mean)) / xp.asarray(self.input_scale)
        if self.uses_memory:
            # Slack grows over an episode by orders of magnitude; what matters is its ratio.
            layer = xp.concat([layer, xp.log1p(xp.maximum(seen[count:], 0.0)) - 1.0])
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            layer = layer @ weight + bias
            layer = xp.where(layer > 0.0, layer, 0.0)
        action = self._squash(layer @ self.weights[-1] + self.biases[-1], xp)
        return action[0] if self.scalar else action

    def _squash(self, output: Any, xp: Any) -> Any:
        """The output as an action: smooth and increasing, inside the box, `center` at 0."""
        center, low, high = (np.array(bound) for bound in (self.center, self.low, self.high))
        if np.all(np.isfinite(low) & np.isfinite(high)):
            share = np.clip((center - low) / (high - low), 0.01, 0.99)
            start = xp.asarray(np.log(share / (1.0 - share)))
            return xp.asarray(low) + xp.asarray(high - low) * (0.5 + 0.5 * xp.tanh(0.5 * (output + start)))
        if np.all(np.isfinite(low) & ~np.isfinite(high)):
            away = np.maximum(center - low, 1e-3)
            shifted = output + xp.asarray(away + np.log(-np.expm1(-away)))
            return xp.asarray(low) + xp.maximum(shifted, 0.0) + xp.log1p(xp.exp(-abs(shifted)))
        return xp.minimum(xp.maximum(xp.asarray(center) + output, xp.asarray(low)), xp.asarray(high))

    def save(self, path: str | Path) -> None:
        """Write the policy to a .npz file, completely or not at all; `tether.load_policy` reads it."""
        arrays: dict[str, Any] = {f"weight_{i}": np.asarray(weight) for i, weight in enumerate(self.weights)}
        arrays |= {f"bias_{i}": np.asarray(bias) for i, bias in enumerate(self.biases)}
        arrays |= {name: np.asarray(getattr(self, name)) for name in _NUMBERS}
        about = {"version": VERSION, "scalar": self.scalar, "uses_memory": self.uses_memory}
        with complete_file(Path(path)) as draft, draft.open("wb") as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)


_NUMBERS = ("input_mean", "input_scale", "center", "low", "high")


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def load_policy(path: str | Path) -> NetworkPolicy:
    """Read a policy that `NetworkPolicy.save` wrote; it plays in NumPy, no JAX needed."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file} not found; expected a policy saved by policy.save(path)")
    try:
        with np.load(file) as stored:
            about = json.loads(str(stored["about"]))
            layers = range(sum(name.startswith("weight_") for name in stored.files))
            weights = tuple(stored[f"weight_{i}"] for i in layers)
            biases = tuple(stored[f"bias_{i}"] for i in layers)
            numbers = {name: _numbers(stored[name]) for name in _NUMBERS}
            version, scalar, uses_memory = about["version"], bool(about["scalar"]), bool(about["uses_memory"])
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not a policy saved by policy.save(path): {error!r}") from error
    if version != VERSION:
        raise ValueError(f"{file} is a policy of version {version}, expected {VERSION}")
    return NetworkPolicy(weights, biases, **numbers, scalar=scalar, uses_memory=uses_memory)
