"""The few things that a journal asks of a disk, so that a test can put one that fails in its place."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, Protocol


class File(Protocol):
    """A file that is written at its end."""

    def write(self, data: bytes | memoryview) -> int:
        """Hand bytes to the operating system; returns how many it took, which may be fewer."""

    def sync(self) -> None:
        """Return when everything that was written will be there after a loss of power."""

    def truncate(self, size: int) -> None:
        """Cut the file to so many bytes."""

    def close(self) -> None:
        """Done with it."""


class Lock(Protocol):
    """A folder that is taken by one process."""

    def release(self) -> None:
        """Let another have it."""


class Disk(Protocol):
    """Where files are. Paths are text; folders are made with all that is above them."""

    def make_folder(self, path: str) -> None:
        """Make a folder, if it is not there, so that it will be there after a loss of power."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted."""

    def read(self, path: str) -> bytes:
        """All of a file."""

    def create(self, path: str) -> File:
        """An empty file, instead of one that may be there."""

    def append(self, path: str) -> File:
        """A file that is there, to be written at its end."""

    def rename(self, old: str, new: str) -> None:
        """Move a file; a file of the new name is replaced in one step."""

    def remove(self, path: str) -> None:
        """Delete a file."""

    def sync_folder(self, path: str) -> None:
        """Return when the names in a folder will be there after a loss of power."""

    def lock(self, path: str) -> Lock | None:
        """Take a folder by a file of this name, until this process ends; None if another has it."""


class _RealFile:
    def __init__(self, path: str, flags: int) -> None:
        self._handle = os.open(path, flags | os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o640)

    def write(self, data: bytes | memoryview) -> int:
        return os.write(self._handle, data)

    def sync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._handle)
        else:
            os.fsync(self._handle)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._handle, size)

    def close(self) -> None:
        os.close(self._handle)


class _RealLock:
    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def release(self) -> None:
        self._file.close()


class RealDisk:
    """The disk of this machine."""

    def make_folder(self, path: str) -> None:
        """See `Disk`."""
        folder = Path(path).absolute()
        if folder.is_dir():
            return
        if folder.exists():
            raise NotADirectoryError(f"a journal is a folder, and {path} is a file")
        self.make_folder(str(folder.parent))
        folder.mkdir(exist_ok=True, mode=0o750)
        self.sync_folder(str(folder.parent))

    def names(self, folder: str) -> list[str]:
        """See `Disk`."""
        return sorted(each.name for each in Path(folder).iterdir())

    def read(self, path: str) -> bytes:
        """See `Disk`."""
        return Path(path).read_bytes()

    def create(self, path: str) -> File:
        """See `Disk`."""
        return _RealFile(path, os.O_CREAT | os.O_TRUNC)

    def append(self, path: str) -> File:
        """See `Disk`."""
        return _RealFile(path, 0)

    def rename(self, old: str, new: str) -> None:
        """See `Disk`."""
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        """See `Disk`."""
        Path(path).unlink()

    def sync_folder(self, path: str) -> None:
        """See `Disk`; Windows has no such thing, and keeps names by itself."""
        if sys.platform == "win32":
            return
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: str) -> Lock | None:
        """See `Disk`."""
        file = open(path, "a", encoding="utf-8")  # noqa: PTH123, SIM115 (held for as long as the journal is open)
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        return _RealLock(file)
