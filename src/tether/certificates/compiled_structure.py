"""The bounds of a model, found by interval analysis: bring the functions and the ranges, not a proof.

Bounds of `tether.certificates.structured` ask for one thing: that they are true. Interval analysis of the traced
functions (`tether.certificates.programs`) gives true bounds. Write x for the own state, which is seen, x+ for the
prior's, z for the context, w for the draw, pi for the prior, and for what the prior does in a closed loop

    C(x, z, w) = cost(x, z, pi(x, z), w),        F(x, z, w) = step(x, z, pi(x, z), w).

*What is known of the prior's plant* is a box P that holds x+. In the first round it is x itself.

*This round.* The range of draws is cut into cells. In each, the own side (cost and next state, functions of w) and the
prior's (functions of x+ and w) are enclosed by their values at the middle, their slopes and their natural ranges. In
the difference of two mean-value forms over the same cell the slopes in w are subtracted before they are multiplied by
its width: what both sides owe to the same draw cancels. So the largest excess cost - (1 + lam) C, and the gap e between
the next states, are found. T_0 is the largest over the cells; the boxes X of the own next state and E of the gap are
the hulls over them. The prior's side does not depend on the action and is enclosed once a round.

*Later rounds with the prior as backup.* For x in X and x+ = x - e, the slopes J of C and F over the hull of both give
C(x) - C(x+) in J_C E, the next gap in J_F E, and y <= J_C E - lam max(eps, C(x+)); the next X and P are enclosures of
F. Contexts to come are anything in their range, or in the forecast band of their round.

*Later rounds with another backup* beta: enclosures of the joint function of (x, x+, z, w) with beta on the own side.

*The rest.* After K rounds: if the slopes of F over the whole range of states shrink gaps in some weighted maximum norm,
|J_F| v <= rho v with rho < 1, and F maps that range into itself, then the j-th gap to come is at most rho^j times the
last one, and y <= l |e| - lam eps with the largest slopes l of C. With another backup: if the last box X of own states
is mapped into itself, its excess in any state of the prior bounds that of every later round. Where neither holds, the
list runs to the horizon.

*After the round* the cells of w that cannot have given the cost and the next state that were seen are left out, and in
the others w is narrowed by solving these equations for it, entry by entry (an interval Gauss-Seidel step on the
mean-value form); the mean-value form of the prior's side over what is left of the cell gives its next state. Where the
draw can be solved for it is known, and P stays a point: the prior is shadowed, and nobody has to reveal anything.

All numbers are computed by JAX, in float64 for the online guard; ends are rounded outward.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates.boundary import apart_from_gradients
from tether.certificates.cells import (
    Apart,
    First,
    Gaps,
    Groups,
    Prior,
    Refined,
    Side,
    Sides,
    Step,
    around,
    difference,
    enclosed_side,
    join,
    moved_by,
    over_cells,
    solved,
    spread,
    within,
)
from tether.certificates.intervals import Array, Interval, hull, meet, radius_of, subtract, unrounded
from tether.certificates.later_rounds import LaterRounds
from tether.certificates.model import Model
from tether.certificates.precision import Precision as Precision
from tether.certificates.programs import Program, places_of
from tether.certificates.structure import Bounds, Round, Structure
from tether.certificates.survey import (
    groups_of,
)
from tether.core.certificate import Action, Observation
from tether.core.ops import Flag, Number, Ops


@dataclass(frozen=True, eq=False)
class CompiledStructure(LaterRounds, Structure):
    """The bounds of a model; see the module."""

    kind: ClassVar[str] = "compiled"
    scalar: ClassVar[bool] = False
    turns: ClassVar[int] = 8

    model: Model
    horizon: int
    precision: Precision

    def __post_init__(self) -> None:
        # Now, not when a program that uses it is being traced.
        _ = self.contraction, self.scale, self._nested

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
        """Of the actions, as `high`."""
        return self.model.action[0]

    @property
    def high(self) -> Any:
        """See `low`."""
        return self.model.action[1]

    @cached_property
    def scale(self) -> float:
        """The largest cost of the prior."""
        return float(self._survey.largest_cost)

    @property
    def least_cost(self) -> float:
        """The smallest cost of the prior that was seen anywhere in the ranges."""
        return self._survey.seen_cost

    def searching(self) -> AbstractContextManager[None]:
        """Without rounding every operation outward, half of the work; in float64 that is far below the reserve."""
        return unrounded() if jnp.zeros(()).dtype == np.float64 else nullcontext()

    # ---- Structure

    def start(self, zero: Number) -> Any:
        """Both plants in the same state, whatever that is."""
        like = jnp.asarray(zero)
        n, nz, m, _ = self.model.sizes
        x, z, a = (jnp.zeros(size, like.dtype) for size in (n, nz, m))
        empty = jax.eval_shape(
            lambda x, z, a: self._both(x, z, a, self._surroundings(Interval(x, x), z)), x, z, a
        )
        empty = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype) + like, empty)
        return Gaps(empty, jnp.zeros(n, like.dtype) + like, like, like)

    def read(self, observation: Observation) -> Any:
        """(x, z) of an observation."""
        return self.flat.read(observation)

    def admits(self, seen: Any, ops: Ops) -> Flag:  # noqa: ARG002
        """Whether state and context are numbers; `refine`, which knows their round-off, looks at their ranges."""
        found: Any = jnp.all(jnp.isfinite(seen[0])) & jnp.all(jnp.isfinite(seen[1]))
        return found  # type: ignore[no-any-return]

    def agrees(self, seen: Any, prior: Action, epsilon: Number, ops: Ops) -> Flag:  # noqa: ARG002
        """Whether the model's prior plays this."""
        own = self.flat.policy(0, *seen)
        off = jnp.max(abs(own - jnp.reshape(prior, (-1,))) - 256.0 * epsilon * (1.0 + abs(own)))
        found: Any = off <= 0.0
        return found  # type: ignore[no-any-return]

    def gaps_between(self, seen: Any, prior_seen: Any, ops: Ops) -> Any:  # noqa: ARG002
        """The prior's state as a point."""
        zero = 0.0 * seen[0][0]
        point = Interval(prior_seen[0], prior_seen[0])
        return Refined(self._surroundings(point, seen[1]), zero, seen[0], zero <= 0.0)

    def backup(self, plan: int, now: Round, ops: Ops) -> Action:  # noqa: ARG002
        """What a backup plays, inside the box."""
        action = jnp.reshape(self.flat.policy(plan, *now.seen), self.model.shapes[2])
        return jnp.clip(action, now.low, now.high)

    def gap_features(self, gaps: Any, ops: Ops) -> tuple[Number, Number]:  # noqa: ARG002
        """How far the own state may be above and below the prior's, summed over its entries."""
        above = jnp.sum(jnp.maximum(gaps.own - gaps.prior.state.low, 0.0))
        below = jnp.sum(jnp.maximum(gaps.prior.state.high - gaps.own, 0.0))
        return above, below  # type: ignore[return-value]

    def refine(self, gaps: Any, seen: Any, epsilon: Number, ops: Ops) -> Any:  # noqa: ARG002
        """The box of the prior's state, narrowed by what the own state and the last cost tell of the draw."""
        prior, explained = apart_from_gradients(partial(self._refined, epsilon), gaps, *seen)
        return Refined(prior, gaps.rounds, seen[0], explained)

    def _refined(self, epsilon: Number, gaps: Gaps, x: Array, z: Array) -> tuple[Prior, Array]:
        """(what is known of the prior, whether some draw explains what was seen)."""
        told = jnp.isfinite(gaps.cost)
        cost, after = around(jnp.where(told, gaps.cost, 0.0)[None], epsilon), around(x, epsilon)
        cost = Interval(jnp.where(told, cost.low, -jnp.inf), jnp.where(told, cost.high, jnp.inf))
        own, prior, apart = gaps.sides
        draws, possible = self._explained(own, (cost, after))
        near = self._by_state(gaps.radius)
        other = spread(prior.state, (*near, *draws))
        gap = meet(difference(own.state, prior.state, draws, near), apart.state)
        boxes = meet(other, subtract(after, gap))
        low = jnp.min(jnp.where(possible[:, None], boxes.low, jnp.inf), axis=0)
        high = jnp.max(jnp.where(possible[:, None], boxes.high, -jnp.inf), axis=0)
        first = gaps.rounds <= 0.0
        known = first | ~jnp.any(possible)
        box = Interval(jnp.where(known, x, low), jnp.where(known, x, high))
        explained = (first | jnp.any(possible)) & within(x, self.flat.box("state", x.dtype), epsilon)
        explained &= within(z, self.flat.contexts(gaps.rounds, x.dtype), epsilon)
        return self._surroundings(box, z), explained

    def bounds(self, now: Round, action: Action, plan: int, ops: Ops) -> Bounds:  # noqa: ARG002
        """See the module. No gradient follows them; `tether.certificates.boundary` has what learners are told."""
        seen: Any = now.seen
        refined: Any = now.gaps
        x, z = seen
        given = z, refined, now.lam, now.cost_floor, now.low, now.high
        totals, ceiling, sides = apart_from_gradients(
            partial(self._bounds, plan), x, jnp.reshape(jnp.asarray(action, x.dtype), (-1,)), given
        )
        step: Any = jax.lax.stop_gradient(Step(sides, radius_of(refined.prior.state), refined.rounds))
        return Bounds(totals, ceiling, step)

    def _bounds(self, plan: int, x: Array, a: Array, given: Any) -> tuple[tuple[Array, ...], Array, Sides]:
        """((T_0, ..., T_K), the largest cost of this round, both sides of it)."""
        z, refined, lam, floor, low, high = given
        sides = self._both(x, z, a, refined.prior)
        first = self._first(sides, radius_of(refined.prior.state), lam, floor)
        later, rest = self._later(first, plan, refined.rounds, lam, floor)
        totals = [first.excess]
        if plan > 0:  # a backup that the box does not leave as it is has no bounds
            least, most = self.model.box("action")
            free = jnp.all(low <= least) & jnp.all(high >= most)
            later = [jnp.where(free, each, jnp.inf) for each in later]
            rest = jnp.where(free, rest, jnp.inf)
        for each in (*later, rest):
            totals.append(totals[-1] + each)
        return tuple(totals), first.ceiling, sides

    def close(self, step: Any, cost: Number, epsilon: Number, ops: Ops) -> tuple[Number, Any]:  # noqa: ARG002
        """The least that the prior can have paid, from the draws that explain the cost."""
        sides, radius, rounds = step
        paid = jnp.asarray(cost, radius.dtype)
        floor = apart_from_gradients(partial(self._paid, epsilon), sides, radius, paid)
        return floor, Gaps(sides, radius, jax.lax.stop_gradient(paid), rounds + 1.0)

    def _paid(self, epsilon: Number, sides: Sides, radius: Array, cost: Array) -> Array:
        own, prior, apart = sides
        seen = around(jnp.reshape(cost, (1,)), epsilon)
        draws, possible = self._explained(own[:1], (seen,))
        near = self._by_state(radius)
        paid = spread(prior.cost, (*near, *draws)).low[:, 0]
        more = jnp.minimum(difference(own.cost, prior.cost, draws, near).high, apart.cost.high)[:, 0]
        floors = jnp.maximum(paid, seen.low[0] - more)
        return jnp.where(jnp.any(possible), jnp.min(jnp.where(possible, floors, jnp.inf)), -jnp.inf)

    def unseen(self, step: Any, ops: Ops) -> Any:  # noqa: ARG002
        """As `close`, with a cost that tells nothing of the draw."""
        sides, radius, rounds = step
        return Gaps(sides, radius, jnp.asarray(jnp.inf, radius.dtype), rounds + 1.0)

    # ---- the pieces

    def _surroundings(self, box: Interval, z: Array) -> Prior:
        """What is known of the prior in a round, if its state is in a box."""
        n, p = self.model.sizes[0], self.model.sizes[3]
        program = Program(lambda u: self.flat.closed_loop(0, u[:n], z, u[n:]), groups_of(n, p), z.dtype)
        sides = jax.vmap(lambda cell: enclosed_side(program, join(box, cell)))(
            self._cells(self.precision.cells, z.dtype)
        )
        policy = Program(lambda u: self.flat.policy(0, u, z), groups_of(n), z.dtype)
        return Prior(box, Interval(*policy.enclosed(box, True)[0].range), sides)

    def _both(self, x: Array, z: Array, a: Array, prior: Prior) -> Sides:
        """Cost and next state of an action, those of the prior, and how far they are apart, in every cell of draws.

        Apart in two ways: as functions of the same draw (`difference`), and here by the way from the prior's state and
        action to the own ones, along which slopes add up: what vanishes with the deviation.
        """
        n, _, m, p = self.model.sizes
        own = Program(lambda w: self.flat.played(x, z, a, w), groups_of(p), x.dtype)
        way = Program(
            lambda u: self.flat.played(u[:n], z, u[n : n + m], u[n + m :]), groups_of(n, m, p), x.dtype
        )
        here = Interval(x, x), Interval(a, a)
        there = prior.state, prior.action
        both = join(*(hull(*each) for each in zip(here, there, strict=True)))
        steps = way.split_box(join(*(subtract(*each) for each in zip(here, there, strict=True))))

        def of_cell(cell: Interval) -> tuple[Side, Apart]:
            along = enclosed_side(way, join(both, cell))
            moved = [moved_by(each.slopes[: len(steps)], steps, each.range.low) for each in along]
            return enclosed_side(own, cell), Apart(*moved)

        mine, apart = jax.vmap(of_cell)(self._cells(self.precision.cells, x.dtype))
        return Sides(mine, prior.sides, apart)

    def _first(self, sides: Sides, radius: Array, lam: Number, floor: Number) -> First:
        """What this round can lead to; `radius` is half the width of the prior's box."""
        own, prior, apart = sides
        near, draws = self._by_state(radius), self._half_widths(radius.dtype)
        excess = difference(own.cost, prior.cost, draws, near, 1.0 + lam).high
        # The same number as (own - prior's) - lam prior's, where the prior pays at least the floor.
        more = jnp.minimum(difference(own.cost, prior.cost, draws, near).high, apart.cost.high)
        paid = spread(prior.cost, (*near, *draws)).low
        excess = jnp.max(jnp.minimum(excess, more - lam * jnp.maximum(paid, floor)))
        ceiling = jnp.max(spread(own.cost, draws).high)
        after = over_cells(spread(own.state, draws))
        gap = over_cells(meet(difference(own.state, prior.state, draws, near), apart.state))
        other = over_cells(spread(prior.state, (*near, *draws)))
        return First(excess, ceiling, after, gap, meet(other, subtract(after, gap)))

    def _half_widths(self, dtype: Any) -> Groups:
        """[c, g] by group: the draws of each cell, as differences from its middle."""
        half = radius_of(self._cells(self.precision.cells, dtype))
        return tuple(half[:, each] for each in places_of(groups_of(self.model.sizes[3])))

    def _explained(self, own: Any, seen: tuple[Interval, ...]) -> tuple[Groups, Array]:
        """For each cell the draws (as differences from its middle) that explain what was seen, and if there are any."""
        away = tuple(Interval(-each, each) for each in self._half_widths(seen[0].low.dtype))
        draws, possible = jax.vmap(solved, in_axes=(0, 0, None))(tuple(own), away, seen)
        for cells, observed in zip(own, seen, strict=True):
            # What is not a number rules nothing out.
            possible &= ~jnp.any(
                (cells.range.low > observed.high) | (cells.range.high < observed.low), axis=1
            )
        return draws, possible
