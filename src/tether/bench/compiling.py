"""How the work of a compiled certificate grows with the state's dimension and with the horizon."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tether.certificates.model import Model
from tether.core.contract import Contract
from tether.core.guard import Guard

TIMED = 20
"""Rounds over which a decision is timed; the middle one counts."""


@dataclass(frozen=True)
class Growth:
    """One plant."""

    states: int
    horizon: int
    tail: bool
    """Whether gaps shrink under the prior, so that K rounds and a tail are enough; else the list runs to the
    horizon."""
    compile: float
    """`tether.compile`, seconds of a processor."""
    first: float
    """The first act and observe, which compile the guard, likewise."""
    round: float
    """A later act and observe, milliseconds of a processor."""


def chain(states: int, tail: bool) -> Model:
    """Vessels in a row, the state [n] their deviations from the set points; each leaks into the next.

    Args:
        states: n; as many actions.
        tail: Whether the prior brings every vessel back; if not it leaves a deviation as it is.
    """
    kept = 0.7 if tail else 1.0
    matrix = kept * np.eye(states) + (0.1 * np.eye(states, k=-1) if tail else 0.0)

    def cost(x: Any, z: Any, a: Any, w: Any) -> Any:  # noqa: ARG001
        import jax.numpy as jnp

        return 1.0 + jnp.sum(abs(jnp.clip(matrix @ x + a + w, -4.0, 4.0)))

    def step(x: Any, z: Any, a: Any, w: Any) -> Any:  # noqa: ARG001
        import jax.numpy as jnp

        return jnp.clip(matrix @ x + a + w, -4.0, 4.0)

    def prior(x: Any, z: Any) -> Any:  # noqa: ARG001
        return 0.0 * x

    ones = np.ones(states)
    return Model(
        step, cost, prior, (-4.0 * ones, 4.0 * ones), (-ones, ones), draws=(-0.05 * ones, 0.05 * ones)
    )


def measure(states: Sequence[int], horizons: Sequence[int]) -> Iterator[Growth]:
    """Each size, with a tail and without one."""
    for n in states:
        for horizon in horizons:
            for tail in (True, False):
                yield _measured(chain(n, tail), horizon, tail)


def _measured(model: Model, horizon: int, tail: bool) -> Growth:
    from tether.certificates.compiled import compile as compiled

    begin = time.process_time()
    certificate = compiled(model, Contract(lam=1.0, b=1.0, horizon=horizon, cost_floor=1.0))
    seconds = time.process_time() - begin
    n = model.sizes[0]
    guard = Guard(certificate, lambda _seen: np.zeros(n), low=-1.0, high=1.0)
    x, taken = np.zeros(n), []
    matrix = np.asarray(model.step(np.eye(n).T, None, 0.0, 0.0))
    for _ in range(min(TIMED, horizon)):
        begin = time.process_time()
        decision = guard.act(x, np.full(n, 0.5))
        after = np.clip(matrix @ x + decision.action, -4.0, 4.0)
        guard.observe(1.0 + float(np.abs(after).sum()))
        taken.append(time.process_time() - begin)
        x = after
    return Growth(n, horizon, tail, seconds, taken[0], 1000.0 * float(np.median(taken[1:])))
