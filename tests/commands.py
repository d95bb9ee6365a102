"""The command line, run in the process of the test."""

from __future__ import annotations

import io
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tether.cli import fitting
from tether.cli import main as cli

WIDTHS = (40, 60, 80, 120)
"""Of terminals, characters."""


def exit_code(monkeypatch, *arguments):
    """Run `tether` with these arguments; its exit code. Every table that it prints is whole at all `WIDTHS`."""
    process = fitting.Fitting.process_renderables

    def looked_at(hook, renderables):
        for table in (each for each in renderables if isinstance(each, Table)):
            for width in WIDTHS:
                shown_whole(table, width)
        return process(hook, renderables)

    monkeypatch.setattr(fitting.Fitting, "process_renderables", looked_at)
    monkeypatch.setattr(sys, "argv", ["tether", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as stop:
        return stop.code or 0
    return 0


def run(monkeypatch, capsys, *arguments):
    """The same; exit code, output and errors."""
    code = exit_code(monkeypatch, *arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def words_of(table):
    """The words and figures of a table's cells."""
    cells = [cell for column in table.columns for cell in column.cells]
    texts = (Text.from_markup(cell) if isinstance(cell, str) else cell for cell in cells)
    return {word for text in texts for word in text.plain.split()}


def shown_whole(table, width):
    """Require that a terminal of this width shows every word of a table."""
    printed = io.StringIO()
    console = Console(file=printed, width=width)
    for part in fitting.fitted(table, console):
        console.print(part, highlight=False)
    shown = printed.getvalue()
    missing = words_of(table) - set(shown.split())
    assert not missing, f"at {width} columns {missing} are cut in\n{shown}"
    assert max(map(len, shown.splitlines())) <= width
