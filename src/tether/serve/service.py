"""The guard as a service, without a transport: requests in, answers out, from any number of threads.

The order is: decide, write to the journal, wait until it is as durable as was chosen, answer. So every decision that
was answered is in the journal, and what is not in it was not answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tether.core import validate
from tether.core.journal import text
from tether.serve.book import Book, Request, digest
from tether.serve.events import Publisher, Subscription
from tether.serve.plant import Plant
from tether.serve.replies import Answer, Control, Receipt, Refused, Reply, ServiceError


class Service:
    """Guards for many plants and episodes at once.

    A request is known by (plant, episode, round): the same one again gets the same answer and changes nothing; another
    content for the same round is a `Conflict`. A round that is asked before an earlier one was reported is answered
    with the backup (`Answer.reason` is "gap") until everything before it is reported: send `act` for the rounds that
    were not asked, and `observe(..., applied=...)` with what was played.

    Args:
        plants: By name.
        clock: Seconds since 1970, written with every record; no decision depends on it.

    Example:
        >>> from tether import Contract, LipschitzCertificate, Sensitivity, geometric
        >>> certificate = LipschitzCertificate(
        ...     Contract(lam=0.5, b=1.0, horizon=3, cost_floor=1.0), Sensitivity(2.0, 1.0, geometric(0.5))
        ... )
        >>> service = Service({"boiler": Plant(certificate, prior=lambda t: 20.0 - t, low=-10.0, high=10.0)})
        >>> service.reset("boiler", "monday").account
        1
        >>> answer = service.act("boiler", "monday", 1, observation=18.0, proposal=9.0)
        >>> round(answer.action, 3), answer.reason, answer.backup
        (2.75, 'too far', 'prior')
        >>> service.observe("boiler", "monday", 1, cost=1.2).account
        2
    """

    def __init__(self, plants: Mapping[str, Plant], *, clock: Callable[[], float] = time.time) -> None:
        for name, plant in plants.items():
            if not isinstance(name, str) or not isinstance(plant, Plant):
                raise TypeError(f"plants must be Plants by name, got {name!r}: {plant!r}")
        self._plants = dict(plants)
        self._clock = clock
        self._lock = threading.RLock()
        self._book = Book(self._plants)
        self._events = Publisher()

    # The control loop.

    def reset(self, plant: str, episode: str) -> Receipt:
        """Open an episode; at its start the promise starts, from the state that the plant is in."""
        return cast(Receipt, self._ask(Request("reset", plant, episode, 0, [])))

    def act(
        self,
        plant: str,
        episode: str,
        round: int,  # noqa: A002
        observation: Any,
        proposal: Any,
        prior: Any = None,
    ) -> Answer:
        """Decide what to play in a round.

        Args:
            plant: By name.
            episode: By name.
            round: Counted from 1.
            observation: What the prior and the certificate need.
            proposal: The learner's action; what is none leads to a safe one.
            prior: The prior's action, where the plant's prior is not known to the service; else None.

        Raises:
            Unknown: There is no such plant or episode, or the round is closed and forgotten.
            Conflict: The round was asked with another content.
            Refused: The round is not one of the episode, or there is no action of the prior.
            Full: Too many rounds wait for a report.
            Unavailable: The journal cannot be written.
        """
        return cast(Answer, self._ask(Request("act", plant, episode, round, [observation, proposal, prior])))

    def observe(
        self,
        plant: str,
        episode: str,
        round: int,  # noqa: A002
        cost: Any,
        revealed: Mapping[str, Any] | None = None,
        applied: Any = None,
        reward: Any = None,
        next_observation: Any = None,
    ) -> Receipt:
        """Report what came of a round.

        Args:
            plant: By name.
            episode: By name.
            round: Counted from 1.
            cost: The round's cost.
            revealed: As in `tether.Guard.observe`.
            applied: What was really played, where that is not what was answered; None if it is.
            reward: As in `tether.Guard.observe`.
            next_observation: As in `tether.Guard.observe`.

        Raises:
            Unknown: There is no such plant or episode, or the round has not been asked, or it is closed and forgotten.
            Conflict: The round was reported with another content.
            Refused: `revealed` or `applied` is not what it must be.
            Unavailable: The journal cannot be written.
        """
        content = [cost, revealed, applied, reward, next_observation]
        return cast(Receipt, self._ask(Request("observe", plant, episode, round, content)))

    def batch(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Reply | ServiceError]:
        """Do several requests in their order; each is answered, or refused, by itself.

        Args:
            calls: The name of a method (reset, act, observe, end) and its arguments by name.
        """
        done: list[Reply | ServiceError] = []
        for name, arguments in calls:
            try:
                if name not in ("reset", "act", "observe", "end"):
                    raise Refused(f"a batch is made of reset, act, observe and end, got {name!r}")
                done.append(getattr(self, name)(**arguments))
            except ServiceError as error:
                done.append(error)
            except TypeError as error:
                done.append(Refused(str(error)))
        return done

    # The operator.

    def end(self, plant: str, episode: str, who: str, why: str) -> Receipt:
        """End an episode before its horizon."""
        return cast(Receipt, self._ask(Request("end", plant, episode, 0, [who, why])))

    def prior_now(self, plant: str | None, who: str, why: str) -> Control:
        """Let the prior play from the next decision on, on one plant or (None) on all, until `resume`."""
        return cast(Control, self._ask(Request("prior now", plant, "", 0, [who, why])))

    def resume(self, plant: str | None, who: str, why: str) -> Control:
        """Let proposals be played again, on one plant or (None) on all."""
        return cast(Control, self._ask(Request("resume", plant, "", 0, [who, why])))

    # Those who watch.

    def status(self) -> dict[str, Any]:
        """Everything that there is to see, fit for JSON: by plant, and of the journal."""
        with self._lock:
            return {"plants": self._book.status(), "journal": None}

    def subscribe(self, size: int = 1000) -> Subscription:
        """A queue of events from now on: a dictionary each, with "kind", "time" and the fields of the reply."""
        return self._events.subscribe(validate.count("size", size))

    # How a request is done.

    def _ask(self, request: Request) -> Reply:
        request, key = _checked(request)
        repeated = self._book.repeated(request, key)
        if repeated is not None:
            return repeated
        asked = self._with_prior(request)
        with self._lock:
            repeated = self._book.repeated(request, key)
            if repeated is not None:
                return repeated
            reply = self._book.do(asked, key)
            now = self._clock()
        if self._events.watched:
            self._events.publish({"kind": request.kind, "time": now, **reply._asdict()})
        return reply

    def _with_prior(self, request: Request) -> Request:
        """The request with what the prior says; asked outside of the lock, since a prior may be slow."""
        if request.kind != "act":
            return request
        observation, proposal, sent = request.content
        prior = self._book.desk(request.plant).plant.prior
        if prior is None:
            if sent is None:
                raise Refused(
                    f"plant {request.plant!r} has no prior of its own; send the prior's action with act"
                )
            return request
        if sent is not None:
            raise Refused(f"plant {request.plant!r} has a prior of its own; send none with act")
        try:
            said = prior(observation)
        except Exception as error:
            raise Refused(f"the prior raised {error!r}; no action is known to be safe") from error
        try:
            return request._replace(content=[observation, proposal, text.loads(text.dumps(said))])
        except (TypeError, ValueError) as error:
            raise Refused(f"the prior returned what is no action: {error}") from error


def _checked(request: Request) -> tuple[Request, bytes]:
    """The request as it will be read from the journal, and a digest of what was sent."""
    number = request.round
    if isinstance(number, bool) or not isinstance(number, int):
        raise Refused(f"round must be a whole number, got {number!r}")
    for name, value in (("plant", request.plant), ("episode", request.episode)):
        if not isinstance(value, str | None):
            raise Refused(f"{name} must be text, got {value!r}")
    try:
        sent = text.dumps(request.content)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"{request.kind}: {error}") from error
    return request._replace(content=text.loads(sent)), digest(sent)
