"""What a learner is told of bounds that interval analysis found: how the edge of the safe set moves.

Backward through interval analysis a gradient would have to keep every intermediate value of every round, and the
program would compile for minutes. Little of it is of use: the prior's plant does not depend on what is played. What
does is the share t of the way to the proposal, where the excess e(x, a) of the own state x and of the action
a = start + t (wish - start) is the slack s. So

    dt = -(e_x dx + e_a ((1 - t) dstart + t dwish) - ds) / (e_a (wish - start)),

with e_x and e_a from differences, which are the same program on a few points more. Bounds have kinks everywhere, and a
learner needs no more digits than that. The account follows its own formula; T_0 and the floor of the prior's cost are
taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tether.certificates.intervals import Array

STEP = 1e-3
"""Of a difference, relative to the range of an entry of the state, or to how far the action is from the start."""
SHORTEST = 0.02
"""The distance from the start that counts at least, relative to the range of the action."""


def apart_from_gradients(function: Callable[..., Any], *inputs: Any) -> Any:
    """function(*inputs), as one operation that gradients do not follow and need not look into."""
    leaves, shape = jax.tree.flatten(inputs)
    traced = [isinstance(each, jax.Array) for each in leaves]

    def called(arrays: list[Array]) -> Any:
        given = iter(arrays)
        whole = [next(given) if each else leaf for leaf, each in zip(leaves, traced, strict=True)]
        return function(*jax.tree.unflatten(shape, whole))

    arrays = [leaf for leaf, each in zip(leaves, traced, strict=True) if each]
    return jax.jit(called)(jax.lax.stop_gradient(arrays))


def with_slope(
    share: Array,
    excess: Callable[[tuple[Array, Array], Any], Array],
    ways: tuple[Array, Array, Array],
    slack: Array,
    given: Any,
    ranges: Sequence[tuple[Any, Any]],
) -> Array:
    """The share itself, with the derivative of the module.

    Args:
        share: t.
        excess: Of (x, a) and what is given.
        ways: The own state x [n], the start and the proposal, numbers or [m].
        slack: s, cost units.
        given: Whatever else the excess depends on; no gradient follows it.
        ranges: Ends [n] of the states and [m] of the actions.
    """

    @jax.custom_jvp
    def known(share: Array, ways: Any, slack: Array, given: Any) -> Array:  # noqa: ARG001
        return share

    @known.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        share, (x, start, wish), _, given = primals
        _, (dx, dstart, dwish), dslack, _ = tangents
        way = jnp.reshape(wish - start, (-1,))
        action = start + share * (wish - start)
        point = jnp.concatenate([x, jnp.reshape(action, (-1,))])
        steps = jnp.concatenate(_steps(x, share * way, ranges))
        points = jnp.concatenate([point[None], point + jnp.diag(steps)])
        n = x.shape[0]
        values = jax.vmap(lambda u: excess((u[:n], jnp.reshape(u[n:], jnp.shape(action))), given))(points)
        slopes = (values[1:] - values[0]) / jnp.where(steps == 0.0, 1.0, steps)
        slopes = jnp.where(jnp.isfinite(slopes), slopes, 0.0)
        along = jnp.sum(slopes[n:] * way)
        usable = (share > 0.0) & (share < 1.0) & (along > 0.0)
        moved = jnp.reshape((1.0 - share) * dstart + share * dwish, (-1,))
        change = jnp.sum(slopes[:n] * dx) + jnp.sum(slopes[n:] * moved) - dslack
        return share, jnp.where(usable, -change, 0.0) / jnp.where(usable, along, 1.0)

    return known(jax.lax.stop_gradient(share), ways, slack, jax.lax.stop_gradient(given))


def _steps(x: Array, away: Array, ranges: Sequence[tuple[Any, Any]]) -> tuple[Array, Array]:
    """([n] steps of the state towards the middle of its range, [m] of an action towards the start)."""
    (low, high), (least, most) = (tuple(jnp.asarray(end, x.dtype) for end in each) for each in ranges)
    state, action = (
        jnp.where(jnp.isfinite(to - start), to - start, 1.0 + abs(at))
        for start, to, at in ((low, high, x), (least, most, away))
    )
    down = jnp.where(jnp.isfinite(low + high), x > 0.5 * low + 0.5 * high, x > 0.0)
    size = STEP * jnp.maximum(abs(away), SHORTEST * action)
    return jnp.where(down, -STEP, STEP) * state, jnp.where(away < 0.0, size, -size)
