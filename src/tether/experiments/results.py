"""`results.json`: what it holds, written so that it can be compared line by line, and read with clear errors.

docs/results.md explains every field. `REQUIRED` is the part of it that is checked when a file is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tether._files import complete_file

SCHEMA = "tether-results-1"
"""Changes when a reader of the old files would go wrong."""

REQUIRED: dict[str, tuple[str, ...]] = {
    "grid": ("lams", "bs", "seeds", "methods", "rules", "trained_rules", "modes"),
    "training": ("passes", "explored", "block"),
    "data": ("source", "train_episodes", "test_episodes", "horizon", "sha256"),
    "prior": ("reward", "cost", "worst_cost"),
    "bounds": ("lam", "b", "cost", "worst_cost"),
    "scores": (
        *("mode", "method", "rule", "lam", "b", "seed", "reward", "regret"),
        *("cost", "worst_cost", "violation_rate", "worst_margin"),
    ),
    "exploration": ("mode", "method", "rule", "lam", "b", "seed", "episodes", "violation_rate"),
    "guard": ("lam", "b", "episodes", "rows", "bound", "curves"),
    "episodes": ("demand", "renewables", "prior_cost", "start_hour"),
    "tracks": (
        *("mode", "method", "rule", "lam", "b", "episode"),
        *("action", "proposal", "prior_action", "cost", "bound"),
    ),
    "provenance": ("command", "python", "platform", "versions"),
}
"""For each part the fields that it, or each row of it, must have."""


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
    """Read and check a `results.json` of `tether reproduce carbon` or `inference`."""
    file = Path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} not found; `tether reproduce carbon` makes one") from None
    except ValueError as error:
        raise ValueError(f"{file} is not readable JSON: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise ValueError(
            f"{file}: schema must be {SCHEMA!r} (of `tether reproduce carbon` or `inference`), got {found!r}"
        )
    for part, fields in REQUIRED.items():
        if part not in content:
            raise ValueError(f"{file}: the part {part!r} is missing")
        rows = content[part] if isinstance(content[part], list) else [content[part]]
        for i, row in enumerate(rows):
            missing = [name for name in fields if not isinstance(row, dict) or name not in row]
            if missing:
                raise ValueError(f"{file}: {part}[{i}] has no {', '.join(missing)}")
    return content


def find_results(folder: str | Path) -> dict[Path, dict[str, Any]]:
    """The results in a folder, by file: its own `results.json`, or those of the folders in it."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; give one that `tether reproduce` wrote")
    files = (
        [root / "results.json"] if (root / "results.json").exists() else sorted(root.glob("*/results.json"))
    )
    if not files:
        raise FileNotFoundError(
            f"no results.json in {root} or in the folders in it; `tether reproduce carbon` makes one"
        )
    return {file: read_results(file) for file in files}
