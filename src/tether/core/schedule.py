"""Numbers that change from round to round: the schedules lam_h and b_h of a contract."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tether.core import validate
from tether.core.ops import FLOATS, Number, Ops

Horizon: TypeAlias = Any
"""A whole number of rounds, or `math.inf`."""
Rate: TypeAlias = Any
"""A number that holds for every round, or a `Schedule` of one number for each."""


@dataclass(frozen=True)
class Schedule:
    """One number for each round, at least 0; a `Contract` makes it of a sequence, `periodic` of one that repeats."""

    values: Any
    """[P] of rounds 1, 2, ..., P."""
    sums: Any
    """[P + 1] sums[k] is the sum of the first k."""
    least: Any
    """[P] the smallest of this and all later rounds."""
    repeats: bool
    """Whether they begin again after P rounds; if not there are no more."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule) or self.repeats != other.repeats:
            return False
        return np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.repeats, *np.asarray(self.values).tolist()))

    def __repr__(self) -> str:
        values = np.asarray(self.values).tolist()
        return f"periodic({values})" if self.repeats else repr(values)

    def at(self, rounds: Number, ops: Ops) -> Any:
        """The number of the round that comes after so many."""
        return _taken(self.values, self._places(rounds, ops), ops)

    def least_from(self, rounds: Number, ops: Ops) -> Any:
        """The smallest number of the round that comes after so many and of all later ones."""
        return _taken(self.least, self._places(rounds, ops), ops)

    def until(self, rounds: Number, ops: Ops) -> Any:
        """The sum of the first `rounds` numbers."""
        period = len(self.values)
        whole = ops.floor(rounds / period)
        return whole * self.sums[-1] + _taken(self.sums, rounds - whole * period, ops)

    def ahead(self, rounds: Number, count: int, ops: Ops) -> Any:
        """[..., count] the numbers of the rounds that come after so many; of a finite schedule the last one goes on."""
        places = ops.asarray(rounds)[..., None] + ops.arange(count)
        return _taken(self.values, self._places(places, ops), ops)

    def _places(self, rounds: Any, ops: Ops) -> Any:
        period = len(self.values)
        return ops.mod(rounds, period) if self.repeats else ops.minimum(rounds, period - 1)


def _taken(entries: Any, places: Any, ops: Ops) -> Any:
    if ops is FLOATS:
        return float(entries[int(places)])
    return ops.asarray(entries)[ops.asarray(places, dtype="int32")]


def periodic(values: Sequence[float]) -> Schedule:
    """A schedule that begins again after its last number, such as one for the hours of a day.

    Args:
        values: The numbers of the first rounds, each at least 0.

    Example:
        >>> from tether import Contract
        >>> contract = Contract(lam=0.5, b=periodic([0.0, 0.0, 3.0]), horizon=math.inf)
        >>> contract.bounds([[1.0, 1.0, 1.0, 1.0]]).tolist()
        [[1.5, 3.0, 7.5, 9.0]]
    """
    return _schedule("values", values, repeats=True)


def rate(name: str, value: Any, horizon: float) -> Rate:
    """`value` as a number of at least 0, or as a schedule that covers the horizon; or why it is neither."""
    if not isinstance(value, Schedule | Sequence | np.ndarray) or isinstance(value, str):
        return validate.number(name, value, minimum=0.0)
    made = value if isinstance(value, Schedule) else _schedule(name, list(value), repeats=False)
    if not made.repeats and len(made.values) != horizon:
        fitting = "tether.periodic([...])" if math.isinf(horizon) else f"one for each of {horizon:g} rounds"
        raise ValueError(f"{name} must be a number or {fitting}, got {len(made.values)} numbers")
    return made


def _schedule(name: str, values: Sequence[float], *, repeats: bool) -> Schedule:
    numbers = [validate.number(f"{name}[{i}]", value, minimum=0.0) for i, value in enumerate(values)]
    if not numbers:
        raise ValueError(f"{name} must have at least one number, got {values!r}")
    array = np.array(numbers)
    least = np.minimum.accumulate(array[::-1])[::-1]
    if repeats:
        least = np.full_like(array, array.min())
    return Schedule(array, np.append(0.0, np.cumsum(array)), least, repeats)


def first(rate: Rate) -> Number:
    """The number of the first round."""
    number: Number = rate.values[0] if isinstance(rate, Schedule) else rate
    return number


def at(rate: Rate, rounds: Number, ops: Ops) -> Number:
    """The number of the round that comes after so many."""
    number: Number = rate.at(rounds, ops) if isinstance(rate, Schedule) else rate
    return number


def least_from(rate: Rate, rounds: Number, ops: Ops) -> Number:
    """The smallest number of the round that comes after so many and of all later ones."""
    number: Number = rate.least_from(rounds, ops) if isinstance(rate, Schedule) else rate
    return number


def until(rate: Rate, rounds: Number, ops: Ops) -> Number:
    """The sum of the numbers of the first `rounds` rounds."""
    total: Number = rate.until(rounds, ops) if isinstance(rate, Schedule) else rounds * rate
    return total


def ahead(rate: Rate, rounds: Number, count: int, ops: Ops) -> Any:
    """The numbers of the `count` rounds that come after so many, [..., count], or the one that all have."""
    return rate.ahead(rounds, count, ops) if isinstance(rate, Schedule) else rate


def raised(name: str, old: Rate, new: Any, horizon: float) -> Rate:
    """The larger of two rates in every round; a rate that is raised in none is refused.

    Args:
        name: What the user calls it.
        old: What holds so far.
        new: A number or a schedule; None to leave it as it is.
        horizon: Of the contract.
    """
    if new is None:
        return old
    asked = rate(name, new, horizon)
    if not isinstance(old, Schedule) and not isinstance(asked, Schedule):
        if asked < old:
            raise ValueError(f"{name} can only be raised: it is {old:g}, got {new!r}")
        return asked
    both = [np.asarray(each.values if isinstance(each, Schedule) else [each]) for each in (old, asked)]
    repeats = math.isinf(horizon)
    length = math.lcm(*(len(each) for each in both)) if repeats else int(horizon)
    before, after = (np.resize(each, length) for each in both)
    if np.all(after < before):
        raise ValueError(f"{name} can only be raised: it is {old!r}, got {new!r}")
    return _schedule(name, np.maximum(before, after).tolist(), repeats=repeats)


def to_json(rate: Rate) -> Any:
    """A number, the list of a schedule's numbers, or {"periodic": [...]}."""
    if not isinstance(rate, Schedule):
        return rate
    values = np.asarray(rate.values).tolist()
    return {"periodic": values} if rate.repeats else values


def from_json(saved: Any) -> Any:
    """What `to_json` gave, for `Contract` to check."""
    return periodic(saved["periodic"]) if isinstance(saved, dict) else saved


def text(name: str, rate: Rate) -> str:
    """The rate in words."""
    if not isinstance(rate, Schedule):
        return f"{name} = {rate:g}"
    values = np.asarray(rate.values)
    return f"{name} from {values.min():g} to {values.max():g}{', periodic' if rate.repeats else ''}"
