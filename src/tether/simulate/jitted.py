"""`eqx.filter_jit` with what `tether.core.compiler` tells XLA."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import equinox as eqx

from tether.core.compiler import compiler_options

try:
    from jax._src.core import trace_state_clean
except (
    ImportError
):  # not a promise of JAX's: then every program is compiled as a part would be, and is slower

    def trace_state_clean() -> bool:
        """Whether nothing is being traced; here, unknown."""
        return False


Given = ParamSpec("Given")
Found = TypeVar("Found")


class jitted(Generic[Given, Found]):  # noqa: N801
    """Compile a function or a method; within another compiled program it becomes a part of that.

    An argument whose attribute `long` is true makes for a long program, see `tether.core.compiler`.

    Args:
        function: Of arrays and of anything else, as `equinox.filter_jit` takes it.

    Example:
        >>> import jax.numpy as jnp
        >>> doubled = jitted(lambda values: 2.0 * values)
        >>> float(doubled(jnp.ones(())))
        2.0
    """

    def __init__(self, function: Callable[Given, Found]) -> None:
        self._function = function
        self._compiled: dict[str, Callable[Given, Found]] = {}
        update_wrapper(self, function)

    def _program(self, kind: str) -> Callable[Given, Found]:
        if kind not in self._compiled:
            jit: Any = eqx.filter_jit  # whose types do not know of compiler_options
            options = {} if kind == "part" else {"compiler_options": compiler_options(kind == "long")}
            self._compiled[kind] = jit(self._function, **options)
        return self._compiled[kind]

    def __call__(self, *given: Given.args, **named: Given.kwargs) -> Found:
        """Run it."""
        if not trace_state_clean():
            return self._program("part")(*given, **named)
        long = any(getattr(each, "long", False) for each in (*given, *named.values()))
        return self._program("long" if long else "short")(*given, **named)

    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., Found]:
        return self if instance is None else partial(self, instance)
