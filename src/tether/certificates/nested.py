"""What the prior does near the states in which it settles: boxes, one inside of the other, looked at once.

A round to come is bounded over a box of states and the whole range of contexts. Over a wide box a kink (a valve that is
nearly shut) makes interval analysis forget that the prior cancels what it measures, and boxes that it would keep small
grow from round to round. When a certificate is compiled there is time to look more closely: for each of some boxes
around the states in which the prior settles, cut into thousands of pieces, it is found out where the prior leads from
there, what a round costs, and how steep both are. Whatever lies in one of these boxes is then bounded by what was
found for it, too; the smaller bound counts. What is true of a box is true of all that lies in it, so that any choice
of boxes is sound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from tether.certificates.cells import moved_by, rounded
from tether.certificates.intervals import Array, Interval, meet
from tether.certificates.survey import Floats, Looked, Surveyor

BOXES = 32
"""How many there are, the smallest where the prior settles, the largest the range of states."""
TURNS, STILL = 96, 1e-3
"""Rounds in which the prior may settle; it has if the box of its states moves by less than this part of the range."""


class Near(NamedTuple):
    """What is known of the prior's round in any state of a box."""

    inside: Array
    """Whether the box lies in one of the boxes; else nothing is known."""
    found: Interval
    """[1 + n] cost and next state."""
    slopes: Interval
    """[n, 1 + n] of these in the state."""


class Nested(NamedTuple):
    """Boxes of states, each inside of the next, and what was found in them; plain numbers in float64."""

    low: Floats
    """[B, n]"""
    high: Floats
    """[B, n]"""
    found: Interval
    """[B, 1 + n] cost and next state."""
    slopes: Interval
    """[B, n, 1 + n] of these in the state."""

    def around(self, box: Interval) -> Near:
        """What was found for the smallest box that holds this one."""
        dtype = box.low.dtype
        low, high = rounded(self.low, dtype, 1.0), rounded(self.high, dtype, -1.0)
        held = jnp.all((box.low >= low) & (box.high <= high), axis=-1)  # never of what is not a number
        place = jnp.sum(~held)
        at = jnp.minimum(place, len(self.low) - 1)
        found, slopes = (
            Interval(rounded(each.low, dtype, -1.0)[at], rounded(each.high, dtype, 1.0)[at])
            for each in (self.found, self.slopes)
        )
        return Near(place < len(self.low), found, slopes)


def narrowed(values: list[Interval], near: Near | None) -> list[Interval]:
    """Cost [1] and next state [n] of a box, by what was found for it, too."""
    return values if near is None else _met(values, near.inside, near.found)


def moved_near(values: list[Interval], near: Near | None, gap: Interval) -> list[Interval]:
    """What a gap [n] between two states of a box changes in cost [1] and next state [n], by what was found, too."""
    if near is None:
        return values
    return _met(values, near.inside, moved_by((near.slopes,), (gap,), near.found.low))


def _met(values: list[Interval], inside: Array, found: Interval) -> list[Interval]:
    parts = Interval(found.low[:1], found.high[:1]), Interval(found.low[1:], found.high[1:])
    both = [meet(*each) for each in zip(values, parts, strict=True)]
    return [
        Interval(*(jnp.where(inside, *ends) for ends in zip(new, old, strict=True)))
        for new, old in zip(both, values, strict=True)
    ]


def nested_of(surveyor: Surveyor) -> Nested | None:
    """Boxes from where the prior settles to the whole range; None where it settles nowhere."""
    low, high = surveyor.state
    width = high - low
    rest = low, high
    for _ in range(TURNS):
        after = surveyor.look(*rest).found
        ends = np.maximum(rest[0], after.low[1:]), np.minimum(rest[1], after.high[1:])
        if not np.all(ends[0] <= ends[1]):
            return None  # the range of states is left, or something is not a number
        moved_on = np.maximum(ends[0] - rest[0], rest[1] - ends[1])
        rest = ends
        if np.all(moved_on <= STILL * width):  # an entry that never changes has no width
            break
    if np.all(rest[1] - rest[0] >= 0.9 * width):
        return None
    shares = np.linspace(0.0, 1.0, BOXES)[:, None] ** 2
    lows = np.maximum(low, rest[0] - STILL * width - shares * (rest[0] - low))
    highs = np.minimum(high, rest[1] + STILL * width + shares * (high - rest[1]))
    return _stacked(lows, highs, [surveyor.look(*ends) for ends in zip(lows, highs, strict=True)])


def _stacked(lows: Floats, highs: Floats, looks: list[Looked]) -> Nested | None:
    """What was found, where all of it is finite."""

    def stack(name: str) -> Interval:
        each: list[Any] = [getattr(look, name) for look in looks]
        return Interval(np.stack([one.low for one in each]), np.stack([one.high for one in each]))

    found, slopes = stack("found"), stack("slopes")
    known = np.all(np.isfinite(found.low) & np.isfinite(found.high), axis=1)
    known &= np.all(np.isfinite(slopes.low) & np.isfinite(slopes.high), axis=(1, 2))
    if not np.any(known):
        return None
    found, slopes = (Interval(each.low[known], each.high[known]) for each in (found, slopes))
    return Nested(lows[known], highs[known], found, slopes)
