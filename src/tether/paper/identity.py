"""All that decides the results of an evaluation: its grid, data, code and machine."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tether.core import output
from tether.learn.plant import Plant, is_episode_file
from tether.paper.evaluation import Evaluation
from tether.paper.studies.published import read_published
from tether.systems.system import System

EVALUATION = "tether.paper.assembly"
"""The module that imports all of an evaluation, but for its system."""


def identity(
    evaluation: Evaluation, plant: Plant, command: str, data: Path | None, paper: Path | None
) -> dict[str, Any]:
    """All that decides the results; a run goes on only in a folder of the same identity."""
    return {
        **asdict(evaluation),
        "data": _describe_data(plant, data),
        "paper": None if paper is None else read_published(paper),
        "code": digest_of_code([EVALUATION, *_modules(plant.system)]),
        "machine": {key: value for key, value in output.provenance(command).items() if key != "command"},
        "command": command,
    }


def _describe_data(plant: Plant, data: Path | None) -> dict[str, Any]:
    digest = hashlib.sha256()
    for episodes in (plant.train, plant.test, *([] if plant.validation is None else [plant.validation])):
        for name in sorted(episodes.names):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(episodes[name]).tobytes())
    source, origin = "embedded", "embedded data"
    if is_episode_file(data):
        source, origin = "file", "own data"
    elif data is not None and plant.system.reader is not None:
        source, origin = plant.system.reader.source, plant.system.reader.origin
    return {
        "source": source,
        "origin": origin,
        "train_episodes": len(plant.train),
        "test_episodes": len(plant.test),
        "horizon": plant.test.horizon,
        "sha256": digest.hexdigest(),
    }


def _modules(system: System) -> list[str]:
    """The modules in which the parts of a system that an evaluation plays are written."""
    parts: list[Any] = [system.env, system.draw, *([] if system.reader is None else [system.reader.read])]
    written = [part.func if isinstance(part, partial) else part for part in parts]
    return [str(part.__module__) for part in written]


def digest_of_code(roots: Iterable[str]) -> str:
    """Of the source of these modules and of all that they import of their own packages: other code is another run."""
    digest = hashlib.sha256()
    for module, file in sorted(imported_modules(roots).items()):
        digest.update(module.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def imported_modules(roots: Iterable[str]) -> dict[str, Path]:
    """These modules and those of their own packages that they import, directly or not, with their files.

    Imports inside of functions count, those for type checking only do not.
    """
    waiting = list(roots)
    packages = {"tether", *(root.partition(".")[0] for root in waiting)}
    found: dict[str, Path] = {}
    while waiting:
        module = waiting.pop()
        if module in found or module.partition(".")[0] not in packages:
            continue
        file = _file(module)
        if file is not None:
            found[module] = file
            waiting += _imports(ast.parse(file.read_text(encoding="utf-8")), module, file)
    return found


def _file(module: str) -> Path | None:
    """The source file of a module; None for a name that is none, such as a function in a module."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


def _imports(tree: ast.AST, module: str, file: Path) -> Iterator[str]:
    """What a module imports by name; `from a import b` may mean the module a or the module a.b."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:  # relative: from the package of the module
                above = module.split(".")[
                    : len(module.split(".")) - node.level + (file.name == "__init__.py")
                ]
                origin = ".".join([*above, *([origin] if origin else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node, module, file)
