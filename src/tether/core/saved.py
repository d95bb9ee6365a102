"""What was saved of a guard, checked: numbers that no episode can have led to are refused."""

from __future__ import annotations

import json
import math
from collections import Counter
from importlib import metadata
from typing import Any

import numpy as np

from tether.core import convert, validate
from tether.core.certificate import Certificate
from tether.core.decision import Breach, Reason

CERTIFICATES = "tether.certificates"
"""The entry-point group in which packages name, by kind, what makes a certificate from its `to_dict`."""


def numbers(saved: Any) -> Any:
    """A saved number or tuple of numbers as it was: lists become arrays."""
    return np.array(saved, dtype=float) if isinstance(saved, list) else saved


def require_rounds(rounds: object, horizon: int) -> None:
    """Refuse a count of closed rounds that is not a whole number from 0 to the horizon."""
    if isinstance(rounds, bool) or not isinstance(rounds, float | int):
        raise ValueError(f"rounds must be a number, got {rounds!r}")
    if not (0 <= rounds <= horizon and float(rounds).is_integer()):
        raise ValueError(f"rounds must be a whole number from 0 to the horizon {horizon}, got {rounds!r}")


def require_numbers(
    name: str,
    value: object,
    *,
    minimum: float = -math.inf,
    maximum: float = math.inf,
    shape: tuple[int, ...] = (),
) -> None:
    """Refuse what is not finite numbers of this shape, from `minimum` to `maximum`."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name} must be numbers of shape {shape}, got {value!r}") from error
    # Text and truth values are no numbers, although NumPy would take them for some.
    usable = array.dtype.kind in "iuf" and array.shape == shape
    if not (usable and np.all(np.isfinite(array)) and np.all((array >= minimum) & (array <= maximum))):
        raise ValueError(
            f"{name} must be finite numbers of shape {shape} from {minimum:g} to {maximum:g}, got {value!r}"
        )


def require_length(name: str, value: object, length: int) -> None:
    """Refuse what is not a list of so many entries."""
    if not isinstance(value, list) or len(value) != length:
        raise ValueError(f"{name} must be a list of {length} entries, got {value!r}")


def require_flag(name: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")


def require_choice(name: str, value: object, count: int) -> None:
    """Refuse what is not a whole number from 0 to count - 1."""
    if isinstance(value, bool) or value not in range(count):
        raise ValueError(f"{name} must be a whole number from 0 to {count - 1}, got {value!r}")


def shape(saved: Any, known: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The shape of a guard's actions, checked against what its bounds say."""
    given = None if saved is None else tuple(saved)
    vector = given is None or (len(given) < 2 and all(type(n) is int and n > 0 for n in given))
    if not vector or (known is not None and given != known):
        raise ValueError(
            f"shape must be null, [] or [n]{'' if known is None else f', {known}'}, got {saved!r}"
        )
    return given


def breach(saved: Any, breached: bool, round_now: int) -> Breach | None:
    """A guard's breach, checked: there is one if its state says so, and in no later round."""
    if (saved is not None) != breached:
        raise ValueError(f"breach must be there if and only if the state is breached, got {saved!r}")
    if saved is None:
        return None
    restored = Breach(**convert.from_json(saved))
    validate.count("the breach's round", restored.round)
    if restored.round > round_now:
        raise ValueError(f"the breach's round must be at most {round_now}, got {restored.round!r}")
    return restored


def counts(saved: Any) -> Counter[Reason]:
    """How often each reason occurred, checked."""
    return Counter({Reason(name): validate.count("counts", n, minimum=0) for name, n in saved.items()})


def describes(description: dict[str, Any], certificate: Certificate) -> bool:
    """Whether this is what the certificate's `to_dict` gives, but for what JSON does not tell apart."""
    return bool(json.loads(json.dumps(certificate.to_dict())) == json.loads(json.dumps(description)))


def certificate_from_dict(description: dict[str, Any]) -> Certificate:
    """The certificate that its `to_dict` described, if its kind is one that an installed package can make."""
    kind = description["kind"]
    for maker in metadata.entry_points(group=CERTIFICATES, name=kind):
        made: Certificate = maker.load()(description)
        return made
    raise ValueError(f"a certificate ({kind}) of your own must be given as it is")
