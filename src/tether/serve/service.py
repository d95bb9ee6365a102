"""The guard as a service, without a transport: requests in, answers out, from any number of threads.

The order is: decide, write to the journal, wait until it is as durable as was chosen, answer. So every decision that
was answered is in the journal, and what is not in it was not answered.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tether.core import validate
from tether.core.journal import text
from tether.core.journal.journal import Durability, Journal, JournalFailed
from tether.serve import requests
from tether.serve.book import Book
from tether.serve.events import Publisher, Subscription
from tether.serve.memory import digest
from tether.serve.plant import Plant
from tether.serve.records import replay, with_prior, written
from tether.serve.replies import Answer, Control, Receipt, Refused, Reply, ServiceError, Unavailable
from tether.serve.requests import Request


class Service:
    """Guards for many plants and episodes at once.

    A request is known by (plant, episode, round): the same one again gets the same answer and changes nothing; another
    content for the same round is a `Conflict`. A round that is asked before an earlier one was reported is answered
    with the backup (`Answer.reason` is "gap") until everything before it is reported: send `act` for the rounds that
    were not asked, and `observe(..., applied=...)` with what was played. Say `applied` in every report, and the theorem
    of docs/crash-theorem.md holds.

    Args:
        plants: By name.
        journal: The folder of the journal, or a `Journal`; None to forget everything when the process ends. What is in
            it is gone on with, exactly; a request that was not answered is answered when it is repeated.
        durability: What a folder's journal waits for before an answer is given, see `Journal`.
        clock: Seconds since 1970, written with every record; no decision depends on it.

    Attributes:
        recovered: What was found in the journal, fit for JSON; None without one.

    Raises:
        JournalDamaged: The journal is not what was written.
        JournalInUse: Another process writes it.
        ValueError: It does not go with these plants, or what it answered cannot be computed again.

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

    def __init__(
        self,
        plants: Mapping[str, Plant],
        journal: str | Path | Journal | None = None,
        durability: Durability = "process",
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for name, plant in plants.items():
            if not isinstance(name, str) or not isinstance(plant, Plant):
                raise TypeError(f"plants must be Plants by name, got {name!r}: {plant!r}")
        self._plants = dict(plants)
        self._clock = clock
        self._lock = threading.RLock()
        self._book = Book(self._plants)
        self._events = Publisher()
        self._stopped: str | None = None
        self._journal = journal if isinstance(journal, Journal | None) else Journal(journal, durability)
        self.recovered: dict[str, Any] | None = None
        if self._journal is not None:
            try:
                self.recovered = self._recover(self._journal)
            except BaseException:
                self._journal.close()
                raise

    def _recover(self, journal: Journal) -> dict[str, Any]:
        """Bring the book back, and begin a segment with it: what was found is written once more."""
        found = journal.recovered
        if found.snapshot is not None:
            self._book.restore(found.snapshot)
        replayed = replay(self._book, found.records, found.last - len(found.records) + 1)
        journal.begin(self._book.snapshot())
        return {"records": replayed, "last": found.last, "cut": found.cut}

    def close(self) -> None:
        """Stop in good order: the journal ends with a snapshot, and another version may go on with it."""
        if self._journal is None:
            return
        with self._lock:
            with contextlib.suppress(JournalFailed):
                self._journal.begin(self._book.snapshot())
            self._journal.close()

    # The control loop.

    def reset(self, plant: str, episode: str) -> Receipt:
        """Open an episode; at its start the promise starts, from the state that the plant is in."""
        return cast(Receipt, self._ask(requests.reset(plant, episode)))

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
        return cast(Answer, self._ask(requests.act(plant, episode, round, observation, proposal, prior)))

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
        override: str | None = None,
    ) -> Receipt:
        """Report what came of a round.

        Say what was `applied` in every report: should the answer have been lost with the machine, it is needed.

        Args:
            plant: By name.
            episode: By name.
            round: Counted from 1.
            cost: The round's cost; None if it is not known yet, where the certificate can do without (`report`).
            revealed: As in `tether.Guard.observe`.
            applied: What was really played; None if it was what was answered.
            reward: As in `tether.Guard.observe`.
            next_observation: As in `tether.Guard.observe`.
            override: Who decided otherwise, and why, as in `tether.Guard.observe`.

        Raises:
            Unknown: There is no such plant or episode, or the round has not been asked, or it is closed and forgotten.
            Conflict: The round was reported with another content.
            Refused: `revealed` or `applied` is not what it must be.
            Unavailable: The journal cannot be written.
        """
        request = requests.observe(
            plant, episode, round, cost, revealed, applied, reward, next_observation, override
        )
        return cast(Receipt, self._ask(request))

    def report(self, plant: str, episode: str, round: int, cost: Any) -> Receipt:  # noqa: A002
        """The cost of a round that was observed without one.

        Raises:
            Unknown: The round does not wait for a cost.
            Conflict: Another cost was reported.
        """
        return cast(Receipt, self._ask(requests.report(plant, episode, round, cost)))

    def batch(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Reply | ServiceError]:
        """Do several requests in their order; each is answered, or refused, by itself.

        Args:
            calls: The name of a method (reset, act, observe, report, end) and its arguments by name.
        """
        done: list[Reply | ServiceError] = []
        last = 0
        for name, arguments in calls:
            try:
                make = requests.BATCHED.get(name)
                if make is None:
                    raise Refused(f"a batch is made of {', '.join(requests.BATCHED)}, got {name!r}")
                reply, last = self._do(make(**arguments))
                done.append(reply)
            except ServiceError as error:
                done.append(error)
            except TypeError as error:
                done.append(Refused(f"{name}: {error}"))
        self._wait(last)
        return done

    # The operator.

    def end(self, plant: str, episode: str, who: str, why: str) -> Receipt:
        """End an episode before its horizon."""
        return cast(Receipt, self._ask(requests.end(plant, episode, who, why)))

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
            plants = self._book.status()
            journal = self._journal
            if journal is None:
                return {"plants": plants, "journal": None, "stopped": self._stopped}
            return {
                "plants": plants,
                "stopped": self._stopped,
                "journal": {
                    "path": journal.path,
                    "durability": journal.durability,
                    "records": journal.last,
                    "lag": journal.lag,
                    "segment": journal.segments,
                    "failure": journal.failure,
                    "recovered": self.recovered,
                },
            }

    def account(self, plant: str, episode: str) -> dict[str, Any]:
        """What the certificate remembers of an open episode, and the round-off that is counted with; fit for JSON.

        Two episodes with the same account have the same promise left, and will get the same answers.
        """
        with self._lock:
            saved = self._book.desk(plant).episode(episode).guard.state_dict()
            return {"state": saved["state"], "epsilon": saved["epsilon"]}

    def remembered(self) -> list[tuple[str, str, str, int, list[Any]]]:
        """(plant, episode, kind, round, fields of the reply) of every request that gets its answer again."""
        with self._lock:
            return [
                (plant, name, kind, number, reply)
                for plant, desk in self._book.desks.items()
                for name, memory in desk.memories()
                for kind, number, _, reply in memory.to_json()
            ]

    def subscribe(self, size: int = 1000) -> Subscription:
        """A queue of events from now on: a dictionary each, with "kind", "time" and the fields of the reply."""
        return self._events.subscribe(validate.count("size", size))

    # How a request is done.

    def _ask(self, request: Request) -> Reply:
        reply, number = self._do(request)
        self._wait(number)
        return reply

    def _do(self, request: Request) -> tuple[Reply, int]:
        """The reply, and the number of the record that must be durable before it is given."""
        sent = request.sent()
        content = digest(sent)
        asked = Request(*request[:4], text.loads(sent))
        new = self._book.repeated(asked, content) is None
        said = self._said(asked) if new and asked.kind == "act" else []
        with self._lock:
            self._require_journal()
            reply = self._book.repeated(asked, content)
            if reply is not None:
                return reply, self._last
            now = self._clock()
            reply = self._decide(with_prior(asked, said), content)
            if self._journal is not None:
                self._write(self._journal, written(asked, sent, said, now, reply))
            last = self._last
        if self._events.watched:
            self._events.publish({"kind": request.kind, "time": now, **reply._asdict()})
        return reply, last

    def _decide(self, request: Request, content: bytes) -> Reply:
        try:
            return self._book.do(request, content)
        except ServiceError:
            raise
        except Exception as error:
            self._stopped = f"a request could not be done ({error!r}), and may have been done in part"
            raise Unavailable(self._stopped) from error

    @property
    def _last(self) -> int:
        return 0 if self._journal is None else self._journal.last

    def _require_journal(self) -> None:
        """What was decided and not written is written first; until then nothing more is decided."""
        if self._stopped is not None:
            raise Unavailable(f"{self._stopped}; start the service again, so that it reads its journal")
        if self._journal is not None:
            try:
                self._journal.flush()
            except JournalFailed as error:
                raise Unavailable(str(error)) from error

    def _write(self, journal: Journal, record: str) -> None:
        try:
            journal.append(record)
        except JournalFailed as error:
            raise Unavailable(str(error)) from error
        if journal.due:
            with contextlib.suppress(JournalFailed):  # the old segment goes on, or the next request is told
                journal.begin(self._book.snapshot())

    def _wait(self, number: int) -> None:
        if self._journal is not None:
            try:
                self._journal.wait(number)
            except JournalFailed as error:
                raise Unavailable(str(error)) from error

    def _said(self, request: Request) -> list[Any]:
        """[what the prior says], asked outside of the lock, since a prior may be slow; [] if it was sent along."""
        observation, _, sent = request.content
        prior = self._book.desk(request.plant).plant.prior
        if prior is None:
            if sent is None:
                raise Refused(
                    f"plant {request.plant!r} has no prior of its own; send the prior's action with act"
                )
            return []
        if sent is not None:
            raise Refused(f"plant {request.plant!r} has a prior of its own; send none with act")
        try:
            said = prior(observation)
        except Exception as error:
            raise Refused(f"the prior raised {error!r}; no action is known to be safe") from error
        if type(said) is float:
            return [said]
        try:
            return [text.loads(text.dumps(said))]
        except (TypeError, ValueError) as error:
            raise Refused(f"the prior returned what is no action: {error}") from error
