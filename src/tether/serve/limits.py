"""How often a caller may call: a bucket of permits for each, refilled at a constant rate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Rate:
    """At most so many requests a second for each caller, and as many at once.

    Args:
        per_second: Permits a second, and the size of a bucket.
        clock: Seconds, for tests.

    Example:
        >>> now = [0.0]
        >>> rate = Rate(2.0, clock=lambda: now[0])
        >>> [rate.wait("plc-7") for _ in range(3)]  # seconds to wait; 0 lets it through
        [0.0, 0.0, 0.5]
        >>> now[0] = 0.5
        >>> rate.wait("plc-7")
        0.0
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = per_second
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait(self, caller: str, permits: float = 1.0) -> float:
        """Take permits, and say 0; or, if there are too few, take none and say after how many seconds to come again.

        Args:
            caller: The name of a token, so that there are no more buckets than tokens.
            permits: How many are needed; a batch needs one for each of its calls, or a full bucket.
        """
        now, most = self._clock(), max(self.per_second, 1.0)
        needed = min(permits, most)
        left, last = self._buckets.get(caller, (most, now))
        left = min(most, left + (now - last) * self.per_second)
        enough = left >= needed
        self._buckets[caller] = (left - needed if enough else left, now)
        return 0.0 if enough else (needed - left) / self.per_second


def retry_after(seconds: float) -> str:
    """Seconds to wait as the header Retry-After has them: a whole number of at least 1."""
    return str(max(1, math.ceil(seconds)))
