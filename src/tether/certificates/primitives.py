"""What each primitive operation of a traced function does to ranges and slopes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates.enclosures import (
    CannotBound,
    Enclosed,
    Slopes,
    concatenate_along,
    moved,
    numpy_move,
    place,
)
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
    larger,
    library,
    negative,
    outward,
    power,
    reciprocal,
    step_slope,
    subtract,
    times,
    unsure,
)

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
MIXING = frozenset(["dot_general", "reduce_sum", "reduce_max", "reduce_min", "cumsum", "select_n"])
"""Operations after which an input may occur twice although it occurs once in each thing that they are given."""


def outputs(equation: Any, values: list[Enclosed]) -> list[Enclosed]:
    """Range and slopes of what an operation gives."""
    name, options = equation.primitive.name, equation.params
    kinds = {each.aval.dtype.kind for each in equation.outvars}
    if "f" not in kinds and all(not each.slopes and each.range.exact for each in values):
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
        return [_truth(_compare(name, *(unsure(each.range) for each in values)), *values)]
    rule = RULES.get(name)
    if rule is not None:
        return [rule(equation, *values)]
    if name in UNARY:
        return [_unary(UNARY[name], values[0])]
    if name in LINEAR:
        return [moved(partial(equation.primitive.bind, **options), values[0], numpy_move(name, options))]
    if all(not each.slopes and each.range.exact for each in values):
        return _known(equation, values)
    raise CannotBound(f"the operation {name!r} cannot be bounded over an interval{place(equation)}")


def _known(equation: Any, values: list[Enclosed]) -> list[Enclosed]:
    """Of single numbers that depend on no input."""
    found = equation.primitive.bind(*(each.range.low for each in values), **equation.params)
    several = found if equation.primitive.multiple_results else [found]
    return [Enclosed(exact(each), {}) for each in several]


def _lifted(name: str, value: Enclosed, shape: tuple[int, ...]) -> Enclosed:
    """A single number among arrays as an array, so that its slopes [g] are not taken for those of its entries."""
    if value.range.low.shape == shape or (not value.slopes and name not in CHOICES):
        return value
    return moved(partial(jnp.broadcast_to, shape=shape), value, lambda each: np.broadcast_to(each, shape))


def _unary(rule: Unary, value: Enclosed) -> Enclosed:
    found = rule.range(value.range)
    if not value.slopes:
        return Enclosed(found, {})
    derivative = rule.slope(value.range)
    return Enclosed(found, {group: times(derivative, slope) for group, slope in value.slopes.items()})


def _sum_of_slopes(first: Slopes, second: Slopes) -> Slopes:
    both = {group: add(slope, second[group]) for group, slope in first.items() if group in second}
    return {**first, **second, **both}


def _add(_: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    return Enclosed(add(first.range, second.range), _sum_of_slopes(first.slopes, second.slopes))


def _negative(slopes: Slopes) -> Slopes:
    return {group: negative(slope) for group, slope in slopes.items()}


def _subtract(_: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    return Enclosed(
        subtract(first.range, second.range), _sum_of_slopes(first.slopes, _negative(second.slopes))
    )


def _scaled(factor: Interval, slopes: Slopes) -> Slopes:
    return {group: times(factor, slope) for group, slope in slopes.items()}


def _times(equation: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    if equation is not None and equation.invars[0] is equation.invars[1]:
        return _whole_power(2, first)
    slopes = _sum_of_slopes(_scaled(second.range, first.slopes), _scaled(first.range, second.slopes))
    return Enclosed(times(first.range, second.range), slopes)


def _divide(_: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    inverse = reciprocal(second.range)
    quotient = times(first.range, inverse)
    under = _negative(_scaled(times(quotient, inverse), second.slopes)) if second.slopes else {}
    return Enclosed(quotient, _sum_of_slopes(_scaled(inverse, first.slopes), under))


def _extreme(larger: bool, first: Enclosed, second: Enclosed) -> Enclosed:
    """The larger (or smaller) of two; the slopes of that which it is, of both where it may be either."""
    one, other = first.range, second.range
    known = library(one.low, other.low, one.high, other.high)
    pick = known.maximum if larger else known.minimum
    low = pick(one.low, other.low)
    found = Interval(low, low if one.exact and other.exact else pick(one.high, other.high))
    if not first.slopes and not second.slopes:
        return Enclosed(found, {})
    one, other = unsure(one), unsure(other)
    is_first = one.low >= other.high if larger else one.high <= other.low
    is_second = other.low >= one.high if larger else other.high <= one.low
    return Enclosed(found, _either_slopes(is_first, is_second, first.slopes, second.slopes))


def _either(is_first: Array, is_second: Array, first: Interval, second: Interval) -> Interval:
    both = hull(first, second)
    ends = zip(first, second, both, strict=True)
    return type(both)(*(jnp.where(is_first, a, jnp.where(is_second, b, c)) for a, b, c in ends))


def _either_slopes(is_first: Array, is_second: Array, first: Slopes, second: Slopes) -> Slopes:
    """Those of the one or the other, zeros where it does not depend on a group; of both if it is not known."""
    found = {}
    for group in {**first, **second}:
        known = first[group] if group in first else second[group]
        zero = exact(np.zeros((), known.low.dtype))
        found[group] = _either(is_first, is_second, first.get(group, zero), second.get(group, zero))
    return found


def _clamp(_: Any, low: Enclosed, value: Enclosed, high: Enclosed) -> Enclosed:
    return _extreme(False, _extreme(True, value, low), high)


def _absolute(_: Any, value: Enclosed) -> Enclosed:
    found = _extreme(True, value, _negated(None, value))
    # The two sides are one number: of both it is the larger, and never below 0.
    low = larger(found.range.low, np.zeros((), found.range.low.dtype))
    return found._replace(range=Interval(low, low if value.range.exact else found.range.high))


def _negated(_: Any, value: Enclosed) -> Enclosed:
    return Enclosed(negative(value.range), _negative(value.slopes))


def _integer_power(equation: Any, value: Enclosed) -> Enclosed:
    return _whole_power(equation.params["y"], value)


def _whole_power(exponent: int, value: Enclosed) -> Enclosed:
    found = power(value.range, exponent)
    if not value.slopes:
        return Enclosed(found, {})
    factor = exact(np.asarray(float(exponent), value.range.low.dtype))
    derivative = times(power(value.range, exponent - 1), factor)
    return Enclosed(found, _scaled(derivative, value.slopes))


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

    def unless_negative(value: Interval) -> Interval:
        return Unbounded(jnp.where(held, value.low, -jnp.inf), jnp.where(held, value.high, jnp.inf))

    return Enclosed(
        unless_negative(found.range), {group: unless_negative(slope) for group, slope in found.slopes.items()}
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
    like = {group: slope for each in values for group, slope in each.slopes.items()}
    slopes = {}
    for group, slope in like.items():
        size = jnp.where(found.low == found.high, 0.0, jnp.inf).astype(slope.low.dtype)
        size = jnp.broadcast_to(size, (slope.low.shape[0], *size.shape))
        slopes[group] = Unbounded(-size, size)
    return Enclosed(found, slopes)


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
    # The condition is made of inputs, too: a jump counts for them as well.
    of_condition = {
        group: exact(np.zeros(np.shape(slope.low), slope.low.dtype))
        for group, slope in condition.slopes.items()
    }
    slopes = _either_slopes(
        sure, never, {**of_condition, **if_true.slopes}, {**of_condition, **if_false.slopes}
    )
    decided = jnp.logical_or(sure, never)
    jumps = {
        group: Unbounded(jnp.where(decided, slope.low, -jnp.inf), jnp.where(decided, slope.high, jnp.inf))
        for group, slope in slopes.items()
    }
    return Enclosed(found, jumps)


def _convert(equation: Any, value: Enclosed) -> Enclosed:
    kind, given = equation.params["new_dtype"], value.range.low.dtype
    whole = jnp.issubdtype(given, jnp.floating) and not jnp.issubdtype(kind, jnp.floating)
    if whole and not (not value.slopes and value.range.exact):
        raise CannotBound(f"a conversion of numbers to {kind} cannot be bounded; use floor{place(equation)}")
    found = moved(lambda each: each.astype(kind), value._replace(slopes={})).range
    if not value.range.exact and jnp.issubdtype(kind, jnp.floating):
        found = outward(*found)
    return Enclosed(found, value.slopes)


def _round(equation: Any, value: Enclosed) -> Enclosed:
    apply = partial(equation.primitive.bind, **equation.params)
    slopes = _scaled(step_slope(apply, value.range), value.slopes) if value.slopes else {}
    low = apply(value.range.low)
    return Enclosed(Interval(low, low if value.range.exact else apply(value.range.high)), slopes)


def _dot(equation: Any, first: Enclosed, second: Enclosed) -> Enclosed:
    options = equation.params
    apply = partial(equation.primitive.bind, **options)
    (contracted, _), _ = options["dimension_numbers"]
    terms = int(np.prod([first.range.low.shape[axis] for axis in contracted], initial=1))
    by_first, by_second = jax.vmap(apply, (0, None)), jax.vmap(apply, (None, 0))
    slopes = _sum_of_slopes(
        {group: dot(slope, second.range, by_first, terms) for group, slope in first.slopes.items()},
        {group: dot(first.range, slope, by_second, terms) for group, slope in second.slopes.items()},
    )
    return Enclosed(dot(first.range, second.range, apply, terms), slopes)


def _reduce_sum(equation: Any, value: Enclosed) -> Enclosed:
    apply = partial(equation.primitive.bind, **equation.params)
    terms = int(np.prod([value.range.low.shape[axis] for axis in equation.params["axes"]], initial=1))

    def summed(each: Interval, sum_up: Callable[[Array], Array]) -> Interval:
        unit = terms * float(np.finfo(each.low.dtype).eps)
        low, high = (sum_up(end) for end in each)
        off = [unit * sum_up(abs(end)) for end in each]
        return outward(low - off[0], high + off[1])

    slopes = {group: summed(slope, jax.vmap(apply)) for group, slope in value.slopes.items()}
    return Enclosed(summed(value.range, apply), slopes)


def _reduce_extreme(equation: Any, value: Enclosed) -> Enclosed:
    apply = partial(equation.primitive.bind, **equation.params)
    found = Interval(*(apply(end) for end in value.range))
    axes = tuple(axis + 1 for axis in equation.params["axes"])
    slopes = {
        group: type(slope)(jnp.min(slope.low, axis=axes), jnp.max(slope.high, axis=axes))
        for group, slope in value.slopes.items()
    }
    return Enclosed(found, slopes)


def _concatenate(equation: Any, *values: Enclosed) -> Enclosed:
    return concatenate_along(equation.params["dimension"], values)


def _stacked(equation: Any, *values: Enclosed) -> Enclosed:
    axis = equation.params["axis"]
    return concatenate_along(
        axis,
        [
            moved(partial(jnp.expand_dims, axis=axis), each, lambda array: np.expand_dims(array, axis))
            for each in values
        ],
    )


def _padded(equation: Any, value: Enclosed, filling: Enclosed) -> Enclosed:
    options = equation.params
    if filling.slopes:
        raise CannotBound(f"a padding that depends on the inputs cannot be bounded{place(equation)}")
    found = Interval(
        *(equation.primitive.bind(a, b, **options) for a, b in zip(value.range, filling.range, strict=True))
    )
    pad: Any = jax.vmap(lambda each: equation.primitive.bind(each, jnp.zeros((), each.dtype), **options))
    slopes = {
        group: type(slope)(*(pad(jnp.asarray(end)) for end in slope)) for group, slope in value.slopes.items()
    }
    return Enclosed(found, slopes)


def _remainder(equation: Any, value: Enclosed, divisor: Enclosed) -> Enclosed:
    """What is left after whole multiples, towards 0, as C has it."""
    if divisor.slopes or not divisor.range.exact:
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
    slopes = {
        group: Unbounded(jnp.where(same, slope.low, -jnp.inf), jnp.where(same, slope.high, jnp.inf))
        for group, slope in value.slopes.items()
    }
    return Enclosed(Interval(low, high), slopes)


def _indexed(equation: Any, value: Enclosed, *places: Enclosed) -> Enclosed:
    """`gather` and `dynamic_slice` at places that are known when the program is built."""
    if not all(each.range.exact and not each.slopes for each in places):
        raise CannotBound(f"an index that depends on the state cannot be bounded{place(equation)}")
    apply = partial(equation.primitive.bind, **equation.params)
    return moved(lambda array: apply(jnp.asarray(array), *(each.range.low for each in places)), value)


def _cumulative(equation: Any, value: Enclosed) -> Enclosed:
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    terms = value.range.low.shape[axis]

    def summed(each: Interval, axis: int) -> Interval:
        unit = terms * float(np.finfo(each.low.dtype).eps)
        low, high = (jax.lax.cumsum(end, axis, reverse) for end in each)
        off = [unit * jax.lax.cumsum(abs(end), axis, reverse) for end in each]
        return outward(low - off[0], high + off[1])

    slopes = {group: summed(slope, axis + 1) for group, slope in value.slopes.items()}
    return Enclosed(summed(value.range, axis), slopes)


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
