"""Episodes of an environment through the online guard, round by round in NumPy, in any number types."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

import tether


class Played(NamedTuple):
    costs: Any
    """[H] as the plant had them, in float64."""
    prior_costs: Any
    """[H] of the prior on the same draws, on the same plant."""
    decisions: list[tether.Decision]
    guard: tether.Guard

    def excess(self, contract: tether.Contract) -> float:
        """By how much the promise was broken in the worst certified round, a share of the bound; negative if kept."""
        certified = slice(0, self.guard.uncertified_from - 1)
        rounds = np.arange(1, len(self.costs) + 1)
        bounds = contract.bound(np.cumsum(self.prior_costs), rounds)
        over = (np.cumsum(self.costs) - bounds) / np.maximum(np.abs(bounds), np.finfo(float).tiny)
        return float(np.max(over[certified], initial=-np.inf))


def play(
    env,
    episodes,
    i,
    guard,
    propose,
    *,
    plant=np.float64,
    seen=lambda observation: observation,
    given=lambda action: action,
    paid=lambda cost: cost,
    reveals=False,
):
    """Episode i, with what the plant computes in, and what happens to numbers on their way to and from the guard."""
    draws = {name: np.asarray(episodes[name][i]).astype(plant) for name in env.drawn_names}
    own = follower = type(env.initial())(*(np.asarray(entry, dtype=plant) for entry in env.initial()))
    costs, prior_costs, decisions = [], [], []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", tether.AssumptionBreach)
        for h in range(episodes.horizon):
            drawn = {name: values[h] for name, values in draws.items()}
            observation = env.observation(own, drawn)
            decision = guard.act(seen(observation), propose(observation, h))
            action = np.asarray(given(decision.action)).astype(plant)
            own, _, cost = env.step(own, drawn, action)
            wish = np.asarray(env.prior(env.observation(follower, drawn))).astype(plant)
            follower, _, prior_cost = env.step(follower, drawn, wish)
            revealed = {name: drawn[name] for name in env.hidden} if reveals else None
            guard.observe(paid(cost), revealed)
            costs.append(float(cost))
            prior_costs.append(float(prior_cost))
            decisions.append(decision)
    return Played(np.array(costs), np.array(prior_costs), decisions, guard)
