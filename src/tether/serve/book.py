"""The book of a service: plants, their episodes and what the operator said, moved on by one request at a time.

No clock, no thread, no prior and no file: a `Book` is a function of the requests in their order, and the journal is the
list of these. `Service` asks the priors, writes the journal and answers; `tether journal replay` does it all again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

from tether.core.journal import text
from tether.serve.episode import Asked, Came, Episode
from tether.serve.memory import Memory
from tether.serve.plant import Plant
from tether.serve.replies import Conflict, Control, Full, Receipt, Refused, Reply, Unknown
from tether.serve.requests import Request

ENDED = 64
"""How many ended episodes of a plant still answer what is repeated."""
LONGEST_NAME = 200
VERSION = 1
"""Of the snapshots."""


class Desk:
    """A plant, its episodes and what happened on it.

    Attributes:
        open: The open episodes, by name.
        ended: What the last that ended have answered, by name.
        held: (who, why) if the operator wants the prior now, else None.
        reasons: How often each reason was answered.
    """

    def __init__(self, name: str, plant: Plant) -> None:
        self.name, self.plant = name, plant
        self.open: dict[str, Episode] = {}
        self.ended: OrderedDict[str, Memory] = OrderedDict()
        self.held: tuple[str, str] | None = None
        self.reasons: Counter[str] = Counter()
        self.breaches = 0

    def episode(self, name: str) -> Episode:
        """An open episode."""
        found = self.open.get(name)
        if found is not None:
            return found
        if name in self.ended:
            raise Refused(f"episode {name!r} is over; open another with reset")
        raise Unknown(f"plant {self.name!r} has no episode {name!r}; open it with reset")

    def memory(self, name: str) -> Memory | None:
        """What an episode that is open, or has ended lately, has answered."""
        found = self.open.get(name)
        return self.ended.get(name) if found is None else found.memory

    def memories(self) -> list[tuple[str, Memory]]:
        """What every such episode has answered, by name."""
        return [*((name, each.memory) for name, each in self.open.items()), *self.ended.items()]

    def close(self, episode: Episode) -> None:
        """Move an episode to the ended ones; all but its last rounds are forgotten."""
        del self.open[episode.name]
        episode.memory.forget(episode.guard.round - 2)
        self.ended[episode.name] = episode.memory
        while len(self.ended) > ENDED:
            self.ended.popitem(last=False)

    def to_json(self) -> dict[str, Any]:
        """All of it, fit for `text.dumps`."""
        return {
            "plant": self.plant.to_dict(),
            "limits": self.plant.limits(),
            "open": {name: each.to_json() for name, each in self.open.items()},
            "ended": {name: each.to_json() for name, each in self.ended.items()},
            "held": None if self.held is None else list(self.held),
            "reasons": dict(self.reasons),
            "breaches": self.breaches,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """What `to_json` gave."""
        if saved["open"] and saved["plant"] != text.loads(text.dumps(self.plant.to_dict())):
            raise ValueError(
                f"plant {self.name!r} has open episodes under another certificate, bounds or policies than it has now: "
                f"{saved['plant']!r}; end them with the old configuration first"
            )
        for name, each in saved["open"].items():
            self.open[name] = Episode.restored(self.name, name, self.plant, each)
        for name, each in saved["ended"].items():
            self.ended[name] = Memory(name)
            self.ended[name].restore(each)
        self.held = None if saved["held"] is None else tuple(saved["held"])
        self.reasons, self.breaches = Counter(saved["reasons"]), saved["breaches"]

    def status(self) -> dict[str, Any]:
        """What there is to see, fit for JSON."""
        contract = self.plant.certificate.contract
        return {
            "lam": contract.lam,
            "b": contract.b,
            "horizon": contract.horizon,
            "cost_floor": contract.cost_floor,
            "held": None if self.held is None else dict(zip(("who", "why"), self.held, strict=True)),
            "decisions": sum(self.reasons.values()),
            "reasons": dict(self.reasons),
            "breaches": self.breaches,
            "episodes": [each.status() for each in self.open.values()],
        }


class Book:
    """Plants by name, each with its episodes.

    Args:
        plants: By name.
    """

    def __init__(self, plants: Mapping[str, Plant]) -> None:
        self.desks = {name: Desk(name, plant) for name, plant in plants.items()}

    def desk(self, plant: str | None) -> Desk:
        """The desk of a plant."""
        found = self.desks.get(plant) if plant is not None else None
        if found is None:
            raise Unknown(f"there is no plant {plant!r}; there are {', '.join(self.desks) or 'none'}")
        return found

    def repeated(self, request: Request, content: bytes) -> Reply | None:
        """The reply that the same request got before; None if it is new.

        Raises:
            Unknown: There is no such plant.
            Conflict: The round was asked or reported with another content.
        """
        if request.kind in ("prior now", "resume"):
            return None
        memory = self.desk(request.plant).memory(request.episode)
        return None if memory is None else memory.repeated((request.kind, request.round), content)

    def do(self, request: Request, content: bytes) -> Reply:
        """Do what is asked, which must be new; an exception leaves everything as it was."""
        kind = request.kind
        if kind == "prior now" or kind == "resume":
            return self._control(request)
        desk = self.desk(request.plant)
        if kind == "reset":
            return self._open(desk, request, content)
        episode = desk.episode(request.episode)
        before = episode.guard.breach
        reply: Reply
        if kind == "act":
            answer = episode.act(request.round, Asked(*request.content), desk.held is not None)
            desk.reasons[answer.reason] += 1
            reply = answer
        elif kind == "observe":
            reply = episode.observe(request.round, Came(*request.content))
        elif kind == "report":
            reply = episode.report(request.round, *request.content)
        elif kind == "end":
            _who_and_why(request.content)
            reply = episode.receipt(0)._replace(over=True)
        else:
            raise Refused(f"there is no request {kind!r}")
        if before is None and episode.guard.breach is not None:
            desk.breaches += 1
        episode.remember((kind, request.round), content, reply)
        if episode.over or kind == "end":
            desk.close(episode)
        return reply

    def _open(self, desk: Desk, request: Request, content: bytes) -> Receipt:
        name = request.episode
        if not 0 < len(name) <= LONGEST_NAME:
            raise Refused(f"an episode's name must have 1 to {LONGEST_NAME} characters, got {len(name)}")
        if name in desk.ended:
            raise Conflict(f"episode {name!r} has ended; open another under a new name")
        if len(desk.open) >= desk.plant.open_episodes:
            raise Full(
                f"{len(desk.open)} episodes of plant {desk.name!r} are open, the most there may be; end one"
            )
        episode = desk.open[name] = Episode(desk.name, name, desk.plant)
        receipt = episode.receipt(0)
        episode.remember(("reset", 0), content, receipt)
        return receipt

    def _control(self, request: Request) -> Control:
        who, why = _who_and_why(request.content)
        desks = list(self.desks.values()) if request.plant is None else [self.desk(request.plant)]
        for desk in desks:
            desk.held = (who, why) if request.kind == "prior now" else None
        return Control(request.kind, [desk.name for desk in desks], who, why)

    def status(self) -> dict[str, Any]:
        """What there is to see of every plant, by name, fit for JSON."""
        return {name: desk.status() for name, desk in self.desks.items()}

    # How it is kept.

    def snapshot(self) -> str:
        """All of it, as text."""
        return text.dumps(
            {"version": VERSION, "plants": {n: each.to_json() for n, each in self.desks.items()}}
        )

    def restore(self, snapshot: str) -> None:
        """What `snapshot` gave, for the same plants; new ones may have come.

        Raises:
            ValueError: It is of another version, or a plant is missing or is another one now.
        """
        saved = text.loads(snapshot)
        if saved.get("version") != VERSION:
            raise ValueError(f"expected a journal of version {VERSION}, got {saved.get('version')!r}")
        for name, each in saved["plants"].items():
            if name not in self.desks:
                if each["open"]:
                    raise ValueError(f"plant {name!r} has open episodes in the journal but is not configured")
                continue
            self.desks[name].restore(each)


def _who_and_why(content: list[Any]) -> tuple[str, str]:
    who, why = content
    if not (isinstance(who, str) and who.strip() and isinstance(why, str) and why.strip()):
        raise Refused(f"say who does this, and why, got who={who!r}, why={why!r}")
    return who, why
