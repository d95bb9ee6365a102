"""A function in a process of its own: the driver of a cluster never imports JAX, what it plans and shows may.

`python -m tether.engines.aside REQUEST ANSWER` is that process; both are files of the one that started it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tether.engines.engine import die_with_parent
from tether.engines.pieces import Piece, Report

T = TypeVar("T")


class Sealed:
    """A function that is only unpacked where it is called, with all that it imports."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def __call__(self, report: Report, *before: Any) -> Any:
        """See `Piece.compute`."""
        return pickle.loads(self.packed)(report, *before)


def sealed(piece: Piece) -> Piece:
    """The piece with its function sealed; somebody's own functions are packed, too."""
    from ray import cloudpickle

    if isinstance(piece.compute, Sealed):
        return piece
    return piece._replace(compute=Sealed(cloudpickle.dumps(piece.compute)))


def planned(function: Callable[..., tuple[T, list[Piece]]], *arguments: Any) -> tuple[T, list[Piece]]:
    """What a function that plans a run gives, its pieces sealed."""
    plain, pieces = function(*arguments)
    return plain, [sealed(piece) for piece in pieces]


def call(function: Callable[..., T], arguments: Sequence[Any]) -> T:
    """`function(*arguments)` in a fresh process on this machine; what it prints is printed, what it raises raised."""
    with tempfile.TemporaryDirectory(prefix="tether-") as folder:
        request, answer = Path(folder, "request"), Path(folder, "answer")
        # Where to look for modules comes first: what follows may be of one of them.
        request.write_bytes(pickle.dumps((sys.argv, sys.path)) + pickle.dumps((function, tuple(arguments))))
        command = [sys.executable, "-m", "tether.engines.aside", str(request), str(answer)]
        code = subprocess.run(command, check=False).returncode
        if not answer.exists():
            raise OSError(f"the process that computes {function.__name__} ended with code {code}")
        value, error = pickle.loads(answer.read_bytes())
    if error is not None:
        raise error
    result: T = value
    return result


def main(request: str, answer: str) -> None:
    """Do what is requested, and answer."""
    die_with_parent()
    value, error = None, None
    try:
        with Path(request).open("rb") as file:
            sys.argv, places = pickle.load(file)
            sys.path += [place for place in places if place not in sys.path]
            function, arguments = pickle.load(file)
        value = function(*arguments)
    except Exception as raised:
        error = plain_error(raised)
    Path(answer).write_bytes(pickle.dumps((value, error)))


def plain_error(error: Exception) -> Exception:
    """The error as one of Python's own, so that it can be raised where its module is not imported."""
    import traceback

    if os.environ.get("TETHER_DEBUG"):
        traceback.print_exception(error)
    known = (
        ModuleNotFoundError, ImportError, FileNotFoundError, NotADirectoryError, PermissionError, OSError,
        FloatingPointError, NotImplementedError, TypeError, ValueError,
    )  # fmt: skip
    for kind in known:
        if isinstance(error, kind):
            made: Exception = kind(str(error))
            if isinstance(error, ImportError) and isinstance(made, ImportError):
                made.name = error.name
            return made
    return RuntimeError("".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main(*sys.argv[1:])
