"""A number that is not known yet, and `tether.core.ops.Ops` that writes down what is done with it; see `straight`.

What is written is a tree of lines: below a head (`if`, `for`) there is a block of lines that may not be run, or more
than once. A line goes where it is needed, but out of a loop if nothing in it changes there: in the search of a
structured certificate most of what its bounds compute does not depend on how far the search is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tether.core.listing import Block, Moves, function
from tether.core.ops import FLOAT64, FLOATS


class Name:
    """A number or a flag that is not known yet: a name in the lines that are written."""

    __slots__ = ("_lines", "level", "text")
    __array_ufunc__ = None  # a NumPy number leaves the operation to this class

    def __init__(self, text: str, lines: Lines, level: int = 0) -> None:
        self.text, self._lines, self.level = text, lines, level

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


class Lines:
    """`tether.core.ops.Ops` that writes each operation down as a line; arrays are not among them."""

    cases, lazy = 0, True

    def __init__(self) -> None:
        self._open = [Block()]
        self._count = 0
        self._names: dict[str, Any] = {"_new": tuple.__new__, "inf": math.inf, "nan": math.nan}

    def fresh(self, level: int | None = None) -> Name:
        """A name that was not used before."""
        self._count += 1
        return Name(f"t{self._count}", self, len(self._open) - 1 if level is None else level)

    def write(self, text: str) -> None:
        """A line as it is, which is kept."""
        self._open[-1].items.append(("", text))

    def line(self, form: str, *parts: Any) -> Name:
        """The name of what `form` of these gives; one that is known already if it was written before."""
        text = form.format(*map(self.text, parts))
        for block in self._open:
            if text in block.known:
                found: Name = block.known[text]
                return found
        varies = max([each.level for each in parts if isinstance(each, Name)], default=0)
        level = len(self._open) - 1
        while self._open[level].loop and varies < level:
            level -= 1
        name = self._open[level].known[text] = self.fresh(level)
        self._open[level].items.append((name.text, text))
        return name

    def text(self, value: Any) -> str:
        """How a value is written: names, numbers, and tuples and lists of them with their class."""
        if isinstance(value, Name):
            return value.text
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
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
    def block(self, head: str, loop: bool = False) -> Iterator[Block]:
        """Lines below `head`, which may not be run: what they give names to is not known after it."""
        block = Block(head, loop)
        self._open.append(block)
        yield block
        self._open.pop()
        self._open[-1].items.append(block)

    def function(self, given: str, result: Any) -> Callable[..., Any]:
        """All that was written as a function of `given`, but for what it does not need."""
        self.write(f"return {self.text(result)}")
        return function(self._open[0], given, self._names)

    def _called(self, name: str, *parts: Any) -> Any:
        """A function of `FLOATS`; of numbers that are known it is called at once."""
        function = getattr(FLOATS, name)
        if not any(isinstance(each, Name) for each in parts):
            return function(*parts)
        self._names[f"_{name}"] = function
        return self.line(f"_{name}({', '.join('{}' for _ in parts)})", *parts)

    def maximum(self, first: Any, second: Any) -> Any:
        """See `Ops`."""
        return self._farther(first, ">=", second, -math.inf)

    def minimum(self, first: Any, second: Any) -> Any:
        """See `Ops`."""
        return self._farther(first, "<=", second, math.inf)

    def _farther(self, first: Any, beyond: str, second: Any, idle: float) -> Any:
        """The larger or the smaller; what is not a number goes first, and `idle` never comes second."""
        if isinstance(first, Name):
            if not isinstance(second, Name) and second == second:
                if second == idle:
                    return first
                short = "<" if beyond == ">=" else ">"
                return self.line(f"{{1}} if {{0}} {short} {{1}} else {{0}}", first, second)
            return self.line(f"{{0}} if {{0}} {beyond} {{1}} or {{0}} != {{0}} else {{1}}", first, second)
        if isinstance(second, Name) and first == first:
            return self.line(f"{{0}} if {{0}} {beyond} {{1}} else {{1}}", first, second)
        return FLOATS.maximum(first, second) if beyond == ">=" else FLOATS.minimum(first, second)

    def clip(self, value: Any, low: Any, high: Any) -> Any:
        """See `Ops`."""
        if any(isinstance(each, Name) for each in (value, low, high)):
            return self.minimum(self.maximum(value, low), high)
        return FLOATS.clip(value, low, high)

    def largest(self, values: Any) -> Any:
        """See `Ops`."""
        largest = values[0]
        for each in values[1:]:
            largest = self.maximum(largest, each)
        return largest

    def largest_of(self, function: Callable[..., Any], given: Any) -> Any:
        """See `Ops`."""
        return self.largest([function(*each) for each in given])

    @staticmethod
    def fixed(values: Any) -> Any:
        """See `Ops`."""
        return values

    def where(self, condition: Any, if_true: Any, if_false: Any) -> Any:
        """See `Ops`."""
        if not isinstance(condition, Name):
            return if_true if condition else if_false
        for block in self._open:
            if condition.text in block.sure:
                return if_true if block.sure[condition.text] else if_false
        if self.text(if_true) == self.text(if_false):
            return if_true
        return self.line("{1} if {0} else {2}", condition, if_true, if_false)

    def unless(self, condition: Any, value: Any, otherwise: Callable[[], Any]) -> Any:
        """See `Ops`."""
        return self.branch(condition, lambda: value, otherwise)

    def odd(self, flag: Any) -> Any:
        """See `Ops`."""
        if not isinstance(flag, Name):
            return flag
        self.write(f"if {flag.text}: return None")
        return False

    def branch(self, condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
        """See `Ops`."""
        if not isinstance(condition, Name):
            return FLOATS.branch(condition, if_true, if_false)
        with self.block(f"if {condition.text}:") as first:
            first.sure[condition.text] = True
            value = if_true()
        with self.block(f"if not {condition.text}:") as second:
            second.sure[condition.text] = False
            other = if_false()

        items, elsewhere = self._open[-1].items, second.items
        if not elsewhere:  # what takes no lines is said before, so that the condition is asked once
            items[-2:] = [first]
            elsewhere = []

        def either(value: Any, other: Any) -> Any:
            if self.text(value) == self.text(other):
                return value
            name = self.fresh()
            first.items.append((name.text, self.text(value)))
            elsewhere.append((name.text, self.text(other)))
            return name

        result = _each(either, value, other)
        if elsewhere is not second.items:
            items[-1:-1] = elsewhere
        return result

    def loop(self, count: int, body: Callable[[Any], Any], carry: Any, until: Callable[[Any], Any]) -> Any:
        """See `Ops`."""
        level, moving = len(self._open), list[Name]()

        def begun(value: Any) -> Name:
            name = self.fresh(level)
            self._open[-1].items.append((name.text, self.text(value)))
            moving.append(name)
            return name

        names = _each(begun, carry)
        with self.block(f"for _ in range({count}):", loop=True) as block:
            after = body(names)
            pairs: list[tuple[str, str]] = []
            _each(lambda name, value: pairs.append((name.text, self.text(value))), names, after)
            stop = until(after)
            block.items.append(Moves([pair for pair in pairs if pair[0] != pair[1]]))
            self.write(f"if {self.text(stop)}: break")
        for name in moving:
            name.level = level - 1
        return names

    def turning(self, falls: Callable[[Any], Any], last: Any, most: int) -> Any:
        """See `Ops`."""
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
        """See `Ops`."""
        if isinstance(first, Name) and isinstance(second, Name):
            return self.line("{} and {}", first, second)
        known, other = (second, first) if isinstance(first, Name) else (first, second)
        return other if known else False

    def logical_or(self, first: Any, second: Any) -> Any:
        """See `Ops`."""
        if isinstance(first, Name) and isinstance(second, Name):
            return self.line("{} or {}", first, second)
        known, other = (second, first) if isinstance(first, Name) else (first, second)
        return True if known else other

    def logical_not(self, value: Any) -> Any:
        """See `Ops`."""
        return self.line("not {}", value) if isinstance(value, Name) else not value

    def isfinite(self, value: Any) -> Any:
        """See `Ops`."""
        return self._called("isfinite", value)

    def sqrt(self, value: Any) -> Any:
        """See `Ops`."""
        if not isinstance(value, Name):
            return FLOATS.sqrt(value)
        self._names["_sqrt"] = math.sqrt
        return self.line("_sqrt({0}) if {0} >= 0.0 else nan", value)

    @staticmethod
    def at_boundary(excess: Any, inputs: Any, share: Any, inside: Any) -> Any:  # noqa: ARG004
        """See `Ops`."""
        return share

    def expm1_multiple(self, count: Any, unit: float) -> Any:
        """See `Ops`."""
        if not isinstance(count, Name) or unit > 0.0:
            return self._called("expm1_multiple", count, unit)
        self._names["_expm1"] = math.expm1  # of what is not positive, which does not overflow
        return self.line("_expm1({} * {})", count, unit)

    @staticmethod
    def epsilon(value: Any) -> float:  # noqa: ARG004
        """See `Ops`."""
        return FLOAT64

    @staticmethod
    def limit(value: Any) -> float:  # noqa: ARG004
        """See `Ops`."""
        return FLOATS.limit(0.0)


def _each(function: Callable[..., Any], *given: Any) -> Any:
    """`function` of each entry of nests of tuples and lists that are alike, as such a nest."""
    first = given[0]
    if not isinstance(first, tuple | list):
        return function(*given)
    entries = [_each(function, *each) for each in zip(*given, strict=True)]
    if isinstance(first, list):
        return entries
    make: Any = getattr(first, "_make", tuple)
    return make(entries)
