"""What the prior does anywhere in the ranges of a model, found once when a certificate is compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tether.certificates.cells import cut
from tether.certificates.intervals import Array, Interval
from tether.certificates.model import Model
from tether.certificates.programs import Program, dense, enclose

Floats = NDArray[np.float64]
SEARCHED = 4096
"""Pieces of the ranges over which a contraction is looked for."""
TOGETHER = 1024
"""Pieces that are enclosed at once; so many for a part of the range of states."""
EDGE = 1e-6
"""The range of states is taken for this part of its width wider, so that round-off never leaves it."""


ONE_BY_ONE = 4
"""So many entries of a state, context or draw are inputs of their own; more are one group."""


TAIL, MOST_ROUNDS = 8.0, 8
"""See `rounds_of`."""


def widened(model: Model, share: float = EDGE) -> tuple[Floats, Floats]:
    """The range of states, by a share of its width wider, [n] each."""
    low, high = model.box("state")
    slack = share * (high - low)
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
    """Whether the range of states, a little wider, is mapped into itself."""
    held: bool
    """Whether it is so half as much wider: who starts in the range then stays well inside of what was surveyed."""
    effects: Floats
    """[n + nz + p] largest slope of cost or next state in each entry of state, context and draw."""


def groups_of(*sizes: int) -> tuple[int, ...]:
    """Groups of inputs for `Program`: few numbers one by one, many as one group."""
    return tuple(each for size in sizes for each in ((1,) * size if size <= ONE_BY_ONE else (size,)))


class Looked(NamedTuple):
    """What the prior's round gives over a box of states, whatever context and draw are."""

    found: Interval
    """[1 + n] cost and next state."""
    slopes: Interval
    """[n, 1 + n] of these in the state."""


class Surveyor:
    """Cuts ranges into pieces and encloses, in each, what the prior's round gives: one program for all ranges.

    Args:
        model: The plant.
        closed_loop: Cost [1] and next state [n] under the prior, functions of state, context and draw.
    """

    def __init__(self, model: Model, closed_loop: Callable[[Array, Array, Array], list[Array]]) -> None:
        n, nz, _, p = model.sizes
        self._model, self._sizes = model, (n, nz, p)
        self.state = widened(model)

        @jax.jit
        def enclosed(pieces: Interval) -> Any:
            program = Program(
                lambda u: jnp.concatenate(closed_loop(u[:n], u[n : n + nz], u[n + nz :])),
                groups_of(n, nz, p),
                jnp.float64,
            )

            def of_piece(piece: Interval) -> Any:
                found, inside = enclose(program, piece)
                return found, Interval(*dense(inside, program.sizes)), (inside.middle or found).high[0]

            return jax.vmap(of_piece)(pieces)

        self._enclosed = enclosed

    def _over(
        self, low: Floats, high: Floats, count: int, sizes: Floats
    ) -> tuple[Interval, Interval, Floats]:
        """(cost and next state [c, 1 + n], their slopes [c, n + nz + p, 1 + n], costs at the middle [c]) in pieces.

        Over these states and all contexts and draws, in at most `count` pieces, cut most often along the inputs of the
        largest `sizes`.
        """
        ends = [
            np.concatenate([end, *(self._model.box(name)[i] for name in ("context", "draws"))])
            for i, end in enumerate((low, high))
        ]
        cells = cut(ends[0], ends[1], count, sizes)
        parts = []
        with jax.enable_x64(True):
            for first in range(0, len(cells.low), TOGETHER):
                places = np.arange(first, first + TOGETHER)  # always as many, so one program
                places[places >= len(cells.low)] = first
                parts.append(
                    jax.device_get(self._enclosed(Interval(*(jnp.asarray(end[places]) for end in cells))))
                )
        found: Any = jax.tree.map(lambda *each: np.concatenate(each)[: len(cells.low)], *parts)
        return found  # type: ignore[no-any-return]

    @cached_property
    def survey(self) -> Survey:
        """Over the whole range of states."""
        n, nz, p = self._sizes
        found, slopes, costs = self._over(*self.state, SEARCHED, np.ones(n + nz + p))
        every = np.maximum(abs(slopes.low), abs(slopes.high))
        sizes = np.max(every, axis=0)
        draws = self._model.box("draws")
        effects = np.nan_to_num(sizes[n + nz :, 0], posinf=1.0) * (draws[1] - draws[0])
        effects = np.maximum(effects, 1e-6 * np.max(effects, initial=1e-300))
        inner = widened(self._model, 0.5 * EDGE)
        kept = _leads_into(found, *self.state)
        held = _leads_into(found, *inner)
        if kept and not held:  # an entry that stays what it is, say
            held = _leads_into(self._over(*inner, SEARCHED, np.ones(n + nz + p))[0], *inner)
        return Survey(
            slopes=sizes[:n, 1:],
            cost_slopes=sizes[:n, 0],
            typical_cost_slopes=np.mean(every[:, :n, 0], axis=0),
            draw_effects=effects,
            largest_cost=float(np.max(found.high[:, 0])),
            seen_cost=float(np.min(costs)),
            invariant=kept,
            held=held,
            effects=np.max(np.nan_to_num(sizes, posinf=1.0), axis=1),
        )

    def look(self, low: Floats, high: Floats) -> Looked:
        """Over some of the states."""
        n = self._sizes[0]
        widths = [high - low, *(np.subtract(*self._model.box(name)[::-1]) for name in ("context", "draws"))]
        found, slopes, _ = self._over(low, high, TOGETHER, self.survey.effects * np.concatenate(widths))
        found, slopes = (
            Interval(np.min(each.low, axis=0), np.max(each.high, axis=0)) for each in (found, slopes)
        )
        return Looked(found, Interval(slopes.low[:n], slopes.high[:n]))


def _leads_into(found: Interval, low: Floats, high: Floats) -> bool:
    """Whether all next states that were found, behind the cost, are in a box."""
    return bool(np.all(found.low[:, 1:] >= low) and np.all(found.high[:, 1:] <= high))


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
