"""The text of a function that was written as a tree of lines (`tether.core.lines`).

What nothing needs is left out, in all blocks; what one line asks for, once, is said in that line; and names are used
again, so that a function has few.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any, cast

MOST = 16
"""How many functions a certificate keeps; round-off comes in few sizes."""


@lru_cache(maxsize=4 * MOST)
def _translated(source: str) -> CodeType:
    """What was written, for Python to run. The guards of a fleet write the same lines, which are translated once."""
    return compile(source, "<tether.core.straight>", "exec")


_NAMES = re.compile(r"\bt\d+\b")
"""The names that a line has."""
_LONG = 400
"""Characters of what is said within another line, at most."""


class Block:
    """Lines below a head, and the blocks among them, in their order."""

    def __init__(self, head: str = "", loop: bool = False) -> None:
        self.head, self.loop = head, loop
        self.items: list[Block | Moves | tuple[str, str]] = []
        """Blocks, moves, and (the name that a line gives, or none, what it says)."""
        self.known: dict[str, Any] = {}
        """What was written here, by what it says."""
        self.sure: dict[str, bool] = {}
        """Flags that are known here, by name."""


class Moves:
    """What several names stand for from here on, all at once."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs


def function(block: Block, given: str, names: dict[str, Any]) -> Callable[..., Any]:
    """All that was written as a function of `given`; `names` has what its lines know."""
    needed = _needed(block)
    lines = _reused(_kept(block, needed, _once(block, needed), {}))
    exec(_translated(f"def straight({given}):\n" + "\n".join(lines)), names)
    return cast(Callable[..., Any], names["straight"])


def _needed(block: Block) -> set[str]:
    """The names that matter to the lines that are kept as they are, those that these are made from, and so on."""
    made_from: dict[str, set[str]] = {"": set()}

    def look(block: Block, heads: set[str]) -> None:
        heads = heads.union(_NAMES.findall(block.head))
        for item in block.items:
            if isinstance(item, Block):
                look(item, heads)
                continue
            for name, text in item.pairs if isinstance(item, Moves) else (item,):
                made_from.setdefault(name, set()).update(heads, _NAMES.findall(text))

    look(block, set())
    needed, waiting = {""}, [""]
    while waiting:
        more = made_from.get(waiting.pop(), set()) - needed
        needed |= more
        waiting += more
    return needed


def _once(block: Block, needed: set[str]) -> set[str]:
    """The names that one line asks for, once, in the block in which they are given and before anything moves there.

    What they stand for is said in that line.
    """
    uses, given_by = Counter[str](), Counter[str]()
    found: set[str] = set()

    def look(block: Block) -> None:
        given: set[str] = set()
        for item in block.items:
            if isinstance(item, Block):
                asked = _NAMES.findall(item.head)
                found.update(given.intersection(asked) if item.head.startswith("if ") else ())
                look(item)
            elif isinstance(item, Moves):
                asked = [name for pair in item.pairs if pair[0] in needed for name in _NAMES.findall(pair[1])]
                found.update(given.intersection(asked))
                given = set()
                given_by.update(name for name, _ in item.pairs)
            elif item[0] in needed:
                given_by[item[0]] += 1
                asked = _NAMES.findall(item[1])
                if item[0] or item[1].startswith("return "):
                    found.update(given.intersection(asked))
                given = given.union(item[:1]) if item[0] else set()
            else:
                continue
            uses.update(asked)

    look(block)
    return {name for name in found if uses[name] == given_by[name] == 1}


def _kept(block: Block, needed: set[str], once: set[str], said: dict[str, str], depth: int = 1) -> list[str]:
    """The lines of a block that are needed; what is asked for `once` is said there, `said` has what it says."""
    lines: list[str] = []

    def told(text: str) -> str:
        return _NAMES.sub(lambda found: said.get(found[0], found[0]), text)

    for item in block.items:
        if isinstance(item, Block):
            inner = _kept(item, needed, once, said, depth + 1)
            lines += [f"{'    ' * depth}{told(item.head)}", *inner] if inner else []
        elif isinstance(item, Moves):
            pairs = [(name, told(value)) for name, value in item.pairs if name in needed]
            if pairs:
                names, values = (", ".join(each) for each in zip(*pairs, strict=True))
                lines.append(f"{'    ' * depth}{names} = {values}")
        elif item[0] in needed:
            text = told(item[1])
            if item[0] in once and len(text) < _LONG:
                said[item[0]] = f"({text})"
            else:
                lines.append("    " * depth + (f"{item[0]} = {text}" if item[0] else text))
    return lines


def _reused(lines: list[str]) -> list[str]:
    """The lines with few names: each is used again once nothing asks for what it stood for.

    Python lays out all names of a function whenever it is called, and takes ten times as long once they do not fit into
    the 16 kB that it has at hand.
    """
    found = [_NAMES.findall(line) for line in lines]
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, names in enumerate(found):
        for name in names:
            first.setdefault(name, i)
            last[name] = i
    for start, end in _loops(lines):  # what was given before a loop is asked for in each of its rounds
        for name, at in last.items():
            if first[name] < start <= at <= end:
                last[name] = end
    ending: dict[int, list[str]] = {}
    for name, at in last.items():
        ending.setdefault(at + 1, []).append(name)
    free, fresh = list[str](), itertools.count(1)
    short: dict[str, str] = {}
    for i, names in enumerate(found):
        free += [short[name] for name in ending.get(i, ())]
        for name in names:
            if first[name] == i and name not in short:
                short[name] = free.pop() if free else f"t{next(fresh)}"
    return [_NAMES.sub(lambda found: short[found[0]], line) for line in lines]


def _loops(lines: list[str]) -> list[tuple[int, int]]:
    """(first line, last line) of each loop, the inner ones first."""
    depths = [len(line) - len(line.lstrip()) for line in lines]
    loops = []
    for start, line in enumerate(lines):
        if line.lstrip().startswith(("for ", "while ")):
            end = start
            while end + 1 < len(lines) and depths[end + 1] > depths[start]:
                end += 1
            loops.append((start, end))
    return loops[::-1]
