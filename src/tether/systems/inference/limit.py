"""The inference system in hindsight: a convex program for `tether.assure.limit`.

**Inference.** With y_h = x_{h-1} + v_e e_h - v_a a_h the charge is min(capacity, [y_h]^+), the cost [-y_h]^+ squared.
Energy can be wasted without harm (more charge never costs more), but not bought ahead of need: either the battery
keeps something or fossil energy is bought. That "or" is not convex; the program has the convex hull of the two cases,
{x + waste = y, nothing bought} and {x = 0, bought f = -y}: with the weight t_h of the second,
y_h = x_h + waste_h - f_h, x_h <= (1 - t_h) capacity, x_h + waste_h <= (1 - t_h) (capacity + v_e e_h),
f_h <= t_h f_max and cost_h = f_h^2 / t_h. An *upper bound*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tether.systems.inference.env import Inference
from tether.systems.program import Floats, kept, optimum, replay, require_cvxpy


class InferenceProgram:
    """See the module; `_build(free=False)` has the case of each round fixed."""

    def __init__(self, env: Inference, horizon: int) -> None:
        self.env, self.horizon = env, horizon
        cp = require_cvxpy()
        names = ("demand", "charged", "discharge_rate", "bounds", "most_bought", "most_kept", "short")
        self.given = {name: cp.Parameter(horizon, name=name, nonneg=True) for name in names}
        self.relaxed, self.fixed = self._build(True), self._build(False)

    def _further(self, actions: Any, before: Any, costs: Any) -> tuple[Any, list[Any]]:  # noqa: ARG002
        """(what is taken from the reward, constraints) beside those of hindsight, where no case is fixed.

        Args:
            actions: [H]
            before: [H] the charge before each round.
            costs: [H]
        """
        return 0.0, []

    def _build(self, free: bool) -> Any:
        cp, env, given, horizon = require_cvxpy(), self.env, self.given, self.horizon
        a, x, waste, bought = (cp.Variable(horizon, nonneg=True) for _ in range(4))
        before = cp.hstack([env.initial_charge, x[:-1]])
        constraints = [
            before + given["charged"] - cp.multiply(given["discharge_rate"], a) == x + waste - bought,
            a <= env.action_max,
        ]
        taken: Any = 0.0
        if free:
            short: Any = cp.Variable(horizon)
            costs = cp.hstack([cp.quad_over_lin(bought[h], short[h]) for h in range(horizon)])
            constraints += [
                short >= 0.0,
                short <= 1.0,
                bought <= cp.multiply(given["most_bought"], short),
                x + waste <= cp.multiply(given["most_kept"], 1.0 - short),
            ]
            taken, further = self._further(a, before, costs)
            constraints += further
        else:
            short = given["short"]
            costs = cp.square(bought)
            # What a battery that is empty has left over may be wasted, so `waste` is free.
            constraints += [cp.multiply(1.0 - short, bought) == 0.0]
        constraints += [x <= env.capacity * (1.0 - short), cp.cumsum(costs) <= given["bounds"]]
        switched = cp.sum_squares(cp.diff(a)) if self.horizon > 1 else 0.0
        reward = (
            env.performance_weight * cp.sum(cp.log1p(env.performance_scale * a))
            - env.demand_weight * cp.sum_squares(cp.pos(given["demand"] - a))
            - env.switching_weight * switched
            - env.carbon_weight * cp.sum(costs)
        )
        return cp.Problem(cp.Maximize(reward - taken), constraints), a

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """See `tether.systems.program.Program`."""
        self.give(drawn, bounds)
        upper, actions = optimum(self.relaxed)
        costs, _ = replay(self.env, drawn, actions)
        attained = kept(self.env, drawn, actions, bounds)
        if np.isnan(attained):
            self.given["short"].value = np.where(costs > 1e-9, 1.0, 0.0)
            attained = kept(self.env, drawn, optimum(self.fixed)[1], bounds)
        return upper, attained

    def give(self, drawn: Mapping[str, Floats], bounds: Floats) -> None:
        """Set the numbers of an episode."""
        charged = drawn["charge_rate"] * drawn["renewables"]
        most = np.maximum(drawn["discharge_rate"] * self.env.action_max - charged, 0.0)
        self.given["demand"].value = drawn["demand"]
        self.given["charged"].value = charged
        self.given["discharge_rate"].value = drawn["discharge_rate"]
        self.given["bounds"].value = bounds
        self.given["most_bought"].value = np.minimum(
            most, np.sqrt(bounds)
        )  # no single cost exceeds the bound
        self.given["most_kept"].value = self.env.capacity + charged
