"""Intervals of numbers, rounded outward, and what functions of one number do to them.

Every operation rounds its ends outward by more than the floating-point error of the operation, so that the result holds
the true range in float32 and float64 alike. Infinite ends mean that nothing is known; a NaN can only come from inputs
that are NaN, and comparisons that grant freedom fail on it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Array: TypeAlias = Any
"""A JAX array."""


class Interval(NamedTuple):
    """All numbers between two ends, entry by entry. Ends that are the same object stand for exact numbers."""

    low: Array
    high: Array

    @property
    def exact(self) -> bool:
        """Whether it is known to be single numbers when the program is built."""
        return self.low is self.high


class Unbounded(Interval):
    """An interval whose ends may be infinite, because the program says so; `times` is careful with it.

    Where one is taken for a plain interval, 0 times infinity is NaN, which grants nothing.
    """


def exact(values: Any) -> Interval:
    """Single numbers."""
    # A number that is known when the program is built stays one of NumPy, so that it can be looked at.
    array = values if isinstance(values, jax.Array) else np.asarray(values)
    return Interval(array, array)


def fixed(value: Interval) -> bool:
    """Whether it is single numbers that are known when the program is built."""
    return value.exact and isinstance(value.low, np.ndarray | np.generic)


def library(*arrays: Any) -> Any:
    """NumPy for numbers that are known when the program is built, which cost nothing later; else JAX."""
    return np if all(isinstance(each, np.ndarray | np.generic | float) for each in arrays) else jnp


def smaller(first: Array, second: Array) -> Array:
    """The minimum, entry by entry."""
    return library(first, second).minimum(first, second)


def larger(first: Array, second: Array) -> Array:
    """The maximum, entry by entry."""
    return library(first, second).maximum(first, second)


def hull(first: Interval, second: Interval) -> Interval:
    """The smallest interval that holds both."""
    found = Interval(smaller(first.low, second.low), larger(first.high, second.high))
    return _like(found, first, second)


def meet(first: Interval, second: Interval) -> Interval:
    """What both allow; one that is empty by round-off is a single number."""
    low, high = larger(first.low, second.low), smaller(first.high, second.high)
    return Interval(smaller(low, high), larger(low, high))


_ROUNDED: ContextVar[bool] = ContextVar("rounded", default=True)


@contextmanager
def unrounded() -> Iterator[None]:
    """Programs that are built in here do not round outward: for looking around, where the result is checked later."""
    token = _ROUNDED.set(False)
    try:
        yield
    finally:
        _ROUNDED.reset(token)


def outward(low: Array, high: Array, units: float = 1.0) -> Interval:
    """Both ends moved outward by `units` of round-off, and by the smallest normal number."""
    if not _ROUNDED.get() or not jnp.issubdtype(low.dtype, jnp.floating):
        return Interval(low, high)
    finfo = np.finfo(low.dtype)
    unit, tiny = units * float(finfo.eps), float(finfo.tiny)
    return Interval(low - (unit * abs(low) + tiny), high + (unit * abs(high) + tiny))


TIE = 1e-10
"""What counts as the same in programs that do not round outward, relative to the numbers and at least to 1."""


def unsure(value: Interval) -> Interval:
    """What is compared where a program decides by it, as at a kink: wider if the program does not round outward.

    Slopes jump there. A program that does not round must not see one side where rounded ranges hold both.
    """
    if _ROUNDED.get() or value.exact or not jnp.issubdtype(value.low.dtype, jnp.floating):
        return value
    return Interval(value.low - TIE * (1.0 + abs(value.low)), value.high + TIE * (1.0 + abs(value.high)))


def radius_of(box: Interval) -> Array:
    """Half the width, and what rounding the middle may have moved it by."""
    middle = 0.5 * box.low + 0.5 * box.high
    return outward(box.low, jnp.maximum(box.high - middle, middle - box.low), 2.0).high


def add(first: Interval, second: Interval) -> Interval:
    """The sum."""
    return _like(outward(first.low + second.low, first.high + second.high), first, second)


def _like(found: Interval, *parts: Interval) -> Interval:
    """Unbounded if one of the parts is."""
    return Unbounded(*found) if any(isinstance(each, Unbounded) for each in parts) else found


def subtract(first: Interval, second: Interval) -> Interval:
    """The difference of two numbers that have nothing to do with each other."""
    return _like(outward(first.low - second.high, first.high - second.low), first, second)


def negative(value: Interval) -> Interval:
    """The negative, exactly."""
    low = -value.high
    return Interval(low, low) if value.exact else type(value)(low, -value.low)


def times(first: Interval, second: Interval) -> Interval:
    """The product. 0 times infinity is 0: what is 0 stays so however large the other is."""
    if first.exact and not second.exact:
        first, second = second, first
    if fixed(second) and np.all(second.low == 1.0):
        return _stretched(first, np.shape(second.low))
    careful = isinstance(first, Unbounded) or isinstance(second, Unbounded)
    product = _careful_product if careful else operator.mul
    ends = [product(first.low, second.low)]
    if not first.exact:
        ends += [product(first.high, second.low)]
    if not second.exact:
        ends += [product(first.low, second.high), product(first.high, second.high)]
    low, high = ends[0], ends[-1]
    # The sign of a number that is known tells which end is which.
    if fixed(second) and np.all(second.low <= 0.0):
        low, high = high, low
    elif not (fixed(second) and np.all(second.low >= 0.0)):
        low = high = ends[0]
        for each in ends[1:]:
            low, high = smaller(low, each), larger(high, each)
    found = outward(low, high)
    return Unbounded(*found) if careful else found


def _stretched(value: Interval, shape: tuple[int, ...]) -> Interval:
    """The same numbers in a shape that they broadcast to together with `shape`."""
    wanted = np.broadcast_shapes(np.shape(value.low), shape)
    if wanted == np.shape(value.low):
        return value
    low = library(value.low).broadcast_to(value.low, wanted)
    return type(value)(low, low if value.exact else library(value.high).broadcast_to(value.high, wanted))


def _careful_product(first: Array, second: Array) -> Array:
    zero = jnp.logical_or(first == 0.0, second == 0.0)
    # Nothing infinite is multiplied by 0, whose derivative would be NaN.
    return jnp.where(zero, 0.0, jnp.where(zero, 1.0, first) * jnp.where(zero, 1.0, second))


def divide(first: Interval, second: Interval) -> Interval:
    """The quotient; nothing is known if the divisor may be 0."""
    return times(first, reciprocal(second))


def reciprocal(value: Interval) -> Interval:
    """One over it."""
    possible = jnp.logical_or(value.low > 0.0, value.high < 0.0)
    low, high = (1.0 / jnp.where(possible, end, 1.0) for end in (value.high, value.low))
    found = outward(low, high)
    if isinstance(value.low, np.ndarray) and value.exact and bool(np.all(value.low != 0.0)):
        return found
    return Unbounded(jnp.where(possible, found.low, -jnp.inf), jnp.where(possible, found.high, jnp.inf))


def total(array: Array, axis: int = 0) -> Array:
    """The sum over a short axis, term by term: a compiler fuses that with what comes before and after."""
    count = array.shape[axis]
    if count > 16:
        return jnp.sum(array, axis=axis)
    terms = [jax.lax.index_in_dim(array, i, axis, keepdims=False) for i in range(count)]
    found = terms[0] if terms else jnp.zeros(array.shape[:axis] + array.shape[axis + 1 :], array.dtype)
    for each in terms[1:]:
        found = found + each
    return found


def contains_zero(value: Interval) -> Array:
    """Whether 0 is in it."""
    return jnp.logical_and(value.low <= 0.0, value.high >= 0.0)


def dot(first: Interval, second: Interval, apply: Callable[[Array, Array], Array], terms: int) -> Interval:
    """A bilinear function `apply`, such as a matrix product whose entries are sums of `terms` products."""
    middle, other = (0.5 * each.low + 0.5 * each.high for each in (first, second))
    radius, other_radius = (
        jnp.maximum(each.high - at, at - each.low) for each, at in ((first, middle), (second, other))
    )
    value = apply(middle, other)
    size = apply(abs(middle), abs(other))
    spread = apply(abs(middle), other_radius) + apply(radius, abs(other) + other_radius)
    unit = (terms + 8.0) * float(np.finfo(value.dtype).eps)
    spread = spread * (1.0 + unit) + unit * size
    return outward(value - spread, value + spread)


# What each operation does to a range, and its derivative over a range, for functions of one number.


def _rising(function: Callable[[Array], Array], units: float = 4.0) -> Callable[[Interval], Interval]:
    return lambda value: outward(function(value.low), function(value.high), units)


def _square(value: Interval) -> Interval:
    low, high = value.low * value.low, value.high * value.high
    found = outward(smaller(low, high), larger(low, high))
    return Interval(jnp.where(contains_zero(value), 0.0, jnp.maximum(found.low, 0.0)), found.high)


def power(value: Interval, exponent: int) -> Interval:
    """A whole power."""
    if exponent == 0:
        return exact(jnp.ones_like(value.low))
    if exponent < 0:
        return reciprocal(power(value, -exponent))
    if exponent == 1:
        return value
    if exponent % 2 == 0:
        return power(_square(value), exponent // 2)
    return outward(value.low**exponent, value.high**exponent, 2.0 * exponent)


def _root(value: Interval) -> Interval:
    low, high = (jnp.sqrt(jnp.maximum(end, 0.0)) for end in value)
    return outward(low, high, 2.0)


def _root_slope(value: Interval) -> Interval:
    return reciprocal_of_positive(times(exact(jnp.asarray(2.0, value.low.dtype)), _root(value)))


def reciprocal_of_positive(value: Interval) -> Interval:
    """One over a number that is not negative; infinite at 0."""
    low, high = (jnp.where(end > 0.0, 1.0 / jnp.where(end > 0.0, end, 1.0), jnp.inf) for end in value)
    found = outward(jnp.where(jnp.isfinite(high), high, 0.0), jnp.where(jnp.isfinite(low), low, 0.0))
    return Unbounded(
        jnp.where(jnp.isfinite(high), jnp.maximum(found.low, 0.0), high),
        jnp.where(jnp.isfinite(low), found.high, jnp.inf),
    )


def _logarithm(value: Interval, function: Callable[[Array], Array], least: float) -> Interval:
    low, high = (jnp.where(end > least, end, least + 1.0) for end in value)
    found = outward(function(low), function(high), 4.0)
    return Unbounded(
        jnp.where(value.low > least, found.low, -jnp.inf),
        jnp.where(value.high > least, found.high, jnp.where(value.high == least, -jnp.inf, jnp.nan)),
    )


def _log_slope(value: Interval, shift: float) -> Interval:
    return reciprocal_of_positive(Interval(*(jnp.maximum(end + shift, 0.0) for end in value)))


def _tanh_slope(value: Interval) -> Interval:
    squared = _square(_rising(jnp.tanh)(value))
    return Interval(jnp.maximum(0.0, 1.0 - squared.high), jnp.minimum(1.0, 1.0 - squared.low + 1e-6))


def _logistic_slope(value: Interval) -> Interval:
    share = _rising(jax.nn.sigmoid)(value)
    ends = [each * (1.0 - each) for each in share]
    low, high = jnp.minimum(*ends), jnp.maximum(*ends)
    peak = jnp.logical_and(share.low <= 0.5, share.high >= 0.5)
    return outward(jnp.maximum(low, 0.0), jnp.where(peak, 0.25, high), 8.0)


def _wave(value: Interval, function: Callable[[Array], Array], peak: float) -> Interval:
    """Sine or cosine, whose largest values are at `peak` + 2 pi k."""
    turn = 2.0 * math.pi
    # A little wider than the interval, so that round-off of pi never hides a peak.
    slack = 1e-6 * (1.0 + abs(value.low) + abs(value.high))
    low, high = value.low - slack, value.high + slack
    tops = jnp.floor((high - peak) / turn) >= jnp.ceil((low - peak) / turn)
    bottoms = jnp.floor((high - peak - math.pi) / turn) >= jnp.ceil((low - peak - math.pi) / turn)
    ends = function(value.low), function(value.high)
    found = outward(jnp.minimum(*ends), jnp.maximum(*ends), 8.0)
    return Interval(
        jnp.where(bottoms, -1.0, jnp.maximum(found.low, -1.0)),
        jnp.where(tops, 1.0, jnp.minimum(found.high, 1.0)),
    )


_sine = partial(_wave, function=jnp.sin, peak=0.5 * math.pi)
_cosine = partial(_wave, function=jnp.cos, peak=0.0)


def step_slope(function: Callable[[Array], Array], value: Interval) -> Interval:
    """Of a staircase that rises: 0 on a step, infinite across one."""
    near = unsure(value)
    same = function(near.low) == function(near.high)
    return Unbounded(jnp.zeros_like(value.low), jnp.where(same, 0.0, jnp.inf))


def _above_one(value: Interval) -> Interval:
    return add(exact(jnp.ones((), value.low.dtype)), value)


def _cube_root_slope(value: Interval) -> Interval:
    root = _rising(jnp.cbrt)(value)
    return reciprocal_of_positive(times(exact(jnp.asarray(3.0, value.low.dtype)), _square(root)))


class Unary(NamedTuple):
    """A function of one number."""

    range: Callable[[Interval], Interval]
    slope: Callable[[Interval], Interval]
    """Its derivative over a range."""


UNARY: dict[str, Unary] = {
    "exp": Unary(_rising(jnp.exp), _rising(jnp.exp)),
    "expm1": Unary(_rising(jnp.expm1), _rising(jnp.exp)),
    "log": Unary(lambda v: _logarithm(v, jnp.log, 0.0), lambda v: _log_slope(v, 0.0)),
    "log1p": Unary(lambda v: _logarithm(v, jnp.log1p, -1.0), lambda v: _log_slope(v, 1.0)),
    "sqrt": Unary(_root, _root_slope),
    "tanh": Unary(_rising(jnp.tanh), _tanh_slope),
    "logistic": Unary(_rising(jax.nn.sigmoid), _logistic_slope),
    "sin": Unary(_sine, _cosine),
    "cos": Unary(_cosine, lambda v: negative(_sine(v))),
    "square": Unary(_square, lambda v: Interval(2.0 * v.low, 2.0 * v.high)),
    "floor": Unary(_rising(jnp.floor, 0.0), partial(step_slope, jnp.floor)),
    "ceil": Unary(_rising(jnp.ceil, 0.0), partial(step_slope, jnp.ceil)),
    "atan": Unary(_rising(jnp.arctan), lambda v: reciprocal_of_positive(_above_one(_square(v)))),
    "cbrt": Unary(_rising(jnp.cbrt), _cube_root_slope),
    "sign": Unary(_rising(jnp.sign, 0.0), partial(step_slope, jnp.sign)),
}
"""Functions of one number, by the name of their primitive."""
