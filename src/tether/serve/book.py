"""The book of a service: plants, their episodes and what the operator said, moved on by one request at a time.

No clock, no thread, no prior and no file: a `Book` is a function of the requests in their order, and the journal is the
list of these. `Service` asks the priors, writes the journal and answers; `tether journal replay` does it all again.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from tether.serve.episode import Asked, Came, Episode
from tether.serve.plant import Plant
from tether.serve.replies import Conflict, Control, Full, Receipt, Refused, Reply, Unknown

ENDED = 64
"""How many ended episodes of a plant still answer what is repeated."""
LONGEST_NAME = 200


class Request(NamedTuple):
    """What is asked of the book."""

    kind: str
    """"reset", "act", "observe", "end", "prior now" or "resume"."""
    plant: str | None
    """By name; None for every plant, where the operator may say so."""
    episode: str
    """By name; "" where it is not about one."""
    round: int
    """Counted from 1; 0 where it is not about one."""
    content: list[Any]
    """What else was sent: [observation, proposal, prior's action], [cost, revealed, applied, reward, next observation]
    or [who, why]."""


class Desk:
    """A plant, its episodes and what happened on it.

    Attributes:
        open: The open episodes, by name.
        ended: The last that ended.
        held: (who, why) if the operator wants the prior now, else None.
        reasons: How often each reason was answered.
    """

    def __init__(self, name: str, plant: Plant) -> None:
        self.name, self.plant = name, plant
        self.open: dict[str, Episode] = {}
        self.ended: OrderedDict[str, Episode] = OrderedDict()
        self.held: tuple[str, str] | None = None
        self.reasons: Counter[str] = Counter()
        self.breaches = 0

    def episode(self, name: str) -> Episode:
        """An episode that is open or has ended lately."""
        found = self.open.get(name) or self.ended.get(name)
        if found is None:
            raise Unknown(f"plant {self.name!r} has no episode {name!r}; open it with reset")
        return found

    def close(self, episode: Episode) -> None:
        """Move an episode to the ended ones; all but its last rounds are forgotten."""
        del self.open[episode.name]
        episode.ended = True
        episode.waiting.clear()
        last = episode.guard.round - 2
        episode.answered = {
            key: value for key, value in episode.answered.items() if key[1] >= last or key[1] == 0
        }
        self.ended[episode.name] = episode
        while len(self.ended) > ENDED:
            self.ended.popitem(last=False)

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

    def repeated(self, request: Request, digest: bytes) -> Reply | None:
        """The reply that the same request got before; None if it is new.

        Raises:
            Unknown: There is no such plant or episode.
            Conflict: The round was asked or reported with another content.
        """
        if request.kind in ("prior now", "resume"):
            return None
        desk = self.desk(request.plant)
        if request.kind == "reset" and request.episode not in desk.open and request.episode not in desk.ended:
            return None
        return desk.episode(request.episode).repeated((request.kind, request.round), digest)

    def do(self, request: Request, digest: bytes) -> Reply:
        """Do what is asked, which must be new; an exception leaves everything as it was."""
        kind = request.kind
        if kind == "prior now" or kind == "resume":
            return self._control(request)
        desk = self.desk(request.plant)
        if kind == "reset":
            return self._open(desk, request, digest)
        episode = desk.episode(request.episode)
        before = episode.guard.breach
        reply: Reply
        if kind == "act":
            answer = episode.act(request.round, Asked(*request.content), desk.held is not None)
            desk.reasons[answer.reason] += 1
            reply = answer
        elif kind == "observe":
            reply = episode.observe(request.round, Came(*request.content))
        elif kind == "end":
            reply = self._end(desk, episode, request)
        else:
            raise Refused(f"there is no request {kind!r}")
        if before is None and episode.guard.breach is not None:
            desk.breaches += 1
        episode.remember((kind, request.round), digest, reply)
        if (episode.over or kind == "end") and request.episode in desk.open:
            desk.close(episode)
        return reply

    def _open(self, desk: Desk, request: Request, digest: bytes) -> Receipt:
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
        episode.remember(("reset", 0), digest, receipt)
        return receipt

    def _end(self, desk: Desk, episode: Episode, request: Request) -> Receipt:
        _who_and_why(request.content)
        if episode.name not in desk.open:
            raise Refused(f"episode {episode.name!r} is over")
        return episode.receipt(0)._replace(over=True)

    def _control(self, request: Request) -> Control:
        who, why = _who_and_why(request.content)
        desks = list(self.desks.values()) if request.plant is None else [self.desk(request.plant)]
        for desk in desks:
            desk.held = (who, why) if request.kind == "prior now" else None
        return Control(request.kind, [desk.name for desk in desks], who, why)

    def status(self) -> dict[str, Any]:
        """What there is to see of every plant, by name, fit for JSON."""
        return {name: desk.status() for name, desk in self.desks.items()}


def _who_and_why(content: list[Any]) -> tuple[str, str]:
    who, why = content
    if not (isinstance(who, str) and who.strip() and isinstance(why, str) and why.strip()):
        raise Refused(f"say who does this, and why, got who={who!r}, why={why!r}")
    return who, why


def digest(sent: str) -> bytes:
    """Tells what was sent from anything else."""
    return hashlib.blake2b(sent.encode(), digest_size=16).digest()
