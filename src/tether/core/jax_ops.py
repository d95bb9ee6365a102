"""The operations of `tether.core.ops.Ops` in a compiled program; JAX is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

from tether.core.ops import Arrays, Carry, Flag, Inputs, Number, Ops, Values, jax_ops


class Jax(Arrays):
    """JAX's own ways of what a compiled program does differently."""

    def __reduce__(self) -> Any:
        return jax_ops, ()

    def loop(
        self,
        count: int,
        body: Callable[[Carry], Carry],
        carry: Carry,
        until: Callable[[Carry], Flag],  # noqa: ARG002
    ) -> Carry:
        """See `Ops`."""
        import jax

        looped: Carry = jax.lax.fori_loop(0, count, lambda _, each: body(each), carry)
        return looped

    def at_boundary(
        self, excess: Callable[[Inputs, Number], Number], inputs: Inputs, share: Number, inside: Flag
    ) -> Number:
        """See `Ops`."""
        import jax

        where, logical_and = self._namespace.where, self._namespace.logical_and

        @jax.custom_jvp
        def unchanged(inputs: Any, share: Any, inside: Any) -> Any:  # noqa: ARG001
            return share

        @unchanged.defjvp
        def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
            inputs, share, inside = primals
            short = 1e-3 * share
            value, change = jax.jvp(lambda inputs: excess(inputs, share), (inputs,), (tangents[0],))
            slope = value - excess(inputs, share - short)
            usable = logical_and(inside, slope > 0.0)
            return share, -change * where(usable, short, 0.0) / where(usable, slope, 1.0)

        found: Number = unchanged(inputs, share, inside)
        return found

    def fixed(self, values: Values) -> Values:
        """See `Ops`."""
        import jax

        return jax.lax.stop_gradient(values)

    def over(self, function: Callable[[Any], Any], values: Any) -> Any:
        """See `Ops`."""
        import jax

        return jax.vmap(function)(self._namespace.asarray(values))


class JaxOnline(Jax):
    """For one episode at a time: a search ends when it has found."""

    def __reduce__(self) -> Any:
        return online_jax_ops, ()

    def loop(
        self,
        count: int,
        body: Callable[[Carry], Carry],
        carry: Carry,
        until: Callable[[Carry], Flag],
    ) -> Carry:
        """See `Ops`."""
        import jax

        def more(counted: Any) -> Any:
            turn, each = counted
            return self._namespace.logical_and(turn < count, self._namespace.logical_not(until(each)))

        looped: Carry = jax.lax.while_loop(more, lambda c: (c[0] + 1, body(c[1])), (0, carry))[1]
        return looped


@cache
def online_jax_ops() -> Ops:
    """JAX arrays, for one episode at a time; imports JAX."""
    import jax.numpy

    return cast(Ops, JaxOnline(jax.numpy))
