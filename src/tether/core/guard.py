"""The online guard: between any learner and the plant, one call before each action and one after.

Plain Python and NumPy: nothing here imports JAX. The mathematics is in the certificate; this file keeps the order of
calls, deals with bad input and says why it did what it did. It fails closed: an exception, a number that is not finite
or an answer that is not an action leads to the prior, and is reported.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tether.core import convert, validate
from tether.core import saved as saved_guard
from tether.core.actions import Actions, Answer, bound_from_json, bound_to_json, equal
from tether.core.certificate import Action, Box, Certificate, Choice, Observation, Outcome
from tether.core.decision import AssumptionBreach, Breach, Decision, GuardMisuse, PriorFailed, Reason
from tether.core.finite import Labels
from tether.core.looking import Looking
from tether.core.meter import Meter, Refused
from tether.core.monitor import Contradiction, Monitor
from tether.core.ops import FLOAT32, NUMPY, coarsest, quietly
from tether.core.projection import NORMS, Norm
from tether.core.several import combined
from tether.core.turn import Turn

__all__ = ["AssumptionBreach", "Breach", "Decision", "Guard", "GuardMisuse", "PriorFailed", "Reason"]

STATE_VERSION = 4
_MONITOR_METHODS = ("start", "arrived", "paid")
_CERTIFICATE_PARTS = (
    "contract", "feature_names", "backup_names", "revealed_names", "online_ops", "start", "open", "choose",
    "backup_action", "update", "features", "feature_units", "to_dict", "restore",
)  # fmt: skip
_STATE_PARTS = ("rounds", "breached", "_replace", "_asdict")


class Guard(Looking):
    """Keeps whatever a learner proposes within the contract of its certificate.

    Call `act` before and `observe` after every round, `reset` before every further episode. At `reset` the
    promise starts again: it compares with the prior started from the state that the plant is in then.

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
    ) -> None:
        self.certificate = certificate = combined(certificate)
        validate.parts("certificate", certificate, _CERTIFICATE_PARTS, "tether.certificates.Certificate")
        if not callable(prior):
            raise TypeError(f"prior must be callable as prior(observation) -> action, got {prior!r}")
        validate.choice("norm", norm, NORMS)
        if monitor is not None:
            validate.parts("monitor", monitor, _MONITOR_METHODS, "tether.core.monitor.Monitor")
        self._meter = Meter(certificate)
        self.resolution = validate.number("resolution", resolution, minimum=0.0)
        self.prior = prior
        self.monitor = monitor
        self.norm: Norm = norm
        self._actions = _actions_of(certificate, low, high)
        self._box = Box(self._actions.low, self._actions.high, norm)
        self.counts: Counter[Reason] = Counter()
        self._turn = Turn()
        self.reset()

    def reset(self) -> None:
        """Begin an episode; `counts` go on."""
        with self._turn:
            self._ops = self.certificate.online_ops
            self._state: Any = self.certificate.start(self._ops, 0.0)
            validate.parts("a certificate's state", self._state, _STATE_PARTS, "a NamedTuple with these")
            self._taken: Any = None
            self._epsilon = self.resolution
            self.breach: Breach | None = None
            self._watched: Any = None if self.monitor is None else self.monitor.start()
            self._played: Any = None

    @property
    def uncertified_from(self) -> int:
        """The round from which on the promise of this episode is not certified; horizon + 1 if it all is."""
        return self.horizon + 1 if self.breach is None else self.breach.round

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
        with self._turn:
            if self._taken is not None:
                raise GuardMisuse(
                    f"round {self.round} already has an action; call observe(cost) before the next act"
                )
            self._require_round()
            answer = self._actions.ask(self.prior, observation)
            # Once for an action that can be played all the same: where breaches are errors it must not be held back.
            if answer.complaint is not None and (answer.action is None or not self._state.breached):
                self._report(self.round, answer.complaint)
            prior = answer.required(self.round)
            self._watch_arrival(observation)
            return self._decide(observation, proposal, prior, answer)

    def _decide(self, observation: Observation, proposal: object, prior: Action, answer: Answer) -> Decision:
        wish = self._actions.usable(proposal)
        choice, complaint, void, binding = None, None, None, None
        if not self._state.breached:
            try:
                self._epsilon = self._round_off(observation, proposal, wish, answer)
                choice = self._choose(observation, wish, prior, self._epsilon)
                if choice.breached:
                    given = f"{convert.text(observation)} with the prior's action {prior!r}"
                    void = self._void(choice.taken)
                    choice, complaint = None, f"the certificate does not cover the observation {given}"
            except Exception as error:
                complaint = f"the certificate raised {convert.text(error)}"
            if complaint is not None:
                self._report(self.round, complaint, contracts=void)
        if choice is None:
            # What was taken is of no use after a breach, but the round is open.
            action, deviation, radius, margin, backup, taken = prior, 0.0, 0.0, math.nan, 0.0, ()
        else:
            action, deviation, radius, margin, backup, taken = choice[:6]
            binding = self._contract_name(choice.binding)
        reason = self._actions.reason(action, wish, bool(self._state.breached))
        if self.monitor is not None:
            self._played = convert.plain_numbers(observation), convert.plain_numbers(action)
        decision = Decision(
            self.round,
            self._actions.given(action),
            self._actions.given(prior),
            proposal,
            deviation,
            radius,
            margin,
            not equal(action, wish),
            reason,
            self.certificate.backup_names[int(backup)],
            binding,
        )
        self.counts[reason] += 1
        self._taken = taken
        return decision

    def _choose(self, observation: Observation, wish: Action, prior: Action, epsilon: float) -> Choice:
        """The certificate's choice, checked: an action of this guard's, inside its bounds, and plain numbers."""
        ops = self._ops if isinstance(prior, float) else NUMPY
        with quietly(ops):
            opened = self.certificate.open(self._state, observation, self._ops, epsilon)
            # What is no action stands for the safe action that the search begins with.
            choice = self.certificate.choose(
                opened, math.nan * prior if wish is None else wish, prior, self._box, ops
            )
        action = self._actions.decided(choice.action)
        if action is None or not self._actions.inside(action):
            raise ValueError(f"it chose {choice.action!r}, not a finite action inside the bounds")
        backup = int(choice.backup)
        if not 0 <= backup < len(self.certificate.backup_names) or not isinstance(choice.taken, tuple):
            raise ValueError(f"it chose backup {choice.backup!r} and took {choice.taken!r}, not a tuple")
        numbers = (float(choice.deviation), float(choice.radius), float(choice.margin))
        taken = convert.plain_tuple(choice.taken)
        return Choice(action, *numbers, backup, taken, bool(choice.breached), float(choice.binding))

    def observe(
        self,
        cost: object,
        revealed: Mapping[str, Any] | None = None,
        *,
        next_observation: Observation | None = None,
        reward: object = None,
    ) -> None:
        """Close the round with what came of it.

        A cost that is not a finite number of at least the contract's floor, or that the certificate knows to be
        impossible, is an assumption breach: it is reported as an `AssumptionBreach` warning and in `breach`, and the
        episode goes on with the prior's actions.

        Args:
            cost: The round's cost; with several contracts one for each, by name or in their order.
            revealed: For a certificate with `revealed_names`, the round's disturbances by name, such as
                `{"efficiency_noise": 0.1, "drop_rate": 0.0}`; None if they are not known.
            next_observation: What is seen next, if it is known already; for certificates that make use of it.
            reward: The round's reward, if it is known; for certificates that make use of it.

        Raises:
            GuardMisuse: There is no open round.
            ValueError: `revealed` is not what the certificate makes use of, or there is not a cost for each of several
                contracts; the round stays open.
        """
        with self._turn:
            if self._taken is None:
                raise GuardMisuse(
                    f"round {self.round} has no action yet; call act(observation, proposal) first"
                )
            known = None
            if revealed is not None:
                known = convert.revealed_arrays(revealed, self.certificate.revealed_names)
                self._epsilon = max(self._epsilon, coarsest(revealed))
            number = self._meter.read(cost)
            if number == number:  # not NaN, whose type says nothing
                self._epsilon = max(self._epsilon, coarsest(cost))
            refused = self._meter.refused(number, self._epsilon)
            if refused is None and not self._state.breached:
                self._watch_cost(number)
            outcome = Outcome(
                number,
                revealed=known,
                next_observation=next_observation,
                reward=None if reward is None else convert.as_number(reward),
                epsilon=self._epsilon,
            )
            self._close(cost, outcome, refused)

    def _close(self, cost: object, outcome: Outcome, refused: Refused | None) -> None:
        round_now, before, void = self.round, self._state, None
        # What is left of the state if nothing more can be said of it: finite numbers, and the count.
        after, complaint = before._replace(rounds=before.rounds + 1.0), None
        if not before.breached:
            try:
                with quietly(self._ops):
                    updated = self.certificate.update(before, self._taken, outcome, self._ops)
                if float(updated.rounds) != after.rounds:
                    raise ValueError(f"after {before.rounds:g} rounds it counted {updated.rounds!r}")
                if bool(updated.breached):
                    complaint = "more than the certificate knows to be possible or can compute with"
                    void = self._void(updated)
                else:
                    after = updated
            except Exception as error:
                complaint = f"and the certificate raised {convert.text(error)}"
        complaint = complaint if refused is None else refused.complaint
        self._taken, self._state = None, after
        if complaint is not None:
            self._report(
                round_now,
                f"the cost was {convert.text(cost)}, {complaint}",
                claimed=None if refused is None else refused.claimed,
                seen=self._single_cost(outcome.cost) if refused is None else refused.seen,
                contracts=void,
                **self._evidence,
            )

    @staticmethod
    def _single_cost(cost: Any) -> float | None:
        return None if isinstance(cost, tuple) else cost

    def _void(self, held: Any) -> tuple[str, ...] | None:
        """Of several contracts those whose promise is void; None if there is one contract."""
        contracts: Any = getattr(self.certificate, "contracts", None)
        if contracts is None:
            return None
        return tuple(name for name, lost in zip(contracts, held.void, strict=True) if lost)

    def _contract_name(self, place: float) -> str | None:
        contracts: Any = getattr(self.certificate, "contracts", None)
        return None if contracts is None or place < 0.0 else list(contracts)[int(place)]

    def _watch_arrival(self, observation: Observation) -> None:
        """Show the monitor what is seen, and report what it finds."""
        if self.monitor is None or self._state.breached:
            return
        seen = found = None
        try:
            seen = convert.plain_numbers(observation)
            self._watched, found = self.monitor.arrived(self._watched, seen)
        except Exception as error:
            self._report(self.round, f"the monitor raised {convert.text(error)}", observation=seen)
        if found is not None:
            self._contradicted(found, seen, None)

    def _watch_cost(self, cost: Any) -> None:
        """Show the monitor what was paid, and report what it finds; it may not have seen how the round began."""
        if self.monitor is None or self._played is None:
            return
        seen, played = self._played
        found = None
        try:
            self._watched, found = self.monitor.paid(self._watched, seen, played, cost)
        except Exception as error:
            detail = f"the monitor raised {convert.text(error)}"
            self._report(self.round, detail, observation=seen, action=played)
        if found is not None:
            self._contradicted(found, seen, played)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the prior and the monitor, as plain numbers fit for JSON; valid in the middle of a round too.

        What the monitor remembers is included.
        """
        with self._turn.lock:
            numbers = {name: convert.plain_lists(value) for name, value in self._state._asdict().items()}
            return {
                "version": STATE_VERSION,
                "certificate": self.certificate.to_dict(),
                "low": bound_to_json(self._actions.low),
                "high": bound_to_json(self._actions.high),
                "norm": self.norm,
                "resolution": self.resolution,
                "epsilon": self._epsilon,
                "shape": self._actions.shape,
                "state": numbers,
                "taken": convert.plain_lists(self._taken),
                "breach": None if self.breach is None else convert.to_json(asdict(self.breach)),
                "monitored": self.monitor is not None,
                "watched": convert.to_json(self._watched),
                "played": convert.to_json(convert.from_json(self._played)),
                "counts": {str(reason): count for reason, count in self.counts.items()},
            }

    @classmethod
    def from_state_dict(
        cls,
        saved: dict[str, Any],
        prior: Callable[[Observation], Action],
        certificate: Certificate | None = None,
        *,
        monitor: Monitor | None = None,
    ) -> Guard:
        """The guard that `state_dict` saved; its decisions go on as if it had never stopped.

        Args:
            saved: What `state_dict` gave.
            prior: The prior that it had.
            certificate: The certificate that it had, if it has a structure or an environment that is not in the saved
                numbers.
            monitor: The monitor that it had, if it had one.

        Raises:
            ValueError: These are not the numbers of a guard, or none that an episode can have led to.
        """
        if not isinstance(saved, dict) or saved.get("version") != STATE_VERSION:
            came = saved.get("version") if isinstance(saved, dict) else type(saved).__name__
            raise ValueError(f"expected a guard state of version {STATE_VERSION}, got {came!r}")
        if saved.get("monitored") and monitor is None:
            raise ValueError(
                "this guard has a monitor, which is not saved with it; give from_state_dict(..., monitor=...)"
            )
        try:
            if certificate is None:
                certificate = saved_guard.certificate_from_dict(saved["certificate"])
            elif json.loads(json.dumps(certificate.to_dict())) != json.loads(
                json.dumps(saved["certificate"])
            ):
                raise ValueError(f"the guard was saved with another certificate: {saved['certificate']!r}")
            low = bound_from_json(saved["low"], -math.inf)
            high = bound_from_json(saved["high"], math.inf)
            guard = cls(certificate, prior, low, high, saved["norm"], monitor, resolution=saved["resolution"])
            guard._restore(saved)
        except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise ValueError(f"the guard state is incomplete or damaged: {error!r}") from error
        return guard

    def _restore(self, saved: dict[str, Any]) -> None:
        self._epsilon = validate.number("epsilon", saved["epsilon"], minimum=self.resolution)
        # A round that the certificate could not open has nothing to restore.
        taken = saved["taken"] or None
        self._state, self._taken = self.certificate.restore(saved["state"], taken)
        if saved["taken"] is not None:
            self._taken = () if taken is None else self._taken
            if self.round > self.horizon:
                raise ValueError(f"taken must be null after the last of {self.horizon} rounds")
        self._actions.shape = saved_guard.shape(saved["shape"], self._actions.shape)
        self.breach = saved_guard.breach(saved["breach"], bool(self._state.breached), self.round)
        if saved["monitored"]:
            self._watched = convert.from_json(saved["watched"])
            self._played = convert.from_json(saved["played"])
        self.counts = saved_guard.counts(saved["counts"])

    def _contradicted(self, found: Contradiction, observation: Observation, action: Action) -> None:
        """Report what the monitor found in this round, or only now of the last one."""
        evidence = self._evidence if found.ago > 0 else {"observation": observation, "action": action}
        claimed = (found.low, found.high)
        self._report(self.round - found.ago, str(found), claimed=claimed, seen=found.seen, **evidence)

    @property
    def _evidence(self) -> dict[str, Any]:
        """What was observed and played in the last round that has an action, if there is a monitor."""
        if self._played is None:
            return {}
        observation, action = self._played
        return {"observation": observation, "action": action}

    def _report(
        self,
        round_now: int,
        detail: str,
        *,
        claimed: tuple[float, float] | None = None,
        seen: float | None = None,
        observation: Observation | None = None,
        action: Action | None = None,
        contracts: tuple[str, ...] | None = None,
    ) -> None:
        self._state = self._state._replace(breached=True)
        if self.breach is None:
            number = None if seen is None or math.isnan(seen) else seen
            evidence = convert.from_json(observation), convert.from_json(action)
            self.breach = Breach(round_now, detail, claimed, number, *evidence, contracts)
        warnings.warn(
            f"round {round_now}: {detail}; the promise is void from here on, and only the prior is played",
            AssumptionBreach,
            stacklevel=3,
        )


def _actions_of(certificate: Any, low: ArrayLike | None, high: ArrayLike | None) -> Actions:
    """The actions of a guard: those of its certificate's finite set, if it has one, else between the bounds."""
    actions = getattr(certificate, "actions", None)
    if actions is None:
        return Actions(low, high)
    if any(bound is not None and np.any(np.isfinite(bound)) for bound in (low, high)):
        raise ValueError(f"a finite set of actions has no bounds, got low={low!r}, high={high!r}")
    return Labels(actions)
