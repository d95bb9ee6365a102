"""Power of GPUs: CodeCarbon's log, and the series of the BLOOM service."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.data.series import (
    MAX_GAP_HOURS,
    HourlySeries,
    Intake,
    Table,
    epoch_seconds,
    fill_gaps,
    hour_to_datetime,
    hourly_from_readings,
    read_table,
    same_clock,
)

BLOOM_COLUMNS = {"gpu_power_mean_w": "W", "requests": "requests/h"}
"""The columns of the two BLOOM files that are read, and their units."""


class _Interval(NamedTuple):
    begin: float
    end: float
    power: float
    row: int


def load_bloom(path: str | Path, *, max_gap_hours: float = MAX_GAP_HOURS) -> HourlySeries:
    """Read a series of the BLOOM service: GPU power every ten minutes (W), or requests an hour.

    Args:
        path: A CSV file with the columns `time, gpu_power_mean_w, ...` or `time, requests`.
        max_gap_hours: Longest gap that is bridged by a straight line; a longer one is an error.

    Returns:
        Hourly mean in W, or requests an hour, on the file's own clock.
    """
    table = read_table(path)
    found = [name for name in BLOOM_COLUMNS if name in table.columns]
    if not found:
        raise ValueError(
            f"{table.path}, row 1: no column {' or '.join(BLOOM_COLUMNS)}; "
            f"there are {', '.join(table.columns)}"
        )
    column, time_column = table.column(found[0]), table.column("time")
    moments, aware = _moments(table, time_column)
    values = [_not_negative(table, row, fields, column) for row, fields in table.rows]
    first, hourly, intake = hourly_from_readings(
        np.array([epoch_seconds(moment) for moment in moments]),
        np.array(values),
        lambda k: f"{table.path}, row {table.rows[k][0]}",
        max_gap_hours,
    )
    name = "GPU power" if found[0].startswith("gpu") else "requests"
    start = hour_to_datetime(first, aware)
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
    moments, aware = _moments(table, table.column("timestamp"))
    intervals = sorted(_intervals(table, moments, table.column(column)))
    first, energy, covered, rows = _by_hour(intervals)
    enough = np.flatnonzero(covered >= 1800.0)
    if not enough.size:
        raise ValueError(f"{table.path}: its rows cover no hour by half")
    inner = slice(int(enough[0]), int(enough[-1]) + 1)
    power = np.where(covered > 0.0, energy / np.maximum(covered, 1e-9), np.nan)[inner]
    hourly, gaps, longest = fill_gaps(
        power, lambda k: f"{table.path}, row {rows[inner.start + k]}", max_gap_hours
    )
    minutes = float(np.median([interval.end - interval.begin for interval in intervals])) / 60.0
    intake = Intake(len(table.rows), minutes, gaps, float(longest))
    start = hour_to_datetime(first + inner.start, aware)
    return HourlySeries(
        start, hourly, "W", column.replace("gpu", "GPU").replace("_", " "), str(table.path), intake
    )


def _moments(table: Table, column: int) -> tuple[list[datetime], bool]:
    """The times of all rows, and whether they have an offset."""
    aware: bool | None = None
    moments = []
    for row, fields in table.rows:
        moments.append(table.moment(row, fields[column]))
        aware = same_clock(table.path, row, moments[-1], aware)
    return moments, bool(aware)


def _not_negative(table: Table, row: int, fields: list[str], column: int) -> float:
    value = table.number(row, fields, column)
    if value < 0.0:
        raise ValueError(
            f"{table.path}, row {row}: {table.columns[column]} is {value:g}, it must not be negative"
        )
    return value


def _intervals(table: Table, moments: list[datetime], column: int) -> list[_Interval]:
    """The time for which each row counts, and its power."""
    run_column, duration_column = table.column("run_id"), table.column("duration")
    last_end: dict[str, float] = {}
    intervals = []
    for (row, fields), moment in zip(table.rows, moments, strict=True):
        end, run = epoch_seconds(moment), fields[run_column]
        begin = max(end - _not_negative(table, row, fields, duration_column), last_end.get(run, -np.inf))
        if begin > end:
            raise ValueError(f"{table.path}, row {row}: the time of run {run} goes back")
        last_end[run] = end
        intervals.append(_Interval(begin, end, _not_negative(table, row, fields, column), row))
    return intervals


def _by_hour(
    intervals: list[_Interval],
) -> tuple[int, NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """The first hour; and for each hour energy in Ws, seconds covered, and the row that counts last in it."""
    first = int(min(interval.begin for interval in intervals) // 3600)
    count = int(max(interval.end for interval in intervals) // 3600) - first + 1
    energy, covered = np.zeros(count), np.zeros(count)
    rows = np.zeros(count, dtype=np.int64)
    for begin, end, power, row in intervals:
        hours = np.arange(int(begin // 3600), int(end // 3600) + 1)
        overlap = np.minimum(end, (hours + 1) * 3600.0) - np.maximum(begin, hours * 3600.0)
        energy[hours - first] += power * overlap
        covered[hours - first] += overlap
        rows[hours - first] = row
    return first, energy, covered, rows
