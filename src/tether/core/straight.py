"""A certificate's own functions as straight lines of arithmetic: the same numbers, digit for digit, in less time.

Online a round is some hundred sums and comparisons, and calling functions takes longer than all of them. A certificate
is written in `tether.core.ops.Ops` without an `if` on values, so that it can be run once on names instead of numbers:
`_Lines` writes down each operation as a line of Python, in the order in which plain floats would do it, and what comes
out is compiled as one function. Nothing is left out but what is computed twice from the same names or not needed,
nothing is put in another order and no formula is written again; `tests/core/test_straight.py` compares both on every
rule and on hostile numbers. What is not told by names (the contract, the constants, the round-off of what is told)
becomes a constant, so that there is a function for each.

Only where a certificate says so (`straight`) is this done for a whole round; what it returns is checked by the guard as
ever. A structured certificate has the bounds that its search looks at again and again written down (`evaluating`), and
checks what was found by its own functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any, cast

from tether.core.certificate import Action, Box, Certificate, Choice, Outcome
from tether.core.ops import FLOAT64, FLOATS, Ops

new: Any = tuple.__new__
"""Makes a NamedTuple of all of its fields in half the time."""
MOST = 16
"""How many functions a guard keeps; round-off comes in few sizes."""


@lru_cache(maxsize=4 * MOST)
def _translated(source: str) -> CodeType:
    """What was written, for Python to run. The guards of a fleet write the same lines, which are translated once."""
    return compile(source, "<tether.core.straight>", "exec")


_SETS, _NAMES = re.compile(r"    (t\d+) = "), re.compile(r"\bt\d+\b")
"""A line outside of all blocks that gives a name to something, and the names that it has."""


class Name:
    """A number or a flag that is not known yet: a name in the lines that are written."""

    __slots__ = ("_lines", "text")
    __array_ufunc__ = None  # a NumPy number leaves the operation to this class

    def __init__(self, text: str, lines: _Lines) -> None:
        self.text, self._lines = text, lines

    def __bool__(self) -> bool:
        raise TypeError("a certificate that is written down must not decide on a value: use Ops.where")

    def __add__(self, other: Any) -> Any:
        return self._lines.line("{} + {}", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._lines.line("{} + {}", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._lines.line("{} - {}", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._lines.line("{} - {}", other, self)

    def __mul__(self, other: Any) -> Any:
        return self if _one(other) else self._lines.line("{} * {}", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self if _one(other) else self._lines.line("{} * {}", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._lines.line("{} / {}", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._lines.line("{} / {}", other, self)

    def __neg__(self) -> Any:
        return self._lines.line("-{}", self)

    def __abs__(self) -> Any:
        return self._lines.line("abs({})", self)

    def __eq__(self, other: object) -> Any:
        return self._lines.line("{} == {}", self, other)

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Any:
        return self._lines.line("{} < {}", self, other)

    def __le__(self, other: Any) -> Any:
        return self._lines.line("{} <= {}", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._lines.line("{} > {}", self, other)

    def __ge__(self, other: Any) -> Any:
        return self._lines.line("{} >= {}", self, other)


def _one(factor: Any) -> bool:
    """Whether a product with it is the other factor, to the last digit."""
    return not isinstance(factor, Name) and bool(factor == 1.0)


class _Lines:
    """`tether.core.ops.Ops` that writes each operation down as a line; arrays are not among them."""

    cases = 0

    def __init__(self) -> None:
        self._written: list[str] = []
        self._known: dict[str, Name] = {}
        self._depth, self._count = 1, 0
        self._names: dict[str, Any] = {"_new": tuple.__new__, "inf": math.inf, "nan": math.nan}

    def fresh(self) -> Name:
        """A name that was not used before."""
        self._count += 1
        return Name(f"t{self._count}", self)

    def write(self, text: str) -> None:
        """A line as it is."""
        self._written.append("    " * self._depth + text)

    def line(self, form: str, *parts: Any) -> Name:
        """The name of what `form` of these gives; one that is known already if it was written before."""
        text = form.format(*map(self.text, parts))
        if text not in self._known:
            name = self._known[text] = self.fresh()
            self.write(f"{name.text} = {text}")
        return self._known[text]

    def text(self, value: Any) -> str:
        """How a value is written: names, numbers, and tuples of them with their class."""
        if isinstance(value, Name):
            return value.text
        if isinstance(value, tuple):
            entries = "(" + "".join(f"{self.text(each)}, " for each in value) + ")"
            kind = type(value)
            if kind is tuple:
                return entries
            self._names[kind.__name__] = kind
            return f"_new({kind.__name__}, {entries})"
        if value is None or isinstance(value, bool | str):
            return repr(value)
        number = repr(float(value))
        return f"({number})" if number.startswith("-") else number

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines below `head`, which may not be run: what they give names to is not known after it."""
        self.write(head)
        known, self._known = self._known, dict(self._known)
        self._depth += 1
        yield
        self._depth -= 1
        self._known = known

    def function(self, given: str, result: Any) -> Callable[..., Any]:
        """All that was written as a function of `given`, but for what it does not need."""
        self.write(f"return {self.text(result)}")
        needed: set[str] = set()
        kept: list[str] = []
        for line in reversed(self._written):
            sets = _SETS.match(line)
            if sets is None or sets[1] in needed:
                kept.append(line)
                needed.update(_NAMES.findall(line if sets is None else line[sets.end() :]))
        source = f"def straight({given}):\n" + "\n".join(reversed(kept))
        exec(_translated(source), self._names)
        return cast(Callable[..., Any], self._names["straight"])

    def _called(self, name: str, *parts: Any) -> Any:
        """A function of `FLOATS`; of numbers that are known it is called at once."""
        function = getattr(FLOATS, name)
        if not any(isinstance(each, Name) for each in parts):
            return function(*parts)
        self._names[f"_{name}"] = function
        return self.line(f"_{name}({', '.join('{}' for _ in parts)})", *parts)

    def maximum(self, first: Any, second: Any) -> Any:
        return self._farther(first, ">=", second, -math.inf)

    def minimum(self, first: Any, second: Any) -> Any:
        return self._farther(first, "<=", second, math.inf)

    def _farther(self, first: Any, beyond: str, second: Any, idle: float) -> Any:
        """The larger or the smaller; what is not a number goes first, and `idle` never comes second."""
        if isinstance(first, Name):
            if not isinstance(second, Name) and second == idle:
                return first
            return self.line(f"{{0}} if {{0}} {beyond} {{1}} or {{0}} != {{0}} else {{1}}", first, second)
        if isinstance(second, Name) and first == first:
            return self.line(f"{{0}} if {{0}} {beyond} {{1}} else {{1}}", first, second)
        return FLOATS.maximum(first, second) if beyond == ">=" else FLOATS.minimum(first, second)

    def clip(self, value: Any, low: Any, high: Any) -> Any:
        if any(isinstance(each, Name) for each in (value, low, high)):
            return self.minimum(self.maximum(value, low), high)
        return FLOATS.clip(value, low, high)

    def largest(self, values: Any) -> Any:
        largest = values[0]
        for each in values[1:]:
            largest = self.maximum(largest, each)
        return largest

    def largest_of(self, function: Callable[..., Any], given: Any) -> Any:
        return self.largest([function(*each) for each in given])

    @staticmethod
    def fixed(values: Any) -> Any:
        return values

    def where(self, condition: Any, if_true: Any, if_false: Any) -> Any:
        if not isinstance(condition, Name):
            return if_true if condition else if_false
        return self.line("{1} if {0} else {2}", condition, if_true, if_false)

    def unless(self, condition: Any, value: Any, otherwise: Callable[[], Any]) -> Any:
        if not isinstance(condition, Name):
            return FLOATS.unless(condition, value, otherwise)
        result = self.fresh()
        self.write(f"{result.text} = {self.text(value)}")
        with self.block(f"if not {condition.text}:"):
            self.write(f"{result.text} = {self.text(otherwise())}")
        return result

    def turning(self, falls: Callable[[Any], Any], last: Any, most: int) -> Any:
        low, high, middle = self.fresh(), self.fresh(), self.fresh()
        self.write(f"{low.text} = 1.0")
        with self.block(f"if 1.0 < {self.text(last)}:"), self.block(f"if {self.text(falls(1.0))}:"):
            self.write(f"{low.text} = 2.0")
            self.write(f"{high.text} = min(2.0, {self.text(last)})")
            with self.block(f"while {high.text} < {self.text(last)}:"):
                self.write(f"if not {self.text(falls(high))}: break")
                self.write(f"{low.text} = {high.text} + 1.0")
                self.write(f"{high.text} = min(2.0 * {high.text}, {self.text(last)})")
            with self.block(f"for _ in range({most.bit_length()}):"):
                self.write(f"if {low.text} >= {high.text}: break")
                self.write(f"{middle.text} = ({low.text} + {high.text}) // 2.0")
                self.write(f"if {self.text(falls(middle))}: {low.text} = {middle.text} + 1.0")
                self.write(f"else: {high.text} = {middle.text}")
        return low

    def logical_and(self, first: Any, second: Any) -> Any:
        if not isinstance(first, Name):
            return first and second
        return self.line("{} and {}", first, second)

    def logical_or(self, first: Any, second: Any) -> Any:
        if not isinstance(first, Name):
            return first or second
        return self.line("{} or {}", first, second)

    def logical_not(self, value: Any) -> Any:
        return self.line("not {}", value) if isinstance(value, Name) else not value

    def isfinite(self, value: Any) -> Any:
        return self._called("isfinite", value)

    def sqrt(self, value: Any) -> Any:
        return self._called("sqrt", value)

    def expm1_multiple(self, count: Any, unit: float) -> Any:
        if not isinstance(count, Name) or unit > 0.0:
            return self._called("expm1_multiple", count, unit)
        self._names["_expm1"] = math.expm1  # of what is not positive, which does not overflow
        return self.line("_expm1({} * {})", count, unit)

    @staticmethod
    def epsilon(value: Any) -> float:  # noqa: ARG004
        return FLOAT64

    @staticmethod
    def limit(value: Any) -> float:  # noqa: ARG004
        return FLOATS.limit(0.0)


def _inputs(lines: _Lines, given: Any, name: str) -> Any:
    """A tuple of numbers, as many names; the line that takes it apart is written."""
    parts = [Name(f"{name}_{i}", lines) for i in range(len(given))]
    lines.write("".join(f"{each.text}, " for each in parts) + f"= {name}")
    return given._make(parts)


def choosing(certificate: Certificate, state: Any, box: Box, epsilon: float) -> Callable[..., Any]:
    """`open` and `choose` of a certificate in one function of (state, proposal, prior); see the module.

    Args:
        certificate: One that is `straight`.
        state: Any of its states.
        box: The actions, of one number.
        epsilon: Of `open`.
    """
    lines = _Lines()
    opened = certificate.open(_inputs(lines, state, "state"), None, cast(Ops, lines), epsilon)
    proposal, prior = Name("proposal", lines), Name("prior", lines)
    choice = certificate.choose(opened, proposal, prior, box, cast(Ops, lines))
    return lines.function("state, proposal, prior", choice)


def updating(certificate: Certificate, state: Any, taken: Any, epsilon: float) -> Callable[..., Any]:
    """`update` of a certificate as a function of (state, taken, cost), if what was decided was played; see the module.

    Args:
        certificate: One that is `straight`.
        state: Any of its states.
        taken: Anything that it took.
        epsilon: Of the cost.
    """
    lines = _Lines()
    told = _inputs(lines, state, "state"), _inputs(lines, taken, "taken")
    outcome = Outcome(cast(Any, Name("cost", lines)), epsilon=epsilon)
    return lines.function("state, taken, cost", certificate.update(*told, outcome, cast(Ops, lines)))


def evaluating(function: Callable[[Any, Any, Ops], Any], count: int) -> Callable[..., Any] | None:
    """function(numbers, number, ops) as lines of (`count` numbers, one number); None if it cannot be written down.

    It cannot if it decides on a value, or does what only numbers can: it is then to be called as it is.
    """
    lines = _Lines()
    names = tuple(Name(f"given_{i}", lines) for i in range(count))
    lines.write("".join(f"{each.text}, " for each in names) + "= given")
    try:
        return lines.function("given, number", function(names, Name("number", lines), cast(Ops, lines)))
    except (TypeError, AttributeError):
        return None


class Written:
    """Functions that `evaluating` wrote, by what they are for; a copy of a certificate writes its own."""

    def __init__(self) -> None:
        self._functions: dict[Any, Callable[..., Any] | None] = {}

    def __reduce__(self) -> Any:
        return Written, ()

    def of(self, key: Any, function: Callable[[Any, Any, Ops], Any], count: int) -> Callable[..., Any] | None:
        """See `evaluating`; `key` tells all that is not told by names."""
        try:
            return self._functions[key]
        except KeyError:  # guards in other threads share these, and may drop them at any time
            pass
        if len(self._functions) >= MOST:
            self._functions.clear()
        written = self._functions[key] = evaluating(function, count)
        return written


class Straight:
    """The functions of a guard's certificate, written when they are first needed; see the module."""

    def __init__(self) -> None:
        self._of: Certificate | None = None
        self._choose: dict[float, Callable[..., Any]] = {}
        self._update: dict[float, Callable[..., Any]] = {}

    def __reduce__(self) -> Any:
        return Straight, ()  # functions that were written cannot be copied; a copy writes its own

    def choosing(self, certificate: Certificate, state: Any, box: Box, epsilon: float) -> Callable[..., Any]:
        """See `choosing`."""
        if certificate is not self._of or epsilon not in self._choose:
            self._forget(certificate)
            self._choose[epsilon] = choosing(certificate, state, box, epsilon)
        return self._choose[epsilon]

    def chosen(
        self, certificate: Certificate, state: Any, box: Box, wish: Action, prior: Action, epsilon: float
    ) -> Choice:
        """The certificate's choice where all is single numbers, and stays so: it is only to be inside the bounds."""
        choose = self._choose.get(epsilon) if certificate is self._of else None
        if choose is None:
            choose = self.choosing(certificate, state, box, epsilon)
        choice: Choice = choose(state, math.nan if wish is None else wish, prior)
        action = choice[0]
        if not (box[0] <= action <= box[1] and math.isfinite(action)):
            raise ValueError(f"it chose {action!r}, not a finite action inside the bounds")
        return choice

    def updating(
        self, certificate: Certificate, state: Any, taken: Any, epsilon: float
    ) -> Callable[..., Any]:
        """See `updating`."""
        if certificate is not self._of or epsilon not in self._update:
            self._forget(certificate)
            self._update[epsilon] = updating(certificate, state, taken, epsilon)
        return self._update[epsilon]

    def _forget(self, certificate: Certificate) -> None:
        """Drop the functions of another certificate, and all if they become too many."""
        if certificate is not self._of or len(self._choose) + len(self._update) >= MOST:
            self._of, self._choose, self._update = certificate, {}, {}
