"""What is known of `tether.envs.Cooling`, a vector state and a vector action, for `Structured` certificates."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.certificates.structured import Exposure, Structure


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
    band]^+, as L_i <= U_i. So c - c+ <= sum_i w_i max_v (phi(x_i'(v)) - m_i(v)) = t_0. The first term is convex in v,
    and m_i is linear but where it begins to rise (its two parts are never positive at once), so the largest value is at
    v_low, at 1, or where L_i(v) = setpoint + band or U_i(v) = setpoint - band. t_0 is negative where the own rooms are
    better off whatever happens; so even with lam = b = 0 what is certain to be no worse than the prior may be played.

    *Later*, under the prior, u and l after n more rounds are at most A^n [u']^+ and A^n [l']^+. A room is not above and
    below the prior's at once, and phi has slope at most 1, so

        t_n = t_0 + sum_{k=1..n} w . M_k,                   M_k = max(A^k [u']^+, A^k [l']^+) entry by entry,

    and from K on sum_{k>=K} w . M_k <= w . (I - A)^-1 M_K, because M_{k+1} <= A M_k. So a gap of rooms that are off in
    opposite directions costs less: heat passes through the wall.

    *After the cost is seen* only their sum is known of the rooms: floor = 1 + sum_i w_i [max(L_i(1) - setpoint,
    setpoint - U_i(v_low)) - band]^+, or c - t_0 if that is more (`Structured` sees to it). *When the next state is
    seen*, it tells v_i = (D_i - x_i') / (k a_i): where a unit ran, the gaps at this v_i are taken; where it did not,
    the larger ends. This is set membership: while both units run, both gaps are known up to round-off, u = -l.

    *Consistency.* (1) floor >= c - t_0. (2) Under the prior in the next round t_0(next) <= w . max([u'']^+, [l'']^+) <=
    w . M_1, as phi has slope at most 1, and its M_k are at most the M_{k+1} of this round; for the last, w . M_K +
    w . (I - A)^-1 M_{K+1} <= w . (I - A)^-1 M_K. So t_n(next) <= t_{n+1} - t_0, and c - floor <= t_0.

    All t_n are convex in the action: the safe set is convex. Nothing is assumed of loads, weather and prices to come.
    """

    kind: ClassVar[str] = "cooling"
    entries: ClassVar[int] = 2
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

    def start(self, zero: Any) -> tuple[Any, ...]:
        """(u_1, l_1, u_2, l_2), (x_1, x_2, q_1, q_2, T) and (a_1, a_2) of the last round: one that left no gap."""
        usual = zero + self.setpoint
        return (*(zero,) * 4, usual, usual, zero, zero, usual, zero, zero)

    def read(self, observation: Any) -> tuple[Any, ...]:
        """(x_1, x_2, q_1, q_2, T) of an observation (q_1, q_2, T, p, x_1, x_2, ...)."""
        load_1, load_2, outside, _, x_1, x_2 = (observation[i] for i in range(6))
        return x_1, x_2, load_1, load_2, outside

    def admits(self, seen: tuple[Any, ...], xp: Any) -> Any:
        """Whether all numbers are finite and no load is negative."""
        x_1, x_2, load_1, load_2, outside = seen
        known = xp.isfinite(x_1 + x_2 + load_1 + load_2 + outside)
        return xp.logical_and(known, xp.logical_and(load_1 >= 0.0, load_2 >= 0.0))

    def agrees(self, seen: tuple[Any, ...], prior: Any, epsilon: Any, xp: Any) -> Any:
        """Whether both thermostats play what the bounds take them to play."""
        off = 0.0
        for i in (0, 1):
            _, _, _, usual, _ = self._room(i, (0.0,) * 4, seen, xp)
            off = off + abs(self.heating * prior[i] - usual)
        size = 1.0 + abs(self.setpoint) + sum(abs(each) for each in seen)
        return off <= 64.0 * epsilon * size * (1.0 + self.heating * self.gain)

    def apart(self, seen: tuple[Any, ...], prior_seen: tuple[Any, ...], xp: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """(u_1, l_1, u_2, l_2)."""
        first, second = seen[0] - prior_seen[0], seen[1] - prior_seen[1]
        return first, -first, second, -second

    def refine(self, gaps: tuple[Any, ...], seen: tuple[Any, ...], epsilon: Any, xp: Any) -> tuple[Any, ...]:
        """(u_1, l_1, u_2, l_2), with v as the state tells it, give or take what round-off can do to it."""
        before, seen_before, actions = gaps[:4], gaps[4:9], gaps[9:]
        refined: list[Any] = []
        for i in (0, 1):
            uncooled, rise, fall, coldest, hottest = self._room(i, before, seen_before, xp)
            cooled, x = self.heating * actions[i], seen[i] - self.setpoint
            off = 64.0 * epsilon * (1.0 + abs(self.setpoint) + abs(x) + abs(uncooled) + cooled)
            effect = xp.maximum(cooled, 0.25 * off)  # where a unit hardly ran, the quotient covers every v
            least, largest = (
                xp.minimum(xp.maximum((uncooled - x + sign * off) / effect, self.effectiveness_min), 1.0)
                for sign in (-1.0, 1.0)
            )
            for gap, slope in ((rise, coldest - cooled), (fall, cooled - hottest)):
                refined.append(gap + xp.maximum(least * slope, largest * slope))
        return tuple(refined)

    def exposure(
        self,
        gaps: tuple[Any, ...],
        seen: tuple[Any, ...],
        prior: Any,  # noqa: ARG002
        action: Any,
        xp: Any,
    ) -> Exposure:
        """See the class's documentation."""
        lowest, band = self.effectiveness_min, self.band
        now = ceiling = floor = 0.0
        after: list[Any] = []
        for i in (0, 1):
            uncooled, rise, fall, coldest, hottest = self._room(i, gaps, seen, xp)
            cooled, low, high = self.heating * action[i], uncooled - rise, uncooled + fall

            def own(v: Any, uncooled: Any = uncooled, cooled: Any = cooled) -> Any:
                return xp.maximum(abs(uncooled - v * cooled) - band, 0.0)

            def least(low: Any, high: Any) -> Any:
                return xp.maximum(xp.maximum(low, -high) - band, 0.0)

            at_lowest, at_largest = own(lowest), own(1.0)
            worst = xp.maximum(
                at_lowest - least(low - lowest * coldest, high - lowest * hottest),
                at_largest - least(low - coldest, high - hottest),
            )
            for place, rate in ((low - band, coldest), (high + band, hottest)):
                turn = xp.minimum(xp.maximum(place / xp.where(rate > 0.0, rate, 1.0), lowest), 1.0)
                worst = xp.maximum(worst, own(turn) - least(low - turn * coldest, high - turn * hottest))
            now = now + self.discomfort[i] * worst
            ceiling = ceiling + self.discomfort[i] * xp.maximum(at_lowest, at_largest)
            floor = floor + self.discomfort[i] * least(low - coldest, high - lowest * hottest)
            for gap, slope in ((rise, coldest - cooled), (fall, cooled - hottest)):
                after.append(xp.maximum(gap + xp.maximum(lowest * slope, slope), 0.0))
        totals = tuple(now + each for each in self._later(after, xp))
        return Exposure(totals, 1.0 + ceiling, (1.0 + floor, *gaps, *seen, action[0], action[1]))

    def _room(self, i: int, gaps: tuple[Any, ...], seen: tuple[Any, ...], xp: Any) -> tuple[Any, ...]:
        """(D_i, u_i' and l_i' without cooling, k pi_i(x_i - u_i), k pi_i(x_i + l_i)); D_i from the setpoint."""
        stay, wall, j = self._stay, self.wall, 1 - i
        x, load, outside, above, below = seen[i], seen[2 + i], seen[4], gaps[2 * i], gaps[2 * i + 1]
        uncooled = stay * x + wall * seen[j] + self.leak * outside + self.heating * load - self.setpoint
        rise, fall = stay * above + wall * gaps[2 * j], stay * below + wall * gaps[2 * j + 1]
        entering = load + self.leak / self.heating * (outside - self.setpoint)
        usual = entering / (0.5 * (self.effectiveness_min + 1.0)) + self.gain * (x - self.setpoint)
        coldest, hottest = (
            self.heating * xp.minimum(xp.maximum(usual + self.gain * more, 0.0), self.action_max)
            for more in (-above, below)
        )
        return uncooled, rise, fall, coldest, hottest

    def close(self, step: tuple[Any, ...], cost: Any, epsilon: Any, xp: Any) -> tuple[Any, tuple[Any, ...]]:  # noqa: ARG002
        """See the class's documentation."""
        return step[0], step[1:]

    def felt(self, gaps: tuple[Any, ...], xp: Any) -> tuple[Any, Any]:
        """(u, l) of the room in which it is larger; 0 where none is positive."""
        above_1, below_1, above_2, below_2 = gaps
        above, below = xp.maximum(above_1, above_2), xp.maximum(below_1, below_2)
        return xp.maximum(above, 0.0), xp.maximum(below, 0.0)

    def _later(self, after: list[Any], xp: Any) -> list[Any]:
        """sum_{k<=n} w . M_k for n = 0 .. K-1 and for n = infinity, from the [u'_1, l'_1, u'_2, l'_2] of this round."""
        above_1, below_1, above_2, below_2 = after
        total, sums = 0.0, [0.0]
        for same, across, weight_1, weight_2 in self._powers:
            one = xp.maximum(same * above_1 + across * above_2, same * below_1 + across * below_2)
            two = xp.maximum(across * above_1 + same * above_2, across * below_1 + same * below_2)
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
