"""What computes pieces: one interface, and the engine of this machine."""

from __future__ import annotations

import concurrent.futures
import ctypes
import multiprocessing
import pickle
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from tether.core.output import peak_memory
from tether.engines.pieces import Kind, Piece, Report, Store, computed

T = TypeVar("T")


class Watcher(Protocol):
    """Is told how a run goes on."""

    def tell(self, piece: Piece, done: int, total: int, words: str) -> None:
        """A piece that is computed in this process has come so far."""

    def working(self, busy: int, workers: int) -> None:
        """So many pieces are at work, on so many workers."""

    def finished(self, piece: Piece, found: bool) -> None:
        """A piece is finished, or was found where an earlier run left it."""


class Note(NamedTuple):
    """What is known about the computation of a piece."""

    seconds: float
    """That it took, on its worker."""
    processor: float
    """Seconds of a processor that it took, all threads together."""
    memory: float
    """The most that its worker has held so far, MB."""
    node: str
    """The name of the machine."""
    cores: tuple[int, ...]
    """That the worker is pinned to; none if it is not."""
    error: tuple[str, str] | None = None
    """The kind and the words of what went wrong."""


class Engine(Protocol):
    """Where a run is computed; what it gives does not depend on the engine, to the last bit."""

    notes: dict[str, Note]
    """Of every piece that was computed, by its name."""

    def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """`function(*arguments)`, where JAX may be imported; a function of a module, and plain data."""

    def plan(self, function: Callable[..., tuple[T, list[Piece]]], *arguments: Any) -> tuple[T, list[Piece]]:
        """The same for a function that gives plain data and the pieces of a run, which then need not be plain."""

    def compute(self, pieces: Sequence[Piece], store: Store, watch: Watcher) -> Iterator[tuple[Piece, bytes]]:
        """Each piece and its bytes, as they are finished; the store holds whatever they come after, or will."""


class Silent:
    """A `Watcher` that says nothing."""

    def tell(self, piece: Piece, done: int, total: int, words: str) -> None:
        """See `Watcher`."""

    def working(self, busy: int, workers: int) -> None:
        """See `Watcher`."""

    def finished(self, piece: Piece, found: bool) -> None:
        """See `Watcher`."""


def run(engine: Engine, pieces: Sequence[Piece], store: Store, watch: Watcher | None = None) -> None:
    """Compute the pieces that the store does not hold yet; each is kept as soon as it is finished.

    A piece that fails leaves those before it in their place.
    """
    watch = watch or Silent()
    names = [piece.name for piece in pieces]
    for place, piece in enumerate(pieces):
        late = [name for name in piece.after if name not in names[:place]]
        if late or piece.name in names[:place]:
            raise ValueError(f"piece {piece.name!r} is there twice, or comes before {late} that it needs")
    missing = []
    for piece in pieces:
        if store.file(piece.name).exists():
            watch.finished(piece, True)
        else:
            missing.append(piece)
    for piece, data in engine.compute(missing, store, watch):
        store.write(piece.name, data)
        watch.finished(piece, False)


class Local:
    """This machine: one piece after the other in this process, or as many at a time as there are `processes`."""

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes
        self.notes: dict[str, Note] = {}

    def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """In this process."""
        return function(*arguments)

    def plan(self, function: Callable[..., tuple[T, list[Piece]]], *arguments: Any) -> tuple[T, list[Piece]]:
        """In this process."""
        return function(*arguments)

    def compute(self, pieces: Sequence[Piece], store: Store, watch: Watcher) -> Iterator[tuple[Piece, bytes]]:
        """See `Engine`. What cannot be sent to another process, somebody's own functions, stays in this one."""
        workers = min(self._processes, len(pieces))
        if workers > 1 and all(map(_sendable, pieces)):
            for piece, (data, note) in _in_processes(workers, pieces, store, watch):
                self.notes[piece.name] = note
                yield piece, data
            return
        for piece in pieces:
            before = [store.data(name) for name in piece.after]
            data, self.notes[piece.name] = noted(piece, store.kind, before, _to(watch, piece))
            yield piece, data


def noted(piece: Piece, kind: Kind, before: Sequence[bytes], report: Report) -> tuple[bytes, Note]:
    """The bytes of a piece, computed here, and a note."""
    start, busy = time.perf_counter(), time.process_time()
    data = computed(piece, kind, before, report)
    seconds, processor = time.perf_counter() - start, time.process_time() - busy
    return data, Note(seconds, processor, peak_memory(), platform.node(), ())


def _to(watch: Watcher, piece: Piece) -> Report:
    return lambda done, total, words: watch.tell(piece, done, total, words)


def _sendable(piece: Piece) -> bool:
    try:
        pickle.dumps(piece)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _in_processes(
    workers: int, pieces: Sequence[Piece], store: Store, watch: Watcher
) -> Iterator[tuple[Piece, tuple[bytes, Note]]]:
    # A fresh interpreter each: forking a process that runs JAX's threads can hang.
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=context, initializer=die_with_parent)
    with pool:
        waiting = list(pieces)
        running: dict[concurrent.futures.Future[tuple[bytes, Note]], Piece] = {}
        try:
            while waiting or running:
                unfinished = {piece.name for piece in (*waiting, *running.values())}
                for piece in [each for each in waiting if not unfinished.intersection(each.after)]:
                    waiting.remove(piece)
                    before = [store.data(name) for name in piece.after]
                    running[pool.submit(_sent, piece, store.kind, before)] = piece
                watch.working(min(len(running), workers), workers)
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for each in done:
                    yield running.pop(each), each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _sent(piece: Piece, kind: Kind, before: list[bytes]) -> tuple[bytes, Note]:
    return noted(piece, kind, before, silent)


def silent(_done: int, _total: int, _words: str) -> None:
    """A `Report` that nobody hears."""


def die_with_parent() -> None:
    """Let the system end this process when the one that started it is gone, killed included; on Linux only."""
    if sys.platform == "linux":
        die = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(die, signal.SIGKILL)
