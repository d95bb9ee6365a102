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

    def _further(self, actions: Any, uncooled: Any, costs: Any) -> tuple[Any, list[Any]]:  # noqa: ARG002
        """(what is taken from the reward, constraints) beside those of hindsight.

        Args:
            actions: [H, 2]
            uncooled: [H, 2] the temperatures after each round, from the setpoint, if its units were off.
            costs: [H]
        """
        return 0.0, []

    def cost(self, temperatures: Any) -> Any:
        """[H] costs of temperatures [H, 2], from the setpoint."""
        cp, env = require_cvxpy(), self.env
        return 1.0 + cp.pos(cp.abs(temperatures) - env.band) @ np.array(env.discomfort)

    def _build(self) -> Any:
        cp, env, given = require_cvxpy(), self.env, self.given
        a = cp.Variable((self.horizon, 2), nonneg=True)
        x = cp.Variable((self.horizon, 2))  # from the setpoint
        stay = 1.0 - env.wall - env.leak
        passed = np.array([[stay, env.wall], [env.wall, stay]])
        before = np.zeros((1, 2)) if self.horizon == 1 else cp.vstack([np.zeros((1, 2)), x[:-1]])
        uncooled = before @ passed + given["entering"]
        costs = self.cost(x)
        taken, further = self._further(a, uncooled, costs)
        constraints = [
            x == uncooled - cp.multiply(given["effect"], a),
            a <= env.action_max,
            cp.cumsum(costs) <= given["bounds"],
            *further,
        ]
        spent = cp.sum(cp.multiply(given["price"], a + env.strain * cp.square(a)))
        return cp.Problem(cp.Maximize(-spent - taken), constraints), a

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """See `tether.systems.program.Program`."""
        self.give(drawn, bounds)
        upper, actions = optimum(self.program)
        return upper, kept(self.env, drawn, actions, bounds)

    def give(self, drawn: Mapping[str, Floats], bounds: Floats) -> None:
        """Set the numbers of an episode."""
        env, given = self.env, self.given
        outside = drawn["outside"][:, None] - env.setpoint
        given["entering"].value = env.leak * outside + env.heating * drawn["heat_load"]
        given["effect"].value = env.heating * drawn["effectiveness"]
        given["price"].value = drawn["price"][:, None].repeat(2, axis=1)
        given["bounds"].value = bounds
