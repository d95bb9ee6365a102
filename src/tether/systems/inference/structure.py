"""What is known of the inference system, for `Structured` certificates: each bound with its proof."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tether.certificates.structure import Bounds, Numbers, Round, Structure
from tether.core import validate
from tether.core.certificate import Observation
from tether.core.ops import Flag, Number, Ops


@dataclass(frozen=True)
class InferenceStructure(Structure):
    """`tether.envs.Inference`: one gap, e >= x+ - x, by how much the charge x may be below the prior's, x+.

    With y = x + v_e e_h - v_a a the charge becomes min(capacity, [y]^+), the shortfall is z = [-y]^+, the cost
    z^2; the prior plays pi(x) = min(mu, x + v e_h + s). Let v_a be in [v_low, 1] and v_e at least w.

    *Only charge that is missing matters.* pi grows with x at most as fast as x, so x - v_a pi(x) never falls:
    with at least the prior's charge and no more than its action one never has less charge or more shortfall than
    it.

    *The budget.* Let a = pi(x) + dev and rise = pi(x + e) - pi(x) >= 0. As x+ <= x + e, and x - v_a pi(x) never
    falls,

        y+ - y <= e - v_a rise + v_a dev <= W := [e + max(v_low (dev - rise), dev - rise)]^+.

    Of y+ - y > 0 some part is charge and the rest is shortfall: [x+' - x']^+ + [z - z+]^+ <= W (the capacity makes the
    first smaller only): if y >= 0 there is no z, if y < 0 <= y+ they are at most y+ and -y, if both are below 0 there
    is no charge. So a gap is used up by the shortfall that it causes. W does not depend on pi(x): dev - rise is a -
    pi(x + e).

    *This round.* The excess is F = ([z]^+)^2 - (1 + lam) ([z+]^+)^2 with z = v_a a - x - g and z+ = v_a p - x+ - g,
    where g = v_e e_h and p = pi(x+). As x+ - v_a pi(x+) never falls with x+, F is largest for the largest x+, x + e;
    from here on x+ and p are those. In (v_a, g), z and z+ are linear, and F has no stationary point with z > 0; where
    z <= 0 it is largest where z+ is least, at a corner of that part. So its maximum over the box is on one of the four
    edges, at an end, where z = 0 or z+ = 0, or at the vertex of the parabola in between if it bends down.

    *The backup* `idle` runs nothing. Whatever the battery holds, it never has to buy: from the round in which it is
    played on no excess is above 0, and T_n <= T_0 for every n: no larger safe set is possible. It needs low <= 0.

    *The prior as backup*, where something has to run. The prior's own shortfall, on whatever charge x+ >= 0, is at
    most Z = s + (1 - w/v) (M - s) in any round (s cut to M). Under the prior the guarded one is no larger than that
    either, as its charge is not negative. So later rounds have c - c+ = (z - z+)(z + z+) <= 2 Z (z - z+), and the z -
    z+ of all of them add up to at most the gap that is left, W less what this round has used; F with u = z - z+ in
    this round adds up with that to at most T_0 + 2 Z W for any lam >= 0.

    *After the cost is seen* z is known. If z > W the prior has bought at least z - W > 0, its battery is empty, and no
    gap is left. If z <= W: either the prior bought something, and no gap is left, or u = z, and W - z is left. In both
    cases

        floor = ([z - W]^+)^2,     e' = [W - z]^+.

    If z > 0, then v_a a - g = x + z, so that v_a is between (x + z + w e_h) / a and (x + z + e_h) / a, and W is the
    largest e + v_a (a - p) over these v_a only: y+ - y = e - v_a (p - a) for the largest x+.

    *If the cost is not seen*, e' = W.
    """

    kind: ClassVar[str] = "inference"
    backups: ClassVar[tuple[str, ...]] = ("idle",)
    recovery: ClassVar[str | None] = "idle"
    straight: ClassVar[bool] = True
    turns: ClassVar[int] = 10
    """Its excess is made of few parabolas: the search has mostly ended after six."""
    gap_names: ClassVar[tuple[str, ...]] = ("below",)
    sharp: ClassVar[tuple[str, ...]] = ("now", "floor")

    action_max: float
    """Largest action."""
    demand_max: float
    """M, largest demand."""
    capacity: float
    """What the battery holds."""
    slack: float
    """s = sqrt(Q_c), energy that the prior buys at most if its estimate is right."""
    discharge_rate_min: float
    """v_low, smallest v_a; the largest is 1."""
    charge_rate_min: float
    """w, smallest v_e."""
    charge_rate: float
    """v, the prior's estimate of v_e; at least w."""

    def __post_init__(self) -> None:
        for name in ("action_max", "demand_max", "capacity"):
            validate.number(name, getattr(self, name), above=0.0)
        for name in ("slack", "discharge_rate_min", "charge_rate_min"):
            validate.number(name, getattr(self, name), minimum=0.0)
        validate.number("charge_rate", self.charge_rate, minimum=self.charge_rate_min, above=0.0)
        if self.discharge_rate_min > 1.0:
            raise ValueError(f"discharge_rate_min must be at most 1, got {self.discharge_rate_min!r}")

    @property
    def low(self) -> float:
        """No model runs."""
        return 0.0

    @property
    def high(self) -> float:
        """The largest model runs."""
        return self.action_max

    @property
    def scale(self) -> float:
        """The cost of running the largest model on fossil energy."""
        return self.action_max**2

    @property
    def _price(self) -> float:
        """2 Z, cost per unit of charge that is missing."""
        slack = min(self.slack, self.demand_max)
        return 2.0 * (slack + (1.0 - self.charge_rate_min / self.charge_rate) * (self.demand_max - slack))

    def start(self, zero: Number) -> Numbers:
        """(e,)."""
        return (zero,)

    def read(self, observation: Observation) -> Numbers:
        """(x, mu, renewables) of an observation (mu, e_h, a, x, ...)."""
        return observation[3], observation[0], observation[1]

    def admits(self, seen: Numbers, ops: Ops) -> Flag:
        """Whether charge, demand and renewables are in their ranges; a NaN is not."""
        x, mu, renewables = seen
        inside = ops.logical_and(x >= 0.0, x <= self.capacity)
        possible = ops.logical_and(mu >= 0.0, mu <= self.demand_max)
        known = ops.logical_and(ops.isfinite(renewables), renewables >= 0.0)
        return ops.logical_and(ops.logical_and(inside, possible), known)

    def agrees(self, seen: Numbers, prior: Number, epsilon: Number, ops: Ops) -> Flag:
        """Whether the prior meets the demand, or spends what it has and the slack if that is less."""
        x, mu, renewables = seen
        off = abs(prior - ops.minimum(mu, x + self.charge_rate * renewables + self.slack))
        return off <= 64.0 * epsilon * (1.0 + x + mu + renewables)

    def gaps_between(self, seen: Numbers, prior_seen: Numbers, ops: Ops) -> Numbers:
        """(e,)."""
        return (ops.maximum(prior_seen[0] - seen[0], 0.0),)

    def refine(self, gaps: Numbers, seen: Numbers, epsilon: Number, ops: Ops) -> Numbers:  # noqa: ARG002
        """The prior's battery holds no more than its capacity."""
        return (ops.minimum(gaps[0], self.capacity - seen[0]),)

    def plans(self, low: Number, high: Number) -> tuple[int, ...]:  # noqa: ARG002
        """Where nothing has to run, `idle` allows all that the prior does."""
        return (1,) if low <= 0.0 else (0,)

    def backup(self, plan: int, now: Round, ops: Ops) -> Number:  # noqa: ARG002
        """`idle`: nothing runs."""
        return 0.0 * now.seen[0]

    def bounds(self, now: Round, action: Number, plan: int, ops: Ops) -> Bounds:
        """See the class's documentation."""
        (gap,), (x, mu, renewables) = now.gaps, now.seen
        largest = x + gap
        prior = ops.minimum(mu, largest + self.charge_rate * renewables + self.slack)
        more = action - prior
        budget = ops.maximum(gap + ops.maximum(self.discharge_rate_min * more, more), 0.0)
        rates, charged = (self.discharge_rate_min, 1.0), (self.charge_rate_min * renewables, renewables)

        def point(v_a: Number, charge: Number) -> tuple[Number, Number]:
            return v_a * action - x - charge, v_a * prior - largest - charge

        corners = [point(rates[0], charged[0]), point(rates[1], charged[0])]
        corners += [point(rates[1], charged[1]), point(rates[0], charged[1])]
        edges = [first + second for first, second in zip(corners, corners[1:] + corners[:1], strict=True)]
        if ops.lazy:  # each corner is looked at once, and what is between two only where there is something
            excess = ops.largest([_square_excess(*each, now.lam, ops) for each in corners])
            for edge in edges:
                excess = _square_excess_inside(excess, edge[:2], edge[2:], now.lam, ops)
        else:

            def along(own: Number, prior: Number, own_1: Number, prior_1: Number) -> Number:
                return _largest_square_excess((own, prior), (own_1, prior_1), now.lam, ops)

            excess = ops.largest_of(along, edges)
        totals = (excess,) if plan else (excess, excess + self._price * budget)
        short = ops.maximum(corners[1][0], 0.0)
        return Bounds(totals, short * short, (budget, gap, x, renewables, action, more))

    def close(self, step: Numbers, cost: Number, epsilon: Number, ops: Ops) -> tuple[Number, Numbers]:
        """See the class's documentation; the shortfall is rounded down, and the range of v_a outward."""
        budget, gap, x, renewables, action, more = step
        short = _root(cost, ops) * (1.0 - 8.0 * epsilon)
        off = 64.0 * epsilon * (1.0 + x + short + renewables + action)
        # So small that `off` over it covers every v_a.
        spent = ops.maximum(action, 0.5 * off)
        least, largest = (
            ops.clip((x + short + rate * renewables + sign * off) / spent, self.discharge_rate_min, 1.0)
            for rate, sign in ((self.charge_rate_min, -1.0), (1.0, 1.0))
        )
        told = ops.maximum(gap + ops.maximum(least * more, largest * more), 0.0)
        budget = ops.where(short > off, ops.minimum(budget, told), budget)
        left = ops.maximum(short - budget, 0.0)
        return left * left, (ops.maximum(budget - short, 0.0),)

    def unseen(self, step: Numbers, ops: Ops) -> Numbers:  # noqa: ARG002
        """(W,)."""
        return (step[0],)

    def gap_features(self, gaps: Numbers, ops: Ops) -> tuple[Number, Number]:  # noqa: ARG002
        """(0, e)."""
        return 0.0 * gaps[0], gaps[0]

    def gaps_from_features(self, above: Number, below: Number) -> Numbers:  # noqa: ARG002
        """(e,)."""
        return (below,)


def _square_excess(own: Number, prior: Number, lam: Number, ops: Ops) -> Number:
    """([z]^+)^2 - (1 + lam) ([z+]^+)^2 at a point (z, z+)."""
    short, prior_short = ops.maximum(own, 0.0), ops.maximum(prior, 0.0)
    return short * short - (1.0 + lam) * prior_short * prior_short


def _turn(own: Number, prior: Number, rise: Number, prior_rise: Number, lam: Number) -> tuple[Number, Number]:
    """(bend, half the slope at its start) of the excess on a line along which (z, z+) rise so much, both positive."""
    bend = rise * rise - (1.0 + lam) * prior_rise * prior_rise
    return bend, rise * own - (1.0 + lam) * prior_rise * prior


def _square_excess_inside(
    least: Number, first: tuple[Number, Number], second: tuple[Number, Number], lam: Number, ops: Ops
) -> Number:
    """`least`, or the largest excess at the places between two points (z, z+) where it can be larger than at both."""
    (own, prior), (own_1, prior_1) = first, second
    rise, prior_rise = own_1 - own, prior_1 - prior
    bend, slope = _turn(own, prior, rise, prior_rise, lam)
    turns = ops.logical_and(slope > 0.0, bend < 0.0)
    places = [(turns, -slope, bend)]
    places += [(start * change < 0.0, -start, change) for start, change in ((own, rise), (prior, prior_rise))]

    def at_least(least: Number, upper: Number, lower: Number) -> Number:
        place = ops.minimum(upper / lower, 1.0)
        return ops.maximum(least, _square_excess(own + place * rise, prior + place * prior_rise, lam, ops))

    for between, upper, lower in places:
        least = ops.branch(between, partial(at_least, least, upper, lower), partial(_same, least))
    return least


def _same(number: Number) -> Number:
    return number


def _largest_square_excess(
    first: tuple[Number, Number], second: tuple[Number, Number], lam: Number, ops: Ops
) -> Number:
    """The largest ([z]^+)^2 - (1 + lam) ([z+]^+)^2 on the line between two points (z, z+)."""
    (own, prior), (own_1, prior_1) = first, second
    rise, prior_rise = own_1 - own, prior_1 - prior

    def value(place: Number) -> Number:
        place = ops.clip(place, 0.0, 1.0)
        return _square_excess(own + place * rise, prior + place * prior_rise, lam, ops)

    bend, slope = _turn(own, prior, rise, prior_rise, lam)
    falls = bend < 0.0
    places = [0.0 * own, 0.0 * own + 1.0, ops.where(falls, -slope / ops.where(falls, bend, 1.0), 0.0)]
    for start, change in ((own, rise), (prior, prior_rise)):
        moves = abs(change) > 0.0
        places.append(ops.where(moves, -start / ops.where(moves, change, 1.0), 0.0))
    return ops.largest_of(value, [(place,) for place in places])


def _root(value: Number, ops: Ops) -> Number:
    """The square root, with a finite derivative at 0."""
    positive = value > 0.0
    return ops.where(positive, ops.sqrt(ops.where(positive, value, 1.0)), 0.0)
