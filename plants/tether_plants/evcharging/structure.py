"""What is known of the car park: its cars' batteries, and so the prior's garage, car by car.

**Why replaying the prior is exact.** No action changes who comes and goes, and a car's battery follows

    dr/dt = -min(p, 5 r)        r: energy missing (kWh), p: power of the pilot signal (kW), time in hours,

which acnportal integrates exactly. So what each plugged-in car will lack at its named time, if charged at 32 A from
the next round on, is a number, for the own garage and for the prior's alike, and the sums of excesses that a
`Structure` has to bound are known: a car that leaves early takes its excess along, so that only positive ones count.
Energies missing never grow farther apart under the prior: the flow is 1-Lipschitz in r.

**Pilot signals** are whole steps (0, 8, ..., 32 A, at some chargers 0, 6, 7, ..., 32 A). The adapter rounds up,
which is towards the prior, so what is played is never less safe than what was decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tether.certificates import Structure
from tether.certificates.structure import Bounds, Round
from tether.core.ops import NUMPY

CHARGERS, ROUNDS, HOURS, AMPERE = 54, 288, 5 / 60, 0.208
"""Chargers; rounds of a day, each so many hours; kW of an ampere."""
FULL = 32.0 * AMPERE
"""kW of the prior."""
FINE = 6.0
"""Smallest signal, A, of chargers that take every whole number above; the others take steps of 8."""


def flow(missing: Any, power: Any, hours: Any, ops: Any = NUMPY) -> Any:
    """Energy missing (kWh) after so many hours at a constant power (kW); see the module."""
    rated = ops.maximum(power, 1e-12)
    straight = ops.maximum(missing - 0.2 * rated, 0.0) / rated
    bent = ops.minimum(missing, 0.2 * rated) * ops.exp(-5.0 * ops.maximum(hours - straight, 0.0))
    return ops.where(power > 0.0, ops.where(hours < straight, missing - rated * hours, bent), missing)


def pilots(action: Any, fine: Any, ops: Any = NUMPY) -> Any:
    """Signals (A) of which none is below the action's, by more than round-off."""
    whole, eights = -ops.floor(1e-5 - action), -8.0 * ops.floor(1e-6 - action / 8.0)
    return ops.where(action > 1e-5, ops.where(fine, ops.maximum(whole, FINE), eights), 0.0)


@dataclass(frozen=True)
class Shadowed(Structure):
    """The prior's garage is carried along as it is: the only gap is what its cars miss, [54] kWh."""

    fine: tuple[bool, ...]
    """[54] which chargers take every whole number of amperes from 6 on."""
    later: int = 6
    """Rounds that are looked at one by one; what comes due after them is due in the last."""
    kind: ClassVar[str] = "garage"
    entries, scalar, turns, gap_names = CHARGERS, False, 10, ("missing",)

    low, high, scale = 0.0, 32.0, 100.0  # type: ignore[assignment]

    def start(self, zero: Any) -> Any:
        """No car is there."""
        return (zero + np.zeros(CHARGERS),)

    def read(self, observation: Any) -> Any:
        """Energies missing, rounds to the times named, who is new."""
        return tuple(observation[i * CHARGERS : (i + 1) * CHARGERS] for i in range(3))

    def gaps_between(self, seen: Any, prior_seen: Any, ops: Any) -> Any:  # noqa: ARG002
        """What the prior's cars miss."""
        return (prior_seen[0],)

    def gap_features(self, gaps: Any, ops: Any) -> Any:
        """What the prior's cars miss, all together and at most, kWh."""
        return ops.sum(gaps[0]), ops.max(gaps[0])

    def admits(self, seen: Any, ops: Any) -> Any:
        """Numbers, and no energy below 0."""
        finite = ops.logical_and(ops.isfinite(seen[0] + seen[1] + seen[2]), seen[0] >= 0.0)
        return ops.all(finite)

    def refine(self, gaps: Any, seen: Any, epsilon: Any, ops: Any) -> Any:  # noqa: ARG002
        """A new car misses the same in both garages; who has left misses nothing."""
        missing, _, new = seen
        return (ops.where(new > 0.0, missing, ops.where(missing > 0.0, gaps[0], 0.0)),)

    def bounds(self, now: Round, action: Any, plan: int, ops: Any) -> Bounds:  # noqa: ARG002
        """Each car's excess at the time that it named; see the module."""
        missing, left, _ = now.seen
        power = AMPERE * pilots(action, np.array(self.fine), ops)
        own, prior = flow(missing, power, HOURS, ops), flow(now.gaps[0], FULL, HOURS, ops)
        due = left == 1.0
        cost, paid = (ops.sum(ops.where(due, each, 0.0)) for each in (own, prior))
        lacks = self.excesses(now, power, ops)
        waiting = ops.where(left > 1.0, ops.maximum(lacks, 0.0), 0.0)
        totals = [ops.sum(ops.where(due, lacks, 0.0))]
        for n in range(2, self.later + 2):
            totals.append(totals[0] + ops.sum(ops.where(left <= n, waiting, 0.0)))
        totals[-1] = totals[0] + ops.sum(waiting)
        return Bounds(tuple(totals), cost, (paid, prior))

    def excesses(self, now: Round, power: Any, ops: Any) -> Any:
        """[54] kWh that each car misses at its time beyond (1 + lam) times the prior's, at 32 A after this round."""
        missing, left, _ = now.seen
        hours = HOURS * ops.maximum(left - 1.0, 0.0)
        own, prior = flow(missing, power, HOURS, ops), flow(now.gaps[0], FULL, HOURS, ops)
        return flow(own, FULL, hours, ops) - (1.0 + now.lam) * flow(prior, FULL, hours, ops)

    def close(self, step: Any, cost: Any, epsilon: Any, ops: Any) -> Any:  # noqa: ARG002
        """What the prior paid is known, and where its cars are."""
        return step[0] * (1.0 - epsilon), (step[1],)
