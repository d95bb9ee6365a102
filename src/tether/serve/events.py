"""What happens in a service, for those who watch it."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any


class Subscription:
    """A queue of events; one that is not read loses its oldest events and says how many.

    Attributes:
        lost: How many events were dropped because nobody took them in time.
    """

    def __init__(self, publisher: Publisher, size: int) -> None:
        self._publisher = publisher
        self._events: deque[dict[str, Any]] = deque()
        self._size = size
        self._there = threading.Condition()
        self.lost = 0

    def get(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next event; None if none came within so many seconds (0: do not wait, None: wait for ever)."""
        with self._there:
            if not self._events:
                self._there.wait_for(lambda: bool(self._events), timeout)
            return self._events.popleft() if self._events else None

    def put(self, event: dict[str, Any]) -> None:
        """Add an event."""
        with self._there:
            if len(self._events) >= self._size:
                self._events.popleft()
                self.lost += 1
            self._events.append(event)
            self._there.notify()

    def close(self) -> None:
        """End the subscription."""
        self._publisher.remove(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Publisher:
    """Hands every event to every subscription."""

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()
        self._lock = threading.Lock()

    def subscribe(self, size: int) -> Subscription:
        """A queue that gets every event from now on."""
        subscription = Subscription(self, size)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """End a subscription."""
        with self._lock:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

    @property
    def watched(self) -> bool:
        """Whether anybody would get an event."""
        return bool(self._subscriptions)

    def publish(self, event: dict[str, Any]) -> None:
        """Hand an event to everybody."""
        for each in self._subscriptions:
            each.put(event)
