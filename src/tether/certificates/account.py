"""What a structured certificate remembers, from round to round and within one, and how its account is kept.

Notation as in `tether.certificates.structured`.

**Late and missing costs.** A round whose cost is not known counts as what was feared, A_h + T_0, and its gaps are what
the structure knows without it (`Structure.unseen`): both are true whatever the cost was. When the cost comes, t =
[T_0 - (c_h - (1 + lam) floor_h)]^+ is taken back, but for what the h b of this and later rounds cut off the account, z
in all: A' = A - [t - z]^+. *Sound*: for every round j that waits there is a true bound V_j on the sum of excesses in
which the rounds from j on count in full, and A + z_j >= V_j: a round adds the same to both sides, a cut moves the same
from A to z_j. If round i is settled with t > z_i, then A' = A + z_i - t >= V_i - t is true; and in place of V_j there
are V_i - t for j > i, and V_j - t for j < i, where z_j >= z_i.

*Schedules and raised contracts*: what was seen of the round counts with its own lam, which it was promised with and
which is owed with it, and T_0 was worked out with one that is no larger. Raising a contract moves A and every V_j by
the same.

**No last round** (`horizon=math.inf`). T_K of the structure's list bounds y_h + ... + y_{h+n} for every n >= K, and
b >= 0, so that (**) for n <= K is (**) for ever. What is kept is A_h - (h - 1) b, never above 0, as the promise is
kept; each round adds its own reserve to it, epsilon's share of what was added up in that round and 4 eps of itself, for
good, and the magnitude begins again: see `tether.certificates.lipschitz` for why that is enough and does not fade. To
take what was spent for more than it is, or what was saved for less, is always sound.

*Overrides there*: only "never above 0" needs that the promise was kept, and is left out as the h b is. *Late costs
there*: the 0 in place of the h b cuts off the z; the reserve of a round is added to A only, and a cost that comes late
pays for its own round-off in the same way, A' = A - [t - z - reserve]^+. The sum of what was cut off is kept as one
that grows by 4 eps of itself a round, so that no difference z of two is too small, however many rounds lie between.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tether.certificates.structure import Numbers, Structure
from tether.core import saved
from tether.core.certificate import Action, Outcome, accepted_cost
from tether.core.contract import Contract
from tether.core.ops import NUMPY, Flag, Number, Ops, round_off


class StructuredState(NamedTuple):
    """What the certificate remembers between rounds; of fixed size."""

    rounds: Number
    """Number of closed rounds, h - 1."""
    account: Number
    """A_h, cost units; without a last round A_h - (h - 1) b."""
    gaps: Numbers
    """The structure's gaps, state units."""
    magnitude: Number
    """Sum of the absolute values added up so far, without a last round before this one only, cost units: what
    round-off is proportional to."""
    backup: Number
    """Number of the backup that is carried; 0 is the prior."""
    breached: Flag
    """Whether something contradicted the contract or the structure; from then on only the prior is played."""
    overridden: Flag = False
    """Whether something was applied that was not safe, and nothing that was played since is known to be."""
    clipped: Number = 0.0
    """Sum of what the h b took off the account, cost units."""


class Opened(NamedTuple):
    """A round in which the observation is known and the action is not."""

    seen: Numbers
    """What the structure read."""
    gaps: Numbers
    """The refined gaps."""
    slack: Number
    """(h - 1) b - A_h, rounded inward, cost units."""
    b: Number
    """Of this round, cost units; here, because a derivative may be taken of everything that is in here."""
    remaining: Number
    """Rounds left, this one included."""
    backup: Number
    """Number of the backup that is carried."""
    breached: Flag
    """Whether only the prior is played."""
    epsilon: float
    """Relative round-off of what is seen and computed in this round."""
    rounds: Number
    """Number of closed rounds, h - 1."""
    overridden: Flag = False
    """Whether the backup that is carried is not known to be safe, because of an override."""


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
    seen: Numbers = ()
    """What the structure read, for the case that something else is applied."""
    prior: Action = 0.0
    """What the prior would have played, for the same."""
    overridden: Flag = False
    """Whether what is played is not known to be safe, because of an override."""


class Owed(NamedTuple):
    """What settling a round needs whose cost came late."""

    now: Number
    """T_0, which was counted, cost units."""
    ceiling: Number
    """See `Bounds`."""
    step: Numbers
    """See `Bounds`."""
    epsilon: float
    """See `Opened`."""
    clipped: Number
    """Of the state before the round."""
    lam: Number
    """Of the round, as it was promised then."""


def require_state(state: StructuredState, past: Number, magnitude: float, backups: int) -> None:
    """Refuse a state to which no episode can have led.

    Args:
        state: As it was saved.
        past: The b of its closed rounds, as far as it is not in the account, cost units.
        magnitude: What an episode begins with at least.
        backups: How many there are, the prior included.
    """
    saved.require_numbers("account", state.account)
    saved.require_flag("overridden", state.overridden)
    if state.account > past and not state.overridden:
        raise ValueError(f"account must be at most {past:g}, the b so far, got {state.account!r}")
    saved.require_numbers("magnitude", state.magnitude, minimum=magnitude)
    saved.require_numbers("clipped", state.clipped, minimum=0.0)
    saved.require_choice("backup", state.backup, backups)
    saved.require_flag("breached", state.breached)


def restored_taken(taken: list[Any], backups: int) -> Taken:
    """An open round that was saved as plain numbers and lists, checked, but for its `step`, which is as it came."""
    saved.require_length("taken", taken, len(Taken._fields))
    opened = Taken(*taken)
    saved.require_numbers("taken", [opened.now, opened.ceiling, opened.epsilon], shape=(3,))
    saved.require_choice("backup", opened.backup, backups)
    for name in ("breached", "overridden"):
        saved.require_flag(name, getattr(opened, name))
    for each in (*opened.seen, opened.prior):
        saved.require_numbers("seen and prior", each, shape=np.shape(each)[:1])
    return opened._replace(seen=saved_numbers(opened.seen), prior=saved.numbers(opened.prior))


def restored_owed(given: list[Any]) -> Owed:
    """What a round owes that was saved as plain numbers and lists, checked, but for its `step`, which is as it came."""
    saved.require_length("owed", given, len(Owed._fields))
    owed = Owed(*given)
    saved.require_numbers("owed", [owed.now, owed.ceiling, owed.epsilon], shape=(3,))
    saved.require_numbers("clipped and lam", [owed.clipped, owed.lam], minimum=0.0, shape=(2,))
    return owed


def saved_numbers(entries: Any) -> tuple[Any, ...]:
    """Saved gaps, steps and what was seen: numbers stay what they are, lists become arrays."""
    return tuple(saved.numbers(each) for each in entries)


class Account:
    """The part of a `tether.certificates.Structured` that keeps its account."""

    contract: Contract
    system: Structure

    def _past(self, rounds: Number, ops: Ops) -> Number:
        """The b of the closed rounds, cost units, as far as it is not in the account."""
        return 0.0 * rounds if self.contract.continuing else self.contract.b_until(rounds, ops)

    def rebased(self, state: StructuredState, contract: Contract) -> StructuredState:
        """The state as it is with a raised contract: as much slack, whatever the larger b would have earned before."""
        shift = 0.0 * state.rounds
        if not contract.continuing:
            shift = contract.b_until(state.rounds, NUMPY) - self._past(state.rounds, NUMPY)
        return state._replace(
            account=state.account + shift, magnitude=state.magnitude + shift + contract.earned
        )

    def settle(
        self, state: StructuredState, owed: Owed, outcome: Outcome, ops: Ops = NUMPY
    ) -> StructuredState:
        """The cost of a deferred round is known; what it promised is what was promised then."""
        epsilon = max(owed.epsilon, outcome.epsilon)
        accepted, cost = self._accepted(outcome.cost, owed.ceiling, epsilon, ops)
        floor, _ = self.system.close(owed.step, cost, epsilon, ops)
        excess = cost - (1.0 + owed.lam) * self._floor(floor, 0.0 * cost, ops)
        back = ops.maximum(owed.now - excess, 0.0) - (state.clipped - owed.clipped)
        added = (2.0 + owed.lam) * cost + abs(owed.now)
        covered = ops.logical_and(accepted, state.magnitude + added <= ops.limit(added))
        magnitude = state.magnitude + added
        if self.contract.continuing:
            back = back - self._reserve(state, added, epsilon)
            magnitude = state.magnitude
        return state._replace(
            account=state.account - ops.maximum(back, 0.0),
            magnitude=magnitude,
            breached=ops.logical_or(state.breached, ops.logical_not(covered)),
        )

    def _accepted(self, cost: Number, ceiling: Number, epsilon: float, ops: Ops) -> tuple[Flag, Number]:
        """(whether contract and structure allow such a cost, the cost to compute with)."""
        unit = self._unit_round_off(epsilon)
        accepted, cost = accepted_cost(self.contract, cost, epsilon, ops)
        possible = cost <= ceiling * (1.0 + 100.0 * unit) + 100.0 * unit
        accepted = ops.logical_and(accepted, possible)
        return accepted, ops.where(accepted, cost, self.contract.cost_floor)

    def _floor(self, floor: Number, paid: Number, ops: Ops) -> Number:
        """What the prior paid at least: by the structure, as known from elsewhere, and by the contract."""
        return ops.maximum(floor, ops.maximum(paid, self.contract.cost_floor))

    def _reserve(self, state: StructuredState, added: Number, epsilon: float) -> Number:
        """Without a last round, what pays for the round-off of moving the account by what was `added` up."""
        own = 4.0 * round_off(state.account) * abs(state.account)
        return self._unit_round_off(epsilon) * added + own

    def _closed(
        self, state: StructuredState, taken: Taken, excess: Number, gaps: Numbers, added: Number, ops: Ops
    ) -> StructuredState:
        """The state a round later, which had this excess at most; `added` is what that was added up from."""
        contract, rounds = self.contract, state.rounds + 1.0
        magnitude = state.magnitude + added + contract.earned_at(state.rounds, ops) + abs(taken.now)
        covered = ops.logical_and(magnitude <= ops.limit(magnitude), ops.logical_not(taken.breached))
        feared = state.account + excess
        if contract.continuing:
            feared = (
                feared - contract.b_at(state.rounds, ops) + self._reserve(state, magnitude, taken.epsilon)
            )
            magnitude = 0.0 * rounds + contract.earned_at(rounds, ops) + self.system.scale
        account = ops.where(taken.overridden, feared, ops.minimum(feared, self._past(rounds, ops)))
        clipped = state.clipped + (feared - account)
        if contract.continuing:  # more rather than less, however many rounds there are
            clipped = clipped * (1.0 + 4.0 * round_off(state.account))
        breached = ops.logical_or(state.breached, ops.logical_not(covered))
        return StructuredState(
            rounds, account, gaps, magnitude, taken.backup, breached, taken.overridden, clipped
        )

    def restored_owed(self, given: list[Any]) -> Owed:
        """What a round owes, saved as plain numbers and lists."""
        owed = restored_owed(given)
        return owed._replace(step=self.restored_step(owed.step))

    def restored_gaps(self, entries: Any) -> Any:
        """The gaps that were saved as plain numbers and lists, checked."""
        gaps, fresh = saved_numbers(entries), self.system.start(0.0)
        if len(gaps) != len(fresh):
            raise ValueError(f"gaps must be {len(fresh)} numbers or arrays, got {entries!r}")
        for each, like in zip(gaps, fresh, strict=True):
            saved.require_numbers("gaps", each, shape=np.shape(like))
        return gaps

    def restored_step(self, entries: Any) -> Any:
        """The numbers of an open round that `Structure.close` needs, saved as plain numbers and lists."""
        return saved_numbers(entries)

    def _unit_round_off(self, epsilon: float) -> float:
        """How far off a sum of costs may be, relative to the magnitudes in it, by floating-point arithmetic."""
        rounds = 0.0 if self.contract.continuing else self.contract.horizon
        return max(4.0 * epsilon * (rounds + 16.0), math.sqrt(epsilon) / 16.0)
