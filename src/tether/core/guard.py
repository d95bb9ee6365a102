"""The online guard: between any learner and the plant, one call before each action and one after.

Plain Python and NumPy: nothing here imports JAX. The mathematics is in the certificate; this file keeps the order of
calls, deals with bad input and says why it did what it did. It fails closed: an exception, a number that is not finite
or an answer that is not an action leads to the prior, and is reported.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from tether.core import convert, validate
from tether.core.actions import Answer, equal
from tether.core.actuator import Actuator, tolerating
from tether.core.certificate import (
    CERTIFICATE_PARTS,
    STATE_PARTS,
    Action,
    Box,
    Certificate,
    Choice,
    Observation,
    Outcome,
)
from tether.core.decision import (
    AssumptionBreach,
    Breach,
    Decision,
    GuardMisuse,
    Override,
    PriorFailed,
    Reason,
)
from tether.core.finite import Labels, actions_of
from tether.core.journal.journal import Journal
from tether.core.keeping import Keeping, recorded, recorded_pair
from tether.core.late import MOST, Pending, advanced
from tether.core.looking import Looking
from tether.core.meter import Meter, Refused
from tether.core.monitor import MONITOR_METHODS, Monitor
from tether.core.ops import FLOAT32, FLOATS, NUMPY, Ops, coarsest, quietly
from tether.core.overrides import Overrides, applied_action, require_reason
from tether.core.plainly import Plainly
from tether.core.projection import NORMS, Norm
from tether.core.raising import Raising
from tether.core.reporting import Reporting
from tether.core.several import combined
from tether.core.straight import NotWritten, Straight, new
from tether.core.turn import Turn
from tether.core.watch import Watch

__all__ = [
    "AssumptionBreach",
    "Breach",
    "Decision",
    "Guard",
    "GuardMisuse",
    "Override",
    "PriorFailed",
    "Reason",
]


class Guard(Keeping, Raising, Looking, Plainly, Reporting):
    """Keeps whatever a learner proposes within the contract of its certificate.

    Call `act` before and `observe` after every round, `reset` before every further episode; with `horizon=math.inf`
    there need not be any. At `reset` the promise starts again: it compares with the prior started from the state that
    the plant is in then.

    Args:
        certificate: The contract and what is known of the system. Several certificates, in a mapping from names or in a
            list, are as many contracts (`tether.Several`); one for a finite set of actions is `tether.Switches`.
        prior: The trusted policy, `prior(observation) -> action`. It is called once in every `act`.
        low: Lower bounds of the action, a number or [n]; None for none.
        high: Upper bounds of the action, a number or [n]; None for none.
        norm: The norm in which deviations are measured and for which the sensitivity holds.
        monitor: What tells whether a round's outcome is consistent with what is claimed of the system, such as
            `tether.Ranges`, `tether.LipschitzMonitor` or an environment's `monitor()`; None to watch the costs only.
        resolution: Relative round-off of the observations, actions and costs at the plant. The types in which they come
            count in any case; a number may have been through a coarser type before it got here, so the default is
            that of float32, 1.2e-7. Say 0.0 if the plant computes in float64 throughout and every digit counts.
            Where actuators have fewer digits, a `LipschitzCertificate` needs their `tolerance` as well.
        tolerance: How far what the plant plays may be from what is decided, inside the bounds: a number, or [n] for
            vectors. The safe set shrinks so that whatever the actuator does is safe. See `tether.core.actuator`.
        quantum: The actuator rounds to multiples of this, a number or [n]; what is decided is one of them.
        levels: The actuator rounds to one of these numbers; what is decided is one of them.
        most_pending: How many rounds may wait for their cost (`observe(None)`, `report`); 1000, or the horizon if that
            is less, by default. Of more the oldest is given up: it stays counted as what it could have been at worst.
        journal: A folder in which every call is written down before it returns, so that `Guard.recover` goes on from
            there; or a `tether.core.journal.journal.Journal`, which can be made to survive a loss of power. Then
            observations and costs must be numbers, text, lists, mappings or arrays.

    Attributes:
        counts: How often each `Reason` occurred since the guard was made.
        breach: The assumption breach of this episode, or None.

    Example:
        >>> from tether import Contract, LipschitzCertificate, Sensitivity, geometric
        >>> certificate = LipschitzCertificate(
        ...     Contract(lam=0.5, b=1.0, horizon=3, cost_floor=1.0),
        ...     Sensitivity(immediate=2.0, carried=1.0, perturbation=geometric(0.5)),
        ... )
        >>> guard = Guard(certificate, prior=lambda temperature: 20.0 - temperature, low=-10.0, high=10.0)
        >>> decision = guard.act(18.0, proposal=9.0)
        >>> round(decision.action, 3), decision.prior_action, str(decision.reason)
        (2.75, 2.0, 'too far')
        >>> guard.observe(1.2)
        >>> guard.act(18.5, proposal=float("nan")).reason
        <Reason.INVALID_PROPOSAL: 'invalid proposal'>
    """

    def __init__(
        self,
        certificate: Certificate | Mapping[str, Any] | list[Any] | tuple[Any, ...],
        prior: Callable[[Observation], Action],
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        norm: Norm = "l2",
        monitor: Monitor | None = None,
        *,
        resolution: float = FLOAT32,
        tolerance: ArrayLike | None = None,
        quantum: ArrayLike | None = None,
        levels: ArrayLike | None = None,
        most_pending: int | None = None,
        journal: str | Path | Journal | None = None,
    ) -> None:
        certificate = combined(certificate)
        validate.parts("certificate", certificate, CERTIFICATE_PARTS, "tether.certificates.Certificate")
        if not callable(prior):
            raise TypeError(f"prior must be callable as prior(observation) -> action, got {prior!r}")
        validate.choice("norm", norm, NORMS)
        if monitor is not None:
            validate.parts("monitor", monitor, MONITOR_METHODS, "tether.core.monitor.Monitor")
        self.given_certificate = certificate
        self._meter = Meter(certificate)
        self.resolution = validate.number("resolution", resolution, minimum=0.0)
        self.prior = prior
        self.monitor = monitor
        self._watch = Watch(monitor)
        self._overrides = Overrides()
        most = min(MOST, certificate.contract.horizon) if most_pending is None else most_pending
        self._pending = Pending(validate.count("most_pending", most))
        self.norm: Norm = norm
        self._actions = actions_of(certificate, low, high)
        self._actuator = Actuator(tolerance, quantum, levels, self._actions)
        self.certificate = tolerating(certificate, self._actuator, norm)
        self._box = Box(self._actions.low, self._actions.high, norm)
        self.counts: Counter[Reason] = Counter()
        self._turn = Turn()
        self._straight = Straight()
        self.reset()
        self._begin_journal(journal)

    raise_contract = recorded(Raising.raise_contract)

    @recorded
    def reset(self) -> None:
        """Begin an episode; `counts` go on."""
        with self._turn:
            self._ops = self.certificate.online_ops
            self._promised = [(1, self.certificate.contract)]
            self._state: Any = self.certificate.start(self._ops, 0.0)
            validate.parts("a certificate's state", self._state, STATE_PARTS, "a NamedTuple with these")
            self._taken: Any = None
            self._epsilon = self.resolution
            self._decided: Action = None
            self.breach: Breach | None = None
            self._watch.reset()
            self._overrides.reset()
            self._pending.reset()

    @recorded_pair
    def act(self, observation: Observation, proposal: object) -> Decision:
        """Decide what to play in this round.

        Args:
            observation: What the prior needs to decide; handed to it unchanged.
            proposal: The learner's action. Anything is accepted; what is not an action leads to a safe one.

        Raises:
            GuardMisuse: The last action has no observed cost yet, or the episode is over; or the prior, the certificate
                or the monitor calls the guard that is asking it.
            PriorFailed: The prior raised or returned something that is not an action.
        """
        turn = self._turn
        turn.lock.acquire()
        try:
            if turn.taken:
                raise turn.misuse()
            turn.taken = True
            try:
                state, watch = self._state, self._watch
                if self._taken is not None:
                    raise GuardMisuse(
                        f"round {self.round} already has an action; call observe(cost) before the next act"
                    )
                if state.rounds >= self.certificate.contract.horizon:
                    self._require_round()
                answer = self._actions.ask(self.prior, observation)
                prior, _, complaint, _ = answer
                # Once for an action that can be played all the same: where breaches are errors it must not be held
                # back.
                if complaint is not None and (prior is None or not state.breached):
                    self._report(self.round, complaint)
                if prior is None:
                    raise answer.failed(self.round)
                if watch.monitor is None and not watch.missed:
                    decision = self._decide_plainly(observation, proposal, prior, answer)
                    if decision is not None:
                        return decision
                if not self._state.breached and (found := watch.arrived(observation)) is not None:
                    self._contradicted(found)
                return self._decide(observation, proposal, prior, answer)
            finally:
                turn.taken = False
        finally:
            turn.lock.release()

    def _decide(self, observation: Observation, proposal: object, prior: Action, answer: Answer) -> Decision:
        wish = self._actions.usable(proposal)
        choice, complaint, void = None, None, None
        if not self._state.breached:
            try:
                self._epsilon = self._round_off(observation, proposal, wish, answer)
                found = self._choose(observation, wish, prior, self._epsilon)
                if found.breached and wish is not None:  # by its check, perhaps; where searches begin is safe
                    found = self._choose(observation, None, prior, self._epsilon)
                choice = None if found.breached else found
                if found.breached:
                    given = f"{convert.text(observation)} with the prior's action {prior!r}"
                    complaint = f"the certificate does not cover the observation {given}"
                    void = self._void(found.taken)
            except Exception as error:
                complaint = f"the certificate raised {convert.text(error)}"
            if complaint is not None:
                self._report(self.round, complaint, contracts=void)
        if choice is None:
            # What was taken is of no use after a breach, but the round is open.
            choice = Choice(prior, 0.0, 0.0, math.nan, 0.0, (), True)
        if self._actuator.rounds:
            choice = self._actuator.played(choice, prior, self.norm)
        action, deviation, radius, margin, backup, taken, _, overridden, binding = choice
        asked = self._actuator.playable(wish) if self._actuator.rounds and wish is not None else wish
        reason = self._actions.reason(action, asked, bool(self._state.breached), overridden)
        self._watch.plays(observation, action)
        shown, meant = self._actions.given(action), self._actions.given(prior)
        decision: Decision = new(Decision, (
            self.round, shown, meant, proposal, deviation, radius, margin, not equal(action, wish), reason,
            self.certificate.backup_names[int(backup)],
            None if binding < 0.0 else self._contract_name(binding),
        ))  # fmt: skip
        self.counts[reason] += 1
        self._taken, self._decided = taken, action
        return decision

    def _choose(self, observation: Observation, wish: Action, prior: Action, epsilon: float) -> Choice:
        """The certificate's choice, checked: an action of this guard's, inside its bounds, and plain numbers."""
        ops = self._ops if isinstance(prior, float) else NUMPY
        if ops is FLOATS:  # without a context, which costs as much as a few sums
            if getattr(self.certificate, "straight", False) and not self._state.overridden:
                with contextlib.suppress(NotWritten):
                    return self._straight.chosen(
                        self.certificate, self._state, self._box, observation, wish, prior, epsilon
                    )
            choice = self._chosen(observation, wish, prior, epsilon, ops)
        else:
            with quietly(ops):
                choice = self._chosen(observation, wish, prior, epsilon, ops)
        said, deviation, radius, margin, number, given, breached, overridden, binding = choice
        action = self._actions.decided(said)
        if action is None or not self._actions.inside(action):
            raise ValueError(f"it chose {said!r}, not a finite action inside the bounds")
        backup = int(number)
        if not 0 <= backup < len(self.certificate.backup_names) or not isinstance(given, tuple):
            raise ValueError(f"it chose backup {number!r} and took {given!r}, not a tuple")
        return Choice(
            action, float(deviation), float(radius), float(margin), backup, convert.plain_tuple(given),
            bool(breached), bool(overridden), float(binding),
        )  # fmt: skip

    def _chosen(
        self, observation: Observation, wish: Action, prior: Action, epsilon: float, ops: Ops
    ) -> Choice:
        """The certificate's choice, as it comes."""
        opened = self.certificate.open(self._state, observation, self._ops, epsilon)
        # What is no action stands for the safe action that the search begins with.
        asked = math.nan * prior if wish is None else wish
        return self.certificate.choose(opened, asked, prior, self._box, ops)

    @recorded
    def observe(
        self,
        cost: object,
        revealed: Mapping[str, Any] | None = None,
        *,
        applied: object = None,
        override: str | None = None,
        next_observation: Observation | None = None,
        reward: object = None,
    ) -> None:
        """Close the round with what came of it.

        Actuators round and operators intervene: the account is kept with what was `applied`. If that was not safe, it
        is no breach but an *override*, kept in `overrides`: the prior is played until what is played is known to be
        safe again. The promise of the rounds until then is the operator's (`rounds_under_override`); after that it
        holds again in every round, with the override's costs in it.

        A cost that is not a finite number of at least the contract's floor, or that the certificate knows to be
        impossible, is an assumption breach: an `AssumptionBreach` warning and `breach` say so, and the prior plays on.

        Args:
            cost: The round's cost; with several contracts one for each, by name or in their order. None if it is not
                known: the round then counts as what it could be at worst, until `report` gives its cost. A monitor is
                not shown such a round. Several contracts and finite sets of actions need the costs in time.
            revealed: For a certificate with `revealed_names`, the round's disturbances by name, such as
                `{"efficiency_noise": 0.1, "drop_rate": 0.0}`; None if they are not known.
            applied: What was really played; None if it was what was decided. Outside of `low` and `high`, which are all
                that the plant can play, it is an assumption breach. With several contracts or a finite set of actions
                it must be what was decided.
            override: Who decided otherwise, and why, such as `"operator: maintenance"`; for the record.
            next_observation: What is seen next, if it is known already; for certificates that make use of it.
            reward: The round's reward, if it is known; for certificates that make use of it.

        Raises:
            GuardMisuse: There is no open round.
            ValueError: `revealed` or `applied` is nothing that the certificate can make use of, or it cannot do without
                a cost, or without one for each of several contracts; the round stays open.
        """
        turn = self._turn
        turn.lock.acquire()
        try:
            if turn.taken:
                raise turn.misuse()
            turn.taken = True
            try:
                plain = revealed is applied is override is reward is None
                if not plain or not self._close_plainly(cost):
                    self._close_round(cost, revealed, applied, override, next_observation, reward)
            finally:
                turn.taken = False
        finally:
            turn.lock.release()

    def _close_round(
        self,
        cost: object,
        revealed: Mapping[str, Any] | None,
        applied: object,
        override: str | None,
        next_observation: Observation | None,
        reward: object,
    ) -> None:
        if self._taken is None:
            raise GuardMisuse(f"round {self.round} has no action yet; call act(observation, proposal) first")
        known = None if revealed is None else self._known(revealed)
        read = math.nan if cost is None else self._meter.read(cost)
        played = None if applied is override is None else self._applied(applied, override)
        told = self._decided if played is None and override is not None else played
        if played is None and self._actuator.exact:
            played = self._decided  # rounded, so not what the certificate chose
        earned = None if reward is None else convert.as_number(reward)
        if getattr(self.certificate, "sees", True):  # else it makes no use of rewards either
            self._tell(reward, math.nan if earned is None else earned)
        self._tell(cost, read)
        box = None if played is None else self._box
        outcome = new(Outcome, (read, played, known, next_observation, earned, self._epsilon, box))
        self._wait(outcome) if cost is None else self._pay(cost, outcome)
        if told is not None or self._overrides.kept:
            overridden = getattr(self._state, "overridden", False)
            self._overrides.close(self.round - 1, override, told, overridden)

    def _known(self, revealed: Mapping[str, Any]) -> dict[str, Any]:
        """What was revealed, as the certificate wants it."""
        known = convert.revealed_arrays(revealed, self.certificate.revealed_names)
        self._epsilon = max(self._epsilon, coarsest(revealed))
        return known

    def _applied(self, applied: object, override: str | None) -> Action:
        """What was applied, None if it is what was decided; what the plant cannot play is reported."""
        require_reason(override, applied)
        if applied is None:
            return None
        epsilon = max(self._epsilon, coarsest(applied))
        action, complaint = applied_action(self._actions, applied, self._decided, epsilon)
        if action is not None:
            self._require_one()
        self._epsilon = epsilon
        if action is not None and self._watch.played is not None:
            self._watch.plays(self._watch.played[0], action)
        if complaint is not None and not self._state.breached:
            self._report(self.round, complaint, **self._watch.evidence)
        return action

    @recorded
    def report(self, round: int, cost: object) -> None:  # noqa: A002
        """The cost of a round that was closed without, by `observe(None)`; costs may come in any order.

        Freedom comes back with it, at once. A cost that cannot be is an assumption breach in its round, as it would
        have been in time: `breach` then names that round, and the promise is certified before it only.

        Args:
            round: The round, counted from 1; one of `pending`.
            cost: Its cost.

        Raises:
            ValueError: The round does not wait for a cost, or there is none.
        """
        with self._turn:
            if cost is None:
                raise ValueError(f"round {round} already waits for its cost; report it once it is known")
            late, owed = self._pending.take(round, self.round)
            read = self._meter.read(cost)
            self._tell(cost, read)
            outcome = Outcome(read, epsilon=self._epsilon)
            certificate: Any = self.certificate
            refused = self._meter.refused(read, self._epsilon)
            self._close(late, cost, outcome, refused, 0.0, certificate.settle, owed, outcome, self._ops)

    def _pay(self, cost: object, outcome: Outcome) -> None:
        """Close the round with its cost."""
        refused = self._meter.refused(outcome.cost, self._epsilon)
        watched = refused is None and not self._state.breached
        if watched and (found := self._watch.paid(outcome.cost)) is not None:
            self._contradicted(found)
        certificate, state, taken = self.certificate, self._state, self._taken
        single = isinstance(self._decided, float) and outcome.applied is outcome.reward is None
        if single and getattr(certificate, "straight", False) and not (state.breached or state.overridden):
            with contextlib.suppress(NotWritten):
                update = self._straight.updating(certificate, state, taken, outcome.epsilon)
                self._close(self.round, cost, outcome, refused, 1.0, update, taken, outcome.cost)
                return
        step = certificate.update
        self._close(self.round, cost, outcome, refused, 1.0, step, taken, outcome, self._ops)

    def _wait(self, outcome: Outcome) -> None:
        """Close the round without its cost."""
        certificate: Any = self.certificate
        round_now = self.round

        def step(before: Any) -> Any:
            after, owed = certificate.defer(before, self._taken, outcome, self._ops)
            self._pending.add(round_now, convert.plain_tuple(owed))
            return after

        if not hasattr(certificate, "defer"):
            raise ValueError(
                f"{type(certificate).__name__} cannot close a round without its cost; the round stays open"
            )
        self._close(round_now, "missing", outcome, None, 1.0, step)
        self._watch.missed = True

    def _tell(self, cost: object, read: Any) -> None:
        """Remember how exact costs and rewards are: this one, as it was read."""
        if read == read and (epsilon := coarsest(cost)) > self._epsilon:  # NaN's type says nothing
            self._epsilon = epsilon

    def _close(
        self,
        of: int,
        cost: object,
        outcome: Outcome,
        refused: Refused | None,
        more: float,
        step: Callable[..., Any],
        *given: Any,
    ) -> None:
        """Take the state that step(state, *given) is, with `more` rounds closed; what is odd is a breach in `of`."""
        after, complaint, broken = advanced(self._state, more, self._ops, step, *given)
        self._taken, self._state = (None if more else self._taken), after
        if complaint is None and refused is None:
            return
        paid: Any = outcome.cost
        seen = None if isinstance(paid, tuple) else paid
        if refused is not None:
            complaint, seen = refused.complaint, refused.seen
        self._report(
            of,
            f"the cost was {convert.text(cost)}, {complaint}",
            claimed=None if refused is None else refused.claimed,
            seen=seen,
            contracts=None if broken is None else self._void(broken),
            **(self._watch.evidence if more else {}),
        )

    def _require_one(self) -> None:
        """Refuse what only certificates of one contract and of actions between bounds can take into account."""
        if getattr(self.certificate, "contracts", None) is not None or isinstance(self._actions, Labels):
            raise ValueError(
                "with several contracts or a finite set of actions the plant must play what was decided: "
                f"{type(self.certificate).__name__} cannot take another action into account; the round stays open"
            )
