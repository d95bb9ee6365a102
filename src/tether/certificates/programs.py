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
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from tether.certificates.enclosures import CannotBound, Enclosed, concatenate_along, moved, place
from tether.certificates.intervals import (
    Array,
    Interval,
    Unbounded,
    exact,
    larger,
    meet,
    outward,
    radius_of,
    times,
    total,
)
from tether.certificates.norms import as_norm
from tether.certificates.primitives import BENT, MIXING, outputs
from tether.core.compiler import computed_once

NESTED = frozenset(
    ["jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call"]
)
"""Operations that hold a program of their own."""


class Program:
    """A traced function, to be evaluated on intervals.

    Args:
        function: Of one array [d], traceable by JAX, that gives an array or several.
        sizes: How many inputs each group has, d in all; a number stands for so many groups of one input each. Slopes
            are kept by group: small groups leave out what does not depend on them, large ones make short programs.
        dtype: Of the input.
    """

    def __init__(self, function: Callable[[Array], Any], sizes: Sequence[int] | int, dtype: Any) -> None:
        self.sizes = (1,) * sizes if isinstance(sizes, int) else tuple(sizes)
        self._dtype = np.dtype(dtype)
        closed = jax.make_jaxpr(lambda u: jax.tree.leaves(function(u)))(jnp.zeros(sum(self.sizes), dtype))
        self._jaxpr, self._constants = closed.jaxpr, closed.consts

    def enclosed(self, box: Interval, slopes: bool) -> list[Enclosed]:
        """Range and slopes of each output over a box [d]."""
        constants = [Enclosed(exact(each), {}) for each in self._constants]
        if not slopes:
            return _evaluate(self._jaxpr, constants, [Enclosed(box, {})], None)
        rows = np.split(np.eye(sum(self.sizes), dtype=self._dtype), np.cumsum(self.sizes)[:-1])
        middle = 0.5 * box.low + 0.5 * box.high
        radius = self.split(radius_of(box))
        identity = {group: exact(each) for group, each in enumerate(rows) if len(each)}
        given = Enclosed(box, identity, Interval(middle, middle))
        found = _evaluate(self._jaxpr, constants, [given], radius)
        return [_tight(each, radius) for each in found]

    def split(self, values: Array) -> tuple[Array, ...]:
        """[d] by group."""
        return tuple(values[each] for each in places_of(self.sizes))

    def split_box(self, box: Interval) -> tuple[Interval, ...]:
        """A box of the first few groups, by group."""
        return tuple(
            Interval(box.low[each], box.high[each])
            for each in places_of(self.sizes)
            if each.stop <= box.low.shape[0]
        )


def places_of(sizes: Sequence[int]) -> list[slice]:
    """Where each group stands among the inputs."""
    ends = np.cumsum(sizes, dtype=int).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def dense(value: Enclosed, sizes: Sequence[int]) -> Unbounded:
    """[d, *shape]: the slopes for every input, zeros included."""
    shape, dtype = np.shape(value.range.low), value.range.low.dtype
    zero = {group: exact(np.zeros((size, *shape), dtype)) for group, size in enumerate(sizes)}
    rows = [value.slopes.get(group, zero[group]) for group in zero]
    return Unbounded(*(jnp.concatenate([each[side] for each in rows]) for side in (0, 1)))


Radius: TypeAlias = Sequence[Array] | None
"""Half the width of the box by group, [g] each; None if no slopes are wanted."""


def _evaluate(
    jaxpr: Any, constants: Sequence[Enclosed], inputs: Sequence[Enclosed], radius: Radius
) -> list[Enclosed]:
    """The outputs."""
    known: dict[Any, Enclosed] = dict(zip(jaxpr.constvars, constants, strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))
    needed = _needed(jaxpr)
    made = {each: equation for equation in jaxpr.eqns for each in equation.outvars}

    def read(atom: Any) -> Enclosed:
        if isinstance(atom, jax_core.Literal):
            aval: Any = atom.aval
            return Enclosed(exact(np.asarray(atom.val, aval.dtype)), {})
        return known[atom]

    for equation, wanted in zip(jaxpr.eqns, needed, strict=True):
        if wanted:
            found = _apply(equation, [read(each) for each in equation.invars], radius)
            if equation.primitive.name == "sqrt" and found[0].slopes:
                found = [as_norm(equation, found[0], made, read)]
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


def _apply(equation: Any, values: list[Enclosed], radius: Radius) -> list[Enclosed]:
    name, options = equation.primitive.name, equation.params
    if name in NESTED:
        inner = next(options[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in options)
        constants = [Enclosed(exact(each), {}) for each in getattr(inner, "consts", ())]
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
    at_middle = [Enclosed(each.range if each.middle is None else each.middle, {}) for each in values]
    middles = outputs(equation, at_middle)
    once = _once(equation, values)
    return [
        each._replace(middle=middle.range, once=once) for each, middle in zip(found, middles, strict=True)
    ]


def _once(equation: Any, values: list[Enclosed]) -> bool:
    """Whether no input occurs twice in what an operation gives."""
    groups = [group for each in values for group in each.slopes]
    same = len(equation.invars) == 2 and equation.invars[0] is equation.invars[1]  # a square
    apart = len(set(groups)) == len(groups) or same
    return apart and all(each.once for each in values) and equation.primitive.name not in MIXING


def _tight(value: Enclosed, radius: Sequence[Array]) -> Enclosed:
    """The value with the range that its slopes allow around the middle, where that is smaller; computed once."""
    if not value.slopes or value.middle is None or value.once or value.range.low.dtype.kind != "f":
        return value
    spread: Any = 0.0
    terms = 2.0
    for group, slope in value.slopes.items():
        size = larger(abs(slope.low), abs(slope.high))
        half = radius[group].reshape(-1, *[1] * (size.ndim - 1))
        away = jnp.where(half > 0.0, size * half, 0.0) if isinstance(slope, Unbounded) else size * half
        spread = spread + total(away)
        terms += len(half)
    spread = spread * (1.0 + terms * float(np.finfo(spread.dtype).eps))
    mean = outward(value.middle.low - spread, value.middle.high + spread)
    return computed_once(value._replace(range=meet(value.range, mean)))


def _scan(options: Any, values: list[Enclosed], radius: Radius) -> list[Enclosed]:
    """A loop of known length, turn by turn."""
    constants, carried = options["num_consts"], options["num_carry"]
    fixed, carry, series = (
        values[:constants],
        values[constants : constants + carried],
        values[constants + carried :],
    )
    body, length = options["jaxpr"], options["length"]
    inner = [Enclosed(exact(each), {}) for each in body.consts]
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
    found = moved(lambda array: array[turn], value, lambda array: array[turn])._replace(once=value.once)
    if value.middle is None:
        return found
    return found._replace(middle=Interval(*(end[turn] for end in value.middle)))


def _together(values: list[Enclosed]) -> Enclosed:
    rows = [moved(lambda each: each[None], value, lambda each: each[None]) for value in values]
    middles = [value.range if value.middle is None else value.middle for value in values]
    middle = Interval(*(jnp.stack(ends) for ends in zip(*middles, strict=True)))
    return concatenate_along(0, rows)._replace(middle=middle, once=all(value.once for value in values))


UPPER, LOWER = 1.0, -1.0
"""Which side of an output is bounded."""


def enclose(
    program: Program, box: Interval, sides: Sequence[tuple[int, float]] | None = None
) -> tuple[Interval, Enclosed]:
    """The range of every entry of the output [m] over a box [d], by the better of two bounds; ranges and slopes.

    Args:
        program: A function with one output.
        box: Ends [d] of the inputs.
        sides: (entry, `UPPER` or `LOWER`) that are worth the mean-value bound; all if None. The others keep the
            natural one.
    """
    (found,) = program.enclosed(box, True)
    natural = found.range
    if not found.slopes:
        return natural, found
    if sides is None:
        sides = [(i, side) for side in (UPPER, LOWER) for i in range(natural.low.shape[0])]
    places = np.array([output for output, _ in sides], dtype=int)
    signs = np.array([side for _, side in sides])
    bounds = _mean_values(program, box, dense(found, program.sizes), places, signs)
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
    values = jax.vmap(lambda centre: program.enclosed(Interval(centre, centre), False)[0].range)(centres.T)
    place = (np.arange(len(outputs)), outputs)
    upper = jnp.where(signs > 0.0, values.high[place], -values.low[place])
    away = outward(box.low[:, None] - centres, box.high[:, None] - centres)
    moved = times(chosen, away)
    rise = jnp.where(signs > 0.0, moved.high, -moved.low)
    unit = (rise.shape[0] + 2.0) * float(np.finfo(rise.dtype).eps)
    return upper + total(rise) + unit * (abs(upper) + total(abs(rise)))
