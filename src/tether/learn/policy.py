"""A learned policy as plain arrays: trained by JAX, played anywhere, NumPy included.

The network is written once against an array namespace, so that what was trained is what plays in the online guard.
"""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tether.core.files import complete_file
from tether.core.ops import namespace

if TYPE_CHECKING:
    from tether.core.guard import Guard

VERSION = 3


@dataclass(frozen=True, eq=False)
class NetworkPolicy:
    """A fully connected network with ReLU layers and an output that respects the action box and cannot die.

    With `memory` the input is the observation followed by that many of the guard's features: the paper's augmented
    state, which ACRL plans on. A policy that is `inside` does not propose an action that the guard then moves into the
    safe set: it names a wish and the share of the way from the prior's action to the safe action nearest to the wish,
    so that every choice it has is a safe one, with a gradient everywhere. `tether.rollout` does by itself what that
    needs; online, `guard.act(observation, policy.propose(guard, observation))`.

    Example:
        >>> policy = NetworkPolicy.fresh(np.zeros(2), np.ones(2), low=0.0, high=math.inf, center=4.0, width=8, seed=0)
        >>> float(policy(np.array([0.5, -0.5]))) > 0.0
        True
    """

    tree_numbers: ClassVar[tuple[str, ...]] = ("weights", "biases")
    """The fields that training changes (see `tether.simulate.trees`)."""

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
    memory: int
    """How many features of the guard follow the observation."""
    inside: bool = False
    """Whether the last output is the share of the way to the safe action nearest to the wish."""

    @property
    def uses_memory(self) -> bool:
        """Whether features of the guard follow the observation."""
        return self.memory > 0

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
        memory: int = 0,
        inside: bool = False,
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
            memory: How many features of the guard follow the observation.
            inside: Whether to act inside the safe set.
        """
        middle = np.atleast_1d(np.asarray(center, dtype=np.float64))
        sizes = [len(input_mean) + memory, width, width, middle.size + inside]
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
            memory=memory,
            inside=inside,
        )

    def __call__(self, observation: Any, key: Any = None, reach: Any = None) -> Any:  # noqa: ARG002
        """Observation [o] (followed by the memory, if it is used) to action.

        Args:
            observation: What is seen.
            key: Not used; the policy is deterministic.
            reach: `reach(wish) -> (prior's action, safe action nearest to the wish)`; needed if `inside`.
        """
        if self.inside and reach is None:
            raise ValueError("this policy acts inside the safe set: use policy.propose(guard, observation)")
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
        output = layer @ self.weights[-1] + self.biases[-1]
        action = self._squash(output[: len(self.center)], xp)
        action = action[0] if self.scalar else action
        if not self.inside:
            return action
        prior, farthest = reach(action)
        # At first nine tenths of the way.
        share = 0.5 + 0.5 * xp.tanh(0.5 * output[len(self.center)] + 1.1)
        return prior + share * (farthest - prior)

    def propose(self, guard: Guard, observation: Any) -> Any:
        """The action to propose to `guard` in the coming round."""
        seen = with_features(guard, observation) if self.memory else observation
        return self(seen, None, partial(guard.reach, observation) if self.inside else None)

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

    def contents(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(what fits into JSON, arrays by name): all that `save` writes."""
        arrays: dict[str, Any] = {f"weight_{i}": np.asarray(weight) for i, weight in enumerate(self.weights)}
        arrays |= {f"bias_{i}": np.asarray(bias) for i, bias in enumerate(self.biases)}
        arrays |= {name: np.asarray(getattr(self, name)) for name in _NUMBERS}
        return {"version": VERSION, **{name: getattr(self, name) for name in _ABOUT}}, arrays

    def save(self, path: str | Path) -> None:
        """Write the policy to a .npz file, completely or not at all; `tether.load_policy` reads it."""
        about, arrays = self.contents()
        with complete_file(Path(path)) as draft, draft.open("wb") as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)


def with_features(guard: Guard, observation: Any) -> np.ndarray:
    """What a policy that `uses_memory` sees in the coming round: observation [o], and after it the guard's features."""
    return np.concatenate([observation, guard.features(observation)])


_ABOUT = ("scalar", "memory", "inside")
_NUMBERS = ("input_mean", "input_scale", "center", "low", "high")


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def load_policy(path: str | Path, policy: Any = None) -> Any:
    """Read what `NetworkPolicy.save` or `PacedPolicy.save` wrote; it plays in NumPy, no JAX needed.

    Args:
        path: The file.
        policy: What is paced, where the file holds a pace alone (see `tether.learn.paced.PacedPolicy.save`).

    Returns:
        A `NetworkPolicy`, or a `PacedPolicy`.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file} not found; expected a policy saved by policy.save(path)")
    try:
        with np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        about = json.loads(str(arrays["about"]))
        version = about["version"]
        network = _network(about, arrays) if "weight_0" in arrays else None
        if "pace" not in about and network is None:
            raise ValueError("it holds neither a network nor a pace")
    except (KeyError, TypeError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not a policy saved by policy.save(path): {error!r}") from error
    if version != VERSION:
        raise ValueError(f"{file} is a policy of version {version}, expected {VERSION}")
    if policy is not None and network is not None:
        raise ValueError(f"{file} holds its own policy; load_policy(path) is enough")
    if "pace" not in about:
        return network
    return _paced(file, policy if network is None else network, about, arrays)


def _network(about: dict[str, Any], arrays: dict[str, Any]) -> NetworkPolicy:
    layers = range(sum(name.startswith("weight_") for name in arrays))
    fields: dict[str, Any] = {name: _numbers(arrays[name]) for name in _NUMBERS}
    fields |= {name: about[name] for name in _ABOUT}
    return NetworkPolicy(
        tuple(arrays[f"weight_{i}"] for i in layers), tuple(arrays[f"bias_{i}"] for i in layers), **fields
    )


def _paced(file: Path, policy: Any, about: dict[str, Any], arrays: dict[str, Any]) -> Any:
    from tether.learn.paced import PacedPolicy

    if policy is None:
        raise ValueError(f"{file} holds a pace and not the policy that is paced: load_policy(path, policy)")
    try:
        return PacedPolicy.from_arrays(policy, about["pace"], arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not a policy saved by policy.save(path): {error!r}") from error
