"""What no policy can earn on the cooling system that does not foresee the effectiveness of its units.

See `tether.systems.unforeseen`. The temperatures after a round are linear in those before and in the actions, for any
effectiveness v, and the cost is convex in them: the promise is asked for the v of `CORNERS`. The surprise is that of
the heat taken out, heating (v_ih - E v) a_ih, and its price what a degree less in room i is worth after round h.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tether.systems.cooling.env import Cooling
from tether.systems.cooling.limit import CoolingProgram
from tether.systems.program import Floats, optimum, require_cvxpy
from tether.systems.unforeseen import SAMPLES, Unforeseen, bounds_if, usual_costs

CORNERS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.5))
"""Effectiveness of both units for which the promise is asked, from 0 for the smallest to 1 for the largest.

That of the middle is what the prior reckons with: there it pays least."""


class UnforeseenProgram(CoolingProgram):
    """See the module."""

    def __init__(self, env: Cooling, horizon: int, asked: Unforeseen) -> None:
        cp, least = require_cvxpy(), env.effectiveness_min
        self.asked = asked
        self.corners = [least + (1.0 - least) * np.array(corner) for corner in CORNERS]
        self.worst = [cp.Parameter(horizon, name=f"worst_{i}") for i in range(len(CORNERS))]
        self.surprise = cp.Parameter((horizon, 2), name="surprise")
        self.mean = 0.5 * (least + 1.0)
        self.samples = np.random.default_rng(0).uniform(least, 1.0, (SAMPLES, horizon, 2))
        self.nominal = CoolingProgram(env, horizon)
        super().__init__(env, horizon)

    def _further(self, actions: Any, uncooled: Any, costs: Any) -> tuple[Any, list[Any]]:
        cp = require_cvxpy()
        spent = cp.hstack([0.0, cp.cumsum(costs)[:-1]])
        constraints = [
            spent + self.cost(uncooled - actions @ np.diag(self.env.heating * corner)) <= worst
            for corner, worst in zip(self.corners, self.worst, strict=True)
        ]
        return cp.sum(cp.multiply(self.surprise, actions)), constraints

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """(the upper bound, NaN): nothing is attained."""
        surprise, expected = np.zeros((self.horizon, 2)), 0.0
        if self.asked.priced:
            prices, actions = self._nominal(drawn)
            surprise = prices * self.env.heating * (drawn["effectiveness"] - self.mean)
            expected = float(np.sum(surprise * actions))
        self.give(drawn, bounds)
        self.surprise.value = surprise
        for corner, worst in zip(self.corners, self.worst, strict=True):
            worst.value = bounds_if(self.env, drawn, {"effectiveness": corner}, self.asked.lam, self.asked.b)
        return optimum(self.program)[0] + expected, np.nan

    def _nominal(self, drawn: Mapping[str, Floats]) -> tuple[Floats, Floats]:
        """[H, 2] prices, and actions for the mean effectiveness: of the visible series alone."""
        visible = {name: drawn[name] for name in self.env.visible}
        costs = usual_costs(self.env, visible, {"effectiveness": self.samples})
        still = {**visible, "effectiveness": np.full((self.horizon, 2), self.mean)}
        self.nominal.give(still, self.asked.bounds(costs))
        problem, actions = self.nominal.program
        if np.any(np.isnan(optimum((problem, actions))[1])):
            return np.zeros((self.horizon, 2)), np.zeros((self.horizon, 2))
        return -np.asarray(problem.constraints[0].dual_value), np.asarray(actions.value)
