"""What an installation brings: NumPy for the guard, extras for the rest, and the one that is missing by name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tether
from tether.core.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = {"jax", "scipy", "matplotlib", "gymnasium", "typer", "rich", "polars", "equinox", "optax"}


def fresh(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_importing_tether_loads_numpy_and_neither_a_reader_nor_an_environment():
    loaded = fresh("import sys, tether; print(*sys.modules)").stdout.split()
    assert not HEAVY & set(loaded)
    rooms = {name.split(".")[1] for name in loaded if name.startswith("tether.")}
    assert rooms == {"core", "certificates"}
    standard = set(sys.stdlib_module_names) | {"numpy", "tether"}
    site = {"sitecustomize", "usercustomize", "_virtualenv", "__main__"}
    others = {name.split(".")[0] for name in loaded} - standard - site
    assert not {name for name in others if not name.startswith(("_", "__editable__"))}


def test_what_is_used_every_day_is_at_the_top_and_everything_there_can_be_loaded():
    assert len(tether.__all__) <= 20
    for name in dir(tether):
        assert getattr(tether, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tether.nothing  # noqa: B018


def test_the_core_needs_numpy_only_and_the_extras_bring_what_the_source_imports():
    assert PROJECT["dependencies"] == ["numpy>=2.1"]
    outside = set()
    for file in (ROOT / "src" / "tether").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                outside.add(str(node.module).split(".")[0])
            elif isinstance(node, ast.Import):
                outside |= {each.name.split(".")[0] for each in node.names}
    assert outside - set(sys.stdlib_module_names) - {"numpy", "tether"} <= set(EXTRAS)


@pytest.mark.parametrize("module", sorted(EXTRAS))
def test_an_extra_brings_the_module_that_it_is_named_for(module):
    along = {"jaxlib": "jax", "torch": "stable-baselines3"}  # packages that bring another module along
    wanted = along.get(module, module).lower().replace("_", "-")
    listed = {
        re.split(r"[<>=\[; ]", each)[0].lower() for each in PROJECT["optional-dependencies"][EXTRAS[module]]
    }
    assert wanted in listed


def test_extras_name_extras_that_exist_and_torch_is_not_pinned():
    extras = PROJECT["optional-dependencies"]
    for name, listed in extras.items():
        for each in listed:
            inner = re.match(r"tether-rl\[(.*)\]", each)
            assert inner is None or set(inner[1].split(",")) <= set(extras), name
            assert "==" not in each.split(";")[0], each
    assert not any("torch" in each for listed in extras.values() for each in listed)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("rollout", "jax", "learn"), ("train", "optax", "learn"), ("gym", "gymnasium", "gym")],
)
def test_a_name_whose_extra_is_missing_says_which(name, module, extra):
    needs = f"tether.{name} needs tether-rl[{extra}]: pip install 'tether-rl[{extra}]'"
    for use in ["import tether; tether.{}", *(["import tether.{}"] if name == "gym" else [])]:
        done = fresh(f"import sys; sys.modules[{module!r}] = None; {use.format(name)}")
        assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {needs}"


@pytest.mark.parametrize(
    ("module", "arguments", "line"),
    [
        ("typer", ["train"], "tether train needs tether-rl[cli]: pip install 'tether-rl[cli]'"),
        (
            "jax",
            ["train", "carbon", "--episodes", "1"],
            "tether train needs tether-rl[learn]: pip install 'tether-rl[learn]'",
        ),
    ],
)
def test_a_command_whose_extra_is_missing_says_which_in_one_line(module, arguments, line):
    done = fresh(
        f"import sys; sys.modules[{module!r}] = None; sys.argv = {['tether', *arguments]!r}; "
        "from tether.cli.main import main; main()"
    )
    assert (done.returncode, done.stderr) == (2, line + "\n")
