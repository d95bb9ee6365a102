"""The carbon system in hindsight: a convex program for `tether.assure.limit`.

**Carbon.** With y_h = (1 - n2_h) x_{h-1} + mu_h - w_h a_h and w_h = 0.8 + n1_h the backlog is min(15, [y_h]^+). Take
x_h as a variable with x_h >= y_h, x_h >= 0. If the cap of 15 is out of play this is *exact*: for given actions the
true backlog is the least of all such x (by induction, since y_h grows with x_{h-1}), the costs grow with x and the
rewards do not depend on it. The cap is out of play where even the cheapest way to reach it, a = 0 for as long as
needed, costs more than the bounds; that is checked. Elsewhere the cap lets work be dropped, u_h = [y_h - 15]^+, in
rounds with x_h = 15 only. The program then has the convex hull of the two cases, {u = 0, 0 <= x <= 15, cost x^2 + x
+ 1} and {x = 15, 0 <= u <= d_h, cost 241}: with the weight t_h of the second, x_h >= y_h - u_h, u_h <= d_h t_h and
cost_h = 1 + x_h + 225 t_h + (x_h - 15 t_h)^2 / (1 - t_h). That holds for every true trajectory: an *upper bound*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.systems.carbon.env import Carbon
from tether.systems.program import Floats, kept, optimum, require_cvxpy


class CarbonProgram:
    """See the module; `_build(capped=False)` leaves the cap out."""

    def __init__(self, env: Carbon, horizon: int) -> None:
        self.env, self.horizon = env, horizon
        cp = require_cvxpy()
        names = ("keep", "demand", "efficiency", "root", "renewables", "bounds", "droppable")
        self.given = {name: cp.Parameter(horizon, name=name, nonneg=True) for name in names}
        self.exact, self.capped = self._build(False), self._build(True)

    def _further(self, actions: Any, backlogs: Any, costs: Any) -> tuple[Any, list[Any]]:  # noqa: ARG002
        """(what is taken from the reward, constraints where there is no cap) beside those of hindsight."""
        return 0.0, []

    def _build(self, capped: bool) -> Any:
        cp, env, given = require_cvxpy(), self.env, self.given
        a, x = cp.Variable(self.horizon, nonneg=True), cp.Variable(self.horizon, nonneg=True)
        y = given["demand"] - cp.multiply(given["efficiency"], a)
        y += cp.hstack([0.0, cp.multiply(given["keep"][1:], x[:-1])])
        if capped:
            t, cap = cp.Variable(self.horizon), env.backlog_max
            dropped = cp.multiply(given["droppable"], t)
            squares = cp.hstack(
                [cp.quad_over_lin(x[h] - cap * t[h], 1.0 - t[h]) for h in range(self.horizon)]
            )
            costs = 1.0 + x + cap**2 * t + squares
            constraints = [
                x >= y - dropped,
                t >= 0.0,
                t <= 1.0,
                x <= cap,
                cp.cumsum(costs) <= given["bounds"],
            ]
            taken, _ = self._further(a, x, costs)
        else:
            costs = 1.0 + x + cp.square(x)
            taken, further = self._further(a, x, costs)
            constraints = [x >= y, cp.cumsum(costs) <= given["bounds"], *further]
        switched = cp.sum_squares(cp.diff(a)) if self.horizon > 1 else 0.0
        reward = (
            env.revenue_weight * cp.sum(cp.multiply(given["root"], cp.sqrt(a)))
            - cp.sum_squares(cp.pos(a - given["renewables"]))
            - env.switching_weight * switched
        )
        return cp.Problem(cp.Maximize(reward - taken), constraints), a

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """See `tether.systems.program.Program`."""
        self.give(drawn, bounds)
        if not self._cap_is_reachable(drawn["demand"], 1.0 - drawn["drop_rate"], bounds):
            upper, actions = optimum(self.exact)
            return upper, kept(self.env, drawn, actions, bounds)
        upper, actions = optimum(self.capped)
        attained = kept(self.env, drawn, actions, bounds)
        if np.isnan(attained):
            attained = kept(self.env, drawn, optimum(self.exact)[1], bounds)
        return upper, attained

    def give(self, drawn: Mapping[str, Floats], bounds: Floats) -> None:
        """Set the numbers of an episode."""
        efficiency = self.env.efficiency + drawn["efficiency_noise"]
        keep = 1.0 - drawn["drop_rate"]
        self.given["keep"].value = keep
        self.given["demand"].value = drawn["demand"]
        self.given["efficiency"].value = efficiency
        self.given["root"].value = np.sqrt(efficiency)
        self.given["renewables"].value = drawn["renewables"]
        self.given["bounds"].value = bounds
        droppable = np.maximum(keep * self.env.backlog_max + drawn["demand"] - self.env.backlog_max, 0.0)
        self.given["droppable"].value = droppable

    def _cap_is_reachable(self, demand: Floats, keep: Floats, bounds: Floats) -> bool:
        """Whether the cheapest way to a backlog at the cap fits the bound, for any round."""
        return bool(np.any(self._reaches_cap(demand, keep, bounds, keep)))

    def _reaches_cap(self, demand: Floats, keep: Floats, bounds: Floats, last: Floats) -> NDArray[np.bool_]:
        """[H] whether the cheapest way to a backlog at the cap in round h fits that round's bound.

        In that round itself `last` is kept of a backlog.
        """
        least = np.zeros(
            self.horizon
        )  # [H] least backlog in the present round from which the cap is met at h
        cost = np.zeros(self.horizon)
        for h in range(self.horizon):
            backlog, cost[h], i = self.env.backlog_max, 0.0, h
            while i >= 0:
                cost[h] += backlog**2 + backlog + 1.0
                kept_now = last[h] if i == h else keep[i]
                backlog = max((backlog - demand[i]) / kept_now, 0.0) if kept_now > 0.0 else 0.0
                i -= 1
            least[h] = backlog
        # Whoever would have to start with a backlog cannot reach the cap in this round.
        reached: NDArray[np.bool_] = (cost <= bounds) & (least <= 0.0)
        return reached
