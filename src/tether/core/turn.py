"""One call at a time."""

from __future__ import annotations

import threading
from typing import Any

from tether.core.decision import GuardMisuse


class Turn:
    """One call of a guard at a time: other threads wait, and what it calls cannot call it back and change its round.

    Attributes:
        lock: For calls that only look; these may come back.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._taken = False

    def __enter__(self) -> None:
        self.lock.acquire()
        if self._taken:
            self.lock.release()
            raise GuardMisuse(
                "the guard was called by its own prior, certificate or monitor, which it is asking"
            )
        self._taken = True

    def __exit__(self, *error: object) -> None:
        self._taken = False
        self.lock.release()

    def __reduce__(self) -> Any:
        return Turn, ()  # a copy of a guard has a turn of its own
