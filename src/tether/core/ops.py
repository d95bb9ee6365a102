"""The operations that certificates and structures are written in: one small set, three implementations.

A certificate is a pure function of (state, numbers), written once. The online guard runs it on plain floats (`FLOATS`),
because a round concerns single numbers and arrays would take ten times as long, or on NumPy arrays (`NUMPY`) where
some of the state are arrays; a compiled rollout runs the same code on JAX arrays (`jax_ops()`). What code may call on
the numbers that it is handed is Python's arithmetic (`+ - * / **`, comparisons, `abs`) and the methods of `Ops`; no
`if` on values, since a compiled program has none.

**Numbers that are not ordinary.** `maximum`, `minimum` and `clip` hand NaN on in all three (Python's own `max` and
`min` do so for one order of their arguments only), and `sqrt`, `exp`, `log`, `sin` and the like give NaN or an
infinity where Python's `math` raises. Dividing a plain float by zero, or raising one to a power that overflows, still
raises; the guard takes any exception of a certificate for an assumption breach. A comparison with NaN is false, so
freedom must be granted by a comparison that holds (`spent <= allowed`), never by the failure of one.

**Types.** `Number`, `Flag` and `Array` say what a value *means*. A type checker sees float, bool and a NumPy array,
which is what they are online; in a rollout they are JAX arrays that behave alike.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tether.core.round_off import FLOAT32 as FLOAT32
from tether.core.round_off import FLOAT64 as FLOAT64
from tether.core.round_off import coarsest as coarsest
from tether.core.round_off import round_off as round_off

Number: TypeAlias = float
"""One number a case: a float online, a scalar or [N] array elsewhere."""
Flag: TypeAlias = bool
"""One truth value a case."""
Array: TypeAlias = NDArray[np.float64]
"""Several numbers a case, [..., n]."""

Carry = TypeVar("Carry")
Values = TypeVar("Values")
Choice = TypeVar("Choice")
Inputs = TypeVar("Inputs")


class Ops(Protocol):
    """What a certificate or a structure may call on numbers; see the module for what holds for all of them.

    Example:
        >>> FLOATS.maximum(1.0, 2.0), FLOATS.where(True, 1.0, 2.0), FLOATS.sqrt(-1.0)
        (2.0, 1.0, nan)
    """

    cases: int
    """Axes of every value that count cases before its own: 1 in a fleet (`tether.core.fleet_ops`), else 0."""
    lazy: bool  # whether `unless` computes only what is asked for, and a loop ends where it may

    # One number a case.
    def maximum(self, first: Number, second: Number) -> Number:
        """The larger; NaN if either is."""

    def minimum(self, first: Number, second: Number) -> Number:
        """The smaller; NaN if either is."""

    def clip(self, value: Number, low: Number, high: Number) -> Number:
        """`value` cut to [low, high]; NaN if any of the three is."""

    def where(self, condition: Flag, if_true: Choice, if_false: Choice) -> Choice:
        """The one or the other; both are computed."""

    def unless(self, condition: Flag, value: Choice, otherwise: Callable[[], Choice]) -> Choice:
        """The value where the condition holds, elsewhere what `otherwise` gives; floats compute it only there."""

    def branch(
        self, condition: Flag, if_true: Callable[[], Values], if_false: Callable[[], Values]
    ) -> Values:
        """What the one or the other gives, a number or a nest of them; for those that are `lazy` only."""

    def odd(self, flag: Flag) -> Flag:
        """The flag, which holds in rounds that are out of the ordinary; lines that are written end where it does."""

    def turning(self, falls: Callable[[Number], Flag], last: Number, most: int) -> Number:
        """The first whole number from 1 on at which something no longer `falls`, which it does up to there; or `last`.

        `last` is `most` at most. Floats try the first few first, as it mostly turns there.
        """

    def abs(self, value: Number) -> Number:
        """The absolute value; `abs(value)` does the same."""

    def sqrt(self, value: Number) -> Number:
        """The square root; NaN below 0."""

    def exp(self, value: Number) -> Number:
        """The exponential function of the value."""

    def expm1(self, value: Number) -> Number:
        """The exponential minus 1, exact near 0."""

    def expm1_multiple(self, count: Number, unit: float) -> Number:
        """The exponential of count * unit minus 1, for a whole number `count` or infinity."""

    def log(self, value: Number) -> Number:
        """The natural logarithm; minus infinity at 0, NaN below."""

    def log1p(self, value: Number) -> Number:
        """The logarithm of 1 + value, exact near 0."""

    def sin(self, value: Number) -> Number:
        """The sine, radians."""

    def cos(self, value: Number) -> Number:
        """The cosine, radians."""

    def tanh(self, value: Number) -> Number:
        """The hyperbolic tangent."""

    def floor(self, value: Number) -> Number:
        """The largest whole number that is not larger."""

    def mod(self, value: Number, period: Number) -> Number:
        """What is left after whole periods, in [0, period) for a positive period."""

    def isfinite(self, value: Number) -> Flag:
        """Whether it is neither infinite nor NaN."""

    def logical_and(self, first: Flag, second: Flag) -> Flag:
        """Whether both hold."""

    def logical_or(self, first: Flag, second: Flag) -> Flag:
        """Whether either holds."""

    def logical_not(self, value: Flag) -> Flag:
        """Whether it does not hold."""

    def largest(self, values: Sequence[Number]) -> Number:
        """The largest of several numbers; NaN if any is."""

    def largest_of(self, function: Callable[..., Number], given: Sequence[tuple[Number, ...]]) -> Number:
        """The largest `function(*each)` of several tuples of numbers; NaN if any is. Compiled, the function is once."""

    # Several numbers a case: arrays, as in NumPy, `jax.numpy` and the array API standard. Not in `FLOATS`.
    def asarray(self, values: Any, dtype: Any = ...) -> Any:
        """The values as an array."""

    def zeros(self, shape: int) -> Any:
        """An array of `shape` zeros, [n]."""

    def zeros_like(self, array: Any) -> Any:
        """Zeros in the shape and type of the array."""

    def arange(self, start: int, stop: int = ...) -> Any:
        """Whole numbers from `start` up to and without `stop`, or from 0."""

    def concat(self, arrays: Sequence[Any], axis: int = ...) -> Any:
        """The arrays joined along an axis that they have."""

    def stack(self, arrays: Sequence[Any], axis: int = ...) -> Any:
        """The arrays joined along a new axis."""

    def sum(self, array: Any, axis: int = ..., keepdims: bool = ...) -> Any:
        """The sum over an axis."""

    def max(self, array: Any, axis: int = ..., keepdims: bool = ...) -> Any:
        """The largest over an axis."""

    def min(self, array: Any, axis: int = ..., keepdims: bool = ...) -> Any:
        """The smallest over an axis."""

    def all(self, array: Any, axis: int = ..., keepdims: bool = ...) -> Any:
        """Whether every entry along an axis is true."""

    def cumulative_sum(self, array: Any, axis: int = ...) -> Any:
        """Sums up to each entry."""

    def flip(self, array: Any, axis: int = ...) -> Any:
        """The entries in the opposite order along an axis."""

    def sort(self, array: Any, axis: int = ...) -> Any:
        """The entries in rising order along an axis."""

    def argsort(self, array: Any, axis: int = ...) -> Any:
        """The places of the entries in rising order."""

    def take_along_axis(self, array: Any, places: Any, axis: int = ...) -> Any:
        """The entries at these places."""

    # What belongs to the kind of number.
    def epsilon(self, value: Number | Array) -> float:
        """Relative round-off of the type in which `value` is computed with."""

    def limit(self, value: Number | Array) -> float:
        """The largest magnitude that is computed with: its products are still far from overflow.

        Its inverse is the smallest that counts: the digits of what is far below it are lost.
        """

    def loop(
        self,
        count: int,
        body: Callable[[Carry], Carry],
        carry: Carry,
        until: Callable[[Carry], Flag],
    ) -> Carry:
        """`body` applied `count` times; on floats only until `until` holds. Compiled, it is compiled once."""

    def at_boundary(
        self, excess: Callable[[Inputs, Number], Number], inputs: Inputs, share: Number, inside: Flag
    ) -> Number:
        """The share at which excess(inputs, share) = 0, with the derivative in `inputs` that this implies.

        Where it is not `inside`, or the excess does not rise there, the derivative is 0.
        """

    def fixed(self, values: Values) -> Values:
        """The values as constants, where derivatives are taken."""

    def over(self, function: Callable[[Any], Any], values: Any) -> Any:
        """`function` of each entry of `values` [n, ...], stacked to an array; compiled, all at once."""


class _Floats:
    """The operations of `Ops` on plain Python floats."""

    cases, lazy = 0, True

    def __reduce__(self) -> str:
        return "FLOATS"  # there is one: a copy is the same object

    @staticmethod
    def maximum(first: Number, second: Number) -> Number:
        return first if first >= second or first != first else second

    @staticmethod
    def minimum(first: Number, second: Number) -> Number:
        return first if first <= second or first != first else second

    @staticmethod
    def clip(value: Number, low: Number, high: Number) -> Number:
        return value if low <= value <= high else _Floats.minimum(_Floats.maximum(value, low), high)

    @staticmethod
    def where(condition: Flag, if_true: Choice, if_false: Choice) -> Choice:
        return if_true if condition else if_false

    @staticmethod
    def unless(condition: Flag, value: Choice, otherwise: Callable[[], Choice]) -> Choice:
        return value if condition else otherwise()

    @staticmethod
    def branch(condition: Flag, if_true: Callable[[], Values], if_false: Callable[[], Values]) -> Values:
        return if_true() if condition else if_false()

    @staticmethod
    def odd(flag: Flag) -> Flag:
        return flag

    @staticmethod
    def turning(falls: Callable[[Number], Flag], last: Number, most: int) -> Number:
        low = high = 1.0
        while high < last and falls(high):
            low, high = high + 1.0, min(2.0 * high, last)
        for _ in range(most.bit_length()):
            if low >= high:
                break
            middle = (low + high) // 2.0
            if falls(middle):
                low = middle + 1.0
            else:
                high = middle
        return low

    abs = staticmethod(abs)
    tanh = staticmethod(math.tanh)
    isfinite = staticmethod(math.isfinite)

    @staticmethod
    def sqrt(value: Number) -> Number:
        return math.sqrt(value) if value >= 0.0 else math.nan

    @staticmethod
    def sin(value: Number) -> Number:
        return math.sin(value) if math.isfinite(value) else math.nan

    @staticmethod
    def cos(value: Number) -> Number:
        return math.cos(value) if math.isfinite(value) else math.nan

    @staticmethod
    def exp(value: Number) -> Number:
        try:
            return math.exp(value)
        except OverflowError:
            return math.inf

    @staticmethod
    def expm1(value: Number) -> Number:
        try:
            return math.expm1(value)
        except OverflowError:
            return math.inf

    @staticmethod
    def expm1_multiple(count: Number, unit: float) -> Number:
        try:
            return math.expm1(count * unit)
        except OverflowError:
            return math.inf

    @staticmethod
    def log(value: Number) -> Number:
        return math.log(value) if value > 0.0 else -math.inf if value == 0.0 else math.nan

    @staticmethod
    def log1p(value: Number) -> Number:
        return math.log1p(value) if value > -1.0 else -math.inf if value == -1.0 else math.nan

    @staticmethod
    def floor(value: Number) -> Number:
        return float(math.floor(value)) if math.isfinite(value) else value

    @staticmethod
    def mod(value: Number, period: Number) -> Number:
        return value % period if math.isfinite(value) else math.nan

    @staticmethod
    def logical_and(first: Flag, second: Flag) -> Flag:
        return first and second

    @staticmethod
    def logical_or(first: Flag, second: Flag) -> Flag:
        return first or second

    @staticmethod
    def logical_not(value: Flag) -> Flag:
        return not value

    @staticmethod
    def largest(values: Sequence[Number]) -> Number:
        total = sum(values)
        # Python's max keeps a NaN only where it comes first; a sum has one wherever it is.
        return max(values) if total == total else _largest(values)

    @staticmethod
    def largest_of(function: Callable[..., Number], given: Sequence[tuple[Number, ...]]) -> Number:
        return _Floats.largest([function(*each) for each in given])

    @staticmethod
    def epsilon(value: Number | Array) -> float:  # noqa: ARG004
        return FLOAT64

    @staticmethod
    def limit(value: Number | Array) -> float:  # noqa: ARG004
        return _LIMIT64

    @staticmethod
    def loop(
        count: int, body: Callable[[Carry], Carry], carry: Carry, until: Callable[[Carry], Flag]
    ) -> Carry:
        for _ in range(count):
            carry = body(carry)
            if until(carry):
                break
        return carry

    @staticmethod
    def at_boundary(
        excess: Callable[[Inputs, Number], Number],  # noqa: ARG004
        inputs: Inputs,  # noqa: ARG004
        share: Number,
        inside: Flag,  # noqa: ARG004
    ) -> Number:
        return share

    @staticmethod
    def fixed(values: Values) -> Values:
        return values

    @staticmethod
    def over(function: Callable[[Any], Any], values: Any) -> Any:
        return np.array([function(each) for each in values])


def _largest(values: Sequence[Number]) -> Number:
    """The largest, or NaN if one is; infinities of both signs add up to NaN, so that a sum alone does not tell."""
    return math.nan if any(value != value for value in values) else max(values)


class Arrays:
    """The functions of an array namespace, NumPy or JAX, under the names of `Ops`."""

    cases, lazy = 0, False

    def __init__(self, namespace: ModuleType) -> None:
        self._namespace = namespace

    def __reduce__(self) -> Any:
        return "NUMPY"

    def __getattr__(self, name: str) -> Any:
        # Found once; after that it is an attribute like any other.
        function = getattr(self._namespace, name)
        setattr(self, name, function)
        return function

    def expm1_multiple(self, count: Number, unit: float) -> Number:
        """See `Ops`."""
        return self.expm1(count * unit)  # type: ignore[no-any-return]

    def unless(self, condition: Flag, value: Choice, otherwise: Callable[[], Choice]) -> Choice:
        """See `Ops`."""
        return self.where(condition, value, otherwise())  # type: ignore[no-any-return]

    odd = staticmethod(_Floats.odd)

    def turning(self, falls: Callable[[Number], Flag], last: Number, most: int) -> Number:
        """See `Ops`."""
        low, high = 1.0, last
        for _ in range(most.bit_length()):
            middle = self.floor((low + high) / 2.0)
            falling = falls(middle)
            low = self.where(falling, middle + 1.0, low)
            high = self.where(falling, high, middle)
        return self.minimum(low, last)  # type: ignore[no-any-return]

    def largest(self, values: Sequence[Number]) -> Number:
        """See `Ops`."""
        largest = values[0]
        for value in values[1:]:
            largest = self._namespace.maximum(largest, value)
        return largest

    def largest_of(self, function: Callable[..., Number], given: Sequence[tuple[Number, ...]]) -> Number:
        """See `Ops`."""
        return self.largest([function(*each) for each in given])

    def epsilon(self, value: Number | Array) -> float:
        """See `Ops`."""
        return round_off(value)

    def limit(self, value: Number | Array) -> float:
        """See `Ops`."""
        return _LIMIT64 if round_off(value) <= FLOAT64 else _LIMIT32

    def loop(
        self,
        count: int,
        body: Callable[[Carry], Carry],
        carry: Carry,
        until: Callable[[Carry], Flag],  # noqa: ARG002
    ) -> Carry:
        """See `Ops`."""
        return FLOATS.loop(count, body, carry, lambda _: False)

    def at_boundary(
        self,
        excess: Callable[[Inputs, Number], Number],  # noqa: ARG002
        inputs: Inputs,  # noqa: ARG002
        share: Number,
        inside: Flag,  # noqa: ARG002
    ) -> Number:
        """See `Ops`."""
        return share

    def fixed(self, values: Values) -> Values:
        """See `Ops`."""
        return values

    over = staticmethod(_Floats.over)


_LIMIT64, _LIMIT32 = 1e100, 1e15
_QUIET = contextlib.nullcontext()
FLOATS = cast(Ops, _Floats())
"""Plain floats: `Ops` without arrays."""
NUMPY = cast(Ops, Arrays(np))
"""NumPy arrays."""


def quietly(ops: Ops) -> contextlib.AbstractContextManager[Any]:
    """Without NumPy's warnings of overflow, which certificates deal with themselves; plain floats have none."""
    return _QUIET if ops is FLOATS else np.errstate(all="ignore")


@cache
def jax_ops() -> Ops:
    """JAX arrays; imports JAX."""
    import jax.numpy

    from tether.core.jax_ops import Jax

    return cast(Ops, Jax(jax.numpy))


def namespace(value: Any) -> Any:
    """The array namespace that `value` lives in; NumPy for plain numbers."""
    return value.__array_namespace__() if hasattr(value, "__array_namespace__") else np
