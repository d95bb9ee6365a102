"""The online guard: between any learner and the plant, one call before each action and one after.

Plain Python and NumPy: nothing here imports JAX. The mathematics is in the certificate; this file keeps the order of
calls, deals with bad input and says why it did what it did. It fails closed: an exception, a number that is not finite
or an answer that is not an action leads to the prior, and is reported.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tether import _validate
from tether.certificates import certificate_from_dict
from tether.certificates.base import Box, Certificate, Choice, Outcome, accepted_cost
from tether.monitor import Contradiction, Monitor
from tether.ops import FLOAT32, FLOATS, NUMPY, Ops, round_off
from tether.projection import NORMS, Norm

STATE_VERSION = 4
_MONITOR_METHODS = ("start", "arrived", "paid")
_CERTIFICATE_PARTS = (
    "contract", "feature_names", "backup_names", "revealed_names", "online_ops", "start", "open", "choose",
    "backup_action", "update", "features", "to_dict", "restore",
)  # fmt: skip


class GuardMisuse(RuntimeError):
    """The guard was called out of order; the plant was not touched and the guard's state is unchanged."""


class PriorFailed(RuntimeError):
    """The prior gave no usable action, so there is none to play; the round stays open for another try."""


class AssumptionBreach(UserWarning):
    """Something happened that the contract or the certificate rules out; the promise is void from here on."""


class Reason(StrEnum):
    """Why a decision is what it is."""

    SAFE = "safe"
    """The proposal is in the safe set and was played unchanged."""
    TOO_FAR = "too far"
    """The proposal is too far from the prior's action and was moved to the edge of the safe set."""
    OUT_OF_BOUNDS = "out of bounds"
    """The proposal violates the action bounds; the nearest safe action was played."""
    INVALID_PROPOSAL = "invalid proposal"
    """The proposal is NaN, infinite, ill-shaped or not a number; the prior's action was played."""
    BREACH = "breach"
    """An assumption was breached in this episode; the prior's action was played."""


class Decision(NamedTuple):
    """What the guard decided in one round, and why."""

    round: int
    """The round h, counted from 1."""
    action: Any
    """What to play: a float, or [n]."""
    prior_action: Any
    """What the prior would play in this state: a float, or [n]."""
    proposal: Any
    """What was proposed, as it came."""
    deviation: float
    """||action - prior_action||, action units (the paper's d_h)."""
    radius: float
    """The largest deviation that was safe, action units; from a structured certificate, on the way to the proposal."""
    margin: float
    """How far below its bound the cumulative cost will be after this round, at least; cost units.
    NaN once an assumption was breached, because nothing is certified then."""
    intervened: bool
    """Whether the action differs from the proposal."""
    reason: Reason
    """Why."""
    backup: str = "prior"
    """What keeps the promise if it is played from the next round on, whatever happens to the guard: one of the
    certificate's `backup_names`."""

    def __str__(self) -> str:
        verb = "kept" if not self.intervened else f"replaced ({self.reason})"
        return (
            f"round {self.round}: proposal {self.proposal} {verb}; action {self.action}, prior {self.prior_action}, "
            f"deviation {self.deviation:.4g} of {self.radius:.4g} allowed, margin {self.margin:.4g}"
        )


@dataclass(frozen=True)
class Breach:
    """The first event of an episode that the assumptions rule out."""

    round: int
    """The round h in which it happened, counted from 1; the promise is certified before it, not from it on."""
    detail: str
    """What was seen and what was expected."""
    claimed: tuple[float, float] | None = None
    """The range that was claimed of a number, if it was one."""
    seen: float | None = None
    """What the number was; None if it was not one."""
    observation: Any = None
    """What was seen before acting in that round, as plain numbers; None if there is no monitor."""
    action: Any = None
    """What was played in that round, as plain numbers; None if there is no monitor."""


class Guard:
    """Keeps whatever a learner proposes within the contract of its certificate.

    Call `act` before and `observe` after every round, `reset` before every further episode. At `reset` the
    promise starts anew: it compares with the prior started from the state that the plant is in then.

    Args:
        certificate: The contract and what is known of the system.
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
        >>> round(decision.action, 6), decision.prior_action, str(decision.reason)
        (2.75, 2.0, 'too far')
        >>> guard.observe(1.2)
        >>> guard.act(18.5, proposal=float("nan")).reason
        <Reason.INVALID_PROPOSAL: 'invalid proposal'>
    """

    def __init__(
        self,
        certificate: Certificate,
        prior: Callable[[Any], Any],
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        norm: Norm = "l2",
        monitor: Monitor | None = None,
        *,
        resolution: float = FLOAT32,
    ) -> None:
        missing = [name for name in _CERTIFICATE_PARTS if not hasattr(certificate, name)]
        if missing:
            raise TypeError(
                f"certificate must have {', '.join(missing)} as tether.certificates.Certificate, got {certificate!r}"
            )
        if not callable(prior):
            raise TypeError(f"prior must be callable as prior(observation) -> action, got {prior!r}")
        _validate.choice("norm", norm, NORMS)
        if monitor is not None and not all(hasattr(monitor, name) for name in _MONITOR_METHODS):
            raise TypeError(
                f"monitor must have {', '.join(_MONITOR_METHODS)} as tether.monitor.Monitor, got {monitor!r}"
            )
        self.certificate = certificate
        self.resolution = _validate.number("resolution", resolution, minimum=0.0)
        self.prior = prior
        self.monitor = monitor
        self.norm: Norm = norm
        self._low, self._high = _bound("low", low, -math.inf), _bound("high", high, math.inf)
        if not np.all(self._low <= self._high):
            raise ValueError(f"low must not exceed high, got low={low!r}, high={high!r}")
        # The action's shape, known from vector bounds or else from the prior's first action. An action of
        # one number is handled as a float and given back in its own shape.
        shape = np.broadcast_shapes(
            *(np.shape(np.asarray(0.0 if bound is None else bound)) for bound in (low, high))
        )
        self._shape: tuple[int, ...] | None = shape or None
        self.counts: Counter[Reason] = Counter()
        self._lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        with self._lock:
            self._ops = self.certificate.online_ops
            self._state: Any = self.certificate.start(self._ops, 0.0)
            self._taken: Any = None
            self._epsilon = self.resolution
            self.breach: Breach | None = None
            self._watched: Any = None if self.monitor is None else self.monitor.start()
            self._played: Any = None

    @property
    def round(self) -> int:
        """The round that is open or comes next, counted from 1; horizon + 1 when the episode is over."""
        return int(self._state.rounds) + 1

    @property
    def horizon(self) -> int:
        """Number of rounds of an episode."""
        return self.certificate.contract.horizon

    @property
    def uncertified_from(self) -> int:
        """The round from which on the promise of this episode is not certified; horizon + 1 if it all is."""
        return self.horizon + 1 if self.breach is None else self.breach.round

    def features(self, observation: Any) -> tuple[float, ...]:
        """The certificate's `features` of the coming round, named by its `feature_names`.

        Args:
            observation: What `act` will be given.

        Raises:
            GuardMisuse: The episode is over.
        """
        with self._lock:
            self._require_round()
            try:
                with _quietly(self._ops):
                    opened = self.certificate.open(
                        self._state, observation, self._ops, self._coarsest(observation)
                    )
                    return tuple(float(each) for each in self.certificate.features(opened, self._ops))
            except Exception:  # `act` will report it; nothing is known here
                return (0.0,) * len(self.certificate.feature_names)

    def reach(self, observation: Any, wish: Any) -> tuple[Any, Any]:
        """What would be played in the coming round if `wish` were proposed, without playing it.

        A policy that wants to stay inside the safe set asks this first: any action between the two that are returned
        is safe if the safe set is star-shaped around the prior's action (`act` checks it in any case).

        Args:
            observation: What `act` will be given.
            wish: An action.

        Returns:
            The prior's action, and the safe action nearest to the wish.

        Raises:
            GuardMisuse: The episode is over.
            PriorFailed: The prior raised or returned something that is not an action.
        """
        with self._lock:
            self._require_round()
            prior, _ = self._ask_prior(observation)
            usable = self._as_action(wish)
            try:
                choice = self._choose(observation, usable, prior, self._coarsest(observation))
            except Exception:  # `act` will report it and play the prior
                return prior, prior
            return prior, prior if choice.breached else choice.action

    def act(self, observation: Any, proposal: Any) -> Decision:
        """Decide what to play in this round.

        Args:
            observation: What the prior needs to decide; handed to it unchanged.
            proposal: The learner's action. Anything is accepted; what is not an action leads to a safe one.

        Raises:
            GuardMisuse: The last action has no observed cost yet, or the episode is over.
            PriorFailed: The prior raised or returned something that is not an action.
        """
        with self._lock:
            if self._taken is not None:
                raise GuardMisuse(
                    f"round {self.round} already has an action; call observe(cost) before the next act"
                )
            self._require_round()
            return self._act(observation, proposal)

    def _act(self, observation: Any, proposal: Any) -> Decision:
        try:
            prior, complaint = self._ask_prior(observation)
        except PriorFailed as error:
            self._report(self.round, str(error.__cause__ or error))
            raise
        if complaint is not None:
            self._report(self.round, complaint)
        if self.monitor is not None:
            self._watch_arrival(observation)
        self._epsilon = max(self._coarsest(observation), round_off(proposal))
        wish = self._as_action(proposal)
        choice = None
        try:
            choice = self._choose(observation, wish, prior, self._epsilon)
            if choice.breached and not self._state.breached:
                self._report(
                    self.round,
                    f"the certificate does not cover the observation {observation!r} with the prior's action {prior!r}",
                )
        except Exception as error:
            self._report(self.round, f"the certificate raised {error!r}")
        if choice is None or choice.breached:
            action, deviation, radius, margin, backup = prior, 0.0, 0.0, math.nan, "prior"
            self._taken = () if choice is None else choice.taken
        else:
            action, backup = choice.action, self.certificate.backup_names[int(choice.backup)]
            deviation, radius, margin = float(choice.deviation), float(choice.radius), float(choice.margin)
            self._taken = _floats(choice.taken)
        reason = self._reason(action, wish)
        self.counts[reason] += 1
        if self.monitor is not None:
            self._played = _plain_numbers(observation), _plain_numbers(action)
        return Decision(
            self.round,
            self._given(action),
            self._given(prior),
            proposal,
            deviation,
            radius,
            margin,
            wish is None or not _equal(action, wish),
            reason,
            backup,
        )

    def _reason(self, action: Any, wish: Any) -> Reason:
        if self._state.breached:
            return Reason.BREACH
        if wish is None:
            return Reason.INVALID_PROPOSAL
        if _equal(action, wish):
            return Reason.SAFE
        return Reason.TOO_FAR if _within(wish, self._low, self._high) else Reason.OUT_OF_BOUNDS

    def _choose(self, observation: Any, wish: Any, prior: Any, epsilon: float) -> Choice:
        """The certificate's choice, checked: an action of this guard's, inside its bounds."""
        ops = FLOATS if isinstance(prior, float) else NUMPY
        box = Box(self._low, self._high, self.norm)
        with _quietly(NUMPY):
            opened = self.certificate.open(self._state, observation, self._ops, epsilon)
            # What is no action stands for the safe action that the search begins with.
            proposal = math.nan * prior if wish is None else wish
            choice = self.certificate.choose(opened, proposal, prior, box, ops)
        action = self._as_action(choice.action)
        if action is None or not _within(action, self._low, self._high):
            raise ValueError(f"it chose {choice.action!r}, not a finite action inside the bounds")
        return choice._replace(action=action, breached=bool(choice.breached))

    def observe(
        self,
        cost: Any,
        revealed: Mapping[str, Any] | None = None,
        *,
        next_observation: Any = None,
        reward: Any = None,
    ) -> None:
        """Close the round with what came of it.

        A cost that is not a finite number of at least the contract's floor, or that the certificate knows to be
        impossible, is an assumption breach: it is reported as an `AssumptionBreach` warning and in `breach`, and the
        episode goes on with the prior's actions.

        Args:
            cost: The round's cost.
            revealed: For a certificate with `revealed_names`, the round's disturbances by name, such as
                `{"efficiency_noise": 0.1, "drop_rate": 0.0}`; None if they are not known.
            next_observation: What is seen next, if it is known already; for certificates that make use of it.
            reward: The round's reward, if it is known; for certificates that make use of it.

        Raises:
            GuardMisuse: There is no open round.
            ValueError: `revealed` is not what the certificate makes use of; the round stays open.
        """
        with self._lock:
            if self._taken is None:
                raise GuardMisuse(
                    f"round {self.round} has no action yet; call act(observation, proposal) first"
                )
            known = None if revealed is None else _revealed(revealed, self.certificate.revealed_names)
            number = _number(cost)
            self._epsilon = max(self._epsilon, round_off(cost))
            contract = self.certificate.contract
            accepted = accepted_cost(contract, number, self._epsilon, FLOATS)[0]
            if self.monitor is not None and accepted and not self._state.breached:
                self._watch_cost(number)
            outcome = Outcome(
                number,
                revealed=known,
                next_observation=next_observation,
                reward=None if reward is None else _number(reward),
                epsilon=self._epsilon,
            )
            self._close(cost, outcome, accepted)

    def _close(self, cost: Any, outcome: Outcome, accepted: bool) -> None:
        round_now, before = self.round, self._state
        taken, self._taken = self._taken, None
        raised = None
        try:
            if before.breached:
                self._state = before._replace(rounds=before.rounds + 1.0)
            else:
                with _quietly(self._ops):
                    self._state = self.certificate.update(before, taken, outcome, self._ops)
        except Exception as error:
            self._state, raised = before._replace(rounds=before.rounds + 1.0, breached=True), error
        seen = None if math.isnan(outcome.cost) else outcome.cost
        if not accepted:
            floor = self.certificate.contract.cost_floor
            self._report(
                round_now,
                f"the cost was {cost!r}, not a finite number of at least the floor {floor:g}",
                claimed=(floor, math.inf),
                seen=seen,
                **self._evidence,
            )
        elif raised is not None:
            self._report(round_now, f"the certificate raised {raised!r}", seen=seen, **self._evidence)
        elif self._state.breached and not before.breached:
            detail = (
                f"the cost was {cost!r}, more than the certificate knows to be possible or can compute with"
            )
            self._report(round_now, detail, seen=seen, **self._evidence)

    def _watch_arrival(self, observation: Any) -> None:
        """Show the monitor what is seen, and report what it finds."""
        seen = _plain_numbers(observation)
        if self.monitor is None or self._state.breached:
            return
        try:
            self._watched, found = self.monitor.arrived(self._watched, seen)
        except Exception as error:
            found = None
            self._report(self.round, f"the monitor raised {error!r}", observation=seen)
        if found is not None:
            self._contradicted(found, seen, None)

    def _watch_cost(self, cost: float) -> None:
        """Show the monitor what was paid, and report what it finds."""
        if self.monitor is None:
            return
        seen, played = self._played
        try:
            self._watched, found = self.monitor.paid(self._watched, seen, played, cost)
        except Exception as error:
            found = None
            self._report(self.round, f"the monitor raised {error!r}", observation=seen, action=played)
        if found is not None:
            self._contradicted(found, seen, played)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the prior and the monitor, as plain numbers fit for JSON; valid in the middle of a round too.

        What the monitor remembers is included.
        """
        numbers = {name: _saved(value) for name, value in self._state._asdict().items()}
        return {
            "version": STATE_VERSION,
            "certificate": self.certificate.to_dict(),
            "low": _plain(self._low),
            "high": _plain(self._high),
            "norm": self.norm,
            "resolution": self.resolution,
            "epsilon": self._epsilon,
            "shape": self._shape,
            "state": numbers,
            "taken": _saved(self._taken),
            "breach": None if self.breach is None else _json(asdict(self.breach)),
            "monitored": self.monitor is not None,
            "watched": _json(self._watched),
            "played": _json(_record(self._played)),
            "counts": {str(reason): count for reason, count in self.counts.items()},
        }

    @classmethod
    def from_state_dict(
        cls,
        saved: dict[str, Any],
        prior: Callable[[Any], Any],
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
                certificate = certificate_from_dict(saved["certificate"])
            elif json.loads(json.dumps(certificate.to_dict())) != json.loads(
                json.dumps(saved["certificate"])
            ):
                raise ValueError(f"the guard was saved with another certificate: {saved['certificate']!r}")
            low, high = _unplain(saved["low"], -math.inf), _unplain(saved["high"], math.inf)
            guard = cls(certificate, prior, low, high, saved["norm"], monitor, resolution=saved["resolution"])
            guard._epsilon = _validate.number("epsilon", saved["epsilon"], minimum=guard.resolution)
            guard._state, guard._taken = _restored(certificate, saved)
            guard._shape = None if saved["shape"] is None else tuple(saved["shape"])
            guard.breach = None if saved["breach"] is None else Breach(**_record(saved["breach"]))
            if saved["monitored"]:
                guard._watched, guard._played = _record(saved["watched"]), _record(saved["played"])
            guard.counts = Counter({Reason(reason): count for reason, count in saved["counts"].items()})
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"the guard state is incomplete or damaged: {error!r}") from error
        return guard

    def _require_round(self) -> None:
        if self.round > self.horizon:
            raise GuardMisuse(f"the episode of {self.horizon} rounds is over; call reset() to begin another")

    def _coarsest(self, observation: Any) -> float:
        """Relative round-off of what the guard was told in this episode, with this observation."""
        entries = observation.values() if isinstance(observation, Mapping) else observation
        epsilon = max(self._epsilon, round_off(observation))
        if isinstance(entries, list | tuple) or entries is not observation:
            epsilon = max(epsilon, *(round_off(entry) for entry in entries), epsilon)
        return epsilon

    def _ask_prior(self, observation: Any) -> tuple[Any, str | None]:
        """(the prior's action, checked: a float, or [n] for more than one number; what is wrong with it, or None)."""
        try:
            answer = self.prior(observation)
        except Exception as error:
            raise PriorFailed(
                f"round {self.round}: the prior raised {error!r}; no action is known to be safe"
            ) from error
        if self._shape is None:
            self._shape = np.shape(answer)
        action = self._as_action(answer)
        if action is None:
            raise PriorFailed(
                f"round {self.round}: the prior returned {answer!r}, expected a finite action of shape {self._shape}"
            )
        if not _within(action, self._low, self._high):
            clipped = np.clip(action, self._low, self._high)
            complaint = f"the prior returned {answer!r}, outside the bounds {self._low} to {self._high}"
            return (float(clipped) if isinstance(action, float) else clipped), complaint
        return action, None

    def _as_action(self, value: Any) -> Any:
        """`value` as a finite float or [n] array of this guard's shape, a copy, or None if it is no such thing.

        Where an action is one number, any array of one number is as good.
        """
        one_number = self._shape in ((), (1,))
        if one_number and isinstance(value, float | int):
            with contextlib.suppress(OverflowError):
                number = float(value)
                return number if math.isfinite(number) else None
            return None
        try:
            array = np.array(_detached(value), dtype=float)
            if not one_number:
                fits = array.shape == self._shape and bool(np.all(np.isfinite(array)))
                return array if fits else None
            number = float(array.item())
        except Exception:  # whatever a stranger's object does when it is asked for numbers
            return None
        return number if math.isfinite(number) else None

    def _given(self, action: Any) -> Any:
        """An action in the shape that the prior's has; a copy, which its receiver may change."""
        if self._shape == (1,):
            return np.array([action])
        return action if isinstance(action, float) else action.copy()

    def _contradicted(self, found: Contradiction, observation: Any, action: Any) -> None:
        """Report what the monitor found in this round, or only now of the last one."""
        evidence = self._evidence if found.ago > 0 else {"observation": observation, "action": action}
        claimed = (found.low, found.high)
        self._report(self.round - found.ago, str(found), claimed=claimed, seen=found.seen, **evidence)

    @property
    def _evidence(self) -> dict[str, Any]:
        """What was observed and played in the last round that has an action, if there is a monitor."""
        return {} if self._played is None else dict(zip(("observation", "action"), self._played, strict=True))

    def _report(
        self,
        round_now: int,
        detail: str,
        *,
        claimed: tuple[float, float] | None = None,
        seen: float | None = None,
        observation: Any = None,
        action: Any = None,
    ) -> None:
        self._state = self._state._replace(breached=True)
        if self.breach is None:
            number = None if seen is None or math.isnan(seen) else seen
            self.breach = Breach(round_now, detail, claimed, number, _record(observation), _record(action))
        warnings.warn(
            f"round {round_now}: {detail}; the promise is void from here on, and only the prior is played",
            AssumptionBreach,
            stacklevel=3,
        )


def _restored(certificate: Certificate, saved: dict[str, Any]) -> tuple[Any, Any]:
    """The certificate's state and open round; a round that the certificate could not open has nothing to restore."""
    if saved["taken"] == []:
        return certificate.restore(saved["state"], None)[0], ()
    return certificate.restore(saved["state"], saved["taken"])


def _floats(taken: Any) -> Any:
    """What was taken as plain numbers: a vector action's deviation comes as a NumPy one."""
    if isinstance(taken, tuple):
        entries = [_floats(entry) for entry in taken]
        return taken._make(entries) if hasattr(taken, "_make") else tuple(entries)
    if isinstance(taken, bool | np.bool_):
        return bool(taken)
    return np.array(taken) if np.ndim(taken) > 0 else float(taken)


def _revealed(given: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """What was revealed, checked: an array for each name; a copy."""
    if not names:
        raise ValueError(
            "this certificate makes no use of what is revealed; tether.certificates.Shadowing does"
        )
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise ValueError(f"revealed must give {', '.join(names)}, got {given!r}")
    try:
        return {name: np.array(_detached(value), dtype=float) for name, value in given.items()}
    except Exception as error:
        raise ValueError(f"revealed must be numbers, got {given!r}") from error


def _number(value: Any) -> float:
    """A cost or a reward as a float; NaN if it is no number."""
    if isinstance(value, str | bytes):
        return math.nan
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except Exception:  # whatever a stranger's object does when it is asked for a number
        return math.nan


def _detached(value: Any) -> Any:
    """A tensor without its derivatives; anything else as it is."""
    return value.detach() if hasattr(value, "detach") else value


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def _quietly(ops: Ops) -> contextlib.AbstractContextManager[None]:
    """Without NumPy's warnings of overflow, which certificates deal with themselves; plain floats have none."""
    return _QUIET if ops is FLOATS else _no_warnings()


_QUIET = contextlib.nullcontext()


def _saved(value: Any) -> Any:
    """Numbers, arrays and tuples of them as JSON knows them."""
    if isinstance(value, tuple):
        return [_saved(entry) for entry in value]
    return value if value is None else np.asarray(value).tolist()


def _json(value: Any) -> Any:
    """Nested tuples and dictionaries as JSON has them; infinities and what JSON does not know become text."""
    if isinstance(value, dict):
        return {name: _json(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_json(entry) for entry in value]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return repr(value)


def _record(value: Any) -> Any:
    """What `_json` gave, or an observation or action as it came, as nested tuples of plain numbers."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _record(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return tuple([_record(entry) for entry in value])
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _plain_numbers(value: Any) -> Any:
    """An observation as a monitor gets it: an array as lists, and a copy, as its owner may change what it holds."""
    return value.tolist() if hasattr(value, "tolist") else copy.copy(value)


def _bound(name: str, given: ArrayLike | None, default: float) -> Any:
    """One side of the action box: a float where one number says it, else [n]."""
    bound = np.asarray(default if given is None else given, dtype=float)
    if bound.ndim > 1 or np.any(np.isnan(bound)):
        raise ValueError(f"{name} must be a number or a vector of numbers, got {given!r}")
    return bound.item() if bound.size == 1 else bound


def _plain(bound: Any) -> Any:
    """A bound fit for JSON, which knows no infinity: None stands for no bound."""
    if isinstance(bound, float):
        return None if math.isinf(bound) else bound
    return [_plain(float(entry)) for entry in bound]


def _unplain(bound: Any, infinite: float) -> Any:
    """The bound that `_plain` made fit for JSON."""
    if isinstance(bound, list):
        return [_unplain(entry, infinite) for entry in bound]
    return infinite if bound is None else bound


def _within(action: Any, low: Any, high: Any) -> bool:
    if isinstance(action, float) and isinstance(low, float):
        return bool(low <= action <= high)
    return bool(np.all((low <= action) & (action <= high)))


def _equal(first: Any, second: Any) -> bool:
    return bool(first == second) if isinstance(first, float) else bool(np.array_equal(first, second))
