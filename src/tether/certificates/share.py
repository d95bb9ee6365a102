"""How far towards a proposal: the search for the largest safe share of the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tether.ops import FLOATS, Flag, Number, Ops

SEARCH = 12
"""Evaluations in the search, at most, after the one of the proposal itself."""
CLOSE = 1e-5
"""The online search ends when safe and unsafe shares differ by this part of them."""


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


def largest_share(excess: Callable[[Any, Number], Number], inputs: Any, farthest: Number, ops: Ops) -> Number:
    """A share t of [0, 1] with excess(inputs, t) <= 0, as large as a short search finds; 0 if there is none.

    The proposal itself, t = 1, is tried first; then the way up to `farthest` is searched. Two steps of three go where
    the straight line between the ends of the bracket crosses zero (regula falsi, an end that stays counts half as much
    each time), the third halves the bracket: its logarithm where the ends are of different size, so that a small share
    of a far proposal is found as well. What is returned was checked itself and is safe however the excess behaves; an excess
    that is not a number is not safe. In JAX the derivative is that of the boundary: excess(inputs, t) = 0 gives
    dt = -d excess / (slope in t).
    """
    constant = ops.fixed(inputs)
    at_start, at_wish = excess(constant, 0.0 * farthest), excess(constant, 0.0 * farthest + 1.0)
    whole = at_wish <= 0.0
    if ops is FLOATS and whole:
        return 1.0
    # Aiming a little inside, so that round-off does not decide whether the last point counts.
    aim = 64.0 * ops.epsilon(at_start) * (1.0 + abs(at_start))
    aim = ops.where(ops.isfinite(aim), aim, 1.0)

    def narrow(bracket: Bracket) -> Bracket:
        share = _next_share(bracket, ops)
        value = excess(constant, share)
        safe = value <= -aim
        value = ops.where(safe, value, ops.where(value < _HUGE, ops.maximum(value, aim), _HUGE))
        return Bracket(
            ops.where(safe, share, bracket.low),
            ops.where(safe, bracket.high, share),
            ops.where(safe, value, bracket.low_excess * ops.where(bracket.side < 0.0, 0.5, 1.0)),
            ops.where(safe, bracket.high_excess * ops.where(bracket.side > 0.0, 0.5, 1.0), value),
            ops.where(safe, 1.0, -1.0) + 0.0 * share,
            bracket.step + 1.0,
        )

    def found(bracket: Bracket) -> Flag:
        near = bracket.high - bracket.low <= CLOSE * bracket.high
        return near or bracket.low_excess >= -2.0 * aim

    zero = 0.0 * farthest
    low_excess = ops.where(at_start < -aim, ops.maximum(at_start, -_HUGE), -aim)
    high_excess = ops.where(at_wish < _HUGE, ops.maximum(at_wish, aim), _HUGE)
    bracket = Bracket(zero, farthest, low_excess, high_excess, zero, zero)
    share = ops.loop(SEARCH, narrow, bracket, found).low
    inside = ops.logical_and(ops.logical_not(whole), share > 0.0)
    share = ops.at_boundary(excess, inputs, share, inside)
    return ops.where(whole, 1.0, share)


_HUGE = 1e30
"""Stands for any larger excess, in whose place it can be computed with."""


def _next_share(bracket: Bracket, ops: Ops) -> Number:
    """Where to try next: the crossing of a straight line twice, then the middle."""
    low, high = bracket.low, bracket.high
    width = high - low
    crossing = low + width * (bracket.low_excess / (bracket.low_excess - bracket.high_excess))
    # In the inner part, so that each step cuts something off.
    crossing = ops.clip(crossing, low + 1e-3 * width, high - 1e-3 * width)
    apart = high > 16.0 * low
    geometric = ops.where(low > 0.0, ops.sqrt(ops.where(low > 0.0, low, 1.0) * high), high / 64.0)
    middle = ops.where(apart, geometric, low + 0.5 * width)
    third = ops.mod(bracket.step, 3.0) >= 2.0
    return ops.where(third, middle, crossing)
