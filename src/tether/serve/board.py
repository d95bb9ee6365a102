"""What the dashboard shows: the plants as they are, and what happened lately, in pieces of what has changed."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np

from tether.serve.service import Service

EVENTS = 5000
"""How many events may wait between two looks."""
KEPT = 60
"""Entries of the log, of each kind."""
PERIOD = 0.4
"""Seconds between two looks."""


def page() -> str:
    """The dashboard: markup, style and script in one; nothing is loaded from elsewhere."""
    parts = resources.files("tether.serve") / "page"
    text = (parts / "page.html").read_text(encoding="utf-8")
    for mark, name in (("/*{css}*/", "page.css"), ("/*{js}*/", "page.js")):
        before, found, after = text.partition(mark)
        assert found, f"page.html has no {mark}"
        text = before + (parts / name).read_text(encoding="utf-8") + after
    return text


class Board:
    """The service as dashboards see it.

    Args:
        service: Whose plants.
        clock: Seconds, for tests.
    """

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._events = service.subscribe(EVENTS)
        self._important: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._interventions: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._latest: dict[str, str] = {}
        self._shown: dict[str, tuple[int, dict[str, Any]]] = {}
        self._logged = 0
        self._revision = 0
        self._next = 0.0
        self._lag: float | None = None

    def since(self, seen: int) -> tuple[int, dict[str, Any] | None]:
        """What has changed after the revision `seen` (0: everything), and the revision that it leads to."""
        if self._clock() >= self._next:
            self._next = self._clock() + PERIOD
            self._look()
        if seen >= self._revision:
            return seen, None
        message = {
            "whole": seen == 0,
            "lag": self._lag,
            "plants": [view for revision, view in self._shown.values() if revision > seen],
        }
        if self._logged > seen:
            message["log"] = self.log()
        return self._revision, message

    def _look(self) -> None:
        """See what has changed; the cost is the same for one who watches as for many."""
        revision = self._revision + 1
        if self._drain():
            self._logged = self._revision = revision
        status = self._service.status()
        self._lag = lag_of(status)
        for name, plant in status["plants"].items():
            view = self._view(name, plant)
            if name not in self._shown or view != self._shown[name][1]:
                self._shown[name] = revision, view
                self._revision = revision

    def log(self) -> list[dict[str, Any]]:
        """What happened lately, newest first."""
        return sorted([*self._important, *self._interventions], key=lambda entry: -entry["at"])

    def _drain(self) -> bool:
        logged = False
        while (event := self._events.get(0)) is not None:
            logged |= self._note(event)
        return logged

    def _note(self, event: dict[str, Any]) -> bool:
        """Log an event, if it is one that people want to know of."""
        kind, at, plant = event["kind"], event["time"], event.get("plant")
        if kind in ("act", "reset", "observe") and plant is not None:
            self._latest[plant] = event["episode"]
        if kind in ("prior now", "resume"):
            plants = event["plants"]
            text = f"{kind}, by {event['who']}: {event['why']}"
            everyone = len(plants) == len(self._shown) and len(plants) > 1
            for each in [None] if everyone else plants:
                self._important.append({"at": at, "plant": each, "kind": "warn", "text": text})
        elif kind == "end":
            text = f"episode {event['episode']} was ended"
            self._important.append({"at": at, "plant": plant, "kind": "warn", "text": text})
        elif event.get("breach") is not None and self._new_breach(plant, event["episode"]):
            text = f"breach in episode {event['episode']}: {event['breach']}"
            self._important.append({"at": at, "plant": plant, "kind": "bad", "text": text})
        elif kind == "act" and event["intervened"] and event["reason"] != "operator":
            text = f"round {event['round']} of {event['episode']}: {event['reason']}"
            self._interventions.append({"at": at, "plant": plant, "kind": "", "text": text})
        else:
            return False
        return True

    def _new_breach(self, plant: str | None, episode: str) -> bool:
        start = f"breach in episode {episode}:"
        return not any(each["plant"] == plant and each["text"].startswith(start) for each in self._important)

    def _view(self, name: str, plant: dict[str, Any]) -> dict[str, Any]:
        episodes = {each["episode"]: each for each in plant["episodes"]}
        latest = episodes.get(self._latest.get(name, "")) or next(reversed(episodes.values()), None)
        before = self._shown[name][1]["episode"] if name in self._shown else None
        episode: dict[str, Any] | None
        if latest is None and before is not None:
            episode = {**before, "over": True}  # it has ended; its last rounds stay until the next one begins
        else:
            episode = None if latest is None else _episode(latest, plant)
        return {
            "name": name,
            "contract": {key: plant[key] for key in ("lam", "b", "horizon")},
            "stopped": plant["held"],
            "open": len(episodes),
            "decisions": plant["decisions"],
            "reasons": plant["reasons"],
            "breaches": plant["breaches"],
            "episode": episode,
        }


def lag_of(status: dict[str, Any]) -> float | None:
    """How far the journal is behind, seconds; None if there is none."""
    return None if status["journal"] is None else float(status["journal"]["lag"])


def _episode(episode: dict[str, Any], plant: dict[str, Any]) -> dict[str, Any]:
    """An episode with what its bound is at least, round by round.

    The bound (1 + lam) J_h(pi+) + h b is not known online, since nobody sees what the prior would have cost. But a
    decision's margin says how far below it the cost stays at least, and each round adds (1 + lam) eps + b or more.
    """
    # What is summed is what is shown; earlier rounds are in the difference to the whole.
    so_far = episode["cost"] - sum(each["cost"] or 0.0 for each in episode["rounds"])
    grows = (1.0 + plant["lam"]) * plant["cost_floor"] + plant["b"]
    certified = _certified_before(episode)
    rounds: list[dict[str, Any]] = []
    bound: float | None = None
    for each in episode["rounds"]:
        closed, margin = each["cost"] is not None, each["margin"]
        so_far += each["cost"] or 0.0
        bound = None if bound is None or each["round"] >= certified else bound + grows
        if (
            each["round"] < certified
            and closed
            and margin is not None
            and each["applied"] in (None, each["action"])
        ):
            bound = max(so_far + margin, -math.inf if bound is None else bound)
        rounds.append(
            {
                "round": each["round"],
                "reason": each["reason"],
                "intervened": each["intervened"],
                "radius": each["radius"] or 0.0,
                "moved": _away(each["action"], each["prior_action"]) or 0.0,
                "wished": _away(each["proposal"], each["prior_action"]),
                "cost": so_far if closed else None,
                "bound": bound if closed else None,
            }
        )
    closed_rounds = [each for each in rounds if each["cost"] is not None]
    return {
        "name": episode["episode"],
        "round": episode["round"],
        "cost": episode["cost"],
        "bound": closed_rounds[-1]["bound"] if closed_rounds else None,
        "breach": episode["breach"],
        "over": False,
        "rounds": rounds,
    }


def _certified_before(episode: dict[str, Any]) -> float:
    """The round before which nothing has contradicted the assumptions: infinity if nothing has at all."""
    if episode["breach"] is None:
        return math.inf
    breached = [each["round"] for each in episode["rounds"] if each["reason"] == "breach"]
    closed = [each["round"] for each in episode["rounds"] if each["cost"] is not None]
    # It was noticed when that round was asked, or when the one before it was closed.
    return min([each - 1 for each in breached[:1]] + closed[-1:], default=0)


def _away(action: Any, prior: Any) -> float | None:
    """How far an action is from the prior's: with its sign for a number, else the largest entry; None if it is none."""
    try:
        difference = np.asarray(action, dtype=float) - np.asarray(prior, dtype=float)
    except (TypeError, ValueError):
        return None
    if difference.size == 0 or not np.all(np.isfinite(difference)):
        return None
    away = float(difference.item()) if difference.size == 1 else float(np.max(np.abs(difference)))
    return away if math.isfinite(away) else None
