"""What is sent to the service and what it answers, as JSON: types that are checked while they are decoded.

Numbers are finite; what is not a number is an explicit null. No text that is sent becomes anything but text.
"""

from __future__ import annotations

from typing import Annotated, Any, get_type_hints

import msgspec

from tether.serve.replies import Answer, Control, Receipt

Numbers = float | list[float | None] | None
"""A number, or a vector."""
Observation = (
    float | list[float | list[float | None] | None] | dict[str, float | list[float | None] | None] | None
)
"""A number, a vector, a matrix, or numbers and vectors by name."""
Round = Annotated[int, msgspec.Meta(ge=1, le=10**12, description="The round h, counted from 1.")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z", description="Letters, digits, or ._-")]
Why = Annotated[str, msgspec.Meta(pattern=r"\S", max_length=500, description="The reason; it is recorded.")]
Text = Annotated[str, msgspec.Meta(max_length=500)] | None


class Act(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask what to play in a round."""

    round: Round
    observation: Observation
    proposal: Numbers = None
    """The learner's action; null, or what is no action, leads to a safe one."""
    prior: Numbers = None
    """The prior's action, if the client computes it."""


class Observe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Say what came of a round."""

    round: Round
    cost: float | None
    """null if it is not known yet (then `report` it); one below the contract's floor is a breach of the assumptions."""
    revealed: dict[str, Numbers] | None = None
    """The round's disturbances, for certificates that make use of them."""
    applied: Numbers = None
    """What was really played; say it always, for an answer may have been lost with the machine that gave it."""
    reward: float | None = None
    next_observation: Observation = None
    override: Text = None
    """Who decided otherwise than the guard, and why, if somebody did."""


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cost of a round that was observed without one."""

    round: Round
    cost: float


class Reset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin an episode; the body is {} or empty."""


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an operator does something."""

    why: Why


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="call"):
    plant: Name
    episode: Name


class ActCall(_Call, frozen=True, tag="act"):
    """`Act` in a batch."""

    round: Round
    observation: Observation
    proposal: Numbers = None
    prior: Numbers = None


class ObserveCall(_Call, frozen=True, tag="observe"):
    """`Observe` in a batch."""

    round: Round
    cost: float | None
    revealed: dict[str, Numbers] | None = None
    applied: Numbers = None
    reward: float | None = None
    next_observation: Observation = None
    override: Text = None


class ReportCall(_Call, frozen=True, tag="report"):
    """`Report` in a batch."""

    round: Round
    cost: float


class ResetCall(_Call, frozen=True, tag="reset"):
    """`Reset` in a batch."""


Call = ActCall | ObserveCall | ReportCall | ResetCall


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several calls in one request, done in this order, each by itself: one that is refused stops no other."""

    calls: list[Call]


class Problem(msgspec.Struct, frozen=True):
    """Why a request was not done; nothing has changed."""

    error: str
    """What was wrong, what was expected, what to do."""


def _struct(reply: type) -> type[msgspec.Struct]:
    """A reply of the service as an object of JSON, for the schema."""
    return msgspec.defstruct(reply.__name__, list(get_type_hints(reply).items()), module=__name__)


AnswerBody, ReceiptBody, ControlBody = _struct(Answer), _struct(Receipt), _struct(Control)


class BatchAnswer(msgspec.Struct, frozen=True):
    """What became of one call of a batch."""

    status: int
    """As if the call had been made by itself: 200, 404, 409, ..."""
    answer: dict[str, Any] | None = None
    """The same."""
    error: str | None = None


class BatchAnswers(msgspec.Struct, frozen=True):
    """One answer for each call, in the same order."""

    answers: list[BatchAnswer]


_encoder = msgspec.json.Encoder()


def encoded(body: Any) -> bytes:
    """JSON; a reply of the service, which is a NamedTuple, as an object."""
    return _encoder.encode(body._asdict() if hasattr(body, "_asdict") else body)
