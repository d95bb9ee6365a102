"""What is written of a request, and how a book is brought back from it: by doing everything again, and comparing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tether.core.journal import text
from tether.core.journal.journal import Differs
from tether.serve.book import Book
from tether.serve.memory import digest
from tether.serve.replies import Reply, ServiceError
from tether.serve.requests import Request


class Record(NamedTuple):
    """One request that was done."""

    kind: str
    time: float
    """When it was done, seconds since 1970, as the clock said."""
    plant: str | None
    episode: str
    round: int
    reply: list[Any]
    """The fields of the reply."""
    said: list[Any]
    """[the prior's action], if the service asked the prior; else []."""
    sent: list[Any]
    """What was sent with it; see `Request.content`."""

    @property
    def request(self) -> Request:
        """What the book was asked."""
        return with_prior(Request(self.kind, self.plant, self.episode, self.round, self.sent), self.said)


def with_prior(request: Request, said: list[Any]) -> Request:
    """A request with what the prior has said, [] if it was sent along."""
    return Request(*request[:4], [*request.content[:2], *said]) if said else request


def written(request: Request, sent: str, said: list[Any], now: float, reply: Reply) -> str:
    """The record of a request; what was sent is text already."""
    kind, plant, episode, number, _ = request
    head = text.dumps([kind, float(now), plant, episode, number, list(reply), said])
    return f"{head[:-1]},{sent}]"


def read(payload: str) -> Record:
    """The record that `written` wrote.

    Raises:
        ValueError: It is none.
    """
    fields = text.loads(payload)
    if not isinstance(fields, list) or len(fields) != len(Record._fields):
        raise ValueError(f"expected a record of {', '.join(Record._fields)}, got {payload[:200]!r}")
    return Record(*fields)


def replay(book: Book, payloads: Iterable[str], first: int) -> int:
    """Do again what was done, and compare every reply bit for bit; returns how many there were.

    Args:
        book: As it was before.
        payloads: What happened then.
        first: The number of the first of them.

    Raises:
        Differs: A reply is another one now; the message says which and how.
    """
    done = 0
    for number, payload in enumerate(payloads, first):
        record = read(payload)
        try:
            reply: Any = list(book.do(record.request, digest(text.dumps(record.sent))))
        except ServiceError as error:
            reply = [f"{type(error).__name__}: {error}"]
        if text.dumps(reply) != text.dumps(record.reply):
            of = f"record {number}: {record.kind} of round {record.round} of {record.plant!r}, {record.episode!r}"
            raise Differs(
                f"{of}: the journal has {text.dumps(record.reply)}, but the same request now gives "
                f"{text.dumps(reply)}. If it was written by another version of tether, or with another certificate or "
                "monitor, go on with that one and stop the service in good order: then nothing is left to be done again"
            )
        done += 1
    return done
