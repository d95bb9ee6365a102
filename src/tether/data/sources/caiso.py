"""Generation by source as the Californian grid operator (CAISO) publishes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.core.extras import missing
from tether.data.chunks import csv_files
from tether.data.frames import load_polars
from tether.data.readings import MAX_GAP_HOURS, hourly_from_readings
from tether.data.series import HourlySeries, Intake, hour_to_datetime
from tether.data.tables import Table, Times, read_table

RENEWABLE = ("solar", "wind", "small hydro", "large hydro")
"""The sources that are summed by default."""
ZONE = "America/Los_Angeles"
TIME_COLUMNS = (
    "interval start",
    "interval start utc",
    "interval start local",
    "time",
    "timestamp",
    "datetime",
)
"""Names of the time column (case and `_` do not matter), the first that is there is used."""

_CLOCK = r"^(\d{1,2}):(\d{2})$"
_DATE = re.compile(r"(?<!\d)(20\d{2})-?(\d{2})-?(\d{2})(?!\d)")


class _Readings(NamedTuple):
    table: Table
    rows: NDArray[np.int64]
    """[R] the rows of the table in which every source was read."""
    seconds: NDArray[np.float64]
    """[R] since 1970, UTC."""
    values: NDArray[np.float64]
    """[R] sum of the sources, MW."""
    clipped: int
    """Negative readings that were set to 0."""
    aware: bool
    """Whether the file gives UTC offsets."""


def load_caiso(
    paths: str | Path | Iterable[str | Path],
    *,
    sources: Sequence[str] = RENEWABLE,
    max_gap_hours: float = MAX_GAP_HOURS,
    zone: str = ZONE,
    progress: Callable[[Path], None] | None = None,
) -> HourlySeries:
    """Read generation by source and sum some of the sources.

    Two layouts are read. The daily files of *Today's Outlook* (`fuelsource.csv`): a column `Time` with HH:MM
    every five minutes and a column in MW for each source; the date stands in the name of the file or of its
    folder (`CAISO-supply-20190310.csv`, `20190310/fuelsource.csv`). And one long table, hourly or finer, with
    a column of dates and times, with or without UTC offset, such as `gridstatus` writes.

    Times without offset are local times of `zone`. The day on which clocks go forward has 23 hours (its
    missing hour may be absent, blank or zero); on the day on which they go back the repeated hour is told by
    its order, and is bridged like a gap where the file has it only once. Readings in which one of the sources
    is blank are missing. Negative readings (solar plants draw a little power at night, pumped hydro a lot)
    are set to 0, each source by itself, and counted.

    Args:
        paths: A file, a folder of CSV files, or several files.
        sources: Names of the columns to sum; upper and lower case do not matter.
        max_gap_hours: Longest gap that is bridged by a straight line; a longer one is an error.
        zone: Time zone of times without offset.
        progress: Called with each file after it was read.

    Returns:
        Hourly mean in MW, in UTC.
    """
    files = csv_files(paths)
    if not sources:
        raise ValueError(f"sources must name at least one column, for example {RENEWABLE}")
    _check_zone(zone)
    parts: list[_Readings] = []
    for file in files:
        part = _read(read_table(file), sources, zone)
        if part.rows.size:
            _check_clock(part, parts)
            parts.append(part)
        if progress is not None:
            progress(file)
    parts.sort(key=lambda part: part.seconds[0])
    if not parts:
        raise ValueError(f"{files[0]}: every reading of {', '.join(sources)} is blank")
    first, hourly, intake = _hourly(parts, max_gap_hours)
    name = " + ".join(sources)
    origin = str(files[0] if len(files) == 1 else files[0].parent)
    return HourlySeries(hour_to_datetime(first, aware=True), hourly, "MW", name, origin, intake)


def _hourly(parts: list[_Readings], max_gap_hours: float) -> tuple[int, NDArray[np.float64], Intake]:
    """`hourly_from_readings` of several files, one after the other."""
    starts = np.cumsum([0, *(part.rows.size for part in parts)])

    def place(k: int) -> str:
        number = int(np.searchsorted(starts, k, side="right")) - 1
        return parts[number].table.place(int(parts[number].rows[k - starts[number]]))

    seconds = np.concatenate([part.seconds for part in parts])
    values = np.concatenate([part.values for part in parts])
    first, hourly, intake = hourly_from_readings(seconds, values, place, max_gap_hours)
    rows, clipped = sum(len(part.table) for part in parts), sum(part.clipped for part in parts)
    return first, hourly, replace(intake, rows=rows, clipped=clipped)


def download_caiso(start: str | date, end: str | date, path: str | Path) -> Path:
    """Download generation by source with `gridstatus` (extra `[caiso]`), as a table for `load_caiso`.

    Args:
        start: First day, such as `2019-01-01`.
        end: Day after the last.
        path: Where the CSV file is written, completely or not at all.
    """
    try:
        import gridstatus  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError as error:
        raise missing("downloading from CAISO", error) from None
    from tether.core.files import complete_file

    table = gridstatus.CAISO().get_fuel_mix(start=str(start), end=str(end))
    with complete_file(path) as draft:
        table.to_csv(draft, index=False)
    return Path(path)


def _check_clock(part: _Readings, before: list[_Readings]) -> None:
    if before and part.aware != before[0].aware:
        raise part.table.fault(
            int(part.rows[0]), f"mixed time zones: only one of it and {before[0].table.path} has UTC offsets"
        )


def _check_zone(name: str) -> None:
    polars = load_polars("reading CAISO files")
    try:
        polars.Series([0]).cast(polars.Datetime("us")).dt.replace_time_zone(name)
    except (polars.exceptions.PolarsError, ValueError):
        raise ValueError(f"zone must be an IANA time zone such as {ZONE}, got {name!r}") from None


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", " ")


def _columns(table: Table, sources: Sequence[str]) -> tuple[int, list[int]]:
    """Index of the time column and of the sources' columns."""
    names = [_plain(name) for name in table.columns]
    times = [names.index(name) for name in TIME_COLUMNS if name in names]
    if not times:
        raise ValueError(
            f"{table.path}, row 1: no column Time, Interval Start or Timestamp; "
            f"there are {', '.join(table.columns)}"
        )
    missing = [source for source in sources if _plain(source) not in names]
    if missing:
        raise ValueError(
            f"{table.path}, row 1: no column {missing[0]!r}; there are {', '.join(table.columns)}"
        )
    return times[0], [names.index(_plain(source)) for source in sources]


def _read(table: Table, sources: Sequence[str], zone: str) -> _Readings:
    time_column, columns = _columns(table, sources)
    daily = bool(re.match(_CLOCK, table.texts(time_column)[0].strip()))
    times = _times_of_day(table, time_column) if daily else table.times(time_column)
    read = np.isfinite(times.clock)
    for column in columns:
        read &= np.array(table.texts(column).str.strip_chars() != "")
    rows = np.flatnonzero(read)
    numbers = np.array([table.numbers(column, rows) for column in columns])
    times = Times(times.clock[rows], None if times.offset is None else times.offset[rows])
    if times.offset is None:
        seconds = _from_local(table, rows, times.clock, np.any(numbers != 0.0, axis=0), zone)
    else:
        _check_offsets(table, rows, times, zone)
        seconds = times.seconds
    known = np.isfinite(seconds)
    numbers = numbers[:, known]
    values = np.asarray(sum(np.maximum(numbers, 0.0)))
    clipped = int(np.count_nonzero(numbers < 0.0))
    return _Readings(table, rows[known], seconds[known], values, clipped, times.offset is not None)


def _day(table: Table) -> date:
    """The date in the name of a daily file, or of its folder."""
    for name in (table.path.name, table.path.resolve().parent.name):
        found = _DATE.search(name)
        if found:
            try:
                return date(*map(int, found.groups()))
            except ValueError:
                continue
    raise ValueError(
        f"{table.path}: its times have no date; the file (or its folder) must be named by day, as in "
        "CAISO-supply-20190310.csv"
    )


def _times_of_day(table: Table, column: int) -> Times:
    """The times of a daily file; NaN for the next day's midnight, with which some files end."""
    polars = load_polars("reading CAISO files")
    texts = table.texts(column)
    hour, minute = (
        np.array(texts.str.strip_chars().str.extract(_CLOCK, group).cast(polars.Float64).fill_null(np.nan))
        for group in (1, 2)
    )
    midnight = np.flatnonzero((hour == 0.0) & (minute == 0.0))
    ended = midnight[midnight > 0][:1]
    faults = (
        (np.isnan(hour), "{!r} is not a time like 01:05"),
        ((hour > 23.0) | (minute > 59.0), "{!r} is not a time of the day"),
        (
            np.arange(len(table)) > (ended[0] if ended.size else np.inf),
            "a row after the midnight that ends the day",
        ),
    )
    for wrong, message in faults:
        if np.any(wrong):
            row = int(np.argmax(wrong))
            raise table.fault(row, message.format(texts[row]))
    midnights = (_day(table) - date(1970, 1, 1)).days * 86400.0
    clock = midnights + 3600.0 * hour + 60.0 * minute
    clock[ended] = np.nan
    return Times(clock, None)


def _from_local(
    table: Table, rows: NDArray[np.int64], clock: NDArray[np.float64], told: NDArray[np.bool_], zone: str
) -> NDArray[np.float64]:
    """[R] seconds since 1970 of local times; NaN for a blank row in the hour that clocks skip.

    Args:
        table: For errors.
        rows: [R] which of its rows.
        clock: [R] local times in seconds.
        told: [R] whether any source is other than 0.
        zone: Where they are local.
    """
    polars = load_polars("reading CAISO files")
    local = polars.Series((clock * 1e6).astype(np.int64)).cast(polars.Datetime("us"))
    early, late = (
        np.array(
            local.dt.replace_time_zone(zone, ambiguous=which, non_existent="null")
            .dt.epoch("us")
            .fill_null(-1)
        )
        for which in ("earliest", "latest")
    )
    skipped = early == -1
    if np.any(skipped & told):
        k = int(np.argmax(skipped & told))
        raise table.fault(
            int(rows[k]),
            f"{local[k]} does not exist in {zone}, clocks go forward there; if the file keeps standard time all "
            "year, read it with zone Etc/GMT+8",
        )
    # A time that occurs twice is the later one where it, or one after it on that day, was read already.
    before = np.concatenate([[-1], np.maximum.accumulate(early)[:-1]]) if early.size else early
    again = polars.Series((late > early) & (before >= early))
    repeated = polars.DataFrame({"day": local.dt.date(), "again": again}).select(
        polars.col("again").cum_max().over("day")
    )
    seconds = np.where((late > early) & np.array(repeated["again"]), late, early) / 1e6
    return np.where(skipped, np.nan, seconds)


def _check_offsets(table: Table, rows: NDArray[np.int64], times: Times, zone: str) -> None:
    """Offsets must be one and the same, or the local ones of the zone."""
    assert times.offset is not None
    polars = load_polars("reading CAISO files")
    moments = polars.Series((times.seconds * 1e6).astype(np.int64)).cast(polars.Datetime("us", "UTC"))
    local = np.array(moments.dt.convert_time_zone(zone).dt.replace_time_zone(None).dt.epoch("us")) / 1e6
    same = np.logical_and.accumulate(local == times.clock)
    wrong = np.flatnonzero((times.offset != times.offset[:1]) & ~same)
    if wrong.size:
        k = int(wrong[0])
        minutes = round(times.offset[k] / 60.0)
        sign = "-" if minutes < 0 else "+"
        raise table.fault(
            int(rows[k]),
            f"mixed time zones: the UTC offset {sign}{abs(minutes) // 60:02d}{abs(minutes) % 60:02d} is neither "
            f"that of the rows before it nor that of {zone}",
        )
