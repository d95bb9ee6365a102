"""The cooling system in hindsight: a convex program for `tether.assure.limit`.

For known draws the temperatures are linear in the actions, x_i' = stay x_i + wall x_j + leak T + heating (q_i - v_i
a_i) with stay = 1 - wall - leak, the cost 1 + sum_i w_i [|x_i' - setpoint| - band]^+ is convex in them, and the reward
-p sum_i (a_i + strain a_i^2) is concave, as no price is negative. So the program is *exact*: its value is the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tether.systems.cooling.env import Cooling
from tether.systems.program import Floats, kept, optimum, require_cvxpy


class CoolingProgram:
    """See the module."""

    def __init__(self, env: Cooling, horizon: int) -> None:
        self.env, self.horizon = env, horizon
        cp = require_cvxpy()
        rooms = (horizon, 2)
        self.given = {
            "entering": cp.Parameter(rooms, name="entering"),
            "effect": cp.Parameter(rooms, name="effect", nonneg=True),
            "price": cp.Parameter(rooms, name="price", nonneg=True),
            "bounds": cp.Parameter(horizon, name="bounds", nonneg=True),
        }
        self.program = self._build()

    def _build(self) -> Any:
        cp, env, given = require_cvxpy(), self.env, self.given
        a = cp.Variable((self.horizon, 2), nonneg=True)
        x = cp.Variable((self.horizon, 2))  # from the setpoint
        stay = 1.0 - env.wall - env.leak
        passed = np.array([[stay, env.wall], [env.wall, stay]])
        entering = given["entering"] - cp.multiply(given["effect"], a)
        discomfort = cp.pos(cp.abs(x) - env.band) @ np.array(env.discomfort)
        constraints = [
            x[0] == entering[0],
            a <= env.action_max,
            cp.cumsum(1.0 + discomfort) <= given["bounds"],
        ]
        if self.horizon > 1:
            constraints.append(x[1:] == x[:-1] @ passed + entering[1:])
        spent = cp.sum(cp.multiply(given["price"], a + env.strain * cp.square(a)))
        return cp.Problem(cp.Maximize(-spent), constraints), a

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """See `tether.systems.program.Program`."""
        env, given = self.env, self.given
        outside = drawn["outside"][:, None] - env.setpoint
        given["entering"].value = env.leak * outside + env.heating * drawn["heat_load"]
        given["effect"].value = env.heating * drawn["effectiveness"]
        given["price"].value = drawn["price"][:, None].repeat(2, axis=1)
        given["bounds"].value = bounds
        upper, actions = optimum(self.program)
        return upper, kept(env, drawn, actions, bounds)
