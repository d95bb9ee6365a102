"""Power of GPUs: CodeCarbon's log, and the series of the BLOOM service."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.data.frames import load_polars
from tether.data.readings import MAX_GAP_HOURS, fill_gaps, hourly_from_readings
from tether.data.series import HourlySeries, Intake, hour_to_datetime
from tether.data.tables import Table, Times, read_table

Floats = NDArray[np.float64]
BLOOM_COLUMNS = {"gpu_power_mean_w": "W", "requests": "requests/h"}
"""The columns of the two BLOOM files that are read, and their units."""


class _Hours(NamedTuple):
    """What a log says of each hour."""

    first: int
    """The first hour, counted from 1970."""
    energy: Floats
    """[T] in Ws."""
    covered: Floats
    """[T] seconds for which there is a row; more than 3600 where runs overlap."""
    row: NDArray[np.int64]
    """[T] the row that counts last in it."""


def load_bloom(path: str | Path, *, max_gap_hours: float = MAX_GAP_HOURS) -> HourlySeries:
    """Read a series of the BLOOM service: GPU power every ten minutes (W), or requests an hour.

    Args:
        path: A CSV file with the columns `time, gpu_power_mean_w, ...` or `time, requests`.
        max_gap_hours: Longest gap that is bridged by a straight line; a longer one is an error.

    Returns:
        Hourly mean in W, or requests an hour, on the clock of the file.
    """
    table = read_table(path)
    found = [name for name in BLOOM_COLUMNS if name in table.columns]
    if not found:
        raise ValueError(
            f"{table.path}, row 1: no column {' or '.join(BLOOM_COLUMNS)}; "
            f"there are {', '.join(table.columns)}"
        )
    column, time_column = table.column(found[0]), table.column("time")
    times, values = table.times(time_column), table.numbers(column, signed=False)
    first, hourly, intake = hourly_from_readings(times.seconds, values, table.place, max_gap_hours)
    name = "GPU power" if found[0].startswith("gpu") else "requests"
    start = hour_to_datetime(first, times.offset is not None)
    return HourlySeries(start, hourly, BLOOM_COLUMNS[found[0]], name, str(table.path), intake)


def load_codecarbon(
    path: str | Path, *, column: str = "gpu_power", max_gap_hours: float = MAX_GAP_HOURS
) -> HourlySeries:
    """Read GPU power from CodeCarbon's `emissions.csv`.

    A row is written when a run ends or is flushed. Its `timestamp` is that moment, its `duration` the seconds
    since the run began, its power the mean of the time since the run's row before (or since its beginning).
    So a row counts for all of that time, not only for its moment. Where rows of several runs overlap, their
    mean weighted by time is taken: in CodeCarbon's default mode each of them saw the whole machine.

    Args:
        path: A CSV file with the columns `timestamp`, `run_id`, `duration` (s) and `column`.
        column: The power to read, in W: `gpu_power`, `cpu_power` or `ram_power`.
        max_gap_hours: Longest time in whole hours without a row that is bridged by a straight line.

    Returns:
        Hourly mean in W, on the log's clock.
    """
    table = read_table(path)
    times = table.times(table.column("timestamp"))
    intervals = _intervals(table, times, table.column(column))
    hours = _by_hour(intervals)
    enough = np.flatnonzero(hours.covered >= 1800.0)
    if not enough.size:
        raise ValueError(f"{table.path}: its rows cover no hour by half")
    inner = slice(int(enough[0]), int(enough[-1]) + 1)
    covered = hours.covered[inner]
    power = np.where(covered > 0.0, hours.energy[inner] / np.maximum(covered, 1e-9), np.nan)
    hourly, gaps, longest = fill_gaps(
        power, lambda k: table.place(int(hours.row[inner.start + k])), max_gap_hours
    )
    minutes = float((intervals["end"] - intervals["begin"]).median()) / 60.0
    intake = Intake(len(table), minutes, gaps, float(longest))
    start = hour_to_datetime(hours.first + inner.start, times.offset is not None)
    name = column.replace("gpu", "GPU").replace("_", " ")
    return HourlySeries(start, hourly, "W", name, str(table.path), intake)


def _intervals(table: Table, times: Times, column: int) -> Any:
    """For each row the time for which it counts and its power in W: a frame `begin`, `end`, `power`, `row`."""
    polars = load_polars("reading CSV files")
    duration = table.numbers(table.column("duration"), signed=False)
    power = table.numbers(column, signed=False)
    runs = table.texts(table.column("run_id"))
    frame = polars.DataFrame({"end": times.seconds, "duration": duration, "power": power, "run": runs})
    since = polars.max_horizontal(
        polars.col("end") - polars.col("duration"), polars.col("end").shift(1).over("run")
    )
    frame = frame.with_row_index("row").with_columns(since.alias("begin"))
    back = frame.filter(polars.col("begin") > polars.col("end"))
    if back.height:
        raise table.fault(int(back["row"][0]), f"the time of run {back['run'][0]} goes back")
    return frame.select("begin", "end", "power", "row").sort("begin", "end", "power", "row")


def _by_hour(intervals: Any) -> _Hours:
    """Energy and time of each hour, from intervals that may reach over many."""
    begin, end, power, row = (intervals[name].to_numpy() for name in ("begin", "end", "power", "row"))
    lower, upper = (np.floor(edge / 3600.0).astype(np.int64) for edge in (begin, end))
    counts = upper - lower + 1
    each = np.repeat(np.arange(len(begin)), counts)
    hour = lower[each] + np.arange(each.size) - np.repeat(np.cumsum(counts) - counts, counts)
    overlap = np.minimum(end[each], (hour + 1) * 3600.0) - np.maximum(begin[each], hour * 3600.0)
    first = int(lower.min())
    place = hour - first
    last = np.zeros(int(upper.max()) - first + 1, dtype=np.int64)
    last[place] = row[each]
    energy = np.bincount(place, power[each] * overlap, len(last)).astype(np.float64)
    covered = np.bincount(place, overlap, len(last)).astype(np.float64)
    return _Hours(first, energy, covered, last)
