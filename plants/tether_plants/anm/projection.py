"""The projections of ANM6Easy without cvxpy in between: the same solver gets the same numbers.

In every round gym-anm moves three set-points to the nearest ones that there are. It writes each down for cvxpy, which
takes five milliseconds to translate it for OSQP, which takes a tenth of one to solve it. Here gym-anm's own lines are
run as they are, with a stand-in for cvxpy that hands OSQP what cvxpy would: the tests find the same numbers to the last
digit.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import osqp
from scipy import sparse

SETTINGS = {"eps_abs": 1e-5, "eps_rel": 1e-5, "max_iter": 10_000, "polishing": True, "verbose": False}
"""Of OSQP, as cvxpy has them."""
SQUARES = sparse.csc_matrix(np.diag([2.0, 2.0, 0.0, 0.0]))


class Point:
    """Stands for a `cvxpy.Variable`: notes what is said of it."""

    __array_ufunc__ = None  # NumPy leaves its operators to this class

    def __init__(self, size: int) -> None:
        self.value = np.full(size, np.nan)

    def __sub__(self, wish: Any) -> Point:
        self.wish = wish
        return self

    def __rmatmul__(self, rows: Any) -> Point:
        self.rows = rows
        return self

    def __le__(self, ends: Any) -> Point:
        self.ends = ends
        return self


class Problem:
    """Stands for a `cvxpy.Problem`: the point nearest to the wish with rows @ point <= ends."""

    def __init__(self, point: Point, _constraints: list[Point]) -> None:
        self.point = point

    def solve(self) -> None:
        """Minimise |y|^2 over (y, x) with x - y = wish, as cvxpy puts it."""
        point, one = self.point, np.eye(2)
        rows = np.block([[-one, one], [np.zeros_like(point.rows), point.rows]])
        low = np.concatenate([point.wish, np.full(len(point.ends), -np.inf)])
        high = np.concatenate([point.wish, point.ends])
        solver = osqp.OSQP(algebra="builtin")  # what is there; looking for others takes a millisecond
        solver.setup(SQUARES, np.zeros(4), sparse.csc_matrix(rows), low, high, **SETTINGS)
        found = solver.solve(raise_error=True)
        point.value = found.x[2:]


STAND_IN = SimpleNamespace(
    Variable=Point, Problem=Problem, Minimize=lambda point: point, sum_squares=lambda point: point
)


def use() -> None:
    """Let gym-anm's devices, in this process, project without cvxpy."""
    from gym_anm.simulator.components import devices

    devices.cp = STAND_IN
