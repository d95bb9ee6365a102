"""Episode files: `.npz`, complete or not there, read without pickle."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tether.core.files import complete_file
from tether.data.chunks import existing_file
from tether.data.episodes import Episodes

FORMAT = "tether-episodes-1"


class EpisodeFile(NamedTuple):
    """What an episode file holds."""

    splits: dict[str, Episodes]
    """The episodes by split; one that is called "" if the file is not split."""
    provenance: str
    """Where they came from, as given to `save_episodes`."""


def save_episodes(
    path: str | Path, episodes: Episodes | Mapping[str, Episodes], provenance: str = ""
) -> None:
    """Write an episode file, completely or not at all.

    Args:
        path: Ends in `.npz`; a file that is there is replaced.
        episodes: The episodes, or several sets of them by name (`{"train": ..., "test": ...}`).
        provenance: Where they came from, for a reader.
    """
    target = Path(path)
    if target.suffix != ".npz":
        raise ValueError(f"an episode file ends in .npz, got {str(path)!r}")
    splits = {"": episodes} if isinstance(episodes, Episodes) else dict(episodes)
    if not splits or not all(isinstance(part, Episodes) for part in splits.values()):
        raise TypeError(f"episodes must be tether.data.Episodes or a mapping to them, got {episodes!r}")
    content: dict[str, Any] = {"format": FORMAT, "provenance": provenance, "splits": list(splits)}
    for split, part in splits.items():
        content[f"{split}|names"] = list(part.names)
        content |= {f"{split}|series|{name}": part[name] for name in part.names}
        if part.start_hours is not None:
            content[f"{split}|start_hours"] = part.start_hours
    with complete_file(target) as draft:
        np.savez_compressed(draft, **content)


def load_episodes(path: str | Path, split: str | None = None) -> Episodes:
    """Read the episodes of an episode file.

    Args:
        path: What `save_episodes` wrote.
        split: Which of the sets, needed if the file has several.
    """
    splits = read_episode_file(path).splits
    if split is None and len(splits) == 1:
        return next(iter(splits.values()))
    if split is None or split not in splits:
        held = ", ".join(map(repr, splits)) if "" not in splits else "one set without a name"
        raise ValueError(f"{path}: split must name one of its sets, got {split!r}; it holds {held}")
    return splits[split]


def read_episode_file(path: str | Path) -> EpisodeFile:
    """Read everything in an episode file."""
    file = existing_file(path)
    try:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is no .npz archive, or the end of it is missing")
        with np.load(file, allow_pickle=False) as content:
            return _decode({name: content[name] for name in content.files})
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        reason = f"no entry {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise ValueError(
            f"{file} is not a complete episode file written by save_episodes: {reason}"
        ) from error


def _decode(content: dict[str, Any]) -> EpisodeFile:
    if str(content["format"]) != FORMAT:
        raise ValueError(f"its format is {str(content['format'])!r}, expected {FORMAT!r}")
    splits = {}
    for split in map(str, content["splits"]):
        names = map(str, content[f"{split}|names"])
        series = {name: content[f"{split}|series|{name}"] for name in names}
        splits[split] = Episodes(series, content.get(f"{split}|start_hours"))
    return EpisodeFile(splits, str(content["provenance"]))
