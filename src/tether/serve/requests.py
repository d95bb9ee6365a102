"""What can be asked of a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tether.core.journal import text
from tether.serve.replies import Refused


class Request(NamedTuple):
    """What is asked."""

    kind: str
    """`"reset"`, `"act"`, `"observe"`, `"report"`, `"end"`, `"prior now"` or `"resume"`."""
    plant: str | None
    """By name; None for every plant, where the operator may say so."""
    episode: str
    """By name; empty where it is not about one."""
    round: int
    """Counted from 1; 0 where it is not about one."""
    content: list[Any]
    """What else was sent: [observation, proposal, prior's action], [cost, revealed, applied, reward, next observation,
    override], [cost] or [who, why]."""

    def sent(self) -> str:
        """The content as text.

        Raises:
            Refused: It cannot be written down, or a name or the round is none.
        """
        if isinstance(self.round, bool) or not isinstance(self.round, int):
            raise Refused(f"round must be a whole number, got {self.round!r}")
        if not isinstance(self.plant, str | None) or not isinstance(self.episode, str):
            raise Refused(f"plant and episode must be text, got {self.plant!r} and {self.episode!r}")
        try:
            return text.dumps(self.content)
        except (TypeError, ValueError, RecursionError) as error:
            raise Refused(f"{self.kind}: {error}") from error


def reset(plant: str, episode: str) -> Request:
    """See `Service.reset`."""
    return Request("reset", plant, episode, 0, [])


def act(
    plant: str,
    episode: str,
    round: int,  # noqa: A002
    observation: Any,
    proposal: Any,
    prior: Any = None,
) -> Request:
    """See `Service.act`."""
    return Request("act", plant, episode, round, [observation, proposal, prior])


def observe(
    plant: str,
    episode: str,
    round: int,  # noqa: A002
    cost: Any,
    revealed: Mapping[str, Any] | None = None,
    applied: Any = None,
    reward: Any = None,
    next_observation: Any = None,
    override: str | None = None,
) -> Request:
    """See `Service.observe`."""
    content = [cost, revealed, applied, reward, next_observation, override]
    return Request("observe", plant, episode, round, content)


def report(plant: str, episode: str, round: int, cost: Any) -> Request:  # noqa: A002
    """See `Service.report`."""
    return Request("report", plant, episode, round, [cost])


def end(plant: str, episode: str, who: str, why: str) -> Request:
    """See `Service.end`."""
    return Request("end", plant, episode, 0, [who, why])


BATCHED: dict[str, Callable[..., Request]] = {
    "reset": reset,
    "act": act,
    "observe": observe,
    "report": report,
    "end": end,
}
"""What a batch may be made of."""
