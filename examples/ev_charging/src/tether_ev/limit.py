"""The charging station in hindsight: a convex program for `tether limit`.

With all series known take the energy drawn, u_h, as the variable. Cars take no more than they want, so the queue
before it is cut is q_h = (1 - d_h) x_{h-1} + m_h + w_h - v_h u_h >= 0, linear in u; the costs 1 + x^2 are convex and
the rewards concave in u. Where no bound allows a full house, x_max^2 + h > bound_h for every h, x_h = q_h and the
program is *exact*. Elsewhere cars may drive on, f_h = [q_h - x_max]^+ in rounds with x_h = x_max only. The program then
has the convex hull of the two cases, {f = 0, 0 <= x <= x_max, cost 1 + x^2} and {x = x_max, 0 <= f <= f_max, cost 1 +
x_max^2}: with the weight t_h of the second, x_h = q_h - f_h, f_h <= f_max t_h and cost_h = 1 + x_max^2 t_h + (x_h -
x_max t_h)^2 / (1 - t_h). That holds for every true trajectory: an *upper bound*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tether.systems.program import Floats, kept, optimum, require_cvxpy
from tether_ev.env import EV
from tether_ev.structure import ceiling


class EVProgram:
    """See the module; `_build(full=False)` leaves out that the house may be full."""

    def __init__(self, env: EV, horizon: int) -> None:
        self.env, self.horizon = env, horizon
        cp = require_cvxpy()
        names = ("keep", "arrivals", "efficiency", "solar", "price", "bounds", "most_driven_on")
        self.given = {name: cp.Parameter(horizon, name=name, nonneg=True) for name in names}
        self.exact, self.full = self._build(False), self._build(True)

    def _build(self, full: bool) -> Any:
        cp, env, given, horizon = require_cvxpy(), self.env, self.given, self.horizon
        u, x, bought = (cp.Variable(horizon, nonneg=True) for _ in range(3))
        q = given["arrivals"] - cp.multiply(given["efficiency"], u)
        q += cp.hstack([0.0, cp.multiply(given["keep"][1:], x[:-1])])
        constraints = [u <= env.power_max, x <= env.queue_max, bought >= u - given["solar"]]
        if full:
            most = env.queue_max
            t, driven_on = cp.Variable(horizon, nonneg=True), cp.Variable(horizon, nonneg=True)
            squares = cp.hstack([cp.quad_over_lin(x[h] - most * t[h], 1.0 - t[h]) for h in range(horizon)])
            costs = 1.0 + most**2 * t + squares
            constraints += [
                x == q - driven_on,
                driven_on <= cp.multiply(given["most_driven_on"], t),
                t <= 1.0,
            ]
        else:
            costs = 1.0 + cp.square(x)
            constraints += [x == q]
        constraints += [cp.cumsum(costs) <= given["bounds"]]
        reward = (
            env.tariff * cp.sum(cp.multiply(given["efficiency"], u))
            - cp.sum(cp.multiply(given["price"], bought))
            - env.peak_weight * cp.sum_squares(bought)
        )
        return cp.Problem(cp.Maximize(reward), constraints), u

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """See `tether.systems.program.Program`."""
        env, rounds = self.env, np.arange(self.horizon)
        hours = (env.start_hour + rounds) % 24.0
        arrivals = np.minimum(drawn["booked"], ceiling(env, hours, np)) + drawn["walk_in"]
        keep = 1.0 - drawn["plug_out"]
        given = {name: drawn[name] for name in ("efficiency", "solar", "price")}
        most_driven_on = np.maximum(keep * env.queue_max + arrivals - env.queue_max, 0.0)
        given |= {"arrivals": arrivals, "keep": keep, "bounds": bounds, "most_driven_on": most_driven_on}
        for name, values in given.items():
            self.given[name].value = values
        upper, actions = optimum(
            self.full if np.any(env.queue_max**2 + rounds + 1.0 <= bounds) else self.exact
        )
        attained = kept(env, drawn, actions, bounds)
        if np.isnan(attained):
            attained = kept(env, drawn, optimum(self.exact)[1], bounds)
        return upper, attained
