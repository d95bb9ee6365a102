"""The layers are the folders, and imports point to lower layers only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tether"
LAYERS = (
    "core", "certificates", "data", "systems", "simulate", "learn", "exact",
    "assure", "estimation", "adapters", "paper", "bench", "cli",
)  # fmt: skip
"""From the bottom to the top."""
FACADES = {"__init__.py", "envs.py", "gym.py", "data/__init__.py"}
"""The public names, each with one line: they may point anywhere, and nothing in the layers imports them."""
MODULES = sorted(SOURCE.rglob("*.py"))


def place(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


def imported(file: Path) -> list[tuple[int, str]]:
    """(line, module of tether) of every import, those inside functions and for type checking only included."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.level == 0
            and (node.module or "").split(".")[0] == "tether"
        ):
            module = str(node.module)
            names = [f"tether.{alias.name}" for alias in node.names] if module == "tether" else [module]
            found += [(node.lineno, name) for name in names]
        elif isinstance(node, ast.Import):
            found += [(node.lineno, each.name) for each in node.names if each.name.split(".")[0] == "tether"]
    return found


@pytest.mark.parametrize("file", MODULES, ids=place)
def test_imports_point_down(file):
    if place(file) in FACADES:
        return
    layer = LAYERS.index(place(file).split("/")[0])
    for line, module in imported(file):
        parts = module.split(".")
        assert set(parts[1:2]) <= set(LAYERS), f"{place(file)}:{line} imports the public name {module}"
        assert LAYERS.index(parts[1]) <= layer, f"{place(file)}:{line} imports {module}, a layer above it"


def test_no_relative_imports():
    for file in MODULES:
        assert not re.search(r"^\s*from \.", file.read_text(encoding="utf-8"), re.MULTILINE), place(file)
