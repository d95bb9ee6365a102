"""A user's functions in two precisions.

JAX (0.10) takes the type of a NumPy array that a function closes over for that of the precision in which it met the
array first. A plant is played and audited in float64 and learned on in float32: the same array in both is refused, with
an error that names no line of the user's. So each precision has a copy of the function, with copies of its arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np


class TwoPrecisions:
    """The function, whose arrays are met in one precision only.

    Arrays are found among the globals, the closure and the defaults of a plain function, and of those that it calls
    from the same module.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> high = np.ones(2)
        >>> cut = jax.jit(TwoPrecisions(lambda x: jnp.minimum(x, high)))
        >>> with jax.enable_x64(True):
        ...     print(cut(np.array([0.5, 2.0])).dtype)
        float64
        >>> print(cut(np.array([0.5, 2.0], dtype=np.float32)).dtype)
        float32
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._copies: dict[bool, Callable[..., Any]] = {}

    def __call__(self, *given: Any) -> Any:
        """Call the copy for the precision that JAX is in."""
        import jax

        config: Any = jax.config
        wide = bool(config.jax_enable_x64)
        if wide not in self._copies:
            self._copies[wide] = _copied(self.function, getattr(self.function, "__module__", None), {})
        return self._copies[wide](*given)


def in_two_precisions(function: Any) -> Any:
    """`TwoPrecisions` of a function, once; of None nothing."""
    return function if function is None or isinstance(function, TwoPrecisions) else TwoPrecisions(function)


def _copied(value: Any, module: str | None, known: dict[int, Any]) -> Any:
    """A copy of an array, or of a plain function of that module with copies of what it uses; else the value itself."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if not isinstance(value, FunctionType) or value.__module__ != module:
        return value
    if id(value) not in known:
        names, closure = dict(value.__globals__), tuple(CellType() for _ in value.__closure__ or ())
        made = FunctionType(value.__code__, names, value.__name__, None, closure or None)
        known[id(value)] = made
        made.__defaults__ = _each(value.__defaults__, module, known)
        made.__kwdefaults__ = value.__kwdefaults__ and {
            name: _copied(each, module, known) for name, each in value.__kwdefaults__.items()
        }
        for name in set(_names(value.__code__)) & names.keys():
            names[name] = _copied(names[name], module, known)
        for cell, given in zip(closure, value.__closure__ or (), strict=True):
            cell.cell_contents = _copied(given.cell_contents, module, known)
    return known[id(value)]


def _each(values: tuple[Any, ...] | None, module: str | None, known: dict[int, Any]) -> Any:
    return values and tuple(_copied(each, module, known) for each in values)


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function and those within it look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
