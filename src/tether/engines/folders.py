"""The folder of a run: who holds it, which run it is, and its pieces, found again by a run that continues."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tether.core.output import prepare_folder, write_json
from tether.engines.engine import Engine, Local, Watcher, run
from tether.engines.pieces import Piece, Store


class FolderInUse(OSError):
    """Another process writes to the folder."""


def run_pieces(
    out: str | Path,
    identity: dict[str, Any],
    pieces: Sequence[Piece],
    *,
    resume: bool,
    engine: Engine | None = None,
    watch: Watcher | None = None,
) -> dict[str, Any]:
    """Compute the pieces that the folder does not hold yet.

    Nobody else may hold the folder (see `claim`). A piece that fails leaves those before it in their place.

    Args:
        out: The folder of the run.
        identity: All that decides the results, and the `command`, which does not. A folder that holds a run of another
            identity is refused.
        pieces: What is to be computed.
        resume: Whether the folder may hold finished pieces of the same run.
        engine: What computes them; this process if None.
        watch: Is told how it goes on.

    Returns:
        The content of each piece by its name, as read back from its file, so that a run that was interrupted and one
        that was not give the same.
    """
    folder = prepare_folder(out)
    _check_identity(folder, identity, resume=resume)
    store = Store(folder / "pieces")
    run(engine or Local(), pieces, store, watch)
    return {piece.name: store.read(piece.name) for piece in pieces}


@contextmanager
def claim(out: str | Path) -> Iterator[Path]:
    """Hold a folder against every other process until the block ends, however it ends.

    The operating system drops the lock when the process dies, so a killed run leaves nothing to clean up. A full disk
    is explained: what is finished stays.
    """
    folder = prepare_folder(out)
    try:
        with _held(folder):
            yield folder
    except PermissionError as error:
        raise PermissionError(
            f"{error.filename or folder} cannot be written; --out must be a folder of yours"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            f"no space left for {folder}; finished pieces are kept: make room and run the same command with --resume"
        ) from error


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("a+", encoding="utf-8") as handle:
        try:
            _lock(handle.fileno())
        except OSError as error:
            handle.seek(0)
            raise FolderInUse(
                f"{folder} is in use by another run (process {handle.read().strip() or 'unknown'}); "
                "wait for it, or name another --out"
            ) from error
        # A full disk must not keep anyone from reading what is there.
        with contextlib.suppress(OSError):
            handle.truncate(0)
            handle.write(str(os.getpid()))
            handle.flush()
        yield


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _check_identity(folder: Path, identity: dict[str, Any], *, resume: bool) -> None:
    """Note down what the run is, or refuse the folder of another one."""
    file = folder / "run.json"
    if not file.exists():
        if any((folder / name).exists() for name in ("results.json", "pieces")):
            raise ValueError(f"{folder} holds other results; name another --out, or move them")
        write_json(file, identity)
        return
    there = _read(file)
    wanted = json.loads(json.dumps(identity))
    keys = {*there, *wanted} - {"command"} if isinstance(there, dict) else {"everything"}
    different = sorted(
        key for key in keys if not isinstance(there, dict) or there.get(key) != wanted.get(key)
    )
    if different:
        raise ValueError(
            f"{folder} holds another run ({', '.join(different)} differ); name another --out, or remove the folder"
        )
    if not resume:
        raise ValueError(
            f"{folder} holds this run already; add --resume to go on with it, or name another --out"
        )


def read_identity(folder: Path) -> dict[str, Any]:
    """What the run in a folder is, with the command that began it."""
    content: dict[str, Any] = _read(folder / "run.json")
    return content


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error}); remove it, and it is computed again") from error
