"""Euclidean projection on the safe set: a norm ball around the prior's action, cut by the action box."""

from __future__ import annotations

import math
from typing import Any, Literal

from tether.core import validate
from tether.core.ops import FLOATS, NUMPY, Number, Ops, round_off

Norm = Literal["l1", "l2", "linf"]
NORMS: tuple[Norm, ...] = ("l1", "l2", "linf")


def length(vector: Any, norm: Norm, ops: Ops = NUMPY) -> Any:
    """The norm of `vector` over its last axis; the absolute value of a scalar."""
    size = abs(vector)
    if _scalar(size, ops):
        return size
    if ops is FLOATS:  # a certificate that remembers single numbers may guard a vector
        ops = NUMPY
    if norm == "l1":
        return ops.sum(size, axis=-1)
    if norm == "linf":
        return ops.max(size, axis=-1)
    # Scaled by the largest entry, so that neither tiny nor huge deviations are lost.
    largest = ops.max(size, axis=-1)
    scale = ops.where(largest > 0.0, largest, 1.0)
    squares = ops.sum((size / scale[..., None]) ** 2, axis=-1)
    return largest * ops.sqrt(ops.where(largest > 0.0, squares, 1.0))


def project(
    proposal: Any,
    center: Any,
    radius: Any,
    low: Any = None,
    high: Any = None,
    norm: Norm = "l2",
    ops: Ops = NUMPY,
) -> Any:
    """The point nearest to `proposal` (Euclidean) in {||a - center|| <= radius} and {low <= a <= high}.

    Exact for each norm: sorting finds the piece of the piecewise linear (`l1`) or quadratic (`l2`) equation
    that holds the solution. The result is rounded towards the centre, so that it is in the set in floating point too.

    Args:
        proposal: [..., n] where you would like to be; or a scalar.
        center: [..., n] centre of the ball, inside the box.
        radius: [...] radius of the ball, at least 0 (infinite: no ball).
        low: Lower bounds of the box, broadcast to [..., n]; None for none.
        high: Upper bounds of the box, broadcast to [..., n]; None for none.
        norm: The norm of the ball: `"l1"`, `"l2"` or `"linf"`. It makes no difference for scalars.
        ops: What to compute with.

    Returns:
        [..., n] the projection.

    Example:
        >>> import numpy as np
        >>> project(np.array([3.0, 4.0]), np.zeros(2), 1.0).round(6).tolist()
        [0.6, 0.8]
        >>> project(np.array([3.0, 4.0]), np.zeros(2), 1.0, high=0.7).round(6).tolist()
        [0.7, 0.7]
        >>> project(np.array([3.0, 4.0]), np.zeros(2), 1.0, norm="l1").round(6).tolist()
        [0.0, 1.0]
    """
    # Above 60 lines for its documentation.
    low = -math.inf if low is None else low
    high = math.inf if high is None else high
    scalar = _scalar(center, ops)
    inward = round_off(center) * (8.0 if scalar else 8.0 + center.shape[-1])
    allowed = ops.maximum(radius * (1.0 - inward) - inward * length(center, norm, ops), 0.0)
    if not scalar:
        allowed = ops.asarray(allowed)[..., None]
    if scalar or norm == "linf":
        return ops.minimum(
            ops.maximum(proposal, ops.maximum(center - allowed, low)), ops.minimum(center + allowed, high)
        )
    validate.choice("norm", norm, NORMS)

    wish = ops.minimum(ops.maximum(proposal, low), high)
    inside = length(wish - center, norm, ops)[..., None] <= allowed
    # From here on in the orthant of the step: 0 <= taken <= room, as near as possible to `asked`.
    step = proposal - center
    room = ops.where(step >= 0.0, high - center, center - low)
    # Where everything fits the ball there is nothing to shrink; the stand-in keeps gradients finite.
    shrink = _shrink_l1 if norm == "l1" else _shrink_l2
    allowed = ops.where(inside, 0.5, allowed)
    taken = shrink(ops.where(inside, 1.0, abs(step)), room, allowed, ops)
    # The length can exceed what is allowed by round-off only; what does is cut.
    excess = ops.maximum(length(taken, norm, ops)[..., None], allowed)
    taken = taken * ops.where(excess > 0.0, allowed / ops.where(excess > 0.0, excess, 1.0), 0.0)
    boundary = center + ops.where(step >= 0.0, taken, -taken)
    return ops.where(inside, wish, ops.minimum(ops.maximum(boundary, low), high))


def nearest_safe(
    proposal: Any, prior: Any, radius: Number, low: Number, high: Number, norm: Norm, ops: Ops = NUMPY
) -> tuple[Any, Number]:
    """The action to play and its deviation: the projection, or the prior where the proposal is not finite.

    Shapes are those of `project`. The deviation is that of the action as rounded, and never exceeds the radius.
    """
    usable = ops.isfinite(proposal - prior)
    if not _scalar(prior, ops):
        usable = ops.all(usable, axis=-1, keepdims=True)
    action = project(ops.where(usable, proposal, prior), prior, radius, low, high, norm, ops)
    return action, length(action - prior, norm, ops)


def _scalar(value: Any, ops: Ops) -> bool:
    """Whether an action is one number a case; a plain array namespace has one case."""
    return type(value) is float or bool(getattr(value, "ndim", 0) <= getattr(ops, "cases", 0))


def _shrink_l1(asked: Any, room: Any, allowed: Any, ops: Ops) -> Any:
    """The z = clip(t - behind, 0, room) with sum(z) = allowed; `behind` is how far an entry is behind the largest.

    The sum grows with t, linearly between its kinks; the solution lies after the last kink where it is not above that.
    """
    behind = ops.max(asked, axis=-1, keepdims=True) - asked
    kinks = ops.sort(ops.concat([behind, behind + room], axis=-1), axis=-1)
    taken = ops.minimum(ops.maximum(kinks[..., :, None] - behind[..., None, :], 0.0), room[..., None, :])
    sums = ops.sum(taken, axis=-1)
    place = ops.sum(ops.where(sums <= allowed, 1, 0), axis=-1, keepdims=True) - 1
    here = ops.take_along_axis(kinks, place, axis=-1)
    growing = ops.sum(ops.where((behind <= here) & (here < behind + room), 1.0, 0.0), axis=-1, keepdims=True)
    beyond = (allowed - ops.take_along_axis(sums, place, axis=-1)) / ops.maximum(growing, 1.0)
    # In this order: `here` may be so much larger than `beyond` that their sum would lose it.
    return ops.minimum(ops.maximum((here - behind) + beyond, 0.0), room)


def _shrink_l2(asked: Any, room: Any, allowed: Any, ops: Ops) -> Any:
    """The z = min(t * asked, room) with ||z|| = allowed.

    With the entries sorted by the t at which they meet the box and the first s of them held there, the squared norm
    is held_s + t^2 free_s. That is at least the true one for every s and equal for one: the largest solution is t.
    """
    asked = asked / ops.max(asked, axis=-1, keepdims=True)
    meets = ops.where(asked > 0.0, room / ops.where(asked > 0.0, asked, 1.0), math.inf)
    order = ops.argsort(meets, axis=-1)
    sorted_room = ops.take_along_axis(ops.minimum(room, 2.0 * allowed), order, axis=-1)
    sorted_asked = ops.take_along_axis(asked, order, axis=-1)
    held = ops.cumulative_sum(sorted_room**2, axis=-1) - sorted_room**2
    free = ops.flip(ops.cumulative_sum(ops.flip(sorted_asked, axis=-1) ** 2, axis=-1), axis=-1)
    possible = (allowed**2 > held) & (free > 0.0)
    squared = ops.where(possible, (allowed**2 - held) / ops.where(possible, free, 1.0), 1.0)
    t = ops.max(ops.where(possible, ops.sqrt(squared), 0.0), axis=-1, keepdims=True)
    return ops.minimum(t * asked, room)
