"""The array-namespace functions that certificates use, on plain Python floats.

Certificates are written once against an array namespace `xp`. Inside a compiled rollout `xp` is
`jax.numpy`; in the online guard a round concerns single numbers, and this module, passed as `xp`,
makes it cost about a microsecond instead of the tens that 0-d arrays would take.
"""

from __future__ import annotations

import math
from typing import Any

expm1 = math.expm1
floor = math.floor
inf = math.inf
isfinite = math.isfinite
maximum = max
minimum = min
sqrt = math.sqrt


def where(condition: bool, if_true: Any, if_false: Any) -> Any:
    """Return `if_true` where the condition holds, else `if_false`."""
    return if_true if condition else if_false


def logical_and(first: bool, second: bool) -> bool:
    """Return whether both hold."""
    return first and second


def logical_or(first: bool, second: bool) -> bool:
    """Return whether either holds."""
    return first or second


def logical_not(value: bool) -> bool:
    """Return whether it does not hold."""
    return not value
