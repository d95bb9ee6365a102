"""Euclidean norms: the root of a sum of squares, whose slopes are known where those of a root are not.

A square root has no slope at 0, so a distance from a target would have none where it matters most. But with c >= 0,
f = sqrt(c + sum_k v_k^2) and for any two inputs

    f - f' = sum_k g_k (v_k - v_k'),     g_k = (v_k + v_k') / (f + f'),

and |v_k| <= f: g_k is in [-1, 1], and in the range of v_k over that of f.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from tether.certificates.enclosures import Enclosed
from tether.certificates.intervals import Interval, Unbounded, divide, fixed, meet, times
from tether.certificates.primitives import RULES

Read = Callable[[Any], Enclosed]
"""What is known of a variable."""


def as_norm(equation: Any, root: Enclosed, made: Mapping[Any, Any], read: Read) -> Enclosed:
    """A root with the slopes of a norm, where those are smaller and what is under it is a sum of squares.

    Args:
        equation: The root's.
        root: What is known of it.
        made: The equation that gives each variable.
        read: Of the variables so far.
    """
    change = _changes(equation.invars[0], root.range, made, read)
    if change is None:
        return root
    slopes = {}
    for group, slope in root.slopes.items():
        other = change.slopes.get(group)
        both = slope if other is None else meet(slope, other)
        slopes[group] = both if other is None else type(other)(*both)
    return root._replace(slopes=slopes)


def _changes(atom: Any, norm: Interval, made: Mapping[Any, Any], read: Read) -> Enclosed | None:
    """sum_k g_k v_k, of which only the slopes count; None if this is no sum of squares."""
    equation = None if isinstance(atom, jax_core.Literal) else made.get(atom)
    if equation is None:
        return None
    name = equation.primitive.name
    if _is_square(equation):
        value = read(equation.invars[0])
        share = _share(value.range, norm)
        return Enclosed(value.range, {group: times(share, slope) for group, slope in value.slopes.items()})
    if name == "reduce_sum":
        inner = _changes(equation.invars[0], norm, made, read)
        return None if inner is None else RULES[name](equation, inner)
    if name in ("add", "add_any"):
        parts = []
        for each in equation.invars:
            value = read(each)
            if not value.slopes and fixed(value.range) and np.all(value.range.low >= 0.0):
                continue
            part = _changes(each, norm, made, read)
            if part is None or value.range.low.shape != equation.outvars[0].aval.shape:
                return None
            parts.append(part)
        return RULES["add"](equation, *parts) if len(parts) == 2 else parts[0] if parts else None
    return None


def _is_square(equation: Any) -> bool:
    name, options = equation.primitive.name, equation.params
    if name == "mul":
        return bool(equation.invars[0] is equation.invars[1])
    return bool(name == "square" or (name == "integer_pow" and options["y"] == 2))


def _share(value: Interval, norm: Interval) -> Interval:
    """The g of the module."""
    ones = np.ones(value.low.shape, value.low.dtype)
    most = Interval(-ones, ones)
    if norm.low.shape not in ((), value.low.shape):
        return most
    return Interval(*meet(most, Unbounded(*divide(value, norm))))
