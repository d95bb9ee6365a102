"""Certificates that replay the prior: where a round's disturbances are observed afterwards, the gap is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from tether.certificates.structure import Numbers
from tether.certificates.structured import Opened, Structured, StructuredState, Taken
from tether.core import saved
from tether.core.certificate import Action, Box, Choice, Observation, Outcome, Weighed
from tether.core.ops import FLOATS, NUMPY, Array, Flag, Number, Ops


class Plant(Protocol):
    """What of a system it takes to replay the prior; `tether.systems.base.Env` has it."""

    @property
    def series(self) -> tuple[str, ...]:
        """Names of the series that a round needs."""

    @property
    def observation_names(self) -> tuple[str, ...]:
        """What the entries of an observation are."""

    @property
    def hidden(self) -> Mapping[str, Any]:
        """Names of the series that nobody sees before acting."""

    def initial(self) -> Any:
        """The state before the first round, a NamedTuple of numbers."""

    def observe(self, state: Any, drawn: Mapping[str, Any]) -> Any:
        """What a policy sees before it acts: [o]."""

    def shown(self, observation: Any) -> tuple[Any, dict[str, Any]]:
        """The state and the visible series of a round, as far as an observation shows them."""

    def step(self, state: Any, drawn: Mapping[str, Any], action: Any) -> Any:
        """Play one round; the result has `state` and `cost`."""

    def prior(self, observation: Any) -> Any:
        """The action of the trusted policy for this observation."""

    def limits(self) -> Mapping[str, tuple[float, float]]:
        """For each series the range of values that the certificate covers."""


class Shadow(NamedTuple):
    """The prior on its own trajectory."""

    state: Any
    """Its state, as the environment has it."""
    known: Flag
    """Whether it is; once it is not, it never is again in this episode."""


class ShadowingState(NamedTuple):
    """What the certificate remembers between rounds: a `StructuredState`, and the prior's state."""

    rounds: Number
    account: Number
    gaps: Numbers
    magnitude: Number
    backup: Number
    breached: Flag
    overridden: Flag
    clipped: Number
    shadow: Shadow


class Watched(NamedTuple):
    """What closing a round needs, and what replaying it needs too."""

    taken: Taken
    observation: Array
    """[o] of the guarded trajectory, a copy."""
    action: Action
    """What was played, a copy."""
    shadow: Shadow
    """Before the round."""


class OpenedShadow(NamedTuple):
    """A round that is opened: `tether.certificates.structured.Opened`, and what replaying it needs."""

    seen: Numbers
    gaps: Numbers
    slack: Number
    b: Number
    remaining: Number
    backup: Number
    breached: Flag
    epsilon: float
    rounds: Number
    overridden: Flag
    observation: Array
    shadow: Shadow


@dataclass(frozen=True)
class Shadowing(Structured):
    """A `Structured` certificate for systems whose disturbances are observed once a round is over.

    After each round the hidden series of the environment are `revealed` (work processed, work dropped, energy charged),
    and the prior's own round is simulated with them: `env.step` from its own state, with its own action. So the next
    round begins with the gap itself instead of a bound, and floor_h = c+_h. What comes is as unknown as ever: nothing
    is revealed before an action.

    **Sound**, because the gaps and the floor are true (`tether.certificates.structured` asks for nothing else): gaps
    without uncertainty are gaps, and what the prior's plant paid is a floor of what it paid.

    **If nothing is revealed**, the cost is not known when a round ends, or what is revealed is not finite, outside
    `env.limits()`, or does not give the cost that was seen, the prior's state is not known from then on. The
    structure's own bounds take over: those of this round begin with the gap that was known, and what its state and cost
    tell (`CarbonStructure` finds the noise on a segment, `CoolingStructure` each unit's effect: set membership) limits
    them as it does in a `Structured` one.

    Args:
        contract: The promise.
        system: What is known of the system.
        env: The system itself, which replays the prior. Its costs and the prior's actions must depend only on what an
            observation shows and on the series.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> certificate = Shadowing(env.contract(lam=2.0, b=2.0), env.structure, env)
        >>> guard = tether.Guard(certificate, env.prior, low=0.0)
        >>> decision = guard.act([4.0, 3.0, 0.0, 0.0], proposal=0.0)
        >>> round(decision.action, 2)
        3.05
        >>> guard.observe(3.0, revealed={"efficiency_noise": 0.1, "drop_rate": 0.0})  # 1 of 4 was left
    """

    env: Plant

    def __post_init__(self) -> None:
        super().__post_init__()
        if not hasattr(self.env, "hidden") or not hasattr(self.env, "shown"):
            raise TypeError(f"env must be a tether.envs.Env, got {self.env!r}")
        if not self.env.hidden:
            raise ValueError(
                f"{type(self.env).__name__} names no hidden series, so that nothing can be revealed; use Structured"
            )
        self._check_shown()

    def _check_shown(self) -> None:
        """Refuse a system whose observation does not show what replaying a round needs."""
        name, names = type(self.env).__name__, self.env.observation_names
        if not hasattr(self.env.initial(), "_replace"):
            raise ValueError(f"{name}.initial must give a NamedTuple, got {self.env.initial()!r}")
        _, drawn = self.env.shown(np.zeros(len(names)))
        missing = [each for each in self.env.series if each not in drawn and each not in self.env.hidden]
        if missing:
            raise ValueError(
                f"replaying the prior needs {', '.join(missing)}, which the observation {names} of {name} does not "
                f"name; name its entries after them ({missing[0]}, or {missing[0]}_1, {missing[0]}_2, ... for a "
                f"vector), write {name}.shown, or use Structured"
            )

    @property
    def fleets(self) -> bool:
        """The environment replays one plant at a time."""
        return False

    @property
    def revealed_names(self) -> tuple[str, ...]:
        """What the environment hides until a round is over."""
        return tuple(self.env.hidden)

    def start(self, ops: Ops = NUMPY, zero: Number = 0.0) -> ShadowingState:  # type: ignore[override]
        """The state before the first round, in which the prior's state is the plant's, whatever that is."""
        initial = self.env.initial()
        state = initial._make(
            zero + np.asarray(entry) if np.ndim(entry) else zero + entry for entry in initial
        )
        return ShadowingState(*super().start(ops, zero), Shadow(state, zero <= 0.0))

    def open(self, state: Any, observation: Observation, ops: Ops = NUMPY, epsilon: float = 0.0) -> Any:
        """Begin a round with what is seen; the gaps are those to the prior's state if that is known."""
        opened = super().open(state, observation, ops, epsilon)
        arrays = ops
        if ops is FLOATS or ops is NUMPY:
            # A copy: whoever owns the observation may overwrite it before the round is over.
            arrays, observation = NUMPY, np.array(observation, dtype=float)
        with np.errstate(all="ignore"):
            own, drawn = self.env.shown(observation)
            pairs = zip(own, state.shadow.state, strict=True)
            prior = own._make(arrays.where(state.rounds <= 0.0, *pair) for pair in pairs)
            prior_seen = self.system.read(self.env.observe(prior, drawn))
        if ops is FLOATS:
            prior_seen = tuple(float(each) for each in prior_seen)
        known = self.system.gaps_between(opened.seen, prior_seen, ops)
        gaps = tuple(ops.where(state.shadow.known, *pair) for pair in zip(known, opened.gaps, strict=True))
        shadow = Shadow(prior, state.shadow.known)
        return OpenedShadow(*opened._replace(gaps=gaps), observation, shadow)

    def choose(self, opened: Any, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:
        """See `Structured.choose`."""
        choice = super().choose(Opened(*opened[:-2]), proposal, prior, box, ops)
        played = choice.action if ops is not NUMPY else np.array(choice.action)
        return choice._replace(taken=Watched(choice.taken, opened.observation, played, opened.shadow))

    def weigh(
        self,
        opened: Any,
        prior: Action,
        action: Action,
        box: Box,
        ops: Ops = NUMPY,
        backup: int | None = None,
        part: float = 1.0,
    ) -> Weighed:
        """See `Structured.weigh`."""
        weighed = super().weigh(Opened(*opened[:-2]), prior, action, box, ops, backup, part)
        played = action if ops is not NUMPY else np.array(action)
        return weighed._replace(taken=Watched(weighed.taken, opened.observation, played, opened.shadow))

    def update(self, state: Any, taken: Any, outcome: Outcome, ops: Ops = NUMPY) -> Any:
        """Close a round, in which the hidden series may have been revealed."""
        taken = self._played(state, taken, outcome, ops)
        before, shadow, revealed = StructuredState(*state[:-1]), taken.shadow, outcome.revealed
        if revealed is None:
            lost = Shadow(shadow.state, ops.logical_and(shadow.known, False))
            return ShadowingState(*self.close(before, taken.taken, outcome, 0.0, ops), lost)
        arrays = NUMPY if ops is FLOATS else ops
        epsilon = max(taken.taken.epsilon, outcome.epsilon)
        with np.errstate(all="ignore"):
            own, drawn = self.env.shown(taken.observation)
            drawn = {**drawn, **revealed}
            prior = self.env.prior(self.env.observe(shadow.state, drawn))
            replayed = self.env.step(shadow.state, drawn, prior)
            explained = self.env.step(own, drawn, taken.action).cost
            off = epsilon**0.5 * (self.system.scale + abs(outcome.cost))
            # Neither is true of a NaN.
            usable = arrays.logical_and(abs(explained - outcome.cost) <= off, shadow.known)
            for name, (low, high) in self.env.limits().items():
                if name in revealed:
                    # What is at an end of its range may have been rounded to beyond it.
                    least, most = low - 4.0 * epsilon * abs(low), high + 4.0 * epsilon * abs(high)
                    inside = arrays.logical_and(revealed[name] >= least, revealed[name] <= most)
                    usable = arrays.logical_and(usable, arrays.all(inside))
        after = self._kept(usable, replayed.state, shadow.state, arrays)
        paid = arrays.where(usable, replayed.cost, 0.0)
        if ops is FLOATS:
            paid, usable = float(paid), bool(usable)
        closed = self.close(before, taken.taken, outcome, paid, ops)
        return ShadowingState(*closed, Shadow(after, usable))

    def _played(self, state: Any, taken: Watched, outcome: Outcome, ops: Ops) -> Watched:
        """What closing the round needs, with what was applied."""
        if outcome.applied is None:
            return taken
        opened = self.open(state, taken.observation, ops, taken.taken.epsilon)
        applied = self.applied(Opened(*opened[:-2]), taken.taken, outcome, ops)
        return taken._replace(taken=applied, action=outcome.applied)

    def defer(self, state: Any, taken: Any, outcome: Outcome, ops: Ops = NUMPY) -> tuple[Any, Any]:
        """Close a round whose cost is not known; what was revealed of it cannot be checked, and is not used."""
        taken = self._played(state, taken, outcome, ops)
        outcome = outcome._replace(applied=None)
        closed, owed = super().defer(StructuredState(*state[:-1]), taken.taken, outcome, ops)
        lost = Shadow(taken.shadow.state, ops.logical_and(taken.shadow.known, False))
        return ShadowingState(*closed, lost), owed

    @staticmethod
    def _kept(usable: Flag, after: Any, before: Any, ops: Ops) -> Any:
        """The state after the round if that is known, else the one before, whose numbers are finite."""
        for new, old in zip(after, before, strict=True):
            if np.shape(new) != np.shape(old):
                raise ValueError(f"revealed must have the shapes of the series, but led to a state {after!r}")
        return after._make(ops.where(usable, *pair) for pair in zip(after, before, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate, but for the environment's class."""
        return {
            **super().to_dict(),
            "kind": "shadowing",
            "env": {"class": type(self.env).__name__, **vars(self.env)},
        }

    def restore(self, state: dict[str, Any], taken: list[Any] | None) -> tuple[Any, Any]:
        """The state and the open round that were saved as plain numbers and lists."""
        inner = {name: value for name, value in state.items() if name != "shadow"}
        if taken is not None:
            saved.require_length("taken", taken, len(Watched._fields))
        restored, inner_taken = super().restore(inner, None if taken is None else taken[0])
        watched = None
        if taken is not None:
            _, observation, action, shadow = taken
            for name, given in (("observation", observation), ("action", action)):
                saved.require_numbers(name, given, shape=np.shape(given)[:1])
            watched = Watched(
                inner_taken, saved.numbers(observation), saved.numbers(action), self._shadow(shadow)
            )
        return ShadowingState._make((*restored, self._shadow(state["shadow"]))), watched

    def _shadow(self, given: Any) -> Shadow:
        initial = self.env.initial()
        saved.require_length("shadow", given, len(Shadow._fields))
        state, known = given
        saved.require_length("shadow state", state, len(initial))
        saved.require_flag("shadow known", known)
        for each, like in zip(state, initial, strict=True):
            saved.require_numbers("shadow state", each, shape=np.shape(like))
        return Shadow(initial._make(saved.numbers(each) for each in state), known)
