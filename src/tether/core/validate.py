"""Checks of user input that say what was wrong, what was expected and what came."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def number(name: str, value: Any, *, minimum: float | None = None, above: float | None = None) -> float:
    """Return `value` as a finite float, or say why it is not one.

    Args:
        name: What the user calls it; the error names it.
        value: Anything that came from outside.
        minimum: The smallest value allowed, if there is one.
        above: A value that must be exceeded, if there is one.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r} ({type(value).__name__})")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError(f"{name} must be finite, got {value!r}")
    if minimum is not None and result < minimum:
        raise ValueError(f"{name} must be at least {minimum:g}, got {value!r}")
    if above is not None and result <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {value!r}")
    return result


def count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`, or say why it is not one."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r} ({type(value).__name__})")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value!r}")
    return int(value)


def choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Check that `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def parts(name: str, value: Any, needed: tuple[str, ...], kind: str) -> None:
    """Check that `value` has all of the attributes that one of its kind has."""
    missing = [each for each in needed if not hasattr(value, each)]
    if missing:
        raise TypeError(f"{name} must have {', '.join(missing)} as {kind} has, got {value!r}")
