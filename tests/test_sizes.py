"""A file is at most 500 lines, a function at most 60, unless the reason stands here."""

from __future__ import annotations

import ast

import pytest
from import_graph import modules, place

FILE, FUNCTION = 500, 60
LONG_FILES: dict[str, str] = {}
"""By where they are; the reason each is not split."""
LONG_FUNCTIONS = {
    "assure/verify/verdict.py:verify": "public, half of it is its signature and what its arguments mean",
    "core/projection.py:project": "public, a formula and its proof side by side",
    "learn/train.py:train": "public, most of it is its signature and what its arguments mean",
    "simulate/rollout.py:rollout": "public, most of it is its signature and what its arguments mean",
}
"""By file:name; the reason each is not split."""


def long_functions(text: str) -> dict[str, int]:
    """The lines of every function that has too many; decorators are left out, the docstring counts."""
    lengths = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return {name: lines for name, lines in lengths.items() if lines > FUNCTION}


@pytest.mark.parametrize("file", modules(), ids=place)
def test_files_and_functions_are_short_enough_to_be_read(file):
    text = file.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    assert lines <= FILE or place(file) in LONG_FILES, f"{place(file)} has {lines} lines"
    for name, count in long_functions(text).items():
        assert f"{place(file)}:{name}" in LONG_FUNCTIONS, f"{place(file)}: {name} has {count} lines"


def test_no_exception_is_stale():
    texts = {place(file): file.read_text(encoding="utf-8") for file in modules()}
    for name in LONG_FILES:
        assert len(texts.get(name, "").splitlines()) > FILE, f"{name} is gone or short: take it off the list"
    for entry in LONG_FUNCTIONS:
        name, _, function = entry.partition(":")
        assert function in long_functions(texts.get(name, "")), (
            f"{entry} is gone or short: take it off the list"
        )
