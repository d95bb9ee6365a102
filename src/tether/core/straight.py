"""A certificate's own functions as straight lines of arithmetic: the same numbers, digit for digit, in less time.

Online a round is some hundred sums and comparisons, and calling functions takes longer than all of them. A certificate
is written in `tether.core.ops.Ops` without an `if` on values, so that it can be run once on names instead of numbers:
`tether.core.lines.Lines` writes down each operation as a line of Python, in the order in which plain floats would do
it, and what comes out is compiled as one function. Nothing is left out but what is computed twice from the same names
or not needed, nothing is put in another order but what a search would compute again and again, which is computed before
it, and no formula is written again; `tests/core/test_straight.py` compares both on every rule and on hostile numbers.
What is not told by names (the contract, the constants, the round-off of what is told) becomes a constant, so that there
is a function for each; and so does what an ordinary round has in common: nothing is `breached` or `overridden`.

Only where a certificate says so (`straight`) is this done for a whole round; what it returns is checked by the guard as
ever. Of a structured certificate whose structure does not say so the bounds that its search looks at again and again
are written down (`evaluating`), and what was found is checked by its own functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tether.core.certificate import Action, Box, Certificate, Choice, Outcome
from tether.core.lines import Lines, Name
from tether.core.listing import MOST
from tether.core.ops import Ops

new: Any = tuple.__new__
"""Makes a NamedTuple of all of its fields in half the time."""
_PLAIN = frozenset({float})


class NotWritten(Exception):
    """A certificate's functions cannot be written down: it is to be asked itself."""


class _Row:
    """What is seen, of which each number that is read gets a name."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __getitem__(self, place: int) -> Name:
        return self._lines.line(f"seen[{place:d}]")


def row(observation: Any) -> Any:
    """What is seen as a list of plain floats; None if it is not so many numbers of one of the usual types."""
    if type(observation) is np.ndarray:
        return observation.tolist() if observation.ndim == 1 and observation.dtype.char in "df" else None
    plain = type(observation) in (list, tuple) and _PLAIN.issuperset(map(type, observation))
    return observation if plain else None


def _told(lines: Lines, given: Any, name: str) -> Any:
    """A nest of tuples of numbers, as many names; the line that takes it apart is written.

    What an ordinary round has in common is known, and so is how exact it is.
    """

    def parts(given: Any, name: str) -> tuple[Any, str]:
        if not isinstance(given, tuple):
            return Name(name, lines), name
        found = [parts(each, f"{name}_{i}") for i, each in enumerate(given)]
        names, text = [each for each, _ in found], "".join(f"{text}, " for _, text in found)
        named: Any = given
        if not hasattr(named, "_make"):
            return tuple(names), f"({text})"
        known = {field: False for field in ("breached", "overridden") if field in named._fields}
        known |= {field: getattr(named, field) for field in ("epsilon",) if field in named._fields}
        return named._make(names)._replace(**known), f"({text})"

    names, text = parts(given, name)
    lines.write(f"{text} = {name}" if len(given) else "pass")
    return names


def choosing(certificate: Certificate, state: Any, box: Box, epsilon: float) -> Callable[..., Any]:
    """`open` and `choose` of a certificate in one function of (state, seen, proposal, prior); see the module.

    Args:
        certificate: One that is `straight`.
        state: Any of its states. The function is for those that are not breached and not overridden.
        box: The actions, of one number.
        epsilon: Of `open`.
    """
    lines = Lines()
    ops = cast(Ops, lines)
    opened = certificate.open(_told(lines, state, "state"), _Row(lines), ops, epsilon)
    choice = certificate.choose(opened, Name("proposal", lines), Name("prior", lines), box, ops)
    return lines.function("state, seen, proposal, prior", choice)


def updating(certificate: Certificate, state: Any, taken: Any, epsilon: float) -> Callable[..., Any]:
    """`update` of a certificate as a function of (state, taken, cost), if what was decided was played; see the module.

    Args:
        certificate: One that is `straight`.
        state: Any of its states, as for `choosing`.
        taken: Anything that it took; if that has an `epsilon`, it is to be the same.
        epsilon: Of the cost.
    """
    lines = Lines()
    told = _told(lines, state, "state"), _told(lines, taken, "taken")
    outcome = Outcome(cast(Any, Name("cost", lines)), epsilon=epsilon)
    return lines.function("state, taken, cost", certificate.update(*told, outcome, cast(Ops, lines)))


def writing(function: Callable[[Any, Ops], Any], told: Any) -> Callable[..., Any]:
    """function(told, ops) as lines of what is `told`, a nest of tuples of numbers in an ordinary round."""
    lines = Lines()
    return lines.function("told", function(_told(lines, told, "told"), cast(Ops, lines)))


def evaluating(function: Callable[[Any, Any, Ops], Any], count: int) -> Callable[..., Any]:
    """function(numbers, number, ops) as lines of (`count` numbers, one number)."""
    lines = Lines()
    names = tuple(Name(f"given_{i}", lines) for i in range(count))
    lines.write("".join(f"{each.text}, " for each in names) + "= given")
    return lines.function("given, number", function(names, Name("number", lines), cast(Ops, lines)))


class Written:
    """Functions that were written for a certificate, by what they are for; a copy of it writes its own."""

    def __init__(self) -> None:
        self._functions: dict[Any, Callable[..., Any] | None] = {}

    def __reduce__(self) -> Any:
        return Written, ()

    def of(self, key: Any, write: Callable[[], Callable[..., Any]]) -> Callable[..., Any] | None:
        """The function that `write` gives; None if it cannot be written down.

        It cannot if it decides on a value, or does what only numbers can: it is then to be called as it is.

        Args:
            key: All that the function depends on and that is not told by names.
            write: Writes it.
        """
        try:
            return self._functions[key]
        except KeyError:  # guards in other threads share these, and may drop them at any time
            pass
        if len(self._functions) >= MOST:
            self._functions.clear()
        try:
            written = write()
        except (TypeError, AttributeError):
            written = None
        self._functions[key] = written
        return written


class Straight:
    """The functions of a guard's certificate, written when they are first needed; see the module."""

    def __init__(self) -> None:
        self._of: Any = None
        self._choose: dict[float, Callable[..., Any]] = {}
        self._update: dict[Any, Callable[..., Any]] = {}

    def __reduce__(self) -> Any:
        return Straight, ()  # functions that were written cannot be copied; a copy writes its own

    def chosen(
        self,
        certificate: Any,
        state: Any,
        box: Box,
        observation: Any,
        wish: Action,
        prior: Action,
        epsilon: float,
    ) -> Choice:
        """The certificate's choice where all is single numbers, and stays so: it is only to be inside the bounds.

        Raises:
            NotWritten: The certificate is to be asked itself.
        """
        choose = self._choose.get(epsilon) if certificate is self._of else None
        if choose is None:
            self._forget(certificate)
            choose = self._written(
                certificate, ("choose", box, epsilon), lambda: choosing(certificate, state, box, epsilon)
            )
            self._choose[epsilon] = choose
        seen = row(observation) if certificate.sees else ()
        if seen is None:
            raise NotWritten
        try:
            choice: Choice | None = choose(state, seen, math.nan if wish is None else wish, prior)
        except IndexError:  # too few numbers were seen
            choice = None
        if choice is None:
            raise NotWritten
        action = choice[0]
        if not (box[0] <= action <= box[1] and math.isfinite(action)):
            raise ValueError(f"it chose {action!r}, not a finite action inside the bounds")
        return choice

    def updating(self, certificate: Any, state: Any, taken: Any, epsilon: float) -> Callable[..., Any]:
        """See `updating`.

        Raises:
            NotWritten: The certificate is to be asked itself.
        """
        key = (epsilon, taken.epsilon) if certificate.sees else epsilon
        update = self._update.get(key) if certificate is self._of else None
        if update is None:
            self._forget(certificate)
            update = self._written(
                certificate, ("update", key), lambda: updating(certificate, state, taken, epsilon)
            )
            self._update[key] = update
        return update

    @staticmethod
    def _written(certificate: Any, key: Any, write: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        written: Callable[..., Any] | None = certificate.written.of(key, write)
        if written is None:
            raise NotWritten
        return written

    def _forget(self, certificate: Certificate) -> None:
        """Drop the functions of another certificate, and all if they become too many."""
        if certificate is not self._of or len(self._choose) + len(self._update) >= MOST:
            self._of, self._choose, self._update = certificate, {}, {}
