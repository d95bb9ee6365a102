"""How a guard asks its monitor: what it shows it, and what it makes of the answers."""

from __future__ import annotations

from typing import Any, NamedTuple

from tether.core import convert
from tether.core.certificate import Action, Observation
from tether.core.monitor import Contradiction, Monitor


class Found(NamedTuple):
    """Something that the assumptions rule out, as a guard reports it."""

    ago: int
    """0 if it belongs to the round at hand, 1 if to the one before."""
    detail: str
    """What was seen and what was expected."""
    evidence: dict[str, Any]
    """Of `tether.core.decision.Breach`: claimed, seen, observation, action."""


class Watch:
    """A monitor, what it remembers, and the round that it is shown; without a monitor it finds nothing.

    Args:
        monitor: What tells whether a round is consistent with what is claimed; None for nothing.

    Attributes:
        memory: What the monitor remembers.
        played: (observation, action) of the last round that has an action, as plain numbers; None before it.
        missed: Whether the last round had no cost to show. Then nothing is known of the round before the next
            observation either, and the monitor is not asked about that.
    """

    def __init__(self, monitor: Monitor | None) -> None:
        self.monitor = monitor
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self.memory: Any = None if self.monitor is None else self.monitor.start()
        self.played: tuple[Any, Any] | None = None
        self.missed = False

    @property
    def evidence(self) -> dict[str, Any]:
        """What was observed and played in the last round that has an action, if there is a monitor."""
        if self.played is None:
            return {}
        observation, action = self.played
        return {"observation": observation, "action": action}

    def plays(self, observation: Observation, action: Action) -> None:
        """The round has an action, or another one was applied."""
        if self.monitor is not None:
            self.played = convert.plain_numbers(observation), convert.plain_numbers(action)

    def arrived(self, observation: Observation) -> Found | None:
        """What the monitor finds in what is seen."""
        if self.monitor is None or self.missed:
            self.missed = False
            return None
        seen = convert.plain_numbers(observation)
        try:
            self.memory, found = self.monitor.arrived(self.memory, seen)
        except Exception as error:
            return Found(0, f"the monitor raised {convert.text(error)}", {"observation": seen})
        return None if found is None else self._contradicted(found, seen, None)

    def paid(self, cost: float) -> Found | None:
        """What the monitor finds in what was paid; it may not have seen how the round began."""
        if self.monitor is None or self.played is None:
            return None
        seen, played = self.played
        try:
            self.memory, found = self.monitor.paid(self.memory, seen, played, cost)
        except Exception as error:
            return Found(0, f"the monitor raised {convert.text(error)}", self.evidence)
        return None if found is None else self._contradicted(found, seen, played)

    def _contradicted(self, found: Contradiction, observation: Observation, action: Action) -> Found:
        """What the monitor found in this round, or only now of the last one."""
        evidence = self.evidence if found.ago > 0 else {"observation": observation, "action": action}
        return Found(
            found.ago, str(found), {"claimed": (found.low, found.high), "seen": found.seen, **evidence}
        )
