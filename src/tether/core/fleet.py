"""Many plants behind one guard: `Fleet` decides for all of them at once, in NumPy.

A fleet is n guards with one certificate, one prior and one box of actions. The mathematics is the certificate's own,
the very code that a `tether.Guard` runs, on arrays with a row for each plant (`tether.core.fleet_ops`): the decisions
are those of n guards, digit for digit. What is wrong at one plant, a proposal, a cost, a prior's action, is dealt with
at that plant only.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tether.core import convert, rows, validate
from tether.core import saved as saved_guard
from tether.core.actions import Actions, bound_from_json, bound_to_json
from tether.core.certificate import Box, Certificate, Choice, Outcome, accepted_cost
from tether.core.contract import Contract
from tether.core.decision import AssumptionBreach, Breach, GuardMisuse, PriorFailed, Reason
from tether.core.fleet_decision import REASONS, Flags, FleetDecision, Floats
from tether.core.fleet_ops import FLEET
from tether.core.ops import FLOAT32, coarsest
from tether.core.projection import NORMS, Norm
from tether.core.raising import spliced
from tether.core.turn import Turn

STATE_VERSION = 1
_SAFE, _TOO_FAR, _OUT_OF_BOUNDS, _INVALID, _BREACH = range(len(REASONS))


class Fleet:
    """Guards n plants at once; see `tether.Guard`, of which this is n.

    Call `act` before and `observe` after every round, and `reset` before further episodes, each for all plants or for
    those that `where` says: their rounds may differ. Late costs and actions that somebody else played are for a
    `tether.Guard`: a fleet is told a round's cost once it is there (leave the plant out with `where` until then), and
    refuses a saved plant that is under an override.

    Args:
        certificate: The contract and what is known of every one of the plants; `LipschitzCertificate`, or `Structured`
            with a structure of single numbers.
        prior: The trusted policy of all plants at once, `prior(observations [n, o]) -> actions [n] or [n, k]`.
        n: How many plants.
        low: Lower bounds of the action, a number or [k]; None for none.
        high: Upper bounds of the action, a number or [k]; None for none.
        norm: The norm in which deviations are measured and for which the sensitivity holds.
        resolution: See `tether.Guard`. The coarsest type that any plant's numbers came in counts for all of them, until
            all are reset.

    Attributes:
        counts: How often each `tether.Reason` occurred since the fleet was made, over all plants.
        breaches: By plant, the assumption breach of its episode.

    Example:
        >>> import numpy as np
        >>> from tether import Contract, LipschitzCertificate, Sensitivity, geometric
        >>> certificate = LipschitzCertificate(
        ...     Contract(lam=0.5, b=1.0, horizon=3, cost_floor=1.0),
        ...     Sensitivity(immediate=2.0, carried=1.0, perturbation=geometric(0.5)),
        ... )
        >>> fleet = Fleet(certificate, lambda temperatures: 20.0 - temperatures[:, 0], n=3, low=-10.0, high=10.0)
        >>> decision = fleet.act(np.array([[18.0], [19.0], [21.0]]), proposals=[9.0, 1.0, np.nan])
        >>> decision.actions.round(3).tolist(), decision.reasons.tolist()
        ([2.75, 1.0, -1.0], ['too far', 'safe', 'invalid proposal'])
        >>> fleet.observe([1.2, 1.0, 1.5])
    """

    def __init__(
        self,
        certificate: Certificate,
        prior: Callable[[Any], Any],
        n: int,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        norm: Norm = "l2",
        *,
        resolution: float = FLOAT32,
    ) -> None:
        if not getattr(certificate, "fleets", False):
            raise TypeError(
                "a fleet needs a certificate that decides for many plants at once: LipschitzCertificate, or Structured "
                f"with a structure of single numbers; use one tether.Guard for each plant with {certificate!r}"
            )
        if not callable(prior):
            raise TypeError(f"prior must be callable as prior(observations) -> actions, got {prior!r}")
        validate.choice("norm", norm, NORMS)
        self.certificate, self.prior, self.norm = certificate, prior, norm
        self._signed = certificate
        self.n = validate.count("n", n)
        self._promised = [(np.ones(self.n, dtype=np.int64), certificate.contract)]
        self.resolution = validate.number("resolution", resolution, minimum=0.0)
        self._actions = Actions(low, high)
        self._box = Box(self._actions.low, self._actions.high, norm)
        self.counts: Counter[Reason] = Counter()
        self.breaches: dict[int, Breach] = {}
        self._turn = Turn()
        self._state: Any = rows.repeated(certificate.start(certificate.online_ops, 0.0), self.n)
        self._taken: Any = None
        self._open = np.zeros(self.n, dtype=bool)
        self._epsilon = self.resolution

    def reset(self, where: ArrayLike | None = None) -> None:
        """Begin an episode at all plants, or at those that `where`, [n] of truth values, says."""
        with self._turn:
            chosen = self._chosen(where)
            fresh = rows.repeated(self.certificate.start(self.certificate.online_ops, 0.0), self.n)
            self._state = rows.either(chosen, fresh, self._state)
            self._open = self._open & ~chosen
            self._promised = [(np.where(chosen, 1, at), contract) for at, contract in self._promised]
            self.breaches = {plant: each for plant, each in self.breaches.items() if not chosen[plant]}
            if np.all(chosen):
                self._epsilon = self.resolution

    @property
    def rounds(self) -> NDArray[np.int64]:
        """[n] the round that is open or comes next at each plant, counted from 1."""
        return np.asarray(self._state.rounds).astype(np.int64) + 1

    @property
    def over(self) -> Flags:
        """[n] whether a plant's episode is over; `reset(fleet.over)` begins the next."""
        return np.asarray(self._state.rounds >= self.certificate.contract.horizon)

    @property
    def breached(self) -> Flags:
        """[n] whether an assumption was breached in a plant's episode, so that only the prior is played."""
        return np.array(self._state.breached)

    @property
    def uncertified_from(self) -> Floats:
        """[n] the round from which on the promise is not certified; horizon + 1 where all of it is."""
        certified = np.full(self.n, self.certificate.contract.horizon + 1.0)
        for plant, breach in self.breaches.items():
            certified[plant] = breach.round
        return certified

    def contract(self, plant: int) -> Contract:
        """What a plant's episode promises, see `tether.Guard.contract`."""
        promised = [(int(at[plant]), contract) for at, contract in self._promised]
        if all(at == 1 for at, _ in promised):
            return self.certificate.contract
        horizon = self.certificate.contract.horizon
        return spliced(promised, int(self._state.rounds[plant]) if math.isinf(horizon) else horizon)

    def raise_contract(self, *, lam: Any = None, b: Any = None) -> None:
        """Promise less from the coming round of every plant on; see `tether.Guard.raise_contract`."""
        with self._turn:
            self._require("are in an open round; call observe(costs), then raise the contract", self._open)
            certificate: Any = self.certificate
            raised = certificate.contract.raised(lam, b)
            self._state = certificate.rebased(self._state, raised)
            self.certificate = replace(certificate, contract=raised)
            self._promised = [*self._promised, (self.rounds, raised)]

    def act(self, observations: Any, proposals: Any, where: ArrayLike | None = None) -> FleetDecision:
        """Decide what to play at every plant, or at those that `where` says.

        Args:
            observations: What the prior needs, [n, o] or whatever it takes; handed to it unchanged.
            proposals: [n] or [n, k] the learners' actions. A row that is not finite leads to a safe action at that
                plant; what has not the shape of n actions, at all of them.
            where: [n] which plants act; None for all. The rows of the others are not looked at.

        Raises:
            GuardMisuse: A plant's last action has no cost yet, or its episode is over; nothing was decided.
            PriorFailed: The prior raised, or gave no action for a plant; nothing was decided.
        """
        with self._turn:
            chosen = self._chosen(where)
            self._require(
                "already have an action; call observe(costs) before the next act", self._open & chosen
            )
            self._require("are at the end of their episode; call reset(fleet.over)", self.over & chosen)
            prior, epsilon = self._ask(observations, chosen)
            wishes = self._wishes(proposals, prior)
            self._epsilon = max(epsilon, coarsest(observations), coarsest(proposals), self._epsilon)
            choice = self._choose(observations, wishes, prior, chosen)
            return self._decided(choice, wishes, prior, chosen)

    def _ask(self, observations: Any, chosen: Flags) -> tuple[Any, float]:
        """(the prior's actions [n] or [n, k], inside the bounds; the round-off of their type)."""
        try:
            said = self.prior(observations)
            epsilon, actions = coarsest(said), convert.as_array(said)
        except Exception as error:
            raise PriorFailed(
                f"the prior raised {convert.text(error)}; no action is known to be safe"
            ) from error
        if self._actions.shape is None and actions.ndim in (1, 2) and 0 not in actions.shape:
            self._actions.shape = actions.shape[1:]
        expected = (self.n, *(self._actions.shape or ()))
        if actions.shape != expected:
            raise PriorFailed(
                f"the prior returned actions of shape {actions.shape}, expected {expected}: one for each of {self.n} "
                "plants; no action is known to be safe"
            )
        if actions.shape[1:] == (1,):
            actions = actions[:, 0]
        bad = ~_all(np.isfinite(actions)) & chosen
        if np.any(bad):
            self._report(bad, "the prior returned no finite action")
            raise PriorFailed(
                f"the prior returned no finite action for {_named(bad)}; no action is known to be safe there: mend it, "
                "or leave these plants out with where="
            )
        inside = self._inside(actions)
        if not np.all(inside):
            beyond = f"the prior's action was outside the bounds {self._actions.low} to {self._actions.high}"
            self._report(~inside & chosen, beyond)
            actions = np.clip(actions, self._actions.low, self._actions.high)
        return actions, epsilon

    def _wishes(self, proposals: Any, prior: Any) -> Any:
        """The proposals as [n] or [n, k], a copy; NaN for what is no action."""
        try:
            wishes = convert.as_array(proposals).reshape(prior.shape)
        except Exception:  # whatever a stranger's object does when it is asked for numbers
            return np.full(prior.shape, math.nan)
        usable = np.isfinite(wishes)
        if np.all(usable):
            return wishes
        return np.where(rows.beside(_all(usable), wishes), wishes, math.nan)

    def _choose(self, observations: Any, wishes: Any, prior: Any, chosen: Flags) -> Choice | None:
        """The certificate's choice, checked: actions inside the bounds; None if there is none."""
        try:
            with np.errstate(all="ignore"):
                seen = np.asarray(observations, dtype=float)
                opened = self.certificate.open(self._state, seen, FLEET, self._epsilon)
                choice = self.certificate.choose(opened, wishes, prior, self._box, FLEET)
                possible = self._inside(choice.action)
        except Exception as error:
            self._report(chosen, f"the certificate raised {convert.text(error)}")
            return None
        uncovered = np.asarray(choice.breached | ~possible)
        if np.any(uncovered):
            detail = "the certificate does not cover the observation, or chose no action inside the bounds"
            self._report(uncovered & chosen, detail)
        return choice

    def _decided(self, choice: Choice | None, wishes: Any, prior: Any, chosen: Flags) -> FleetDecision:
        breached = np.asarray(self._state.breached)
        numbers: tuple[Any, ...] = (prior, *[np.zeros(self.n)] * 4, self._taken) if choice is None else choice
        actions, deviations, radii, margins, backups, taken = numbers[:6]
        if np.any(breached):
            actions = np.where(rows.beside(breached, prior), prior, actions)
            deviations, radii, backups = (
                np.where(breached, 0.0, each) for each in (deviations, radii, backups)
            )
            margins = np.where(breached, math.nan, margins)
        # One comparison tells of most rows that the proposal was played; NaN equals nothing.
        kept = _all(actions == wishes)
        codes = np.where(kept, _SAFE, _TOO_FAR).astype(np.int8)
        codes[~kept & ~self._inside(wishes)] = _OUT_OF_BOUNDS
        codes[~_all(np.isfinite(wishes))] = _INVALID
        codes[breached] = _BREACH
        tally = np.bincount(codes[chosen], minlength=len(REASONS))
        for reason, count in zip(REASONS, tally.tolist(), strict=True):
            if count:
                self.counts[reason] += count
        self._taken = (
            rows.filled(taken, self.n)
            if np.all(chosen)
            else rows.either(chosen, rows.filled(taken, self.n), self._taken)
        )
        self._open = self._open | chosen
        return FleetDecision(
            self._state.rounds + 1.0,
            self._given(actions),
            self._given(prior),
            _written_out(deviations, self.n),
            _written_out(radii, self.n),
            _written_out(margins, self.n),
            ~kept,
            codes,
            _written_out(backups, self.n).astype(np.int64),
            self.certificate.backup_names,
        )

    def observe(self, costs: Any, where: ArrayLike | None = None) -> None:
        """Close the round of every plant, or of those that `where` says.

        A cost that is not a finite number of at least the contract's floor, or that the certificate knows to be
        impossible, is an assumption breach of that plant: it is reported in `breaches` and in one `AssumptionBreach`
        warning, and that plant's episode goes on with the prior's actions.

        Args:
            costs: [n] the costs of the round.
            where: [n] which plants' rounds end; None for all.

        Raises:
            GuardMisuse: A plant has no open round; nothing was changed.
            ValueError: The costs are not n numbers; nothing was changed.
        """
        with self._turn:
            chosen = self._chosen(where)
            self._require("have no action yet; call act(observations, proposals) first", ~self._open & chosen)
            numbers = self._costs(costs)
            self._epsilon = max(self._epsilon, coarsest(costs))
            before, contract = self._state, self.certificate.contract
            complaint = "that the certificate knows to be impossible or cannot compute with"
            with np.errstate(all="ignore"):
                accepted = accepted_cost(contract, numbers, self._epsilon, FLEET)[0]
                try:
                    outcome = Outcome(numbers, epsilon=self._epsilon)
                    after = self.certificate.update(before, self._taken, outcome, FLEET)
                    good = ~np.asarray(after.breached) & (after.rounds == before.rounds + 1.0) & accepted
                except Exception as error:
                    complaint = f"and the certificate raised {convert.text(error)}"
                    after, good = before, np.zeros(self.n, dtype=bool)
            self._open = self._open & ~chosen
            going_on = chosen & good & ~before.breached
            if not np.all(going_on):
                after = rows.either(going_on, after, before)
            found = chosen & ~good & ~before.breached
            self._state = after._replace(rounds=before.rounds + chosen)
            if np.any(found):
                detail = f"the cost was not a finite number of at least {contract.cost_floor:g}, or one {complaint}"
                self._report(found, detail, rounds=before.rounds + 1.0, seen=numbers)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the prior, as plain numbers fit for JSON; valid in the middle of a round too.

        What there is of each plant is what `tether.Guard.state_dict` has as `state` and `taken`.
        """
        with self._turn.lock:
            return {
                "version": STATE_VERSION,
                "kind": "fleet",
                "certificate": self._signed.to_dict(),
                "contracts": [[at.tolist(), contract.to_dict()] for at, contract in self._promised],
                "low": bound_to_json(self._actions.low),
                "high": bound_to_json(self._actions.high),
                "norm": self.norm,
                "resolution": self.resolution,
                "epsilon": self._epsilon,
                "shape": self._actions.shape,
                "plants": [self._plant(plant) for plant in range(self.n)],
                "breaches": {
                    str(plant): convert.to_json(asdict(each)) for plant, each in self.breaches.items()
                },
                "counts": {str(reason): count for reason, count in self.counts.items()},
            }

    def _plant(self, plant: int) -> dict[str, Any]:
        state = rows.row(self._state, plant)
        taken = rows.row(self._taken, plant) if self._open[plant] else None
        return {
            "state": {name: convert.plain_lists(each) for name, each in state._asdict().items()},
            "taken": convert.plain_lists(taken),
        }

    @classmethod
    def from_state_dict(
        cls, saved: dict[str, Any], prior: Callable[[Any], Any], certificate: Certificate | None = None
    ) -> Fleet:
        """The fleet that `state_dict` saved; its decisions go on as if it had never stopped.

        Args:
            saved: What `state_dict` gave.
            prior: The prior that it had.
            certificate: The certificate that it had, if its structure is not in the saved numbers.

        Raises:
            ValueError: These are not the numbers of a fleet, or none that episodes can have led to.
        """
        if not isinstance(saved, dict) or (saved.get("kind"), saved.get("version")) != (
            "fleet",
            STATE_VERSION,
        ):
            came = saved.get("version") if isinstance(saved, dict) else type(saved).__name__
            raise ValueError(f"expected a fleet state of version {STATE_VERSION}, got {came!r}")
        try:
            if certificate is None:
                certificate = saved_guard.certificate_from_dict(saved["certificate"])
            elif not saved_guard.describes(saved["certificate"], certificate):
                raise ValueError(f"the fleet was saved with another certificate: {saved['certificate']!r}")
            low, high = bound_from_json(saved["low"], -math.inf), bound_from_json(saved["high"], math.inf)
            plants, resolution = saved["plants"], saved["resolution"]
            fleet = cls(certificate, prior, len(plants), low, high, saved["norm"], resolution=resolution)
            fleet._restore(saved)
        except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise ValueError(f"the fleet state is incomplete or damaged: {error!r}") from error
        return fleet

    def _restore(self, saved: dict[str, Any]) -> None:
        self._promised = [(np.array(at), Contract.from_dict(each)) for at, each in saved["contracts"]]
        for at, _ in self._promised:
            saved_guard.require_numbers("contracts", at, minimum=1.0, shape=(self.n,))
        self.certificate = replace(self.certificate, contract=self._promised[-1][1])  # type: ignore[type-var]
        restored = [self.certificate.restore(each["state"], each["taken"]) for each in saved["plants"]]
        self._state = rows.stacked([state for state, _ in restored])
        overridden = np.asarray(self._state.overridden)
        if np.any(overridden):
            raise ValueError(
                f"a fleet takes no plant that is under an override, got {_named(overridden)}; use a tether.Guard"
            )
        self._open = np.array([taken is not None for _, taken in restored])
        self._taken = rows.stacked_or_none([taken for _, taken in restored])
        self._epsilon = validate.number("epsilon", saved["epsilon"], minimum=self.resolution)
        self._actions.shape = saved_guard.shape(saved["shape"], self._actions.shape)
        if np.any(self._open & self.over):
            raise ValueError(
                f"taken must be null after the last round, got one at {_named(self._open & self.over)}"
            )
        for name, each in saved["breaches"].items():
            plant = validate.count("a breach's plant", int(name), minimum=0)
            found = saved_guard.breach(each, bool(self.breached[plant]), int(self.rounds[plant]))
            self.breaches |= {plant: found} if found is not None else {}
        if set(self.breaches) != set(np.flatnonzero(self.breached).tolist()):
            raise ValueError(f"breaches must be those of {_named(self.breached)}, got {saved['breaches']!r}")
        self.counts = saved_guard.counts(saved["counts"])

    def _chosen(self, where: ArrayLike | None) -> Flags:
        if where is None:
            return np.ones(self.n, dtype=bool)
        chosen = np.asarray(where)
        if chosen.dtype != np.bool_ or chosen.shape != (self.n,):
            raise ValueError(f"where must be {self.n} truth values, got {chosen.dtype} {chosen.shape}")
        return chosen

    def _costs(self, costs: Any) -> Any:
        try:
            numbers = convert.as_array(costs)
        except Exception as error:
            raise ValueError(f"costs must be {self.n} numbers, got {convert.text(costs)}") from error
        if numbers.shape != (self.n,):
            raise ValueError(f"costs must be {self.n} numbers, got shape {numbers.shape}")
        return numbers

    def _inside(self, actions: Any) -> Flags:
        """[n] whether actions are finite and within the bounds."""
        return _all((self._actions.low <= actions) & (actions <= self._actions.high) & np.isfinite(actions))

    def _given(self, actions: Any) -> Any:
        """Actions in the shape that the prior's have; a copy."""
        return np.array(actions[:, None] if self._actions.shape == (1,) else actions)

    def _require(self, complaint: str, wrong: Flags) -> None:
        if np.any(wrong):
            raise GuardMisuse(f"{_named(wrong)} {complaint}")

    def _report(
        self, found: Flags, detail: str, *, rounds: Floats | None = None, seen: Floats | None = None
    ) -> None:
        """Note a breach at these plants, and warn of those that are new."""
        fresh = found & ~np.asarray(self._state.breached)
        self._state = self._state._replace(breached=self._state.breached | found)
        if not np.any(fresh):
            return
        happened = self._state.rounds + 1.0 if rounds is None else rounds
        for plant in np.flatnonzero(fresh).tolist():
            number = None if seen is None or math.isnan(seen[plant]) else float(seen[plant])
            claimed = None if number is None else (self.certificate.contract.cost_floor, math.inf)
            self.breaches[plant] = Breach(int(happened[plant]), detail, claimed, number)
        warnings.warn(
            f"{_named(fresh)}: {detail}; the promise is void from here on, and only the prior is played there",
            AssumptionBreach,
            stacklevel=4,
        )


def _all(flags: Any) -> Flags:
    """[n] whether all of a row, [n] or [n, k], holds."""
    return np.asarray(flags if np.ndim(flags) < 2 else np.all(flags, axis=-1))


def _written_out(numbers: Any, n: int) -> Floats:
    """[n] numbers, one for each plant, a copy."""
    return np.array(np.broadcast_to(numbers, n), dtype=float)


def _named(plants: Flags) -> str:
    """Which plants, in words; the first few of many."""
    found = np.flatnonzero(plants).tolist()
    first = ", ".join(map(str, found[:5]))
    if len(found) == 1:
        return f"plant {first}"
    return f"plants {first}" if len(found) <= 5 else f"{len(found)} plants ({first}, ...)"
