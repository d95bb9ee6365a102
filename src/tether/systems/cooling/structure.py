"""What is known of `tether.envs.Cooling`, a vector state and a vector action, for `Structured` certificates."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from tether.certificates.structure import Bounds, Numbers, Round, Structure
from tether.core.certificate import Action, Observation
from tether.core.ops import Flag, Number, Ops

FAR = 100.0
"""Temperatures and loads of so many times the usual size are not covered."""


@dataclass(frozen=True)
class CoolingStructure(Structure):
    """`tether.envs.Cooling`: for each room i signed gaps, -l_i <= x_i - x+_i <= u_i, to the prior's temperature x+_i.

    Write k = heating, stay = 1 - wall - leak, j for the other room, pi_i(x) for the thermostat with this round's load
    and outside temperature (cut to [0, a_max]), D_i = stay x_i + wall x_j + leak T + k q_i for what the temperature
    becomes without cooling, and phi(y) = [|y - setpoint| - band]^+. With v = v_i in [v_low, 1],

        own       x_i'(v)  = D_i - k v a_i
        prior's   x+_i'(v) = D_i - stay (x_i - x+_i) - wall (x_j - x+_j) - k v pi_i(x+_i)

    and the cost is 1 + sum_i w_i phi(x_i').

    *Order.* pi_i rises with x_i, by at most `gain` a degree, so if stay >= k gain (checked) x+_i' never falls when x+_1
    or x+_2 rises. So it is at least L_i(v), for the coldest rooms that the prior may have, x - u, and at most U_i(v),
    for the hottest, x + l; both linear in v:

        L_i(v) = D_i - stay u_i - wall u_j - k v pi_i(x_i - u_i),
        U_i(v) = D_i + stay l_i + wall l_j - k v pi_i(x_i + l_i).

    *Gaps.* For this v they become u_i'(v) = x_i'(v) - L_i(v) and l_i'(v) = U_i(v) - x_i'(v), linear in v: before the
    next state is seen, at most their larger end. Under the prior a_i = pi_i(x_i), and the slopes of pi_i give

        u' <= A [u]^+,  l' <= A [l]^+,                      A = (stay, wall; wall, stay),

    whatever load, weather and v are, because those of stay x_i - k v pi_i(x_i) are between 0 and stay.

    *Now.* The least that the prior's room can cost at v is m_i(v) = [max(L_i(v) - setpoint, setpoint - U_i(v)) -
    band]^+, as L_i <= U_i. So the excess c - (1 + lam) c+ is at most

        T_0 = -lam + sum_i w_i max_v (phi(x_i'(v)) - (1 + lam) m_i(v)).

    The first term is convex in v, and m_i is linear but where it begins to rise (its two parts are never positive at
    once), so the largest value is at v_low, at 1, or where L_i(v) = setpoint + band or U_i(v) = setpoint - band. With
    lam = 0 this is t_0 >= c - c+. It is negative where the guarded rooms are better off in any case; so even with lam
    = b = 0 what is certain to be no worse than the prior may be played.

    *Later*, under the prior, u and l after n more rounds are at most A^n [u']^+ and A^n [l']^+. A room is not above and
    below the prior's at once, phi has slope at most 1, and c+ >= 1, so

        T_n = T_0 + sum_{k=1..n} w . M_k - n lam,           M_k = max(A^k [u']^+, A^k [l']^+) entry by entry,

    and from K on sum_{k>=K} w . M_k <= w . (I - A)^-1 M_K, because M_{k+1} <= A M_k. So a gap of rooms that are off in
    opposite directions costs less: heat passes through the wall. No other backup does better whatever loads and
    weather come: a unit that is off cannot warm a room that is too cold, and one at its limit cannot cool one that is
    too hot, so that a gap may have to fade by itself.

    *After the cost is seen* only their sum is known of the rooms: floor = 1 + sum_i w_i [max(L_i(1) - setpoint,
    setpoint - U_i(v_low)) - band]^+, or c - t_0 if that is more. *When the next state is seen*, it tells v_i = (D_i -
    x_i') / (k a_i): where a unit ran, the gaps at this v_i are taken; where it did not, the larger ends. This is set
    membership: while both units run, both gaps are known up to round-off, u = -l. Round-off is that of everything that
    the temperature was computed from, load and weather included.

    All T_n are convex in the action: the safe set is convex. Nothing is assumed of loads, weather and prices to come.
    """

    kind: ClassVar[str] = "cooling"
    entries: ClassVar[int] = 2
    gap_names: ClassVar[tuple[str, ...]] = ("above", "below", "above", "below")
    straight: ClassVar[bool] = True
    turns: ClassVar[int] = 12
    terms: ClassVar[int] = 8
    """K: from there on every later round is counted at once."""

    action_max: float
    """a_max, kWh."""
    setpoint: float
    """Degrees Celsius."""
    band: float
    """Departure from the setpoint that costs nothing, degrees."""
    discomfort: tuple[float, float]
    """w, cost of a degree beyond the band in each room."""
    wall: float
    """Share of the difference between the rooms that passes in a round."""
    leak: float
    """Share of the difference to the outside that passes in a round."""
    heating: float
    """k, degrees by which a kWh heats a room."""
    gain: float
    """Of the thermostat, kWh per degree."""
    effectiveness_min: float
    """v_low; the largest v is 1."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "discomfort", tuple(self.discomfort))  # JSON knows no tuples
        if not self.heating * self.gain <= self._stay:
            raise ValueError(
                "under the prior a room that is hotter must stay hotter: heating * gain must be at most "
                f"1 - wall - leak, got {self.heating * self.gain:g} and {self._stay:g}; use tether.LipschitzCertificate"
            )

    @property
    def _stay(self) -> float:
        return 1.0 - self.wall - self.leak

    @property
    def low(self) -> float:
        """A unit is off."""
        return 0.0

    @property
    def high(self) -> float:
        """A unit is at its limit."""
        return self.action_max

    @property
    def scale(self) -> float:
        """Temperatures are rounded in proportion to their size, and the cost of that adds up over the rounds."""
        return sum(self.discomfort) * (abs(self.setpoint) + self.heating * self.action_max) / self.leak

    def start(self, zero: Number) -> Numbers:
        """(u_1, l_1, u_2, l_2), (x_1, x_2, q_1, q_2, T) and (a_1, a_2) of the last round: one that left no gap."""
        usual = zero + self.setpoint
        return (*(zero,) * 4, usual, usual, zero, zero, usual, zero, zero)

    def read(self, observation: Observation) -> Numbers:
        """(x_1, x_2, q_1, q_2, T) of an observation (q_1, q_2, T, p, x_1, x_2, ...)."""
        load_1, load_2, outside, _, x_1, x_2 = (observation[i] for i in range(6))
        return x_1, x_2, load_1, load_2, outside

    def admits(self, seen: Numbers, ops: Ops) -> Flag:
        """Whether no load is negative, and no temperature and no load so far out that round-off would count."""
        _, _, load_1, load_2, _ = seen
        size = self._size(0, seen) + self._size(1, seen)
        usual = FAR * (1.0 + abs(self.setpoint) + self.heating * self.action_max)
        return ops.logical_and(size <= usual, ops.logical_and(load_1 >= 0.0, load_2 >= 0.0))

    def agrees(self, seen: Numbers, prior: Action, epsilon: Number, ops: Ops) -> Flag:
        """Whether both thermostats play what the bounds take them to play."""
        off = 0.0
        for i in (0, 1):
            _, _, _, usual, _ = self._room(i, (0.0,) * 4, seen, ops)
            off = off + abs(self.heating * prior[i] - usual)
        size = 1.0 + abs(self.setpoint) + sum(abs(each) for each in seen)
        return off <= 64.0 * epsilon * size * (1.0 + self.heating * self.gain)

    def gaps_between(self, seen: Numbers, prior_seen: Numbers, ops: Ops) -> Numbers:  # noqa: ARG002
        """(u_1, l_1, u_2, l_2)."""
        first, second = seen[0] - prior_seen[0], seen[1] - prior_seen[1]
        return first, -first, second, -second

    def refine(self, gaps: Numbers, seen: Numbers, epsilon: Number, ops: Ops) -> Numbers:
        """(u_1, l_1, u_2, l_2), with v as the state tells it, give or take what round-off can do to it."""
        before, seen_before, actions = gaps[:4], gaps[4:9], gaps[9:]
        refined: list[Number] = []
        for i in (0, 1):
            uncooled, rise, fall, coldest, hottest = self._room(i, before, seen_before, ops)
            cooled, x = self.heating * actions[i], seen[i] - self.setpoint
            # Of everything that the temperature was computed from, before it cancels.
            off = 64.0 * epsilon * (self._size(i, seen_before) + abs(x) + abs(rise) + abs(fall) + cooled)
            effect = ops.maximum(cooled, 0.25 * off)  # where a unit hardly ran, the quotient covers every v
            least, largest = (
                ops.clip((uncooled - x + sign * off) / effect, self.effectiveness_min, 1.0)
                for sign in (-1.0, 1.0)
            )
            for gap, slope in ((rise, coldest - cooled), (fall, cooled - hottest)):
                refined.append(gap + ops.maximum(least * slope, largest * slope) + 0.125 * off)
        return tuple(refined)

    def bounds(self, now: Round, action: Action, plan: int, ops: Ops) -> Bounds:  # noqa: ARG002
        """See the class's documentation."""
        gaps, seen = now.gaps, now.seen
        excess, difference, ceiling, floor = -now.lam, 0.0, 1.0, 1.0
        after: list[Number] = []
        for i, weight in enumerate(self.discomfort):
            room = self._room(i, gaps, seen, ops)
            worst, worst_difference, most, least = self._worst(room, action[i], now.lam, ops)
            excess, difference = excess + weight * worst, difference + weight * worst_difference
            ceiling, floor = ceiling + weight * most, floor + weight * least
            _, rise, fall, coldest, hottest = room
            cooled = self.heating * action[i]
            for gap, slope in ((rise, coldest - cooled), (fall, cooled - hottest)):
                left = gap + ops.maximum(self.effectiveness_min * slope, slope)
                after.append(ops.maximum(left, 0.0))
        totals = tuple(excess + each - n * now.lam for n, each in enumerate(self._later(after, ops)))
        return Bounds(totals, ceiling, (floor, difference, *gaps, *seen, action[0], action[1]))

    def _worst(
        self, room: Numbers, action: Number, lam: Number, ops: Ops
    ) -> tuple[Number, Number, Number, Number]:
        """Of one room, degrees: the largest phi(x') - (1 + lam) m and phi(x') - m, the largest phi(x'), the least m."""
        uncooled, rise, fall, coldest, hottest = room
        cooled, low, high = self.heating * action, uncooled - rise, uncooled + fall
        lowest, band = self.effectiveness_min, self.band

        def own(v: Number) -> Number:
            return ops.maximum(abs(uncooled - v * cooled) - band, 0.0)

        def least(low: Number, high: Number) -> Number:
            return ops.maximum(ops.maximum(low, -high) - band, 0.0)

        places: list[Number] = [lowest, 1.0]
        for place, rate in ((low - band, coldest), (high + band, hottest)):
            places.append(ops.clip(place / ops.where(rate > 0.0, rate, 1.0), lowest, 1.0))
        pairs = [(own(v), least(low - v * coldest, high - v * hottest)) for v in places]
        worst = ops.largest([mine - (1.0 + lam) * its for mine, its in pairs])
        difference = ops.largest([mine - its for mine, its in pairs])
        most = ops.maximum(pairs[0][0], pairs[1][0])
        return worst, difference, most, least(low - coldest, high - lowest * hottest)

    def _size(self, i: int, seen: Numbers) -> Number:
        """What round-off of the next temperature of a room is proportional to, degrees."""
        stay, wall, j = self._stay, self.wall, 1 - i
        entering = self.leak * abs(seen[4]) + self.heating * abs(seen[2 + i])
        return 1.0 + abs(self.setpoint) + stay * abs(seen[i]) + wall * abs(seen[j]) + entering

    def _room(self, i: int, gaps: Numbers, seen: Numbers, ops: Ops) -> Numbers:
        """(D_i, u_i' and l_i' without cooling, k pi_i(x_i - u_i), k pi_i(x_i + l_i)); D_i from the setpoint."""
        stay, wall, j = self._stay, self.wall, 1 - i
        x, load, outside, above, below = seen[i], seen[2 + i], seen[4], gaps[2 * i], gaps[2 * i + 1]
        uncooled = stay * x + wall * seen[j] + self.leak * outside + self.heating * load - self.setpoint
        rise, fall = stay * above + wall * gaps[2 * j], stay * below + wall * gaps[2 * j + 1]
        entering = load + self.leak / self.heating * (outside - self.setpoint)
        usual = entering / (0.5 * (self.effectiveness_min + 1.0)) + self.gain * (x - self.setpoint)
        coldest, hottest = (
            self.heating * ops.minimum(ops.maximum(usual + self.gain * more, 0.0), self.action_max)
            for more in (-above, below)
        )
        return uncooled, rise, fall, coldest, hottest

    def close(self, step: Numbers, cost: Number, epsilon: Number, ops: Ops) -> tuple[Number, Numbers]:
        """See the class's documentation."""
        floor, difference = step[:2]
        seen = cost - difference - 64.0 * epsilon * (cost + abs(difference))
        return ops.maximum(floor, seen), step[2:]

    def unseen(self, step: Numbers, ops: Ops) -> Numbers:  # noqa: ARG002
        """The gaps do not depend on the cost."""
        return step[2:]

    def gap_features(self, gaps: Numbers, ops: Ops) -> tuple[Number, Number]:
        """(u, l) of the room in which it is larger; 0 where none is positive."""
        above_1, below_1, above_2, below_2 = gaps
        above, below = ops.maximum(above_1, above_2), ops.maximum(below_1, below_2)
        return ops.maximum(above, 0.0), ops.maximum(below, 0.0)

    def gaps_from_features(self, above: Number, below: Number) -> Numbers:
        """(u, l) in both rooms, which is at least what there is, and the round before it.

        That round is one in which no unit ran and no thermostat asked for it: rooms that are cold enough, no load, the
        outside at the setpoint. So `refine` finds what is left of its gaps after a round, 1 - leak of each.
        """
        left = max(1.0 - self.leak, 1e-12)  # where nothing is left, no gap has these features but 0
        above, below = above / left, below / left
        cold, zero = self.setpoint - below, 0.0 * above
        return (above, below, above, below, cold, cold, zero, zero, zero + self.setpoint, zero, zero)

    def _later(self, after: list[Number], ops: Ops) -> list[Number]:
        """sum_{k<=n} w . M_k for n = 0 .. K-1 and for n = infinity, from the [u'_1, l'_1, u'_2, l'_2] of this round."""
        above_1, below_1, above_2, below_2 = after
        total, sums = 0.0, [0.0]
        for same, across, weight_1, weight_2 in self._powers:
            one = ops.maximum(same * above_1 + across * above_2, same * below_1 + across * below_2)
            two = ops.maximum(across * above_1 + same * above_2, across * below_1 + same * below_2)
            total = total + (weight_1 * one + weight_2 * two)
            sums.append(total)
        return sums

    @functools.cached_property
    def _powers(self) -> list[tuple[float, float, float, float]]:
        """For k = 1 .. K the two entries of A^k and the weights of M_k: w, and for the last w (I - A)^-1."""
        wall, leak, (weight_1, weight_2) = self.wall, self.leak, self.discomfort
        powers = []
        for k in range(1, self.terms + 1):
            together, against = (1.0 - leak) ** k, (1.0 - leak - 2.0 * wall) ** k  # the eigenvalues of A
            if k == self.terms:
                weight_1, weight_2 = (
                    ((wall + leak) * mine + wall * others) / (leak * (leak + 2.0 * wall))
                    for mine, others in ((weight_1, weight_2), (weight_2, weight_1))
                )
            powers.append((0.5 * (together + against), 0.5 * (together - against), weight_1, weight_2))
        return powers
