"""Many episodes as several runs of one compiled program, side by side."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tether.engines.pinning import own_cores


def in_parts(
    play: Callable[[Any, Any], dict[str, Any]], given: tuple[Any, Any], lanes: int
) -> dict[str, Any]:
    """play(drawn, keys) with `lanes` episodes at a time, as many at once as there are cores; as if in one run.

    A long program with many intermediate values is fastest on so few episodes that these stay in a core's cache, and
    all parts have one shape, so that it compiles once.

    Args:
        play: Gives arrays [H, N, ...].
        given: What was drawn, arrays [H, N, ...], and the keys of the episodes [N].
        lanes: Episodes of a part; the last one is filled up with its last episode.
    """
    drawn, keys = given
    count = keys.shape[0]
    starts = range(0, count, lanes)
    wide = jnp.zeros(()).dtype == np.float64  # of this thread; the others compute in the same precision

    def part(start: int) -> dict[str, Any]:
        places = np.minimum(np.arange(start, start + lanes), count - 1)
        with jax.enable_x64(bool(wide)):
            found = play(jax.tree.map(lambda each: each[:, places], drawn), keys[places])
            return {name: np.asarray(values) for name, values in found.items()}  # when it is computed

    first = part(0)  # compiles
    with ThreadPoolExecutor(len(own_cores())) as pool:
        found = [first, *pool.map(part, starts[1:])]
    return {name: np.concatenate([each[name] for each in found], axis=1)[:, :count] for name in first}
