"""The command line, run in the process of the test."""

from __future__ import annotations

import sys

from tether.cli import main as cli


def exit_code(monkeypatch, *arguments):
    """Run `tether` with these arguments; its exit code."""
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
