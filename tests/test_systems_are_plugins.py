"""No code outside `tether/systems` names a system: what works for one works for every one that is installed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tether"
NAMES = {"Carbon", "Inference", "Cooling", "carbon", "inference", "cooling"}
FACADES = {"__init__.py", "envs.py", "gym.py", "data/__init__.py"}
"""The public names."""
EXPECTED = {
    "paper/studies": "about what the authors printed, published and left open of the paper's own two systems",
    "bench/torch_yardstick.py": "a copy of one system in PyTorch, to compare speeds",
}
"""Files and folders that may name a system, and why."""


def named(text: str) -> list[tuple[int, str]]:
    """(line, name) of every identifier, import and string that is the name of a system; docstrings may be anything."""
    tree = ast.parse(text)
    said = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found = []
    for node in ast.walk(tree):
        words: list[str] = []
        match node:
            case (
                ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.keyword(arg=str(word))
            ):
                words = [word]
            case ast.FunctionDef(name=word) | ast.ClassDef(name=word):
                words = [word]
            case ast.ImportFrom(module=str(module), names=names):
                words = [*module.split("."), *(each.name for each in names)]
            case ast.Import(names=names):
                words = [part for each in names for part in each.name.split(".")]
            case ast.Constant(value=str(word)) if id(node) not in said:
                words = [word.strip()]
        found += [(getattr(node, "lineno", 0), word) for word in words if word in NAMES]
    return found


def place(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


def expected(file: Path) -> bool:
    return any(place(file) == each or place(file).startswith(f"{each}/") for each in EXPECTED)


FILES = [
    file
    for file in sorted(SOURCE.rglob("*.py"))
    if place(file) not in FACADES and not place(file).startswith("systems/") and not expected(file)
]


@pytest.mark.parametrize("file", FILES, ids=place)
def test_no_code_outside_systems_names_one(file):
    lines = [f"{place(file)}:{line} names {word}" for line, word in named(file.read_text(encoding="utf-8"))]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("excused", EXPECTED)
def test_what_is_excused_does_name_one(excused):
    files = [SOURCE / excused] if excused.endswith(".py") else sorted((SOURCE / excused).rglob("*.py"))
    assert any(named(file.read_text(encoding="utf-8")) for file in files)


@pytest.mark.parametrize(
    "text",
    [
        "env = Carbon()",
        "import tether.systems.cooling",
        "from tether.systems.inference.env import Something",
        "isinstance(env, envs.Inference)",
        "kinds = {'carbon': 1}",
        "def cooling(): pass",
        "f(carbon=1)",
    ],
)
def test_a_name_in_code_is_found_wherever_it_stands(text):
    assert named(text)


@pytest.mark.parametrize(
    "text",
    [
        '"""Such as Carbon."""',
        "# carbon",
        "carbon_mixture = 1",
        "'share of carbon'",
        'x = 1\n"""inference"""',
    ],
)
def test_prose_may_name_a_system(text):
    assert not named(text)
