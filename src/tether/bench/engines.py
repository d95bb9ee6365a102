"""What a cluster costs: the same pieces on Ray with one worker and in one process, and a schedule for many nodes.

A piece is a part of an attack on a system's standard plant, as `tether attack` computes it. Both sides are pinned to
one core and have compiled before the clock starts; they take turns.
"""

from __future__ import annotations

import heapq
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from tether.engines import aside
from tether.engines.cluster import Cluster
from tether.engines.engine import Local, Silent, run
from tether.engines.pieces import Piece, Report, Store
from tether.engines.pinning import pin
from tether.systems import registry

BATCH = 1000
"""Episodes that are played at a time."""
EMPTY = 200
"""Pieces without work, to see how many a second the driver hands out."""


class Overhead(NamedTuple):
    """Pieces of one length on both engines."""

    seconds: float
    """That a piece is meant to take."""
    pieces: int
    local: float
    """Seconds that all of them took in one process ..."""
    ray: float
    """... and on Ray."""
    work: float
    """Seconds of the latter that the worker was at work."""
    processor: float
    """Seconds of a processor that the pieces took there, over those in one process."""

    @property
    def ratio(self) -> float:
        """Ray over local; other work on the machine changes it."""
        return self.ray / self.local

    @property
    def beside(self) -> float:
        """All of the time on Ray over that of its work, which other work on the machine hardly changes."""
        return self.ray / self.work


class Costs(NamedTuple):
    """What a cluster costs beside the work."""

    start: float
    """Seconds until a cluster of this machine is there."""
    first: float
    """Seconds of a worker's first piece, beside its work: a process, JAX, a plant and what was compiled before."""
    hand_out: float
    """Seconds of the driver for each piece."""


def measure(system: str, lengths: Sequence[float], counts: Sequence[int]) -> tuple[list[Overhead], Costs]:
    """Every length on both engines, in turn, and what the cluster costs."""
    rate = aside.call(_calibrated, (system,))
    begin = time.perf_counter()
    found = []
    with tempfile.TemporaryDirectory() as folder, Cluster(workers=1) as cluster:
        start = time.perf_counter() - begin
        warm = Store(Path(folder, "warm"), "pickle")
        first = _timed(cluster, [_piece(system, 1, "warm")], warm) - 1.0 / rate
        empty = [Piece(f"{i}", _nothing) for i in range(EMPTY)]
        hand_out = _timed(cluster, empty, Store(Path(folder, "empty"), "pickle")) / EMPTY
        for length, count in zip(lengths, counts, strict=True):
            batches = max(1, round(length * rate))
            pieces = [_piece(system, batches, f"{length:g}-{i}") for i in range(count)]
            local, processor = aside.call(_in_one_process, (system, batches, count))
            ray = _timed(cluster, pieces, Store(Path(folder, f"{length:g}"), "pickle"))
            notes = [cluster.notes[piece.name] for piece in pieces]
            work, busy = (
                sum(each) for each in zip(*((note.seconds, note.processor) for note in notes), strict=True)
            )
            found.append(Overhead(length, count, local, ray, work, busy / processor))
    return found, Costs(start, first, hand_out)


def _piece(system: str, batches: int, name: str) -> Piece:
    return Piece(name, partial(_attack, system, batches))


def _nothing(_report: Report) -> None:
    """A piece without work."""


def _attack(system: str, batches: int, _report: Report) -> int:
    """A piece: so many batches; the episodes in which the promise was broken."""
    from tether.assure.attack import attack

    env, certificate = _attacked(system)
    found = registry.find(system)
    return attack(found, "standard", env, certificate, batches * BATCH, 0, batch=BATCH).violations


@cache
def _attacked(system: str) -> Any:
    from tether.assure.attack import certify, plants

    env = plants(registry.find(system))["standard"]
    return env, certify(env, "lipschitz", env.contract(1.0, 1.0), None, 1.0)


def _calibrated(system: str) -> float:
    """Batches a second of one core."""
    pin(1)
    _attack(system, 1, _silent)
    begin, batches = time.perf_counter(), 0
    while time.perf_counter() - begin < 2.0:
        _attack(system, 5, _silent)
        batches += 5
    return batches / (time.perf_counter() - begin)


def _silent(_done: int, _total: int, _words: str) -> None:
    """Nobody listens."""


def _in_one_process(system: str, batches: int, count: int) -> tuple[float, float]:
    """Seconds of the local engine, and of its processor, on one core and after a first piece."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # the core that the idle worker has
    _attack(system, 1, _silent)
    with tempfile.TemporaryDirectory() as folder:
        pieces = [_piece(system, batches, f"{i}") for i in range(count)]
        engine = Local()
        seconds = _timed(engine, pieces, Store(Path(folder), "pickle"))
        return seconds, sum(note.processor for note in engine.notes.values())


def _timed(engine: Any, pieces: list[Piece], store: Store) -> float:
    begin = time.perf_counter()
    run(engine, pieces, store, Silent())
    return time.perf_counter() - begin


class Schedule(NamedTuple):
    """A run on so many workers, by simulation."""

    workers: int
    pieces: int
    seconds: float
    """Until the last piece is done."""
    ideal: float
    """Work divided by workers, seconds."""
    starting: float
    """Seconds of the workers' time, as a share of all of it, that go into their first piece ..."""
    waiting: float
    """... that they wait for the driver while there are pieces left ..."""
    idle: float
    """... and that they are idle because there are none."""

    @property
    def efficiency(self) -> float:
        """Ideal over real time."""
        return self.ideal / self.seconds

    @property
    def bottleneck(self) -> str:
        """What takes most beside the work."""
        parts = {
            "starting workers": self.starting,
            "the driver": self.waiting,
            "too few pieces": self.idle,
        }
        return max(parts, key=lambda name: parts[name])


def schedule(pieces: Sequence[float], workers: int, costs: Costs) -> Schedule:
    """Hand out the pieces in order, one after the other, each to the worker that is free first.

    Args:
        pieces: Seconds of each.
        workers: How many there are.
        costs: What the cluster costs; all workers are there at 0 but have not begun to start.

    Example:
        >>> free = Costs(start=0.0, first=0.0, hand_out=0.0)
        >>> schedule([1.0] * 4, workers=2, costs=free).seconds
        2.0
        >>> schedule([1.0] * 4, workers=3, costs=free).bottleneck
        'too few pieces'
    """
    free = [(0.0, worker) for worker in range(workers)]
    begun: set[int] = set()
    driver = waiting = starting = 0.0
    for seconds in pieces:
        there, worker = heapq.heappop(free)
        driver += costs.hand_out
        begin = max(there, driver)
        waiting += begin - there
        first = 0.0 if worker in begun else costs.first
        begun.add(worker)
        starting += first
        heapq.heappush(free, (begin + first + seconds, worker))
    end = max(time for time, _ in free)
    idle = sum(end - time for time, _ in free)
    whole = end * workers
    ideal = sum(pieces) / workers
    return Schedule(workers, len(pieces), end, ideal, starting / whole, waiting / whole, idle / whole)


def estimates(
    pieces: Sequence[float], cores: int, costs: Costs, nodes: Sequence[int] = (1, 4, 16, 64)
) -> Iterator[tuple[int, Schedule]]:
    """The schedule of a run on so many nodes of `cores` each."""
    for count in nodes:
        yield count, schedule(pieces, count * cores, costs)
