"""What XLA is told when it compiles a program of tether's.

A value that many others are made of is best computed once. XLA's fusion on a CPU computes it again for each of them:
programs of interval analysis had twice as many operations as needed, and took twice as long. What has a barrier around
it (`computed_once`) stays apart, but only if XLA does not drop the barriers before it fuses, which on a CPU is its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Values = TypeVar("Values")


def compiler_options(long: bool = False) -> dict[str, Any]:
    """For `jax.jit(..., compiler_options=...)`, of a program that is not part of another one; imports JAX.

    Args:
        long: Of a program of many thousand operations. XLA's older emitter compiles it in half of the time, to code
            that is about as fast; of short programs it makes code that is half as fast.
    """
    import jax

    if jax.default_backend() != "cpu":
        return {}
    keep_barriers = {"xla_disable_hlo_passes": "cse_barrier_expander"}
    return keep_barriers | ({"xla_cpu_use_fusion_emitters": False} if long else {})


def computed_once(values: Values) -> Values:
    """The same nest of arrays, each of them computed once; those of NumPy are known already. Imports JAX."""
    import jax

    apart: Callable[[jax.Array], jax.Array] = jax.lax.optimization_barrier
    kept: dict[int, jax.Array] = {}  # ends of an interval may be one object, and must stay so

    def computed(value: object) -> object:
        if not isinstance(value, jax.Array):
            return value
        if id(value) not in kept:
            kept[id(value)] = apart(value)
        return kept[id(value)]

    found: Values = jax.tree.map(computed, values)
    return found
