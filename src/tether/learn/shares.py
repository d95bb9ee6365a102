"""A grid of policies in shares, one thread each: a compiled program of this size keeps a single core busy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tether.engines.pinning import own_cores

LEAST = 5
"""Policies of a share: with fewer, more time goes into starting operations than into doing them."""


class Share(NamedTuple):
    """Some of the settings and seeds."""

    settings: slice
    seeds: slice

    def of(self, tree: Any) -> Any:
        """This share of leaves [settings, seeds, ...]."""
        return jax.tree.map(lambda leaf: leaf[self.settings, self.seeds], tree)

    def of_settings(self, tree: Any) -> Any:
        """This share of leaves [settings, ...]."""
        return jax.tree.map(lambda leaf: leaf[self.settings], tree)

    def of_seeds(self, tree: Any) -> Any:
        """This share of leaves [seeds, ...]."""
        return jax.tree.map(lambda leaf: leaf[self.seeds], tree)


class Shares:
    """Equal shares of at least `LEAST` policies, cut along the settings, or along the seeds if that gives none.

    They depend on nothing but the grid, so that a training gives the same numbers on every machine.

    Example:
        >>> [len(Shares(*grid).parts) for grid in ((12, 5), (12, 1), (1, 5), (1, 10))]
        [12, 2, 1, 2]
    """

    def __init__(self, settings: int, seeds: int) -> None:
        parts = _parts(settings, seeds)
        self._axis = 0 if parts > 1 else 1
        if parts > 1:
            self.parts = [Share(part, slice(None)) for part in _slices(settings, parts)]
        else:
            self.parts = [Share(slice(None), part) for part in _slices(seeds, _parts(seeds, settings))]
        self._compiled = False

    def map(self, function: Callable[[Share], Any]) -> Any:
        """`function` of every share, as many at a time as there are cores; leaves [settings, seeds, ...] are joined.

        The very first one runs alone: it compiles what the others then use.
        """
        done = []
        if not self._compiled:
            done.append(_finished(function(self.parts[0])))
            self._compiled = True
        with ThreadPoolExecutor(len(own_cores())) as pool:
            done += pool.map(lambda part: _finished(function(part)), self.parts[len(done) :])
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=self._axis), *done)


def _finished(tree: Any) -> Any:
    ready: Any = jax.block_until_ready
    return ready(tree)


def _parts(count: int, each: int) -> int:
    """The largest number of equal parts of `count` that have at least `LEAST` policies, `each` for one of `count`."""
    enough = [parts for parts in range(1, count + 1) if count % parts == 0 and count // parts * each >= LEAST]
    return max(enough, default=1)


def _slices(count: int, parts: int) -> list[slice]:
    size = count // parts
    return [slice(i * size, (i + 1) * size) for i in range(parts)]
