"""What no policy can earn on the inference system that does not foresee its charging and discharging rates.

See `tether.systems.unforeseen`. The cost ([v_a a_h - x_{h-1} - v_e e_h]^+)^2 is convex in charge and action for any
rates; the promise is asked for the (v_a, v_e) of `CORNERS`. The surprise is that of the energy taken out of the
battery, (E v_a - v_a) a_h, and its price what a unit of charge is worth after round h; that of the energy put in does
not depend on what is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tether.systems.inference.env import Inference
from tether.systems.inference.limit import InferenceProgram
from tether.systems.program import Floats, optimum, require_cvxpy
from tether.systems.unforeseen import SAMPLES, Unforeseen, bounds_if, usual_costs

CORNERS = ((1.0, 0.0), (1.0, 1.0), (0.5, 0.0), (0.5, 0.5), (0.0, 0.0))
"""(v_a, v_e) for which the promise is asked, from 0 for the smallest to 1 for the largest."""


class UnforeseenProgram(InferenceProgram):
    """See the module."""

    def __init__(self, env: Inference, horizon: int, asked: Unforeseen) -> None:
        cp, rng = require_cvxpy(), np.random.default_rng(0)
        self.asked = asked
        least = np.array([env.discharge_rate_min, env.charge_rate_min])
        self.corners = [least + (1.0 - least) * np.array(corner) for corner in CORNERS]
        self.worst = [cp.Parameter(horizon, name=f"worst_{i}") for i in range(len(CORNERS))]
        self.surprise = cp.Parameter(horizon, name="surprise")
        self.mean = 0.5 * (least + 1.0)
        self.samples = {
            name: rng.uniform(lowest, 1.0, (SAMPLES, horizon))
            for name, lowest in zip(("discharge_rate", "charge_rate"), least, strict=True)
        }
        self.renewables = cp.Parameter(horizon, name="renewables", nonneg=True)
        self.nominal = InferenceProgram(env, horizon)
        super().__init__(env, horizon)

    def _further(self, actions: Any, before: Any, costs: Any) -> tuple[Any, list[Any]]:
        cp = require_cvxpy()
        spent = cp.hstack([0.0, cp.cumsum(costs)[:-1]])
        constraints = []
        for (discharge, charge), worst in zip(self.corners, self.worst, strict=True):
            bought = cp.pos(discharge * actions - before - charge * self.renewables)
            constraints.append(spent + cp.square(bought) <= worst)
        return self.surprise @ actions, constraints

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """(the upper bound, NaN): nothing is attained."""
        surprise, expected = np.zeros(self.horizon), 0.0
        if self.asked.priced:
            prices, actions = self._nominal(drawn)
            surprise = prices * (self.mean[0] - drawn["discharge_rate"])
            expected = float(surprise @ actions)
        self.give(drawn, bounds)
        self.renewables.value = drawn["renewables"]
        self.surprise.value = surprise
        for (discharge, charge), worst in zip(self.corners, self.worst, strict=True):
            other = {"discharge_rate": discharge, "charge_rate": charge}
            worst.value = bounds_if(self.env, drawn, other, self.asked.lam, self.asked.b)
        return optimum(self.relaxed)[0] + expected, np.nan

    def _nominal(self, drawn: Mapping[str, Floats]) -> tuple[Floats, Floats]:
        """[H] prices, and actions for mean rates: of the visible series alone."""
        visible = {name: drawn[name] for name in self.env.visible}
        costs = usual_costs(self.env, visible, self.samples)
        still = {
            name: np.full(self.horizon, mean) for name, mean in zip(self.samples, self.mean, strict=True)
        }
        self.nominal.give({**visible, **still}, self.asked.bounds(costs))
        problem, actions = self.nominal.relaxed
        if np.any(np.isnan(optimum((problem, actions))[1])):
            return np.zeros(self.horizon), np.zeros(self.horizon)
        return -np.asarray(problem.constraints[0].dual_value), np.asarray(actions.value)
