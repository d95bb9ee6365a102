"""What bounds for policies that do not foresee share: they act before the disturbances of their round are drawn.

Such a policy keeps the promise whatever a round's draw will be. Its actions satisfy what hindsight asks of them, and,
in every round h and for every draw y of that round, with states and costs as they were before it,

    J_{h-1} + c_h(x_{h-1}, a_h, y)  <=  (1 + lam) (J+_{h-1} + c_h(x+_{h-1}, prior's action, y)) + h b.

The right side is a number (`bounds_if`), as the prior's own path is given. Where the left side is convex in actions and
states, hindsight's program stays convex with these constraints for some y, and its value is an upper bound in each
episode for every policy that does not foresee, whatever else it knows.

*Prices* (information relaxation with penalties: Brown, Smith and Sun, Operations Research 58, 2010) make it tighter in
expectation. What a draw that differs from its mean does to the next state, if linear in the draw, has mean 0 whatever
such a policy does; so, priced by any numbers that depend on the visible series alone, it can be taken from the reward
without changing what such a policy earns in expectation. Good prices are what a unit of the state is worth: the
multipliers of the dynamics in hindsight's program for mean disturbances, where the prior's costs are their mean over
`SAMPLES` paths on draws that have nothing to do with the episode's (`usual_costs`). The same sum at that program's own
actions has mean 0 as well; it is added, so that the bound of an episode goes up and down with its draws as rewards do.
A priced bound holds in expectation over the draws: a mean over episodes has a standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tether.systems.base import Env, play
from tether.systems.program import Floats, Program

SAMPLES = 16
"""Paths of the prior whose mean costs the prices are found with."""


@dataclass(frozen=True)
class Unforeseen:
    """Makes the program of one contract for a system and a horizon, `made(env, horizon, asked)`."""

    made: Callable[[Any, int, Unforeseen], Program]
    lam: float
    """Of the contract."""
    b: float
    """Of the contract."""
    priced: bool = True
    """Whether there are prices; without them it is a bound in each episode."""

    def __call__(self, env: Env, horizon: int) -> Program:
        """The program."""
        return self.made(env, horizon, self)

    def bounds(self, costs: Floats) -> Floats:
        """[H] what the costs up to each round may be where the prior's are these, [H]."""
        return (1.0 + self.lam) * np.cumsum(costs) + self.b * np.arange(1, len(costs) + 1)


def bounds_if(
    env: Env, drawn: Mapping[str, Floats], other: Mapping[str, Any], lam: float, b: float
) -> Floats:
    """[H] what the costs up to round h may be if `other` were drawn in it, and all else before as it was."""
    paid, bounds = 0.0, []
    for each in play(env, drawn, lambda _h, state, now: env.prior(env.observe(state, now))):
        here = paid + float(env.step(each.state, {**each.drawn, **other}, each.action).cost)
        bounds.append((1.0 + lam) * here + each.round * b)
        paid += float(each.step.cost)
    return np.array(bounds)


def usual_costs(env: Env, visible: Mapping[str, Floats], hidden: Mapping[str, Floats]) -> Floats:
    """[H] mean of the prior's costs over draws of the hidden series, [samples, H, ...] each."""
    costs = []
    for i in range(len(next(iter(hidden.values())))):
        path = {**visible, **{name: values[i] for name, values in hidden.items()}}
        played = play(env, path, lambda _h, state, now: env.prior(env.observe(state, now)))
        costs.append([float(each.step.cost) for each in played])
    mean: Floats = np.mean(costs, axis=0)
    return mean
