"""What is known of an intermediate value of a traced function, and what rearranging its entries does to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from tether.certificates.intervals import Array, Interval, Unbounded, exact, fixed, library

Slopes: TypeAlias = Mapping[int, Interval]
"""By group of inputs, [g, *shape] for a group of g inputs; groups on which nothing depends are left out."""


class CannotBound(ValueError):
    """A function uses an operation that intervals are not known for."""


class Enclosed(NamedTuple):
    """What is known of an intermediate value."""

    range: Interval
    slopes: Slopes
    """Empty if it depends on no input."""
    middle: Interval | None = None
    """Its value at the middle of the box; None if it depends on no input."""
    once: bool = True
    """Whether no input occurs twice in any entry, so that its range is as small as it can be."""


def place(equation: Any) -> str:
    """Where in the user's code an operation stands."""
    try:
        from jax._src import source_info_util

        frame = source_info_util.user_frame(equation.source_info.traceback)
    except Exception:
        return ""
    return "" if frame is None else f"; it stands in {frame.file_name}, line {frame.start_line}"


NumpyMove: TypeAlias = Callable[[Any], Any]


def numpy_move(name: str, options: Mapping[str, Any]) -> NumpyMove | None:
    """What NumPy does instead of an operation of `LINEAR`, for numbers that are known when the program is built."""
    if name == "reshape" and options.get("dimensions") is None:
        return lambda each: np.reshape(each, options["new_sizes"])
    if name == "squeeze":
        return lambda each: np.squeeze(each, tuple(options["dimensions"]))
    if name == "expand_dims":
        return lambda each: np.expand_dims(each, tuple(options["dimensions"]))
    if name == "transpose":
        return lambda each: np.transpose(each, options["permutation"])
    if name == "broadcast_in_dim":
        shape, places = options["shape"], options["broadcast_dimensions"]

        def broadcast(each: Any) -> Any:
            sizes = [1] * len(shape)
            for place, size in zip(places, np.shape(each), strict=True):
                sizes[place] = size
            return np.broadcast_to(np.reshape(each, sizes), shape)

        return broadcast
    if name == "slice":
        strides = options["strides"] or (1,) * len(options["start_indices"])
        places = tuple(
            slice(*ends)
            for ends in zip(options["start_indices"], options["limit_indices"], strides, strict=True)
        )
        return lambda each: each[places]
    return None


def moved(move: Callable[[Array], Array], value: Enclosed, known_move: NumpyMove | None = None) -> Enclosed:
    """What a rearrangement of entries does, `move` being linear and exact.

    `known_move` does the same to NumPy arrays; slopes that turn out to be zero are left out.
    """

    def applied(array: Any) -> Any:
        known = known_move is not None and library(array) is np
        return known_move(array) if known else move(array)  # type: ignore[misc]

    low = applied(value.range.low)
    found = Interval(low, low) if value.range.exact else type(value.range)(low, applied(value.range.high))
    slopes = {}
    for group, slope in value.slopes.items():
        if known_move is not None and fixed(slope):
            known = np.stack([known_move(row) for row in slope.low])
            if np.any(known != 0.0):
                slopes[group] = exact(known)
        else:
            low = jax.vmap(move)(slope.low)
            slopes[group] = type(slope)(low, low if slope.exact else jax.vmap(move)(slope.high))
    return Enclosed(found, slopes)


def concatenate_along(axis: int, values: Sequence[Enclosed]) -> Enclosed:
    """One after the other along an axis."""
    if len(values) == 1:
        return values[0]
    found = _concatenated([each.range for each in values], axis)
    like = {group: slope for each in values for group, slope in each.slopes.items()}
    slopes = {}
    for group, known in like.items():
        parts = [
            each.slopes.get(group)
            or exact(np.zeros((known.low.shape[0], *np.shape(each.range.low)), known.low.dtype))
            for each in values
        ]
        slopes[group] = _concatenated(parts, axis + 1)
    return Enclosed(found, slopes)


def _concatenated(parts: Sequence[Interval], axis: int) -> Interval:
    known = library(*(end for each in parts for end in each))
    kind = Unbounded if any(isinstance(each, Unbounded) for each in parts) else Interval
    low = known.concatenate([each.low for each in parts], axis)
    single = all(each.exact for each in parts)
    return kind(low, low if single else known.concatenate([each.high for each in parts], axis))
