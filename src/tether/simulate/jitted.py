"""`eqx.filter_jit` with what `tether.core.compiler` tells XLA."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial, update_wrapper
from typing import Any

import equinox as eqx
import jax

from tether.core.compiler import compiler_options


class jitted:  # noqa: N801
    """Compile a function or a method; within another compiled program it becomes a part of that.

    Args:
        function: Of arrays and of anything else, as `equinox.filter_jit` takes it.

    Example:
        >>> doubled = jitted(lambda values: 2.0 * values)
        >>> float(doubled(jax.numpy.ones(())))
        2.0
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        update_wrapper(self, function)

    @cached_property
    def _inner(self) -> Callable[..., Any]:
        compiled: Callable[..., Any] = eqx.filter_jit(self._function)
        return compiled

    @cached_property
    def _outer(self) -> Callable[..., Any]:
        compiled: Callable[..., Any] = eqx.filter_jit(self._function, compiler_options=compiler_options())
        return compiled

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Run it."""
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((given, named)))
        return (self._inner if traced else self._outer)(*given, **named)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else partial(self, instance)
