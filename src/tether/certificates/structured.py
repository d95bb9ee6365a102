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

**The share.** The guard plays start + t (proposal - start) with the largest t in [0, 1] that a search finds safe; the
start is the prior's action where that is safe, else the carried backup's. (**) is checked for the very action that is
played, so what is played is safe however the bounds behave; if they never fall on the way, t is the largest.

**Round-off.** The bounds speak of real numbers. What the guard is told and what it computes with is off by a relative
epsilon: that of the number type, of what the guard is told, or the `resolution` of the certificate, whichever is
largest. Each round may move both sides of (**) by a few epsilon of the costs involved, so (**) keeps a reserve:
sqrt(epsilon)/16, or 4 epsilon (H + 16) if that is more, of everything that was added up and of the structure's `scale`.
What the structure concludes from a cost (`close`) must be widened by round-off of the state, which it is told.

**Fail closed.** An excess that is not a number is not safe. A cost, bound or sum beyond `ops.limit` is a breach.

Everything is written against `tether.core.ops.Ops`, as in `tether.certificates.lipschitz`. The structures of
tether's own systems are in their folders, `tether.systems.carbon.structure` for instance.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tether.certificates.share import largest_share
from tether.certificates.structure import Bounds, Numbers, Round, Structure
from tether.core import saved, validate
from tether.core.certificate import Action, Box, Choice, Observation, Outcome, Weighed, accepted_cost
from tether.core.contract import Contract
from tether.core.ops import FLOATS, NUMPY, Flag, Number, Ops, round_off
from tether.core.projection import length


class StructuredState(NamedTuple):
    """What the certificate remembers between rounds; of fixed size."""

    rounds: Number
    """Number of closed rounds, h - 1."""
    account: Number
    """A_h, cost units."""
    gaps: Numbers
    """The structure's gaps, state units."""
    magnitude: Number
    """Sum of the absolute values added up so far, cost units: what round-off is proportional to."""
    backup: Number
    """Number of the backup that is carried; 0 is the prior."""
    breached: Flag
    """Whether something contradicted the contract or the structure; from then on only the prior is played."""


class Opened(NamedTuple):
    """A round in which the observation is known and the action is not."""

    seen: Numbers
    """What the structure read."""
    gaps: Numbers
    """The refined gaps."""
    slack: Number
    """(h - 1) b - A_h, rounded inward, cost units."""
    b: Number
    """Of the contract, cost units a round; here, because a derivative may be taken of everything that is in here."""
    remaining: Number
    """Rounds left, this one included."""
    backup: Number
    """Number of the backup that is carried."""
    breached: Flag
    """Whether only the prior is played."""
    epsilon: float
    """Relative round-off of what is seen and computed in this round."""


class Taken(NamedTuple):
    """What closing a round needs of the action that was played."""

    now: Number
    """T_0, cost units."""
    ceiling: Number
    """See `Bounds`."""
    step: Numbers
    """See `Bounds`."""
    backup: Number
    """Number of the backup that is carried from here on."""
    breached: Flag
    """Whether the observation or the prior's action was not what the structure covers."""
    epsilon: float
    """See `Opened`."""


@dataclass(frozen=True)
class Structured:
    """Safe sets from a contract and a `Structure`.

    Args:
        contract: The promise.
        system: What is known of the system, such as `tether.envs.Carbon().structure`.
        resolution: Relative round-off of the observations, actions and costs at the plant, if it is coarser than that
            of the numbers that the certificate computes with: 1.2e-7 for a plant in float32. `tether.Guard` sees to it
            by itself.

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
    def online_ops(self) -> Ops:
        """Single numbers, if the structure is made of them."""
        return FLOATS if self.system.scalar else NUMPY

    def start(self, ops: Ops = NUMPY, zero: Number = 0.0) -> StructuredState:  # noqa: ARG002
        """The state before the first round; `zero` carries the number type that later states have."""
        magnitude = zero + self.contract.earned + self.system.scale
        return StructuredState(zero, zero, self.system.start(zero), magnitude, zero, zero > 0.0)

    def open(
        self, state: StructuredState, observation: Observation, ops: Ops = NUMPY, epsilon: float = 0.0
    ) -> Opened:
        """Begin a round with what is seen, [o] as the system's environment gives it."""
        seen = self.system.read(observation)
        epsilon = max(epsilon, self.resolution, *(round_off(each) for each in (state.account, *seen)))
        if ops is FLOATS:
            seen = tuple(float(each) for each in seen)
        # What is at the edge of its range may have been rounded to beyond it.
        inward = tuple(each * (1.0 - epsilon) for each in seen)
        breached = ops.logical_or(state.breached, ops.logical_not(self.system.admits(inward, ops)))
        gaps = self.system.refine(state.gaps, seen, epsilon, ops)
        unit = self._unit_round_off(epsilon)
        slack = state.rounds * self.contract.b * (1.0 - unit) - state.account - unit * state.magnitude
        remaining = self.contract.horizon - state.rounds
        return Opened(seen, gaps, slack, self.contract.b, remaining, state.backup, breached, epsilon)

    def features(self, opened: Opened, ops: Ops = NUMPY) -> tuple[Number, ...]:
        """The state as a learner can use it, in a round that was opened: (slack, gap above, gap below, rounds left).

        The slack is what this round may cost more than the prior where that pays eps: h b - A_h + lam*eps, cost units.
        """
        return (
            opened.slack + self.contract.earned,
            *self.system.gap_features(opened.gaps, ops),
            opened.remaining,
        )

    def feature_units(self) -> tuple[float, ...]:
        """Typical sizes of the features."""
        return (self.contract.earned if self.contract.earned > 0.0 else 1.0), 1.0, 1.0, 1.0

    def resume(self, features: Any) -> StructuredState:
        """A state in which the coming round has these `features`, for a plan that goes on from them."""
        slack, above, below, remaining = (features[i] for i in range(4))
        rounds, zero = self.contract.horizon - remaining, 0.0 * slack
        account = rounds * self.contract.b + self.contract.earned - slack
        gaps = self.system.gaps_from_features(above, below)
        return StructuredState(rounds, account, gaps, zero, zero, zero > 0.0)

    def choose(self, opened: Opened, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:
        """The action farthest on the way to the proposal that is safe; see the module.

        Args:
            opened: What `open` gave.
            proposal: [n] or a number; where it is not finite the start of the search is played.
            prior: The prior's action, inside the box.
            box: The actions that there are.
            ops: What to compute with.
        """
        usable = ops.isfinite(proposal - prior)
        if self.system.entries > 0:
            usable = ops.all(usable)
        one = self._single(ops)
        now = self._round(opened, prior, box)
        wish = self._entries(self._inside(ops.where(usable, proposal, prior), box, ops))
        known = self.system.agrees(opened.seen, now.prior, opened.epsilon, one)
        breached = one.logical_or(opened.breached, one.logical_not(known))
        plans = self.system.plans(box.low, box.high)

        start = self._start(opened, now, plans, one)

        def excess(inputs: tuple[Opened, Round, Any, Any], share: Number) -> Number:
            traced, now, start, wish = inputs
            here = traced._replace(epsilon=opened.epsilon)  # a plain number, not one that is traced
            bounds = self._all(now, _on_the_way(start, wish, share, one), plans, one)
            return self._least([self._excess(here, each, one) for each in bounds], one)

        inputs = (opened, now, start, wish)
        share = largest_share(excess, inputs, self._farthest(start, wish, one), one)
        share = one.where(one.logical_and(usable, one.logical_not(breached)), share, 0.0)
        entries = _either(breached, now.prior, _on_the_way(start, wish, share, one), one)
        taken, margin = self._take(opened, now, entries, share, plans, breached, one)
        action = ops.stack(entries) if isinstance(entries, list) else entries
        deviation = length(action - prior, box.norm, ops)
        return Choice(action, deviation, deviation, margin, taken.backup, taken, taken.breached)

    def backup_action(self, opened: Opened, prior: Action, box: Box, ops: Ops = NUMPY) -> Action:
        """What the carried backup plays in this round."""
        one = self._single(ops)
        entries = self._carried(opened, self._round(opened, prior, box), one)
        return ops.stack(entries) if isinstance(entries, list) else entries

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
        now = self._round(opened, prior, box)
        plans = self.system.plans(box.low, box.high) if backup is None else (backup,)
        bounds = self._all(now, self._entries(action), plans, one)
        left = -self._least([self._excess(opened, each, one, part) for each in bounds], one)
        known = self.system.agrees(opened.seen, now.prior, opened.epsilon, one)
        breached = one.logical_or(opened.breached, one.logical_not(known))
        first = bounds[0]
        margin = opened.slack + self.contract.b - first.totals[0]
        carried = opened.backup
        if backup is not None:
            carried = 0.0 * opened.slack + backup
            left = one.where(self._covers(action, ops), left, -math.inf)
        taken = Taken(first.totals[0], first.ceiling, first.step, carried, breached, opened.epsilon)
        return Weighed(left, taken, margin, breached)

    def update(
        self, state: StructuredState, taken: Taken, outcome: Outcome, ops: Ops = NUMPY
    ) -> StructuredState:
        """Close a round in which an action was `taken`."""
        return self.close(state, taken, outcome, 0.0 * state.account, ops)

    def close(
        self, state: StructuredState, taken: Taken, outcome: Outcome, paid: Number, ops: Ops
    ) -> StructuredState:
        """See `update`; `paid` is a lower bound on what the prior paid, known from elsewhere, cost units."""
        if outcome.applied is not None:
            raise ValueError("a Structured certificate has no bounds for an action that it did not choose")
        contract = self.contract
        epsilon = max(taken.epsilon, outcome.epsilon)
        unit = self._unit_round_off(epsilon)
        accepted, cost = accepted_cost(contract, outcome.cost, epsilon, ops)
        possible = cost <= taken.ceiling * (1.0 + 100.0 * unit) + 100.0 * unit
        accepted = ops.logical_and(accepted, possible)
        cost = ops.where(accepted, cost, contract.cost_floor)
        floor, gaps = self.system.close(taken.step, cost, epsilon, ops)
        floor = ops.maximum(floor, ops.maximum(paid, contract.cost_floor))
        excess = ops.minimum(taken.now, cost - (1.0 + contract.lam) * floor)
        rounds = state.rounds + 1.0
        account = ops.minimum(state.account + excess, rounds * contract.b)
        magnitude = state.magnitude + (2.0 + contract.lam) * cost + contract.earned + abs(taken.now)
        covered = ops.logical_and(accepted, magnitude <= ops.limit(magnitude))
        covered = ops.logical_and(covered, ops.logical_not(taken.breached))
        breached = ops.logical_or(state.breached, ops.logical_not(covered))
        return StructuredState(rounds, account, gaps, magnitude, taken.backup, breached)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate exactly, fit for JSON."""
        system: Any = self.system
        return {
            "kind": "structured",
            "contract": asdict(self.contract),
            "system": {"kind": system.kind, **asdict(system)},
            "resolution": self.resolution,
        }

    def restore(self, state: dict[str, Any], taken: list[Any] | None) -> tuple[Any, Any]:
        """The state and the open round that were saved as plain numbers and lists, checked."""
        restored = StructuredState(**{**state, "gaps": self.restored_gaps(state["gaps"])})
        horizon, contract = self.contract.horizon, self.contract
        saved.require_rounds(restored.rounds, horizon)
        saved.require_numbers("account", restored.account)
        if restored.account > restored.rounds * contract.b:
            raise ValueError(
                f"account must be at most b for each of {restored.rounds:g} rounds, got {restored.account!r}"
            )
        saved.require_numbers("magnitude", restored.magnitude, minimum=contract.earned + self.system.scale)
        saved.require_choice("backup", restored.backup, len(self.backup_names))
        saved.require_flag("breached", restored.breached)
        if taken is None:
            return restored, None
        now, ceiling, step, backup, breached, epsilon = taken
        saved.require_numbers("taken", [now, ceiling, epsilon], shape=(3,))
        saved.require_choice("backup", backup, len(self.backup_names))
        saved.require_flag("breached", breached)
        return restored, Taken(now, ceiling, self.restored_step(step), backup, breached, epsilon)

    def restored_gaps(self, entries: Any) -> Any:
        """The gaps that were saved as plain numbers and lists, checked."""
        gaps, fresh = _numbers(entries), self.system.start(0.0)
        if len(gaps) != len(fresh):
            raise ValueError(f"gaps must be {len(fresh)} numbers or arrays, got {entries!r}")
        for each, like in zip(gaps, fresh, strict=True):
            saved.require_numbers("gaps", each, shape=np.shape(like))
        return gaps

    def restored_step(self, entries: Any) -> Any:
        """The numbers of an open round that `Structure.close` needs, saved as plain numbers and lists."""
        return _numbers(entries)

    def _single(self, ops: Ops) -> Ops:
        """What the structure computes with: a share and a cost are single numbers, whatever an action is."""
        if not self.system.scalar:
            return NUMPY if ops is FLOATS else ops
        return FLOATS if self.system.entries and ops is NUMPY else ops

    def _round(self, opened: Opened, prior: Action, box: Box) -> Round:
        contract = self.contract
        return Round(
            opened.gaps,
            opened.seen,
            self._entries(prior),
            contract.lam,
            contract.cost_floor,
            box.low,
            box.high,
        )

    def _inside(self, action: Action, box: Box, ops: Ops) -> Action:
        """The nearest action that there is, and for which the bounds hold."""
        action = ops.minimum(ops.maximum(action, box.low), box.high)
        return ops.minimum(ops.maximum(action, self.system.low), self.system.high)

    def _covers(self, action: Action, ops: Ops) -> Flag:
        """Whether the bounds hold for an action."""
        inside = ops.logical_and(action >= self.system.low, action <= self.system.high)
        return ops.all(inside) if self.system.entries > 0 else inside

    def _entries(self, action: Action) -> Action:
        """A vector as a list of single numbers, if that is how the system is described.

        A compiler then sees numbers only, and does not work out a vector again for each of its entries.
        """
        if not self.system.scalar or self.system.entries == 0:
            return action
        return action.tolist() if isinstance(action, np.ndarray) else list(action)

    def _all(self, now: Round, action: Action, plans: tuple[int, ...], ops: Ops) -> list[Bounds]:
        return [self.system.bounds(now, action, plan, ops) for plan in plans]

    def _excess(self, opened: Opened, bounds: Bounds, ops: Ops, part: float = 1.0) -> Number:
        """The largest excess of the left-hand side of (**) over the right, over n; cost units, rounded outward.

        With the reserve r on every bound: A_h + T_n + r - (h + n) b = T_n + r - slack - (n + 1) b. `part` of it is
        kept: an action that was found with all of it is looked at again with a part, as a compiler may compute it
        twice in different ways.
        """
        unit = self._unit_round_off(opened.epsilon)
        b = opened.b * (1.0 - unit)
        unit = part * unit
        base = opened.slack - unit * bounds.ceiling
        over = [
            ops.where(n < opened.remaining, total + unit * abs(total) - base - (n + 1) * b, -math.inf)
            for n, total in enumerate(bounds.totals)
        ]
        return ops.largest(over)

    @staticmethod
    def _least(excesses: list[Number], ops: Ops) -> Number:
        """The smallest; what is not a number counts as infinite."""
        least = ops.where(excesses[0] <= math.inf, excesses[0], math.inf)
        for each in excesses[1:]:
            least = ops.where(each < least, each, least)
        return least

    def _carried(self, opened: Opened, now: Round, ops: Ops) -> Action:
        """The carried backup's action."""
        action = now.prior
        for plan in range(1, 1 + len(self.system.backups)):
            action = _either(opened.backup == plan, self.system.backup(plan, now, ops), action, ops)
        return action

    def _start(self, opened: Opened, now: Round, plans: tuple[int, ...], ops: Ops) -> Action:
        """Where the search begins: the prior's action if it is safe, else the carried backup's."""
        if not self.system.backups:
            return now.prior
        bounds = self._all(now, now.prior, plans, ops)
        excess = self._least([self._excess(opened, each, ops) for each in bounds], ops)
        return _either(excess <= 0.0, now.prior, self._carried(opened, now, ops), ops)

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
        backup, kept = opened.backup, share <= 0.0
        for plan, each in reversed(list(zip(plans, bounds, strict=True))):
            safe = self._excess(opened, each, ops, part=0.5) <= 0.0
            backup = ops.where(safe, 0.0 * share + plan, backup)
            kept = ops.logical_or(kept, safe)
        breached = ops.logical_or(breached, ops.logical_not(kept))
        first = bounds[0]
        margin = opened.slack + self.contract.b - first.totals[0]
        return Taken(first.totals[0], first.ceiling, first.step, backup, breached, opened.epsilon), margin

    def _farthest(self, start: Action, wish: Action, ops: Ops) -> Number:
        """The share of the way to the wish beyond which nothing is searched: 10^4 times the start's size."""
        if isinstance(start, list):
            way = ops.largest([abs(there - here) for here, there in zip(start, wish, strict=True)])
            size = ops.largest([abs(here) for here in start])
        else:
            vector = self.system.entries > 0
            way, size = (length(each, "linf", ops) if vector else abs(each) for each in (wish - start, start))
        farthest = 1e4 * (1.0 + size)
        far = way > farthest
        return ops.where(far, farthest / ops.where(far, way, 1.0), 1.0)

    def _unit_round_off(self, epsilon: float) -> float:
        """How far off a sum of costs may be, relative to the magnitudes in it, by floating-point arithmetic."""
        return max(4.0 * epsilon * (self.contract.horizon + 16.0), math.sqrt(epsilon) / 16.0)


def _on_the_way(start: Action, wish: Action, share: Number, ops: Ops) -> Action:
    """The point start + share (wish - start), exact at both ends."""
    if isinstance(start, list):
        return [_on_the_way(*pair, share, ops) for pair in zip(start, wish, strict=True)]
    partway = start + share * (wish - start)
    return ops.where(share >= 1.0, wish, ops.where(share > 0.0, partway, start))


def _either(condition: Flag, if_true: Action, if_false: Action, ops: Ops) -> Action:
    """`ops.where` for an action that may be a list of numbers."""
    if isinstance(if_true, list):
        return [ops.where(condition, *pair) for pair in zip(if_true, if_false, strict=True)]
    return ops.where(condition, if_true, if_false)


def _numbers(entries: Any) -> tuple[Any, ...]:
    """Saved gaps: numbers stay what they are, lists become arrays."""
    return tuple(saved.numbers(each) for each in entries)
