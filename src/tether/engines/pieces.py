"""A run is a list of pieces: each is computed in one go, and its content is written whole or not at all."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tether.core.files import complete_file
from tether.core.output import as_json

Report = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, a few words) while a piece is computed."""
Kind = Literal["json", "pickle", "npz"]
"""How content is written: plain data, anything, or bytes that are a file already."""


class Piece(NamedTuple):
    """A part of a run that is computed in one go: one compiled grid, or some minutes of a search."""

    name: str
    """Of its file, without the suffix."""
    compute: Callable[..., Any]
    """Given a `Report`, and the contents of the pieces that it comes after, the content."""
    after: tuple[str, ...] = ()
    """Names of earlier pieces of the list whose contents it is given."""


def encode(kind: Kind, content: Any) -> bytes:
    """Content as the bytes of its file."""
    if kind == "json":
        return as_json(content, indent=None).encode()
    return pickle.dumps(content) if kind == "pickle" else bytes(content)


def decode(kind: Kind, data: bytes) -> Any:
    """What `encode` was given."""
    if kind == "json":
        return json.loads(data)
    return pickle.loads(data) if kind == "pickle" else data


def computed(piece: Piece, kind: Kind, before: Iterable[bytes], report: Report) -> bytes:
    """The bytes of a piece, computed here.

    Args:
        piece: What to compute.
        kind: How its content and that of the others is written.
        before: The bytes of the pieces that it comes after.
        report: See `Report`.
    """
    return encode(kind, piece.compute(report, *(decode(kind, each) for each in before)))


@dataclass(frozen=True)
class Store:
    """A folder with a file for each finished piece."""

    folder: Path
    kind: Kind = "json"

    def file(self, name: str) -> Path:
        """Where a piece is, or will be."""
        return self.folder / f"{name}.{self.kind}"

    def data(self, name: str) -> bytes:
        """The file of a finished piece."""
        return self.file(name).read_bytes()

    def read(self, name: str) -> Any:
        """The content of a finished piece."""
        file = self.file(name)
        try:
            return decode(self.kind, file.read_bytes())
        except (ValueError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError(f"{file} is damaged ({error}); remove it, and it is computed again") from error

    def write(self, name: str, data: bytes) -> None:
        """Keep a finished piece."""
        with complete_file(self.file(name)) as draft:
            draft.write_bytes(data)
