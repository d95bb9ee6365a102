"""What a guard decides and reports: decisions and their reasons, breaches of assumptions, calls that are refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


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
    """The proposal is NaN, infinite, ill-shaped or not a number; a safe action was played, the prior's unless the
    certificate carries another backup."""
    BREACH = "breach"
    """An assumption was breached in this episode; the prior's action was played."""
    OVERRIDE = "override"
    """Somebody played what was not safe; the prior's action was played, as nothing is known to be safe yet."""

    # Equal to its text, so it must have its hash; and guards count by it in every round.
    __hash__ = str.__hash__


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
    """How far below its bound the cumulative cost will be after this round, at least; cost units, of several contracts
    the smallest. After an override it may be negative: by no more than that the bound is exceeded.
    NaN once an assumption was breached, because nothing is certified then."""
    intervened: bool
    """Whether the action differs from the proposal."""
    reason: Reason
    """Why."""
    backup: str = "prior"
    """What keeps the promise if it is played from the next round on, whatever happens to the guard: one of the
    certificate's `backup_names`."""
    binding: str | None = None
    """With several contracts, the name of the one that kept the action from being the proposal; else None."""

    def __str__(self) -> str:
        verb = "kept" if not self.intervened else f"replaced ({self.reason})"
        return (
            f"round {self.round}: proposal {self.proposal} {verb}; action {self.action}, prior {self.prior_action}, "
            f"deviation {self.deviation:.4g} of {self.radius:.4g} allowed, margin {self.margin:.4g}"
        )


@dataclass(frozen=True)
class Override:
    """A round in which somebody or something else decided what was played."""

    round: int
    """The round h, counted from 1."""
    why: str
    """Who did it and why, as `Guard.observe` was told."""
    applied: Any
    """What was played, as plain numbers."""
    safe: bool
    """Whether it was in the safe set, so that the promise goes on as if it had been decided."""
    until: int | None = None
    """The first round from `round` on in which the promise is the guard's again: `round` itself if it was `safe`; None
    while it is not known when. The rounds before that are the operator's."""


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
    contracts: tuple[str, ...] | None = None
    """Of several contracts those whose promise is void; None if all are. The prior keeps the others, if nothing that
    they assume is breached."""
