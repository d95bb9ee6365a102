"""A plant's control loop as the guard's client keeps it, without a transport: what to send, and what to play.

Calls that have not been answered wait in the outbox and are sent again, in their order and with the same content,
before anything new. A round that was not answered in time is played by the backup that the last answer named, and
reported as `applied`. Should the service say that it misses rounds which it has answered (its machine lost power before
they were on the disk), they are sent again too. So whatever is lost, the service gets the whole account in the end, and
until then the promise is kept by the backup (docs/crash-theorem.md).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

AT_ONCE = 50
"""Calls that are sent in one request; a long absence is caught up with in several."""
LATER = (429, 503)
"""What is refused for now only."""
KEPT = 4000
"""Calls of an episode that can be sent once more."""


class Played(NamedTuple):
    """What a client plays in a round, and why."""

    round: int
    """Counted from 1."""
    action: Any
    """What to play: a float, or [n]."""
    decided: bool
    """Whether the guard has decided it; if not, it is the action of the backup `backup`."""
    backup: str
    """What to play from the next round on for as long as no answer comes."""
    reason: str
    """The guard's, or "no answer", or "refused"."""
    answer: dict[str, Any] | None = None
    """All that the guard answered; None if it did not."""
    problem: str | None = None
    """What went wrong, for the log; None if nothing did."""


class NoBackup(RuntimeError):
    """The guard did not answer, and the client was not given the policy to play instead."""


class Sent(NamedTuple):
    """What came back for a call: a status as in HTTP, and the answer or the error."""

    status: int
    answer: dict[str, Any] | None = None
    error: str | None = None


class Loop:
    """One episode after another of one plant.

    Args:
        plant: Its name.
        prior: The trusted policy; it plays if no answer comes, and is sent along if `sends_prior`.
        backups: Policies for the certificate's other backups, by name.
        sends_prior: Whether the service has no prior of its own (`prior = "client"`).
    """

    def __init__(
        self,
        plant: str,
        prior: Callable[[Any], Any] | None,
        backups: Mapping[str, Callable[[Any], Any]],
        sends_prior: bool,
    ) -> None:
        if sends_prior and prior is None:
            raise ValueError("sends_prior needs the prior")
        self.plant, self.sends_prior = plant, sends_prior
        self._policies = dict(backups)
        if prior is not None:
            self._policies.setdefault("prior", prior)
        self.episode = ""
        self.round = 0
        self.outbox: list[dict[str, Any]] = []
        self.backup = "prior"
        self.problem: str | None = None
        self._open: tuple[Any, Played | None] | None = None
        self._calls: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._sent_again = 0

    def begin(self, episode: str) -> None:
        """Begin an episode; what was not sent of the last one is not sent any more."""
        self.episode, self.round, self.backup, self.problem, self._open = episode, 0, "prior", None, None
        self.outbox, self._sent_again = [], 0
        self._calls.clear()
        self._put(self._call("reset"))

    def ask(self, observation: Any, proposal: Any) -> None:
        """Put the question of the next round into the outbox."""
        if not self.episode:
            raise RuntimeError("there is no episode; call reset first")
        if self._open is not None:
            raise RuntimeError(f"round {self.round} has an action; call observe(cost) before the next act")
        call = self._call(
            "act", round=self.round + 1, observation=plain(observation), proposal=plain(proposal)
        )
        if self.sends_prior:
            call["prior"] = plain(self._policies["prior"](observation))
        self.round += 1
        self._put(call)
        self._open = observation, None

    def play(self, answer: dict[str, Any] | None) -> Played:
        """What to play in the round that was asked, with the guard's answer or without one."""
        assert self._open is not None
        observation = self._open[0]
        decided = answer is not None and answer["action"] is not None
        if answer is not None and decided:
            self.backup = answer["backup"] or self.backup
            action = _array(answer["action"])
        else:
            policy = self._policies.get(self.backup)
            if policy is None:
                self.outbox.pop()
                self._calls.pop()
                self.round -= 1
                self._open = None
                raise NoBackup(
                    f"no answer of the guard in round {self.round + 1} ({self.problem or 'too late'}), and no policy "
                    f"for the backup {self.backup!r}; give the client prior=... or backups={{{self.backup!r}: ...}}"
                )
            action = policy(observation)
        reason = answer["reason"] if answer is not None else "no answer" if self.outbox else "refused"
        played = Played(self.round, action, decided, self.backup, reason, answer, self.problem)
        self._open = observation, played
        return played

    def report(self, cost: Any, applied: Any, others: Mapping[str, Any]) -> None:
        """Put what came of the round into the outbox."""
        if self._open is None or self._open[1] is None:
            raise RuntimeError(
                f"round {self.round + 1} has no action yet; call act(observation, proposal) first"
            )
        if applied is None:
            applied = self._open[1].action
        call = self._call("observe", round=self.round, cost=plain(cost), applied=plain(applied))
        self._put(call | {name: value for name, value in others.items() if value is not None})
        self._open = None

    def report_late(self, number: int, cost: Any) -> None:
        """Put a cost that was not known when its round was closed into the outbox."""
        self._put(self._call("report", round=number, cost=plain(cost)))

    def settle(self, sent: list[Sent]) -> dict[str, Any] | None:
        """Take what came back for the first calls of the outbox; the last answer to an `act` of the present round.

        A call that was refused for good is not sent again: the service goes on with the backup where it misses it.
        """
        last, missed = None, None
        for result in sent:
            if result.status in LATER:
                self.problem = result.error
                break
            call = self.outbox.pop(0)
            if result.status == 200:
                self.problem = None
                if call["call"] == "act" and call["round"] == self.round and result.answer is not None:
                    last = result.answer
                    missed = last["account"] if last["reason"] == "gap" else None
            else:
                self.problem = f"{call['call']} of round {call.get('round', 0)}: {result.error}"
                missed = 0 if result.status == 404 and call["call"] == "act" else missed
        if missed is not None:
            self._send_again(missed)
        return last

    def _send_again(self, missed: int) -> None:
        """Put what the service has answered and does not have any more before the rest; once in a round."""
        if self._sent_again == self.round:
            return
        self._sent_again = self.round
        waiting = {id(call) for call in self.outbox}
        again = [
            call
            for call in self._calls
            if missed <= call.get("round", 0) <= self.round and id(call) not in waiting
        ]
        self.outbox = again + self.outbox

    def _put(self, call: dict[str, Any]) -> None:
        self.outbox.append(call)
        self._calls.append(call)

    def _call(self, name: str, **content: Any) -> dict[str, Any]:
        return {"call": name, "plant": self.plant, "episode": self.episode, **content}


def plain(value: Any) -> Any:
    """Numbers, vectors and dictionaries of them as JSON has them; what is not finite is null."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    try:
        array = np.asarray(value.detach() if hasattr(value, "detach") else value, dtype=float)
    except (TypeError, ValueError):  # no numbers
        return None
    return _finite(array.tolist())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if math.isfinite(value) else None


def _array(action: Any) -> Any:
    return np.array(action) if isinstance(action, list) else action
