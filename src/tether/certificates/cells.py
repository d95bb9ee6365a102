"""Boxes and cells: what is known of cost and next state where the inputs lie in small boxes, and what follows.

In each cell a function f of d inputs is known by its value at the middle, its slopes and its range (`Cells`). From
these alone follow its range over a part of the cell (`spread`), that of the difference of two functions of the same
draws (`difference`), and the draws that can explain what was seen (`solved`): nothing has to be evaluated again.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np

from tether.certificates.enclosures import Enclosed
from tether.certificates.intervals import (
    Array,
    Interval,
    Unbounded,
    add,
    contains_zero,
    divide,
    exact,
    meet,
    negative,
    outward,
    radius_of,
    subtract,
    times,
    total,
    unsure,
)
from tether.certificates.programs import Program
from tether.core.ops import Number

Groups: TypeAlias = tuple[Any, ...]
"""By group of inputs, as `Program` has them; () for one on which nothing depends."""


class Cells(NamedTuple):
    """An output [k] of a function in each of c cells of its inputs: all that is known of it there."""

    middle: Interval
    """[c, k] at the middle of the cell."""
    slopes: Groups
    """Intervals [c, g, k] over the cell, for groups of g inputs."""
    range: Interval
    """[c, k] natural range over the cell."""


class Side(NamedTuple):
    """What a round gives, as functions of the draw, or of state and draw."""

    cost: Cells
    """k = 1."""
    state: Cells
    """The next one, k = n."""


def cut(low: Any, high: Any, count: int, sizes: Any) -> Interval:
    """A box as at most `count` cells, [cells, d] each, cut most often along the entries of the largest `sizes` [d]."""
    cuts = np.ones(len(low), dtype=int)
    while True:
        share = np.where((high > low) & (np.prod(cuts) // cuts * (cuts + 1) <= count), sizes / cuts, 0.0)
        if not np.any(share > 0.0):
            break
        cuts[np.argmax(share)] += 1
    more = np.flatnonzero(cuts > 1)  # few: NumPy's arrays have at most 64 axes, a box may have more
    places = np.zeros((int(np.prod(cuts)), len(cuts)), dtype=int)  # [cells, d]
    places[:, more] = np.indices(tuple(cuts[more].tolist())).reshape(len(more), len(places)).T
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


def rounded(values: Any, dtype: Any, side: float) -> Array:
    """Numbers in a type that may be coarser, not below (`side` 1) or not above (-1) what they were."""
    near = np.asarray(values).astype(dtype)
    wrong = near < np.asarray(values) if side > 0.0 else near > np.asarray(values)
    beyond = np.nextafter(near, np.asarray(side * np.inf, dtype))
    return jnp.asarray(np.where(wrong, beyond, near), dtype)


def inside(value: Interval, box: Interval) -> Array:
    """Whether all of a box is in another one."""
    value = unsure(value)
    return jnp.logical_and(jnp.all(value.low >= box.low), jnp.all(value.high <= box.high))


def within(values: Array, box: Interval, epsilon: Number) -> Array:
    """Whether what is seen is in a box, up to the round-off that it may have; a NaN is not."""
    seen = around(values, epsilon)
    return jnp.all((seen.high >= box.low) & (seen.low <= box.high))


def around(values: Array, epsilon: Number) -> Interval:
    """What is seen, with the round-off that it may have."""
    values = jnp.asarray(values)
    off = 64.0 * max(float(np.finfo(values.dtype).eps), 0.0) * (1.0 + abs(values))
    off = jnp.maximum(off, 64.0 * epsilon * (1.0 + abs(values)))
    return Interval(values - off, values + off)


def enclosed_side(program: Program, box: Interval) -> Side:
    """A program that gives cost [1] and next state [n], over one box."""
    return Side(*(_cells(each, len(program.sizes)) for each in program.enclosed(box, True)))


def near_middle(program: Program, box: Interval, around: Side) -> list[Interval]:
    """Cost [1] and next state [n] over a box, from its middle; the slopes are those `around` it, over a larger one."""
    middle = 0.5 * box.low + 0.5 * box.high
    there, radii = program.enclosed(Interval(middle, middle), False), program.split(radius_of(box))
    return [
        meet(add(at.range, moved_by(side.slopes, radii, side.range.low)), side.range)
        for at, side in zip(there, around, strict=True)
    ]


def _cells(found: Enclosed, groups: int) -> Cells:
    slopes = tuple(type(each)(*each) if (each := found.slopes.get(group)) else () for group in range(groups))
    middle = found.range if found.middle is None else found.middle
    return Cells(Interval(*middle), slopes, Interval(*found.range))


def moved_by(slopes: Groups, away: Groups, like: Array) -> Interval:
    """[..., k]: what inputs that differ by `away` from where they were change.

    Args:
        slopes: [..., g, k] by group.
        away: By group, an interval [..., g], or [..., g] numbers that stand for both ways.
        like: [..., k] numbers of the output, which may depend on none of these groups.
    """
    low = high = size = jnp.zeros_like(
        like
    )  # size: of everything that is added up, to which round-off is proportional
    terms = 2.0
    for slope, each in zip(slopes, away, strict=True):
        if not slope:
            continue
        terms += slope.low.shape[-2]
        if isinstance(each, Interval):
            product = times(slope, Interval(each.low[..., None], each.high[..., None]))
            ends = total(product.low, -2), total(product.high, -2)
            size = size + total(abs(product.low) + abs(product.high), -2)
        else:
            largest, half = jnp.maximum(abs(slope.low), abs(slope.high)), each[..., None]
            if isinstance(slope, Unbounded):  # 0 times infinity is 0
                largest = jnp.where(half > 0.0, largest, 0.0)
            both = total(largest * half, -2)
            ends, size = (-both, both), size + both
        low, high = low + ends[0], high + ends[1]
    off = terms * float(np.finfo(size.dtype).eps) * size
    return outward(low - off, high + off)


def spread(cells: Cells, away: Groups) -> Interval:
    """[c, k]: the output where the inputs differ from the middle by `away`, see `moved_by`."""
    return meet(add(cells.middle, moved_by(cells.slopes, away, cells.range.low)), cells.range)


def difference(own: Cells, prior: Cells, draws: Groups, near: Groups, weight: Any = None) -> Interval:
    """[c, k]: own minus `weight` times the prior's, on the same draws; slopes are subtracted before they count.

    Args:
        own: A function of the draw.
        prior: A function of the prior's state and the draw.
        draws: The draws, as differences from the middles of the cells, see `moved_by`.
        near: The prior's state, as differences from the middle of its box.
        weight: At least 0; None for 1.
    """
    by_state, by_draw = prior.slopes[: len(near)], prior.slopes[len(near) :]
    together = tuple(
        _minus(mine, _weighted(other, weight)) for mine, other in zip(own.slopes, by_draw, strict=True)
    )
    like = own.range.low
    moved = subtract(moved_by(together, draws, like), _weighted(moved_by(by_state, near, like), weight))
    mean = add(subtract(own.middle, _weighted(prior.middle, weight)), moved)
    return meet(mean, subtract(own.range, _weighted(prior.range, weight)))


def _weighted(value: Any, weight: Any) -> Any:
    """An interval, or (), times a number of at least 0."""
    if not value or weight is None:
        return value
    if isinstance(value, Unbounded):
        return times(value, exact(jnp.asarray(weight, value.low.dtype)))
    return outward(value.low * weight, value.high * weight)


def _minus(first: Any, second: Any) -> Any:
    if not second:
        return first
    return subtract(first, second) if first else negative(second)


def solved(side: tuple[Cells, ...], away: Groups, seen: tuple[Interval, ...]) -> tuple[Groups, Array]:
    """The draws of one cell that can solve f(w) = seen, as differences from its middle, narrowed entry by entry.

    From f(w) in f(c) + J (w - c): w_j - c_j in (seen - f(c) - sum_{l != j} J_l (w_l - c_l)) / J_j, where J_j is not 0.

    Args:
        side: Outputs without their axis of cells.
        away: Intervals [g] by group.
        seen: [k] of each output.

    Returns:
        The intervals, and whether there can be any such draw.
    """
    ends = [(each.low, each.high) for each in away]
    for cells, observed in zip(side, seen, strict=True):
        left = subtract(observed, cells.middle)  # [k]
        moved: list[Any] = [
            times(slope, Interval(each.low[:, None], each.high[:, None])) if slope else ()  # [g, k]
            for slope, each in zip(cells.slopes, away, strict=True)
        ]
        known = [each for each in moved if each]
        if not known:
            continue
        # Round-off is that of the whole sum, which may be much larger than what is left of it.
        count = sum(len(each.low) for each in known)
        size = sum(total(abs(each.low) + abs(each.high)) for each in known)
        off = 4.0 * count * float(np.finfo(left.low.dtype).eps) * size
        sums = [sum(total(each[end]) for each in known) for end in (0, 1)]
        for group, (slope, each) in enumerate(zip(cells.slopes, moved, strict=True)):
            if slope:
                others = outward(sums[0] - each.low - off, sums[1] - each.high + off)
                low, high = _steps(left, others, slope)
                ends[group] = jnp.maximum(ends[group][0], low), jnp.minimum(ends[group][1], high)
    possible: Any = jnp.asarray(True)
    for low, high in ends:
        possible = possible & ~jnp.any(low > high)  # what is not a number rules nothing out
    found = tuple(
        Interval(jnp.where(possible, low, each.low), jnp.where(possible, high, each.high))
        for (low, high), each in zip(ends, away, strict=True)
    )
    return found, possible


def _steps(left: Interval, others: Interval, slope: Interval) -> Interval:
    """[g]: (left - others) / slope, over the outputs [k] that tell anything."""
    unknown = ~(jnp.isfinite(others.low) & jnp.isfinite(others.high)) | contains_zero(slope)
    safe = Interval(*(jnp.where(unknown, 1.0, end) for end in slope))
    rest = subtract(
        Interval(*(jnp.broadcast_to(end, others.low.shape) for end in left)),
        Interval(*(jnp.where(unknown, 0.0, end) for end in others)),
    )
    steps = divide(rest, safe)
    steps = Interval(jnp.where(unknown, -jnp.inf, steps.low), jnp.where(unknown, jnp.inf, steps.high))
    return outward(jnp.max(steps.low, axis=1), jnp.min(steps.high, axis=1), 2.0)


class Apart(NamedTuple):
    """How far own and prior's round can be apart in each cell, from the way between their states and actions."""

    cost: Interval
    """[c, 1]"""
    state: Interval
    """[c, n]"""


class Sides(NamedTuple):
    """A round on both sides."""

    own: Side
    """Inputs w."""
    prior: Side
    """Inputs x+ and w."""
    apart: Apart
    """Own minus prior's."""


class Step(NamedTuple):
    """What closing a round needs."""

    sides: Sides
    """What was known of the round before it was played."""
    radius: Array
    """[n] half the width of the prior's box."""
    rounds: Array
    """Rounds closed before it."""


class Gaps(NamedTuple):
    """What is remembered of the round before: all that it takes to narrow the prior's state."""

    sides: Sides
    """What was known of the round before it was played."""
    radius: Array
    """[n] half the width of the prior's box then."""
    cost: Array
    """The round's cost; infinite if it is not known."""
    rounds: Array
    """Rounds closed; before the first nothing else here counts."""


class Prior(NamedTuple):
    """What is known of the prior in the round at hand."""

    state: Interval
    """[n]"""
    action: Interval
    """[m]"""
    sides: Side
    """Cost and next state, inputs x+ and w."""


class Refined(NamedTuple):
    """What is known in the round at hand before an action is chosen."""

    prior: Prior
    rounds: Array
    """Rounds closed."""
    own: Array
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
