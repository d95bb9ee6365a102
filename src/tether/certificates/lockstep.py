"""Loops of episodes that run side by side: as long as the longest of them needs, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from tether.certificates.intervals import Array

Carry = TypeVar("Carry")


@custom_vmap
def _largest(value: Array) -> Array:
    return value


@_largest.def_vmap
def _(_size: int, _batched: list[bool], values: Array) -> tuple[Array, bool]:
    return _largest(jnp.max(values, axis=0)), False


def loop(
    turns: Array, most: int, body: Callable[[Carry, Array], tuple[Carry, Array]], carry: Carry
) -> list[Array]:
    """What the turns 1, 2, ... of a body give, one by one; infinite for turns that no episode needs.

    Under `jax.vmap` all episodes make as many turns as the one that needs most, so that the number of turns is one and
    the same for all: a loop with a number for each would have to choose, entry by entry, what to keep. No gradient
    follows it.

    Args:
        turns: How many are needed, of any float type.
        most: How many there can be.
        body: (carry, number of the turn) to (carry, number found).
        carry: What the first turn is given.
    """
    if most == 0:
        return []
    like: Any = jax.eval_shape(body, carry, turns)[1]
    count = jnp.minimum(_largest(jax.lax.stop_gradient(turns)), float(most)).astype(int)

    def turn(place: Array, held: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, found = held
        carry, value = body(carry, (place + 1).astype(turns.dtype))
        return carry, found.at[place].set(value)

    _, found = jax.lax.fori_loop(0, count, turn, (carry, jnp.full(most, jnp.inf, like.dtype)))
    return [found[i] for i in range(most)]
