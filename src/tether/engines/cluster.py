"""The engine of a cluster: pieces as tasks of Ray Core, on a running cluster or on one of this machine.

The driver, which is the process of the command, hands out pieces and keeps what comes back; it never imports JAX. A
worker pins itself to its cores, unpacks a piece and computes it. Ray gives the piece of a lost worker or node to
another one. A driver that was killed finds its finished pieces in the store; a training goes on from its checkpoint.
"""

from __future__ import annotations

import builtins
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from tether.core.output import provenance
from tether.core.program_cache import keep_programs
from tether.engines import aside, reaper
from tether.engines.engine import Note, Watcher, noted, silent
from tether.engines.pieces import Kind, Piece, Store
from tether.engines.pinning import own_cores, pin

T = TypeVar("T")
RETRIES = 3
"""How often a piece may lose its worker before the run is given up."""
OBJECT_STORE = 256 * 2**20
"""Bytes for pieces on their way, of a cluster of this machine; a piece is some kilobytes to some megabytes."""


class Sent(NamedTuple):
    """A piece on its way to a worker."""

    piece: Piece
    """Sealed."""
    kind: Kind
    cores: int
    folder: str
    """The driver's; a worker works there if it has it, so that relative paths mean the same."""
    places: list[str]
    """Where the driver looks for modules."""
    versions: dict[str, Any]
    """What must be installed on the worker: results would not be the same to the last bit."""


class Cluster:
    """A Ray cluster; use it as a context manager, which leaves nothing running that it has started."""

    def __init__(self, address: str | None = None, workers: int | None = None, cores: int = 1) -> None:
        """What to connect to.

        Args:
            address: Of a running cluster, `auto` or `HOST:PORT`; None starts one on this machine that ends with it.
            workers: How many pieces are computed at a time; as many as there are cores if None.
            cores: Of a worker.
        """
        self._address, self._workers, self._cores = address, workers, cores
        self._reaper: subprocess.Popen[bytes] | None = None
        self.notes: dict[str, Note] = {}

    def __enter__(self) -> Cluster:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Ray's own default is 15: beside anything else on the machine a worker would hardly get on.
        os.environ.setdefault("RAY_worker_niceness", "0")
        import ray

        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if self._address is not None:
            del quiet["include_dashboard"]
            try:
                ray.init(address=self._address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise ConnectionError(
                    f"no Ray cluster at --address {self._address}: {error}; start one with `ray start --head`, or "
                    "leave --address out for one on this machine"
                ) from None
            return self
        # Short: sockets live below it, and their names may have 107 characters.
        folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp" if os.name == "posix" else None)
        self._reaper = reaper.started(folder)
        os.environ[reaper.VARIABLE] = folder
        count = self._workers or len(own_cores()) // self._cores or 1
        processors = count * self._cores
        try:
            ray.init(num_cpus=processors, object_store_memory=OBJECT_STORE, _temp_dir=folder, **quiet)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import ray

        ray.shutdown()
        if self._reaper is not None:
            del os.environ[reaper.VARIABLE]
            self._reaper.communicate()

    @property
    def workers(self) -> int:
        """How many pieces can be computed at a time now; nodes may come and go."""
        import ray

        there = int(ray.cluster_resources().get("CPU", 0)) // self._cores
        return max(1, there if self._workers is None else min(there, self._workers))

    def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """In a process of its own on this machine."""
        return aside.call(function, arguments)

    def plan(self, function: Callable[..., tuple[T, list[Piece]]], *arguments: Any) -> tuple[T, list[Piece]]:
        """In a process of its own on this machine; the pieces come sealed."""
        plan: Callable[..., tuple[T, list[Piece]]] = aside.planned
        return aside.call(plan, (function, *arguments))

    def compute(self, pieces: Sequence[Piece], store: Store, watch: Watcher) -> Iterator[tuple[Piece, bytes]]:
        """See `Engine`."""
        import ray

        work = ray.remote(num_cpus=self._cores, max_retries=RETRIES, num_returns=2)(_work)
        waiting, there = list(pieces), self.workers
        running: dict[Any, Piece] = {}
        refs: dict[str, Any] = {}
        """The bytes of pieces that are finished or will be; Ray holds a piece back until those it comes after are."""
        while waiting or running:
            # Two for each worker, so that none waits for the driver; Ray itself may have room for more than is wanted.
            room = there if self._address is not None and self._workers is not None else 2 * there
            while waiting and len(running) < room:
                piece = waiting.pop(0)
                before = [refs[name] if name in refs else store.data(name) for name in piece.after]
                refs[piece.name], note = work.remote(self._sent(piece, store.kind), *before)
                running[note] = piece
            watch.working(min(len(running), there), there)
            done, _ = ray.wait(list(running), num_returns=1, timeout=2.0)
            for each in done:
                piece = running.pop(each)
                yield piece, self._received(piece, refs[piece.name], each)
                if not any(piece.name in other.after for other in waiting):
                    del refs[piece.name]
            there = self.workers

    def _sent(self, piece: Piece, kind: Kind) -> Sent:
        return Sent(aside.sealed(piece), kind, self._cores, str(Path.cwd()), list(sys.path), _versions())

    def _received(self, piece: Piece, content: Any, note: Any) -> bytes:
        import ray

        try:
            said, data = ray.get([note, content])
        except ray.exceptions.RayError as error:
            raise OSError(
                f"piece {piece.name} lost its worker {RETRIES + 1} times ({type(error).__name__}: is memory short?); "
                "finished pieces are kept: the same command goes on"
            ) from None
        self.notes[piece.name] = said
        if said.error is not None:
            kind, words = said.error
            raise getattr(builtins, kind)(words)
        return bytes(data)


def _work(sent: Sent, *before: bytes) -> tuple[bytes, Note]:
    """What a worker does: the bytes of the piece, and a note."""
    cores: tuple[int, ...] = ()
    try:
        cores = tuple(pin(sent.cores))
        _settle(sent)
        data, note = noted(sent.piece, sent.kind, before, silent)
        return data, note._replace(cores=cores)
    except Exception as error:
        plain = aside.plain_error(error)
        return b"", Note(0.0, 0.0, 0.0, platform.node(), cores, (type(plain).__name__, str(plain)))


def _settle(sent: Sent) -> None:
    """Be where the driver is, and have what it has."""
    if Path(sent.folder).is_dir():
        os.chdir(sent.folder)
    sys.path += [place for place in sent.places if place not in sys.path]
    keep_programs()
    if _versions() != sent.versions:
        raise ValueError(f"{platform.node()} has {_versions()}, the driver {sent.versions}; install the same")


@cache
def _versions() -> dict[str, Any]:
    known = provenance("")
    return {"python": known["python"], **known["versions"]}
