"""What is known of the charging station, for `Structured` certificates: each bound with its proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tether.certificates.structure import Bounds, Numbers, Round, Structure
from tether.core import validate
from tether.core.certificate import Observation
from tether.core.ops import Flag, Number, Ops


def ceiling(plant: Any, hour: Any, ops: Any) -> Any:
    """Most that can be booked for an hour of the clock at this plant, an `EV` or its structure."""
    evening = ops.logical_and(hour >= plant.evening_begins, hour < plant.evening_ends)
    return ops.where(evening, plant.booked_evening, plant.booked_else)


@dataclass(frozen=True)
class EVStructure(Structure):
    """`tether_ev.EV`: one gap, e >= x - x+, by how much the queue x may be longer than the prior's, x+.

    With n = (1 - d) x + m + w the queue becomes x' = min(x_max, [n - v a]^+), the cost 1 + x'^2; v is in [v_min, 1], d
    in [d_min, d_max], w in [0, w_max], all unseen, and m is seen.

    *The prior is the fastest.* It plays min(A, (x + m + w_max) / v_min). Where that is below A it serves everybody, as
    A would. So its plant is x+' = min(x_max, [(1 - d) x+ + m + w - v A]^+), and since no action is above A, x >= x+
    always: one gap is enough. There is no backup beside the prior, because nothing drains a queue faster.

    *The gap after the round.* n - v a - (n+ - v A) = (1 - d)(x - x+) + v (A - a) <= E := (1 - d_min) e + (A - a), and
    cutting both to [0, x_max] makes it no larger. A queue that is gone leaves no gap: e' <= min(E, x'). Before x' is
    seen it is between

        L = min(x_max, [(1 - d_max) x + m - a]^+)  and  U = min(x_max, [(1 - d_min) x + m + w_max - v_min a]^+).

    *What a gap costs in a round.* Let the guarded queue after it be x in [L, U] and the prior's at least x - g. The
    excess is at most F(x) - lam, F(x) = x^2 - (1 + lam) ([x - g]^+)^2. F grows up to x = g and is a parabola that bends
    down from there on, with its vertex at (1 + lam) g / lam: its maximum is at clip((1 + lam) g / lam, L, U). That
    maximum grows with g and U. *The longer the prior's own queue, the more lam pays for the gap*: whatever
    the arrivals, a gap costs at most (1 + lam) / lam g^2 in a round.

    *Gaps revive.* A gap that costs nothing by day costs much in the evening, when cars come faster than the
    transformer can serve them. So later rounds, under the prior, are looked at one by one with what can arrive at
    *that* hour, M_k = ceiling(hour + k) + w_max:

        U_k = min(x_max, [(1 - d_min) U_{k-1} + M_k - v_min A]^+),     g_k = min((1 - d_min) g_{k-1}, U_k),

    from U_0 = U and g_0 = min(E, U), and T_k = T_{k-1} + max F_k - lam, with 0 for L. Once U_k is 0 both queues are the
    same for ever, and the evening is no threat. From K hours ahead on all that can still come is counted at once,
    without the clock and with one credit lam: g_{K+j} <= (1 - d_min)^j g, and F is at most (1 + lam) / lam g^2 and at
    most x^2 - (x - g)^2 <= 2 x_max g, so the rest is at most the smaller of

        (1 + lam) / lam g^2 / (1 - (1 - d_min)^2)   and   2 x_max g / d_min,    g = (1 - d_min) g_{K-1}.

    *After the cost is seen*, x' = sqrt(cost - 1) is known: e' = min(E, x') and c+ >= 1 + ([x' - E]^+)^2.
    """

    kind: ClassVar[str] = "ev"
    gap_names: ClassVar[tuple[str, ...]] = ("above",)
    terms: ClassVar[int] = 6
    """K: hours that are looked at one by one, this one included; with 12 the safe set is hardly larger."""

    power_max: float
    """A, largest action."""
    queue_max: float
    """x_max, longest queue."""
    booked_evening: float
    """Most that can be booked for an hour of the evening ..."""
    booked_else: float
    """... and for any other."""
    evening_begins: float
    """First hour of the evening ..."""
    evening_ends: float
    """... and the first after it."""
    walk_in_max: float
    """w_max, most that walk-ins bring."""
    efficiency_min: float
    """v_min, smallest v; the largest is 1."""
    plug_out_min: float
    """d_min, smallest d, above 0 ..."""
    plug_out_max: float
    """... and d_max, the largest."""

    def __post_init__(self) -> None:
        for name in ("power_max", "queue_max", "efficiency_min", "plug_out_min"):
            validate.number(name, getattr(self, name), above=0.0)
        for name in ("booked_evening", "booked_else", "evening_begins", "walk_in_max"):
            validate.number(name, getattr(self, name), minimum=0.0)
        for name, highest in {"efficiency_min": 1.0, "plug_out_max": 1.0, "evening_ends": 24.0}.items():
            if not getattr(self, name) <= highest:
                raise ValueError(f"{name} must be at most {highest:g}, got {getattr(self, name)!r}")

    @property
    def low(self) -> float:
        """Nothing is drawn."""
        return 0.0

    @property
    def high(self) -> float:
        """The transformer's limit."""
        return self.power_max

    @property
    def scale(self) -> float:
        """The cost of the longest queue."""
        return 1.0 + self.queue_max**2

    def start(self, zero: Number) -> Numbers:
        """(e,)."""
        return (zero,)

    def read(self, observation: Observation) -> Numbers:
        """(x, booked, hour) of an observation (booked, price, solar, hour, x, ...)."""
        return observation[4], observation[0], observation[3]

    def admits(self, seen: Numbers, ops: Ops) -> Flag:
        """Whether queue, bookings and hour are in their ranges; a NaN is not."""
        x, booked, hour = seen
        inside = ops.logical_and(x >= 0.0, x <= self.queue_max)
        possible = ops.logical_and(booked >= 0.0, booked <= self.booked_evening)
        return ops.logical_and(ops.logical_and(inside, possible), ops.logical_and(hour >= 0.0, hour < 24.0))

    def agrees(self, seen: Numbers, prior: Number, epsilon: Number, ops: Ops) -> Flag:
        """Whether the prior serves everybody, or draws all that the transformer gives."""
        x, booked, hour = seen
        wanted = x + ops.minimum(booked, ceiling(self, hour, ops)) + self.walk_in_max
        off = abs(prior - ops.minimum(wanted / self.efficiency_min, self.power_max))
        return off <= 64.0 * epsilon * (1.0 + wanted / self.efficiency_min)

    def gaps_between(self, seen: Numbers, prior_seen: Numbers, ops: Ops) -> Numbers:
        """(e,)."""
        return (ops.maximum(seen[0] - prior_seen[0], 0.0),)

    def refine(self, gaps: Numbers, seen: Numbers, epsilon: Number, ops: Ops) -> Numbers:  # noqa: ARG002
        """The prior's queue is not below 0."""
        return (ops.minimum(gaps[0], seen[0]),)

    def bounds(self, now: Round, action: Number, plan: int, ops: Ops) -> Bounds:  # noqa: ARG002
        """See the class's documentation."""
        (gap,), (x, booked, hour) = now.gaps, now.seen
        keep, drained = 1.0 - self.plug_out_min, self.efficiency_min * self.power_max
        arrivals = ops.minimum(booked, ceiling(self, hour, ops))
        widened = keep * gap + (self.power_max - action)
        least = (1.0 - self.plug_out_max) * x + arrivals - action
        most = keep * x + arrivals + self.walk_in_max - self.efficiency_min * action
        least, most = (ops.clip(each, 0.0, self.queue_max) for each in (least, most))

        credit = now.lam * now.cost_floor
        totals = [_largest_excess(widened, least, most, now.lam, ops) - credit]
        longest, apart = most, ops.minimum(widened, most)
        for k in range(1, self.terms):
            arriving = ceiling(self, ops.mod(hour + k, 24.0), ops) + self.walk_in_max
            longest = ops.clip(keep * longest + arriving - drained, 0.0, self.queue_max)
            apart = ops.minimum(keep * apart, longest)
            totals.append(totals[-1] + _largest_excess(apart, 0.0, longest, now.lam, ops) - credit)
        apart = keep * apart
        squares = _multiple(now.lam, ops) * apart * apart / (1.0 - keep * keep)
        rest = ops.minimum(squares, 2.0 * self.queue_max * apart / self.plug_out_min)
        totals.append(totals[-1] + rest - credit)
        return Bounds(tuple(totals), 1.0 + most * most, (widened,))

    def close(self, step: Numbers, cost: Number, epsilon: Number, ops: Ops) -> tuple[Number, Numbers]:
        """See the class's documentation, where e' is cut to x' once that is observed (`refine`); rounded outward."""
        widened = step[0] + 64.0 * epsilon * (1.0 + self.queue_max + self.power_max)
        above = ops.maximum(cost * (1.0 - 8.0 * epsilon) - 1.0, 0.0)
        positive = above > 0.0
        left = ops.where(positive, ops.sqrt(ops.where(positive, above, 1.0)), 0.0)
        floor = ops.maximum(left - widened, 0.0)
        return 1.0 + floor * floor, (widened,)

    def gap_features(self, gaps: Numbers, ops: Ops) -> tuple[Number, Number]:  # noqa: ARG002
        """(e, 0)."""
        return gaps[0], 0.0 * gaps[0]

    def gaps_from_features(self, above: Number, below: Number) -> Numbers:  # noqa: ARG002
        """(e,)."""
        return (above,)


def _multiple(lam: Number, ops: Ops) -> Number:
    """(1 + lam) / lam; for lam = 0 so large that no gap times it is below the longest queue."""
    return (1.0 + lam) / ops.maximum(lam, 1e-30)


def _largest_excess(gap: Number, least: Number, most: Number, lam: Number, ops: Ops) -> Number:
    """The largest x^2 - (1 + lam) ([x - gap]^+)^2 for x between `least` and `most`."""
    x = ops.clip(_multiple(lam, ops) * gap, least, most)
    short = ops.maximum(x - gap, 0.0)
    return x * x - (1.0 + lam) * short * short
