"""Where results go: a folder, JSON, and what a reader needs to get the same."""

from __future__ import annotations

import json
import math
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from tether.core.files import complete_file


def prepare_folder(path: str | Path) -> Path:
    """The folder for results, made if it is not there."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; --out must be a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_json(path: str | Path, content: Any, indent: int | None = 2) -> None:
    """Write `content` as JSON, see `as_json`."""
    with complete_file(path) as draft:
        draft.write_text(as_json(content, indent), encoding="utf-8")


def as_json(content: Any, indent: int | None = 2) -> str:
    """A JSON text; NumPy numbers and arrays are written as plain numbers and lists."""
    return json.dumps(content, indent=indent, default=_plain, allow_nan=False) + "\n"


def provenance(command: str) -> dict[str, Any]:
    """What a reader needs to get the same results: the command and the versions of what is installed."""
    packages = ("tether-rl", "numpy", "jax", "jaxlib", "equinox")
    installed = {name: _version(name) for name in packages}
    return {
        "command": command,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "versions": {name: version for name, version in installed.items() if version is not None},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def peak_memory() -> float:
    """The most memory that this process has held so far, MB; NaN on Windows, which does not tell."""
    try:
        import resource
    except ModuleNotFoundError:
        return math.nan
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
