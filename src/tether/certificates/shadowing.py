"""Certificates that replay the prior: where a round's disturbances are observed afterwards, the gap is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tether import _scalar
from tether.certificates.structured import Structured, StructuredState, Taken, _numbers


class Shadow(NamedTuple):
    """The prior on its own trajectory."""

    state: Any
    """Its state, as the environment has it."""
    known: Any
    """Whether it is; once it is not, it never is again in this episode."""


class ShadowingState(NamedTuple):
    """What the certificate remembers between rounds: a `StructuredState`, and the prior's state."""

    rounds: Any
    surplus: Any
    gaps: tuple[Any, ...]
    magnitude: Any
    breached: Any
    shadow: Shadow


class Watched(NamedTuple):
    """What closing a round needs, and what replaying it needs too."""

    taken: Taken
    observation: Any
    """[o] of the own trajectory."""
    action: Any
    """What was played."""
    shadow: Shadow
    """Before the round."""


class OpenedShadow(NamedTuple):
    """A round that is opened: `tether.certificates.structured.Opened`, and what replaying it needs."""

    seen: tuple[Any, ...]
    gaps: tuple[Any, ...]
    slack: Any
    earned: Any
    remaining: Any
    breached: Any
    epsilon: Any
    observation: Any
    shadow: Shadow


@dataclass(frozen=True)
class Shadowing(Structured):
    """A `Structured` certificate for systems whose disturbances are observed once a round is over.

    After each round the hidden series of the environment are `revealed` (work processed, work dropped, energy charged),
    and the prior's own round is simulated with them: `env.step` from its own state, with its own action. So the next
    round begins with the gap itself instead of a bound, and floor_h = c+_h. What comes is as unknown as ever: nothing
    is revealed before an action.

    **Sound.** Conditions (1) to (3) of `tether.certificates.structured` for the structure's own gaps g and floor imply
    them here. (3) gaps without uncertainty are valid gaps, and c+_h is a valid floor. (1) and (2) c_h - c+_h <= c_h -
    floor_h; and under the prior t_n never falls when gaps get wider (true of all structures of this package, and of any
    whose bounds are largest values over everything that the gaps allow), so that t_n(next, gaps known) <= t_n(next, g).

    **If nothing is revealed**, or what is revealed is not finite, outside `env.limits()`, or does not give the cost
    that was seen, the prior's state is not known from then on. The structure's own bounds take over: those of this
    round begin with the gap that was known, and what the own state and cost tell (`CarbonStructure` finds the noise on
    a segment, `CoolingStructure` each unit's effect: set membership) limits them as it does in a `Structured` one.

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
        >>> round(decision.action, 3)
        3.333
        >>> guard.observe(3.0, revealed={"efficiency_noise": 0.1, "drop_rate": 0.0})  # 1 of 4 was left
    """

    env: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if not hasattr(self.env, "hidden") or not hasattr(self.env, "shown"):
            raise TypeError(f"env must be a tether.envs.Env, got {self.env!r}")
        if not self.env.hidden:
            raise ValueError(
                f"{type(self.env).__name__} names no hidden series, so that nothing can be revealed; use Structured"
            )

    def start(self, xp: Any = np, zero: Any = 0.0) -> Any:
        """The state before the first round, in which the prior's state is the own one, whatever that is."""
        initial = self.env.initial()
        state = initial._make(
            zero + np.asarray(entry) if np.ndim(entry) else zero + entry for entry in initial
        )
        return ShadowingState(*super().start(xp, zero), Shadow(state, zero <= 0.0))

    def open(self, state: Any, observation: Any, xp: Any = np) -> Any:
        """Begin a round with what is seen; the gaps are those to the prior's state if that is known."""
        opened = super().open(state, observation, xp)
        arrays = xp
        if xp is _scalar:
            arrays, observation = np, np.asarray(observation, dtype=float)
        own, drawn = self.env.shown(observation)
        first = state.rounds <= 0.0
        prior = own._make(arrays.where(first, *pair) for pair in zip(own, state.shadow.state, strict=True))
        prior_seen = self.system.read(self.env.observe(prior, drawn))
        if xp is _scalar:
            prior_seen = tuple(float(each) for each in prior_seen)
        known = self.system.apart(opened.seen, prior_seen, xp)
        gaps = tuple(xp.where(state.shadow.known, *pair) for pair in zip(known, opened.gaps, strict=True))
        shadow = Shadow(prior, state.shadow.known)
        return OpenedShadow(*opened._replace(gaps=gaps), observation, shadow)

    def choose(self, opened: Any, *arguments: Any, **named: Any) -> Any:
        """See `Structured.choose`."""
        choice = super().choose(opened, *arguments, **named)
        return choice._replace(taken=Watched(choice.taken, opened.observation, choice.action, opened.shadow))

    def update(
        self, state: Any, taken: Any, cost: Any, xp: Any = np, revealed: Mapping[str, Any] | None = None
    ) -> Any:
        """Close a round in which an action was `taken`, `cost` was seen and the hidden series were `revealed`."""
        before, shadow = StructuredState(*state[:5]), taken.shadow
        if revealed is None:
            lost = Shadow(shadow.state, xp.logical_and(shadow.known, False))
            return ShadowingState(*self._closed(before, taken.taken, cost, 0.0, xp), lost)
        own, drawn = self.env.shown(taken.observation)
        drawn = {**drawn, **revealed}
        wish = self.env.prior(self.env.observe(shadow.state, drawn))
        replayed = self.env.step(shadow.state, drawn, wish)
        explained = self.env.step(own, drawn, taken.action).cost
        off = taken.taken.epsilon**0.5 * (self.system.scale + abs(cost))
        usable = xp.logical_and(abs(explained - cost) <= off, shadow.known)  # neither is true of a NaN
        for name, (low, high) in self.env.limits().items():
            if name in revealed:
                inside = (revealed[name] >= low) & (revealed[name] <= high)
                usable = xp.logical_and(usable, inside.all())
        paid = xp.where(usable, replayed.cost, 0.0)
        closed = self._closed(before, taken.taken, cost, paid, xp)
        return ShadowingState(*closed, Shadow(replayed.state, usable))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate, but for the environment's class."""
        return {
            **super().to_dict(),
            "kind": "shadowing",
            "env": {"class": type(self.env).__name__, **vars(self.env)},
        }

    def restore(self, state: dict[str, Any], taken: Any) -> tuple[Any, Any]:
        """The state and the open round that were saved as plain numbers and lists."""
        inner, shadow = dict(state), state["shadow"]
        del inner["shadow"]
        restored, inner_taken = super().restore(inner, None if taken is None else taken[0])
        watched = None
        if taken is not None:
            action = np.array(taken[2]) if isinstance(taken[2], list) else taken[2]
            watched = Watched(inner_taken, np.array(taken[1]), action, self._shadow(taken[3]))  # type: ignore[arg-type]
        return ShadowingState(*restored, self._shadow(shadow)), watched

    def _shadow(self, saved: Any) -> Shadow:
        return Shadow(self.env.initial()._make(_numbers(saved[0])), saved[1])
