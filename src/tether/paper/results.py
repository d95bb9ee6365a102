"""`results.json`: what it holds, written so that it can be compared line by line, and read with clear errors.

docs/results.md explains every field. `REQUIRED` is the part of it that is checked when a file is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tether.core.files import complete_file
from tether.systems import registry

SCHEMA = "tether-results-1"
"""Changes when a reader of the old files would go wrong."""

REQUIRED: dict[str, tuple[str, ...]] = {
    "grid": ("lams", "bs", "seeds", "methods", "rules", "trained_rules", "modes"),
    "training": (
        *("recipe", "passes", "explored", "block"),
        *("learning_rate", "schedule", "batch", "steps", "width"),
    ),
    "data": ("source", "origin", "train_episodes", "test_episodes", "horizon", "sha256"),
    "prior": ("reward", "cost", "worst_cost"),
    "bounds": ("lam", "b", "cost", "worst_cost"),
    "scores": (
        *("mode", "method", "rule", "lam", "b", "seed", "reward", "regret"),
        *("cost", "worst_cost", "violation_rate", "worst_margin"),
    ),
    "exploration": ("mode", "method", "rule", "lam", "b", "seed", "episodes", "violation_rate"),
    "guard": ("lam", "b", "episodes", "rows", "bound", "curves"),
    "episodes": ("prior_cost", "start_hour"),
    "tracks": (
        *("mode", "method", "rule", "lam", "b", "episode"),
        *("action", "proposal", "prior_action", "cost", "bound"),
    ),
    "provenance": ("command", "python", "platform", "versions"),
}
"""For each part the fields that it, or each row of it, must have."""

BOARD = ("label", "action", "series")
"""Fields of a board of the player."""
SECTION = ("title", "text", "columns", "rows")
"""Fields of a further table."""
EVIDENCE = ("on", "text", "holds")
"""Fields of what a study found about a difference from the paper, or about an explanation that the paper gives."""


def write_results(path: str | Path, results: dict[str, Any]) -> None:
    """Write `results.json`: a part on a line, and a row on a line in the parts that are lists."""
    parts = []
    for key, value in results.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in value)
            parts.append(f"{json.dumps(key)}: [\n  {rows}\n ]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    with complete_file(path) as draft:
        draft.write_text("{\n " + ",\n ".join(parts) + "\n}\n", encoding="utf-8")


def read_results(path: str | Path) -> dict[str, Any]:
    """Read and check a `results.json` of `tether reproduce SYSTEM`; one from before `title` and `boards` gets them."""
    file = Path(path)
    content = _read(file)
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{file}: schema must be {SCHEMA!r} (of `tether reproduce SYSTEM`), got {found!r}")
    for part, fields in REQUIRED.items():
        if part not in content:
            raise ValueError(f"{file}: the part {part!r} is missing")
        rows = content[part] if isinstance(content[part], list) else [content[part]]
        for i, row in enumerate(rows):
            _check(file, f"{part}[{i}]", row, fields)
    _complete(content)
    for i, board in enumerate(content["boards"]):
        _check(file, f"boards[{i}]", board, BOARD)
        for j, episode in enumerate(content["episodes"]):
            _check(file, f"episodes[{j}]", episode, tuple(board["series"]))
    return content


def _complete(content: dict[str, Any]) -> None:
    """Add what files did not have while all systems had one action and their series on the same axis."""
    name = content.get("system")
    if "title" not in content:
        content["title"] = registry.find(name).title if name in registry.names() else str(name)
    if "boards" not in content:
        first: dict[str, Any] = next(iter(content["episodes"]), {})
        series = [each for each in first if each not in REQUIRED["episodes"]]
        content["boards"] = [{"label": "energy", "action": 0, "series": series}]


class Found(NamedTuple):
    """What a folder holds."""

    studies: dict[Path, dict[str, Any]]
    """Contents of the `results.json` of `tether reproduce SYSTEM`, by file."""
    sections: list[dict[str, Any]]
    """Tables that other commands left for the report."""
    evidence: list[dict[str, Any]]
    """What other commands found about differences from the paper: `on` what, `text`, and whether the paper's
    explanation `holds`, None if it is not about one."""


def find_results(folder: str | Path) -> Found:
    """The results in a folder: its own `results.json`, or those of the folders in it.

    Of a `results.json` that another command wrote, such as `tether reproduce theory`, only the parts `sections`, tables
    with `title`, `text`, `columns` and `rows`, and `evidence` are taken if it has them.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; give one that `tether reproduce` wrote")
    if (root / "results.json").exists():
        return Found({root / "results.json": read_results(root / "results.json")}, [], [])
    studies, sections, evidence = {}, [], []
    for file in sorted(root.glob("*/results.json")):
        content = _read(file)
        if isinstance(content, dict) and content.get("schema") == SCHEMA:
            studies[file] = read_results(file)
        elif isinstance(content, dict):
            sections += content.get("sections", [])
            evidence += content.get("evidence", [])
    if not studies:
        raise FileNotFoundError(
            f"no results.json of a system in {root} or in the folders in it; `tether reproduce SYSTEM` makes one"
        )
    for part, rows, fields in (("sections", sections, SECTION), ("evidence", evidence, EVIDENCE)):
        for i, row in enumerate(rows):
            _check(root, f"{part}[{i}]", row, fields)
    return Found(studies, sections, evidence)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} not found; `tether reproduce SYSTEM` makes one") from None
    except ValueError as error:
        raise ValueError(f"{file} is not readable JSON: {error}") from error


def _check(file: Path, place: str, row: Any, fields: tuple[str, ...]) -> None:
    missing = [name for name in fields if not isinstance(row, dict) or name not in row]
    if missing:
        raise ValueError(f"{file}: {place} has no {', '.join(missing)}")
