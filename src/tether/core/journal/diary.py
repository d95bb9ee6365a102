"""The journal of one guard, without a server: every call is written before its result is given.

A record is what a method was called with, what the prior said and what came of it. To go on, the calls since the last
snapshot are made again; every decision must come out as it was, bit for bit.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tether.core import convert
from tether.core.decision import Decision, GuardMisuse
from tether.core.journal import text
from tether.core.journal.journal import Differs, Journal, JournalFailed

if TYPE_CHECKING:
    from tether.core.guard import Guard

VERSION = 1
"""Of the snapshots."""
_NO_PRIOR = "the prior gave no action"


class Heard:
    """A prior, and what it has said last."""

    def __init__(self, prior: Callable[[Any], Any]) -> None:
        self._prior = prior
        self.said: list[Any] = []

    def __call__(self, observation: Any) -> Any:
        """Ask the prior."""
        said = self._prior(observation)
        self.said = [said]
        return said


class Diary:
    """Writes down what a guard is asked and what it decides.

    Args:
        guard: As it is now; the journal goes on from here.
        journal: Open, and with nothing in it that the guard does not know.
    """

    def __init__(self, guard: Guard, journal: Journal) -> None:
        self.journal = journal
        journal.begin(snapshot(guard))

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of a guard writes no journal

    def record(
        self, guard: Guard, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Call a method of the guard and write it down, before its result is given.

        Raises:
            JournalFailed: It could not be written; what was decided must not be played. The prior is safe.
            TypeError: An observation or a cost cannot be written down; nothing has changed.
        """
        with guard._turn.lock:
            self.journal.flush()
            name = method.__name__
            if name == "act":
                given, named = _act(*given, **named), {}
            sent = text.dumps([list(given), named])
            prior, error, result = guard.prior, None, None
            heard = guard.prior = Heard(prior)
            try:
                result = method(guard, *given, **named)
            except GuardMisuse:
                raise  # nothing has changed
            except Exception as raised:
                error = raised
            finally:
                guard.prior = prior
            said = [_written_or_none(each) for each in heard.said]
            head = text.dumps([name, time.time(), _reply(result, error), said])
            number = self.journal.append(f"{head[:-1]},{sent}]")
            if self.journal.due:
                self._rotate(guard)
        self.journal.wait(number)
        if error is not None:
            raise error
        return result

    def _rotate(self, guard: Guard) -> None:
        try:
            self.journal.begin(snapshot(guard))
        except JournalFailed:
            self.journal.flush()  # the old segment goes on, unless the journal is closed for good


def _act(observation: Any, proposal: Any) -> tuple[Any, Any]:
    """What `act` is called with. A proposal may be anything; what cannot be written is no action."""
    try:
        text.dumps(proposal)
    except (TypeError, ValueError, RecursionError):
        return observation, convert.text(proposal)
    return observation, proposal


def _written_or_none(said: Any) -> Any:
    """What the prior said; what cannot be written was no action."""
    try:
        text.dumps(said)
    except (TypeError, ValueError, RecursionError):
        return _NO_PRIOR
    return said


def _reply(result: Any, error: Exception | None) -> Any:
    """What came of a call, fit for `text.dumps`."""
    if error is not None:
        return {"raised": type(error).__name__}
    if not isinstance(result, Decision):
        return None
    return [each for name, each in result._asdict().items() if name != "proposal"]


def snapshot(guard: Guard) -> str:
    """All of a guard, as text."""
    return text.dumps({"version": VERSION, "guard": guard.state_dict()})


def saved_guard(journal: Journal) -> dict[str, Any]:
    """What `Guard.state_dict` gave when the newest segment began.

    Raises:
        ValueError: This is not the journal of a guard.
    """
    if journal.recovered.snapshot is None:
        raise ValueError(f"{journal.path} has no journal; begin one with Guard(..., journal=path)")
    saved = text.loads(journal.recovered.snapshot)
    if "guard" not in saved or saved.get("version") != VERSION:
        raise ValueError(
            f"{journal.path} is not the journal of a guard; `tether serve` goes on with that of a service"
        )
    guard: dict[str, Any] = saved["guard"]
    return guard


def replay(guard: Guard, payloads: list[str], first: int) -> None:
    """Make the same calls again, with what the prior said then, and compare every decision bit for bit.

    Args:
        guard: As it was before; its prior is not asked.
        payloads: What happened then.
        first: The number of the first of them.

    Raises:
        Differs: A decision is another one now.
    """
    prior = guard.prior
    try:
        for number, payload in enumerate(payloads, first):
            name, _, reply, said, (given, named) = text.loads(payload)
            guard.prior = _saying(said)
            method = getattr(type(guard), name).__wrapped__
            result, error = None, None
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = method(guard, *given, **named)
            except Exception as raised:
                error = raised
            now, then = text.dumps(_reply(result, error)), text.dumps(reply)
            if now != then and not (error is None and "AssumptionBreach" in then):
                raise Differs(
                    f"record {number}: {name} led to {then}, but now it leads to {now}. If the journal was written by "
                    "another version of tether, or with another certificate or monitor, go on with that one"
                )
    finally:
        guard.prior = prior


def _saying(said: list[Any]) -> Callable[[Any], Any]:
    """A prior that says this again; where it raised, so does this."""

    def prior(_: Any) -> Any:
        (action,) = said
        return action

    return prior
