"""What XLA is told when it compiles a program of tether's.

A value that many others are made of is best computed once. XLA's fusion on a CPU computes it again for each of them:
programs of interval analysis had twice as many operations as needed, and took twice as long. What has a barrier around
it (`computed_once`) stays apart, but only if XLA does not drop the barriers before it fuses, which on a CPU is its way.
"""

from __future__ import annotations

from typing import TypeVar

Values = TypeVar("Values")


def compiler_options() -> dict[str, str]:
    """For `jax.jit(..., compiler_options=...)`, of a program that is not part of another one; imports JAX."""
    import jax

    return {"xla_disable_hlo_passes": "cse_barrier_expander"} if jax.default_backend() == "cpu" else {}


def computed_once(values: Values) -> Values:
    """The same nest of arrays, each of them computed once; those of NumPy are known already. Imports JAX."""
    import jax

    kept: dict[int, jax.Array] = {}  # ends of an interval may be one object, and must stay so

    def computed(value: object) -> object:
        if not isinstance(value, jax.Array):
            return value
        if id(value) not in kept:
            kept[id(value)] = jax.lax.optimization_barrier(value)
        return kept[id(value)]

    found: Values = jax.tree.map(computed, values)
    return found
