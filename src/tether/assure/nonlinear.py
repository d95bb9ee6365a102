"""The hindsight program of any system: actions that earn much and keep the promise, found by gradients.

Where a system has no convex program of its own, the same problem is solved as it stands:

    maximise    the episode's reward over the actions a_1, ..., a_H, by the environment's own `step`
    subject to  cost_1 + ... + cost_h <= bound_h for every h,    low <= a_h <= high,

by sequential quadratic programming (SciPy's SLSQP) with the derivatives of JAX, from several starts: the prior's
actions, which keep every promise, and actions on the way from these to the ends of the box. What comes out is replayed
in the system itself, and drawn back towards the prior's actions where it breaks the promise by a little. The best
reward that keeps it is *attained*. Nothing proves that no other sequence earns more: it is no upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from tether.systems.base import Env, play
from tether.systems.program import Floats, kept

STARTS = (0.0, 0.3, -0.3)
"""Share of the way from the prior's actions to the highest (above 0) or the lowest at which each search starts."""
STEPS = 200
"""Of each search, at most."""
INWARD = 1e-7
"""Share of the bounds that is left, so that round-off breaks none."""
OFF_THE_EDGE = 1e-9
"""Share of the actions' range from which the box is left alone: rewards may have no derivative at its ends."""
DRAWN_BACK = (1.0, 1.0 - 1e-6, 1.0 - 1e-4, 1.0 - 1e-2, 0.9, 0.5)
"""Shares of the way from the prior's actions to those found that are tried until the promise is kept."""


class NonlinearProgram:
    """See the module; a `tether.systems.program.Program` whose first number is what it attains.

    Args:
        env: The system.
        horizon: H.
    """

    def __init__(self, env: Env, horizon: int) -> None:
        self.env, self.horizon = env, horizon
        self.shape = (horizon, *env.action_shape)
        low, high = (np.broadcast_to(end, self.shape).ravel() for end in env.action_range())
        width = high - low
        self.scale = np.where(width > 0.0, width, 1.0)
        """Of each number that is searched for, so that all are of the same size."""
        box = [
            np.broadcast_to(np.asarray(end, dtype=np.float64), self.shape).ravel()
            for end in (env.low, env.high)
        ]
        self.box = box[0] + OFF_THE_EDGE * self.scale, box[1] - OFF_THE_EDGE * self.scale
        self.ends = low, high
        self._outcome = jax.jit(self._played)
        self._slopes = jax.jit(jax.jacrev(self._played))

    def _played(self, actions: Any, drawn: Mapping[str, Any]) -> Any:
        """[1 + H] the reward of the episode, and the cumulative costs, of actions [H n] in units of `scale`."""
        shaped = jnp.reshape(actions * self.scale, self.shape)
        initial = self.env.initial()
        state = type(initial)(*(jnp.asarray(entry, dtype=actions.dtype) for entry in initial))

        def one(state: Any, now: Any) -> Any:
            drawn_now, action = now
            step = self.env.step(state, drawn_now, action)
            return step.state, (step.reward, step.cost)

        _, (rewards, costs) = jax.lax.scan(one, state, (drawn, shaped))
        return jnp.concat([jnp.sum(rewards)[None], jnp.cumsum(costs)])

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        """(what is attained, the same): see `tether.systems.program.Program`."""
        env = self.env
        prior = np.array([each.action for each in play(env, drawn, self._prior)], dtype=np.float64)
        best = kept(env, drawn, prior, bounds)
        with jax.enable_x64(True):
            given = {name: jnp.asarray(values) for name, values in drawn.items()}
            for start in STARTS:
                end = self.ends[0] if start < 0.0 else self.ends[1]
                first = prior.ravel() + abs(start) * (end - prior.ravel())
                found = self._searched(np.clip(first, *self.box), given, bounds).reshape(self.shape)
                for share in DRAWN_BACK:
                    reward = kept(env, drawn, prior + share * (found - prior), bounds)
                    if reward == reward:
                        best = reward if not best >= reward else best
                        break
        return best, best

    def _prior(self, _round: int, state: Any, drawn: Mapping[str, Any]) -> Any:
        return np.clip(self.env.prior(self.env.observe(state, drawn)), self.env.low, self.env.high)

    def _searched(self, first: Floats, drawn: Mapping[str, Any], bounds: Floats) -> Floats:
        """[H n] the actions that a search from `first` ends at."""
        unit = np.maximum(np.abs(bounds), 1.0)
        within = bounds * (1.0 - INWARD * np.sign(bounds)) / unit

        def finite(values: Any) -> Floats:
            known: Floats = np.nan_to_num(np.asarray(values), nan=0.0, posinf=1e12, neginf=-1e12)
            return known

        def outcome(x: Floats) -> Floats:
            return finite(self._outcome(x, drawn))

        def slopes(x: Floats) -> Floats:
            return finite(self._slopes(x, drawn))

        value, slope = _remembered(outcome), _remembered(slopes)
        size = max(1.0, abs(float(value(first / self.scale)[0])))
        solution = minimize(
            lambda x: -value(x)[0] / size,
            first / self.scale,
            jac=lambda x: -slope(x)[0] / size,
            bounds=list(zip(self.box[0] / self.scale, self.box[1] / self.scale, strict=True)),
            constraints={
                "type": "ineq",
                "fun": lambda x: within - value(x)[1:] / unit,
                "jac": lambda x: -slope(x)[1:] / unit[:, None],
            },
            method="SLSQP",
            options={"maxiter": STEPS, "ftol": 1e-9},
        )
        found: Floats = np.clip(np.asarray(solution.x) * self.scale, *self.box)
        return found


def _remembered(function: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """The function, whose last value is kept: SLSQP asks for objective and constraints at the same place."""
    last: list[tuple[bytes, Floats]] = []

    def asked(x: Floats) -> Floats:
        key = x.tobytes()
        if not last or last[0][0] != key:
            last[:] = [(key, function(x))]
        return last[0][1]

    return asked
