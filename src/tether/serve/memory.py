"""What an episode was asked and has answered, so that what is repeated gets the same answer."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from tether.serve.replies import Answer, Conflict, Receipt, Reply

Key = tuple[str, int]
"""What was asked, such as "act", and of which round; round 0 where it is not about one."""


class Answered(NamedTuple):
    """A request that was done: a digest of its content, and the reply."""

    digest: bytes
    reply: Reply


class Memory:
    """The replies of an episode.

    Args:
        episode: Its name.
    """

    def __init__(self, episode: str) -> None:
        self._episode = episode
        self._answered: dict[Key, Answered] = {}

    def __len__(self) -> int:
        return len(self._answered)

    def repeated(self, key: Key, content: bytes) -> Reply | None:
        """The reply that a request of this digest got before; None if it is new.

        Raises:
            Conflict: It was sent with another content.
        """
        before = self._answered.get(key)
        if before is None:
            return None
        if before.digest != content:
            kind, number = key
            raise Conflict(
                f"{kind} of round {number} of episode {self._episode!r} was sent before with another content; "
                "the first one stands, and repeating it gives its answer"
            )
        return before.reply

    def remember(self, key: Key, content: bytes, reply: Reply) -> None:
        """Keep what was answered."""
        self._answered[key] = Answered(content, reply)

    def forget(self, before: int) -> None:
        """Forget the rounds before this one."""
        self._answered = {
            key: each for key, each in self._answered.items() if key[1] >= before or key[1] == 0
        }

    def to_json(self) -> list[Any]:
        """Plain values, fit for JSON."""
        return [[*key, each.digest.hex(), list(each.reply)] for key, each in self._answered.items()]

    def restore(self, saved: list[Any]) -> None:
        """What `to_json` gave."""
        for kind, number, content, reply in saved:
            made = Answer(*reply) if kind == "act" else Receipt(*reply)
            self.remember((kind, number), bytes.fromhex(content), made)


def digest(sent: str) -> bytes:
    """Tells what was sent from anything else."""
    return hashlib.blake2b(sent.encode(), digest_size=16).digest()
