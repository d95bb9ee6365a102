"""What is known of a battery that is also a reserve: the prior's charge, and where both charges can go.

The prior moves a charge x (kWh) to clip(x + p, 0, 20), where p, the power that the sun leaves over, does not depend on
who acts. So the prior's charge is replayed exactly, order is kept, and a gap never grows. A round costs c(x) = 1 + 0.05
max(14 - x, 0)^2 of the charge after it, which falls and is convex. With the own charge g = max(x+ - x, 0) below the
prior's after this round, and p in its band [low_n, high_n], n rounds later

    c(x_n) - c(x+_n) <= c(l_n) - c(l_n + g),    l_n: the own charge if every p is the lowest of its band,
    c(x+_n) >= c(u_n),                          u_n: the prior's if every p is the highest,

as c(x) - c(x + g) falls in x and grows in g. Their difference, the second lam times, bounds the round's excess.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from tether.certificates import Structure
from tether.certificates.structure import Bounds, Round

HOURS, CAPACITY, POWER, RESERVE, START = 24, 20.0, 4.0, 14.0, 15.0
"""Rounds; kWh, kW; kWh that are to be there; kWh at midnight."""


@cache
def band() -> tuple[Any, Any]:
    """([24], [24]): least and most power (kW) that the sun leaves over: a day between overcast and clear."""
    hours = np.arange(HOURS)
    clear = 4.0 * np.maximum(np.sin((hours - 5.5) * np.pi / 13.0), 0.0) * ((hours >= 6) & (hours <= 18))
    load = 0.7 + 0.2 * np.sin((hours - 9) * np.pi / 12.0)
    return 0.3 * clear - 1.3 * load, clear - 0.8 * load


def risk(charge: Any, ops: Any) -> Any:
    """c, cost units."""
    return 1.0 + 0.05 * ops.maximum(RESERVE - charge, 0.0) ** 2


def moved(charge: Any, power: Any, ops: Any) -> Any:
    """The charge after an hour."""
    return ops.clip(charge + power, 0.0, CAPACITY)


@dataclass(frozen=True)
class Reserve(Structure):
    """The only gap is the prior's charge, kWh."""

    kind: ClassVar[str] = "reserve"
    gap_names: ClassVar[tuple[str, ...]] = ("prior",)

    low, high, scale = -POWER, POWER, 10.0  # type: ignore[assignment]

    def start(self, zero: Any) -> Any:
        """Both begin with the same."""
        return (zero + START,)

    def read(self, observation: Any) -> Any:
        """Charge, power left over, and the hour."""
        return observation[0], observation[1], HOURS * observation[3]

    def gaps_between(self, seen: Any, prior_seen: Any, ops: Any) -> Any:  # noqa: ARG002
        """The prior's charge."""
        return (prior_seen[0],)

    def admits(self, seen: Any, ops: Any) -> Any:
        """A charge that there can be, and power in the band of the hour."""
        charge, power, hour = seen
        low, high = (self._at(end, hour, ops) for end in band())
        possible = ops.logical_and(charge >= -1e-6, charge <= CAPACITY + 1e-6)
        return ops.logical_and(possible, ops.logical_and(power >= low - 1e-4, power <= high + 1e-4))

    def bounds(self, now: Round, action: Any, plan: int, ops: Any) -> Bounds:  # noqa: ARG002
        """See the module."""
        charge, power, hour = now.seen
        own, prior = moved(charge, action, ops), moved(now.gaps[0], ops.clip(power, -POWER, POWER), ops)
        gap, low, high = ops.maximum(prior - own, 0.0), own, prior
        totals = [risk(own, ops) - (1.0 + now.lam) * risk(prior, ops)]
        for n in range(1, HOURS):
            least, most = (ops.clip(self._at(end, hour + n, ops), -POWER, POWER) for end in band())
            low, high = moved(low, least, ops), moved(high, most, ops)
            excess = risk(low, ops) - risk(low + gap, ops) - now.lam * risk(high, ops)
            totals.append(totals[-1] + excess)
        return Bounds(tuple(totals), risk(own, ops), (risk(prior, ops), prior))

    def close(self, step: Any, cost: Any, epsilon: Any, ops: Any) -> Any:  # noqa: ARG002
        """What the prior paid is known, and its charge."""
        return step[0] * (1.0 - epsilon), (step[1],)

    @staticmethod
    def _at(series: Any, hour: Any, ops: Any) -> Any:
        """The entry of an hour, a whole number up to round-off; after midnight the last."""
        place = ops.clip(ops.floor(hour + 0.5), 0.0, HOURS - 1.0)
        if isinstance(place, float):
            return float(series[int(place)])
        return ops.asarray(series)[place.astype(int)]
