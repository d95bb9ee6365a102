"""The carbon data in the layout that the paper's authors published: four MATLAB files of hourly windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tether.core import validate
from tether.data.episodes import Episodes

Split = Literal["train", "val", "test"]

FILES = {
    "demand": "demand.mat",
    "renewables": "renewables.mat",
    "efficiency_noise": "transit_noise_1.mat",
    "drop_rate": "transit_noise_2.mat",
}
"""Which file holds which series."""


def is_carbon_folder(path: Path) -> bool:
    """Whether a folder holds one of the authors' files."""
    return path.is_dir() and any((path / file).exists() for file in FILES.values())


def load_carbon(path: str | Path, split: Split = "test") -> Episodes:
    """Read the authors' carbon windows.

    Args:
        path: Folder with `demand.mat`, `renewables.mat`, `transit_noise_1.mat` and `transit_noise_2.mat`,
            each with the keys `train`, `val` and `test`: windows of 24 hours that slide by one hour.
        split: Which of the three to read.

    Returns:
        Episodes for `tether.envs.Carbon`; window i starts at hour i mod 24 of the clock.
    """
    validate.choice("split", split, get_args(Split))
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder; expected one that holds {', '.join(FILES.values())}"
        )
    series = {name: _read(folder / file, split) for name, file in FILES.items()}
    return Episodes(series, start_hours=np.arange(len(series["demand"])) % 24)


def _read(file: Path, split: str) -> Any:
    from scipy.io import loadmat

    if not file.is_file():
        raise FileNotFoundError(f"{file} not found; the folder must hold {', '.join(FILES.values())}")
    try:
        content = loadmat(file)
    except Exception as error:  # scipy raises many kinds for a damaged file
        raise ValueError(f"{file} is not a readable MATLAB file: {error}") from error
    if split not in content:
        keys = ", ".join(key for key in content if not key.startswith("__")) or "none"
        raise ValueError(f"{file} has no windows called {split!r}; it holds: {keys}")
    return content[split]
