"""What is known of the paper's two systems, for `Structured` certificates: each bound with its proof."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tether import _validate
from tether.certificates.cooling import CoolingStructure
from tether.certificates.structured import Exposure, Structure


@dataclass(frozen=True)
class CarbonStructure(Structure):
    """`tether.envs.Carbon`: signed gaps e+ >= x - x+ and e- >= x+ - x between the backlog x and the prior's, x+.

    With q = x + mu, a = q/eta - s (s > 0 is less than the prior, s < 0 more), m = -n1 in [-nu, nu], n2 in [0, d] and
    kappa = m/eta - n2,

        own       y  = kappa x  + (m/eta) mu + (eta - m) s,       x'  = clip(y)  to [0, cap]
        prior's   y+ = kappa x+ + (m/eta) mu,                     x+' = clip(y+)

    and the cost is phi(x') = x'^2 + x' + 1. Write r = nu/eta, rho = max(r, d) < 1, M for the largest demand and G for
    y - y+ = kappa (x - x+) + (eta - m) s. Clipping keeps the order and makes no gap larger. A cost is above the
    prior's by w(x', x' - x+') with w(X, z) = phi(X) - phi(X - z) = z (2 X - z + 1), which grows with X, and with z up
    to X; so if x' <= X and x' - x+' <= z <= X, the difference is at most w(X, z). (What is cut at the cap only makes
    x' smaller.)

    *Noise that helps*, m <= 0: then y+ <= 0, so x+' = 0; and a >= 0 means eta s <= q, so that y <= (m/eta) q - m s +
    eta s <= eta s. That is at most the outcome of m = 0, n2 = 0 with x = x+. From here on m is in [0, nu].

    *The chain.* Let E = max(e+, (d/rho) e-). Under the prior, s = 0 and -d <= kappa <= r, so e+' <= max(r e+, d e-) <=
    rho E and (d/rho) e-' <= (d/rho) max(r e-, d e+) <= rho E; and x' <= r (x + M) <= rho (x + M). So k rounds after a
    round that ended at x' <= X with E' <= g, a cost is at most phi(Y_k) - phi(Y_k - rho^k g) above the prior's, where
    Y_k = rho^k X + M (rho + ... + rho^k), if g <= X + M so that all the arguments are at least 0; else X is raised to
    g - M. With w written out, this and the same for the round itself (k = 0, where g <= X) add
    up to closed forms,

        total_n(X, g) = g ((2 X - g) alpha_n + beta_n),         alpha_n = sum_{k<=n} rho^2k,
        later_n(X, g) = total_n(X, g) - total_0(X, g),          beta_n = sum_{k<=n} rho^k (1 + 2 M (rho + ... + rho^k)),

    increasing in X, and in g up to X (total) or X + M (later, since beta_n - 1 >= 2 M (alpha_n - 1)).

    *This round.* The outcomes for m in [0, nu] are of three kinds.

    (A) kappa >= 0, or x >= x+: y and G are largest for n2 = 0 and x - x+ = e+, X(m) = q - (eta - m) a and D(m) =
    (m/eta) e+ + (eta - m) s, where D(m) <= X(m) because e+ <= x. A_n = max over m of total_n(X(m), D(m)), a product
    of two functions linear in m: at an end or at the vertex. Where D < 0 the own cost is the smaller one and nothing is
    counted; where D >= 0, X >= 0 too and the second factor is positive.

    (B) kappa < 0 and x < x+, possible if e- > 0; then m < d eta. y <= X_B, the largest of (m/eta) mu + (eta - m) s over
    such m (at an end), and G <= g_B, the largest of d e- + (eta - m) s. B_n = total_n(X_B, min(g_B, X_B)).

    (C) What is left below: e-' = the largest -G, which is linear in each of m, n2 and x - x+ and so largest at a
    corner: max(r e- - (eta - nu) s, [d - r]^+ e+ - (eta - nu) s, d e+ - eta s); and at most the prior's x+' <= r (x +
    e- + mu). (With m < 0 the prior's backlog is 0 and nothing is below it.) The own cost is then the smaller one. It
    can turn into a positive gap later: C_n = later_n(X(nu), (d/rho) e-').

        t_n = max(A_n, B_n, t_0 + C_n),    t_0 = max(A_0, B_0, 0),    n = 0 .. K-1, and n = infinity for the last.

    *After the cost is seen*, x' is known. For 0 < x' < cap, (m, n2) lies on the segment m a - n2 x = x' - eta s. G is
    linear on it, so e+' is the largest value at its two ends, for x - x+ = e+ and -e-; and at most x', which is all
    that is said if the segment reaches m < 0 (x' < eta s; without any work, a = 0, that is always so). At the cap the
    segment is the lower edge of what is possible, m a - n2 x >= cap - eta s. For x - x+ = e+ G is largest for n2 = 0,
    so at the segment's end or at (nu, 0), which is looked at too. For x - x+ = -e- it is largest for the largest n2:
    on the segment, or for n2 = d and m up to nu, where it falls with m unless s < -e-/eta; but then G < (d - 1) e- <=
    0 at (nu, d). And x' = 0 leaves no gap above. floor = phi(x' - e+').

    *Consistency.* For each (m, n2) on the segment (or beyond it, at the cap) x' <= y <= X(m) and G <= D(m), or x' <=
    X_B and G <= g_B, so phi(x') - floor + later_{n+1}(x', e+') = total_{n+1}(x', e+') <= max(A_{n+1}, B_{n+1}); if m <
    0 is possible, x' <= eta s = X(0) = D(0). The next t_n under the prior, s = 0 and gaps e+' <= x' and e-', are terms
    of the chain: A_n = total_n(r q', r e+') and B_n <= total_n(rho q', min(d e-', rho q')) are at most later_{n+1}(x',
    E') with E' = max(e+', (d/rho) e-') cut to x' + M; in t_0 + C_n the first is at most the chain's term for k = 1
    and, as (d/rho) e-'' <= rho E', C_n at most the sum of those for k = 2 .. n+1. So the next t_n are at most the
    larger of later_{n+1}(x', e+') and later_{n+1}(x', (d/rho) e-') <= C_{n+1}; and phi(x') - floor <= t_0. Conditions
    (1) and (2) of `tether.certificates.structured` follow.

    *Where it is not sharp.* While the own backlog is below the prior's by z the prior pays at least z more, which is
    not credited: e- is a bound, and with e- = 0 it pays nothing. So an error of a few per cent in e- alone cannot
    break the promise unless what d e- costs later is many times e- (see `tether attack`).
    """

    kind: ClassVar[str] = "carbon"
    terms: ClassVar[int] = 2
    """K: from there on every later round is counted at once."""

    efficiency: float
    """eta, mean work per unit of energy."""
    efficiency_noise_max: float
    """nu, largest |n1|."""
    drop_rate_max: float
    """d, largest n2."""
    demand_max: float
    """M, largest demand."""
    backlog_max: float
    """The cap."""

    def __post_init__(self) -> None:
        for name in ("efficiency", "demand_max", "backlog_max"):
            _validate.number(name, getattr(self, name), above=0.0)
        for name in ("efficiency_noise_max", "drop_rate_max"):
            _validate.number(name, getattr(self, name), minimum=0.0)
        if not self._rho < 1.0:
            raise ValueError(
                f"under the prior gaps must shrink: max(noise / efficiency, drop rate) must be below 1, got {self._rho}"
            )

    @property
    def _rho(self) -> float:
        return max(self.efficiency_noise_max / self.efficiency, self.drop_rate_max)

    @property
    def low(self) -> float:
        """Energy spent is not negative."""
        return 0.0

    @property
    def high(self) -> float:
        """Energy spent has no upper bound."""
        return math.inf

    @property
    def scale(self) -> float:
        """The cost of leaving the largest demand undone."""
        return self.demand_max**2 + self.demand_max + 1.0

    def start(self, zero: Any) -> tuple[Any, ...]:
        """(e+, e-)."""
        return zero, zero

    def read(self, observation: Any) -> tuple[Any, ...]:
        """(x, mu) of an observation (mu, C, a, x, ...)."""
        return observation[3], observation[0]

    def admits(self, seen: tuple[Any, ...], xp: Any) -> Any:
        """Whether backlog and demand are in their ranges; a NaN is not."""
        x, mu = seen
        inside = xp.logical_and(x >= 0.0, x <= self.backlog_max)
        return xp.logical_and(inside, xp.logical_and(mu >= 0.0, mu <= self.demand_max))

    def agrees(self, seen: tuple[Any, ...], prior: Any, epsilon: Any, xp: Any) -> Any:  # noqa: ARG002
        """Whether the prior clears backlog and demand at the mean efficiency."""
        return abs(self.efficiency * prior - (seen[0] + seen[1])) <= 64.0 * epsilon * (
            1.0 + seen[0] + seen[1]
        )

    def apart(self, seen: tuple[Any, ...], prior_seen: tuple[Any, ...], xp: Any) -> tuple[Any, ...]:
        """(e+, e-)."""
        above = seen[0] - prior_seen[0]
        return xp.maximum(above, 0.0), xp.maximum(-above, 0.0)

    def refine(
        self,
        gaps: tuple[Any, ...],
        seen: tuple[Any, ...],
        epsilon: Any,  # noqa: ARG002
        xp: Any,
    ) -> tuple[Any, ...]:
        """The prior's backlog is between 0 and the cap."""
        above, below = gaps
        return xp.minimum(above, seen[0]), xp.minimum(below, self.backlog_max - seen[0])

    def exposure(
        self,
        gaps: tuple[Any, ...],
        seen: tuple[Any, ...],
        prior: Any,  # noqa: ARG002
        action: Any,
        xp: Any,
    ) -> Exposure:
        """See the class's documentation; s is counted from what the prior ought to play, however `prior` is rounded."""
        above, below = gaps
        x, mu = seen
        eta, nu, d = self.efficiency, self.efficiency_noise_max, self.drop_rate_max
        r, rho = nu / eta, self._rho
        work = x + mu
        less = work / eta - action
        # (A) at m = 0 and m = nu
        gap_0, gap_1 = eta * less, r * above + (eta - nu) * less
        reach_0, reach_1 = work - eta * action, work - (eta - nu) * action
        # (B) at m = 0 and m = least(nu, d eta)
        flip = min(nu, d * eta)
        reach_b = xp.maximum(xp.maximum(eta * less, flip / eta * mu + (eta - flip) * less), 0.0)
        gap_b = xp.maximum(d * below + xp.maximum(eta * less, (eta - flip) * less), 0.0)
        gap_b = xp.where(below > 0.0, xp.minimum(gap_b, reach_b), 0.0)
        # (C)
        under = xp.maximum(
            xp.maximum(r * below, max(d - r, 0.0) * above) - (eta - nu) * less, d * above - eta * less
        )
        under = xp.minimum(xp.maximum(under, 0.0), r * (work + below))
        worst = xp.maximum(reach_1, 0.0)
        hidden = d / max(rho, 1e-300) * under
        raised = xp.maximum(worst, hidden - self.demand_max)

        totals: list[Any] = []
        for alpha, beta in self._sums():
            first, second = (2.0 * reach_0 - gap_0) * alpha + beta, (2.0 * reach_1 - gap_1) * alpha + beta
            total = _largest_product(gap_0, gap_1, first, second, xp)
            total = xp.maximum(total, gap_b * ((2.0 * reach_b - gap_b) * alpha + beta))
            if totals:
                later = hidden * ((2.0 * raised - hidden) * (alpha - 1.0) + (beta - 1.0))
                total = xp.maximum(total, totals[0] + later)
            totals.append(total)
        most = xp.minimum(worst, self.backlog_max)
        return Exposure(tuple(totals), most * most + most + 1.0, (x, mu, action, less, above, below, under))

    def close(self, step: tuple[Any, ...], cost: Any, epsilon: Any, xp: Any) -> tuple[Any, tuple[Any, ...]]:
        """See the class's documentation; the segment is widened by what round-off can do to its place."""
        x, mu, action, less, above, below, under = step
        eta, nu, d = self.efficiency, self.efficiency_noise_max, self.drop_rate_max
        left = 0.5 * (xp.sqrt(xp.maximum(4.0 * cost - 3.0, 1.0)) - 1.0)
        off = 64.0 * epsilon * (1.0 + x + mu + left + abs(eta * less))
        # So small that `off` over it covers every m and n2, and no smaller, for the sake of derivatives.
        tiny = 64.0 * epsilon / (1.0 + nu)
        spent, behind = xp.maximum(action, tiny), xp.maximum(x, tiny)
        # One end of the segment has n2 = 0, the other the largest n2 that goes with an m up to nu.
        least = (left - off - eta * less) / spent
        least_m = xp.minimum(xp.maximum(least, 0.0), nu)
        largest_m = xp.minimum(xp.maximum((left - off + d * x - eta * less) / spent, 0.0), nu)
        line = eta * less + largest_m * action - left
        drops = [xp.minimum(xp.maximum((line + sign * off) / behind, 0.0), d) for sign in (-2.0, 2.0)]
        edge = xp.where(left >= self.backlog_max - off, nu, least_m)  # the cap may hide any larger m
        gap = 0.0 * left
        # G grows with m by no more than the work, as e+ <= x, but falls with it as fast as e- over the work is large:
        # so both m are rounded down.
        for m, n2 in ((least_m, 0.0), (edge, 0.0), (largest_m, drops[0]), (largest_m, drops[1])):
            factor = m / eta - n2
            apart = xp.maximum(factor * above, -factor * below)
            gap = xp.maximum(gap, apart + (eta - m) * less)
        gap = xp.where(least < 0.0, left, xp.minimum(gap, left))
        floor = left - gap
        return floor * floor + floor + 1.0, (gap, under)

    def felt(self, gaps: tuple[Any, ...], xp: Any) -> tuple[Any, Any]:  # noqa: ARG002
        """(e+, e-)."""
        return gaps[0], gaps[1]

    def unfelt(self, above: Any, below: Any) -> tuple[Any, ...]:
        """(e+, e-)."""
        return above, below

    def _sums(self) -> list[tuple[float, float]]:
        """(alpha_n, beta_n) for n = 0 .. K-1 and for n = infinity."""
        rho, sums = self._rho, []
        alpha = beta = reached = 0.0
        for n in range(self.terms):
            alpha += rho ** (2 * n)
            beta += rho**n * (1.0 + 2.0 * self.demand_max * reached)
            reached += rho ** (n + 1)
            sums.append((alpha, beta))
        alpha = 1.0 / (1.0 - rho**2)
        beta = 1.0 / (1.0 - rho) + 2.0 * self.demand_max * rho / (1.0 - rho) * (1.0 / (1.0 - rho) - alpha)
        return [*sums, (alpha, beta)]


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

    *Now.* The shortfall is at most Z_a = [a - x - w e_h]^+, the prior's, on whatever charge x+ >= 0, at most Z_h =
    [min(mu - w e_h, s + (v - w) e_h)]^+ in this round and Z = s + (1 - w/v) (M - s) in any (s cut to M). With u = z -
    z+ <= min(W, Z_a) and z+ <= min(Z_h, Z_a - u)

        c - c+ = u (u + 2 z+) <= P(u) := u (u + 2 min(Z_h, Z_a - u)),  which grows with u:  t_0 = P(min(W, Z_a)).

    *Later*, under the prior, z + z+ <= 2 Z, and all the u to come add up to at most the gap W - u that is left. So

        t_1 = max over u of P(u) + 2 Z (W - u) = max(2 Z W, P(v) + 2 Z (W - v)),   v = min(W, [Z_a - Z_h]^+),

    for every n >= 1: below Z_a - Z_h the function is convex in u, above it falls because Z_h <= Z.

    *After the cost is seen* z is known. If z > W the prior has bought at least z - W > 0, its battery is empty,
    and no gap is left. If z <= W: either the prior bought something, and no gap is left, or u = z, and W - z is
    left. In both cases

        floor = ([z - W]^+)^2,     e' = [W - z]^+.

    *Consistency.* (1) c - floor is W (W + 2 (z - W)) for z > W, where z - W <= min(Z_h, Z_a - W), hence at most
    P(W); or z^2 <= P(z). (2) c - floor + 2 Z e' is that with u = min(W, z), so at most t_1. And under the prior
    in the next round W <= e' and Z_a <= Z_h (x' >= 0), so that v = 0 and t_0 <= 2 Z_a W <= t_1 = 2 Z W <= 2 Z e'.
    """

    kind: ClassVar[str] = "inference"

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
            _validate.number(name, getattr(self, name), above=0.0)
        for name in ("slack", "discharge_rate_min", "charge_rate_min"):
            _validate.number(name, getattr(self, name), minimum=0.0)
        _validate.number("charge_rate", self.charge_rate, minimum=self.charge_rate_min, above=0.0)
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

    def start(self, zero: Any) -> tuple[Any, ...]:
        """(e,)."""
        return (zero,)

    def read(self, observation: Any) -> tuple[Any, ...]:
        """(x, mu, renewables) of an observation (mu, e_h, a, x, ...)."""
        return observation[3], observation[0], observation[1]

    def admits(self, seen: tuple[Any, ...], xp: Any) -> Any:
        """Whether charge, demand and renewables are in their ranges; a NaN is not."""
        x, mu, renewables = seen
        inside = xp.logical_and(x >= 0.0, x <= self.capacity)
        possible = xp.logical_and(mu >= 0.0, mu <= self.demand_max)
        return xp.logical_and(xp.logical_and(inside, possible), xp.isfinite(renewables) & (renewables >= 0.0))

    def agrees(self, seen: tuple[Any, ...], prior: Any, epsilon: Any, xp: Any) -> Any:
        """Whether the prior meets the demand, or spends what it has and the slack if that is less."""
        x, mu, renewables = seen
        off = abs(prior - xp.minimum(mu, x + self.charge_rate * renewables + self.slack))
        return off <= 64.0 * epsilon * (1.0 + x + mu + renewables)

    def apart(self, seen: tuple[Any, ...], prior_seen: tuple[Any, ...], xp: Any) -> tuple[Any, ...]:
        """(e,)."""
        return (xp.maximum(prior_seen[0] - seen[0], 0.0),)

    def refine(
        self,
        gaps: tuple[Any, ...],
        seen: tuple[Any, ...],
        epsilon: Any,  # noqa: ARG002
        xp: Any,
    ) -> tuple[Any, ...]:
        """The prior's battery holds no more than its capacity."""
        return (xp.minimum(gaps[0], self.capacity - seen[0]),)

    def exposure(
        self,
        gaps: tuple[Any, ...],
        seen: tuple[Any, ...],
        prior: Any,  # noqa: ARG002
        action: Any,
        xp: Any,
    ) -> Exposure:
        """See the class's documentation."""
        (gap,) = gaps
        x, mu, renewables = seen
        with_gap = xp.minimum(mu, x + gap + self.charge_rate * renewables + self.slack)
        more = action - with_gap
        budget = xp.maximum(gap + xp.maximum(self.discharge_rate_min * more, more), 0.0)
        charged = self.charge_rate_min * renewables
        short = xp.maximum(action - x - charged, 0.0)
        overestimated = (self.charge_rate - self.charge_rate_min) * renewables
        short_prior = xp.maximum(xp.minimum(mu - charged, self.slack + overestimated), 0.0)

        def at_most(used: Any) -> Any:
            return used * (used + 2.0 * xp.minimum(short_prior, short - used))

        now = at_most(xp.minimum(budget, short))
        turn = xp.minimum(budget, xp.maximum(short - short_prior, 0.0))
        total = xp.maximum(self._price * budget, at_most(turn) + self._price * (budget - turn))
        return Exposure((now, total), short * short, (budget,))

    def close(self, step: tuple[Any, ...], cost: Any, epsilon: Any, xp: Any) -> tuple[Any, tuple[Any, ...]]:
        """See the class's documentation; the shortfall is rounded down."""
        (budget,) = step
        short = _root(cost, xp) * (1.0 - 8.0 * epsilon)
        return xp.maximum(short - budget, 0.0) ** 2, (xp.maximum(budget - short, 0.0),)

    def felt(self, gaps: tuple[Any, ...], xp: Any) -> tuple[Any, Any]:  # noqa: ARG002
        """(0, e)."""
        return 0.0 * gaps[0], gaps[0]

    def unfelt(self, above: Any, below: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """(e,)."""
        return (below,)


STRUCTURES: dict[str, type[Any]] = {
    each.kind: each for each in (CarbonStructure, InferenceStructure, CoolingStructure)
}
"""The structures by their `kind`."""


def _largest_product(first_0: Any, first_1: Any, second_0: Any, second_1: Any, xp: Any) -> Any:
    """The largest product of two linear functions on [0, 1], given by their values at the ends, and at least 0.

    Where the first is negative nothing is counted; where it is not, the second must be positive.
    """
    rise, other = first_1 - first_0, second_1 - second_0
    bend = rise * other
    falls = bend < 0.0
    place = -(first_0 * other + second_0 * rise) / xp.where(falls, 2.0 * bend, 1.0)
    place = xp.where(falls, xp.minimum(xp.maximum(place, 0.0), 1.0), 0.0)
    inside = xp.maximum(first_0 + place * rise, 0.0) * (second_0 + place * other)
    ends = xp.maximum(xp.maximum(first_0, 0.0) * second_0, xp.maximum(first_1, 0.0) * second_1)
    return xp.maximum(xp.maximum(ends, inside), 0.0)


def _root(value: Any, xp: Any) -> Any:
    """The square root, with a finite derivative at 0."""
    positive = value > 0.0
    return xp.where(positive, xp.sqrt(xp.where(positive, value, 1.0)), 0.0)
