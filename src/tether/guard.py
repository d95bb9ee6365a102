"""The online guard: between any learner and the plant, one call before each action and one after.

Plain Python and NumPy: nothing here imports JAX. The mathematics is in the certificate; this file
keeps the order of calls, deals with bad input and says why it did what it did.
"""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tether import _scalar, _validate
from tether.certificates import CERTIFICATES, Certificate, Shadowing, certificate_from_dict
from tether.monitor import Contradiction, Monitor
from tether.projection import NORMS, Norm

STATE_VERSION = 3
_MONITOR_METHODS = ("start", "arrived", "paid")


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
    ) -> None:
        if not isinstance(certificate, CERTIFICATES):
            raise TypeError(f"certificate must be a tether certificate, got {certificate!r}")
        if not callable(prior):
            raise TypeError(f"prior must be callable as prior(observation) -> action, got {prior!r}")
        _validate.choice("norm", norm, NORMS)
        if monitor is not None and not all(hasattr(monitor, name) for name in _MONITOR_METHODS):
            raise TypeError(
                f"monitor must have {', '.join(_MONITOR_METHODS)} as tether.monitor.Monitor, got {monitor!r}"
            )
        self.certificate = certificate
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
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._state: Any = self.certificate.start(self._xp)
        self._taken: Any = None
        self.breach: Breach | None = None
        self._watched: Any = None if self.monitor is None else self.monitor.start()
        self._played: Any = None

    @property
    def _xp(self) -> Any:
        """The namespace that the certificate's state lives in: single numbers where it needs no more."""
        return _scalar if self.certificate.scalar else np

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
        if self.round > self.horizon:
            raise GuardMisuse(f"the episode of {self.horizon} rounds is over; call reset() to begin another")
        opened = self.certificate.open(self._state, observation, self._xp)
        return tuple(float(feature) for feature in self.certificate.features(opened, self._xp))

    def reach(self, observation: Any, wish: Any) -> tuple[Any, Any]:
        """What would be played in the coming round if `wish` were proposed, without playing it.

        A policy that wants to stay inside the safe set asks this first: any action between the two that are returned
        is safe (if the certificate's safe set is star-shaped around the prior's action; `act` checks it in any case).

        Args:
            observation: What `act` will be given.
            wish: An action.

        Returns:
            The prior's action, and the safe action nearest to the wish.
        """
        prior = self._ask_prior(observation)
        usable = self._as_action(wish)
        if usable is None:
            return prior, prior
        opened = self.certificate.open(self._state, observation, self._xp)
        xp = _scalar if isinstance(prior, float) else np
        choice = self.certificate.choose(opened, usable, prior, self._low, self._high, self.norm, xp)
        return prior, choice.action

    def act(self, observation: Any, proposal: Any) -> Decision:
        """Decide what to play in this round.

        Args:
            observation: What the prior needs to decide; handed to it unchanged.
            proposal: The learner's action. Anything is accepted; what is not an action leads to the prior's.

        Raises:
            GuardMisuse: The last action has no observed cost yet, or the episode is over.
            PriorFailed: The prior raised or returned something that is not an action.
        """
        if self._taken is not None:
            raise GuardMisuse(
                f"round {self.round} already has an action; call observe(cost) before the next act"
            )
        if self.round > self.horizon:
            raise GuardMisuse(f"the episode of {self.horizon} rounds is over; call reset() to begin another")

        prior = self._ask_prior(observation)
        if self.monitor is not None:
            seen = _plain_numbers(observation)
            if not self._state.breached:
                try:
                    self._watched, found = self.monitor.arrived(self._watched, seen)
                except Exception as error:
                    found = None
                    self._report(self.round, f"the monitor raised {error!r}", observation=seen)
                if found is not None:
                    self._contradicted(found, seen, None)
        wish = self._as_action(proposal)
        opened = self.certificate.open(self._state, observation, self._xp)
        xp = _scalar if isinstance(prior, float) else np
        choice = self.certificate.choose(
            opened, prior if wish is None else wish, prior, self._low, self._high, self.norm, xp
        )
        if choice.breached and not self._state.breached:
            self._report(
                self.round,
                f"the observation {observation!r} with the prior's action {prior!r} is not what the certificate covers",
            )
        action, breached = choice.action, choice.breached
        intervened = wish is None or not _equal(action, wish)
        if breached:
            reason = Reason.BREACH
        elif wish is None:
            reason = Reason.INVALID_PROPOSAL
        elif not intervened:
            reason = Reason.SAFE
        else:
            reason = Reason.TOO_FAR if _within(wish, self._low, self._high) else Reason.OUT_OF_BOUNDS
        margin = math.nan if breached else float(choice.margin)
        deviation, radius = float(choice.deviation), float(choice.radius)
        self._taken = _floats(choice.taken)
        if self.monitor is not None:
            self._played = seen, action if xp is _scalar else action.tolist()
        self.counts[reason] += 1
        if self._shape == (1,):
            action, prior = np.array([action]), np.array([prior])
        return Decision(self.round, action, prior, proposal, deviation, radius, margin, intervened, reason)

    def observe(self, cost: Any, revealed: Mapping[str, Any] | None = None) -> None:
        """Close the round with the cost that it had.

        A cost that is not a finite number of at least the contract's floor, or that the certificate knows to be
        impossible, is an assumption breach: it is reported as an `AssumptionBreach` warning and in `breach`, and the
        episode goes on with the prior's actions.

        Args:
            cost: The round's cost.
            revealed: For a `tether.certificates.Shadowing` certificate, the round's hidden series by name, such as
                `{"efficiency_noise": 0.1, "drop_rate": 0.0}`; None if they are not known.

        Raises:
            GuardMisuse: There is no open round.
            ValueError: `revealed` is not what the certificate's environment hides; the round stays open.
        """
        if self._taken is None:
            raise GuardMisuse(f"round {self.round} has no action yet; call act(observation, proposal) first")
        try:
            number = float(cost)
        except (TypeError, ValueError):
            number = math.nan
        accepted = self.certificate.accepts(number, _scalar)
        if revealed is not None and not isinstance(self.certificate, Shadowing):
            raise ValueError("only a tether.certificates.Shadowing certificate makes use of what is revealed")
        if self.monitor is not None and accepted and not self._state.breached:
            seen, played = self._played
            try:
                self._watched, found = self.monitor.paid(self._watched, seen, played, number)
            except Exception as error:
                found = None
                self._report(self.round, f"the monitor raised {error!r}", observation=seen, action=played)
            if found is not None:
                self._contradicted(found, seen, played)
        round_now, breached_before = self.round, self._state.breached
        if isinstance(self.certificate, Shadowing):
            known = None if revealed is None else _revealed(revealed, self.certificate.env)
            self._state = self.certificate.update(self._state, self._taken, number, self._xp, known)
        else:
            self._state = self.certificate.update(self._state, self._taken, number, self._xp)
        self._taken = None
        if not accepted:
            floor = self.certificate.contract.cost_floor
            self._report(
                round_now,
                f"the cost was {cost!r}, not a finite number of at least the floor {floor:g}",
                claimed=(floor, math.inf),
                seen=number,
                **self._evidence,
            )
        elif self._state.breached and not breached_before:
            detail = f"the cost was {cost!r}, more than the certificate knows to be possible"
            self._report(round_now, detail, seen=number, **self._evidence)

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
            guard = cls(certificate, prior, low, high, saved["norm"], monitor=monitor)
            guard._state, guard._taken = certificate.restore(saved["state"], saved["taken"])
            guard._shape = None if saved["shape"] is None else tuple(saved["shape"])
            guard.breach = None if saved["breach"] is None else Breach(**_record(saved["breach"]))
            if saved["monitored"]:
                guard._watched, guard._played = _record(saved["watched"]), _record(saved["played"])
            guard.counts = Counter({Reason(reason): count for reason, count in saved["counts"].items()})
        except (KeyError, TypeError) as error:
            raise ValueError(f"the guard state is incomplete or damaged: {error!r}") from error
        return guard

    def _ask_prior(self, observation: Any) -> Any:
        """The prior's action, checked: a float, or [n] for more than one number."""
        try:
            answer = self.prior(observation)
        except Exception as error:
            self._report(self.round, f"the prior raised {error!r}")
            raise PriorFailed(
                f"round {self.round}: the prior raised {error!r}; no action is known to be safe"
            ) from error
        if self._shape is None:
            self._shape = np.shape(answer)
        action = self._as_action(answer)
        if action is None:
            expected = f"a finite action of shape {self._shape}"
            self._report(self.round, f"the prior returned {answer!r}, not {expected}")
            raise PriorFailed(f"round {self.round}: the prior returned {answer!r}, expected {expected}")
        if not _within(action, self._low, self._high):
            self._report(
                self.round, f"the prior returned {answer!r}, outside the bounds {self._low} to {self._high}"
            )
            clipped = np.clip(action, self._low, self._high)
            return float(clipped) if isinstance(action, float) else clipped
        return action

    def _as_action(self, value: Any) -> Any:
        """`value` as a finite float or [n] array of this guard's shape, or None if it is no such thing.

        Where an action is one number, any array of one number is as good.
        """
        one_number = self._shape in ((), (1,))
        try:
            if one_number and isinstance(value, float | int):
                number = float(value)
            else:
                array = np.asarray(value, dtype=float)
                if not one_number:
                    fits = array.shape == self._shape and bool(np.all(np.isfinite(array)))
                    return array if fits else None
                number = float(array.item())
        except (TypeError, ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None

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


def _floats(taken: Any) -> Any:
    """What was taken as plain numbers: a vector action's deviation comes as a NumPy one."""
    if isinstance(taken, tuple):
        entries = [_floats(entry) for entry in taken]
        return taken._make(entries) if hasattr(taken, "_make") else tuple(entries)
    if isinstance(taken, bool | np.bool_):
        return bool(taken)
    return taken if np.ndim(taken) > 0 else float(taken)


def _revealed(given: Any, env: Any) -> dict[str, Any]:
    """What was revealed, checked: an array for each hidden series."""
    if not isinstance(given, Mapping) or set(given) != set(env.hidden):
        raise ValueError(f"revealed must give {', '.join(env.hidden)}, got {given!r}")
    try:
        return {name: np.asarray(value, dtype=float) for name, value in given.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"revealed must be numbers, got {given!r}") from error


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
