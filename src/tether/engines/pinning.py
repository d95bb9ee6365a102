"""Workers that are pinned to cores of their own, before JAX is imported and starts threads for every core."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import IO

_held: list[IO[str]] = []
"""Locks of this process, which the system drops when it ends, killed included."""
_pinned: list[int] = []
"""The cores of this process, once it is pinned."""


def own_cores() -> list[int]:
    """The cores that this process may use: all of the machine, unless it is pinned."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pin(cores: int) -> list[int]:
    """Pin this process to so many cores that no other worker on this machine has; those that it has.

    Once: a second call changes nothing. Which cores are taken is known by locks in the folder for temporary files.
    Where there are more workers than cores the last ones share all of them. Only Linux lets a process choose;
    elsewhere nothing is pinned.
    """
    if not hasattr(os, "sched_setaffinity"):
        return []
    if _pinned:
        return _pinned
    if "jax" in sys.modules:
        raise RuntimeError("a worker is pinned before JAX is imported, not after")
    allowed = own_cores()
    folder = Path(tempfile.gettempdir(), f"tether-cores-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    chosen = []
    for core in allowed:
        lock = _locked(folder / f"{core}.lock")
        if lock is not None:
            _held.append(lock)
            chosen.append(core)
        if len(chosen) == cores:
            break
    else:
        chosen = allowed
        while _held:
            _held.pop().close()
    # Every thread that is there already; those to come inherit it.
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), chosen)
    _pinned.extend(chosen)
    return chosen


def _locked(file: Path) -> IO[str] | None:
    """The file, locked by this process; None if another one has it."""
    import fcntl

    handle = file.open("a", encoding="utf-8")
    try:
        fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        return None
    return handle
