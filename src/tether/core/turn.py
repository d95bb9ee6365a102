"""One call at a time."""

from __future__ import annotations

import threading
from typing import Any

from tether.core.decision import GuardMisuse


class Turn:
    """One call of a guard at a time: other threads wait, and what it calls cannot call it back and change its round.

    What is called in every round does itself what `with turn:` does, in a third of the time.

    Attributes:
        lock: For calls that only look; these may come back.
        taken: Whether a call has its turn. Only who holds the lock may ask.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.taken = False

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.taken:
            self.lock.release()
            raise self.misuse()
        self.taken = True

    def __exit__(self, *error: object) -> None:
        self.taken = False
        self.lock.release()

    @staticmethod
    def misuse() -> GuardMisuse:
        """What to raise if the turn is taken by the call that this one comes from."""
        return GuardMisuse(
            "the guard was called by its own prior, certificate or monitor, which it is asking"
        )

    def __reduce__(self) -> Any:
        return Turn, ()  # a copy of a guard has a turn of its own
