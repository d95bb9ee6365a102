"""What a Lipschitz certificate remembers, and how its surplus is kept from round to round.

Notation as in `tether.certificates.lipschitz`.

**No last round** (`horizon=math.inf`, rho < 1). All sums over the rounds to come close, and what is remembered must
not grow with the rounds that were. The surplus then counts the b of the closed rounds too, and what it is kept for is
to be a *lower bound* on the slack that the promise has left, B_h = sum_{i<h} ((1 + lam) c_i(prior) + b - c_i):

    surplus' = max(surplus + (1 + lam) floor - cost + b - reserve, 0)
    reserve  = unit * (all that was added up in this round, and what past deviations still carry) + 4 eps * surplus

*It is one.* If surplus <= B_h, then surplus + (1 + lam) floor - cost + b <= B_{h+1} in real numbers. What is told is
off by `unit` of its size at most; the sum itself is rounded five times at most, each time by eps/2 of its largest part,
which is the surplus or in the round's magnitude, of which unit > 16 eps is kept. So the reserve covers both, whatever
was added up before: each round pays for its own round-off, once and for all, and the magnitude begins again. And 0 is
a lower bound: (*) was checked, so the promise was kept. The smaller a lower bound, the smaller the safe set: to forget
what was saved is always sound. So the surplus is never negative and, as it loses 4 eps of itself each round, never
above 1/(4 eps) times what a round adds: it stays of bounded size without a cap. The allowance of the other rules is
kept in the same way; D_h - Gamma d_h >= 0, as d_h was safe, and 0 takes the place of the promise.

*Freedom does not fade*: round after round the same is earned and the same share of what was added is kept in reserve.

**Overrides** there: only the 0 needs that the promise was kept. After an override that was not safe it is left out, so
that the surplus may be negative, until a round in which (*) was checked with something to spare.

**Late and missing costs.** Over all c >= eps, (1 + lam) max(eps, c - moved) - c is least for c = eps + moved, where it
is lam*eps - moved. So a round whose cost is not known adds that to the surplus: true whatever the cost was, and just
what the slack of the rounds to come had been reduced by when its action was chosen. When the cost comes, the surplus
gets the difference, which is not negative, in whatever order costs come. The allowance D_h of rules `paper` and
`released` is then the larger of what it was and of its second branch with the new surplus, which bounds the same slack.

*Schedules and raised contracts*: a round counts with its own lam, which it was promised with and which is owed with it;
the b of past rounds is no part of what comes back, and raising a contract moves surplus and promise by the same.

*Without a last round* the 0 may have added to the surplus since, z in all, the round's own included, and what was given
then is not given again: surplus' = surplus + [t - z - reserve]^+, where t is the difference and the reserve pays for
the round-off of what is added up. *Sound*: for every round j that waits there is a true lower bound V_j on the slack
in which the rounds from j on count in full, and surplus - z_j <= V_j: a round adds the same to both sides, the reserve
is taken from the surplus only, the 0 moves surplus and z_j by the same. If round i is settled with t > z_i, then
surplus' <= V_i + t is true, and V_i + t for j > i, V_j + t for j < i take the place of V_j. The sum of what the 0
added is kept as one that grows by 4 eps of itself a round, so that no difference of two is too small.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tether.core import saved
from tether.core.certificate import Action, Outcome, accepted_cost
from tether.core.contract import Contract
from tether.core.ops import FLOATS, NUMPY, Flag, Number, Ops
from tether.core.projection import Norm, length
from tether.core.sensitivity import Geometric, Sensitivity

Rule = Literal["paper", "released", "tight"]


class LipschitzState(NamedTuple):
    """What the certificate remembers between rounds; of fixed size when p is geometric."""

    rounds: Number
    """Number of closed rounds, h - 1."""
    allowance: Number
    """The paper's D_h, cost units. Rule `tight` does not use it and leaves it at 0."""
    surplus: Number
    """S_h, cost units; without a last round and but for rule `paper`, S_h + (h - 1) b, see the module."""
    memory: Any
    """The past deviations as the perturbation function remembers them, a number or [H], action units."""
    magnitude: Number
    """Sum of the absolute values added up so far, without a last round in this one only, cost units: what round-off
    is proportional to."""
    breached: Flag
    """Whether a cost contradicted the contract; from then on only the prior is safe."""
    overridden: Flag = False
    """Whether more than was safe was applied, and the prior has not been known to be safe since."""
    clipped: Number = 0.0
    """Sum of what the kept promise added to the surplus of an episode without a last round, cost units."""


class Opened(NamedTuple):
    """A round before the action is known."""

    state: LipschitzState
    radius: Number
    """The largest safe deviation, action units."""


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
    lam: Number
    """Of the round, as it was promised then."""
    clipped: Number
    """Of the state before the round."""


Played: TypeAlias = tuple[Number, Number, Flag, Flag]
"""(the deviation that was played, action units; what the prior's action adds to the magnitude, cost units; breached;
overridden)."""


class Surplus:
    """The part of a `tether.LipschitzCertificate` that keeps its account."""

    contract: Contract
    bounds: Sensitivity
    rule: Rule
    resolution: float
    tolerance: float

    def total(self, state: LipschitzState, ops: Ops = NUMPY) -> Number:
        """Gamma_{h,h}, cost per action: all that a unit deviation in the coming round can ever cost."""
        return self._total(state.rounds, ops)

    def _total(self, rounds: Number, ops: Ops) -> Number:
        later = self.contract.horizon - rounds - 1.0
        return self.bounds.immediate + self.bounds.carried * self.bounds.perturbation.sum_over(later, ops)

    def _played(self, state: LipschitzState, taken: Taken, outcome: Outcome, ops: Ops) -> Played:
        """What was played: what was decided, or what was applied."""
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
        return deviation, self.bounds.immediate * length(taken.prior, "linf", ops), breached, overridden

    def _past(self, rounds: Number, ops: Ops) -> Number:
        """The b of the closed rounds, cost units, as far as it is not in the surplus."""
        return 0.0 * rounds if self.contract.continuing else self.contract.b_until(rounds, ops)

    def defer(
        self, state: LipschitzState, taken: Taken, outcome: Outcome, ops: Ops = NUMPY
    ) -> tuple[LipschitzState, Owed]:
        """Close a round whose cost is not known; see the module."""
        played = self._played(state, taken, outcome, ops)
        moved, lam = self._moved(state, played[0]), self.contract.lam_at(state.rounds, ops)
        owed = Owed(moved, lam, state.clipped)
        least = lam * self.contract.cost_floor
        return self._closed(state, played, least, moved, moved, ops, outcome.epsilon), owed

    def settle(self, state: LipschitzState, owed: Owed, outcome: Outcome, ops: Ops = NUMPY) -> LipschitzState:
        """The cost of a deferred round is known; what it promised is what was promised then."""
        contract, lam = self.contract, owed.lam
        epsilon = max(outcome.epsilon, self.resolution)
        accepted, cost = accepted_cost(contract, outcome.cost, epsilon, ops)
        floor = ops.maximum(contract.cost_floor, cost - owed.moved)
        more = (1.0 + lam) * floor - cost - (lam * contract.cost_floor - owed.moved)
        added, reserve = (2.0 + lam) * cost + owed.moved, 0.0
        magnitude = state.magnitude if contract.continuing else state.magnitude + added
        largest = state.magnitude + added
        if contract.continuing:
            reserve = self._unit(state, epsilon, ops) * added
            reserve = reserve + 4.0 * ops.epsilon(state.surplus) * abs(state.surplus)
        more = ops.maximum(more - (state.clipped - owed.clipped) - reserve, 0.0)
        state = state._replace(surplus=state.surplus + more)
        if self.rule != "tight":
            settled = self._settled(state.surplus, state.memory, state.rounds, ops)
            seen = contract.earned_at(state.rounds, ops) + (settled - reserve)
            state = state._replace(allowance=ops.maximum(state.allowance, seen))
        covered = ops.logical_and(accepted, largest + abs(state.surplus) <= ops.limit(magnitude))
        breached = ops.logical_or(state.breached, ops.logical_not(covered))
        return state._replace(magnitude=magnitude, breached=breached)

    def restored_owed(self, given: list[Any]) -> Owed:
        """What a round owes, saved as plain numbers."""
        saved.require_length("owed", given, len(Owed._fields))
        saved.require_numbers("owed", given, minimum=0.0, shape=(len(Owed._fields),))
        return Owed(*given)

    def _moved(self, state: LipschitzState, deviation: Number) -> Number:
        """By how much the deviations up to this round can have moved its cost."""
        bounds = self.bounds
        carried = bounds.carried * bounds.perturbation.carried_deviation(state.memory)
        return carried + bounds.immediate * deviation

    def _closed(
        self,
        state: LipschitzState,
        played: Played,
        gained: Number,
        lost: Number,
        added: Number,
        ops: Ops,
        epsilon: float,
    ) -> LipschitzState:
        """The state a round later, whose surplus has `gained` - `lost`; `added` is what that was added up from."""
        contract, rounds = self.contract, state.rounds + 1.0
        deviation, size, breached, overridden = played
        added = added + size
        memory: Any = self.bounds.perturbation.remember(state.memory, deviation, ops)
        spent = self._total(state.rounds, ops) * deviation
        earned = contract.earned_at(rounds, ops)
        allowance, clipped = state.allowance, state.clipped
        if contract.continuing:
            added = state.magnitude + added + contract.b_at(state.rounds, ops) + spent
            reserve = self._unit(state, epsilon, ops) * added
            later = self._later(memory, rounds, ops)
            surplus, allowance, clipped = self._settle(
                state, overridden, gained - lost, spent, later, reserve, ops
            )
            magnitude = earned + later
            largest = added + magnitude + allowance
        else:
            surplus = state.surplus + gained - lost
            if self.rule != "tight":
                freed = self._settled(surplus, memory, rounds, ops)
                allowance = earned + ops.maximum(allowance - spent, freed)
            magnitude = state.magnitude + added + earned + spent
            largest = magnitude
        covered = largest + abs(surplus) <= ops.limit(magnitude)
        breached = ops.logical_or(breached, ops.logical_not(covered))
        return LipschitzState(rounds, allowance, surplus, memory, magnitude, breached, overridden, clipped)

    def _unit(self, state: LipschitzState, epsilon: float, ops: Ops) -> float:
        return self._unit_round_off(max(epsilon, self.resolution, ops.epsilon(state.surplus)))

    def _later(self, memory: Any, rounds: Number, ops: Ops) -> Number:
        """What all deviations so far can still cost, between two rounds."""
        over = self.bounds.perturbation.carried_deviation_over
        return self.bounds.carried * over(memory, self.contract.horizon - rounds, ops)

    def _settled(self, surplus: Number, memory: Any, rounds: Number, ops: Ops) -> Number:
        """The second branch of the allowance between two rounds, without what the coming one earns."""
        # The authors' code also counts the b of every past round; Corollary 4.2 as printed does not.
        past = self._past(rounds, ops) if self.rule == "released" else 0.0
        return surplus - self._later(memory, rounds, ops) + past

    def _settle(
        self,
        state: LipschitzState,
        overridden: Flag,
        gained: Number,
        spent: Number,
        later: Number,
        reserve: Number,
        ops: Ops,
    ) -> tuple[Number, Number, Number]:
        """(surplus, allowance, clipped) after a round of an episode without a last one; see the module.

        Args:
            state: Before the round.
            overridden: Whether the promise is not known to be kept after it.
            gained: (1 + lam) floor - cost, or the least that this can be.
            spent: Gamma times the deviation.
            later: What all deviations so far can still cost.
            reserve: `unit` times all that was added up in the round.
            ops: What to compute with.
        """
        contract, leak = self.contract, 4.0 * ops.epsilon(state.surplus)
        least = ops.where(overridden, -math.inf, 0.0)
        known = state.surplus - leak * abs(state.surplus) + gained
        if self.rule == "paper":
            surplus = known = known - reserve
        else:
            known = known + contract.b_at(state.rounds, ops) - reserve
            surplus = ops.maximum(known, least)
        clipped = (state.clipped + (surplus - known)) * (1.0 + leak)
        if self.rule == "tight":
            return surplus, state.allowance, clipped
        left = state.allowance - leak * abs(state.allowance) - spent - reserve
        freed = surplus - later - reserve
        earned = contract.earned_at(state.rounds + 1, ops)
        return surplus, earned + ops.maximum(ops.maximum(left, freed), least), clipped

    def rebased(self, state: LipschitzState, contract: Contract) -> LipschitzState:
        """The state as it is with a raised contract: as much slack, whatever the larger b would have earned before.

        The allowance has what the coming round earns, which is more now.
        """
        shift = 0.0 * state.rounds
        if not contract.continuing:
            shift = contract.b_until(state.rounds, NUMPY) - self._past(state.rounds, NUMPY)
        more = contract.earned_at(state.rounds, NUMPY) - self.contract.earned_at(state.rounds, NUMPY)
        added = shift + (state.rounds + 1.0) * more
        return state._replace(
            surplus=state.surplus - (0.0 if self.rule == "paper" else shift),
            allowance=state.allowance + (0.0 if self.rule == "tight" else more),
            magnitude=state.magnitude + (more if contract.continuing else added),
        )

    def restore(self, state: dict[str, Any], taken: list[Any] | None) -> tuple[LipschitzState, Taken | None]:
        """The state and the open round that were saved as plain numbers and lists, checked."""
        restored = LipschitzState(**state)
        shape = () if isinstance(self.bounds.perturbation, Geometric) else (self.contract.horizon,)
        saved.require_rounds(restored.rounds, self.contract.horizon)
        saved.require_flag("breached", restored.breached)
        saved.require_flag("overridden", restored.overridden)
        saved.require_numbers("clipped", restored.clipped, minimum=0.0)
        limit, contract = FLOATS.limit(0.0), self.contract
        # Each round adds what it earns, but after a breach, and slack is a part of what was added.
        rounds = 0.0 if restored.breached or contract.scheduled else restored.rounds
        least = 0.0 if contract.continuing else contract.earned * (rounds + 1.0) * (1.0 - 1e-9)
        saved.require_numbers("magnitude", restored.magnitude, minimum=least, maximum=limit)
        most = limit if contract.continuing else restored.magnitude * (1.0 + 1e-9)
        kept = contract.continuing and self.rule != "paper" and not restored.overridden
        lowest = 0.0 if kept else -most
        saved.require_numbers("surplus", restored.surplus, minimum=lowest, maximum=most)
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

        It covers the guard's own sums over the horizon, without a last round those of one round (see the module), and a
        plant whose states are larger than its costs, so that its costs are differences of large numbers: 1e-9 in
        float64, for states up to about 10^5 times larger, and 2e-5 in float32, for states up to about 10 times larger.
        """
        return max(epsilon * self._own_round_off, math.sqrt(epsilon) / 16.0)

    @cached_property
    def _own_round_off(self) -> float:
        """The same of the guard's own sums, in units of round-off."""
        horizon = self.contract.horizon
        rounds = 0.0 if self.contract.continuing else horizon
        return 4.0 * (rounds + 16.0) + self.bounds.perturbation.round_off_growth(horizon)
