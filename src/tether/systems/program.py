"""What hindsight programs share: each finds the largest reward of an episode whose disturbances are all known."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tether.core.extras import missing
from tether.systems.base import Env, play

Floats = NDArray[np.float64]

TOLERANCE = 1e-5
"""A replay keeps the promise if no cumulative cost exceeds its bound by more than this share of it."""


class Program(Protocol):
    """The hindsight program of a system and a horizon, made once and solved for many episodes."""

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """(an upper bound on the reward, the reward of actions that keep the promise or NaN).

        Args:
            drawn: All series of the episode, [H] or [H, n] each.
            bounds: [H] what the cumulative cost of each round may be at most.
        """


def require_cvxpy() -> Any:
    """cvxpy, or an error that says how to get it."""
    try:
        import cvxpy
    except ModuleNotFoundError as error:
        raise missing("the hindsight limit", error) from None
    return cvxpy


def optimum(problem_and_actions: tuple[Any, Any]) -> tuple[float, Floats]:
    """The optimal value and the actions [H]; NaN where the solver found none."""
    problem, actions = problem_and_actions
    cp = require_cvxpy()
    with warnings.catch_warnings():
        # The last digits may be lost in an episode; the replay measures what that does.
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        # Without a warm start the digits do not depend on which episodes this process has solved before.
        problem.solve(solver=cp.CLARABEL, warm_start=False)
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        return np.nan, np.full(actions.shape, np.nan)
    return float(problem.value), np.asarray(actions.value)


def replay(env: Env, drawn: Mapping[str, Floats], actions: Floats) -> tuple[Floats, Floats]:
    """[H] costs and rewards of the actions in the system itself."""
    inside = np.clip(actions, env.low, env.high)
    steps = [each.step for each in play(env, drawn, lambda h, _state, _drawn: inside[h - 1])]
    return np.array([float(step.cost) for step in steps]), np.array([float(step.reward) for step in steps])


def kept(env: Env, drawn: Mapping[str, Floats], actions: Floats, bounds: Floats) -> float:
    """The reward of the actions in the system itself, NaN if they break the promise."""
    costs, rewards = replay(env, drawn, actions)
    kept = np.all(np.cumsum(costs) <= bounds * (1.0 + TOLERANCE) + TOLERANCE)
    return float(np.sum(rewards)) if kept else np.nan
