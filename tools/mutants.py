"""The mutants of a Python file: every way in which one small part of it can be wrong.

A mutant is one change of the syntax tree: a comparison one step looser or turned round, an operator swapped, a constant
5 % off, a branch or an argument dropped, a statement deleted. Docstrings, annotations, text and what is said in an
error or a warning are left alone.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""The boundary moved, and the opposite."""
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("floor", "ceil"),
    ("any", "all"),
    ("argmin", "argmax"),
    ("logical_and", "logical_or"),
)
FUNCTIONS = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
"""Functions that are exchanged for each other."""
EXTREMES = {"min", "max", "minimum", "maximum", "logical_and", "logical_or"}
"""Functions that mean something without one of their arguments."""
WRAPPERS = {
    "abs", "absolute", "array", "ceil", "clip", "copy", "deepcopy", "fabs", "floor", "logical_not", "nextafter",
    "round", "sqrt", "stop_gradient",
}  # fmt: skip
"""Functions in whose place their first argument can stand."""
MESSAGES = {"warn"}
"""Functions whose arguments are text for a reader."""
_TOKEN = r"\d[\d.]*(?:e[-+]?\d+)?|[\w.]+|[<>=!*/]+|."


@dataclass(frozen=True)
class Mutant:
    """One change of one file. `key` names it in a way that outlives edits elsewhere."""

    file: str
    """Path from the project's root."""
    function: str
    """Qualified name of the function that it is in, or `<module>`."""
    original: str
    """The statement, on one line; of a compound one the head."""
    mutated: str
    nth: int
    """1, or 2, 3, ... where the same statement stands in the same function again."""
    lines: tuple[int, int]
    """First and last line of the statement, or of its head."""
    place: tuple[ast.AST, str, int | None, Any]
    """(parent, field, index in the field, what is put there)."""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What tells it from every other mutant, whatever its line."""
        return self.file, self.function, self.original, self.mutated, self.nth

    @property
    def change(self) -> str:
        """The difference on one line: `left {before => after} right`."""
        before, after = (re.findall(_TOKEN, text) for text in (self.original, self.mutated))
        left = _shared(before, after)
        right = _shared(before[left:][::-1], after[left:][::-1])
        head, tail = "".join(before[:left]), "".join(before[len(before) - right :])
        old, new = ("".join(each[left : len(each) - right]) for each in (before, after))
        head = head if len(head) <= 40 else f"…{head[-39:]}"
        tail = tail if len(tail) <= 40 else f"{tail[:39]}…"
        return f"{head}{{{old} => {new}}}{tail}"


def _shared(one: list[str], other: list[str]) -> int:
    """How many entries both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def mutants(source: str, file: str) -> tuple[ast.Module, list[Mutant]]:
    """The syntax tree of `source`, and every mutant of it in the order of the lines."""
    tree = ast.parse(source, file)
    seen: Counter[tuple[str, str, str]] = Counter()
    found, known = [], set()
    for function, statement, place in _Walk().walk(tree):
        original = _head(statement)
        put(place)
        mutated = "pass" if isinstance(place[3], ast.Pass) else _head(statement)
        put(place, original=True)
        if (statement, mutated) in known:  # two ways to the same program
            continue
        known.add((statement, mutated))
        seen[function, original, mutated] += 1
        nth = seen[function, original, mutated]
        found.append(Mutant(file, function, original, mutated, nth, _lines(statement), place[:4]))
    return tree, found


def put(place: tuple[Any, ...], original: bool = False) -> None:
    """Put a mutant's node in its place in the tree, or the original one back."""
    parent, field, index, new, old = (*place, None)[:5]
    chosen = old if original else new
    if index is None:
        setattr(parent, field, chosen)
    else:
        getattr(parent, field)[index] = chosen


def _head(statement: ast.AST) -> str:
    """A statement on one line, a compound one without its body."""
    shown = copy.copy(statement)
    for field in ("body", "orelse", "finalbody", "handlers"):
        if isinstance(getattr(shown, field, None), list):
            setattr(shown, field, [])
    return " ".join(ast.unparse(shown).split())


def _lines(statement: Any) -> tuple[int, int]:
    body = getattr(statement, "body", None)
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])
    return first, max(first, body[0].lineno - 1) if isinstance(body, list) else statement.end_lineno


class _Walk:
    """Goes through a tree and yields (function, statement, (parent, field, index, new, old)) of every mutant."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.statement: ast.AST | None = None
        self.bound: set[str] = set()

    def walk(self, node: ast.AST) -> Iterator[tuple[str, ast.AST, tuple[Any, ...]]]:
        """Mutants of everything below `node`."""
        for field, value in ast.iter_fields(node):
            if (
                field in ("annotation", "returns", "type_params")
                or isinstance(node, ast.Raise)
                or _speaks(node)
            ):
                continue
            for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
                alias = isinstance(node, ast.Module) and _names_a_type(child)
                if isinstance(child, ast.AST) and not alias and not _left_alone(child):
                    yield from self._enter(node, field, index, child)

    def _enter(self, parent: ast.AST, field: str, index: int | None, child: ast.AST) -> Iterator[Any]:
        outer = self.statement, self.bound
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if isinstance(child, ast.stmt):
            self.statement = child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            self.bound = {each.arg for each in ast.walk(child.args) if isinstance(each, ast.arg)}
        if named:
            self.names.append(child.name)  # type: ignore[attr-defined]
        function = ".".join(self.names) or "<module>"
        for new in self._replacements(child):
            yield function, self.statement, (parent, field, index, ast.copy_location(new, child), child)
        for where in _inside(child):
            yield function, self.statement, (child, *where)
        yield from self.walk(child)
        if named:
            self.names.pop()
        self.statement = outer[0]
        if named:
            self.bound = outer[1]
        self.bound |= _targets(child)

    def _replacements(self, node: ast.AST) -> Iterator[ast.AST]:
        """What can stand in the place of a whole node."""
        if isinstance(node, ast.Constant):
            yield from (ast.Constant(value) for value in _other_constants(node.value))
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
            yield node.operand
        elif isinstance(node, ast.BoolOp):
            for index in range(len(node.values)):
                rest = node.values[:index] + node.values[index + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            yield from (node.left, node.right)
        elif isinstance(node, ast.IfExp):
            yield from (node.body, node.orelse)
        elif isinstance(node, ast.Call):
            yield from _other_calls(node)
        elif self._deletable(node):
            yield ast.Pass()

    def _deletable(self, node: ast.AST) -> bool:
        """Whether a program without this statement can be a program, as one without a name's only binding is not."""
        if isinstance(
            node, ast.Raise | ast.Break | ast.Continue | ast.Delete | ast.Assert | ast.AugAssign | ast.Expr
        ):
            return True
        return isinstance(node, ast.Assign) and _targets(node) <= self.bound


def _left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return True
    text = node.value if isinstance(node, ast.Expr) else node
    return isinstance(text, ast.JoinedStr) or (isinstance(text, ast.Constant) and isinstance(text.value, str))


def _names_a_type(node: Any) -> bool:
    """Whether a module's statement is `Name = tuple[...]` or `Name = One | Other`."""
    value = getattr(node, "value", None) if isinstance(node, ast.Assign) else None
    return isinstance(value, ast.Subscript) or isinstance(getattr(value, "op", None), ast.BitOr)


def _speaks(node: ast.AST) -> bool:
    """Whether it is a call with text for a reader, such as a warning."""
    return isinstance(node, ast.Call) and _name(node) in MESSAGES


def _name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _targets(node: ast.AST) -> set[str]:
    """The names that a statement binds; none for entries and attributes."""
    if isinstance(node, ast.Assign):
        targets: list[ast.AST] = list(node.targets)
    elif isinstance(node, ast.AnnAssign | ast.For):
        targets = [node.target]
    else:
        return set()
    stored = (each for target in targets for each in ast.walk(target))
    return {each.id for each in stored if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _inside(node: ast.AST) -> Iterator[tuple[str, int | None, Any, Any]]:
    """(field, index, new, old): what can change within a node that stays."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            yield from (("ops", index, other(), operator) for other in COMPARISONS[type(operator)])
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
        yield "op", None, OPERATORS[type(node.op)](), node.op
    elif isinstance(node, ast.BoolOp):
        yield "op", None, ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.op
    elif isinstance(node, ast.If):
        yield from (("test", None, _constant(value, node.test), node.test) for value in (True, False))
    elif isinstance(node, ast.While):
        yield "test", None, _constant(False, node.test), node.test
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "value", None, _constant(None, node.value), node.value
    elif isinstance(node, ast.comprehension):
        for index, condition in enumerate(node.ifs):
            yield "ifs", index, _constant(True, condition), condition


def _constant(value: Any, like: ast.AST) -> ast.Constant:
    return ast.copy_location(ast.Constant(value), like)


def _other_constants(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (1,) if value == 0 else (value - 1, value + 1)
    if isinstance(value, float):
        return (1.0,) if value == 0.0 else tuple(float(f"{share * value:.12g}") for share in (0.95, 1.05))
    return ()


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    """What can stand in the place of a call: another function, or fewer of its arguments."""
    name, arguments = _name(node), node.args
    if any(isinstance(each, ast.Starred) for each in arguments):
        arguments = []
    if name in FUNCTIONS:
        function = copy.copy(node.func)
        setattr(function, "attr" if isinstance(function, ast.Attribute) else "id", FUNCTIONS[name])
        yield ast.Call(function, node.args, node.keywords)
    if name in EXTREMES and len(arguments) > 1:
        for index in range(len(arguments)):
            rest = arguments[:index] + arguments[index + 1 :]
            yield rest[0] if len(rest) == 1 else ast.Call(node.func, rest, node.keywords)
    elif name == "where" and len(arguments) == 3:
        condition, one, other = arguments
        yield ast.Call(node.func, [condition, other, one], node.keywords)
        yield from (one, other)
    elif name in WRAPPERS and arguments:
        yield arguments[0]
    elif name == "copy" and isinstance(node.func, ast.Attribute):
        yield node.func.value
