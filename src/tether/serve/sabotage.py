"""The service broken on purpose, so that `tether bench faults` can show that it would notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tether.core.journal import segment
from tether.core.journal.journal import Journal
from tether.serve.episode import Asked, Came, Episode
from tether.serve.replies import Answer
from tether.serve.service import Service


@contextmanager
def _instead(owner: Any, name: str, other: Any) -> Iterator[None]:
    """Another attribute for a while."""
    original = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _answer_first() -> Any:
    """A record is written when the next request comes, not before the answer."""
    kept: dict[int, str] = {}
    write = Service._write

    def late(service: Service, journal: Journal, record: str) -> None:
        before = kept.pop(id(journal), None)
        kept[id(journal)] = record
        if before is not None:
            write(service, journal, before)

    return _instead(Service, "_write", late)


def _no_checksum() -> Any:
    """Every frame is taken for a good one."""
    return _instead(segment, "_checksum", lambda head, data: 0)  # noqa: ARG005


def _free_in_gaps() -> Any:
    """In a gap the proposal is allowed as far as the account of before the gap allows it."""
    wait = Episode._wait

    def free(episode: Episode, number: int, asked: Asked) -> Answer:
        answer = wait(episode, number, asked)
        episode.guard.prior.action = asked.prior
        action = episode.guard.reach(asked.observation, asked.proposal)[1]
        return answer._replace(action=action)

    return _instead(Episode, "_wait", free)


def _forget_applied() -> Any:
    """What the client says that it played is taken for what was decided."""
    close = Episode._close
    return _instead(Episode, "_close", lambda episode, came: close(episode, Came(came.cost)))


SABOTAGES: Mapping[str, Callable[[], Any]] = {
    "answer-first": _answer_first,
    "no-checksum": _no_checksum,
    "free-in-gaps": _free_in_gaps,
    "forget-applied": _forget_applied,
}
"""What can be broken, by name: a context in which it is."""
