"""`tether.core.ops.Ops` on arrays with a row for each plant, with the very numbers that plain floats give.

A value that is one number for a plant is [n], a vector [n, k]. Sums, products, quotients and square roots are the same
in NumPy and in plain floats, digit for digit, as both round to the nearest; exponentials and the like need not be, as
NumPy has programs of its own for them. So these are computed here by the functions that plain floats use: one by one,
or, where only whole multiples of one number occur, from a table that they made. (A power, `x**2`, is no product to
Python: write `x * x`.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

from tether.core.ops import FLOATS, Array, Arrays, Carry, Flag, Number, Ops

_TABLE = 4096
"""Multiples in a table; what is beyond it is computed one by one."""


def _one_by_one(function: Callable[[Number], Number]) -> Any:
    many = np.frompyfunc(function, 1, 1)
    return staticmethod(lambda values: np.asarray(many(values), dtype=float))


class _Fleet(Arrays):
    """NumPy arrays with a row for each plant."""

    cases = 1
    exp, expm1, log, log1p, sin, cos, tanh = (
        _one_by_one(getattr(FLOATS, name)) for name in ("exp", "expm1", "log", "log1p", "sin", "cos", "tanh")
    )

    def __init__(self) -> None:
        super().__init__(np)

    def __reduce__(self) -> str:
        return "FLEET"  # there is one: a copy is the same object

    def expm1_multiple(self, count: Any, unit: float) -> Any:
        """See `Ops`."""
        counts, known = np.asarray(count), _multiples(unit)
        least, most = counts.min(), counts.max()
        if least >= 0.0 and most < _TABLE:
            return known.take(counts.astype(np.intp))
        if least == most:
            return np.full_like(counts, FLOATS.expm1(float(most) * unit), dtype=float)
        inside = (counts >= 0.0) & (counts < _TABLE)
        found = known.take(np.where(inside, counts, 0.0).astype(np.intp))
        found[~inside] = self.expm1(counts[~inside] * unit)
        return found

    def loop(
        self, count: int, body: Callable[[Carry], Carry], carry: Carry, until: Callable[[Carry], Flag]
    ) -> Carry:
        """See `Ops`; until it holds for every plant."""
        return FLOATS.loop(count, body, carry, lambda each: bool(np.all(until(each))))


@cache
def _multiples(unit: float) -> Array:
    """[P] the exponential minus 1 of 0, 1, 2, ... times `unit`."""
    return np.array([FLOATS.expm1(float(count) * unit) for count in range(_TABLE)])


FLEET = cast(Ops, _Fleet())
"""NumPy arrays with a row for each plant."""
