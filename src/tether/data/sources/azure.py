"""CPU readings of the Azure Public Dataset V2, reduced to hourly load in bounded memory."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tether.core import validate
from tether.data.chunks import CHUNK_BYTES, csv_files, open_text, row_chunks
from tether.data.frames import load_polars
from tether.data.readings import MAX_GAP_HOURS, hourly_from_readings
from tether.data.series import HOUR, HourlySeries

Reduction = Literal["sum", "mean"]
COLUMNS = ("timestamp", "vm id", "min cpu", "max cpu", "avg cpu")
HEADER = b"stamp,vm,low,high,cpu,extra\n"
"""Put before the rows for the parser; the column too many is where it shows rows that are too long."""
STEP = 300
"""Seconds between two readings of a virtual machine."""
START = datetime(2019, 1, 1)
"""The publisher does not say on which day of 2019 second 0 lies: midnight of this one, without a zone."""
MAX_WORKERS = 4
"""Most files read at a time by default."""


class _Load(NamedTuple):
    stamps: NDArray[np.int64]
    """[S] seconds from the start, multiples of STEP, increasing."""
    sums: NDArray[np.float64]
    """[S] sum of the average CPU in percent over all machines."""
    counts: NDArray[np.int64]
    """[S] number of readings."""


def load_azure(
    paths: str | Path | Iterable[str | Path],
    *,
    how: Reduction = "sum",
    start: datetime = START,
    max_gap_hours: float = MAX_GAP_HOURS,
    workers: int | None = None,
    progress: Callable[[Path], None] | None = None,
) -> HourlySeries:
    """Hourly load from CPU readings.

    A file has no header and the columns `timestamp, vm id, min cpu, max cpu, avg cpu`: seconds from the start
    of the trace in steps of 300, an opaque id, and percent. The readings of one moment may be spread over
    several files. In each five minutes the average CPU is summed over all machines; an hour's load is the
    mean of its sums.

    Memory does not grow with the files: each of the `workers` holds a few chunks of 8 MB of text. Files are
    decompressed by `isal` if it is installed (extra `[data]`), else by the standard library, which takes
    longer.

    Args:
        paths: A `.csv.gz` or `.csv` file, a folder of them, or several.
        how: `sum`: load in VM-equivalents (machines that would be fully busy: percent / 100). `mean`: mean
            CPU of the machines that reported, in percent.
        start: The time of second 0: a full hour, aware or naive.
        max_gap_hours: Longest gap that is bridged by a straight line; a longer one is an error.
        workers: Files read at a time; None: one for each processor, at most 4.
        progress: Called with each file after it was read, from any thread.
    """
    validate.choice("how", how, get_args(Reduction))
    polars = load_polars("reading Azure files")
    files = csv_files(paths, ("*.csv.gz", "*.csv"))
    load = _reduce(files, polars, workers or min(MAX_WORKERS, os.cpu_count() or 1), progress)
    values = load.sums / 100.0 if how == "sum" else load.sums / load.counts
    first, hourly, intake = hourly_from_readings(
        load.stamps.astype(np.float64), values, lambda k: _place(files, int(load.stamps[k])), max_gap_hours
    )
    intake = replace(intake, rows=int(load.counts.sum()))
    unit, name = ("VM-equivalents", "load") if how == "sum" else ("%", "mean CPU")
    origin = str(files[0] if len(files) == 1 else files[0].parent)
    return HourlySeries(start + first * HOUR, hourly, unit, name, origin, intake)


def _reduce(
    files: list[Path], polars: ModuleType, workers: int, progress: Callable[[Path], None] | None
) -> _Load:
    """Sums and counts of every moment over all files; decompressing and parsing overlap."""
    stop = threading.Event()

    def reduce(file: Path) -> list[Any]:
        frames: list[Any] = []
        pending: deque[Future[Any]] = deque()
        for chunk in row_chunks(file, HEADER, stop, size=CHUNK_BYTES):
            pending.append(parsers.submit(_reduce_chunk, file, chunk, polars))
            if len(pending) > 1:
                frames.append(pending.popleft().result())
        frames += [future.result() for future in pending]
        if progress is not None:
            progress(file)
        return [polars.concat(frames).group_by("stamp").sum()] if frames else []

    with ThreadPoolExecutor(workers) as parsers, ThreadPoolExecutor(workers) as readers:
        try:
            frames = [frame for part in readers.map(reduce, files) for frame in part]
        finally:
            stop.set()
    if not frames:
        raise ValueError(f"{files[0]} holds no data rows")
    total = polars.concat(frames).group_by(polars.col("stamp") // STEP * STEP).sum().sort("stamp")
    return _Load(*(total[name].to_numpy() for name in ("stamp", "cpu", "readings")))


def _reduce_chunk(file: Path, text: bytes, polars: ModuleType) -> Any:
    """Sums and counts of every moment in some rows, which begin with HEADER."""
    cpu, stamp, extra = (polars.col(name) for name in ("cpu", "stamp", "extra"))
    readings = polars.len().cast(polars.Int64).alias("readings")
    types = {"stamp": polars.Int64, "cpu": polars.Float64, "extra": polars.String}
    try:
        rows = polars.read_csv(text, columns=list(types), schema_overrides=types)
        sums = rows.group_by("stamp").agg(
            cpu.sum(), readings, cpu.count().alias("given"), cpu.min().alias("least"), extra.count()
        )
    except polars.exceptions.PolarsError as error:
        raise _malformed(file, str(error).splitlines()[0]) from None
    complete = (polars.col("given") == polars.col("readings")) & (extra == 0)
    sound = complete & cpu.is_finite() & (stamp >= 0) & (polars.col("least") >= 0.0)
    if not sums.select(sound.fill_null(False).all()).item():
        raise _malformed(file, "a value is missing, not finite or negative")
    return sums.select("stamp", "cpu", "readings")


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Every row with its number, for finding the one to name in an error."""
    with open_text(file) as stream:
        for row, line in enumerate(stream, start=1):
            yield row, line.decode("utf-8", "replace").rstrip("\r\n").split(",")


def _malformed(file: Path, reason: str) -> ValueError:
    """The error that names the first malformed row of a file."""
    for row, fields in _rows(file):
        if len(fields) != len(COLUMNS):
            return ValueError(f"{file}, row {row}: expected {len(COLUMNS)} columns, got {len(fields)}")
        if not _is_whole(fields[0]):
            return ValueError(
                f"{file}, row {row}: timestamp is {fields[0]!r}, not whole seconds from the start"
            )
        if not _is_share(fields[4]):
            return ValueError(f"{file}, row {row}: avg cpu is {fields[4]!r}, not a percentage")
    return ValueError(f"{file}: {reason}")


def _is_whole(text: str) -> bool:
    return text.strip().isdecimal()


def _is_share(text: str) -> bool:
    try:
        return 0.0 <= float(text) < math.inf
    except ValueError:
        return False


def _place(files: list[Path], stamp: int) -> str:
    """Where the first reading of a moment stands."""
    for file in files:
        for row, fields in _rows(file):
            if int(fields[0]) // STEP * STEP == stamp:
                return f"{file}, row {row}"
    return str(files[0])
