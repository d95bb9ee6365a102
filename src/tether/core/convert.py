"""What strangers hand over (actions, costs, observations, saved states) as plain numbers of our own.

Nothing that is returned shares memory with what was given: whoever owns a buffer may overwrite it at once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_NUMBERS = "biufVO"
"""NumPy's kinds of what may be numbers: V are types that NumPy does not know (bfloat16), O are objects."""
_REAL = (float, int)
_PLAIN = frozenset({float, bool})
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def as_number(value: Any) -> float:
    """A cost or a reward as a float; NaN if it is no number."""
    if type(value) is float:
        return value
    try:
        number = value.item() if hasattr(value, "item") else value
        return math.nan if isinstance(number, str | bytes) else float(number)
    except Exception:  # whatever a stranger's object does when it is asked for a number
        return math.nan


def as_array(value: Any) -> Any:
    """`value` as an array of float64, a copy; an exception if it is not made of numbers."""
    # A tensor may be on another device, or of a type that NumPy does not know; it knows its own numbers.
    array = np.asarray(value.detach().tolist() if hasattr(value, "detach") else value)
    if array.dtype.kind not in _NUMBERS:
        raise TypeError(f"expected numbers, got {text(value)}")
    return array.astype(float)


def as_action(value: Any, shape: tuple[int, ...]) -> Any:
    """`value` as a finite float (for the shapes () and (1,)) or as [n], a copy; None if it is no such thing.

    Where an action is one number, any array of one number is as good.
    """
    try:
        if shape and shape != (1,):
            array = as_array(value)
            return array if array.shape == shape and np.all(np.isfinite(array)) else None
        number = float(value) if isinstance(value, _REAL) else as_array(value).item()
    except Exception:  # whatever a stranger's object does when it is asked for numbers
        return None
    return number if math.isfinite(number) else None


def copied(value: Any) -> Any:
    """A deep copy, of a tensor without its derivatives; what cannot be copied as its text."""
    try:
        return copy.deepcopy(value.detach() if hasattr(value, "detach") else value)
    except Exception:  # locks, files, generators
        return text(value)


def text(value: Any) -> str:
    """`repr(value)`, also where a stranger's object fails at it."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def plain_numbers(value: Any) -> Any:
    """An observation or action as a monitor gets it: arrays as lists, and nothing that its owner may change.

    What cannot be copied, and a stranger's object that raises, is there as its text.
    """
    if isinstance(value, float):
        return value
    try:
        return _plain(value)
    except Exception:
        return text(value)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain_numbers(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [plain_numbers(entry) for entry in value]
    return _entry_by_entry(value, plain_numbers) if isinstance(value, tuple) else copied(value)


def plain_tuple(taken: Any) -> Any:
    """What a certificate took as floats, arrays and tuples of them; a vector's deviation comes as a NumPy number."""
    if isinstance(taken, tuple):
        return taken if _PLAIN.issuperset(map(type, taken)) else _entry_by_entry(taken, plain_tuple)
    if type(taken) is float:
        return taken
    if isinstance(taken, bool | np.bool_):
        return bool(taken)
    return np.array(taken) if np.ndim(taken) > 0 else float(taken)


def plain_lists(value: Any) -> Any:
    """Numbers, arrays and tuples of them as lists of plain numbers; None, to NumPy an object like any, as it is."""
    if isinstance(value, tuple):
        return [plain_lists(entry) for entry in value]
    return np.asarray(value).tolist()


def _entry_by_entry(value: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A tuple, named if it was, of changed entries."""
    entries = [change(entry) for entry in value]
    return value._make(entries) if hasattr(value, "_make") else tuple(entries)


def revealed_arrays(given: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """What was revealed, checked: an array for each name."""
    if not names:
        raise ValueError(
            "this certificate makes no use of what is revealed; tether.certificates.Shadowing does"
        )
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise ValueError(f"revealed must give {', '.join(names)}, got {text(given)}")
    try:
        return {name: as_array(value) for name, value in given.items()}
    except Exception as error:
        raise ValueError(f"revealed must be numbers, got {text(given)}") from error


def to_json(value: Any) -> Any:
    """Nested tuples and dictionaries as JSON has them; infinities and what JSON does not know become text."""
    if isinstance(value, dict):
        return {name: to_json(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(entry) for entry in value]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return text(value)


def from_json(value: Any) -> Any:
    """What `to_json` gave, or an observation or action as it came, as nested tuples of plain numbers."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: from_json(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return tuple([from_json(entry) for entry in value])
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
