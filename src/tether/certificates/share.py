"""How far towards a proposal: the search for the largest safe share of the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tether.core.certificate import Action
from tether.core.ops import FLOATS, Flag, Number, Ops

SEARCH = 16
"""Evaluations in the search, at most; the first two are of the proposal and of the start."""
CLOSE = 1e-5
"""The search ends when safe and unsafe shares differ by this part of them."""
_HUGE, _TINY = 1e30, 1e-30
"""Stand for any larger and any smaller excess, in whose place they can be computed with."""


class Bracket(NamedTuple):
    """Between a share that is safe and one that is not, or was not tried."""

    low: Number
    high: Number
    low_excess: Number
    """At `low`, below 0; smaller in size the longer that end has not moved."""
    high_excess: Number
    """At `high`, above 0; likewise."""
    side: Number
    """1 if `low` moved last, -1 if `high` did, 0 at first."""
    step: Number
    """How many evaluations there were."""


def largest_share(
    excess: Callable[[Any, Number], Number], inputs: Any, farthest: Number, ops: Ops, turns: int = SEARCH
) -> Number:
    """A share t of [0, 1] with excess(inputs, t) <= 0, as large as a short search finds; 0 if there is none.

    The proposal itself, t = 1, is tried first; then the way up to `farthest` is searched. One step goes where the
    straight line between the ends of the bracket crosses zero (regula falsi, an end that stays counts half as much
    each time), the next halves the bracket, since the largest of several excesses has kinks; or its logarithm while
    the ends are of different size, so that a small share of a far proposal is found as well. What is returned was
    checked itself and is safe however the excess behaves; an excess that is not a number is not safe. All evaluations
    are `turns` of one loop, so that a compiler sees the excess once. In JAX the derivative is that of the boundary:
    excess(inputs, t) = 0 gives dt = -d excess / (slope in t).
    """
    constant = ops.fixed(inputs)
    zero = 0.0 * farthest

    def narrow(bracket: Bracket) -> Bracket:
        first, second = bracket.step < 0.5, bracket.step < 1.5
        share = ops.where(first, 1.0, ops.where(second, 0.0, _next_share(bracket, ops))) + zero
        value = excess(constant, share)
        safe = value <= 0.0
        # The start is where the search begins, safe or not; the proposal's excess stands for that of the farthest.
        from_below = ops.logical_or(safe, ops.logical_and(second, ops.logical_not(first)))
        below = ops.where(safe, ops.clip(value, -_HUGE, -_TINY), -_TINY)
        above = ops.where(value < _HUGE, ops.maximum(value, _TINY), _HUGE)
        stale_low, stale_high = (ops.where(sign * bracket.side > 0.0, 0.5, 1.0) for sign in (-1.0, 1.0))
        high = ops.where(first, farthest, share)
        narrowed = Bracket(
            ops.where(safe, share, bracket.low),
            ops.where(from_below, ops.maximum(bracket.high, share), high),
            ops.where(from_below, below, bracket.low_excess * stale_low),
            ops.where(from_below, bracket.high_excess * stale_high, above),
            ops.where(second, zero, ops.where(safe, 1.0, -1.0)),
            bracket.step + 1.0,
        )
        if ops is FLOATS:  # whose loop has ended where it was found
            return narrowed
        done = found(bracket)  # a compiled loop goes on, and must not decide otherwise than the guard
        return Bracket(*(ops.where(done, *pair) for pair in zip(bracket, narrowed, strict=True)))

    def found(bracket: Bracket) -> Flag:
        near = bracket.high - bracket.low <= CLOSE * bracket.high
        return ops.logical_and(bracket.step > 0.5, near)

    # Where the proposal is safe the bracket closes at once: both ends are 1 from then on.
    bracket = Bracket(zero, zero, zero - _TINY, zero + _TINY, zero, zero)
    share = ops.loop(turns, narrow, bracket, found).low
    inside = ops.logical_and(share < 1.0, share > 0.0)
    return ops.at_boundary(excess, inputs, share, inside)


def _next_share(bracket: Bracket, ops: Ops) -> Number:
    """Where to try next: the crossing of a straight line and the middle, by turns."""
    low, high = bracket.low, bracket.high
    width = high - low
    crossing = low + width * (bracket.low_excess / (bracket.low_excess - bracket.high_excess))
    # In the inner part, so that each step cuts something off.
    crossing = ops.clip(crossing, low + 1e-3 * width, high - 1e-3 * width)
    wide = high > 16.0 * low
    geometric = ops.where(low > 0.0, ops.sqrt(ops.where(low > 0.0, low, 1.0)) * ops.sqrt(high), high / 32.0)
    middle = ops.where(wide, geometric, low + 0.5 * width)
    return ops.where(ops.mod(bracket.step, 2.0) > 0.5, middle, crossing)


def on_the_way(start: Action, wish: Action, share: Number, ops: Ops) -> Action:
    """The point start + share (wish - start), exact at both ends."""
    if isinstance(start, list):
        return [on_the_way(*pair, share, ops) for pair in zip(start, wish, strict=True)]
    partway = start + share * (wish - start)
    return ops.where(share >= 1.0, wish, ops.where(share > 0.0, partway, start))


def either(condition: Flag, if_true: Action, if_false: Action, ops: Ops) -> Action:
    """`ops.where` for an action that may be a list of numbers."""
    if isinstance(if_true, list):
        return [ops.where(condition, *pair) for pair in zip(if_true, if_false, strict=True)]
    return ops.where(condition, if_true, if_false)


def least_excess(excesses: list[Number], ops: Ops) -> Number:
    """The smallest of several excesses; what is not a number counts as infinite."""
    smallest = ops.where(excesses[0] <= math.inf, excesses[0], math.inf)
    for each in excesses[1:]:
        smallest = ops.where(each < smallest, each, smallest)
    return smallest
