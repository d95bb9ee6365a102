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

**Late and missing costs.** Over all c >= eps, (1 + lam) max(eps, c - moved) - c is least for c = eps + moved, where it
is lam*eps - moved. So a round whose cost is not known adds that to the surplus: true whatever the cost was, and just
what the slack of the rounds to come had been reduced by when its action was chosen. When the cost comes, the surplus
gets the difference, which is not negative, in whatever order costs come. The allowance D_h of rules `paper` and
`released` is then the larger of what it was and of its second branch with the new surplus, which bounds the same slack.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from tether.core import saved, validate
from tether.core.certificate import Action, Box, Choice, Observation, Outcome, accepted_cost
from tether.core.contract import Contract
from tether.core.ops import FLOATS, NUMPY, Flag, Number, Ops
from tether.core.projection import Norm, length, nearest_safe
from tether.core.sensitivity import Geometric, Sensitivity, sensitivity_from_dict

Rule = Literal["paper", "released", "tight"]


class LipschitzState(NamedTuple):
    """What the certificate remembers between rounds; of fixed size when p is geometric."""

    rounds: Number
    """Number of closed rounds, h - 1."""
    allowance: Number
    """The paper's D_h, cost units. Rule `tight` does not use it and leaves it at 0."""
    surplus: Number
    """S_h, cost units."""
    memory: Any
    """The past deviations as the perturbation function remembers them, a number or [H], action units."""
    magnitude: Number
    """Sum of the absolute values added up so far, cost units: what round-off is proportional to."""
    breached: Flag
    """Whether a cost contradicted the contract; from then on only the prior is safe."""
    overridden: Flag = False
    """Whether more than was safe was applied, and the prior has not been known to be safe since."""


class Opened(NamedTuple):
    """A round before the action is known."""

    state: LipschitzState
    radius: Number
    """The largest safe deviation, action units."""
    unit: float
    """How far off costs and actions may be, relative to their size."""


class Taken(NamedTuple):
    """What closing a round needs of the action that was played."""

    deviation: Number
    """||action - prior||, action units."""
    radius: Number
    """The largest that was safe, action units."""
    prior: Action
    """What the prior would have played."""
    overridden: Flag = False
    """Whether the prior is played because of an override."""


class Owed(NamedTuple):
    """What settling a round needs whose cost came late."""

    moved: Number
    """sum_{j<=i} q_{j,i} d_j: by how much the cost can differ from the prior's, cost units."""


@dataclass(frozen=True)
class LipschitzCertificate:
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

    def __post_init__(self) -> None:
        if not isinstance(self.contract, Contract):
            raise TypeError(f"contract must be a tether.Contract, got {self.contract!r}")
        if not isinstance(self.bounds, Sensitivity):
            raise TypeError(f"bounds must be a tether.Sensitivity, got {self.bounds!r}")
        validate.choice("rule", self.rule, get_args(Rule))
        self.bounds.perturbation.check_horizon(self.contract.horizon)
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
        toll, earned = self._toll, self.contract.earned
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

    def start(self, ops: Ops = NUMPY, zero: Number = 0.0) -> LipschitzState:
        """The state before the first round; `zero` carries the number type that later states have."""
        earned = zero + self.contract.earned
        memory = self.bounds.perturbation.empty(self.contract.horizon, ops, zero)
        allowance = zero if self.rule == "tight" else earned
        limit = ops.limit(zero)
        covered = ops.logical_and(earned <= limit, self._total(zero, ops) <= limit)
        return LipschitzState(zero, allowance, zero, memory, earned, ops.logical_not(covered), zero > 0.0)

    def total(self, state: LipschitzState, ops: Ops = NUMPY) -> Number:
        """Gamma_{h,h}, cost per action: all that a unit deviation in the coming round can ever cost."""
        return self._total(state.rounds, ops)

    def _total(self, rounds: Number, ops: Ops) -> Number:
        later = self.contract.horizon - rounds - 1.0
        return self.bounds.immediate + self.bounds.carried * self.bounds.perturbation.sum_over(later, ops)

    def radius(self, state: LipschitzState, ops: Ops = NUMPY, epsilon: float = 0.0) -> Number:
        """The largest safe deviation in the coming round, action units; at least 0, rounded inward.

        Args:
            state: Before the round.
            ops: What to compute with.
            epsilon: Relative round-off of what the guard is told, where it is coarser than the computation's.
        """
        contract, bounds = self.contract, self.bounds
        unit = self._unit_round_off(max(epsilon, self.resolution, ops.epsilon(state.surplus)))
        limit = ops.limit(state.rounds)
        round_off = unit * state.magnitude + 1.0 / limit
        # Where round-off can be as large as the sums themselves nothing is left; not less: two negatives make a plus.
        kept = max(1.0 - unit, 0.0)
        if self.rule == "tight":
            # After k more rounds the prior has paid at least k*eps more and k*b more has been earned.
            base, slope = state.surplus + state.rounds * contract.b * kept - round_off, contract.earned * kept
            if self.tolerance > 0.0:
                toll = self._total(0.0 * state.rounds, ops) * self.tolerance
                base, slope = base + toll * kept, slope - toll
            radius = bounds.perturbation.least_ratio(
                base=base,
                slope=slope,
                immediate=bounds.immediate,
                carried=bounds.carried,
                memory=state.memory,
                remaining=contract.horizon - state.rounds,
                horizon=contract.horizon,
                ops=ops,
            )
        else:
            radius = (state.allowance - round_off) / self.total(state, ops)
        radius = ops.minimum(radius * kept, limit)
        if self.tolerance > 0.0:
            radius = radius - self.tolerance
        granted = ops.logical_and(radius > 0.0, ops.logical_not(state.breached))
        return ops.where(granted, radius, 0.0 * state.rounds)  # the one number that is finite in any case

    def margin(self, state: LipschitzState, deviation: Number) -> Number:
        """How far below its bound J_h stays if `deviation` is decided now, whatever happens; cost units."""
        contract = self.contract
        spent = self._moved(state, deviation + self.tolerance)
        return state.surplus + contract.earned + state.rounds * contract.b - spent

    def open(
        self,
        state: LipschitzState,
        observation: Observation,  # noqa: ARG002
        ops: Ops = NUMPY,
        epsilon: float = 0.0,
    ) -> Opened:
        """Begin a round; the safe ball does not depend on what is seen, but on how exactly it is."""
        unit = self._unit_round_off(max(epsilon, self.resolution, ops.epsilon(state.surplus)))
        return Opened(state, self.radius(state, ops, epsilon), unit)

    def choose(self, opened: Opened, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:
        """The safe action nearest to the proposal; see `tether.core.projection.nearest_safe`."""
        action, deviation = nearest_safe(proposal, prior, opened.radius, *box, ops)
        state = opened.state
        overridden = ops.logical_and(state.overridden, ops.logical_not(opened.radius > 0.0))
        taken = Taken(deviation, opened.radius, prior, overridden)
        margin = self.margin(state, deviation)
        return Choice(
            action, deviation, opened.radius, margin, 0.0 * deviation, taken, state.breached, overridden
        )

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
        return allowance, self.margin(state, 0.0), self.bounds.perturbation.carried_deviation(state.memory)

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
        state, deviation = self._played(state, taken, outcome, ops)
        return self.close(state, deviation, outcome.cost, ops, outcome.epsilon)

    def _played(
        self, state: LipschitzState, taken: Taken, outcome: Outcome, ops: Ops
    ) -> tuple[LipschitzState, Number]:
        """(the state with what was applied in its flags, the deviation that was played)."""
        breached, overridden = state.breached, taken.overridden
        deviation = taken.deviation + self.tolerance
        if outcome.applied is not None:
            # Without a box the largest of the norms: which one the sensitivity is for is not known here.
            norm: Norm = "l1" if outcome.box is None else outcome.box.norm
            deviation = length(outcome.applied - taken.prior, norm, ops)
            breached = ops.logical_or(breached, ops.logical_not(ops.isfinite(deviation)))
            # Of the actions' own round-off a share is in reserve.
            size = length(outcome.applied, norm, ops) + length(taken.prior, norm, ops)
            rounding = 4.0 * max(outcome.epsilon, ops.epsilon(state.surplus)) * size
            safe = deviation <= taken.radius + self.tolerance + rounding
            overridden = ops.logical_or(overridden, ops.logical_not(safe))
        moved = self.bounds.immediate * length(taken.prior, "linf", ops)
        state = state._replace(breached=breached, magnitude=state.magnitude + moved, overridden=overridden)
        return state, deviation

    def defer(
        self, state: LipschitzState, taken: Taken, outcome: Outcome, ops: Ops = NUMPY
    ) -> tuple[LipschitzState, Owed]:
        """Close a round whose cost is not known; see the module."""
        state, deviation = self._played(state, taken, outcome, ops)
        moved, least = self._moved(state, deviation), self.contract.lam * self.contract.cost_floor
        return self._closed(state, deviation, state.surplus + (least - moved), moved, ops), Owed(moved)

    def settle(self, state: LipschitzState, owed: Owed, outcome: Outcome, ops: Ops = NUMPY) -> LipschitzState:
        """The cost of a deferred round is known."""
        contract = self.contract
        epsilon = max(outcome.epsilon, self.resolution)
        accepted, cost = accepted_cost(contract, outcome.cost, epsilon, ops)
        floor = ops.maximum(contract.cost_floor, cost - owed.moved)
        seen = (1.0 + contract.lam) * floor - cost
        more = ops.maximum(seen - (contract.lam * contract.cost_floor - owed.moved), 0.0)
        state = state._replace(surplus=state.surplus + more)
        if self.rule != "tight":
            seen_allowance = contract.earned + self._settled(state, ops)
            state = state._replace(allowance=ops.maximum(state.allowance, seen_allowance))
        magnitude = state.magnitude + (2.0 + contract.lam) * cost + owed.moved
        covered = ops.logical_and(accepted, magnitude + abs(state.surplus) <= ops.limit(magnitude))
        breached = ops.logical_or(state.breached, ops.logical_not(covered))
        return state._replace(magnitude=magnitude, breached=breached)

    def restored_owed(self, given: list[Any]) -> Owed:
        """What a round owes, saved as plain numbers."""
        saved.require_length("owed", given, len(Owed._fields))
        saved.require_numbers("owed", given[0], minimum=0.0)
        return Owed(*given)

    def close(
        self,
        state: LipschitzState,
        deviation: Number,
        cost: Number,
        ops: Ops = NUMPY,
        epsilon: float = 0.0,
    ) -> LipschitzState:
        """The state after a round in which `deviation` was played and `cost` was seen."""
        contract = self.contract
        accepted, cost = accepted_cost(contract, cost, max(epsilon, self.resolution), ops)
        moved = self._moved(state, deviation)
        floor = ops.maximum(contract.cost_floor, cost - moved)
        surplus = state.surplus + (1.0 + contract.lam) * floor - cost
        state = state._replace(breached=ops.logical_or(state.breached, ops.logical_not(accepted)))
        return self._closed(state, deviation, surplus, (2.0 + contract.lam) * cost, ops)

    def _moved(self, state: LipschitzState, deviation: Number) -> Number:
        """By how much the deviations up to this round can have moved its cost."""
        bounds = self.bounds
        carried = bounds.carried * bounds.perturbation.carried_deviation(state.memory)
        return carried + bounds.immediate * deviation

    def _closed(
        self, state: LipschitzState, deviation: Number, surplus: Number, added: Number, ops: Ops
    ) -> LipschitzState:
        """The state a round later, with the surplus that it left; `added` is what the surplus was added up from."""
        memory: Any = self.bounds.perturbation.remember(state.memory, deviation, ops)
        spent = self.total(state, ops) * deviation
        after = state._replace(rounds=state.rounds + 1.0, surplus=surplus, memory=memory)
        if self.rule != "tight":
            left = ops.maximum(state.allowance - spent, self._settled(after, ops))
            after = after._replace(allowance=self.contract.earned + left)
        magnitude = state.magnitude + added + self.contract.earned + spent
        covered = magnitude + abs(surplus) <= ops.limit(magnitude)
        breached = ops.logical_or(state.breached, ops.logical_not(covered))
        return after._replace(magnitude=magnitude, breached=breached)

    def _settled(self, state: LipschitzState, ops: Ops) -> Number:
        """The second branch of the allowance between two rounds, without what the coming one earns."""
        # The authors' code also counts the b of every past round; Corollary 4.2 as printed does not.
        past = state.rounds * self.contract.b if self.rule == "released" else 0.0
        over = self.bounds.perturbation.carried_deviation_over
        later = self.bounds.carried * over(state.memory, self.contract.horizon - state.rounds, ops)
        return state.surplus - later + past

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate exactly, fit for JSON."""
        return {
            "kind": "lipschitz",
            "rule": self.rule,
            "contract": asdict(self.contract),
            "bounds": self.bounds.to_dict(),
            "resolution": self.resolution,
            "tolerance": self.tolerance,
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> LipschitzCertificate:
        """The certificate that `to_dict` described."""
        return cls(
            Contract(**description["contract"]),
            sensitivity_from_dict(description["bounds"]),
            description["rule"],
            resolution=description["resolution"],
            tolerance=description["tolerance"],
        )

    def restore(self, state: dict[str, Any], taken: list[Any] | None) -> tuple[LipschitzState, Taken | None]:
        """The state and the open round that were saved as plain numbers and lists, checked."""
        restored = LipschitzState(**state)
        shape = () if self.online_ops is FLOATS else (self.contract.horizon,)
        saved.require_rounds(restored.rounds, self.contract.horizon)
        saved.require_flag("breached", restored.breached)
        saved.require_flag("overridden", restored.overridden)
        # Each round adds what it earns, but after a breach, and slack is a part of what was added.
        rounds = 0.0 if restored.breached else restored.rounds
        least, limit = self.contract.earned * (rounds + 1.0) * (1.0 - 1e-9), FLOATS.limit(0.0)
        saved.require_numbers("magnitude", restored.magnitude, minimum=least, maximum=limit)
        most = restored.magnitude * (1.0 + 1e-9)
        saved.require_numbers("surplus", restored.surplus, minimum=-most, maximum=most)
        largest = 0.0 if self.rule == "tight" else most
        saved.require_numbers("allowance", restored.allowance, maximum=largest)
        saved.require_numbers("memory", restored.memory, minimum=0.0, shape=shape)
        restored = restored._replace(memory=saved.numbers(restored.memory))
        if taken is None:
            return restored, None
        saved.require_length("taken", taken, len(Taken._fields))
        deviation, radius, prior, overridden = taken
        saved.require_numbers("radius", radius, minimum=0.0)
        saved.require_numbers("deviation", deviation, minimum=0.0, maximum=radius)
        saved.require_numbers("prior", prior, shape=np.shape(prior)[:1])
        saved.require_flag("overridden", overridden)
        return restored, Taken(deviation, radius, saved.numbers(prior), overridden)

    def _unit_round_off(self, epsilon: float) -> float:
        """How far off a sum of costs may be, relative to the magnitudes in it, by floating-point arithmetic.

        It covers the guard's own sums over the horizon, and a plant whose states are larger than its costs, so that its
        costs are differences of large numbers: 1e-9 in float64, for states up to about 10^5 times larger, and 2e-5 in
        float32, for states up to about 10 times larger.
        """
        horizon = self.contract.horizon
        own = epsilon * (4.0 * (horizon + 16.0) + self.bounds.perturbation.round_off_growth(horizon))
        return max(own, math.sqrt(epsilon) / 16.0)
