"""The rounds to come of a compiled certificate: the prior or another backup plays, and boxes hold both plants.

What is computed, and why it is true, is said in `tether.certificates.compiled_structure`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates.cells import (
    Boxes,
    First,
    Groups,
    cut,
    enclosed_side,
    inside,
    join,
    moved_by,
    near_middle,
    over_cells,
    rounded,
)
from tether.certificates.flat import Flat
from tether.certificates.intervals import Array, Interval, hull, meet, subtract
from tether.certificates.lockstep import loop
from tether.certificates.model import Model
from tether.certificates.nested import Nested, moved_near, narrowed, nested_of
from tether.certificates.precision import Precision
from tether.certificates.programs import LOWER, UPPER, Program, enclose, places_of
from tether.certificates.survey import (
    EDGE,
    Contraction,
    Survey,
    Surveyor,
    contraction_of,
    groups_of,
    rounds_of,
    widened,
)
from tether.core.ops import Number

LISTED = 32
"""Rounds of a tail that count one by one, with what lam and b earn in each; the others count together."""


class LaterRounds:
    """The part of a `CompiledStructure` that knows what the prior does anywhere, and bounds the rounds to come."""

    model: Model
    horizon: int
    precision: Precision

    @property
    def flat(self) -> Flat:
        """The model's functions of flat vectors."""
        return Flat(self.model)

    # ---- what holds in the whole range

    @cached_property
    def _surveyor(self) -> Surveyor:
        return Surveyor(self.model, partial(self.flat.closed_loop, 0))

    @property
    def _survey(self) -> Survey:
        """Slopes and ranges under the prior over all states, contexts and draws."""
        return self._surveyor.survey

    @cached_property
    def _nested(self) -> Nested | None:
        """What the prior does near the states in which it settles, where rounds are looked at to the horizon."""
        return None if self.contraction is not None else nested_of(self._surveyor)

    @cached_property
    def contraction(self) -> Contraction | None:
        """That gaps shrink under the prior, if the compiler found that they do."""
        return contraction_of(self._survey)

    @cached_property
    def rounds(self) -> int:
        """K: later rounds that are looked at one by one, where a tail is known."""
        asked = self.precision.rounds
        return rounds_of(self._survey, self.contraction) if asked is None else asked

    # ---- the rounds to come

    def _later(
        self, first: First, plan: int, rounds: Array, lam: Number, floor: Number
    ) -> tuple[list[Array], Array]:
        """(Y_1, ..., Y_K, what all rounds after these add at most)."""
        dtype = first.excess.dtype
        contraction = self.contraction if plan == 0 else None
        tailed = contraction is not None or (plan > 0 and self._survey.held)
        count = min(self.rounds, self.horizon - 1) if tailed else self.horizon - 1
        turn = self._turn(plan)

        def body(boxes: Boxes, place: Array) -> tuple[Boxes, Array]:
            return turn(boxes, self.flat.contexts(rounds + place, dtype), lam, floor)

        boxes = Boxes(first.own, first.gap, first.prior)
        left = jnp.maximum(self.horizon - 1.0 - rounds, 0.0)
        if not tailed:
            return loop(left, count, body, boxes), jnp.zeros_like(first.excess)
        later = []
        if count:
            boxes, excesses = jax.lax.scan(body, boxes, jnp.arange(1, count + 1, dtype=dtype))
            later = [excesses[i] for i in range(count)]
        left = jnp.maximum(left - count, 0.0)
        if contraction is not None:
            tail, rest = self._tail(contraction, boxes, count, lam, floor)
            later = [*later, *tail]
        else:
            rest = left * self._steady(turn, boxes, lam, floor)
        return later, jnp.where(left > 0.0, rest, 0.0)

    def _turn(self, plan: int) -> Callable[[Boxes, Interval, Number, Number], tuple[Boxes, Array]]:
        """A later round with the prior (0) or another backup."""
        return self._prior_round if plan == 0 else partial(self._backup_round, plan)

    def round_from(
        self, plan: int, x: Array, prior: Array, z: Array, lam: Number, floor: Number
    ) -> tuple[Boxes, Array]:
        """What is said of a later round from states [n] and a context that are known: (boxes after it, excess)."""
        own, other = Interval(x, x), Interval(prior, prior)
        return self._turn(plan)(Boxes(own, subtract(own, other), other), Interval(z, z), lam, floor)

    def _tail(
        self, contraction: Contraction, boxes: Boxes, count: int, lam: Number, floor: Number
    ) -> tuple[list[Array], Array]:
        """(Y_{K+1}, Y_{K+2}, ... as the gap shrinks, what all rounds after these add at most); K is `count`."""
        weights = jnp.asarray(contraction.weights, boxes.gap.low.dtype)
        size = jnp.max(jnp.maximum(abs(boxes.gap.low), abs(boxes.gap.high)) / weights)
        most = self._if_inside(boxes, 1.000001 * float(np.dot(contraction.weights, contraction.costs)) * size)
        listed = max(0, min(self.horizon - 1 - count, LISTED))
        rounds = [contraction.rate**j * most - lam * floor for j in range(listed)]
        beyond = (
            contraction.rate**listed / (1.0 - contraction.rate) if self.horizon - 1 > count + listed else 0.0
        )
        return rounds, jnp.where(beyond > 0.0, beyond * most, 0.0)

    def _steady(self, turn: Any, boxes: Boxes, lam: Number, floor: Number) -> Array:
        """The largest excess of any later round, at least 0; infinite if the own states do not stay in a box.

        A box is tried that is a little wider than that of the own states, and the whole range.
        """
        dtype = boxes.own.low.dtype
        surveyed = self._widened(dtype)
        # Inside of what was surveyed by more than a search takes for the same, see `unsure`. The prior's states stay
        # farther inside, see `Survey.held`.
        slack = 0.25 * EDGE * (surveyed.high - surveyed.low)
        everywhere = Interval(surveyed.low + slack, surveyed.high - slack)
        near = Interval(boxes.own.low - slack, boxes.own.high + slack)

        def within_box(low: Array, high: Array) -> Array:
            box = Interval(low, high)
            everything = Boxes(box, subtract(box, everywhere), everywhere)
            after, excess = turn(everything, self.flat.box("context", dtype), lam, floor)
            return jnp.where(inside(after.own, box), jnp.maximum(excess, 0.0), jnp.inf)

        found = jax.vmap(within_box)(*(jnp.stack(ends) for ends in zip(near, everywhere, strict=True)))
        return jnp.minimum(found[0], jnp.where(inside(boxes.own, everywhere), found[1], jnp.inf))

    def _prior_round(
        self, boxes: Boxes, context: Interval, lam: Number, floor: Number
    ) -> tuple[Boxes, Array]:
        """A round in which the prior plays on both sides: (the boxes after it, the largest excess)."""
        n, nz, _, p = self.model.sizes
        dtype = boxes.own.low.dtype
        program = Program(
            lambda u: self.flat.closed_loop(0, u[:n], u[n : n + nz], u[n + nz :]), groups_of(n, nz, p), dtype
        )
        states = len(groups_of(n))
        both = hull(boxes.own, boxes.prior)
        apart = self._by_state(boxes.gap)

        looked = [None if self._nested is None else self._nested.around(box) for box in (*boxes[::2], both)]

        def of_cell(cell: Interval) -> tuple[Interval, Interval, Interval, Array]:
            sides = enclosed_side(program, join(both, context, cell))
            (cost, own), (paid, other) = (
                narrowed(near_middle(program, join(box, context, cell), sides), near)
                for box, near in zip(boxes[::2], looked, strict=False)
            )
            more, gap = moved_near(
                [moved_by(side.slopes[:states], apart, side.range.low) for side in sides],
                looked[2],
                boxes.gap,
            )
            least = jnp.maximum(paid.low[0], floor)
            excess = jnp.minimum(more.high[0], cost.high[0] - least) - lam * least
            return own, meet(gap, subtract(own, other)), other, excess

        *found, excess = jax.vmap(of_cell)(self._cells(self.precision.later_cells, dtype))
        own, gap, other = (over_cells(each) for each in found)
        return Boxes(own, gap, meet(other, subtract(own, gap))), self._if_inside(boxes, jnp.max(excess))

    def _backup_round(
        self, plan: int, boxes: Boxes, context: Interval, lam: Number, floor: Number
    ) -> tuple[Boxes, Array]:
        """A round in which a backup plays on the own side."""
        n, nz, _, p = self.model.sizes
        dtype = boxes.own.low.dtype

        def joint(u: Array) -> Array:
            x, prior, z, w = jnp.split(u, (n, 2 * n, 2 * n + nz))
            (cost, after), (paid, other) = (
                self.flat.closed_loop(plan, x, z, w),
                self.flat.closed_loop(0, prior, z, w),
            )
            return jnp.concatenate([cost - (1.0 + lam) * paid, cost, paid, after, other])

        program = Program(joint, groups_of(n, n, nz, p), dtype)
        states = [(i, side) for side in (UPPER, LOWER) for i in range(3, 3 + 2 * n)]
        sides = [(0, UPPER), (1, UPPER), (2, LOWER), *states]
        found = jax.vmap(
            lambda cell: enclose(program, join(boxes.own, boxes.prior, context, cell), sides)[0]
        )(self._cells(self.precision.later_cells, dtype))
        apart = found.high[:, 1] - (1.0 + lam) * jnp.maximum(found.low[:, 2], floor)
        excess = jnp.max(jnp.minimum(found.high[:, 0], apart))
        over = over_cells(found)
        own, other = (Interval(*(end[3 + i * n : 3 + (i + 1) * n] for end in over)) for i in (0, 1))
        return Boxes(own, subtract(own, other), other), self._if_inside(boxes, excess)

    def _if_inside(self, boxes: Boxes, excess: Array) -> Array:
        """The excess, if both states are where the model holds; else nothing is known."""
        everywhere = self._widened(excess.dtype)
        held = inside(boxes.own, everywhere) & inside(boxes.prior, everywhere)
        return jnp.where(held, excess, jnp.inf)

    def _widened(self, dtype: Any) -> Interval:
        """The range of states, a little wider, and not beyond what was surveyed."""
        low, high = widened(self.model)
        return Interval(rounded(low, dtype, 1.0), rounded(high, dtype, -1.0))

    def _by_state(self, values: Any) -> Groups:
        """Numbers [n], or an interval of them, by group of the state."""
        places = places_of(groups_of(self.model.sizes[0]))
        if isinstance(values, Interval):
            return tuple(Interval(values.low[each], values.high[each]) for each in places)
        return tuple(values[each] for each in places)

    def _cells(self, count: int, dtype: Any) -> Interval:
        cells = cut(*self.model.box("draws"), count, self._survey.draw_effects)
        return Interval(rounded(cells.low, dtype, -1.0), rounded(cells.high, dtype, 1.0))
