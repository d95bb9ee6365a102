"""What is known of the carbon system, for `Structured` certificates: each bound with its proof."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tether.certificates.structure import Bounds, Numbers, Round, Structure
from tether.core import validate
from tether.core.certificate import Observation
from tether.core.ops import Flag, Number, Ops


@dataclass(frozen=True)
class CarbonStructure(Structure):
    """`tether.envs.Carbon`: signed gaps e+ >= x - x+ and e- >= x+ - x between the backlog x and the prior's, x+.

    With q = x + mu, a = q/eta - s (s > 0 is less than the prior, s < 0 more), m = -n1 in [-nu, nu], n2 in [0, d] and
    kappa = m/eta - n2,

        own       y  = kappa x  + (m/eta) mu + (eta - m) s = q - (eta - m) a - n2 x,       x'  = clip(y)  to [0, cap]
        prior's   y+ = kappa x+ + (m/eta) mu,                                              x+' = clip(y+)

    and the cost is phi(x') = x'^2 + x' + 1. Write r = nu/eta, rho = max(r, d) < 1, and M for the largest demand.

    *This round.* The excess is F = phi(x') - (1 + lam) phi(x+'), to be maximised over m, n2 and x+ in [x - e+, x + e-].
    It falls with x+', so that for kappa >= 0 x+ = x - e+ is the worst and for kappa <= 0 x+ = x + e-. Cutting x' at the
    cap makes F smaller only, so y is not cut there, and F <= phi(cap) - (1 + lam). Where y <= 0, F <= -lam.

    For m <= 0, y+ <= 0, so x+' = 0, and y is largest at m = 0, n2 = 0, where x+' = 0 too. So m in [0, nu] is enough.
    There y and y+ are linear in (m, n2), and F(y, y+) has no stationary point with y > 0, as its derivative by y is
    2 y + 1 > 0: its maximum over a polygon on which the same x+ is the worst lies on an edge (if y and y+ do not
    determine (m, n2), they are constant along a line, which meets an edge). On an edge it is a parabola: largest at an
    end, or at its vertex if it bends down. The edges:

        kappa >= 0, x+ = x - e+ (then y+ >= 0):     n2 = 0, m in [0, nu];     n2 = d, m in [d eta, nu] if d < r;
                                                    m = nu, n2 in [0, min(d, r)];     and kappa = 0.
        kappa <= 0, x+ = x + e-:                    n2 = d, m in [0, min(nu, d eta)];     m = nu, n2 in [r, d] if d > r;
                                                    kappa = 0; and m = 0, where y+ <= 0.
        on kappa = 0, y+ = (m/eta) mu whatever x+ is:   m in [0, min(nu, d eta)], n2 = m/eta.

    Where y+ < 0 it is cut to 0 and F = phi(y) - (1 + lam), which rises with y: over that part of the polygon y is
    largest at a corner: (0, 0), which is an end of the first edge, (0, d), where it is less, or the place where the
    line y+ = 0 leaves the polygon: (m_0, d) with m_0 = d eta x+ / (x+ + mu), or (nu, r (x+ + mu) / x+). So the edge n2
    = d begins at m_0, and the edge m = nu ends there.

    *The backup* `clear` spends (x + mu) / (eta - nu), which leaves no backlog whatever the noise is. From the round in
    which it is played on the cost is phi(0) = 1 and an excess at most 1 - (1 + lam) = -lam <= 0. So with it T_n <=
    T_0 = max F for every n: nothing but this round counts, and no larger safe set is possible. It needs that much
    energy: (X + M) / (eta - nu) <= high for the largest backlog X that this round can leave; if not, it has no bound
    (infinite).

    *The prior as backup* matters where energy is limited. Let G = y - y+ = kappa (x - x+) + (eta - m) s. Clipping
    keeps the order and makes no gap larger. A cost is above the prior's by w(x', x' - x+') with w(X, z) = phi(X) -
    phi(X - z) = z (2 X - z + 1), which grows with X, and with z up to X; so if x' <= X and x' - x+' <= z <= X, the
    difference is at most w(X, z). Noise that helps, m <= 0, leads to at most the outcome of m = 0, n2 = 0 with x = x+,
    as above.

    Let E = max(e+, (d/rho) e-). Under the prior, s = 0 and -d <= kappa <= r, so e+' <= max(r e+, d e-) <= rho E and
    (d/rho) e-' <= (d/rho) max(r e-, d e+) <= rho E; and x' <= r (x + M) <= rho (x + M). So k rounds after a round that
    ended at x' <= X with E' <= g, a cost is at most phi(Y_k) - phi(Y_k - rho^k g) above the prior's, where Y_k = rho^k
    X + M (rho + ... + rho^k), if g <= X + M so that all the arguments are at least 0; else X is raised to g - M. With
    w written out, this and the same for the round itself (k = 0, where g <= X) add up to closed forms,

        total_n(X, g) = g ((2 X - g) alpha_n + beta_n),         alpha_n = sum_{k<=n} rho^2k,
        later_n(X, g) = total_n(X, g) - total_0(X, g),          beta_n = sum_{k<=n} rho^k (1 + 2 M (rho + ... + rho^k)),

    increasing in X, and in g up to X (total) or X + M (later, since beta_n - 1 >= 2 M (alpha_n - 1)). For m in [0, nu]:

    (A) kappa >= 0, or x >= x+: y and G are largest for n2 = 0 and x - x+ = e+, X(m) = q - (eta - m) a and D(m) =
    (m/eta) e+ + (eta - m) s, where D(m) <= X(m) because e+ <= x. A_n = max over m of total_n(X(m), D(m)), a product
    of two functions linear in m: at an end or at the vertex. Where D < 0 the guarded cost is less and nothing is
    counted; where D >= 0, X >= 0 too and the second factor is positive.

    (B) kappa < 0 and x < x+, possible if e- > 0; then m < d eta. y <= X_B, the largest of (m/eta) mu + (eta - m) s over
    such m (at an end), and G <= g_B, the largest of d e- + (eta - m) s. B_n = total_n(X_B, min(g_B, X_B)).

    (C) What is left below: e-' = the largest -G, which is linear in each of m, n2 and x - x+ and so largest at a
    corner: max(r e- - (eta - nu) s, [d - r]^+ e+ - (eta - nu) s, d e+ - eta s); and at most the prior's x+' <= r (x +
    e- + mu). (With m < 0 the prior's backlog is 0 and nothing is below it.) The own cost is then the smaller one. It
    can turn into a positive gap later: C_n = later_n(X(nu), (d/rho) e-').

        t_n = max(A_n, B_n, t_0 + C_n),    t_0 = max(A_0, B_0, 0),    n = 0 .. K-1, and n = infinity for the last,

    bound c_h - c+_h + ... + c_{h+n} - c+_{h+n}, and as c+ >= 1, T_n = t_n - (n + 1) lam; T_0 = max F is no larger.

    *After the cost is seen*, x' is known. For 0 < x' < cap, (m, n2) lies on the segment m a - n2 x = x' - eta s. G is
    linear on it, so e+' is the largest value at its two ends, for x - x+ = e+ and -e-; and at most x', which is all
    that is said if the segment reaches m < 0 (x' < eta s; without any work, a = 0, that is always so). At the cap the
    segment is the lower edge of what is possible, m a - n2 x >= cap - eta s. For x - x+ = e+ G is largest for n2 = 0,
    so at the segment's end or at (nu, 0), which is looked at too. For x - x+ = -e- it is largest for the largest n2:
    on the segment, or for n2 = d and m up to nu, where it falls with m unless s < -e-/eta; but then G < (d - 1) e- <=
    0 at (nu, d). And x' = 0 leaves no gap above. floor = phi(x' - e+'). e-' is what was said before the cost was seen.

    *If the cost is not seen*, e+' is the largest G, linear in each of m in [0, nu], n2 in [0, d] and x - x+ in [-e-,
    e+] and so largest at a corner; with m < 0 the prior's backlog is 0 and the own one at most eta s, that of (0, 0).
    It is at most the largest x'.

    *If the reward is told too*, and `revenue_weight` is given, it tells the work done, reward = w sqrt((eta - m) a) -
    ([a - C]^+)^2 - switching, and so m in an interval as wide as round-off makes it; switching counts after the first
    round, and in the first one if the plant has run before, which nothing tells: both are possible. With m, x' tells
    n2: n2 x = eta s + m a - x' where 0 < x' < cap, n2 x >= that for x' = 0 and n2 x <= that at the cap. y+ = (m/eta)
    (x+ + mu) - n2 x+ grows with m, falls with n2, and is linear in x+ in [x - e+, x + e-]: so it is between its values
    for the least m and the largest n2, and for the largest m and the least n2, at an end of x+. That bounds x+', which
    limits floor, e+' and e-'. A reward that no draw can explain tells nothing, nor does that of no work (a = 0). m and
    n2 are draws: what is known of them does not depend on what is played, and no derivative goes through it.

    *Where it is not sharp.* An e- that is too small by a few per cent breaks no promise at the paper's parameters. Let
    the guarded backlog be below the prior's by z at the end of a round. The account took at least -lam phi(x') for it
    (floor <= phi(x'), and T_0 >= -lam), the truth is -lam phi(x') - (1 + lam) (phi(x' + z) - phi(x')): the account is
    above the truth by at least (1 + lam) z (2 x' + z + 1) >= (1 + lam) z. If e- = z / 1.05 is believed, then in the
    next round, where kappa < 0, y+ >= 0 is taken for larger by at most 0.048 d z, which costs (1 + lam) (2 Q + 1)
    0.048 d z with y+ <= Q = min(r, d) M, 0.011 of what is in hand; e+' is too small by as much, which the floor, whose
    slope is at most 2 cap + 1, takes for 0.15 of it, and later rounds, in which it fades by r, for 0.02. So no episode
    can show it.
    """

    kind: ClassVar[str] = "carbon"
    backups: ClassVar[tuple[str, ...]] = ("clear",)
    recovery: ClassVar[str | None] = "clear"
    straight: ClassVar[bool] = True
    turns: ClassVar[int] = 10
    """Its excess is made of few parabolas: the search has mostly ended after six."""
    gap_names: ClassVar[tuple[str, ...]] = ("above", "below")
    sharp: ClassVar[tuple[str, ...]] = ("now", "floor")
    terms: ClassVar[int] = 2
    """K: with the prior as backup, from there on every later round is counted at once."""

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
    revenue_weight: float = 0.0
    """Of the root of the work done in the rewards that the certificate is told; 0 if they are not to be relied on."""
    switching_weight: float = 0.0
    """Of the squared change of action in these rewards."""

    def __post_init__(self) -> None:
        for name in ("efficiency", "demand_max", "backlog_max"):
            validate.number(name, getattr(self, name), above=0.0)
        for name in ("efficiency_noise_max", "drop_rate_max", "revenue_weight", "switching_weight"):
            validate.number(name, getattr(self, name), minimum=0.0)
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

    def start(self, zero: Number) -> Numbers:
        """(e+, e-)."""
        return zero, zero

    def read(self, observation: Observation) -> Numbers:
        """(x, mu) of an observation (mu, C, a, x, ...); where rewards are relied on (x, mu, C, a)."""
        if self.revenue_weight == 0.0:
            return observation[3], observation[0]
        return observation[3], observation[0], observation[1], observation[2]

    def admits(self, seen: Numbers, ops: Ops) -> Flag:
        """Whether backlog and demand are in their ranges; a NaN is not."""
        x, mu = seen[:2]
        inside = ops.logical_and(x >= 0.0, x <= self.backlog_max)
        return ops.logical_and(inside, ops.logical_and(mu >= 0.0, mu <= self.demand_max))

    def agrees(self, seen: Numbers, prior: Number, epsilon: Number, ops: Ops) -> Flag:  # noqa: ARG002
        """Whether the prior clears backlog and demand at the mean efficiency."""
        off = abs(self.efficiency * prior - (seen[0] + seen[1]))
        return off <= 64.0 * epsilon * (1.0 + seen[0] + seen[1])

    def gaps_between(self, seen: Numbers, prior_seen: Numbers, ops: Ops) -> Numbers:
        """(e+, e-)."""
        above = seen[0] - prior_seen[0]
        return ops.maximum(above, 0.0), ops.maximum(-above, 0.0)

    def refine(self, gaps: Numbers, seen: Numbers, epsilon: Number, ops: Ops) -> Numbers:  # noqa: ARG002
        """The prior's backlog is between 0 and the cap."""
        above, below = gaps
        return ops.minimum(above, seen[0]), ops.minimum(below, self.backlog_max - seen[0])

    def plans(self, low: Number, high: Number) -> tuple[int, ...]:  # noqa: ARG002
        """With unlimited energy `clear` allows all that the prior does."""
        return (1,) if high == math.inf else (0, 1)

    def backup(self, plan: int, now: Round, ops: Ops) -> Number:  # noqa: ARG002
        """`clear`: what leaves no backlog at the lowest efficiency, rounded up."""
        x, mu = now.seen[:2]
        return ops.clip(_UP * (x + mu) / (self.efficiency - self.efficiency_noise_max), now.low, now.high)

    def bounds(self, now: Round, action: Number, plan: int, ops: Ops) -> Bounds:
        """See the class's documentation; s is counted from what the prior ought to play, however it is rounded."""
        above, below = now.gaps
        x, mu = now.seen[:2]
        eta, nu, d = self.efficiency, self.efficiency_noise_max, self.drop_rate_max
        work = x + mu
        less = work / eta - action
        worst = ops.maximum(work - (eta - nu) * action, 0.0)
        r = nu / eta
        # (C): the largest e-'
        under = ops.maximum(
            ops.maximum(r * below, max(d - r, 0.0) * above) - (eta - nu) * less, d * above - eta * less
        )
        under = ops.minimum(ops.maximum(under, 0.0), r * (work + below))
        most = ops.minimum(worst, self.backlog_max)
        excess = self._excess(now, action, ops)
        totals: Numbers = (excess,)
        if plan == 0:
            totals = (excess, *self._prior_totals(now, action, less, under, ops))
        elif not (type(now.high) is float and now.high == math.inf):
            affordable = (most + self.demand_max) * _UP <= (eta - nu) * now.high
            totals = (ops.where(affordable, excess, math.inf),)
        return Bounds(
            totals, most * most + most + 1.0, (x, mu, action, less, above, below, under, *now.seen[2:])
        )

    def _excess(self, now: Round, action: Number, ops: Ops) -> Number:
        """The largest F; see the class's documentation."""
        (above, below), (x, mu) = now.gaps, now.seen[:2]
        eta, nu, d, lam = self.efficiency, self.efficiency_noise_max, self.drop_rate_max, now.lam
        r, flip = nu / eta, min(nu, d * eta)
        least, largest = x - above, x + below  # of the prior's backlog
        drop = min(d, r)

        # (y, y+) at the corners; at `level`, where kappa = 0, y+ is the same whatever x+ is.
        start = (x + mu) - eta * action
        noisy, noisy_prior = start + nu * action, r * (least + mu)
        origin, noise = (start, 0.0 * (x + mu)), (noisy, noisy_prior)
        dropped = noisy - drop * x, noisy_prior - drop * least
        level = start + flip * action - flip / eta * x, flip / eta * mu
        corners, edges = [origin, noise, dropped, level], [origin + noise, noise + dropped, origin + level]
        if d < r:
            edges.append(level + dropped)
        if d > 0.0:
            some = largest + mu > 0.0
            turn = ops.minimum(d * eta * largest / ops.where(some, largest + mu, 1.0), flip)
            turned = start + turn * action - d * x, turn / eta * (largest + mu) - d * largest
            end = level
            if d > r:
                end = noisy - d * x, r * (largest + mu) - d * largest
                corners.append(end)
            corners.append(turned)
            edges.append(turned + end)
        if d > r:
            some = largest > 0.0
            last = r * (largest + mu) / ops.where(some, largest, 1.0)
            last = ops.where(some, ops.minimum(last, d), d)
            ended = noisy - last * x, r * (largest + mu) - last * largest
            corners.append(ended)
            edges.append(level + ended)

        def along(own: Number, prior: Number, own_1: Number, prior_1: Number) -> Number:
            inside = _excess_inside((own, prior), (own_1, prior_1), lam, ops)
            ends = ops.maximum(_excess_at(own, prior, lam, ops), _excess_at(own_1, prior_1, lam, ops))
            return ops.maximum(ends, inside)

        if ops.lazy:  # each corner is looked at once, and a vertex only where there is one
            excess = ops.largest([_excess_at(*each, lam, ops) for each in corners])
            for edge in edges:
                excess = _excess_inside(edge[:2], edge[2:], lam, ops, excess)
        else:
            excess = ops.largest_of(along, edges)
        cap = self.backlog_max
        return ops.maximum(ops.minimum(excess, cap * cap + cap - lam), -lam)

    def _prior_totals(
        self, now: Round, action: Number, less: Number, under: Number, ops: Ops
    ) -> tuple[Number, ...]:
        """T_1, ..., T_K with the prior as backup: (A), (B) and (C) of the class's documentation."""
        (above, below), (x, mu) = now.gaps, now.seen[:2]
        eta, nu, d = self.efficiency, self.efficiency_noise_max, self.drop_rate_max
        work = x + mu
        # (A) at m = 0 and m = nu
        gap_0, gap_1 = eta * less, nu / eta * above + (eta - nu) * less
        reach_0, reach_1 = work - eta * action, work - (eta - nu) * action
        # (B) at m = 0 and m = least(nu, d eta)
        flip = min(nu, d * eta)
        reach_b = ops.maximum(ops.maximum(eta * less, flip / eta * mu + (eta - flip) * less), 0.0)
        gap_b = ops.maximum(d * below + ops.maximum(eta * less, (eta - flip) * less), 0.0)
        gap_b = ops.where(below > 0.0, ops.minimum(gap_b, reach_b), 0.0)
        # (C)
        hidden = d / max(self._rho, 1e-300) * under
        raised = ops.maximum(ops.maximum(reach_1, 0.0), hidden - self.demand_max)

        totals: list[Number] = []
        for alpha, beta in self._sums():
            first, second = (2.0 * reach_0 - gap_0) * alpha + beta, (2.0 * reach_1 - gap_1) * alpha + beta
            total = _largest_product(gap_0, gap_1, first, second, ops)
            total = ops.maximum(total, gap_b * ((2.0 * reach_b - gap_b) * alpha + beta))
            if totals:
                later = hidden * ((2.0 * raised - hidden) * (alpha - 1.0) + (beta - 1.0))
                total = ops.maximum(total, totals[0] + later)
            totals.append(total)
        return tuple(total - (n + 1) * now.lam for n, total in enumerate(totals))[1:]

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

    def close(self, step: Numbers, cost: Number, epsilon: Number, ops: Ops) -> tuple[Number, Numbers]:
        """See the class's documentation; the segment is widened by what round-off can do to its place."""
        x, mu, action, less, above, below, under = step[:7]
        eta, nu, d = self.efficiency, self.efficiency_noise_max, self.drop_rate_max
        left = _backlog(cost, ops)
        off = 64.0 * epsilon * (1.0 + x + mu + left + abs(eta * less))
        # So small that `off` over it covers every m and n2, and no smaller, for the sake of derivatives.
        tiny = 64.0 * epsilon / (1.0 + nu)
        spent, behind = ops.maximum(action, tiny), ops.maximum(x, tiny)
        # One end of the segment has n2 = 0, the other the largest n2 that goes with an m up to nu.
        least = (left - off - eta * less) / spent
        least_m = ops.minimum(ops.maximum(least, 0.0), nu)
        largest_m = ops.minimum(ops.maximum((left - off + d * x - eta * less) / spent, 0.0), nu)
        line = eta * less + largest_m * action - left
        drops = [ops.minimum(ops.maximum((line + sign * off) / behind, 0.0), d) for sign in (-2.0, 2.0)]
        edge = ops.where(left >= self.backlog_max - off, nu, least_m)  # the cap may hide any larger m
        gap = 0.0 * left
        # G grows with m by no more than the work, as e+ <= x, but falls with it as fast as e- over the work is large:
        # so both m are rounded down.
        for m, n2 in ((least_m, 0.0), (edge, 0.0), (largest_m, drops[0]), (largest_m, drops[1])):
            factor = m / eta - n2
            apart = ops.maximum(factor * above, -factor * below)
            gap = ops.maximum(gap, apart + (eta - m) * less)
        gap = ops.where(least < 0.0, left, ops.minimum(gap, left))
        floor = left - gap
        return floor * floor + floor + 1.0, (gap, under)

    def told(
        self,
        step: Numbers,
        closed: tuple[Number, Numbers],
        cost: Number,
        reward: Number,
        first: Flag,
        epsilon: Number,
        ops: Ops,
    ) -> tuple[Number, Numbers]:
        """See the class's documentation."""
        if self.revenue_weight == 0.0:
            return closed
        floor, (gap, under) = closed
        x, mu, action, less, above, below = step[:6]
        eta, nu, d, cap = self.efficiency, self.efficiency_noise_max, self.drop_rate_max, self.backlog_max
        left = _backlog(cost, ops)
        off = 64.0 * epsilon * (1.0 + x + mu + left + abs(eta * less))
        least_m, largest_m, known = self._noise(step, reward, first, epsilon, ops)
        behind = ops.maximum(x, 64.0 * epsilon / (1.0 + nu))
        largest_n2 = (eta * less + largest_m * action - left + off) / behind
        least_n2 = (eta * less + least_m * action - left - off) / behind
        largest_n2 = ops.where(left > off, largest_n2, d)
        least_n2 = ops.where(left < cap - off, least_n2, 0.0)
        possible = ops.logical_and(largest_n2 >= 0.0, least_n2 <= d)
        known = ops.logical_and(known, ops.logical_and(possible, least_n2 <= largest_n2))
        least_m, largest_m = (ops.fixed(ops.clip(each, -nu, nu)) for each in (least_m, largest_m))
        least_n2, largest_n2 = (ops.fixed(ops.clip(each, 0.0, d)) for each in (least_n2, largest_n2))
        ends = x - above, x + below
        least = ops.minimum(*(least_m / eta * (end + mu) - largest_n2 * end for end in ends))
        most = ops.maximum(*(largest_m / eta * (end + mu) - least_n2 * end for end in ends))
        off = off + 64.0 * epsilon * (above + below)
        least = ops.where(known, ops.clip(least - off, 0.0, cap), 0.0)
        most = ops.where(known, ops.clip(most + off, 0.0, cap), cap)
        gap = ops.minimum(gap, ops.maximum(left - least, 0.0))
        under = ops.minimum(under, ops.maximum(most - left, 0.0))
        return ops.maximum(floor, least * least + least + 1.0), (gap, under)

    def _noise(
        self, step: Numbers, reward: Number, first: Flag, epsilon: Number, ops: Ops
    ) -> tuple[Number, Number, Flag]:
        """(least m, largest m, whether the reward tells them); `first`: whether it is that of a first round."""
        action, renewables, last = step[2], step[7], step[8]
        carbon = ops.maximum(action - renewables, 0.0)
        change = action - last
        switching = self.switching_weight * change * change
        size = 1.0 + abs(reward) + action * action + self.switching_weight * (action + last) * (action + last)
        off = 64.0 * epsilon * size / self.revenue_weight
        paid = reward + carbon * carbon
        # In a first round switching counts if the plant has run before, which nothing tells.
        least = (paid + ops.where(first, 0.0, switching)) / self.revenue_weight - off
        most = (paid + switching) / self.revenue_weight + off
        known = ops.logical_and(ops.isfinite(paid), ops.logical_and(action > 1e-6, most >= 0.0))
        spent, reserve = ops.where(known, action, 1.0), 64.0 * epsilon
        least, most = (ops.where(known, ops.maximum(each, 0.0), 0.0) for each in (least, most))
        least_m = self.efficiency - most * most / spent - reserve
        largest_m = self.efficiency - least * least / spent + reserve
        nu = self.efficiency_noise_max
        possible = ops.logical_and(least_m <= nu, largest_m >= -nu)
        return least_m, largest_m, ops.logical_and(known, possible)

    def unseen(self, step: Numbers, ops: Ops) -> Numbers:
        """See the class's documentation."""
        x, mu, action, less, above, below, under = step[:7]
        eta, nu, d = self.efficiency, self.efficiency_noise_max, self.drop_rate_max
        gap = 0.0 * less
        for m in (0.0, nu):
            for n2 in (0.0, d):
                factor = m / eta - n2
                apart = ops.maximum(factor * above, -factor * below)
                gap = ops.maximum(gap, apart + (eta - m) * less)
        most = ops.clip(x + mu - (eta - nu) * action, 0.0, self.backlog_max)
        return ops.minimum(gap, most), under

    def gap_features(self, gaps: Numbers, ops: Ops) -> tuple[Number, Number]:  # noqa: ARG002
        """(e+, e-)."""
        return gaps[0], gaps[1]

    def gaps_from_features(self, above: Number, below: Number) -> Numbers:
        """(e+, e-)."""
        return above, below


_UP = 1.0 + 1e-12
"""Rounds up by more than round-off of float64."""


def _backlog(cost: Number, ops: Ops) -> Number:
    """The x' whose cost phi(x') this is."""
    return 0.5 * (ops.sqrt(ops.maximum(4.0 * cost - 3.0, 1.0)) - 1.0)


def _excess_at(own: Number, prior: Number, lam: Number, ops: Ops) -> Number:
    """Excess phi(y) - (1 + lam) phi(y+); where y < 0, phi(0) counts."""
    own, prior = ops.maximum(own, 0.0), ops.maximum(prior, 0.0)
    return own * own + own + 1.0 - (1.0 + lam) * (prior * prior + prior + 1.0)


def _excess_inside(
    first: Numbers, second: Numbers, lam: Number, ops: Ops, least: Number | None = None
) -> Number:
    """The largest excess inside of the line between two points (y, y+) whose y+ are not negative.

    Along the line, place t in [0, 1], it is a parabola: largest at its vertex, if it bends down and that is inside. If
    not, one of the ends is the largest; what is given then is that of the first, or `least` if that is not smaller.
    """
    (own, prior), (own_1, prior_1) = first, second
    rise, prior_rise = own_1 - own, prior_1 - prior
    fall = (1.0 + lam) * prior_rise * prior_rise
    slope = rise * (2.0 * own + 1.0) - (1.0 + lam) * prior_rise * (2.0 * prior + 1.0)

    def vertex(bend: Number, inside: Flag) -> Number:
        place = ops.where(inside, -slope / ops.where(inside, 2.0 * bend, 1.0), 0.0)
        return _excess_at(own + place * rise, prior + place * prior_rise, lam, ops)

    if least is None:
        bend = rise * rise - fall
        return vertex(bend, ops.logical_and(slope > 0.0, slope < -2.0 * bend))

    def rising() -> Number:
        bend = rise * rise - fall
        return ops.branch(slope < -2.0 * bend, lambda: ops.maximum(least, vertex(bend, True)), lambda: least)

    return ops.branch(slope > 0.0, rising, lambda: least)


def _largest_product(
    first_0: Number, first_1: Number, second_0: Number, second_1: Number, ops: Ops
) -> Number:
    """The largest product of two linear functions on [0, 1], given by their values at the ends, and at least 0.

    Where the first is negative nothing is counted; where it is not, the second must be positive.
    """
    rise, other = first_1 - first_0, second_1 - second_0
    bend = rise * other
    falls = bend < 0.0
    place = -(first_0 * other + second_0 * rise) / ops.where(falls, 2.0 * bend, 1.0)
    place = ops.where(falls, ops.clip(place, 0.0, 1.0), 0.0)
    inside = ops.maximum(first_0 + place * rise, 0.0) * (second_0 + place * other)
    ends = ops.maximum(ops.maximum(first_0, 0.0) * second_0, ops.maximum(first_1, 0.0) * second_1)
    return ops.maximum(ops.maximum(ends, inside), 0.0)
