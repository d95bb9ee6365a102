"""What a round cost, as the contracts of a guard want it: a number, or one for each of several contracts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tether.core import convert
from tether.core.certificate import Certificate, accepted_cost
from tether.core.contract import Contract
from tether.core.ops import FLOATS

_MOST = FLOATS.limit(0.0)


class Refused(NamedTuple):
    """A cost that no contract allows."""

    complaint: str
    """What was expected."""
    claimed: tuple[float, float]
    """The range that a cost has."""
    seen: float
    """The cost."""


class Meter:
    """Reads costs.

    Args:
        certificate: Whose contracts say what a cost can be; with several, it has `contracts` by name.
    """

    def __init__(self, certificate: Certificate) -> None:
        self._contract = certificate.contract
        self._several: dict[str, Contract] | None = getattr(certificate, "contracts", None)

    def read(self, cost: Any) -> Any:
        """The cost as a float, NaN if it is no number; of several contracts a tuple of them, in their order.

        Raises:
            ValueError: There is not a cost for each of several contracts.
        """
        if self._several is None:
            return convert.as_number(cost)
        names = tuple(self._several)
        given = cost.values() if isinstance(cost, Mapping) else cost if isinstance(cost, list | tuple) else ()
        if any(each is None for each in given):
            raise ValueError(
                f"several contracts need all costs in time, got {convert.text(cost)}; the round stays open"
            )
        if isinstance(cost, Mapping) and set(cost) == set(names):
            return tuple(convert.as_number(cost[name]) for name in names)
        try:
            complete = np.shape(cost) == (len(names),)
        except Exception:  # whatever a stranger's object does when it is asked for its shape
            complete = False
        if not complete:
            raise ValueError(
                f"there must be {len(names)} costs, for {', '.join(names)} in this order or by name, "
                f"got {convert.text(cost)}"
            )
        return tuple(map(convert.as_number, cost))

    def refused(self, read: Any, epsilon: float) -> Refused | None:
        """The first cost that its contract does not allow, and why; None if there is none."""
        if self._several is None:
            if self._contract.cost_floor <= read <= _MOST:  # allowed, however exact it is
                return None
            return _refused(self._contract, read, epsilon)
        for name, contract, cost in zip(self._several, self._several.values(), read, strict=True):
            found = _refused(contract, cost, epsilon)
            if found is not None:
                return found._replace(complaint=f"of which {name} is {found.complaint}")
        return None


def _refused(contract: Contract, cost: float, epsilon: float) -> Refused | None:
    if accepted_cost(contract, cost, epsilon, FLOATS)[0]:
        return None
    floor = contract.cost_floor
    complaint = f"not a finite number of at least the floor {floor:g} and at most {_MOST:g}"
    return Refused(complaint, (floor, math.inf), cost)
