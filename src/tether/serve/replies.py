"""What the service answers, and the errors with which it refuses; nothing of the service is changed by an error."""

from __future__ import annotations

from typing import Any, NamedTuple


class ServiceError(Exception):
    """A request that was not done; the message says why and what to do, and nothing has changed."""


class Unknown(ServiceError):
    """There is no such plant, episode or round."""


class Conflict(ServiceError):
    """The round has been asked or reported with another content; the first one stands."""


class Refused(ServiceError):
    """The request is not one that can be done: ill-formed, too late, or the prior gave no action."""


class Full(ServiceError):
    """A limit is reached: of open episodes, or of rounds that wait for a report."""


class Unavailable(ServiceError):
    """The journal cannot be written, so that nothing is answered; play the backup, and send the request again."""


class Answer(NamedTuple):
    """What to play in a round: the reply to `act`. Plain numbers, text, lists and None, all of them fit for JSON."""

    plant: str
    episode: str
    round: int
    """The round h, counted from 1."""
    action: Any
    """What to play: a number, or [n]. None in a gap under a certificate with other backups than the prior: go on with
    the backup that the last answer named which came in time."""
    prior_action: Any
    """What the prior plays: a number, or [n]."""
    reason: str
    """A `tether.Reason`, or "operator" (prior now), or "gap" (an earlier round has no report yet)."""
    intervened: bool
    """Whether the action is not the proposal."""
    deviation: float | None
    """||action - prior_action||, action units; None in a gap."""
    radius: float | None
    """The largest deviation that was safe, action units; None if there is no such number, and in a gap."""
    margin: float | None
    """How far below its bound the cost is at least after this round, cost units; None after a breach and in a gap."""
    backup: str | None
    """The policy to play from the next round on for as long as no answer comes, by name, such as "prior"; None in a gap
    under a certificate with other backups: the one of the last answer that came in time."""
    policy: str | None
    """How the client plays that backup, in the words of the plant's `policies`; the name if there are none."""
    account: int
    """The first round that the account does not hold yet. In a gap it is less than `round`: report from there on."""
    breach: str | None
    """What contradicted the assumptions in this episode, if anything did; the promise is void from then on."""


class Receipt(NamedTuple):
    """The reply to `reset`, `observe`, `report` and `end`; fit for JSON."""

    plant: str
    episode: str
    round: int
    """The round that was reported; 0 for `reset` and `end`."""
    account: int
    """The first round that the account does not hold yet; horizon + 1 when the episode is over."""
    backup: str | None
    """As in `Answer`."""
    policy: str | None
    """As in `Answer`."""
    over: bool
    """Whether the episode is over."""
    breach: str | None
    """As in `Answer`."""


class Control(NamedTuple):
    """The reply to `prior_now` and `resume`; fit for JSON."""

    control: str
    """`"prior now"` or `"resume"`."""
    plants: list[str]
    """The plants that it is for."""
    who: str
    why: str


Reply = Answer | Receipt | Control
