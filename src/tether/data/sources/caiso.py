"""Generation by source as the Californian grid operator (CAISO) publishes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from tether.data.series import (
    MAX_GAP_HOURS,
    HourlySeries,
    Table,
    epoch_seconds,
    hour_to_datetime,
    hourly_from_readings,
    read_table,
    same_clock,
)

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

_CLOCK = re.compile(r"\d{1,2}:\d{2}")
_DATE = re.compile(r"(?<!\d)(20\d{2})-?(\d{2})-?(\d{2})(?!\d)")


class _Readings(NamedTuple):
    seconds: list[float]
    values: list[float]
    places: list[tuple[Path, int]]
    rows: int
    clipped: int
    aware: bool


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
    local = _zone(zone)
    parts: list[_Readings] = []
    for file in files:
        part = _read(read_table(file), sources, local)
        if part.places:
            _check_clock(part, parts)
            parts.append(part)
        if progress is not None:
            progress(file)
    parts.sort(key=lambda part: part.seconds[0])
    if not parts:
        raise ValueError(f"{files[0]}: every reading of {', '.join(sources)} is blank")
    places = [place for part in parts for place in part.places]
    seconds = np.array([value for part in parts for value in part.seconds])
    values = np.array([value for part in parts for value in part.values])
    first, hourly, intake = hourly_from_readings(
        seconds, values, lambda k: f"{places[k][0]}, row {places[k][1]}", max_gap_hours
    )
    intake = replace(
        intake, rows=sum(part.rows for part in parts), clipped=sum(part.clipped for part in parts)
    )
    name = " + ".join(sources)
    origin = str(files[0] if len(files) == 1 else files[0].parent)
    return HourlySeries(hour_to_datetime(first, aware=True), hourly, "MW", name, origin, intake)


def download_caiso(start: str | date, end: str | date, path: str | Path) -> Path:
    """Download generation by source with `gridstatus` (extra `[caiso]`), as a table for `load_caiso`.

    Args:
        start: First day, such as `2019-01-01`.
        end: Day after the last.
        path: Where the CSV file is written, completely or not at all.
    """
    try:
        import gridstatus  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ImportError(
            "downloading from CAISO needs the package gridstatus: pip install 'tether-rl[caiso]' "
            "(files that you have already are read without it)"
        ) from None
    from tether.core.files import complete_file

    table = gridstatus.CAISO().get_fuel_mix(start=str(start), end=str(end))
    with complete_file(path) as draft:
        table.to_csv(draft, index=False)
    return Path(path)


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


def _check_clock(part: _Readings, before: list[_Readings]) -> None:
    if before and part.aware != before[0].aware:
        file, row = part.places[0]
        first = before[0].places[0][0]
        raise ValueError(f"{file}, row {row}: mixed time zones: only one of it and {first} has UTC offsets")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
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


def _read(table: Table, sources: Sequence[str], zone: ZoneInfo) -> _Readings:
    time_column, columns = _columns(table, sources)
    day = _day(table) if _CLOCK.fullmatch(table.rows[0][1][time_column].strip()) else None
    clock = _Clock(table, zone, day)
    readings = _Readings([], [], [], len(table.rows), 0, False)
    clipped = 0
    for row, fields in table.rows:
        moment = clock.parse(row, fields[time_column])
        if moment is None or any(not fields[column].strip() for column in columns):
            continue
        numbers = [table.number(row, fields, column) for column in columns]
        seconds = clock.seconds(row, moment, blank=not any(numbers))
        if seconds is None:
            continue
        clipped += sum(number < 0.0 for number in numbers)
        readings.seconds.append(seconds)
        readings.values.append(sum(max(number, 0.0) for number in numbers))
        readings.places.append((table.path, row))
    return readings._replace(clipped=clipped, aware=bool(clock.aware))


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


class _Clock:
    """Turns the times of one file, in their order, into seconds since 1970."""

    def __init__(self, table: Table, zone: ZoneInfo, day: date | None) -> None:
        self.table, self.zone, self.day = table, zone, day
        self.aware: bool | None = None
        self.offset: float | None = None
        self.last = -np.inf
        self.ended = False

    def parse(self, row: int, text: str) -> datetime | None:
        """The time of a row; None for the next day's midnight, with which some daily files end."""
        if self.day is None:
            moment = self.table.moment(row, text)
            self.aware = same_clock(self.table.path, row, moment, self.aware)
            return moment
        if self.ended:
            raise ValueError(f"{self.table.path}, row {row}: a row after the midnight that ends the day")
        if not _CLOCK.fullmatch(text.strip()):
            raise ValueError(f"{self.table.path}, row {row}: {text!r} is not a time like 01:05")
        hour, minute = map(int, text.split(":"))
        self.aware = False
        if hour == 0 and minute == 0 and row > self.table.rows[0][0]:
            self.ended = True
            return None
        if hour > 23 or minute > 59:
            raise ValueError(f"{self.table.path}, row {row}: {text!r} is not a time of the day")
        return datetime(self.day.year, self.day.month, self.day.day, hour, minute)

    def seconds(self, row: int, moment: datetime, blank: bool) -> float | None:
        """Seconds since 1970; None for a blank row in the hour that clocks skip."""
        if moment.tzinfo is not None:
            self._check_offset(row, moment)
            self.last = moment.timestamp()
            return self.last
        local = moment.replace(tzinfo=self.zone)
        if local.astimezone(UTC).astimezone(self.zone).replace(tzinfo=None) != moment:
            if blank:
                return None
            raise ValueError(
                f"{self.table.path}, row {row}: {moment} does not exist in {self.zone.key}, clocks go "
                "forward there; if the file keeps standard time all year, read it with zone Etc/GMT+8"
            )
        early, late = local.timestamp(), local.replace(fold=1).timestamp()
        self.last = late if early <= self.last < late else early
        return self.last

    def _check_offset(self, row: int, moment: datetime) -> None:
        """Offsets must be one and the same, or the local ones of the zone."""
        offset = epoch_seconds(moment.replace(tzinfo=None)) - moment.timestamp()
        local = moment.astimezone(self.zone).utcoffset() == moment.utcoffset()
        if self.offset is None:
            self.offset = offset
            self.local = local
        self.local = self.local and local
        if offset != self.offset and not self.local:
            raise ValueError(
                f"{self.table.path}, row {row}: mixed time zones: the UTC offset "
                f"{moment.strftime('%z')} is neither that of the rows before it nor that of {self.zone.key}"
            )
