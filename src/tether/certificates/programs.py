"""What a function can give when its inputs lie in a box: ranges, and slopes over them, of any traced function.

A function written with `jax.numpy` is traced to a list of primitive operations (a jaxpr), and that list is evaluated on
intervals instead of numbers. Beside the range of every intermediate value the evaluation carries *slopes*: intervals
that hold (f(u) - f(v)) / (u_j - v_j) for u, v in the box that differ in input j only. They are those of derivatives
where there is one; a kink (`maximum`, `clip`, `abs`) has all slopes between those of its two sides, unless the range
says which side is meant; a jump (`where` with a condition that the box does not decide, `floor`) has infinite ones.

`enclose` then takes the smaller of two bounds for each output: the *natural* one, the range itself, and the
*mean-value* one, f(c) + slopes (x - c), with the centre c that makes it smallest (Baumann's bicentred form: a corner of
the box where the function is monotone there). The latter sees that x - x is 0, and that a feedback cancels what it
measures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from tether.certificates.intervals import (
    Array,
    Interval,
    Unbounded,
    exact,
    meet,
    outward,
    radius_of,
    times,
    total,
)
from tether.certificates.primitives import (
    BENT,
    CannotBound,
    Enclosed,
    concatenate_along,
    moved,
    outputs,
    place,
)

optimization_barrier: Any = jax.lax.optimization_barrier
NESTED = frozenset(
    ["jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call"]
)
"""Operations that hold a program of their own."""


class Program:
    """A traced function, to be evaluated on intervals.

    Args:
        function: Of one array [d], traceable by JAX, that gives one array [m].
        size: d.
        dtype: Of the input.
    """

    def __init__(self, function: Callable[[Array], Array], size: int, dtype: Any) -> None:
        closed = jax.make_jaxpr(function)(jnp.zeros(size, dtype))
        self._jaxpr, self._constants = closed.jaxpr, closed.consts

    def enclosed(self, box: Interval, slopes: bool) -> Enclosed:
        """Range and slopes of the outputs over a box [d]."""
        constants = [Enclosed(exact(each), None) for each in self._constants]
        if not slopes:
            (found,) = _evaluate(self._jaxpr, constants, [Enclosed(box, None)], None)
            return found
        identity = jnp.eye(box.low.shape[0], dtype=box.low.dtype)
        middle = 0.5 * box.low + 0.5 * box.high
        radius = radius_of(box)
        given = Enclosed(box, Interval(identity, identity), Interval(middle, middle))
        (found,) = _evaluate(self._jaxpr, constants, [given], radius)
        return _tight(found, radius)


def _evaluate(
    jaxpr: Any, constants: Sequence[Enclosed], inputs: Sequence[Enclosed], radius: Array | None
) -> list[Enclosed]:
    """The outputs; `radius` [d] is half the width of the box, None if no slopes are wanted."""
    known: dict[Any, Enclosed] = dict(zip(jaxpr.constvars, constants, strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))
    needed = _needed(jaxpr)

    def read(atom: Any) -> Enclosed:
        if isinstance(atom, jax_core.Literal):
            return Enclosed(exact(np.asarray(atom.val, jnp.result_type(atom.aval))), None)
        return known[atom]

    for equation, wanted in zip(jaxpr.eqns, needed, strict=True):
        if wanted:
            found = _apply(equation, [read(each) for each in equation.invars], radius)
            known |= dict(zip(equation.outvars, found, strict=True))
    return [read(each) for each in jaxpr.outvars]


def _needed(jaxpr: Any) -> list[bool]:
    """Which equations the outputs depend on: what is not used need not be boundable."""
    wanted = {each for each in jaxpr.outvars if not isinstance(each, jax_core.Literal)}
    needed = []
    for equation in reversed(jaxpr.eqns):
        used = any(each in wanted for each in equation.outvars)
        needed.append(used)
        if used:
            wanted |= {each for each in equation.invars if not isinstance(each, jax_core.Literal)}
    return needed[::-1]


def _apply(equation: Any, values: list[Enclosed], radius: Array | None) -> list[Enclosed]:
    name, options = equation.primitive.name, equation.params
    if name in NESTED:
        inner = next(options[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in options)
        constants = [Enclosed(exact(each), None) for each in getattr(inner, "consts", ())]
        try:
            return _evaluate(getattr(inner, "jaxpr", inner), constants, values, radius)
        except CannotBound as error:
            where = "" if " line " in str(error) else place(equation)
            raise CannotBound(f"{error}{where}") from None
    if name == "scan":
        return _scan(options, values, radius)
    if name in BENT and radius is not None:
        values = [_tight(each, radius) for each in values]
    found = outputs(equation, values)
    if all(each.middle is None for each in values):
        return found
    at_middle = [Enclosed(each.range if each.middle is None else each.middle, None) for each in values]
    middles = outputs(equation, at_middle)
    return [each._replace(middle=middle.range) for each, middle in zip(found, middles, strict=True)]


def _tight(value: Enclosed, radius: Array) -> Enclosed:
    """The value with the range that its slopes allow around the middle, where that is smaller."""
    if value.slope is None or value.middle is None or value.range.low.dtype.kind != "f":
        return value
    size = jnp.maximum(abs(value.slope.low), abs(value.slope.high))
    half = radius.reshape(-1, *[1] * (size.ndim - 1))
    away = jnp.where(half > 0.0, size * half, 0.0) if isinstance(value.slope, Unbounded) else size * half
    spread = total(away) * (1.0 + (len(radius) + 2.0) * float(np.finfo(size.dtype).eps))
    mean = outward(value.middle.low - spread, value.middle.high + spread)
    # A compiler that fuses everything would compute what comes before once for each use of it.
    found: Interval = optimization_barrier(meet(value.range, mean))
    return value._replace(range=found, slope=optimization_barrier(value.slope))


def _scan(options: Any, values: list[Enclosed], radius: Array | None) -> list[Enclosed]:
    """A loop of known length, turn by turn."""
    constants, carried = options["num_consts"], options["num_carry"]
    fixed, carry, series = (
        values[:constants],
        values[constants : constants + carried],
        values[constants + carried :],
    )
    body, length = options["jaxpr"], options["length"]
    inner = [Enclosed(exact(each), None) for each in body.consts]
    stacked: list[list[Enclosed]] = []
    order = range(length - 1, -1, -1) if options["reverse"] else range(length)
    for turn in order:
        now = [_turn(each, turn) for each in series]
        found = _evaluate(body.jaxpr, inner, [*fixed, *carry, *now], radius)
        carry = found[:carried]
        stacked.append(found[carried:])
    if options["reverse"]:
        stacked.reverse()
    return [
        *carry,
        *(_together([turn[i] for turn in stacked]) for i in range(len(stacked[0]) if stacked else 0)),
    ]


def _turn(value: Enclosed, turn: int) -> Enclosed:
    """One entry of a series."""
    found = moved(lambda array: array[turn], value)
    return (
        found
        if value.middle is None
        else found._replace(middle=Interval(*(end[turn] for end in value.middle)))
    )


def _together(values: list[Enclosed]) -> Enclosed:
    found = concatenate_along(0, [moved(lambda each: each[None], value) for value in values])
    middles = [value.range if value.middle is None else value.middle for value in values]
    return found._replace(middle=Interval(*(jnp.stack(ends) for ends in zip(*middles, strict=True))))


UPPER, LOWER = 1.0, -1.0
"""Which side of an output is bounded."""


def enclose(
    program: Program,
    box: Interval,
    sides: Sequence[tuple[int, float]] | None = None,
    over: Interval | None = None,
) -> tuple[Interval, Enclosed]:
    """The range of every output [m] over a box [d], by the better of two bounds; and natural ranges and slopes.

    Args:
        program: The function.
        box: Ends [d] of the inputs.
        sides: (output, `UPPER` or `LOWER`) that are worth the mean-value bound; all if None. The others keep the
            natural one.
        over: A box that holds `box`, over which slopes and natural ranges are taken, so that several boxes share them.
    """
    found = program.enclosed(box if over is None else over, True)
    natural, slope = found.range, found.slope
    if slope is None:
        return natural, found
    count = natural.low.shape[0]
    if sides is None:
        sides = [(i, side) for side in (UPPER, LOWER) for i in range(count)]
    places = np.array([output for output, _ in sides], dtype=int)
    signs = np.array([side for _, side in sides])
    bounds = _mean_values(program, box, slope, places, signs)
    high, low = natural.high, natural.low
    for side, end in ((UPPER, jnp.minimum), (LOWER, jnp.maximum)):
        which = places[signs == side]
        if side == UPPER:
            high = high.at[which].set(end(high[which], bounds[signs == side]))
        else:
            low = low.at[which].set(end(low[which], -bounds[signs == side]))
    return Interval(jnp.minimum(low, high), jnp.maximum(low, high)), found


def _mean_values(program: Program, box: Interval, slope: Interval, outputs: Any, signs: Any) -> Array:
    """Upper bounds on sign * f_output: at the centre that suits each, plus what the slopes allow from there."""
    middle, radius = 0.5 * box.low + 0.5 * box.high, 0.5 * box.high - 0.5 * box.low
    chosen = type(slope)(slope.low[:, outputs], slope.high[:, outputs])  # [d, k]
    mean, spread = 0.5 * chosen.low + 0.5 * chosen.high, 0.5 * chosen.high - 0.5 * chosen.low
    mixed = spread > abs(mean)  # the sign of the slope is not known
    share = jnp.where(mixed, mean / jnp.where(mixed, spread, 1.0), jnp.sign(mean))
    share = jnp.where(jnp.isfinite(share), share, 0.0)
    centres = middle[:, None] + jnp.asarray(signs, middle.dtype) * share * radius[:, None]
    centres = jnp.clip(centres, box.low[:, None], box.high[:, None])  # [d, k]
    values = jax.vmap(lambda centre: program.enclosed(Interval(centre, centre), False).range)(centres.T)
    place = (np.arange(len(outputs)), outputs)
    upper = jnp.where(signs > 0.0, values.high[place], -values.low[place])
    away = outward(box.low[:, None] - centres, box.high[:, None] - centres)
    moved = times(chosen, away)
    rise = jnp.where(signs > 0.0, moved.high, -moved.low)
    unit = (rise.shape[0] + 2.0) * float(np.finfo(rise.dtype).eps)
    return upper + total(rise) + unit * (abs(upper) + total(abs(rise)))
