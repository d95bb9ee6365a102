"""Text files of rows, packed or not: which ones are meant, and their text in pieces of whole rows."""

from __future__ import annotations

import gzip
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

CHUNK_BYTES = 8 << 20
"""Decompressed text that is read at a time."""


def existing_file(path: str | Path) -> Path:
    """The path of a file that is there."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file} not found" if not file.exists() else f"{file} is not a file")
    return file


def csv_files(paths: str | Path | Iterable[str | Path], patterns: Sequence[str] = ("*.csv",)) -> list[Path]:
    """The files that are meant: a file, those of a folder that match a pattern, or several files."""
    if not isinstance(paths, str | Path):
        files = [Path(path) for path in paths]
        if not files:
            raise ValueError("no files given")
        return files
    path = Path(paths)
    if path.is_dir():
        files = sorted(
            {file for pattern in patterns for file in path.glob(pattern)} or _below(path, patterns)
        )
        if not files:
            raise FileNotFoundError(f"{path} holds no file {' or '.join(patterns)}")
        return files
    if not path.exists():
        raise FileNotFoundError(f"{path} not found")
    return [path]


def _below(folder: Path, patterns: Sequence[str]) -> set[Path]:
    return {file for pattern in patterns for file in folder.glob(f"*/{pattern}")}


def open_text(file: Path) -> Any:
    """The bytes of a file, decompressed if it is a gzip file."""
    with file.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return _gunzip()[0](str(file), "rb") if packed else file.open("rb")


def row_chunks(
    file: Path,
    header: bytes,
    stop: threading.Event | None = None,
    *,
    size: int = CHUNK_BYTES,
) -> Iterator[bytes]:
    """The decompressed text in pieces of whole rows, each with `header` before it.

    Args:
        file: A text file; rows end with a line feed.
        header: Put before each piece, for a parser that wants one.
        stop: Reading ends soon after it is set.
        size: Bytes that are read at a time.
    """
    rest = b""
    try:
        with open_text(file) as stream:
            while (block := stream.read(size)) and not (stop and stop.is_set()):
                end = block.rfind(b"\n") + 1
                if not end and len(block) == size:
                    raise ValueError(f"{file}: a row is longer than {size} bytes")
                if end:
                    yield b"".join((header, rest, memoryview(block)[:end]))
                    rest = b""
                rest += block[end:]
    except (EOFError, gzip.BadGzipFile, _gunzip()[1]) as error:
        raise ValueError(f"{file} is not a complete gzip file: {error}") from None
    if rest and not (stop and stop.is_set()):
        yield header + rest


def _gunzip() -> tuple[Any, Any]:
    """The fastest reader of gzip files there is, and what it raises on damaged ones."""
    try:
        from isal import igzip, isal_zlib  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return gzip.GzipFile, zlib.error
    return igzip.IGzipFile, isal_zlib.error
