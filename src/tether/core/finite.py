"""Finite sets of actions: switches and steps instead of dials.

People and learners name an action by its number, 0 to n - 1; the plant gets its *value*, a number or a vector; and a
certificate measures how far two actions are apart by their *points*, which are the values unless distances are given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tether.core import convert, validate
from tether.core.actions import Actions, Answer
from tether.core.projection import NORMS, Norm

MOST = 4096
"""The most actions of a set: every one is looked at in every round."""


@dataclass(frozen=True)
class FiniteActions:
    """A finite set of actions.

    Args:
        values: [n] or [n, d] what the plant plays.
        points: [n] or [n, k] where the actions are for a certificate that measures deviations; the values if None. A
            certificate with a structure needs the values.
        norm: The norm in which points are apart.
        steps: How many steps each of several switches has, where the set is their product; see `grid`.

    Example:
        >>> FiniteActions([0.0, 2.0, 4.0]).n  # a chiller that is off, at half or at full power
        3
    """

    values: Any
    points: Any = None
    norm: Norm = "l2"
    steps: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        validate.choice("norm", self.norm, NORMS)
        values = _entries("values", self.values)
        points = values if self.points is None else _entries("points", self.points)
        if not 1 <= len(values) <= MOST:
            raise ValueError(f"there must be 1 to {MOST} actions, got {len(values)}")
        if len(points) != len(values):
            raise ValueError(f"there must be a point for each of {len(values)} actions, got {len(points)}")
        if len(np.unique(values, axis=0)) < len(values):
            raise ValueError(f"each action must have a value of its own, got {self.values!r}")
        # Tuples, so that sets can be compared and hashed.
        object.__setattr__(self, "values", _tuples(values))
        object.__setattr__(self, "points", _tuples(points))

    @classmethod
    def grid(cls, *levels: ArrayLike, norm: Norm = "l2") -> FiniteActions:
        """Every combination of the levels of several switches; an action is named by the step of each.

        Example:
            >>> FiniteActions.grid([0.0, 2.0, 4.0], [0.0, 5.0]).n
            6
        """
        each = [np.asarray(_entries("levels", level)) for level in levels]
        if not each or any(level.ndim != 1 for level in each):
            raise ValueError(f"levels must be the levels of each switch, numbers, got {levels!r}")
        if math.prod(map(len, each)) > MOST:
            raise ValueError(
                f"there must be at most {MOST} combinations, got {math.prod(map(len, each))} of {levels!r}"
            )
        values = np.array(list(itertools.product(*each)))
        return cls(values, norm=norm, steps=tuple(map(len, each)))

    @classmethod
    def with_distances(cls, values: ArrayLike, distances: ArrayLike) -> FiniteActions:
        """Actions of which only distances are known, [n, n], with 0 from each to itself.

        A Lipschitz certificate then counts a deviation of at least `distances[k, l]` where k is played instead of l:
        rows of the matrix are points in the largest norm, and ||row_k - row_l|| >= |D_kl - D_ll| = D_kl. It is exactly
        that if the distances obey the triangle inequality and are the same both ways; where they do not, it is more.

        Example:
            >>> apart = [[0.0, 1.0, 5.0], [1.0, 0.0, 4.0], [5.0, 4.0, 0.0]]
            >>> actions = FiniteActions.with_distances([0, 1, 2], apart)
        """
        matrix = np.array(distances, dtype=float)
        count = len(np.asarray(values))
        if matrix.shape != (count, count) or not np.all(np.isfinite(matrix)) or np.any(matrix < 0.0):
            raise ValueError(f"distances must be [{count}, {count}] numbers of at least 0, got {distances!r}")
        if np.any(np.diag(matrix) != 0.0):
            raise ValueError(f"the distance of each action to itself must be 0, got {np.diag(matrix)!r}")
        return cls(values, points=matrix, norm="linf")

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.values)

    @cached_property
    def value_array(self) -> NDArray[np.float64]:
        """[n] or [n, d]."""
        return np.array(self.values)

    @cached_property
    def point_array(self) -> NDArray[np.float64]:
        """[n] or [n, k]."""
        return np.array(self.points)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a value."""
        return self.value_array.shape[1:]

    def number(self, label: Any) -> int | None:
        """The number of the action that is named so: itself, or of several switches the step of each; else None."""
        shape = () if self.steps is None else (len(self.steps),)
        wanted = convert.as_action(label, shape)
        if wanted is None:
            return None
        steps = np.atleast_1d(wanted)
        most = np.array((self.n,) if self.steps is None else self.steps)
        if np.any(steps != np.floor(steps)) or np.any(steps < 0) or np.any(steps >= most):
            return None
        whole = steps.astype(int)
        return int(whole[0]) if self.steps is None else int(np.ravel_multi_index(whole.tolist(), self.steps))

    def label(self, number: int) -> Any:
        """What an action is called: its number, or [d] the step of each switch."""
        return number if self.steps is None else np.array(np.unravel_index(number, self.steps))

    def number_of(self, value: Any) -> int | None:
        """The number of the action with exactly this value."""
        same = self.value_array == np.asarray(value)
        found = np.flatnonzero(same if same.ndim == 1 else np.all(same, axis=1))
        return int(found[0]) if len(found) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, fit for JSON."""
        return {
            "values": self.value_array.tolist(),
            "points": self.point_array.tolist(),
            "norm": self.norm,
            "steps": None if self.steps is None else list(self.steps),
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> FiniteActions:
        """The set that `to_dict` described."""
        steps = description["steps"]
        return cls(
            description["values"],
            description["points"],
            description["norm"],
            None if steps is None else tuple(steps),
        )


class Labels(Actions):
    """The actions of a guard of a finite set: people say which, the certificate gets values."""

    def __init__(self, actions: FiniteActions) -> None:
        super().__init__(None, None)
        self._set = actions
        self.shape = actions.shape

    def usable(self, value: Any) -> Any:
        """The value of the action that is named; None if there is no such action."""
        number = self._set.number(value)
        return None if number is None else self._value(number)

    def inside(self, action: Any) -> bool:
        """Whether a value is one of the set's."""
        return self._set.number_of(action) is not None

    def given(self, action: Any) -> Any:
        """What an action with this value is called."""
        number = self._set.number_of(action)
        assert number is not None, action
        return self._set.label(number)

    def ask(self, prior: Callable[[Any], Any], observation: Any) -> Answer:
        """The value of the action that the prior names."""
        try:
            said = prior(observation)
            number = self._set.number(said)
        except Exception as error:
            return Answer(None, 0.0, f"the prior raised {convert.text(error)}", error)
        if number is None:
            most = self._set.n - 1 if self._set.steps is None else [step - 1 for step in self._set.steps]
            return Answer(
                None, 0.0, f"the prior returned {convert.text(said)}, expected an action from 0 to {most}"
            )
        return Answer(self._value(number), 0.0)

    def _value(self, number: int) -> Any:
        value = self._set.value_array[number]
        return float(value) if value.ndim == 0 else value.copy()


def product_inside(mask: NDArray[np.bool_], first: Sequence[int]) -> list[NDArray[np.bool_]]:
    """Masks of single switches all of whose combinations are safe.

    From the combination `first`, which is safe, the switches take turns: each adds the step nearest to its own in
    `first` that it has not tried yet, and keeps it if all combinations with what the others have by then are safe. So
    nothing can be added in the end, and every combination was looked at.

    Args:
        mask: [n_1, ..., n_d] which combinations are safe.
        first: [d] one that is.

    Example:
        >>> mask = np.array([[True, True, False], [True, False, False]])
        >>> [each.tolist() for each in product_inside(mask, (0, 0))]
        [[True, True], [True, False, False]]
    """
    chosen = [[int(step)] for step in first]
    order = []
    for size, at in zip(mask.shape, first, strict=True):
        nearest_first = np.argsort(np.abs(np.arange(size) - at), kind="stable")
        order.append(nearest_first[1:].tolist())
    for turn in range(max(mask.shape) - 1):
        for i, steps in enumerate(order):
            if turn < len(steps):
                tried = [*chosen[:i], [steps[turn]], *chosen[i + 1 :]]
                if np.all(mask[np.ix_(*tried)]):
                    chosen[i].append(steps[turn])
    masks = [np.zeros(size, dtype=np.bool_) for size in mask.shape]
    for each, steps in zip(masks, chosen, strict=True):
        each[steps] = True
    return masks


def _entries(name: str, given: Any) -> NDArray[np.float64]:
    try:
        array = np.array(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, [n] or [n, d], got {given!r}") from error
    if array.ndim not in (1, 2) or array.size == 0 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite numbers, [n] or [n, d], got {given!r}")
    return array


def _tuples(array: NDArray[np.float64]) -> tuple[Any, ...]:
    return tuple(array.tolist()) if array.ndim == 1 else tuple(map(tuple, array.tolist()))


def actions_of(certificate: Any, low: ArrayLike | None, high: ArrayLike | None) -> Actions:
    """The actions of a guard: those of its certificate's finite set, if it has one, else between the bounds."""
    actions = getattr(certificate, "actions", None)
    if actions is None:
        return Actions(low, high)
    if any(bound is not None and np.any(np.isfinite(bound)) for bound in (low, high)):
        raise ValueError(f"a finite set of actions has no bounds, got low={low!r}, high={high!r}")
    return Labels(actions)
