"""How a guard is kept: as plain numbers, and in a journal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from tether.core import saving
from tether.core.certificate import Action, Certificate, Observation
from tether.core.journal.diary import Diary, replay, saved_guard
from tether.core.journal.journal import Durability, Journal
from tether.core.monitor import Monitor
from tether.core.standing import Standing

Method = TypeVar("Method", bound=Callable[..., Any])
_MISSING: Any = object()


def recorded(method: Method) -> Method:
    """A method of a guard that is written to its journal, if it has one, before it returns."""

    # Two arguments by their places, as in most calls: handing on any number of them takes three times as long.
    @functools.wraps(method)
    def call(guard: Any, first: Any = _MISSING, second: Any = _MISSING, /, *others: Any, **named: Any) -> Any:
        diary = guard._diary
        if diary is None and not named:
            if second is _MISSING:
                return method(guard) if first is _MISSING else method(guard, first)
            if not others:
                return method(guard, first, second)
        given = tuple(each for each in (first, second) if each is not _MISSING) + others
        if diary is None:
            return method(guard, *given, **named)
        return diary.record(guard, method, given, named)

    return cast(Method, call)


def recorded_pair(method: Method) -> Method:
    """The same of a method of two arguments, whose calls need not be looked at: `Guard.act`."""

    @functools.wraps(method)
    def call(guard: Any, observation: Any, proposal: Any) -> Any:
        if guard._diary is None:
            return method(guard, observation, proposal)
        return guard._diary.record(guard, method, (observation, proposal), {})

    return cast(Method, call)


class Keeping(Standing):
    """What `tether.Guard` can be saved to and restored from."""

    _diary: Diary | None = None

    def state_dict(self) -> dict[str, Any]:
        """Everything but the prior and the monitor, as plain numbers fit for JSON; valid in the middle of a round too.

        What the monitor remembers is included.
        """
        guard: Any = self
        with guard._turn.lock:
            return saving.describe(guard)

    @classmethod
    def from_state_dict(
        cls,
        saved: dict[str, Any],
        prior: Callable[[Observation], Action],
        certificate: Certificate | None = None,
        *,
        monitor: Monitor | None = None,
    ) -> Self:
        """The guard that `state_dict` saved; its decisions go on as if it had never stopped.

        Args:
            saved: What `state_dict` gave.
            prior: The prior that it had.
            certificate: The certificate that it had, if it has a structure or an environment that is not in the saved
                numbers.
            monitor: The monitor that it had, if it had one.

        Raises:
            ValueError: These are not the numbers of a guard, or none that an episode can have led to.
        """
        return cast(Self, saving.made(cast(Any, cls), saved, prior, certificate, monitor))

    @classmethod
    def recover(
        cls,
        journal: str | Path | Journal,
        prior: Callable[[Observation], Action],
        certificate: Certificate | None = None,
        *,
        monitor: Monitor | None = None,
        durability: Durability = "process",
    ) -> Self:
        """The guard that wrote a journal, as it was when it stopped; it goes on with the journal.

        If a round is open, its action was decided (`open_action`). Whether the plant has played it the guard cannot
        know: close the round with `observe(cost, applied=...)`, what was played and paid.

        Args:
            journal: The folder, or a `Journal`.
            prior: The prior that it had; it is not asked again what it was asked before.
            certificate: As in `from_state_dict`.
            monitor: As in `from_state_dict`.
            durability: Of a folder's journal from here on, see `Journal`.

        Raises:
            JournalDamaged: The journal is not what was written.
            JournalInUse: Another process writes it.
            ValueError: It is none of a guard, or what was decided cannot be computed again.
        """
        kept = journal if isinstance(journal, Journal) else Journal(journal, durability)
        try:
            guard: Any = cls.from_state_dict(saved_guard(kept), prior, certificate, monitor=monitor)
            found = kept.recovered
            replay(guard, found.records, found.last - len(found.records) + 1)
            guard._diary = Diary(guard, kept)
        except BaseException:
            kept.close()
            raise
        return cast(Self, guard)

    def _begin_journal(self, journal: str | Path | Journal | None) -> None:
        """Write everything from here on, if there is a journal."""
        if journal is None:
            return
        kept = journal if isinstance(journal, Journal) else Journal(journal)
        try:
            if kept.recovered.snapshot is not None:
                raise ValueError(
                    f"{kept.path} has the journal of a guard: go on with Guard.recover(path, prior), or give an empty "
                    "folder"
                )
            self._diary = Diary(cast(Any, self), kept)
        except BaseException:
            kept.close()
            raise

    @property
    def journal(self) -> Journal | None:
        """The journal, if there is one; `journal.close()` lets another process have it."""
        return None if self._diary is None else self._diary.journal

    @property
    def open_action(self) -> Action | None:
        """What was decided for the round that is open; None if none is."""
        guard: Any = self
        with guard._turn.lock:
            return None if guard._taken is None else guard._actions.given(guard._decided)
