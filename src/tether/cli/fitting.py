"""Tables that fit their terminal: rich cuts what is wider than its column ("73.…"), and a figure that is cut is wrong.

No column is narrower than its longest word. If there is no room for all of them, the table is continued below with its
first column, which says what the rows are, in each part. Where not even two columns fit, words go on in the next line.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.measure import Measurement
from rich.table import Column, Table

_ANY = 100_000
"""Wider than every table."""
_NARROW = 8
"""What the first column keeps where not even two fit, characters."""


class Fitting(RenderHook):
    """Lets a console print tables `fitted` to its width.

    Args:
        console: The one that it is pushed on.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """What rich calls with everything that is about to be printed."""
        printed: list[ConsoleRenderable] = []
        for each in renderables:
            printed.extend(fitted(each, self._console) if isinstance(each, Table) else [each])
        return printed


def fitted(table: Table, console: Console) -> list[Table]:
    """The table itself if it fits the console, else parts of it, to be printed below each other."""
    if _size(table, console, table.columns)[1] <= console.width:
        return [table]
    parts = [_part(table, console, columns) for columns in _blocks(table, console)]
    for part in parts[1:]:
        part.title = None
    for part in parts[:-1]:
        part.caption = None
    return parts


def _blocks(table: Table, console: Console) -> Iterator[list[Column]]:
    """The columns of each part: the first one, and as many more as fit."""
    first, *others = table.columns
    block = [first]
    for column in others:
        if len(block) > 1 and _size(table, console, [*block, column])[0] > console.width:
            yield block
            block = [first]
        block.append(column)
    yield block


def _part(table: Table, console: Console, columns: Sequence[Column]) -> Table:
    """The table of these columns, each with a width."""
    sizes = [_column_size(table, console, column) for column in columns]
    around = _size(table, console, columns)[1] - sum(most for _, most in sizes)
    widths = _widths(sizes, console.width - around)
    part = copy.copy(table)
    part.columns = [
        replace(column, _index=i, width=width, overflow="fold", no_wrap=column.no_wrap and width >= most)
        for i, (column, width, (_, most)) in enumerate(zip(columns, widths, sizes, strict=True))
    ]
    return part


def _widths(sizes: Sequence[tuple[int, int]], room: int) -> list[int]:
    """What each column gets: its longest word, and a share of what is left in proportion to what it would like."""
    widths = [least for least, _ in sizes]
    spare = room - sum(widths)
    if spare < 0:
        # Only two are left, or one: the words of the first give way before the numbers of the other.
        less = min(-spare, max(widths[0] - _NARROW, 0))
        widths[0] -= less
        widths[-1] = max(widths[-1] + spare + less, 1)
        return widths
    wanted = sum(most - least for least, most in sizes)
    for i, (least, most) in enumerate(sizes):
        more = min(-(-spare * (most - least) // max(wanted, 1)), most - least)
        widths[i] += more
        spare, wanted = spare - more, wanted - (most - least)
    return widths


def _size(table: Table, console: Console, columns: Sequence[Column]) -> tuple[int, int]:
    """(the least, the most) that a table of these columns can make use of, characters."""
    part = copy.copy(table)
    part.columns = [replace(column, _index=i) for i, column in enumerate(columns)]
    most = Measurement.get(console, console.options.update(max_width=_ANY), part).maximum
    return most - sum(
        wanted - least for least, wanted in (_column_size(table, console, column) for column in columns)
    ), most


def _column_size(table: Table, console: Console, column: Column) -> tuple[int, int]:
    """(its longest word, its longest line), characters."""
    cells = [*column.cells, *[column.header] * table.show_header, *[column.footer] * table.show_footer]
    options = console.options.update(max_width=_ANY)
    found = [Measurement.get(console, options, cell) for cell in cells]
    most = max((each.maximum for each in found), default=0)
    return max((each.minimum for each in found), default=0), most
