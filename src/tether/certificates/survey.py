"""What the prior does anywhere in the ranges of a model, found once when a certificate is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tether.certificates.cells import cut, over_cells
from tether.certificates.intervals import Array, Interval
from tether.certificates.model import Model
from tether.certificates.programs import Program, dense, enclose

Floats = NDArray[np.float64]
SEARCHED = 4096
"""Pieces of the ranges over which a contraction is looked for."""
EDGE = 1e-6
"""The range of states is taken for this part of its width wider, so that round-off never leaves it."""


ONE_BY_ONE = 4
"""So many entries of a state, context or draw are inputs of their own; more are one group."""


TAIL, MOST_ROUNDS = 8.0, 8
"""See `rounds_of`."""


def widened(model: Model) -> tuple[Floats, Floats]:
    """The range of states, a little wider, [n] each."""
    low, high = model.box("state")
    slack = EDGE * (high - low)
    return low - slack, high + slack


class Contraction(NamedTuple):
    """That gaps under the prior shrink, in the norm max_i |e_i| / weights_i."""

    rate: float
    """rho, a round."""
    weights: tuple[float, ...]
    """[n]"""
    costs: tuple[float, ...]
    """[n] largest slope of the prior's cost in each entry of the state, cost units a state unit."""


class Survey(NamedTuple):
    """What the prior does anywhere in the range of states."""

    slopes: Floats
    """[n, n] largest |d next state_j / d state_i|."""
    cost_slopes: Floats
    """[n] largest |d cost / d state_i| ..."""
    typical_cost_slopes: Floats
    """[n] ... and the mean over the pieces of the range."""
    draw_effects: Floats
    """[p] largest change of the prior's cost by each entry of the draw, over its whole range."""
    largest_cost: float
    """At most, of the prior in a round."""
    seen_cost: float
    """The smallest cost of the prior at the middle of any piece."""
    invariant: bool
    """Whether the range of states is mapped into itself."""


def groups_of(*sizes: int) -> tuple[int, ...]:
    """Groups of inputs for `Program`: few numbers one by one, many as one group."""
    return tuple(each for size in sizes for each in ((1,) * size if size <= ONE_BY_ONE else (size,)))


def survey_of(model: Model, closed_loop: Callable[[Array, Array, Array], list[Array]]) -> Survey:
    """Slopes and ranges of cost [1] and next state [n] under the prior, functions of state, context and draw."""
    n, nz, _, p = model.sizes
    state = widened(model)
    low, high = (
        np.concatenate([state[i], *(model.box(name)[i] for name in ("context", "draws"))]) for i in (0, 1)
    )
    pieces = cut(low, high, SEARCHED, np.ones(len(low)))

    @jax.jit
    def survey(pieces: Interval) -> Any:
        program = Program(
            lambda u: jnp.concatenate(closed_loop(u[:n], u[n : n + nz], u[n + nz :])),
            groups_of(n, nz, p),
            jnp.float64,
        )

        def of_piece(piece: Interval) -> Any:
            found, inside = enclose(program, piece)
            slope = dense(inside, program.sizes)
            sizes = jnp.maximum(abs(slope.low), abs(slope.high))
            return found, sizes, (inside.middle or found).high[0]

        found, sizes, costs = jax.vmap(of_piece)(pieces)
        return over_cells(found), jnp.max(sizes, axis=0), jnp.mean(sizes[:, :n, 0], axis=0), jnp.min(costs)

    found, sizes, typical, least = survey(Interval(jnp.asarray(pieces.low), jnp.asarray(pieces.high)))
    sizes = np.asarray(sizes)
    invariant = bool(
        np.all(np.asarray(found.low)[1:] >= state[0]) and np.all(np.asarray(found.high)[1:] <= state[1])
    )
    draws = model.box("draws")
    effects = np.nan_to_num(sizes[n + nz :, 0], posinf=1.0) * (draws[1] - draws[0])
    effects = np.maximum(effects, 1e-6 * np.max(effects, initial=1e-300))
    return Survey(
        slopes=sizes[:n, 1:],
        cost_slopes=sizes[:n, 0],
        typical_cost_slopes=np.asarray(typical),
        draw_effects=effects,
        largest_cost=float(np.asarray(found.high)[0]),
        seen_cost=float(least),
        invariant=invariant,
    )


def rounds_of(survey: Survey, contraction: Contraction | None) -> int:
    """K: later rounds that are worth looking at one by one, before what is left of a gap counts with the worst slopes.

    So many that the worst slopes, after these rounds, weigh at most `TAIL` times as much as typical ones do now.
    """
    if contraction is None:
        return 0
    worst, typical = (
        float(np.dot(contraction.weights, each)) for each in (survey.cost_slopes, survey.typical_cost_slopes)
    )
    count = 0
    while count < MOST_ROUNDS and worst * contraction.rate**count > TAIL * typical:
        count += 1
    return count


def contraction_of(survey: Survey) -> Contraction | None:
    """Weights in which gaps shrink, by the Perron vector of the matrix of slopes, if they do."""
    matrix = survey.slopes.T  # [to, from]
    if not survey.invariant or not np.all(np.isfinite(matrix)) or not np.all(np.isfinite(survey.cost_slopes)):
        return None
    n = len(matrix)
    # A little of everything makes the matrix irreducible, so that all weights are positive.
    weights = np.ones(n)
    for _ in range(200):
        weights = (matrix + 1e-3 / n) @ weights
        if not np.all(weights > 0.0):
            return None
        weights /= weights.max()
    rate = float(np.max((matrix @ weights) / weights)) * (1.0 + 1e-9)
    if not rate < 1.0 - 1e-6:
        return None
    return Contraction(rate, tuple(weights.tolist()), tuple(survey.cost_slopes.tolist()))
