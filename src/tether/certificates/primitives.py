"""What each primitive operation of a traced function does to ranges and slopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates.intervals import (
    UNARY,
    Array,
    Interval,
    Unary,
    Unbounded,
    add,
    dot,
    exact,
    hull,
    negative,
    outward,
    power,
    reciprocal,
    step_slope,
    subtract,
    times,
)


class CannotBound(ValueError):
    """A function uses an operation that intervals are not known for."""


class Enclosed(NamedTuple):
    """What is known of an intermediate value."""

    range: Interval
    slope: Interval | None
    """[d, *shape] for each of the d inputs; None if it depends on none of them."""
    middle: Interval | None = None
    """Its value at the middle of the box; None if it depends on no input."""


LINEAR = frozenset(
    [
        "reshape",
        "broadcast_in_dim",
        "squeeze",
        "expand_dims",
        "transpose",
        "rev",
        "slice",
        "copy",
        "copy_p",
        "real",
        "stop_gradient",
    ]
)
"""Operations that move numbers and change none, with one argument."""
COMPARISONS = frozenset(["gt", "ge", "lt", "le", "eq", "ne"])
CHOICES = frozenset(["max", "min", "clamp", "select_n"])
ELEMENTWISE = (
    COMPARISONS | CHOICES | frozenset(["add", "add_any", "sub", "mul", "div", "and", "or", "rem", "pow"])
)
"""Operations on arrays of one shape, or single numbers among them."""
BENT = (
    frozenset(UNARY)
    | COMPARISONS
    | frozenset(
        [
            "mul",
            "div",
            "max",
            "min",
            "clamp",
            "abs",
            "integer_pow",
            "pow",
            "rem",
            "round",
            "reduce_max",
            "reduce_min",
            "dot_general",
        ]
    )
)
"""Operations that are not linear: what they are given is made as tight as can be."""


def outputs(equation: Any, values: list[Enclosed]) -> list[Enclosed]:
    """Range and slopes of what an operation gives."""
    name, options = equation.primitive.name, equation.params
    kinds = {each.aval.dtype.kind for each in equation.outvars}
    if "f" not in kinds and all(each.slope is None and each.range.exact for each in values):
        return _known(equation, values)
    if name in ELEMENTWISE:
        values = [_lifted(name, each, equation.outvars[0].aval.shape) for each in values]
    if name == "split":
        ends = np.cumsum(options["sizes"])
        starts = ends - np.asarray(options["sizes"])
        cut = partial(jax.lax.slice_in_dim, axis=options["axis"])
        return [
            moved(partial(cut, start_index=a, limit_index=b), values[0])
            for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
    if name in COMPARISONS:
        return [_truth(_compare(name, *(each.range for each in values)), *values)]
    rule = RULES.get(name)
    if rule is not None:
        return [rule(equation, *values)]
    if name in UNARY:
        return [_unary(UNARY[name], values[0])]
    if name in LINEAR:
        return [moved(partial(equation.primitive.bind, **options), values[0])]
    if all(each.slope is None and each.range.exact for each in values):
        return _known(equation, values)
    raise CannotBound(f"the operation {name!r} cannot be bounded over an interval{place(equation)}")


def _known(equation: Any, values: list[Enclosed]) -> list[Enclosed]:
    """Of single numbers that depend on no input."""
    found = equation.primitive.bind(*(each.range.low for each in values), **equation.params)
    several = found if equation.primitive.multiple_results else [found]
    return [Enclosed(exact(each), None) for each in several]


def _lifted(name: str, value: Enclosed, shape: tuple[int, ...]) -> Enclosed:
    """A single number among arrays as an array, so that its slopes [d] are not taken for those of its entries."""
    if value.range.low.shape == shape or (value.slope is None and name not in CHOICES):
        return value
    return moved(partial(jnp.broadcast_to, shape=shape), value)


def place(equation: Any) -> str:
    """Where in the user's code an operation stands."""
    try:
        from jax._src import source_info_util

        frame = source_info_util.user_frame(equation.source_info.traceback)
    except Exception:
        return ""
    return "" if frame is None else f"; it stands in {frame.file_name}, line {frame.start_line}"


def _unary(rule: Unary, value: Enclosed) -> Enclosed:
    found = rule.range(value.range)
    slope = None if value.slope is None else times(rule.slope(value.range), value.slope)
    return Enclosed(found, slope)


def moved(move: Callable[[Array], Array], value: Enclosed) -> Enclosed:
    """What a rearrangement of entries does, `move` being linear and exact."""
    low = move(value.range.low)
    found = Interval(low, low) if value.range.exact else type(value.range)(low, move(value.range.high))
    slope = None
    if value.slope is not None:
        slope = type(value.slope)(*(jax.vmap(move)(each) for each in value.slope))
    return Enclosed(found, slope)


def _sum_of_slopes(first: Interval | None, second: Interval | None) -> Interval | None:
    if first is None or second is None:
        return second if first is None else first
    return add(first, second)


def _spread(value: Enclosed, like: Interval | None) -> Interval:
    """The slopes of a value, zeros where it depends on nothing."""
    if value.slope is not None or like is None:
        assert value.slope is not None
        return value.slope
    zeros = jnp.zeros((like.low.shape[0], *value.range.low.shape), like.low.dtype)
    return Interval(zeros, zeros)


def _add(_: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    return Enclosed(add(first.range, second.range), _sum_of_slopes(first.slope, second.slope))


def _subtract(_: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    slope = None if second.slope is None else negative(second.slope)
    return Enclosed(subtract(first.range, second.range), _sum_of_slopes(first.slope, slope))


def _times(_: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    parts = [
        None if one.slope is None else times(other.range, one.slope)
        for one, other in ((first, second), (second, first))
    ]
    return Enclosed(times(first.range, second.range), _sum_of_slopes(*parts))


def _divide(_: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    inverse = reciprocal(second.range)
    quotient = times(first.range, inverse)
    over = None if first.slope is None else times(inverse, first.slope)
    under = None
    if second.slope is not None:
        under = negative(times(times(quotient, inverse), second.slope))
    return Enclosed(quotient, _sum_of_slopes(over, under))


def _extreme(larger: bool, first: Enclosed, second: Enclosed) -> Enclosed:
    """The larger (or smaller) of two; the slopes of that which it is, of both where it may be either."""
    one, other = first.range, second.range
    pick = jnp.maximum if larger else jnp.minimum
    low = pick(one.low, other.low)
    found = Interval(low, low if one.exact and other.exact else pick(one.high, other.high))
    like = first.slope if first.slope is not None else second.slope
    if like is None:
        return Enclosed(found, None)
    is_first = one.low >= other.high if larger else one.high <= other.low
    is_second = other.low >= one.high if larger else other.high <= one.low
    return Enclosed(found, _either(is_first, is_second, _spread(first, like), _spread(second, like)))


def _either(is_first: Array, is_second: Array, first: Interval, second: Interval) -> Interval:
    both = hull(first, second)
    ends = zip(first, second, both, strict=True)
    return type(both)(*(jnp.where(is_first, a, jnp.where(is_second, b, c)) for a, b, c in ends))


def _clamp(_: Any, low: Enclosed, value: Enclosed, high: Enclosed) -> Enclosed:
    return _extreme(False, _extreme(True, value, low), high)


def _absolute(_: Any, value: Enclosed) -> Enclosed:
    return _extreme(True, value, _negated(None, value))


def _negated(_: Any, value: Enclosed) -> Enclosed:
    return Enclosed(negative(value.range), None if value.slope is None else negative(value.slope))


def _integer_power(equation: Any, value: Enclosed) -> Enclosed:
    return _whole_power(equation.params["y"], value)


def _whole_power(exponent: int, value: Enclosed) -> Enclosed:
    slope = None
    if value.slope is not None:
        derivative = times(
            exact(jnp.asarray(float(exponent), value.range.low.dtype)), power(value.range, exponent - 1)
        )
        slope = times(derivative, value.slope)
    return Enclosed(power(value.range, exponent), slope)


WHOLE = frozenset(range(-16, 17))
"""Exponents for which a power is a product."""


def _real_power(_: Any, base: Enclosed, exponent: Enclosed) -> Enclosed:
    """base^exponent = exp(exponent log base), for bases that are not negative."""
    known = exponent.range.low
    if exponent.range.exact and isinstance(known, np.ndarray) and known.ndim == 0 and known.item() in WHOLE:
        return _whole_power(int(known), base)
    logarithm = _unary(UNARY["log"], base)
    found = _unary(UNARY["exp"], _times(None, exponent, logarithm))
    # A negative base has a power if the exponent is whole: the logarithm knows nothing of it.
    held = base.range.low >= 0.0
    ends = (-jnp.inf, jnp.inf)
    slope = found.slope
    if slope is not None:
        slope = Unbounded(*(jnp.where(held, a, b) for a, b in zip(slope, ends, strict=True)))
    return Enclosed(
        Unbounded(*(jnp.where(held, a, b) for a, b in zip(found.range, ends, strict=True))), slope
    )


def _compare(name: str, first: Interval, second: Interval) -> Interval:
    """Truth values: `low` is whether it holds for certain, `high` whether it may, as with what is not a number."""
    if name in ("lt", "le"):
        return _compare({"lt": "gt", "le": "ge"}[name], second, first)
    if name == "gt":
        return Interval(first.low > second.high, ~(first.high <= second.low))
    if name == "ge":
        return Interval(first.low >= second.high, ~(first.high < second.low))
    single = jnp.logical_and(first.low == first.high, second.low == second.high)
    same = Interval(
        jnp.logical_and(single, first.low == second.low),
        ~jnp.logical_or(first.low > second.high, second.low > first.high),
    )
    return same if name == "eq" else Interval(~same.high, ~same.low)


def _truth(found: Interval, *values: Enclosed) -> Enclosed:
    """Truth values, and slopes of what they are made of: infinite where the box does not decide, as a jump is."""
    like = next((each.slope for each in values if each.slope is not None), None)
    if like is None:
        return Enclosed(found, None)
    size = jnp.where(found.low == found.high, 0.0, jnp.inf).astype(like.low.dtype)
    size = jnp.broadcast_to(size, (like.low.shape[0], *size.shape))
    return Enclosed(found, Unbounded(-size, size))


def _not(_: Any, value: Enclosed) -> Enclosed:
    return _truth(Interval(~value.range.high, ~value.range.low), value)


def _and(_: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    return _truth(Interval(*(a & b for a, b in zip(first.range, second.range, strict=True))), first, second)


def _or(_: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    return _truth(Interval(*(a | b for a, b in zip(first.range, second.range, strict=True))), first, second)


def _select(equation: Any, condition: Enclosed, *cases: Enclosed) -> Enclosed:
    """`where`: the one or the other if the box decides it; else both, and slopes are infinite as it may jump."""
    if len(cases) != 2:
        raise CannotBound(f"a choice between {len(cases)} cases cannot be bounded{place(equation)}")
    if_false, if_true = cases
    sure, never = condition.range.low, ~condition.range.high
    if condition.range.low.dtype != bool:
        sure, never = condition.range.low == 1, condition.range.high == 0
    found = _either(sure, never, if_true.range, if_false.range)
    like = next((each.slope for each in (if_true, if_false, condition) if each.slope is not None), None)
    if like is None:
        return Enclosed(found, None)
    slope = _either(sure, never, _spread(if_true, like), _spread(if_false, like))
    decided = jnp.logical_or(sure, never)
    jump = Unbounded(jnp.where(decided, slope.low, -jnp.inf), jnp.where(decided, slope.high, jnp.inf))
    return Enclosed(found, jump)


def _convert(equation: Any, value: Enclosed) -> Enclosed:
    kind, given = equation.params["new_dtype"], value.range.low.dtype
    whole = jnp.issubdtype(given, jnp.floating) and not jnp.issubdtype(kind, jnp.floating)
    if whole and not (value.slope is None and value.range.exact):
        raise CannotBound(f"a conversion of numbers to {kind} cannot be bounded; use floor{place(equation)}")
    found = moved(lambda each: each.astype(kind), value._replace(slope=None)).range
    if not value.range.exact and jnp.issubdtype(kind, jnp.floating):
        found = outward(*found)
    return Enclosed(found, value.slope)


def _round(equation: Any, value: Enclosed) -> Enclosed:
    apply = partial(equation.primitive.bind, **equation.params)
    slope = None if value.slope is None else times(step_slope(apply, value.range), value.slope)
    low = apply(value.range.low)
    return Enclosed(Interval(low, low if value.range.exact else apply(value.range.high)), slope)


def _dot(equation: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    options = equation.params
    apply = partial(equation.primitive.bind, **options)
    (contracted, _), _ = options["dimension_numbers"]
    terms = int(np.prod([first.range.low.shape[axis] for axis in contracted], initial=1))
    slope = None
    if first.slope is not None:
        slope = dot(first.slope, second.range, jax.vmap(apply, (0, None)), terms)
    if second.slope is not None:
        other = dot(first.range, second.slope, jax.vmap(apply, (None, 0)), terms)
        slope = _sum_of_slopes(slope, other)
    return Enclosed(dot(first.range, second.range, apply, terms), slope)


def _reduce_sum(equation: Any, value: Enclosed) -> Enclosed:
    apply = partial(equation.primitive.bind, **equation.params)
    terms = int(np.prod([value.range.low.shape[axis] for axis in equation.params["axes"]], initial=1))

    def summed(each: Interval, sum_up: Callable[[Array], Array]) -> Interval:
        unit = terms * float(np.finfo(each.low.dtype).eps)
        low, high = (sum_up(end) for end in each)
        off = [unit * sum_up(abs(end)) for end in each]
        return outward(low - off[0], high + off[1])

    slope = None if value.slope is None else summed(value.slope, jax.vmap(apply))
    return Enclosed(summed(value.range, apply), slope)


def _reduce_extreme(equation: Any, value: Enclosed) -> Enclosed:
    apply = partial(equation.primitive.bind, **equation.params)
    found = Interval(*(apply(end) for end in value.range))
    slope = None
    if value.slope is not None:
        axes = tuple(axis + 1 for axis in equation.params["axes"])
        slope = type(value.slope)(jnp.min(value.slope.low, axis=axes), jnp.max(value.slope.high, axis=axes))
    return Enclosed(found, slope)


def _concatenate(equation: Any, *values: Enclosed) -> Enclosed:
    return concatenate_along(equation.params["dimension"], values)


def concatenate_along(axis: int, values: Sequence[Enclosed]) -> Enclosed:
    """One after the other along an axis."""
    low = jnp.concatenate([each.range.low for each in values], axis)
    known = all(each.range.exact for each in values)
    found = Interval(low, low if known else jnp.concatenate([each.range.high for each in values], axis))
    like = next((each.slope for each in values if each.slope is not None), None)
    if like is None:
        return Enclosed(found, None)
    slopes = [_spread(each, like) for each in values]
    kind = Unbounded if any(isinstance(each, Unbounded) for each in slopes) else Interval
    return Enclosed(found, kind(*(jnp.concatenate(ends, axis + 1) for ends in zip(*slopes, strict=True))))


def _stacked(equation: Any, *values: Enclosed) -> Enclosed:
    axis = equation.params["axis"]
    return concatenate_along(axis, [moved(partial(jnp.expand_dims, axis=axis), each) for each in values])


def _padded(equation: Any, value: Enclosed, filling: Enclosed) -> Enclosed:
    options = equation.params
    if filling.slope is not None:
        raise CannotBound(f"a padding that depends on the inputs cannot be bounded{place(equation)}")
    found = Interval(
        *(equation.primitive.bind(a, b, **options) for a, b in zip(value.range, filling.range, strict=True))
    )
    slope = None
    if value.slope is not None:
        pad: Any = jax.vmap(lambda each: equation.primitive.bind(each, jnp.zeros((), each.dtype), **options))
        slope = type(value.slope)(*(pad(each) for each in value.slope))
    return Enclosed(found, slope)


def _remainder(equation: Any, value: Enclosed, divisor: Enclosed) -> Enclosed:
    """What is left after whole multiples, towards 0, as C has it."""
    if divisor.slope is not None or not divisor.range.exact:
        raise CannotBound(
            f"a remainder by a number that depends on the inputs cannot be bounded{place(equation)}"
        )
    by = jnp.asarray(divisor.range.low, value.range.low.dtype)
    size = jnp.where(by == 0.0, jnp.inf, abs(by))
    # Wider than round-off of the quotient, so that it never hides a whole multiple.
    parts = [end / by for end in value.range]
    slack = 1e-6 * (1.0 + abs(parts[0]) + abs(parts[1]))
    turns = [jnp.trunc(jnp.minimum(*parts) - slack), jnp.trunc(jnp.maximum(*parts) + slack)]
    same = turns[0] == turns[1]
    ends = [end - turns[0] * by for end in value.range]
    unit = 4.0 * float(np.finfo(by.dtype).eps) * jnp.maximum(abs(value.range.low), abs(value.range.high))
    low = jnp.where(same, ends[0] - unit, jnp.where(value.range.low >= 0.0, 0.0, -size))
    high = jnp.where(same, ends[1] + unit, jnp.where(value.range.high <= 0.0, 0.0, size))
    slope = None
    if value.slope is not None:
        slope = Unbounded(
            jnp.where(same, value.slope.low, -jnp.inf), jnp.where(same, value.slope.high, jnp.inf)
        )
    return Enclosed(Interval(low, high), slope)


def _indexed(equation: Any, value: Enclosed, *places: Enclosed) -> Enclosed:
    """`gather` and `dynamic_slice` at places that are known when the program is built."""
    if not all(each.range.exact and each.slope is None for each in places):
        raise CannotBound(f"an index that depends on the state cannot be bounded{place(equation)}")
    apply = partial(equation.primitive.bind, **equation.params)
    return moved(lambda array: apply(array, *(each.range.low for each in places)), value)


def _cumulative(equation: Any, value: Enclosed) -> Enclosed:
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    terms = value.range.low.shape[axis]

    def summed(each: Interval, axis: int) -> Interval:
        unit = terms * float(np.finfo(each.low.dtype).eps)
        low, high = (jax.lax.cumsum(end, axis, reverse) for end in each)
        off = [unit * jax.lax.cumsum(abs(end), axis, reverse) for end in each]
        return outward(low - off[0], high + off[1])

    slope = None if value.slope is None else summed(value.slope, axis + 1)
    return Enclosed(summed(value.range, axis), slope)


RULES: dict[str, Callable[..., Enclosed]] = {
    "add": _add,
    "add_any": _add,
    "sub": _subtract,
    "mul": _times,
    "div": _divide,
    "neg": _negated,
    "max": lambda _, first, second: _extreme(True, first, second),
    "min": lambda _, first, second: _extreme(False, first, second),
    "clamp": _clamp,
    "abs": _absolute,
    "integer_pow": _integer_power,
    "pow": _real_power,
    "not": _not,
    "and": _and,
    "or": _or,
    "select_n": _select,
    "convert_element_type": _convert,
    "round": _round,
    "dot_general": _dot,
    "reduce_sum": _reduce_sum,
    "reduce_max": _reduce_extreme,
    "reduce_min": _reduce_extreme,
    "concatenate": _concatenate,
    "stack": _stacked,
    "pad": _padded,
    "rem": _remainder,
    "gather": _indexed,
    "dynamic_slice": _indexed,
    "cumsum": _cumulative,
}
"""Operations by the name of their primitive."""
