"""Boxes and cells: what is known of cost and next state where the inputs lie in small boxes, and what follows.

In each cell a function f of d inputs is known by its value at the middle, its slopes and its range (`Cells`). From
these alone follow its range over a part of the cell (`spread`), that of the difference of two functions of the same
draws (`difference`), and the draws that can explain what was seen (`solved`): nothing has to be evaluated again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from tether.certificates.intervals import (
    Array,
    Interval,
    Unbounded,
    add,
    contains_zero,
    divide,
    exact,
    meet,
    outward,
    subtract,
    times,
    total,
)
from tether.certificates.programs import Program
from tether.core.ops import Number


class Cells(NamedTuple):
    """Cost and next state, k = 1 + n numbers, in each of c cells of their d inputs: all that is known of them there."""

    middle: Interval
    """[c, k] at the middle of the cell."""
    slope: Interval
    """[c, d, k] over the cell."""
    range: Interval
    """[c, k] natural range over the cell."""


def cut(low: Any, high: Any, count: int, sizes: Any) -> Interval:
    """A box as at most `count` cells, [cells, d] each, cut most often along the entries of the largest `sizes` [d]."""
    cuts = np.ones(len(low), dtype=int)
    while True:
        share = np.where((high > low) & (np.prod(cuts) // cuts * (cuts + 1) <= count), sizes / cuts, 0.0)
        if not np.any(share > 0.0):
            break
        cuts[np.argmax(share)] += 1
    places = np.indices(tuple(cuts.tolist())).reshape(len(cuts), -1).T  # [cells, d]
    ends = [low + (high - low) * (places + shift) / cuts for shift in (0, 1)]
    return Interval(ends[0], np.where(places + 1 == cuts, high, ends[1]))


def over_cells(cells: Interval) -> Interval:
    """The hull over the first axis."""
    return Interval(jnp.min(cells.low, axis=0), jnp.max(cells.high, axis=0))


def join(*parts: Interval) -> Interval:
    """One box after the other."""
    return Interval(
        jnp.concatenate([each.low for each in parts]), jnp.concatenate([each.high for each in parts])
    )


def moved_by(slopes: Interval, gap: Interval) -> Interval:
    """Slopes [n, m] times a gap [n], summed over its entries: [m]."""
    products = times(slopes, Interval(gap.low[:, None], gap.high[:, None]))
    summed = Interval(total(products.low), total(products.high))
    return outward(*summed, 2.0 * slopes.low.shape[0])


def rounded(values: Any, dtype: Any, side: float) -> Array:
    """Numbers in a type that may be coarser, not below (`side` 1) or not above (-1) what they were."""
    near = np.asarray(values).astype(dtype)
    wrong = side * (near - np.asarray(values)) < 0.0
    beyond = np.nextafter(near, np.asarray(side * np.inf, dtype))
    return jnp.asarray(np.where(wrong, beyond, near), dtype)


def inside(value: Interval, box: Interval) -> Array:
    """Whether all of a box is in another one."""
    return jnp.logical_and(jnp.all(value.low >= box.low), jnp.all(value.high <= box.high))


def around(values: Array, epsilon: Number) -> Interval:
    """What is seen, with the round-off that it may have."""
    values = jnp.asarray(values)
    off = 64.0 * max(float(np.finfo(values.dtype).eps), 0.0) * (1.0 + abs(values))
    off = jnp.maximum(off, 64.0 * epsilon * (1.0 + abs(values)))
    return Interval(values - off, values + off)


def enclosed_cell(program: Program, box: Interval) -> Cells:
    """A program over one box."""
    found = program.enclosed(box, True)
    slope = found.slope
    if slope is None:
        zeros = jnp.zeros((box.low.shape[0], *found.range.low.shape), found.range.low.dtype)
        slope = Interval(zeros, zeros)
    middle = found.range if found.middle is None else found.middle
    return Cells(Interval(*middle), Unbounded(*slope), Interval(*found.range))


def only(cells: Cells, count: int) -> Cells:
    """The first `count` outputs."""
    return Cells(*(type(each)(*(end[..., :count] for end in each)) for each in cells))


def spread(cells: Cells, away: Interval) -> Interval:
    """[c, k]: the outputs where the inputs differ from the middle by `away`, [c, d]."""
    return meet(add(cells.middle, _moved(cells.slope, away)), cells.range)


def _moved(slope: Interval, away: Interval) -> Interval:
    """[c, k] of slopes [c, d, k] and differences [c, d]."""
    products = times(slope, Interval(away.low[..., None], away.high[..., None]))
    summed = Interval(total(products.low, 1), total(products.high, 1))
    return outward(*summed, 2.0 * slope.low.shape[1])


def difference(own: Cells, prior: Cells, draws: Interval, around: Interval, weight: Any) -> Interval:
    """[c, k]: own minus `weight` [k] times the prior's, on the same draws; slopes are subtracted before they count.

    Args:
        own: Functions of the draw.
        prior: Functions of the prior's state and the draw.
        draws: [c, p] the draws, as differences from the middles of the cells.
        around: [c, n] the prior's state, as differences from the middle of its box.
        weight: 1 + lam for costs, 1 for states.
    """
    n = around.low.shape[1]
    scale = exact(jnp.broadcast_to(jnp.asarray(weight, own.middle.low.dtype), own.middle.low.shape[1:]))
    by_state, by_draw = (
        type(prior.slope)(*(end[:, part] for end in prior.slope)) for part in (slice(n), slice(n, None))
    )
    slope = subtract(own.slope, times(by_draw, scale))
    moved = subtract(_moved(slope, draws), times(_moved(by_state, around), scale))
    mean = add(subtract(own.middle, times(prior.middle, scale)), moved)
    return meet(mean, subtract(own.range, times(prior.range, scale)))


def solved(own: Cells, away: Interval, seen: Interval) -> tuple[Interval, Array]:
    """The draws of one cell that can solve f(w) = seen, as differences from its middle, narrowed entry by entry.

    From f(w) in f(c) + J (w - c): w_j - c_j in (seen - f(c) - sum_{l != j} J_l (w_l - c_l)) / J_j, where J_j is not 0.
    """
    left = subtract(seen, own.middle)  # [k]
    moved = times(own.slope, Interval(away.low[:, None], away.high[:, None]))  # [p, k]
    # Of the whole sum, which may be much larger than what is left of it.
    off = (
        4.0 * len(moved.low) * float(np.finfo(moved.low.dtype).eps) * total(abs(moved.low) + abs(moved.high))
    )
    others = outward(total(moved.low) - moved.low - off, total(moved.high) - moved.high + off)
    unknown = ~(jnp.isfinite(others.low) & jnp.isfinite(others.high)) | contains_zero(own.slope)
    safe = Interval(*(jnp.where(unknown, 1.0, end) for end in own.slope))
    rest = subtract(
        Interval(*(jnp.broadcast_to(end, moved.low.shape) for end in left)),
        Interval(*(jnp.where(unknown, 0.0, end) for end in others)),
    )
    steps = divide(rest, safe)
    steps = Interval(jnp.where(unknown, -jnp.inf, steps.low), jnp.where(unknown, jnp.inf, steps.high))
    found = outward(jnp.max(steps.low, axis=1), jnp.min(steps.high, axis=1), 2.0)
    low, high = jnp.maximum(away.low, found.low), jnp.minimum(away.high, found.high)
    possible = ~jnp.any(low > high)  # what is not a number rules nothing out
    return Interval(jnp.where(possible, low, away.low), jnp.where(possible, high, away.high)), possible


def both_ways(radius: Array, count: int) -> Interval:
    """[c, n]: differences from the middle of the prior's box, the same in each cell."""
    return Interval(*(jnp.broadcast_to(sign * radius, (count, len(radius))) for sign in (-1.0, 1.0)))


def side_by_side(first: Interval, second: Interval) -> Interval:
    """[c, n + p] of [c, n] and [c, p]."""
    return Interval(*(jnp.concatenate(ends, 1) for ends in zip(first, second, strict=True)))


class Gaps(NamedTuple):
    """What is remembered of the round before: all that it takes to narrow the prior's state."""

    own: Cells
    """Of the own side, inputs w."""
    prior: Cells
    """Of the prior's side, inputs x+ and w."""
    radius: Array
    """[n] half the width of the prior's box then."""
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
    prior: Cells
    """The prior's side of the round."""
    rounds: Array
    """Rounds closed."""
    state: Array
    """[n] the own state."""
    possible: Array
    """Whether some draw explains what was seen."""


class First(NamedTuple):
    """What this round can lead to."""

    excess: Array
    ceiling: Array
    own: Interval
    gap: Interval
    prior: Interval


class Boxes(NamedTuple):
    """Where both plants can be, and how far apart."""

    own: Interval
    gap: Interval
    prior: Interval
