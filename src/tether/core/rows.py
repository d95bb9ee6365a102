"""Nested tuples of numbers and arrays, and the same of n plants: every leaf with a row for each.

A field `epsilon` is no leaf: it is one number for all plants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]


def repeated(one: Any, n: int) -> Any:
    """The tuple of one plant n times."""
    return _each(lambda leaf: np.tile(np.asarray(leaf), (n, *[1] * np.ndim(leaf))), one)


def filled(many: Any, n: int) -> Any:
    """Of n plants, with numbers that all plants share written out."""
    return _each(lambda leaf: leaf if np.ndim(leaf) else np.full(n, leaf), many)


def either(chosen: Flags, first: Any, second: Any) -> Any:
    """The rows of `first` where `chosen`, else those of `second`; all of `first` if there is no second."""
    if second is None:
        return first
    return _each(lambda one, other: np.where(beside(chosen, one), one, other), first, second)


def row(many: Any, plant: int) -> Any:
    """The tuple of one plant."""
    return _each(lambda leaf: leaf[plant], many)


def stacked(plants: Sequence[Any]) -> Any:
    """The tuples of the plants as one."""
    return _each(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *plants)


def stacked_or_none(plants: Sequence[Any]) -> Any:
    """The same where some have none, whose rows are then any; None if none has one."""
    known = next((each for each in plants if each is not None), None)
    return None if known is None else stacked([known if each is None else each for each in plants])


def beside(flags: Flags, rows: Any) -> Any:
    """[n] in the shape that goes with rows [n, ...]."""
    return flags.reshape(-1, *[1] * (np.ndim(rows) - 1))


def _each(change: Callable[..., Any], *values: Any) -> Any:
    """A function of each leaf; of `epsilon` the largest."""
    first = values[0]
    if not isinstance(first, tuple):
        return change(*values)
    names = getattr(first, "_fields", (None,) * len(first))
    changed = [
        max(parts) if name == "epsilon" else _each(change, *parts)
        for name, *parts in zip(names, *values, strict=True)
    ]
    return first._make(changed) if hasattr(first, "_make") else tuple(changed)
