"""What was saved of a guard, checked: numbers that no episode can have led to are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def numbers(saved: Any) -> Any:
    """A saved number or tuple of numbers as it was: lists become arrays."""
    return np.array(saved, dtype=float) if isinstance(saved, list) else saved


def require_rounds(rounds: Any, horizon: int) -> None:
    """Refuse a count of closed rounds that is not a whole number from 0 to the horizon."""
    if isinstance(rounds, bool) or not isinstance(rounds, float | int):
        raise ValueError(f"rounds must be a number, got {rounds!r}")
    if not (0 <= rounds <= horizon and float(rounds).is_integer()):
        raise ValueError(f"rounds must be a whole number from 0 to the horizon {horizon}, got {rounds!r}")


def require_numbers(
    name: str, value: Any, *, minimum: float = -math.inf, shape: tuple[int, ...] = ()
) -> None:
    """Refuse what is not finite numbers of this shape, at least `minimum`."""
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers of shape {shape}, got {value!r}") from error
    if array.shape != shape or not np.all(np.isfinite(array)) or not np.all(array >= minimum):
        least = "" if minimum == -math.inf else f" of at least {minimum:g}"
        raise ValueError(f"{name} must be finite numbers{least} of shape {shape}, got {value!r}")


def require_flag(name: str, value: Any) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")


def require_choice(name: str, value: Any, count: int) -> None:
    """Refuse what is not a whole number from 0 to count - 1."""
    if isinstance(value, bool) or not isinstance(value, float | int) or value not in range(count):
        raise ValueError(f"{name} must be a whole number from 0 to {count - 1}, got {value!r}")
