"""Compiled programs for the online guard: a few vectors of numbers in, a few out.

A guard is asked for single rounds, where handing over dozens of small arrays costs more than computing with them. So
what a program is given is laid out as vectors of float64, and so is what it gives. They are short (`SHORT`), because
XLA runs a program whose arrays are all short in the thread that called it, one operation after the other; handing
operations of a microsecond to other threads takes longer than all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tether.core.compiler import compiler_options

SHORT = 64
"""Numbers in a vector, at most, unless a single array has more."""


class Layout(NamedTuple):
    """How a nest of tuples of numbers, flags and arrays is laid out in vectors."""

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

    @property
    def parts(self) -> list[int]:
        """How many arrays are in each vector."""
        counts, filled = [0], 0
        for size in self.sizes:
            if counts[-1] and filled + size > SHORT:
                counts.append(0)
                filled = 0
            counts[-1] += 1
            filled += size
        return counts

    @property
    def lengths(self) -> list[int]:
        """How many numbers each vector has."""
        ends = np.cumsum([0, *self.parts]).tolist()
        return [sum(self.sizes[start:end]) for start, end in pairwise(ends)]


def layout_of(values: Any) -> Layout:
    """How a nest of arrays, or of their shapes, is laid out."""
    leaves, tree = jax.tree.flatten(values)
    return Layout(tree, tuple(each.shape for each in leaves), tuple(each.dtype == bool for each in leaves))


def packed(values: Any) -> tuple[Any, ...]:
    """The vectors of a nest of arrays that are being traced."""
    flat = [jnp.reshape(each, (-1,)).astype(np.float64) for each in jax.tree.leaves(values)]
    ends = np.cumsum([0, *layout_of(values).parts]).tolist()
    return tuple(jnp.concatenate(flat[start:end]) for start, end in pairwise(ends))


def unpacked(vectors: Sequence[Any], layout: Layout) -> Any:
    """The nest of arrays from its vectors, traced."""
    leaves: list[Any] = []
    shapes = iter(zip(layout.shapes, layout.flags, layout.sizes, strict=True))
    for vector, count in zip(vectors, layout.parts, strict=True):
        at = 0
        for _ in range(count):
            shape, flag, size = next(shapes)
            part = jnp.reshape(vector[at : at + size], shape)
            leaves.append(part != 0.0 if flag else part)
            at += size
    return jax.tree.unflatten(layout.tree, leaves)


class Programs:
    """The programs of one certificate, compiled when they are first needed."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Program] = {}

    def run(self, function: Callable[..., Any], key: Hashable, given: tuple[Any, ...]) -> Any:
        """What a function of JAX arrays gives for NumPy values, in float64.

        Args:
            function: Traceable by JAX.
            key: What tells it from other functions of the same certificate.
            given: Its arguments.
        """
        leaves, tree = jax.tree.flatten(given)
        shapes = tuple([getattr(each, "shape", ()) for each in leaves])
        asked = key, tree, shapes
        program = self._known.get(asked)
        if program is None:
            flags = tuple(np.asarray(each).dtype == np.bool_ for each in leaves)
            program = self._known[asked] = _Program(function, Layout(tree, shapes, flags))
        return program(leaves)


class _Program:
    """A function from NumPy values to NumPy values.

    Args:
        function: Traceable by JAX.
        layout: Of its arguments.
    """

    def __init__(self, function: Callable[..., Any], layout: Layout) -> None:
        ends = np.cumsum([0, *layout.sizes]).tolist()
        self._places = [slice(*pair) for pair in pairwise(ends)]
        ends = np.cumsum([0, *layout.lengths]).tolist()
        self._vectors = [slice(*pair) for pair in pairwise(ends)]
        self._count = ends[-1]
        self._found: list[_PutBack] = []

        def flat(*vectors: Any) -> Any:
            found = jax.tree.map(jnp.asarray, function(*unpacked(vectors, layout)))
            self._found = [_PutBack(layout_of(found))]
            return packed(found)

        self._compiled = jax.jit(flat, compiler_options=compiler_options(long=True))

    def __call__(self, leaves: list[Any]) -> Any:
        """Run it."""
        numbers = np.empty(self._count)
        for place, leaf in zip(self._places, leaves, strict=True):
            numbers[place] = leaf.reshape(-1) if isinstance(leaf, np.ndarray) else leaf
        with jax.enable_x64(True):
            found = self._compiled(*[numbers[each] for each in self._vectors])
            return self._found[0]([np.asarray(each) for each in found])


class _PutBack:
    """NumPy values from their vectors; what has no shape becomes a plain number or flag.

    Args:
        layout: Of the values.
    """

    def __init__(self, layout: Layout) -> None:
        self._tree = layout.tree
        ends = np.cumsum([0, *layout.parts]).tolist()
        leaves = list(zip(layout.shapes, layout.flags, layout.sizes, strict=True))
        self._vectors = [leaves[start:end] for start, end in pairwise(ends)]

    def __call__(self, vectors: Sequence[Any]) -> Any:
        """The values."""
        leaves: list[Any] = []
        for vector, parts in zip(vectors, self._vectors, strict=True):
            numbers, at = vector.tolist(), 0
            for shape, flag, size in parts:
                if not shape:
                    leaves.append(numbers[at] != 0.0 if flag else numbers[at])
                else:
                    part = vector[at : at + size].reshape(shape)
                    leaves.append(part != 0.0 if flag else part)
                at += size
        return jax.tree.unflatten(self._tree, leaves)
