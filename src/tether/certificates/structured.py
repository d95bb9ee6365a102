"""Certificates that know the system: the same promise as with Lipschitz constants, from a much larger safe set.

With y_i = c_i - (1 + lam) c+_i, the excess of a round (`tether.certificates.structure`), the promise is

    y_1 + ... + y_h <= h b          for every round h.

**The account.** A_h >= y_1 + ... + y_{h-1}, an upper bound on what was spent. After a round A_{h+1} is the smallest of

    A_h + T_0                           what was feared of the round,
    A_h + c_h - (1 + lam) floor_h       what was seen of it, floor_h <= c+_h,
    h b                                 what the promise, kept so far, leaves.

**Safe actions.** A *backup* is a policy for which the structure has bounds; the prior is one, and number 0. Action a is
safe at round h iff for some backup, played from round h + 1 on, the structure's bounds T_n on y_h + ... + y_{h+n} give

    (**)   A_h + T_n <= (h + n) b       for every n with h + n <= H.

**Sound.** Let the bounds be true. *If (**) was checked for a and a backup, then playing a and that backup for the rest
of the episode keeps the promise in every round*: y_1 + ... + y_{h+n} <= A_h + T_n <= (h + n) b. So in every later
round there is something safe to do, whatever the bounds say then: the backup of the last action that was checked,
which is carried. An action that is checked now takes over, with its own backup. Before the first round the prior is
carried: played from the start, y_i = -lam c+_i <= 0. So there is always a safe action, the promise is kept in every
round, and no bound has to agree with another one.

*The prior is safe* if it is carried, or if (**) holds for its action. Where other backups are in use it may be neither,
and then the carried backup's action is what the search starts from.

**Overrides.** If something else was applied, (**) is asked of it. If it holds, all goes on with the backup for which it
does: nothing above asks who chose the action. If not, the account takes its T_0 or what was seen of it as ever (true
bounds hold for any action in their range), but not the h b, since the promise is not known to be kept. No backup is
known to be safe, so the prior is played, and by its T_0

    J_h <= (1 + lam) J_h(prior) + h b + [A_h + T_0 - h b]^+          in every such round h,

until (**) holds for what is played. From that round on the argument above needs nothing of what was before: the promise
holds in every round again, with the costs of the override in it, and so does the h b of the account.

**Late and missing costs, no last round**: see `tether.certificates.account`.

**The share.** The guard plays start + t (proposal - start) with the largest t in [0, 1] that a search finds safe; the
start is the prior's action where that is safe, else the carried backup's. (**) is checked for the very action that is
played, so what is played is safe however the bounds behave; if they never fall on the way, t is the largest.

**Round-off.** The bounds speak of real numbers. What the guard is told and what it computes with is off by a relative
epsilon: that of the number type, of what the guard is told, or the `resolution` of the certificate, whichever is
largest. Each round may move both sides of (**) by a few epsilon of the costs involved, so (**) keeps a reserve:
sqrt(epsilon)/16, or 4 epsilon (H + 16) if that is more, of everything that was added up and of the structure's `scale`.
What the structure concludes from a cost (`close`) must be widened by round-off of the state, which it is told.

**Schedules.** With lam_i and b_i for each round the excess is y_i = c_i - (1 + lam_i) c+_i, h b is b_1 + ... + b_h, and
the structure is told the smallest lam of this and all later rounds: as c+ >= 0, no excess is larger with a larger lam,
so its bounds are true. What was seen of a round is counted with its own lam.

**Fail closed.** An excess that is not a number is not safe. A cost, bound or sum beyond `ops.limit` is a breach.

Everything is written against `tether.core.ops.Ops`, as in `tether.certificates.lipschitz`. The structures of
tether's own systems are in their folders, `tether.systems.carbon.structure` for instance.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tether.certificates.account import Account, Owed, require_state, restored_taken
from tether.certificates.account import Opened as Opened
from tether.certificates.account import StructuredState as StructuredState
from tether.certificates.account import Taken as Taken
from tether.certificates.explaining import Explaining
from tether.certificates.search import Search
from tether.certificates.share import either, least_excess, on_the_way
from tether.certificates.structure import Bounds, Numbers, Round, Structure
from tether.certificates.ways import Ways
from tether.core import saved, validate
from tether.core.certificate import Action, Box, Choice, Observation, Outcome, Weighed
from tether.core.contract import Contract
from tether.core.ops import FLOATS, NUMPY, Flag, Number, Ops, round_off
from tether.core.projection import length
from tether.core.schedule import Schedule


@dataclass(frozen=True)
class Structured(Ways, Account, Search, Explaining):
    """Safe sets from a contract and a `Structure`.

    Args:
        contract: The promise.
        system: What is known of the system, such as `tether.envs.Carbon().structure`.
        resolution: Relative round-off of the observations, actions and costs at the plant, if it is coarser than that
            of the numbers that the certificate computes with: 1.2e-7 for float32. `tether.Guard` sees to it by itself.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> certificate = Structured(env.contract(lam=2.0, b=2.0), env.structure)
        >>> guard = tether.Guard(certificate, env.prior, low=0.0)
        >>> decision = guard.act([4.0, 3.0, 0.0, 0.0], proposal=0.0)  # demand 4, renewables 3, no backlog
        >>> decision.prior_action, round(decision.action, 2)  # with the Lipschitz constants 4.87
        (5.0, 3.05)
    """

    contract: Contract
    system: Structure
    resolution: float = field(default=0.0, kw_only=True)

    feature_names: ClassVar[tuple[str, ...]] = ("slack", "gap above", "gap below", "rounds left")
    sees: ClassVar[bool] = True
    """Whether what is seen makes a difference to it."""

    def __post_init__(self) -> None:
        if not isinstance(self.contract, Contract):
            raise TypeError(f"contract must be a tether.Contract, got {self.contract!r}")
        if not isinstance(self.system, Structure):
            raise TypeError(f"system must be a tether.certificates.Structure, got {self.system!r}")
        validate.number("resolution", self.resolution, minimum=0.0)

    @property
    def backup_names(self) -> tuple[str, ...]:
        """The prior, and the structure's own backups."""
        return ("prior", *self.system.backups)

    @property
    def revealed_names(self) -> tuple[str, ...]:
        """Nothing has to be revealed."""
        return ()

    @property
    def fleets(self) -> bool:
        """Whether `tether.Fleet` may run it on rows of plants: if the structure is made of single numbers."""
        return self.system.scalar

    @property
    def _itself(self) -> bool:
        """Whether these are its own functions, and not those of a class that is derived from it."""
        return type(self) is Structured

    @cached_property
    def straight(self) -> bool:
        """Whether a guard may write it down, see `tether.core.straight`; of vectors only the search is."""
        return self._said_straight and self.system.entries == 0

    @property
    def online_ops(self) -> Ops:
        """Single numbers, if the structure is made of them."""
        return FLOATS if self.system.scalar else NUMPY

    def start(self, ops: Ops = NUMPY, zero: Number = 0.0) -> StructuredState:  # noqa: ARG002
        """The state before the first round; `zero` carries the number type that later states have."""
        magnitude = zero + self.contract.earned + self.system.scale
        gaps, never = self.system.start(zero), zero > 0.0
        return StructuredState(zero, zero, gaps, magnitude, zero, never, never, zero)

    def open(
        self, state: StructuredState, observation: Observation, ops: Ops = NUMPY, epsilon: float = 0.0
    ) -> Opened:
        """Begin a round with what is seen, [o] as the system's environment gives it."""
        # Of a fleet [n, o]: a number of the observation is then [n].
        seen = self.system.read(np.moveaxis(observation, 0, -1) if ops.cases else observation)
        epsilon = max(epsilon, self.resolution, *(round_off(each) for each in (state.account, *seen)))
        if ops is FLOATS:
            seen = tuple(float(each) for each in seen)
        return self._opened(state, seen, ops, epsilon)

    def _opened(self, state: StructuredState, seen: Numbers, ops: Ops, epsilon: float) -> Opened:
        """The round in which this was seen."""
        # What is at the edge of its range may have been rounded to beyond it.
        inward = tuple(each * (1.0 - epsilon) for each in seen)
        breached = ops.logical_or(state.breached, ops.logical_not(self.system.admits(inward, ops)))
        gaps = self.system.refine(state.gaps, seen, epsilon, ops)
        unit = self._unit_round_off(epsilon)
        contract = self.contract
        slack = self._past(state.rounds, ops) * (1.0 - unit) - state.account - unit * state.magnitude
        b, remaining = contract.b_at(state.rounds, ops), contract.horizon - state.rounds
        rounds, overridden = state.rounds, state.overridden
        return Opened(seen, gaps, slack, b, remaining, state.backup, breached, epsilon, rounds, overridden)

    def features(self, opened: Opened, ops: Ops = NUMPY) -> tuple[Number, ...]:
        """The state as a learner can use it, in a round that was opened: (slack, gap above, gap below, rounds left).

        The slack is what this round may cost more than the prior where that pays eps: h b - A_h + lam*eps, cost units.
        The rounds left are 0 if there is no last one.
        """
        return (
            opened.slack + self.contract.earned_at(opened.rounds, ops),
            *self.system.gap_features(opened.gaps, ops),
            0.0 * opened.rounds if self.contract.continuing else opened.remaining,
        )

    def feature_units(self) -> tuple[float, ...]:
        """Typical sizes of the features."""
        return (self.contract.earned if self.contract.earned > 0.0 else 1.0), 1.0, 1.0, 1.0

    def resume(self, features: Any) -> StructuredState:
        """A state in which the coming round has these `features`, for a plan that goes on from them."""
        self.contract.require_constant("a plan")
        slack, above, below, remaining = (features[i] for i in range(4))
        rounds, zero = self.contract.horizon - remaining, 0.0 * slack
        account = rounds * self.contract.b + self.contract.earned - slack
        gaps = self.system.gaps_from_features(above, below)
        return StructuredState(rounds, account, gaps, zero, zero, zero > 0.0, zero > 0.0, zero)

    def choose(self, opened: Opened, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:
        """The action farthest on the way to the proposal that is safe; see the module.

        Args:
            opened: What `open` gave.
            proposal: [n] or a number; where it is not finite the start of the search is played.
            prior: The prior's action, inside the box.
            box: The actions that there are.
            ops: What to compute with.
        """
        usable = finite = ops.isfinite(proposal - prior)
        if self.system.entries > 0:
            finite = ops.all(usable, axis=-1, keepdims=True)
            usable = finite[..., 0]
        one = self._single(ops)
        now = self._round(opened, prior, box, one)
        wish = self._entries(self._inside(ops.where(finite, proposal, prior), box, ops), ops)
        known = self.system.agrees(opened.seen, now.prior, opened.epsilon, one)
        breached = one.odd(one.logical_or(opened.breached, one.logical_not(known)))
        unmoved = one.logical_or(breached, one.odd(one.logical_not(usable)))
        plans = self.system.plans(box.low, box.high)

        taken: Taken
        entries, taken, margin = self._settled(opened, now, wish, plans, (breached, unmoved), one)
        action = ops.stack(entries, axis=-1) if isinstance(entries, list) else entries
        deviation = length(action - prior, box.norm, ops)
        taken = taken._replace(prior=prior)
        return Choice(
            action, deviation, deviation, margin, taken.backup, taken, taken.breached, taken.overridden
        )

    def _moved(
        self,
        opened: Opened,
        now: Round,
        wish: Action,
        plans: tuple[int, ...],
        odd: tuple[Flag, Flag],
        ops: Ops,
    ) -> tuple[Action, Taken, Number]:
        """(the action that is played, what `update` needs, the margin) if the search begins; see `choose`.

        Args:
            opened: What `open` gave.
            now: The round.
            wish: The proposal, inside the box.
            plans: The backups that are looked at.
            odd: Whether only the prior is played, and whether the proposal counts for nothing.
            ops: What to compute with.
        """
        breached, unmoved = odd

        def played(start: Action, share: Number) -> tuple[Action, Taken, Number]:
            share = ops.where(unmoved, 0.0, share)
            entries = either(breached, now.prior, on_the_way(start, wish, share, ops), ops)
            taken, margin = self._take(opened, now, entries, share, plans, breached, ops)
            # What the search found and the check does not confirm is not played; what is carried is always safe.
            refused = ops.odd(ops.logical_and(taken.breached, ops.logical_not(breached)))
            return either(refused, self._carried(opened, now, ops), entries, ops), taken, margin

        return self._searched(opened, now, wish, plans, played, ops)

    def backup_action(self, opened: Opened, prior: Action, box: Box, ops: Ops = NUMPY) -> Action:
        """What the carried backup plays in this round."""
        one = self._single(ops)
        entries = self._carried(opened, self._round(opened, prior, box, one), one)
        return ops.stack(entries, axis=-1) if isinstance(entries, list) else entries

    def weigh(
        self,
        opened: Opened,
        prior: Action,
        action: Action,
        box: Box,
        ops: Ops = NUMPY,
        backup: int | None = None,
        part: float = 1.0,
    ) -> Weighed:
        """What (**) leaves if `action` is played and then backup number `backup`, cost units.

        Without a backup the best of them counts, and what is `taken` carries what was carried before: for plans, which
        may ask this of any action. With one, an action for which the bounds do not hold is not safe.
        """
        one = self._single(ops)
        now, entries = self._round(opened, prior, box, one), self._entries(action, one)
        plans = self.system.plans(box.low, box.high) if backup is None else (backup,)
        bounds = self._all(now, entries, plans, one)
        unit = self._unit_round_off(opened.epsilon)
        left = -least_excess([self._excess(opened, each, one, unit, part) for each in bounds], one)
        known = self.system.agrees(opened.seen, now.prior, opened.epsilon, one)
        breached = one.logical_or(opened.breached, one.logical_not(known))
        first, carried = bounds[0], opened.backup
        margin = opened.slack + opened.b - first.totals[0]
        if backup is not None:
            carried = 0.0 * opened.slack + backup
            left = one.where(self._covers(entries, one), left, -math.inf)
        rest = carried, breached, opened.epsilon, opened.seen, prior, opened.overridden
        return Weighed(left, Taken(first.totals[0], first.ceiling, first.step, *rest), margin, breached)

    def update(
        self, state: StructuredState, taken: Taken, outcome: Outcome, ops: Ops = NUMPY
    ) -> StructuredState:
        """Close a round in which an action was `taken`, or another one `applied`."""
        if outcome.applied is not None:
            opened = self._opened(state, taken.seen, ops, taken.epsilon)
            taken = self.applied(opened, taken, outcome, ops)
        return self.close(state, taken, outcome, 0.0 * state.account, ops)

    def applied(self, opened: Opened, taken: Taken, outcome: Outcome, ops: Ops) -> Taken:
        """What closing a round needs in which something else was applied than was `taken`."""
        if outcome.box is None:
            raise ValueError("Outcome.applied needs Outcome.box: the actions that there are")
        one, box = self._single(ops), outcome.box
        action = self._entries(outcome.applied, one)
        breached = one.logical_or(taken.breached, one.logical_not(self._covers(action, one)))
        # Nothing is carried into it: what was applied is safe only if (**) holds for it.
        foreign = opened._replace(
            backup=0.0 * opened.slack, overridden=one.logical_or(opened.overridden, True)
        )
        now, plans = self._round(opened, taken.prior, box, one), self.system.plans(box.low, box.high)
        found, _ = self._take(foreign, now, action, 0.0 * opened.slack, plans, breached, one)
        return found._replace(prior=taken.prior)

    def close(
        self, state: StructuredState, taken: Taken, outcome: Outcome, paid: Number, ops: Ops
    ) -> StructuredState:
        """See `update`; `paid` is a lower bound on what the prior paid, known from elsewhere, cost units."""
        epsilon = max(taken.epsilon, outcome.epsilon)
        accepted, cost = self._accepted(outcome.cost, taken.ceiling, epsilon, ops)
        floor, gaps = closed = self.system.close(taken.step, cost, epsilon, ops)
        if outcome.reward is not None:
            first = state.rounds <= 0.0
            floor, gaps = self.system.told(taken.step, closed, cost, outcome.reward, first, epsilon, ops)
        lam = self.contract.lam_at(state.rounds, ops)
        excess = ops.minimum(taken.now, cost - (1.0 + lam) * self._floor(floor, paid, ops))
        taken = taken._replace(
            breached=ops.logical_or(taken.breached, ops.logical_not(accepted)), epsilon=epsilon
        )
        return self._closed(state, taken, excess, gaps, (2.0 + lam) * cost, ops)

    def defer(
        self, state: StructuredState, taken: Taken, outcome: Outcome, ops: Ops = NUMPY
    ) -> tuple[StructuredState, Owed]:
        """Close a round whose cost is not known; see the module."""
        if outcome.applied is not None:
            opened = self._opened(state, taken.seen, ops, taken.epsilon)
            taken = self.applied(opened, taken, outcome, ops)
        gaps, lam = self.system.unseen(taken.step, ops), self.contract.lam_at(state.rounds, ops)
        owed = Owed(taken.now, taken.ceiling, taken.step, taken.epsilon, state.clipped, lam)
        return self._closed(state, taken, taken.now, gaps, 0.0 * taken.now, ops), owed

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate exactly, fit for JSON."""
        system: Any = self.system
        return {
            "kind": "structured",
            "contract": self.contract.to_dict(),
            "system": {"kind": system.kind, **asdict(system)},
            "resolution": self.resolution,
        }

    def restore(self, state: dict[str, Any], taken: list[Any] | None) -> tuple[Any, Any]:
        """The state and the open round that were saved as plain numbers and lists, checked."""
        restored = StructuredState(**{**state, "gaps": self.restored_gaps(state["gaps"])})
        contract, backups = self.contract, len(self.backup_names)
        saved.require_rounds(restored.rounds, contract.horizon)
        earned = 0.0 if contract.scheduled else contract.earned
        require_state(restored, self._past(restored.rounds, NUMPY), earned + self.system.scale, backups)
        if taken is None:
            return restored, None
        opened = restored_taken(taken, backups)
        return restored, opened._replace(step=self.restored_step(opened.step))

    def _round(self, opened: Opened, prior: Action, box: Box, ops: Ops) -> Round:
        contract = self.contract
        return Round(
            opened.gaps,
            opened.seen,
            self._entries(prior, ops),
            contract.least_lam(opened.rounds, ops),
            contract.cost_floor,
            box.low,
            box.high,
        )

    def _all(self, now: Round, action: Action, plans: tuple[int, ...], ops: Ops) -> list[Bounds]:
        return [self.system.bounds(now, action, plan, ops) for plan in plans]

    def _excess(self, opened: Opened, bounds: Bounds, ops: Ops, unit: float, part: float = 1.0) -> Number:
        """The largest excess of the left-hand side of (**) over the right, over n; cost units, rounded outward.

        With the reserve r on every bound: A_h + T_n + r - (h + n) b = T_n + r - slack - (n + 1) b, or with a schedule
        minus what the n + 1 rounds from this one on earn by it. The reserve is the share `unit` of what is added up;
        `part` of it is kept: an action that was found with all of it is looked at again with a part, as a compiler may
        compute it twice in different ways.
        """
        kept = 1.0 - unit
        b = opened.b * kept
        unit = part * unit
        base = opened.slack - unit * bounds.ceiling
        over = [
            ops.where(n < opened.remaining, total + unit * abs(total) - base - (n + 1) * b, -math.inf)
            for n, total in enumerate(bounds.totals)
        ]
        if isinstance(self.contract.b, Schedule):
            more = 0.0 * b
            for n in range(1, len(over)):
                more = more + (self.contract.b_at(opened.rounds + n, ops) * kept - b)
                over[n] = over[n] - more
        return ops.largest(over)

    def _carried(self, opened: Opened, now: Round, ops: Ops) -> Action:
        """The carried backup's action."""
        action = now.prior
        for plan in range(1, 1 + len(self.system.backups)):
            action = either(opened.backup == plan, self.system.backup(plan, now, ops), action, ops)
        return action

    def _take(
        self,
        opened: Opened,
        now: Round,
        action: Action,
        share: Number,
        plans: tuple[int, ...],
        breached: Flag,
        ops: Ops,
    ) -> tuple[Taken, Number]:
        """(what `update` needs, how far below its bound J_h stays); the backup is the first for which (**) holds."""
        bounds = self._all(now, action, plans, ops)
        # What was moved must be checked; what was not moved is what the carried backup plays, or checked as well.
        backup, kept, lost = opened.backup, share <= 0.0, opened.overridden
        unit = self._unit_round_off(opened.epsilon)
        for plan, each in reversed(list(zip(plans, bounds, strict=True))):
            safe = self._excess(opened, each, ops, unit, part=0.5) <= 0.0
            backup = ops.where(safe, 0.0 * share + plan, backup)
            kept = ops.logical_or(kept, safe)
            lost = ops.logical_and(lost, ops.logical_not(safe))
        breached = ops.logical_or(breached, ops.logical_not(kept))
        first = bounds[0]
        margin = opened.slack + opened.b - first.totals[0]
        taken = Taken(
            first.totals[0], first.ceiling, first.step, backup, breached, opened.epsilon, opened.seen
        )
        return taken._replace(overridden=lost), margin
