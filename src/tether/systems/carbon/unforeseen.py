"""What no policy can earn on the carbon system that does not foresee its disturbances: a convex program an episode.

See `tether.systems.unforeseen` for the argument. Here the promise is asked for some (m, n2) of the ranges, m = -n1
(`CORNERS`): the cost phi([(1 - n2) x_{h-1} + mu_h - (eta - m) a_h]^+) is convex in actions and backlogs. Where the cap
could be reached on the way, the constraint is not asked; where it can in the episode itself, hindsight's program is
solved, with the prices below.

Two surprises have mean 0 for a policy that does not foresee n1_h and n2_h, which are then independent of a_h and
x_{h-1}: for any p_h that depends on the visible series alone,

    w (sqrt(eta + n1_h) - E sqrt(eta + n1)) sqrt(a_h)     and     p_h ((n1_h - E n1) a_h + (n2_h - E n2) x_{h-1}).

Without them who foresees n1 would spend where it will be efficient. The first leaves w E sqrt(eta + n1) sqrt(a_h) of
the revenue, concave as before, and the second is linear: nothing else of the program changes. The price p_h is what a
unit of backlog less is worth after round h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from tether.systems.base import play
from tether.systems.carbon.env import Carbon, CarbonState
from tether.systems.carbon.limit import CarbonProgram
from tether.systems.carbon.synthetic import EFFICIENCY_NOISE_STD
from tether.systems.program import Floats, optimum, require_cvxpy
from tether.systems.unforeseen import bounds_if

CORNERS = ((1.0, 0.0), (1.0, 1.0), (0.5, 0.0))
"""(m, n2) for which the promise is asked, in shares of their largest values."""
SAMPLES = 64
"""Paths of the prior, on draws of their own, whose mean costs the prices are found with."""
NEVER = 1e6
"""A bound that no cost reaches."""


@dataclass(frozen=True)
class Unforeseen:
    """Makes the program of one contract, see the module.

    Args:
        lam: Of the contract.
        b: Of the contract.
        priced: Whether there are prices; without them it is a bound in each episode.
        noise: What n1 can be and how likely each is; N(0, 1/15) cut at the range's ends if None.
    """

    lam: float
    b: float
    priced: bool = True
    noise: tuple[tuple[float, float], ...] | None = None

    def __call__(self, env: Carbon, horizon: int) -> UnforeseenProgram:
        """The program of a system and a horizon."""
        return UnforeseenProgram(env, horizon, self)


class UnforeseenProgram(CarbonProgram):
    """See the module."""

    def __init__(self, env: Carbon, horizon: int, asked: Unforeseen) -> None:
        cp = require_cvxpy()
        self.asked = asked
        self.corners = [(m * env.efficiency_noise_max, n2 * env.drop_rate_max) for m, n2 in CORNERS]
        self.worst = [cp.Parameter(horizon, name=f"worst_{i}") for i in range(len(self.corners))]
        self.surprise = {name: cp.Parameter(horizon, name=name) for name in ("worked", "dropped")}
        values, shares = np.array(asked.noise or normal(env.efficiency_noise_max)).T
        self.mean_noise, self.mean_drop = float(shares @ values), 0.5 * env.drop_rate_max
        self.mean_root = float(shares @ np.sqrt(env.efficiency + values))
        rng = np.random.default_rng(0)
        self.samples = {
            "efficiency_noise": rng.choice(values, (SAMPLES, horizon), p=shares),
            "drop_rate": rng.uniform(0.0, env.drop_rate_max, (SAMPLES, horizon)),
        }
        self.nominal = CarbonProgram(env, horizon)
        super().__init__(env, horizon)

    def _further(self, actions: Any, backlogs: Any, costs: Any) -> tuple[Any, list[Any]]:
        cp, env = require_cvxpy(), self.env
        spent, before = (cp.hstack([0.0, each[:-1]]) for each in (cp.cumsum(costs), backlogs))
        constraints = []
        for (m, n2), worst in zip(self.corners, self.worst, strict=True):
            left = cp.pos((1.0 - n2) * before + self.given["demand"] - (env.efficiency - m) * actions)
            constraints.append(spent + 1.0 + left + cp.square(left) <= worst)
        taken = self.surprise["worked"] @ actions + self.surprise["dropped"] @ before
        return taken, constraints

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """(the upper bound, NaN): nothing is attained."""
        self.give(drawn, bounds)
        keep = 1.0 - drawn["drop_rate"]
        capped = self._cap_is_reachable(drawn["demand"], keep, bounds)
        noise = drawn["efficiency_noise"] - self.mean_noise
        worked = dropped = np.zeros(self.horizon)
        expected = 0.0
        if self.asked.priced:
            prices, actions, before = self._nominal(drawn)
            worked, dropped = prices * noise, prices * (drawn["drop_rate"] - self.mean_drop)
            surprise = self.given["root"].value - self.mean_root
            expected = (
                self.env.revenue_weight * surprise @ np.sqrt(actions) + worked @ actions + dropped @ before
            )
            self.given["root"].value = np.full(self.horizon, self.mean_root)
        self.surprise["worked"].value, self.surprise["dropped"].value = worked, dropped
        for (m, n2), worst in zip(self.corners, self.worst, strict=True):
            other = {"efficiency_noise": -m, "drop_rate": n2}
            most = bounds_if(self.env, drawn, other, self.asked.lam, self.asked.b)
            reached = self._reaches_cap(drawn["demand"], keep, most, np.full(self.horizon, 1.0 - n2))
            worst.value = np.where(reached, NEVER, most)
        # Prices count there too: what they take has mean 0 over all draws, not over those in which the cap is far.
        return optimum(self.capped if capped else self.exact)[0] + float(expected), np.nan

    def _nominal(self, drawn: Mapping[str, Floats]) -> tuple[Floats, Floats, Floats]:
        """[H] p_h, and actions and backlogs before each round for mean disturbances: of the visible series alone."""
        env, horizon, nominal = self.env, self.horizon, self.nominal
        visible = {name: drawn[name] for name in env.visible}
        many = {name: np.repeat(values[:, None], SAMPLES, axis=1) for name, values in visible.items()}
        many |= {name: values.T for name, values in self.samples.items()}
        backlog, costs = np.zeros(SAMPLES), np.empty(horizon)
        for h in range(horizon):
            now = {name: values[h] for name, values in many.items()}
            action = (now["demand"] + backlog) / env.efficiency
            state, _, cost = env.step(CarbonState(backlog, 0.0 * backlog, 1.0 + 0.0 * backlog), now, action)
            backlog, costs[h] = state.backlog, cost.mean()
        bounds = (1.0 + self.asked.lam) * np.cumsum(costs) + self.asked.b * np.arange(1, horizon + 1)
        still = {
            "efficiency_noise": np.full(horizon, self.mean_noise),
            "drop_rate": np.full(horizon, self.mean_drop),
        }
        nominal.give({**visible, **still}, bounds)
        _, actions = optimum(nominal.exact)
        if np.any(np.isnan(actions)):
            return np.zeros(horizon), np.zeros(horizon), np.zeros(horizon)
        prices = np.asarray(nominal.exact[0].constraints[0].dual_value)
        actions = np.maximum(actions, 0.0)
        before = [
            float(each.state.backlog)
            for each in play(env, {**visible, **still}, lambda h, _s, _d: actions[h - 1])
        ]
        return prices, actions, np.array(before)


def normal(largest: float, parts: int = 4000) -> tuple[tuple[float, float], ...]:
    """N(0, 1/15) cut at +-`largest`, as the middles of so many equally likely parts."""
    quantile = NormalDist(0.0, EFFICIENCY_NOISE_STD).inv_cdf
    middles = (quantile((i + 0.5) / parts) for i in range(parts))
    return tuple((min(max(each, -largest), largest), 1.0 / parts) for each in middles)
