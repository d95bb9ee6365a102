"""Ranges of named numbers: where a search looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np

Range = tuple[Any, Any]
"""(low, high), numbers or vectors; both ends belong to it."""


class Box(eqx.Module):
    """Ranges of named numbers; low = high keeps one fixed."""

    low: Any
    """[k]"""
    high: Any
    """[k]"""
    names: tuple[str, ...] = eqx.field(static=True)
    """What each number is called."""

    @property
    def size(self) -> int:
        """Number of entries k."""
        return len(self.names)

    @property
    def widths(self) -> Any:
        """[k] high - low."""
        return self.high - self.low

    def holds(self, values: Any) -> bool:
        """Whether every value [k] is in its range."""
        return bool(np.all((self.low <= np.asarray(values)) & (np.asarray(values) <= self.high)))

    def __str__(self) -> str:
        parts = [
            f"{name} = {low:g}" if low == high else f"{name} {low:g} to {high:g}"
            for name, low, high in zip(self.names, self.low, self.high, strict=True)
        ]
        return ", ".join(parts) or "none"


def box(ranges: Mapping[str, Range]) -> Box:
    """The box with these ranges, vectors split into their entries; it refuses ranges that are empty or not finite."""
    lows: list[Any] = []
    highs: list[Any] = []
    names: list[str] = []
    for name, given in ranges.items():
        try:
            low, high = np.broadcast_arrays(*(np.asarray(end, dtype=np.float64) for end in given))
        except (TypeError, ValueError) as error:
            raise ValueError(f"the range of {name} must be a pair (low, high), got {given!r}") from error
        if low.ndim > 1:
            raise ValueError(
                f"the range of {name} must be of numbers or vectors, got ends of shape {low.shape}"
            )
        if not np.all(np.isfinite(low) & np.isfinite(high)):
            raise ValueError(
                f"{name} needs a finite range to be searched, got {given!r}; give one in `region`, for instance "
                f"region={{{name!r}: (0.0, 10.0)}}"
            )
        if np.any(low > high):
            raise ValueError(f"the range of {name} is empty: low is above high in {given!r}")
        lows.append(np.ravel(low))
        highs.append(np.ravel(high))
        names += [name] if low.ndim == 0 else [f"{name}[{index}]" for index in range(low.size)]
    empty = np.zeros(0)
    return Box(np.concatenate([empty, *lows]), np.concatenate([empty, *highs]), tuple(names))


def broadcast(given: Range, shape: tuple[int, ...]) -> Range:
    """The range with both ends of that shape."""
    low, high = (np.asarray(end, dtype=np.float64) for end in given)
    return np.broadcast_to(low, shape), np.broadcast_to(high, shape)
