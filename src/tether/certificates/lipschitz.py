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
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from tether.core import saved, validate
from tether.core.certificate import Action, Box, Choice, Observation, Outcome, Weighed, accepted_cost
from tether.core.contract import Contract
from tether.core.ops import FLOATS, NUMPY, Flag, Number, Ops
from tether.core.projection import length, nearest_safe
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
        return LipschitzState(zero, allowance, zero, memory, earned, ops.logical_not(covered))

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
            radius = bounds.perturbation.least_ratio(
                base=state.surplus + state.rounds * contract.b * kept - round_off,
                slope=contract.earned * kept,
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
        granted = ops.logical_and(radius > 0.0, ops.logical_not(state.breached))
        return ops.where(granted, radius, 0.0 * state.rounds)  # the one number that is finite in any case

    def margin(self, state: LipschitzState, deviation: Number) -> Number:
        """How far below its bound J_h stays if `deviation` is played now, whatever happens; cost units."""
        contract, bounds = self.contract, self.bounds
        spent = (
            bounds.carried * bounds.perturbation.carried_deviation(state.memory)
            + bounds.immediate * deviation
        )
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
        taken = Taken(deviation, opened.radius, prior)
        margin = self.margin(opened.state, deviation)
        return Choice(action, deviation, opened.radius, margin, 0.0 * deviation, taken, opened.state.breached)

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
        taken = Taken(deviation, opened.radius, prior)
        return Weighed(left, taken, self.margin(opened.state, deviation), opened.state.breached)

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
        """Close a round. If something else was `applied`, its deviation counts, and more than was safe is a breach."""
        deviation, breached = taken.deviation, state.breached
        if outcome.applied is not None:
            # The largest of the norms: which one the sensitivity is for is not known here.
            deviation = length(outcome.applied - taken.prior, "l1", ops)
            breached = ops.logical_or(breached, ops.logical_not(deviation <= taken.radius))
        moved = self.bounds.immediate * length(taken.prior, "linf", ops)
        state = state._replace(breached=breached, magnitude=state.magnitude + moved)
        return self.close(state, deviation, outcome.cost, ops, outcome.epsilon)

    def close(
        self,
        state: LipschitzState,
        deviation: Number,
        cost: Number,
        ops: Ops = NUMPY,
        epsilon: float = 0.0,
    ) -> LipschitzState:
        """The state after a round in which `deviation` was played and `cost` was seen."""
        contract, bounds = self.contract, self.bounds
        p = bounds.perturbation
        accepted, cost = accepted_cost(contract, cost, max(epsilon, self.resolution), ops)

        moved = bounds.carried * p.carried_deviation(state.memory) + bounds.immediate * deviation
        floor = ops.maximum(contract.cost_floor, cost - moved)
        surplus = state.surplus + (1.0 + contract.lam) * floor - cost
        memory: Any = p.remember(state.memory, deviation, ops)
        spent = self.total(state, ops) * deviation
        closed = state.rounds + 1.0

        allowance = state.allowance
        if self.rule != "tight":
            # The authors' code also counts the b of every past round; Corollary 4.2 as printed does not.
            past = closed * contract.b if self.rule == "released" else 0.0
            later = bounds.carried * p.carried_deviation_over(memory, contract.horizon - closed, ops)
            allowance = contract.earned + ops.maximum(allowance - spent, surplus - later + past)
        magnitude = state.magnitude + (2.0 + contract.lam) * cost + contract.earned + spent
        covered = ops.logical_and(accepted, magnitude + abs(surplus) <= ops.limit(magnitude))
        breached = ops.logical_or(state.breached, ops.logical_not(covered))
        return LipschitzState(closed, allowance, surplus, memory, magnitude, breached)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate exactly, fit for JSON."""
        return {
            "kind": "lipschitz",
            "rule": self.rule,
            "contract": asdict(self.contract),
            "bounds": self.bounds.to_dict(),
            "resolution": self.resolution,
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> LipschitzCertificate:
        """The certificate that `to_dict` described."""
        return cls(
            Contract(**description["contract"]),
            sensitivity_from_dict(description["bounds"]),
            description["rule"],
            resolution=description["resolution"],
        )

    def restore(self, state: dict[str, Any], taken: list[Any] | None) -> tuple[LipschitzState, Taken | None]:
        """The state and the open round that were saved as plain numbers and lists, checked."""
        restored = LipschitzState(**state)
        shape = () if self.online_ops is FLOATS else (self.contract.horizon,)
        saved.require_rounds(restored.rounds, self.contract.horizon)
        saved.require_flag("breached", restored.breached)
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
        deviation, radius, prior = taken
        saved.require_numbers("radius", radius, minimum=0.0)
        saved.require_numbers("deviation", deviation, minimum=0.0, maximum=radius)
        saved.require_numbers("prior", prior, shape=np.shape(prior)[:1])
        return restored, Taken(deviation, radius, saved.numbers(prior))

    def _unit_round_off(self, epsilon: float) -> float:
        """How far off a sum of costs may be, relative to the magnitudes in it, by floating-point arithmetic.

        It covers the guard's own sums over the horizon, and a plant whose states are larger than its costs, so that its
        costs are differences of large numbers: 1e-9 in float64, for states up to about 10^5 times larger, and 2e-5 in
        float32, for states up to about 10 times larger.
        """
        horizon = self.contract.horizon
        own = epsilon * (4.0 * (horizon + 16.0) + self.bounds.perturbation.round_off_growth(horizon))
        return max(own, math.sqrt(epsilon) / 16.0)
