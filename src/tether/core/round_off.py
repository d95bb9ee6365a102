"""How exact a value is, by its type."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

FLOAT32 = float(np.finfo(np.float32).eps)
"""Relative round-off of float32, 1.2e-7."""
FLOAT64 = sys.float_info.epsilon
"""Relative round-off of float64, 2.2e-16."""

_FLOAT64 = np.dtype(float)
_BY_SIZE = {1: 0.25, 2: 2.0**-7, 8: FLOAT64}
"""Round-off of a floating-point type of so many bytes, the coarsest that there is."""


def round_off(value: object) -> float:
    """The relative round-off of a value's type; the coarsest of its size if it is not one of NumPy's.

    Plain numbers and whole ones count as float64, which says nothing of where they came from: see `tether.Guard`.
    """
    if type(value) is float:
        return FLOAT64
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return FLOAT64
    # Of the usual types, and of others by what NumPy or torch says of them.
    whole = getattr(dtype, "kind", "") in ("i", "u", "b") or not getattr(dtype, "is_floating_point", True)
    if whole or dtype == np.float64:
        return FLOAT64
    try:
        return float(np.finfo(dtype).eps)
    except (TypeError, ValueError):  # torch's and ml_dtypes' own types
        return _BY_SIZE.get(getattr(dtype, "itemsize", 0), FLOAT32)


def coarsest(value: object) -> float:
    """The largest `round_off` of a value's parts; mappings, lists, tuples and arrays of objects are looked into."""
    if isinstance(value, float) or (type(value) is np.ndarray and value.dtype is _FLOAT64):
        return FLOAT64
    if isinstance(value, Mapping):
        value = list(value.values())
    elif getattr(getattr(value, "dtype", None), "kind", "") == "O":
        value = list(cast(Any, value).flat)
    if isinstance(value, list | tuple):
        return max([coarsest(entry) for entry in value], default=FLOAT64)
    return round_off(value)
