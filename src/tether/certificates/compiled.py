"""Certificates compiled from a model: bring the functions and the ranges, not a proof.

Bounds of `tether.certificates.structured` ask for one thing: that they are true. Interval analysis of the traced
functions (`tether.certificates.programs`) gives true bounds. Write x for the own state, which is seen, x+ for the
prior's, z for the context, w for the draw, pi for the prior, and for what the prior does in a closed loop

    C(x, z, w) = cost(x, z, pi(x, z), w),        F(x, z, w) = step(x, z, pi(x, z), w).

*What is known of the prior's plant* is a box P that holds x+. In the first round it is x itself.

*This round.* The range of draws is cut into cells. In each, the enclosure of one joint function of (x+, w) gives the
largest excess cost(x, z, a, w) - (1 + lam) C(x+, z, w), the own next state, the prior's, and their difference, the gap
e. What both sides share, the draw, cancels in it. T_0 is the largest over the cells; the boxes X of the own next state
and E of the gap are the hulls over them.

*Later rounds with the prior as backup.* For x in X and x+ = x - e, the slopes J of C and F over the hull of both give
C(x) - C(x+) in J_C E, the next gap in J_F E, and y <= J_C E - lam max(eps, C(x+)); the next X and P are enclosures of F.
Contexts to come are anything in their range, or in the forecast band of their round.

*Later rounds with another backup* beta: enclosures of the joint function of (x, x+, z, w) with beta on the own side.

*The rest.* After K rounds: if the slopes of F over the whole range of states shrink gaps in some weighted maximum norm,
|J_F| v <= rho v with rho < 1, and F maps that range into itself, then the gaps of all rounds to come add up to at most
rho / (1 - rho) times the last one. With another backup: if the last box X of own states is mapped into itself, its
excess in any state of the prior bounds that of every later round. Where neither holds, the list runs to the horizon.

*After the round* the cells of w that cannot have given the cost and the next state that were seen are left out, and in
the others w is narrowed by solving these equations for it, entry by entry (an interval Gauss-Seidel step on the
mean-value form). Where the draw can be solved for it is known, and P stays a point: the prior is shadowed, and nobody
has to reveal anything.

All numbers are computed by JAX, in float64 for the online guard; ends are rounded outward.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates.intervals import Interval, add, contains_zero, divide, hull, meet, outward, subtract, times
from tether.certificates.model import Model
from tether.certificates.programs import LOWER, UPPER, Program, enclose
from tether.certificates.structure import Bounds, Round, Structure
from tether.certificates.structured import Structured
from tether.core import validate
from tether.core.certificate import Action, Box, Choice, Observation, Outcome
from tether.core.contract import Contract
from tether.core.ops import NUMPY, Flag, Number, Ops, jax_ops

Array = Any
SEARCHED = 4096
"""Pieces of the ranges over which a contraction is looked for."""


@dataclass(frozen=True)
class Precision:
    """How finely the compiler looks; more costs time and gives freedom, never soundness."""

    cells: int = 16
    """Pieces into which the range of draws is cut in the round at hand, about."""
    later_cells: int = 2
    """The same in later rounds."""
    rounds: int = 4
    """K, later rounds that are looked at one by one, if a tail is known."""

    def __post_init__(self) -> None:
        for name in ("cells", "later_cells"):
            validate.count(name, getattr(self, name))
        validate.count("rounds", self.rounds, minimum=0)


class Contraction(NamedTuple):
    """That gaps under the prior shrink, in the norm max_i |e_i| / weights_i."""

    rate: float
    """rho, a round."""
    weights: tuple[float, ...]
    """[n]"""
    costs: tuple[float, ...]
    """[n] largest slope of the prior's cost in each entry of the state, cost units a state unit."""


class Gaps(NamedTuple):
    """What is remembered of the round before: all that it takes to narrow the prior's state."""

    state: Array
    """[n] the own state then ..."""
    context: Array
    """[nz]"""
    action: Array
    """[m]"""
    low: Array
    """[n] ends of the box of the prior's state then."""
    high: Array
    """[n]"""
    cost: Array
    """The round's cost."""
    rounds: Array
    """Rounds closed; before the first nothing else here counts."""


class Refined(NamedTuple):
    """What is known of the prior's state in the round at hand."""

    low: Array
    """[n] ends of its box."""
    high: Array
    """[n]"""
    rounds: Array
    """Rounds closed."""
    state: Array
    """[n] the own state."""
    possible: Array
    """Whether some draw explains what was seen."""


def _cut(low: Any, high: Any, count: int) -> Interval:
    """A box as about `count` cells, [cells, d] each: every entry that has a width is cut equally often."""
    wide = [i for i in range(len(low)) if high[i] > low[i]]
    each = max(1, int(count ** (1.0 / max(len(wide), 1)) + 1e-9))
    # What is left over goes to the first entries.
    cuts = [each if i in wide else 1 for i in range(len(low))]
    for i in wide:
        if math.prod(cuts) // cuts[i] * (cuts[i] + 1) <= count:
            cuts[i] += 1
    ends = [np.linspace(low[i], high[i], cuts[i] + 1) for i in range(len(low))]
    places = np.stack([each.reshape(-1) for each in np.meshgrid(*(np.arange(c) for c in cuts), indexing="ij")], -1) \
        if len(low) else np.zeros((1, 0), dtype=int)
    lows = np.stack([ends[i][places[:, i]] for i in range(len(low))], -1) if len(low) else np.zeros((1, 0))
    highs = np.stack([ends[i][places[:, i] + 1] for i in range(len(low))], -1) if len(low) else np.zeros((1, 0))
    return Interval(lows, highs)


def _over(cells: Interval) -> Interval:
    """The hull over the first axis."""
    return Interval(jnp.min(cells.low, axis=0), jnp.max(cells.high, axis=0))


def _join(*parts: Interval) -> Interval:
    return Interval(jnp.concatenate([each.low for each in parts]), jnp.concatenate([each.high for each in parts]))


def _largest_product(slopes: Interval, gap: Interval) -> Interval:
    """Slopes [n, m] times a gap [n], summed over its entries: [m]."""
    products = times(slopes, Interval(gap.low[:, None], gap.high[:, None]))
    total = Interval(jnp.sum(products.low, axis=0), jnp.sum(products.high, axis=0))
    return outward(*total, 2.0 * slopes.low.shape[0])


def _inside(value: Interval, box: Interval) -> Array:
    return jnp.logical_and(jnp.all(value.low >= box.low), jnp.all(value.high <= box.high))


@dataclass(frozen=True, eq=False)
class CompiledStructure(Structure):
    """The bounds of a model; see the module."""

    kind: ClassVar[str] = "compiled"
    scalar: ClassVar[bool] = False

    model: Model
    horizon: int
    precision: Precision = Precision()

    def __post_init__(self) -> None:
        # Now, not when a program that uses it is being traced.
        _ = self.contraction, self.scale

    @property
    def entries(self) -> int:  # type: ignore[override]
        """How many numbers an action is; 0 if it is a number."""
        shape = self.model.shapes[2]
        return shape[0] if shape else 0

    @property
    def backups(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of the model."""
        return tuple(self.model.backups)

    @property
    def low(self) -> Any:
        """Of the actions."""
        return self.model.action[0]

    @property
    def high(self) -> Any:
        """Of the actions."""
        return self.model.action[1]

    @cached_property
    def scale(self) -> float:  # type: ignore[override]
        """The largest cost of the prior."""
        return float(self._survey.largest_cost)

    # ---- the model in flat vectors

    def _shaped(self, which: int, values: Array) -> Array:
        return jnp.reshape(values, self.model.shapes[which])

    def _played(self, x: Array, z: Array, a: Array, w: Array) -> Array:
        """[1 + n]: cost and next state."""
        given = [self._shaped(i, each) for i, each in enumerate((x, z, a, w))]
        if self.model.play is not None:
            cost, after = self.model.play(*given)
        else:
            cost, after = self.model.cost(*given), self.model.step(*given)
        return jnp.concatenate([jnp.reshape(cost, (1,)), jnp.reshape(after, (-1,))]).astype(x.dtype)

    def _policy(self, plan: int, x: Array, z: Array) -> Array:
        """[m] what the prior (0) or a backup plays."""
        policy = (self.model.prior, *self.model.backups.values())[plan]
        return jnp.reshape(policy(self._shaped(0, x), self._shaped(1, z)), (-1,)).astype(x.dtype)

    def _closed_loop(self, plan: int, x: Array, z: Array, w: Array) -> Array:
        return self._played(x, z, self._policy(plan, x, z), w)

    def _box(self, name: str, dtype: Any) -> Interval:
        low, high = self.model.box(name)
        return Interval(jnp.asarray(low, dtype), jnp.asarray(high, dtype))

    def _cells(self, count: int, dtype: Any) -> Interval:
        cut = _cut(*self.model.box("draws"), count)
        return Interval(jnp.asarray(cut.low, dtype), jnp.asarray(cut.high, dtype))

    def _context(self, place: Array, dtype: Any) -> Interval:
        """The range of the context in the round after `place` rounds."""
        if self.model.band is None:
            return self._box("context", dtype)
        low, high = (jnp.asarray(np.reshape(end, (len(end), -1)), dtype) for end in self.model.band)
        at = jnp.clip(jnp.asarray(place, int), 0, low.shape[0] - 1)
        return Interval(low[at], high[at])

    # ---- what holds in the whole range

    @cached_property
    def _survey(self) -> _Survey:
        """Slopes and ranges under the prior over all states, contexts and draws."""
        with jax.enable_x64(True):
            return _survey_of(self)

    @cached_property
    def contraction(self) -> Contraction | None:
        """That gaps shrink under the prior, if the compiler found that they do."""
        return _contraction(self._survey)

    # ---- Structure

    def start(self, zero: Number) -> Any:
        """Both plants in the same state, whatever that is."""
        n, nz, m, _ = self.model.sizes
        like = jnp.asarray(zero)
        return Gaps(*(jnp.zeros(size, like.dtype) + like for size in (n, nz, m, n, n)), like, like)

    def read(self, observation: Observation) -> Any:
        """(x, z) of an observation."""
        if self.model.read is not None:
            x, z = self.model.read(observation)
        else:
            flat = jnp.reshape(jnp.asarray(observation), (-1,))
            n = self.model.sizes[0]
            x, z = flat[:n], flat[n:]
        x, z = jnp.reshape(jnp.asarray(x), (-1,)), jnp.reshape(jnp.asarray(z), (-1,))
        if (x.size, z.size) != self.model.sizes[:2]:
            raise ValueError(
                f"an observation must give {self.model.sizes[0]} entries of the state and {self.model.sizes[1]} of the "
                f"context, got {x.size} and {z.size}"
            )
        return x, z

    def admits(self, seen: Any, ops: Ops) -> Flag:  # noqa: ARG002
        """Whether state and context are in their ranges; a NaN is not."""
        x, z = seen
        boxes = (self._box(name, x.dtype) for name in ("state", "context"))
        found: Any = jnp.asarray(True)
        for values, box in zip((x, z), boxes, strict=True):
            unit = 64.0 * float(jnp.finfo(x.dtype).eps) * (1.0 + abs(box.low) + abs(box.high))
            found = found & jnp.all((values >= box.low - unit) & (values <= box.high + unit))
        return found

    def agrees(self, seen: Any, prior: Action, epsilon: Number, ops: Ops) -> Flag:  # noqa: ARG002
        """Whether the model's prior plays this."""
        own = self._policy(0, *seen)
        off = jnp.max(abs(own - jnp.reshape(prior, (-1,))) - 256.0 * epsilon * (1.0 + abs(own)))
        found: Any = off <= 0.0
        return found

    def gaps_between(self, seen: Any, prior_seen: Any, ops: Ops) -> Any:  # noqa: ARG002
        """The prior's state as a point."""
        zero = 0.0 * seen[0][0]
        return Refined(prior_seen[0], prior_seen[0], zero, seen[0], zero <= 0.0)

    def backup(self, plan: int, now: Round, ops: Ops) -> Action:  # noqa: ARG002
        """What a backup plays, inside the box."""
        action = jnp.reshape(self._policy(plan, *now.seen), self.model.shapes[2])
        return jnp.clip(action, now.low, now.high)  # type: ignore[return-value]

    def gap_features(self, gaps: Any, ops: Ops) -> tuple[Number, Number]:  # noqa: ARG002
        """How far the own state may be above and below the prior's, summed over its entries."""
        above = jnp.sum(jnp.maximum(gaps.state - gaps.low, 0.0))
        below = jnp.sum(jnp.maximum(gaps.high - gaps.state, 0.0))
        return above, below  # type: ignore[return-value]

    def refine(self, gaps: Any, seen: Any, epsilon: Number, ops: Ops) -> Any:  # noqa: ARG002
        """The box of the prior's state, narrowed by what the own state and the last cost tell of the draw."""
        x, _ = seen
        box, possible = self._identified(gaps, x, epsilon)
        first = gaps.rounds <= 0.0
        low, high = (jnp.where(first, x, end) for end in box)
        return Refined(low, high, gaps.rounds, x, first | possible)

    def bounds(self, now: Round, action: Action, plan: int, ops: Ops) -> Bounds:  # noqa: ARG002
        """See the module."""
        x, z = now.seen
        refined: Any = now.gaps
        flat = jnp.reshape(jnp.asarray(action, x.dtype), (-1,))
        prior = Interval(refined.low, refined.high)
        first = self._first(x, z, flat, prior, now.lam)
        later, rest = self._later(first, plan, refined.rounds, now.lam, now.cost_floor)
        totals = [first.excess]
        for each in later:
            totals.append(totals[-1] + each)
        totals.append(totals[-1] + rest)
        step: Any = (x, z, flat, prior.low, prior.high, refined.rounds)
        return Bounds(tuple(totals), first.ceiling, step)

    def close(self, step: Any, cost: Number, epsilon: Number, ops: Ops) -> tuple[Number, Any]:  # noqa: ARG002
        """The least that the prior can have paid, from the draws that explain the cost."""
        x, z, a, low, high, rounds = step
        n, p = self.model.sizes[0], self.model.sizes[3]
        prior = Interval(low, high)
        seen = Interval(*(jnp.reshape(jnp.asarray(end, x.dtype), (1,)) for end in _around(cost, epsilon)))

        def of_cell(cell: Interval) -> tuple[Array, Array]:
            draws, possible = self._narrowed(x, z, a, cell, seen, 1)
            joint = Program(
                lambda u: jnp.stack(
                    [
                        self._closed_loop(0, u[:n], z, u[n:])[0],
                        self._played(x, z, a, u[n:])[0] - self._closed_loop(0, u[:n], z, u[n:])[0],
                    ]
                ),
                n + p,
                x.dtype,
            )
            found, _ = enclose(joint, _join(prior, draws), [(0, LOWER), (1, UPPER)])
            return jnp.maximum(found.low[0], seen.low[0] - found.high[1]), possible

        floors, possible = jax.vmap(of_cell)(self._cells(self.precision.cells, x.dtype))
        floor = jnp.min(jnp.where(possible, floors, jnp.inf))
        floor = jnp.where(jnp.any(possible), floor, -jnp.inf)
        return floor, Gaps(x, z, a, low, high, jnp.asarray(cost, x.dtype), rounds + 1.0)  # type: ignore[return-value]

    # ---- the pieces

    def _first(self, x: Array, z: Array, a: Array, prior: Interval, lam: Number) -> _First:
        n, p = self.model.sizes[0], self.model.sizes[3]

        def joint(u: Array) -> Array:
            own, other = self._played(x, z, a, u[n:]), self._closed_loop(0, u[:n], z, u[n:])
            excess = own[0] - (1.0 + lam) * other[0]
            return jnp.concatenate([jnp.stack([excess, own[0]]), own[1:], own[1:] - other[1:], other[1:]])

        program = Program(joint, n + p, x.dtype)
        sides = [(0, UPPER), (1, UPPER), *((i, side) for side in (UPPER, LOWER) for i in range(2, 2 + 2 * n))]
        found = jax.vmap(lambda cell: enclose(program, _join(prior, cell), sides)[0])(
            self._cells(self.precision.cells, x.dtype)
        )
        over = _over(found)
        own, gap, other = (Interval(*(end[2 + i * n : 2 + (i + 1) * n] for end in over)) for i in range(3))
        return _First(over.high[0], over.high[1], own, gap, meet(other, subtract(own, gap)))

    def _later(
        self, first: _First, plan: int, rounds: Array, lam: Number, floor: Number
    ) -> tuple[list[Array], Array]:
        """(Y_1, ..., Y_K, what all rounds after these add at most)."""
        contraction = self.contraction if plan == 0 else None
        tailed = contraction is not None or plan > 0
        count = min(self.precision.rounds, self.horizon - 1) if tailed else self.horizon - 1
        turn = self._prior_round if plan == 0 else partial(self._backup_round, plan)

        def body(boxes: _Boxes, place: Array) -> tuple[_Boxes, Array]:
            after, excess = turn(boxes, self._context(rounds + place, first.excess.dtype), lam, floor)
            return after, excess

        boxes = _Boxes(first.own, first.gap, first.prior)
        places = jnp.arange(1, count + 1, dtype=first.excess.dtype)
        if count:
            boxes, excesses = jax.lax.scan(body, boxes, places)
        later = [excesses[i] for i in range(count)] if count else []
        if not tailed:
            return later, jnp.zeros_like(first.excess)
        if contraction is not None:
            weights = jnp.asarray(contraction.weights, first.excess.dtype)
            size = jnp.max(jnp.maximum(abs(boxes.gap.low), abs(boxes.gap.high)) / weights)
            each = float(np.dot(contraction.weights, contraction.costs))
            if not later:
                # The gap is that of the next round itself.
                return later, each / (1.0 - contraction.rate) * size
            return later, each * (1.0 / (1.0 - contraction.rate)) * size
        everywhere = self._box("state", first.excess.dtype)
        context = self._box("context", first.excess.dtype)
        after, excess = turn(_Boxes(boxes.own, subtract(boxes.own, everywhere), everywhere), context, lam, floor)
        left = jnp.maximum(self.horizon - 1.0 - rounds - count, 0.0)
        rest = left * jnp.maximum(excess, 0.0)
        return later, jnp.where(_inside(after.own, boxes.own), rest, jnp.where(left > 0.0, jnp.inf, 0.0))

    def _prior_round(
        self, boxes: _Boxes, context: Interval, lam: Number, floor: Number
    ) -> tuple[_Boxes, Array]:
        """A round in which the prior plays on both sides: (the boxes after it, the largest excess)."""
        n, nz, _, p = self.model.sizes
        dtype = boxes.own.low.dtype
        program = Program(
            lambda u: self._closed_loop(0, u[:n], u[n : n + nz], u[n + nz :]), n + nz + p, dtype
        )
        both = hull(boxes.own, boxes.prior)

        sides = [(i, side) for side in (UPPER, LOWER) for i in range(1, 1 + n)]

        def of_cell(cell: Interval) -> tuple[Interval, Interval, Interval, Array]:
            # The slopes over both boxes serve the own one, too.
            own, either = enclose(
                program, _join(boxes.own, context, cell), sides, over=_join(both, context, cell)
            )
            slope = either.slope
            assert slope is not None
            gap = _largest_product(type(slope)(*(end[:n] for end in slope)), boxes.gap)
            return own, gap, either.range, gap.high[0] - lam * jnp.maximum(either.range.low[0], floor)

        *found, excess = jax.vmap(of_cell)(self._cells(self.precision.later_cells, dtype))
        own, gap, either = (_over(Interval(*(end[:, 1:] for end in each))) for each in found)
        return _Boxes(own, gap, meet(either, subtract(own, gap))), self._if_inside(boxes, jnp.max(excess))

    def _backup_round(
        self, plan: int, boxes: _Boxes, context: Interval, lam: Number, floor: Number
    ) -> tuple[_Boxes, Array]:
        """A round in which a backup plays on the own side."""
        del floor
        n, nz, _, p = self.model.sizes
        dtype = boxes.own.low.dtype

        def joint(u: Array) -> Array:
            x, prior, z, w = jnp.split(u, (n, 2 * n, 2 * n + nz))
            own, other = self._closed_loop(plan, x, z, w), self._closed_loop(0, prior, z, w)
            return jnp.concatenate([jnp.stack([own[0] - (1.0 + lam) * other[0]]), own[1:], other[1:]])

        program = Program(joint, 2 * n + nz + p, dtype)
        sides = [(0, UPPER), *((i, side) for side in (UPPER, LOWER) for i in range(1, 1 + 2 * n))]
        found = jax.vmap(lambda cell: enclose(program, _join(boxes.own, boxes.prior, context, cell), sides)[0])(
            self._cells(self.precision.later_cells, dtype)
        )
        over = _over(found)
        own, other = (Interval(*(end[1 + i * n : 1 + (i + 1) * n] for end in over)) for i in (0, 1))
        return _Boxes(own, subtract(own, other), other), self._if_inside(boxes, over.high[0])

    def _if_inside(self, boxes: _Boxes, excess: Array) -> Array:
        """The excess, if both states are where the model holds; else nothing is known."""
        everywhere = self._box("state", excess.dtype)
        slack = 1e-6 * (everywhere.high - everywhere.low)
        wide = Interval(everywhere.low - slack, everywhere.high + slack)
        inside = _inside(boxes.own, wide) & _inside(boxes.prior, wide)
        return jnp.where(inside, excess, jnp.inf)

    def _narrowed(
        self, x: Array, z: Array, a: Array, cell: Interval, seen: Interval, count: int
    ) -> tuple[Interval, Array]:
        """The part of a cell of draws that can explain the first `count` of (cost, next state), and whether there is one."""
        p = self.model.sizes[3]
        program = Program(lambda w: self._played(x, z, a, w)[:count], p, x.dtype)
        found = program.enclosed(cell, True)
        possible = jnp.all((found.range.low <= seen.high) & (found.range.high >= seen.low))
        if found.slope is None:
            return cell, possible
        cell, solvable = _solved(program, cell, found.slope, seen)
        return cell, possible & solvable

    def _identified(self, gaps: Any, x: Array, epsilon: Number) -> tuple[Interval, Array]:
        """(the box of the prior's state after the last round, whether some draw explains what was seen)."""
        n, p = self.model.sizes[0], self.model.sizes[3]
        prior = Interval(gaps.low, gaps.high)
        cost, after = _around(gaps.cost, epsilon), _around(x, epsilon)
        seen = Interval(*(jnp.concatenate([jnp.reshape(c, (1,)), s]) for c, s in zip(cost, after, strict=True)))

        def of_cell(cell: Interval) -> tuple[Interval, Array]:
            draws, possible = self._narrowed(gaps.state, gaps.context, gaps.action, cell, seen, 1 + n)
            joint = Program(
                lambda u: jnp.concatenate(
                    [
                        self._closed_loop(0, u[:n], gaps.context, u[n:])[1:],
                        self._played(gaps.state, gaps.context, gaps.action, u[n:])[1:]
                        - self._closed_loop(0, u[:n], gaps.context, u[n:])[1:],
                    ]
                ),
                n + p,
                x.dtype,
            )
            found, _ = enclose(joint, _join(prior, draws))
            other, gap = (Interval(*(end[i * n : (i + 1) * n] for end in found)) for i in (0, 1))
            return meet(other, subtract(after, gap)), possible

        boxes, possible = jax.vmap(of_cell)(self._cells(self.precision.cells, x.dtype))
        low = jnp.min(jnp.where(possible[:, None], boxes.low, jnp.inf), axis=0)
        high = jnp.max(jnp.where(possible[:, None], boxes.high, -jnp.inf), axis=0)
        some = jnp.any(possible)
        return Interval(jnp.where(some, low, x), jnp.where(some, high, x)), some


class _First(NamedTuple):
    """What this round can lead to."""

    excess: Array
    ceiling: Array
    own: Interval
    gap: Interval
    prior: Interval


class _Boxes(NamedTuple):
    """Where both plants can be, and how far apart."""

    own: Interval
    gap: Interval
    prior: Interval


class _Survey(NamedTuple):
    """What the prior does anywhere in the range of states."""

    slopes: np.ndarray
    """[n, n] largest |d next state_j / d state_i|."""
    cost_slopes: np.ndarray
    """[n]"""
    largest_cost: float
    invariant: bool
    """Whether the range of states is mapped into itself."""


def _around(values: Array, epsilon: Number) -> Interval:
    """What is seen, with the round-off that it may have."""
    values = jnp.asarray(values)
    off = 64.0 * max(float(jnp.finfo(values.dtype).eps), 0.0) * (1.0 + abs(values))
    off = jnp.maximum(off, 64.0 * epsilon * (1.0 + abs(values)))
    return Interval(values - off, values + off)


def _solved(program: Program, cell: Interval, slope: Interval, seen: Interval) -> tuple[Interval, Array]:
    """The draws of a cell that can solve the equations, narrowed entry by entry.

    From f(w) in f(c) + J (w - c): w_j in c_j + (seen - f(c) - sum_{l != j} J_l (w_l - c_l)) / J_j, where J_j is not 0.
    """
    centre = 0.5 * cell.low + 0.5 * cell.high
    value = program.enclosed(Interval(centre, centre), False).range
    left = subtract(seen, value)  # [m]
    away = outward(cell.low - centre, cell.high - centre)  # [p]
    moved = times(slope, Interval(away.low[:, None], away.high[:, None]))  # [p, m]
    total = Interval(jnp.sum(moved.low, axis=0), jnp.sum(moved.high, axis=0))
    others = outward(total.low - moved.low, total.high - moved.high, 4.0 * moved.low.shape[0])
    unknown = ~(jnp.isfinite(others.low) & jnp.isfinite(others.high)) | contains_zero(slope)
    safe = Interval(*(jnp.where(unknown, 1.0, end) for end in slope))
    rest = subtract(
        Interval(*(jnp.broadcast_to(end, moved.low.shape) for end in left)),
        Interval(*(jnp.where(unknown, 0.0, end) for end in others)),
    )
    steps = divide(rest, safe)
    steps = Interval(jnp.where(unknown, -jnp.inf, steps.low), jnp.where(unknown, jnp.inf, steps.high))
    found = outward(centre + jnp.max(steps.low, axis=1), centre + jnp.min(steps.high, axis=1), 2.0)
    low, high = jnp.maximum(cell.low, found.low), jnp.minimum(cell.high, found.high)
    possible = jnp.all(low <= high)
    return Interval(jnp.where(possible, low, cell.low), jnp.where(possible, high, cell.high)), possible


def _survey_of(structure: CompiledStructure) -> _Survey:
    model = structure.model
    n, nz, _, p = model.sizes
    low = np.concatenate([model.box(name)[0] for name in ("state", "context", "draws")])
    high = np.concatenate([model.box(name)[1] for name in ("state", "context", "draws")])
    pieces = _cut(low, high, SEARCHED)

    def closed_loop(u: Array) -> Array:
        return structure._closed_loop(0, u[:n], u[n : n + nz], u[n + nz :])

    @jax.jit
    def survey(pieces: Interval) -> Any:
        program = Program(closed_loop, n + nz + p, jnp.float64)

        def of_piece(piece: Interval) -> Any:
            found, inside = enclose(program, piece)
            assert inside.slope is not None
            size = jnp.maximum(abs(inside.slope.low[:n]), abs(inside.slope.high[:n]))
            return found, size

        found, sizes = jax.vmap(of_piece)(pieces)
        return _over(found), jnp.max(sizes, axis=0)

    found, sizes = survey(Interval(jnp.asarray(pieces.low), jnp.asarray(pieces.high)))
    sizes = np.asarray(sizes)
    state = model.box("state")
    slack = 1e-9 * (1.0 + np.abs(state[0]) + np.abs(state[1]))
    invariant = bool(
        np.all(np.asarray(found.low)[1:] >= state[0] - slack)
        and np.all(np.asarray(found.high)[1:] <= state[1] + slack)
    )
    return _Survey(sizes[:, 1:], sizes[:, 0], float(np.asarray(found.high)[0]), invariant)


def _contraction(survey: _Survey) -> Contraction | None:
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


@dataclass(frozen=True)
class Compiled(Structured):
    """A certificate compiled from a model; `tether.compile` makes it."""

    @property
    def online_ops(self) -> Ops:
        """States are NumPy arrays; JAX computes with them."""
        return NUMPY

    def start(self, ops: Ops = NUMPY, zero: Number = 0.0) -> Any:
        """See `Structured.start`."""
        if ops is not NUMPY:
            return super().start(ops, zero)
        return self._online("start", zero)

    def open(self, state: Any, observation: Observation, ops: Ops = NUMPY, epsilon: float = 0.0) -> Any:
        """See `Structured.open`; what no draw explains is a breach."""
        if ops is NUMPY:
            return self._online("open", state, _copied(observation), epsilon=epsilon)
        opened = super().open(state, observation, ops, epsilon)
        contradicted = ops.logical_not(opened.gaps.possible)  # type: ignore[attr-defined]
        return opened._replace(breached=ops.logical_or(opened.breached, contradicted))

    def choose(self, opened: Any, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:
        """See `Structured.choose`."""
        if ops is NUMPY:
            found: Choice = self._online("choose", opened, proposal, prior, *box[:2], norm=box.norm)
            return found
        return super().choose(opened, proposal, prior, box, ops)

    def backup_action(self, opened: Any, prior: Action, box: Box, ops: Ops = NUMPY) -> Action:
        """See `Structured.backup_action`."""
        if ops is NUMPY:
            return self._online("backup_action", opened, prior, *box[:2], norm=box.norm)
        return super().backup_action(opened, prior, box, ops)

    def update(self, state: Any, taken: Any, outcome: Outcome, ops: Ops = NUMPY) -> Any:
        """See `Structured.update`."""
        if ops is NUMPY:
            return self._online("update", state, taken, outcome._replace(revealed=None))
        return super().update(state, taken, outcome, ops)

    def to_dict(self) -> dict[str, Any]:
        """What tells this certificate from any other: the contract, the ranges and a digest of the traced functions."""
        return {
            "kind": "compiled",
            "contract": asdict(self.contract),
            "system": {"kind": "compiled", "digest": self._digest},
            "resolution": self.resolution,
        }

    @cached_property
    def _digest(self) -> str:
        structure: Any = self.system
        model: Model = structure.model
        n, nz, m, p = model.sizes
        with jax.enable_x64(True):
            like = [jnp.zeros(size) for size in (n, nz, m, p)]
            played = jax.make_jaxpr(structure._played)(*like)
            policies = [
                jax.make_jaxpr(partial(structure._policy, plan))(*like[:2]) for plan in range(1 + len(model.backups))
            ]
        ranges = [np.asarray(end).tolist() for name in ("state", "action", "context", "draws") for end in model.box(name)]
        text = f"{played} {policies} {ranges} {structure.precision} {list(model.backups)}"
        return hashlib.sha256(text.encode()).hexdigest()

    def _online(self, method: str, *given: Any, **options: Any) -> Any:
        """A step of the protocol, compiled, in float64, on NumPy values."""
        with jax.enable_x64(True):
            # Relative round-off is a plain number of the program, not one that it computes with.
            off = tuple(getattr(each, "epsilon", None) for each in given)
            given = tuple(
                each if known is None else each._replace(epsilon=0.0) for each, known in zip(given, off, strict=True)
            )
            arrays = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=_kind(leaf)), given)
            found = _compiled_step(self, method, (*options.items(), ("off", off)), arrays)
            return jax.tree.map(_plain, found)


def _kind(leaf: Any) -> Any:
    return bool if np.asarray(leaf).dtype == bool else np.float64


def _copied(observation: Any) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf, dtype=float), observation)


def _plain(leaf: Any) -> Any:
    array = np.asarray(leaf)
    return array if array.ndim else array.item()


@partial(jax.jit, static_argnums=(0, 1, 2))
def _compiled_step(certificate: Compiled, method: str, options: tuple[tuple[str, Any], ...], given: Any) -> Any:
    ops = jax_ops()
    if method == "start":
        return Structured.start(certificate, ops, *given)
    known = dict(options)
    given = tuple(
        each if off is None else each._replace(epsilon=off) for each, off in zip(given, known.pop("off"), strict=True)
    )
    if "norm" in known:
        *rest, low, high = given
        given = (*rest, Box(low, high, known.pop("norm")))
    return getattr(certificate, method)(*given, ops=ops, **known)


def compile_model(model: Model, contract: Contract, precision: Precision | None = None) -> Compiled:
    """A certificate from a model: bring the functions and the ranges, not a proof.

    Args:
        model: The plant.
        contract: The promise.
        precision: How finely to look; the default is a good start.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> certificate = compile_model(Model.from_env(env), env.contract(lam=2.0, b=2.0))
        >>> guard = tether.Guard(certificate, env.prior, low=0.0)
        >>> decision = guard.act([4.0, 3.0, 0.0, 0.0], proposal=0.0)
        >>> decision.prior_action, decision.action < 4.0
        (5.0, True)
    """
    return Compiled(contract, CompiledStructure(model, contract.horizon, precision or Precision()))
