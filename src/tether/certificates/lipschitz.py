"""The guard's mathematics: how far from the prior an action may be, given everything seen so far.

Notation, with the paper's symbols in brackets. At the start of round h (rounds count from 1):

    deviation   d_j = ||a_j - prior(x_j)||, action units
    floor       max(eps, c_i - sum_{j<=i} q_{j,i} d_j): a lower bound on the prior's cost   [c-hat_i]
    surplus     S = sum_{i<h} ((1 + lam) floor_i - c_i), cost units
    earned      lam*eps + b, cost units a round
    total       Gamma = immediate + carried * (p(0) + ... + p(H-h-1)): all that a unit deviation in
                this round can ever cost   [Gamma_{h,h}]
    allowance   D, cost units; an action is safe when Gamma * d <= D   (rules `paper` and `released`)

Every method takes its operations, `ops` (`tether.core.ops`), and is pure, so that the online guard (plain floats)
and the compiled rollout (JAX) run this same code. In the words of `tether.core.certificate` the only backup is the
prior, the account A_h is -S_h, and an action's list of excesses is moved_i - lam*eps.

**Round-off.** A sum of costs is rounded, and so is an action on its way to the plant: by a share of itself that may be
far more than a small radius. `choose` therefore keeps that share of the prior's action in reserve and plays the prior
where the radius is smaller, and what it can cost is added to what round-off is proportional to.

**No last round, late and missing costs, schedules**: see `tether.certificates.surplus`.

**Fail closed.** A radius that is not a positive number is 0, and none is beyond what the number type can be computed
with (`ops.limit`); slack below the inverse of that counts as none. A cost, or a sum of what was added up, beyond the
limit is a breach: sums that overflow would otherwise look like slack. Constants beyond it are refused; in a compiled
program with fewer digits the episode begins with a breach.

**Overrides.** If something else was applied, its deviation d_h counts: floor, surplus and memory are true for any d_h.
Let D_h be the allowance, or for rule `tight` the least slack of (*) over the rounds to come. That D_h >= 0 keeps the
promise under the prior from round h on is proved without looking at how D_h came about, so an override is paid for like
any deviation; only D_h may be negative after it. Then the prior is played, and with it

    J_i <= (1 + lam) J_i(prior) + i b - D_h          for every i >= h:

the excess over the promise is at most -D_h, all of it the override's, and no decision of the guard adds to it. D_h
grows by lam*eps + b a round at least, and as soon as it is positive the promise holds again in that and every later
round, with the costs of the override in it: freedom comes back by itself.

**Tolerance.** If the plant may play anything within t of what was decided, the prior's action included, a deviation
is at most d_j + t, and every round of the prior's to come costs up to Gamma_{1,1} t more, all its consequences
included; the promise compares with the prior as it decides. With D_j for d_j + t, or for what was applied if that is
known, an action is safe at round h iff

    (*t)  for every h' in h..H:
          sum_{i=h..h'} ( sum_{j<h} q_{j,i} D_j + q_{h,i} (d + t) ) + (h'-h) Gamma_{1,1} t
              <=  S_h + (h'-h+1) lam*eps + h' b

that is (*) with lam*eps + b - Gamma_{1,1} t earned a round, Gamma_{1,1} t more in hand, and a radius that is shorter by
t. Playing the prior satisfies it again at h+1: S_{h+1} >= S_h + lam*eps - sum_j q_{j,h} D_j as ever, and of the (h'-h)
Gamma_{1,1} t one is at least what q_{h+1,i} t add up to. Before the first round it holds iff Gamma_{1,1} t <= lam*eps +
b: if what a round earns does not pay for the actuator, not even the prior keeps the promise, and no such certificate
can be made.

"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, get_args

from tether.certificates.surplus import LipschitzState as LipschitzState
from tether.certificates.surplus import Opened as Opened
from tether.certificates.surplus import Owed as Owed
from tether.certificates.surplus import Played, Surplus
from tether.certificates.surplus import Rule as Rule
from tether.certificates.surplus import Taken as Taken
from tether.core import validate
from tether.core.certificate import Action, Box, Choice, Observation, Outcome, Weighed, accepted_cost
from tether.core.contract import Contract
from tether.core.ops import FLOATS, NUMPY, Number, Ops
from tether.core.projection import length, nearest_safe
from tether.core.sensitivity import Geometric, Sensitivity, sensitivity_from_dict
from tether.core.straight import Written


@dataclass(frozen=True)
class LipschitzCertificate(Surplus):
    """Safe sets that are balls around the prior's action, from a contract and a `Sensitivity`.

    Args:
        contract: The promise.
        bounds: What a deviation can do to the cost.
        rule: `"tight"` (default), the largest ball that this knowledge allows; `"released"`, the authors'
            published code; `"paper"`, Corollary 4.2 as printed. All three keep the promise, and for the
            same history their balls are nested: paper within released within tight.
        resolution: Relative round-off of the costs at the plant, if it is coarser than that of the numbers that the
            certificate computes with: 1.2e-7 for a plant in float32. `tether.Guard` sees to it by itself.
        tolerance: How far what is played may be from what is decided, in the norm of the guard, action units. Rule
            `tight` only. `tether.Guard(tolerance=..., quantum=...)` sees to it by itself.

    Example:
        >>> from tether import Contract, Sensitivity, geometric
        >>> certificate = LipschitzCertificate(
        ...     Contract(lam=2.0, b=2.0, horizon=24, cost_floor=1.0),
        ...     Sensitivity(immediate=31.0, carried=2.875, perturbation=geometric(0.25)),
        ... )
        >>> state = certificate.start()
        >>> round(float(certificate.radius(state)), 4)  # 4 units of cost over a sensitivity of 31
        0.129
        >>> state = certificate.close(state, deviation=0.1, cost=2.0)
        >>> round(float(certificate.radius(state)), 4)
        0.2165
    """

    contract: Contract
    bounds: Sensitivity
    rule: Rule = "tight"
    resolution: float = field(default=0.0, kw_only=True)
    tolerance: float = field(default=0.0, kw_only=True)

    feature_names: ClassVar[tuple[str, ...]] = ("allowance", "margin", "carried deviation")
    backup_names: ClassVar[tuple[str, ...]] = ("prior",)
    revealed_names: ClassVar[tuple[str, ...]] = ()
    fleets: ClassVar[bool] = True
    """Whether `tether.Fleet` may run it on rows of plants."""
    sees: ClassVar[bool] = False
    """Whether what is seen makes a difference to it, but for how exact it is."""

    def __post_init__(self) -> None:
        if not isinstance(self.contract, Contract):
            raise TypeError(f"contract must be a tether.Contract, got {self.contract!r}")
        if not isinstance(self.bounds, Sensitivity):
            raise TypeError(f"bounds must be a tether.Sensitivity, got {self.bounds!r}")
        validate.choice("rule", self.rule, get_args(Rule))
        contract = self.contract
        self.bounds.perturbation.check_horizon(contract.horizon, scheduled=contract.scheduled)
        validate.number("resolution", self.resolution, minimum=0.0)
        for name, size in (
            ("lam * cost_floor + b", self.contract.earned),
            ("Gamma", self._total(0.0, NUMPY)),
        ):
            if not size <= NUMPY.limit(0.0):
                raise ValueError(
                    f"{name} is {size:g}, beyond the {NUMPY.limit(0.0):g} that is computed with; Gamma is immediate + "
                    "carried * (p(0) + p(1) + ...) over the horizon: use other units, or a shorter horizon"
                )
        self._check_tolerance()

    def _check_tolerance(self) -> None:
        """Refuse a tolerance that nothing pays for."""
        if validate.number("tolerance", self.tolerance, minimum=0.0) == 0.0:
            return
        if self.rule != "tight":
            raise ValueError(f"a tolerance is for rule 'tight', got rule {self.rule!r}")
        toll, earned = self._toll, self.contract.least_earned
        if not toll <= earned:
            raise ValueError(
                f"an actuator that is off by up to {self.tolerance:g} can cost Gamma * tolerance = {toll:g} a round, "
                f"more than the lam * cost_floor + b = {earned:g} that a round earns, so that not even the prior keeps "
                "the promise: raise b or lam, or use a finer actuator"
            )

    @property
    def _toll(self) -> Number:
        """Gamma_{1,1} t: all that the tolerance in one round can cost, cost units."""
        return self._total(0.0, NUMPY) * self.tolerance

    def tolerating(self, off: float) -> LipschitzCertificate:
        """The same for a plant that may play what is `off` by so much more from what is decided."""
        return replace(self, tolerance=self.tolerance + off)

    @property
    def online_ops(self) -> Ops:
        """Single numbers, unless the perturbation function is a table."""
        return FLOATS if isinstance(self.bounds.perturbation, Geometric) else NUMPY

    @cached_property
    def straight(self) -> bool:
        """Whether a guard may write it down, see `tether.core.straight`: single numbers, and no tables of any kind."""
        tables = self.contract.scheduled or not isinstance(self.bounds.perturbation, Geometric)
        return type(self) is LipschitzCertificate and not tables

    @cached_property
    def written(self) -> Written:
        """What was written down of it, see `tether.core.straight`."""
        return Written()

    def start(self, ops: Ops = NUMPY, zero: Number = 0.0) -> LipschitzState:
        """The state before the first round; `zero` carries the number type that later states have."""
        earned = zero + self.contract.earned
        memory = self.bounds.perturbation.empty(self.contract.horizon, ops, zero)
        allowance = zero if self.rule == "tight" else earned
        limit = ops.limit(zero)
        covered = ops.logical_and(earned <= limit, self._total(zero, ops) <= limit)
        breached = ops.logical_not(covered)
        return LipschitzState(zero, allowance, zero, memory, earned, breached, zero > 0.0, zero)

    def _remaining(self, rounds: Number) -> Number:
        """Rounds left, as far as they can matter: without a last one until p has faded."""
        p = self.bounds.perturbation
        if self.contract.continuing and isinstance(p, Geometric):
            return 0.0 * rounds + p.settled
        left: Number = self.contract.horizon - rounds
        return left

    def radius(self, state: LipschitzState, ops: Ops = NUMPY, epsilon: float = 0.0) -> Number:
        """The largest safe deviation in the coming round, action units; at least 0, rounded inward.

        Args:
            state: Before the round.
            ops: What to compute with.
            epsilon: Relative round-off of what the guard is told, where it is coarser than the computation's.
        """
        unit = self._unit(state, epsilon, ops)
        limit = ops.limit(state.rounds)
        round_off = unit * state.magnitude + 1.0 / limit
        # Where round-off can be as large as the sums themselves nothing is left; not less: two negatives make a plus.
        kept = max(1.0 - unit, 0.0)
        if self.rule == "tight":
            base = state.surplus + self._past(state.rounds, ops) * kept - round_off
            radius = self._least_ratio(state, base, kept, ops)
        else:
            radius = (state.allowance - round_off) / self.total(state, ops)
        radius = ops.minimum(radius * kept, limit)
        if self.tolerance > 0.0:
            radius = radius - self.tolerance
        granted = ops.logical_and(radius > 0.0, ops.logical_not(state.breached))
        return ops.where(granted, radius, 0.0 * state.rounds)  # the one number that is finite in any case

    def _least_ratio(self, state: LipschitzState, base: Number, kept: float, ops: Ops) -> Number:
        """The radius of rule `tight`: after k more rounds the prior has paid k*eps more and k*b more was earned."""
        contract, bounds, toll = self.contract, self.bounds, 0.0
        remaining = self._remaining(state.rounds)
        parts = bounds.immediate, bounds.carried, state.memory, remaining
        if self.tolerance > 0.0:
            toll = self._total(0.0 * state.rounds, ops) * self.tolerance
            base = base + toll * kept
        if not contract.scheduled:
            slope = contract.earned * kept - toll
            return bounds.perturbation.least_ratio(base, slope, *parts, contract.horizon, ops)
        arrays = NUMPY if ops is FLOATS else ops
        ahead = bounds.perturbation.rounds_ahead(contract.horizon)
        earned = contract.earned_ahead(state.rounds, ahead, arrays) * kept
        if self.tolerance > 0.0:
            earned = earned - arrays.asarray(toll)[..., None] * (arrays.arange(ahead) + 1.0)
        least = bounds.perturbation.least_ratio_ahead(base, earned, *parts, arrays)
        return float(least) if ops is FLOATS else least

    def margin(self, state: LipschitzState, deviation: Number, ops: Ops = NUMPY) -> Number:
        """How far below its bound J_h stays if `deviation` is decided now, whatever happens; cost units."""
        contract, deviation = self.contract, deviation + self.tolerance
        if contract.continuing and self.rule == "paper":  # its surplus does not count the b of the past
            return state.allowance - self.total(state, ops) * deviation
        earned = contract.earned_at(state.rounds, ops)
        return state.surplus + earned + self._past(state.rounds, ops) - self._moved(state, deviation)

    def open(
        self,
        state: LipschitzState,
        observation: Observation,  # noqa: ARG002
        ops: Ops = NUMPY,
        epsilon: float = 0.0,
    ) -> Opened:
        """Begin a round; the safe ball does not depend on what is seen, but on how exactly it is."""
        return Opened(state, self.radius(state, ops, epsilon))

    def choose(self, opened: Opened, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:
        """The safe action nearest to the proposal; see `tether.core.projection.nearest_safe`."""
        action, deviation = nearest_safe(proposal, prior, opened.radius, *box, ops)
        state = opened.state
        overridden = ops.logical_and(state.overridden, ops.logical_not(opened.radius > 0.0))
        taken = Taken(deviation, opened.radius, prior, overridden)
        margin = self.margin(state, deviation, ops)
        return Choice(
            action, deviation, opened.radius, margin, 0.0 * deviation, taken, state.breached, overridden
        )

    def weigh(
        self,
        opened: Opened,
        prior: Action,
        action: Action,
        box: Box,
        ops: Ops = NUMPY,
        backup: int | None = None,  # noqa: ARG002
        part: float = 1.0,
    ) -> Weighed:
        """What is left of the radius if `action` is played, action units; the only backup is the prior.

        The reserve is half of what `choose` rounds inward by, so that what it chooses is safe here too.
        """
        deviation = length(action - prior, box.norm, ops)
        inward = part * 4.0 * ops.epsilon(deviation)
        left = opened.radius * (1.0 - inward) - inward * length(prior, box.norm, ops) - deviation
        state = opened.state
        taken = Taken(deviation, opened.radius, prior, state.overridden)
        return Weighed(left, taken, self.margin(state, deviation, ops), state.breached)

    def backup_action(self, opened: Opened, prior: Action, box: Box, ops: Ops) -> Action:  # noqa: ARG002
        """The prior's action, which is always safe."""
        return prior

    def features(self, opened: Opened, ops: Ops = NUMPY) -> tuple[Number, ...]:
        """The state as a learner can use it, in a round that was opened: (allowance, margin, carried deviation).

        The allowance is what may be spent on this round's deviation, radius * Gamma, cost units; the margin is how far
        below its bound J_h stays if the prior is played; the carried deviation is what earlier deviations amount to
        now, action units. Together with the round they determine the safe set of rules `paper` and `released`.
        """
        state = opened.state
        allowance = opened.radius * self.total(state, ops)
        return (
            allowance,
            self.margin(state, 0.0, ops),
            self.bounds.perturbation.carried_deviation(state.memory),
        )

    def feature_units(self) -> tuple[float, ...]:
        """Typical sizes of the features."""
        earned = self.contract.earned
        if earned <= 0.0:
            return 1.0, 1.0, 1.0
        return earned, earned, earned / float(self.total(self.start()))

    def update(
        self, state: LipschitzState, taken: Taken, outcome: Outcome, ops: Ops = NUMPY
    ) -> LipschitzState:
        """Close a round. If something else was `applied`, its deviation counts; more than was safe is an override."""
        return self._paid(state, self._played(state, taken, outcome, ops), outcome.cost, ops, outcome.epsilon)

    def close(
        self,
        state: LipschitzState,
        deviation: Number,
        cost: Number,
        ops: Ops = NUMPY,
        epsilon: float = 0.0,
    ) -> LipschitzState:
        """The state after a round in which `deviation` was played and `cost` was seen."""
        played = deviation, 0.0, state.breached, state.overridden
        return self._paid(state, played, cost, ops, epsilon)

    def _paid(
        self, state: LipschitzState, played: Played, cost: Number, ops: Ops, epsilon: float
    ) -> LipschitzState:
        contract = self.contract
        deviation, size, breached, overridden = played
        lam = contract.lam_at(state.rounds, ops)
        accepted, cost = accepted_cost(contract, cost, max(epsilon, self.resolution), ops)
        moved = self._moved(state, deviation)
        floor = ops.maximum(contract.cost_floor, cost - moved)
        gained = (1.0 + lam) * floor
        breached = ops.logical_or(breached, ops.logical_not(accepted))
        played = deviation, size, breached, overridden
        return self._closed(state, played, gained, cost, (2.0 + lam) * cost, ops, epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate exactly, fit for JSON."""
        return {
            "kind": "lipschitz",
            "rule": self.rule,
            "contract": self.contract.to_dict(),
            "bounds": self.bounds.to_dict(),
            "resolution": self.resolution,
            "tolerance": self.tolerance,
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> LipschitzCertificate:
        """The certificate that `to_dict` described."""
        return cls(
            Contract.from_dict(description["contract"]),
            sensitivity_from_dict(description["bounds"]),
            description["rule"],
            resolution=description["resolution"],
            tolerance=description["tolerance"],
        )
