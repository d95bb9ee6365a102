"""Values as text and back, exactly: JSON, with NaN and infinities, and NumPy's numbers by their type.

Floats are written with as many digits as tell them from any other, so that they come back bit for bit. What is neither
JSON nor NumPy's (a tensor is made an array of its type, if NumPy has it) is refused: it could not be brought back.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

_TAG = "~"
_KINDS = "biuf"


def _tagged(value: Any) -> Any:
    """What JSON does not know, as a dictionary with a tag."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    elif hasattr(value, "__array__"):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        return {_TAG: value.dtype.str, "shape": list(value.shape), "values": value.ravel().tolist()}
    raise TypeError(
        f"{type(value).__name__} cannot be written down; numbers, text, lists, mappings and arrays can"
    )


def _untagged(pairs: dict[str, Any]) -> Any:
    if _TAG not in pairs:
        return pairs
    if set(pairs) != {_TAG, "shape", "values"}:
        raise ValueError(f"expected a tagged array, got {pairs!r}")
    array = np.array(pairs["values"], dtype=pairs[_TAG])
    return array.reshape(pairs["shape"]) if pairs["shape"] else array.reshape(1)[0]


_encode = json.JSONEncoder(separators=(",", ":"), default=_tagged).encode
_decode = json.JSONDecoder(object_hook=_untagged).decode


def dumps(value: Any) -> str:
    """`value` as text.

    Raises:
        TypeError: A part of it is of a type that cannot be brought back.
        ValueError: It contains itself, or a mapping has a key that is not text, or the tag "~".

    Example:
        >>> dumps([1.5, float("nan"), np.float32(0.1)])
        '[1.5,NaN,{"~":"<f4","shape":[],"values":[0.10000000149011612]}]'
    """
    written = _encode(value)
    if "{" in written:
        _check_keys(value)
    return written


def loads(text: str) -> Any:
    """The value that `dumps` wrote; tuples come back as lists.

    Example:
        >>> loads('{"~":"<f4","shape":[2],"values":[0.5,NaN]}')
        array([0.5, nan], dtype=float32)
    """
    return _decode(text)


def _check_keys(value: Any) -> None:
    """Refuse mappings that would come back otherwise than they were."""
    if isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str) or key == _TAG:
                raise ValueError(f"the keys of a mapping must be text, and not {_TAG!r}, got {key!r}")
            _check_keys(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _check_keys(entry)
