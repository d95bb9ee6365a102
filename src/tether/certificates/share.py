"""How far towards a proposal: the search for the largest safe share of the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tether.core.certificate import Action
from tether.core.ops import Flag, Number, Ops

SEARCH = 16
"""Evaluations in the search, at most; the first two are of the proposal and of the start."""
CLOSE = 1e-5
"""The search ends when safe and unsafe shares differ by this part of them, or would (`_left`)."""
NARROW = 0.05
"""So near to each other, as a part of them, a safe and an unsafe share are before it is asked how much is left."""
_HUGE, _TINY = 1e30, 1e-30
"""Stand for any larger and any smaller excess, in whose place they can be computed with."""


class Bracket(NamedTuple):
    """Between a share that is safe and one that is not, or was not tried."""

    low: Number
    high: Number
    low_excess: Number
    """At `low`, below 0."""
    high_excess: Number
    """At `high`, above 0."""
    third: Number
    """The end that was given up last, outside; at first the high end, so that there is none."""
    third_excess: Number
    """At `third`."""
    width: Number
    """Of the bracket two evaluations before."""
    halved: Flag
    """Whether the last step went to the middle."""
    step: Number
    """How many evaluations there were."""


def largest_share(
    excess: Callable[[Any, Number], Number],
    inputs: Any,
    farthest: Number,
    ops: Ops,
    turns: int = SEARCH,
    known: tuple[Number, Number] | None = None,
) -> Number:
    """A share t of [0, 1] with excess(inputs, t) <= 0, as large as a short search finds; 0 if there is none.

    The proposal itself, t = 1, is tried first, and the start, t = 0; then the way up to `farthest` is searched. A step
    goes where the parabola through the ends of the bracket and the end before them crosses zero, and a little beyond,
    towards the end that is farther off, or inward if that is to be the last one (`_near`). The first step has a line
    only, which crosses too early if the excess bends up, as a parabola that begins flat crosses at the root of that:
    unless that is far it goes halfway between them, by the logarithm. The largest of several excesses has kinks; so
    where two steps have left more than 0.3 of the bracket it is halved, and where an end's excess says nothing of its
    size; or its logarithm while the ends are of different size, so that a small share of a far proposal is found as
    well. What is returned was checked itself and is safe however the excess behaves; an excess that is not a number is
    not safe. All evaluations are `turns` of one loop, so that a compiler sees the excess once. In JAX the derivative is
    that of the boundary: excess(inputs, t) = 0 gives dt = -d excess / (slope in t).

    `known` are the excesses of the start and of the proposal, which is not safe, if they were worked out before.
    """
    constant = ops.fixed(inputs)
    zero = 0.0 * farthest

    def tried(bracket: Bracket) -> Bracket:
        first, second = bracket.step < 0.5, bracket.step < 1.5
        halved = _halved(bracket, ops)
        share = ops.where(first, 1.0, ops.where(second, 0.0, _next_share(bracket, halved, ops))) + zero
        value = excess(constant, share)
        narrowed = _narrowed(bracket, share, value, farthest, halved, first, second, ops)
        if ops.lazy:  # whose loop has ended where it was found
            return narrowed
        done = found(bracket)  # a compiled loop goes on, and must not decide otherwise than the guard
        kept: list[Any] = [ops.where(done, *pair) for pair in zip(bracket, narrowed, strict=True)]
        return Bracket(*kept)

    def searched(bracket: Bracket) -> Bracket:  # after the first two
        halved = _halved(bracket, ops)
        share = _next_share(bracket, halved, ops)
        return _narrowed(bracket, share, excess(constant, share), farthest, halved, False, False, ops)

    def found(bracket: Bracket) -> Flag:
        return ops.logical_and(bracket.step > 0.5, _near(bracket, ops))

    # Where the proposal is safe the bracket closes at once: both ends are 1 from then on.
    bracket = Bracket(zero, zero, zero - _TINY, zero + _TINY, zero, zero, zero, zero > 0.0, zero)
    if known is None:
        share = ops.loop(turns, tried, bracket, found).low
    else:
        at_start, at_proposal = known
        bracket = _narrowed(bracket._replace(step=0.0), 1.0, at_proposal, farthest, False, True, True, ops)
        bracket = _narrowed(bracket, 0.0, at_start, farthest, False, False, True, ops)
        share = ops.loop(turns - 2, searched, bracket, partial(_near, ops=ops)).low
    inside = ops.logical_and(share < 1.0, share > 0.0)
    return ops.at_boundary(excess, inputs, share, inside)


def _narrowed(
    bracket: Bracket,
    share: Number,
    value: Number,
    farthest: Number,
    halved: Flag,
    first: Flag,
    second: Flag,
    ops: Ops,
) -> Bracket:
    """The bracket after a share with this excess was tried.

    Args:
        bracket: Before it.
        share: Which was tried.
        value: Its excess.
        farthest: Where the search ends.
        halved: Whether it was the middle.
        first: Whether it was the first one, the proposal.
        second: Whether it was one of the first two.
        ops: What to compute with.
    """
    low, high, low_excess, high_excess, third, _, _, _, step = bracket
    safe = value <= 0.0
    # The start is where the search begins, safe or not; the proposal's excess stands for that of the farthest.
    from_below = ops.logical_or(safe, ops.logical_and(second, ops.logical_not(first)))
    span = ops.maximum(high, third) - ops.minimum(low, third)
    kept = bracket._replace(width=ops.where(second, farthest, span), halved=halved, step=step + 1.0)

    def outside(end: Number, its_excess: Number) -> Bracket:
        its_excess = ops.where(second, 0.0 * farthest, its_excess)
        return kept._replace(third=ops.where(second, farthest, end), third_excess=its_excess)

    def raised() -> Bracket:
        below = ops.where(safe, ops.clip(value, -_HUGE, -_TINY), -_TINY)
        ends = ops.where(safe, share, low), ops.maximum(high, share)
        return outside(low, low_excess)._replace(low=ends[0], high=ends[1], low_excess=below)

    def lowered() -> Bracket:
        above = ops.where(value < _HUGE, ops.maximum(value, _TINY), _HUGE)
        end = ops.where(first, farthest, share)
        return outside(high, high_excess)._replace(high=end, high_excess=above)

    if ops.lazy:
        return ops.branch(from_below, raised, lowered)
    either_end: list[Any] = [ops.where(from_below, *pair) for pair in zip(raised(), lowered(), strict=True)]
    return Bracket(*either_end)


def _halved(bracket: Bracket, ops: Ops) -> Flag:
    """Whether the next step goes to the middle."""
    low, high, step = bracket.low, bracket.high, bracket.step
    # Not at numbers that come about by themselves, such as a quarter: a compiler may round them to the other side.
    slow = high - low > 0.3 * bracket.width
    fallen = ops.logical_and(bracket.third > high, bracket.third <= 16.0 * high)
    fallen = ops.logical_and(fallen, 4.0 * bracket.high_excess <= bracket.third_excess)
    alike = ops.logical_or(high <= 16.0 * low, fallen)
    early = ops.logical_and(step < 3.5, ops.logical_or(step < 2.5, alike))
    slow = ops.logical_and(slow, ops.logical_not(early))
    blind = ops.logical_or(bracket.high_excess >= _HUGE, bracket.low_excess >= -_TINY)
    return ops.logical_or(blind, ops.logical_and(slow, ops.logical_not(bracket.halved)))


def _near(bracket: Bracket, ops: Ops) -> Flag:
    """Whether the low end is as near to where the excess crosses zero as is wanted."""
    width, close = bracket.high - bracket.low, CLOSE * bracket.high
    wide = ops.logical_not(width <= NARROW * bracket.high)
    left = ops.unless(wide, math.inf, lambda: _left(bracket, ops))
    return ops.logical_or(width <= close, left <= close)


def _left(bracket: Bracket, ops: Ops) -> Number:
    """How far above the low end an excess crosses zero at most that is convex or concave there; infinite if unknown.

    If it is concave it is above the line through both ends of the bracket and crosses zero before that; if it is
    convex, before the line through the end that was given up and the one in whose place it was.
    """
    low, high, low_excess, high_excess, third, third_excess = bracket[:6]
    below = third < low
    end, end_excess = ops.where(below, low, high), ops.where(below, low_excess, high_excess)
    rise, further = high_excess - low_excess, third_excess - end_excess
    rises = further * (third - end) > 0.0
    told = ops.logical_and(low_excess < -_TINY, ops.maximum(high_excess, abs(third_excess)) < _HUGE)
    known = ops.logical_and(rises, told)
    chord = -low_excess * (high - low) / ops.where(known, rise, 1.0)
    tangent = end - low - end_excess * (third - end) / ops.where(known, further, 1.0)
    return ops.where(known, ops.maximum(chord, tangent), math.inf)


def _next_share(bracket: Bracket, halved: Flag, ops: Ops) -> Number:
    """Where to try next: in the middle, or near the crossing of a parabola."""
    low, high = bracket.low, bracket.high

    def middle() -> Number:
        wide = high > 16.0 * low
        ratio = ops.where(low > 0.0, low / ops.where(high > 0.0, high, 1.0), 1.0 / 1024.0)
        return ops.where(wide, high * ops.sqrt(ratio), low + 0.5 * (high - low))

    if ops.lazy:
        return ops.branch(halved, middle, lambda: _crossing(bracket, ops))
    return ops.where(halved, middle(), _crossing(bracket, ops))


def _crossing(bracket: Bracket, ops: Ops) -> Number:
    """Near where the parabola crosses zero, which it does once between ends of different sign.

    At place u in [0, 1] of the bracket, and with the excesses over the difference of its ends, it is below + slope u +
    bend u^2 with slope + bend = 1. Without a third point it is a line.
    """
    low, high, width = bracket.low, bracket.high, bracket.high - bracket.low
    unit = 1.0 / (bracket.high_excess - bracket.low_excess)
    below, third_excess = bracket.low_excess * unit, ops.clip(bracket.third_excess * unit, -1e6, 1e6)
    place = (bracket.third - low) / ops.where(width > 0.0, width, 1.0)
    apart = place * (place - 1.0)
    curved = apart > 0.0
    bend = ops.where(curved, (third_excess - below - place) / ops.where(curved, apart, 1.0), 0.0)
    slope = 1.0 - bend
    root = ops.sqrt(ops.maximum(slope * slope - 4.0 * bend * below, 0.0))
    rises = slope >= 0.0  # one of two forms of the same, in which nothing cancels
    upper, lower = ops.where(rises, -2.0 * below, root - slope), ops.where(rises, slope + root, 2.0 * bend)
    crosses = upper / ops.where(lower > 0.0, lower, 1.0)
    early = ops.logical_and(ops.logical_not(curved), crosses > 1.0 / 16.0)
    crosses = ops.unless(ops.logical_not(early), crosses, lambda: ops.sqrt(crosses * ops.sqrt(crosses)))
    ends = ops.logical_and(curved, width <= NARROW * high)  # if it is as good as it seems, and it is safe
    beyond = ops.where(ops.logical_or(ends, crosses > 0.45), -0.4, 0.4) * (CLOSE * high)
    # So far inside that each step cuts something off.
    inside = 0.25 * CLOSE * high
    return ops.clip(low + crosses * width + beyond, low + inside, high - inside)


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
