"""Compiled programs for the online guard: one vector of numbers in, one out.

A guard is asked for single rounds, where handing over dozens of small arrays costs more than computing with them. So
what a program is given is laid out as one vector of float64, and so is what it gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Layout(NamedTuple):
    """How a nest of tuples of numbers, flags and arrays is laid out in a vector."""

    tree: Any
    """Its nesting, as JAX has it."""
    shapes: tuple[tuple[int, ...], ...]
    """Of each array in it."""
    flags: tuple[bool, ...]
    """Which of them are truth values."""

    @property
    def sizes(self) -> list[int]:
        """How many numbers each array has."""
        return [math.prod(shape) for shape in self.shapes]


def laid_out(values: Any) -> tuple[Any, Layout]:
    """(the vector, its layout) of NumPy values."""
    leaves, tree = jax.tree.flatten(values)
    arrays = [np.asarray(leaf) for leaf in leaves]
    layout = Layout(
        tree, tuple(each.shape for each in arrays), tuple(each.dtype == np.bool_ for each in arrays)
    )
    parts = [each.reshape(-1) for each in arrays]
    return np.concatenate(parts, dtype=np.float64) if parts else np.zeros(0), layout


def put_back(vector: Any, layout: Layout) -> Any:
    """NumPy values from their vector; what has no shape becomes a plain number or flag."""
    leaves: list[Any] = []
    at = 0
    numbers = vector.tolist()
    for shape, flag, size in zip(layout.shapes, layout.flags, layout.sizes, strict=True):
        if not shape:
            leaves.append(numbers[at] != 0.0 if flag else numbers[at])
            at += 1
            continue
        part = vector[at : at + size].reshape(shape)
        leaves.append(part != 0.0 if flag else part)
        at += size
    return jax.tree.unflatten(layout.tree, leaves)


def packed(values: Any) -> Any:
    """One vector of a nest of numbers that are being traced."""
    return jnp.concatenate([jnp.reshape(each, (-1,)).astype(np.float64) for each in jax.tree.leaves(values)])


def layout_of(values: Any) -> Layout:
    """How a nest of arrays, or of their shapes, is laid out."""
    leaves, tree = jax.tree.flatten(values)
    return Layout(tree, tuple(each.shape for each in leaves), tuple(each.dtype == bool for each in leaves))


def unpacked(vector: Any, layout: Layout) -> Any:
    """`put_back` for a vector that is being traced."""
    leaves, at = [], 0
    for shape, flag, size in zip(layout.shapes, layout.flags, layout.sizes, strict=True):
        part = jnp.reshape(vector[at : at + size], shape)
        leaves.append(part != 0.0 if flag else part)
        at += size
    return jax.tree.unflatten(layout.tree, leaves)


class Programs:
    """The programs of one certificate, compiled when they are first needed."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Callable[[Any], Any], list[Layout]]] = {}

    def run(self, function: Callable[..., Any], key: Hashable, given: tuple[Any, ...]) -> Any:
        """What a function of JAX arrays gives for NumPy values, in float64.

        Args:
            function: Traceable by JAX.
            key: What tells it from other functions of the same certificate.
            given: Its arguments.
        """
        vector, layout = laid_out(given)
        with jax.enable_x64(True):
            if (key, layout) not in self._known:
                self._known[key, layout] = _program(function, layout)
            compiled, layouts = self._known[key, layout]
            found = np.asarray(compiled(vector))
        return put_back(found, layouts[0])


def _program(function: Callable[..., Any], layout: Layout) -> tuple[Callable[[Any], Any], list[Layout]]:
    """(the program, the layout of what it gives, once it was traced)."""
    layouts: list[Layout] = []

    def flat(vector: Any) -> Any:
        found = jax.tree.map(jnp.asarray, function(*unpacked(vector, layout)))
        layouts[:] = [layout_of(found)]
        return packed(found)

    return jax.jit(flat), layouts
