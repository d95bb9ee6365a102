"""Hourly time series: gaps, scaling, alignment, windows, splits, context, and episodes made of them."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from tether.core import validate
from tether.data.episodes import Episodes

HOUR = timedelta(hours=1)
MAX_GAP_HOURS = 3.0
"""Gaps up to this length are bridged by a straight line unless the caller says otherwise."""

Where = Callable[[int], str]
"""From the number of a reading to the place it came from, such as `supply.csv, row 14`."""
Alignment = Literal["overlap", "hour-of-year"]
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Intake:
    """What a loader met in the files of its publisher."""

    rows: int
    """Data rows read, blank readings included."""
    sampling_minutes: float
    """Usual time between two readings."""
    gaps: int = 0
    """Gaps that were bridged."""
    longest_gap_hours: float = 0.0
    """Length of the longest of them."""
    clipped: int = 0
    """Negative readings that were set to 0."""


@dataclass(frozen=True, eq=False)
class HourlySeries:
    """One value an hour, without holes.

    Args:
        start: Beginning of the first hour: aware (then UTC), or naive if only the clock time is known.
        values: [T] mean of each hour, finite.
        unit: Unit of the values, such as `MW`.
        name: What is measured.
        source: The file or folder it came from.
        intake: What the loader met there, if a loader made it.

    Example:
        >>> load = HourlySeries(datetime(2019, 3, 10, 8, tzinfo=UTC), np.arange(48.0), unit="MW")
        >>> len(load), load.end.isoformat(), load.scaled(mean=2.0)
        (48, '2019-03-12T08:00:00+00:00', HourlySeries(series: 48 hours from 2019-03-10T08:00:00+00:00))
        >>> load.windows(24).values.shape
        (25, 24)
    """

    start: datetime
    values: NDArray[np.float64]
    unit: str = ""
    name: str = "series"
    source: str = ""
    intake: Intake | None = None

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or not values.size:
            raise ValueError(f"{self.name}: values must have shape [T] with T >= 1, got {values.shape}")
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise ValueError(f"{self.name}: values must be finite; in hour {bad[0]} it is {values[bad[0]]}")
        if not isinstance(self.start, datetime):
            raise TypeError(f"{self.name}: start must be a datetime, got {self.start!r}")
        start = self.start if self.start.tzinfo is None else self.start.astimezone(UTC)
        if start != start.replace(minute=0, second=0, microsecond=0):
            raise ValueError(f"{self.name}: start must be a full hour, got {self.start.isoformat()}")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "start", start)

    def __len__(self) -> int:
        return int(self.values.size)

    def __repr__(self) -> str:
        unit = f" in {self.unit}" if self.unit else ""
        return f"HourlySeries({self.name}{unit}: {len(self)} hours from {self.start.isoformat()})"

    @property
    def end(self) -> datetime:
        """End of the last hour."""
        return self.start + len(self) * HOUR

    def clock_hours(self, zone: str | None = None) -> NDArray[np.int64]:
        """[T] hour of the day, 0 to 23, on the series' own clock (UTC or naive) or in a time zone.

        Args:
            zone: An IANA name such as `America/Los_Angeles`; needs a series whose start is aware.
        """
        if zone is None:
            return np.asarray((self.start.hour + np.arange(len(self))) % 24, dtype=np.int64)
        if self.start.tzinfo is None:
            raise ValueError(f"{self.name} has no time zone, so its hours cannot be told in {zone}")
        local = ZoneInfo(zone)
        return np.array(
            [(self.start + k * HOUR).astimezone(local).hour for k in range(len(self))], dtype=np.int64
        )

    def affine(self, factor: float, offset: float = 0.0, unit: str = "") -> HourlySeries:
        """`factor * values + offset`, in a new unit."""
        return replace(self, values=factor * self.values + offset, unit=unit)

    def scaled(self, mean: float | None = None, peak: float | None = None) -> HourlySeries:
        """Give the series a mean, or a peak, by a factor; or both, by a factor and an offset.

        Args:
            mean: The mean it shall have, > 0.
            peak: The largest value it shall have, > 0 (above `mean` if both are given).
        """
        if mean is None and peak is None:
            raise ValueError("scaled needs a mean, a peak or both")
        if mean is None or peak is None:
            wanted = validate.number(
                "mean" if peak is None else "peak", mean if peak is None else peak, above=0.0
            )
            got = float(self.values.mean() if peak is None else self.values.max())
            if got <= 0.0:
                raise ValueError(f"{self.name}: cannot be scaled by a factor, its mean or peak is {got:g}")
            return self.affine(wanted / got)
        validate.number("peak", peak, above=validate.number("mean", mean, above=0.0))
        spread = float(self.values.max() - self.values.mean())
        if spread <= 0.0:
            raise ValueError(
                f"{self.name} is constant: it cannot have the mean {mean:g} and the peak {peak:g}"
            )
        factor = (peak - mean) / spread
        return self.affine(factor, mean - factor * float(self.values.mean()))

    def between(self, first: datetime, last: datetime) -> HourlySeries:
        """The hours from `first` up to, not including, `last`."""
        lower, upper = (round((moment - self.start) / HOUR) for moment in (first, last))
        lower, upper = max(lower, 0), min(upper, len(self))
        if lower >= upper:
            raise ValueError(
                f"{self.name} covers {_period(self)}: nothing from {first.isoformat()} to {last.isoformat()}"
            )
        return replace(self, start=self.start + lower * HOUR, values=self.values[lower:upper])

    def windows(self, horizon: int = 24, stride: int = 1, look_ahead: int = 0) -> Windows:
        """Every stretch of `horizon` hours.

        Args:
            horizon: Hours in a window, H.
            stride: Hours from one window's start to the next one's.
            look_ahead: Hours after the window's end that must be in the series too (for forecasts).
        """
        first = window_starts(len(self), horizon, stride, look_ahead, self.name)
        return Windows(self.values[first[:, None] + np.arange(horizon)], first, self.clock_hours()[first])

    def autocorrelation(self, lag: int) -> float:
        """Correlation of the series with itself `lag` hours later; NaN if it is too short or constant."""
        return autocorrelation(self.values, lag)


class Windows(NamedTuple):
    """Windows cut from a series."""

    values: NDArray[np.float64]
    """[N, H]."""
    first: NDArray[np.int64]
    """[N] index in the series of each window's first hour."""
    start_hours: NDArray[np.int64]
    """[N] hour of the clock at which each window starts."""


def window_starts(
    length: int, horizon: int, stride: int = 1, look_ahead: int = 0, name: str = "series"
) -> NDArray[np.int64]:
    """[N] where the windows of a series of `length` hours begin; see `HourlySeries.windows`.

    Example:
        >>> window_starts(6, horizon=3, stride=2)
        array([0, 2])
    """
    validate.count("horizon", horizon)
    validate.count("stride", stride)
    validate.count("look_ahead", look_ahead, minimum=0)
    if length < horizon + look_ahead:
        ahead = f" and {look_ahead} hours to look ahead" if look_ahead else ""
        raise ValueError(f"{name} has {length} hours, too few for a window of {horizon}{ahead}")
    return np.arange(0, length - horizon - look_ahead + 1, stride, dtype=np.int64)


def autocorrelation(values: NDArray[np.float64], lag: int) -> float:
    """Correlation of `values` [T] with themselves `lag` steps later; NaN if too short or constant.

    Example:
        >>> autocorrelation(np.sin(np.arange(240) * 2 * np.pi / 24), 24)
        1.0
    """
    validate.count("lag", lag)
    if values.size < lag + 2:
        return math.nan
    early, late = values[:-lag] - values[:-lag].mean(), values[lag:] - values[lag:].mean()
    scale = math.sqrt(float(early @ early) * float(late @ late))
    return round(float(early @ late) / scale, 12) if scale > 0.0 else math.nan


# From readings to hours.


def hourly_from_readings(
    seconds: NDArray[np.float64],
    values: NDArray[np.float64],
    where: Where,
    max_gap_hours: float = MAX_GAP_HOURS,
) -> tuple[int, NDArray[np.float64], Intake]:
    """Mean of each hour of readings at (nearly) regular times.

    Missing readings are put on the straight line between their neighbours; then every hour is averaged. An
    hour at either end of which less than half was read is left out.

    Args:
        seconds: [R] time of each reading in seconds, increasing.
        values: [R] the readings.
        where: Names the place a reading came from, for errors.
        max_gap_hours: Longest time without readings that is bridged.

    Returns:
        The number of the first hour (its start divided by 3600 s), the hourly means [T], and what was met.
    """
    limit = validate.number("max_gap_hours", max_gap_hours, minimum=0.0)
    if not seconds.size:
        raise ValueError("no readings")
    steps = np.diff(seconds)
    back = np.flatnonzero(steps <= 0.0)
    if back.size:
        raise ValueError(f"{where(int(back[0]) + 1)}: the time repeats or goes back")
    step = min(float(np.median(steps)), 3600.0) if steps.size else 3600.0
    gaps = np.flatnonzero(steps > 1.5 * step)
    missing = (steps[gaps] - step) / 3600.0
    too_long = np.flatnonzero(missing > limit)
    if too_long.size:
        raise gap_error(where(int(gaps[too_long[0]]) + 1), float(missing[too_long[0]]), limit)
    added = [np.linspace(seconds[g], seconds[g + 1], round(steps[g] / step) + 1)[1:-1] for g in gaps]
    times = np.sort(np.concatenate([seconds, *added]))
    first, hourly = _mean_by_hour(times, np.interp(times, seconds, values), step)
    longest = float(missing.max()) if gaps.size else 0.0
    return first, hourly, Intake(int(values.size), step / 60.0, int(gaps.size), longest)


def gap_error(place: str, hours: float, limit: float) -> ValueError:
    """The error for a gap that is too long to be bridged."""
    return ValueError(f"{place}: a gap of {hours:.2f} h before it is longer than max_gap_hours = {limit:g}")


def _mean_by_hour(
    times: NDArray[np.float64], values: NDArray[np.float64], step: float
) -> tuple[int, NDArray[np.float64]]:
    hours = np.floor(times / 3600.0).astype(np.int64)
    first = int(hours[0])
    counts = np.bincount(hours - first)
    means = np.bincount(hours - first, weights=values) / counts
    enough = counts * step >= 1800.0
    lower, upper = int(not enough[0]), len(means) - int(not enough[-1])
    if lower >= upper:
        raise ValueError("the readings cover less than half an hour")
    return first + lower, means[lower:upper]


def fill_gaps(
    values: NDArray[np.float64], where: Where, max_gap_hours: float = MAX_GAP_HOURS
) -> tuple[NDArray[np.float64], int, int]:
    """Bridge runs of NaN hours by straight lines.

    Args:
        values: [T] with NaN where nothing is known; the first and the last value are known.
        where: Names the place of the hour with a given index, for errors.
        max_gap_hours: Longest run that is bridged.

    Returns:
        The values [T] without NaN, the number of gaps and the length of the longest in hours.

    Example:
        >>> fill_gaps(np.array([1.0, np.nan, np.nan, 4.0]), str)
        (array([1., 2., 3., 4.]), 1, 2)
    """
    known = np.flatnonzero(np.isfinite(values))
    runs = np.diff(known) - 1
    too_long = np.flatnonzero(runs > max_gap_hours)
    if too_long.size:
        raise gap_error(where(int(known[too_long[0] + 1])), float(runs[too_long[0]]), max_gap_hours)
    filled = np.interp(np.arange(values.size), known, values[known])
    return filled, int(np.count_nonzero(runs)), int(runs.max(initial=0))


class Table(NamedTuple):
    """A CSV file with a header."""

    path: Path
    columns: list[str]
    """The header, as written but without surrounding blanks."""
    rows: list[tuple[int, list[str]]]
    """For each data row its line in the file (the header is line 1) and its fields."""

    def number(self, row: int, fields: Sequence[str], column: int) -> float:
        """A field as a finite number."""
        try:
            value = float(fields[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(
                f"{self.path}, row {row}: {self.columns[column]} is {fields[column]!r}, not a number"
            )
        return value

    def moment(self, row: int, text: str) -> datetime:
        """A field as an ISO 8601 time."""
        try:
            return datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(
                f"{self.path}, row {row}: {text!r} is not a time such as 2019-03-10T01:05:00-08:00"
            ) from None

    def column(self, name: str) -> int:
        """The index of a column by its exact name."""
        if name not in self.columns:
            raise ValueError(f"{self.path}, row 1: no column {name!r}; there are {', '.join(self.columns)}")
        return self.columns.index(name)


def read_table(path: str | Path) -> Table:
    """Read a CSV file with a header; rows must have as many fields as it, blank lines are skipped."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file} not found" if not file.exists() else f"{file} is not a file")
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            header = [name.strip() for name in next(reader, [])]
            rows = [(reader.line_num, fields) for fields in reader if any(text.strip() for text in fields)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} is not a readable CSV file: {error}") from None
    if not rows:
        raise ValueError(f"{file} holds no data rows")
    for row, fields in rows:
        if len(fields) != len(header):
            raise ValueError(f"{file}, row {row}: expected {len(header)} columns, got {len(fields)}")
    return Table(file, header, rows)


def same_clock(path: Path, row: int, moment: datetime, aware: bool | None) -> bool:
    """Whether a time has a UTC offset; an error if rows before it were of the other kind."""
    has_offset = moment.tzinfo is not None
    if aware is not None and has_offset != aware:
        kinds = ("with", "without") if has_offset else ("without", "with")
        raise ValueError(
            f"{path}, row {row}: mixed time zones: a time {kinds[0]} UTC offset after times {kinds[1]} one"
        )
    return has_offset


def epoch_seconds(moment: datetime) -> float:
    """Seconds since 1970; a naive time is counted on its own clock."""
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def hour_to_datetime(hour: int, aware: bool) -> datetime:
    """The start of an hour counted from 1970, aware (UTC) or naive."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + hour * HOUR
    return moment if aware else moment.replace(tzinfo=None)


# Several series together.


def align(*series: HourlySeries, how: Alignment = "overlap") -> tuple[HourlySeries, ...]:
    """Cut several series to the period they have in common.

    Args:
        series: Two or more.
        how: `overlap`: the same hours of the same years. `hour-of-year`: the others are first moved by whole
            years (and their clocks taken as the first one's), for sources from different years or without a
            date.

    Example:
        >>> old = HourlySeries(datetime(2016, 6, 1), np.zeros(48))
        >>> new = HourlySeries(datetime(2019, 6, 2, tzinfo=UTC), np.zeros(48))
        >>> [len(part) for part in align(new, old, how="hour-of-year")]
        [24, 24]
    """
    validate.choice("how", how, ("overlap", "hour-of-year"))
    if len(series) < 2:
        raise ValueError(f"align needs at least two series, got {len(series)}")
    reference = series[0]
    moved = (
        series if how == "overlap" else (reference, *(_to_year_of(reference, other) for other in series[1:]))
    )
    for other in moved[1:]:
        if (other.start.tzinfo is None) != (reference.start.tzinfo is None):
            raise ValueError(
                f"{reference.name} and {other.name} cannot be aligned: only one has a time zone; "
                "align them by hour-of-year, or give the one without a date an aware start"
            )
    start, end = max(part.start for part in moved), min(part.end for part in moved)
    if start >= end:
        periods = ", ".join(f"{part.name} {_period(part)}" for part in moved)
        raise ValueError(
            f"the series have no hour in common: {periods}; align by hour-of-year if the years differ"
        )
    return tuple(part.between(start, end) for part in moved)


def _to_year_of(reference: HourlySeries, other: HourlySeries) -> HourlySeries:
    """`other` moved by whole years to where it overlaps the reference most."""
    day = min(other.start.day, 28) if other.start.month == 2 else other.start.day

    def overlap(year: int) -> tuple[timedelta, datetime]:
        start = other.start.replace(year=year, day=day, tzinfo=reference.start.tzinfo)
        return min(reference.end, start + len(other) * HOUR) - max(reference.start, start), start

    years = range(reference.start.year - 1, reference.end.year + 1)
    return replace(other, start=max(map(overlap, years))[1])


def split_by_date(
    series: HourlySeries, val_from: date | datetime, test_from: date | datetime
) -> dict[str, HourlySeries]:
    """Cut a series into `train`, `val` and `test`; windows of a part never reach into another.

    Args:
        series: What to cut.
        val_from: Where validation begins; a date means its midnight on the series' clock (UTC or naive).
        test_from: Where the test part begins.

    Example:
        >>> year = HourlySeries(datetime(2019, 1, 1), np.zeros(24 * 365))
        >>> parts = split_by_date(year, date(2019, 7, 1), date(2019, 9, 1))
        >>> {name: len(part) // 24 for name, part in parts.items()}
        {'train': 181, 'val': 62, 'test': 122}
    """
    borders = [_moment(border, series) for border in (val_from, test_from)]
    edges = [series.start, *borders, series.end]
    if not all(early < late for early, late in pairwise(edges)):
        wanted = " and ".join(border.isoformat() for border in borders)
        raise ValueError(
            f"the split at {wanted} leaves an empty part: {series.name} covers {_period(series)}"
        )
    return {name: series.between(edges[k], edges[k + 1]) for k, name in enumerate(SPLITS)}


def split_by_share(series: HourlySeries, shares: Sequence[float]) -> dict[str, HourlySeries]:
    """Cut a series into `train`, `val` and `test` of about these shares, at midnights of its clock.

    Args:
        series: What to cut.
        shares: Three positive numbers that sum to 1.
    """
    if len(shares) != 3 or min(shares) <= 0.0 or abs(sum(shares) - 1.0) > 1e-6:
        raise ValueError(f"shares must be three positive numbers that sum to 1, got {list(shares)}")
    days = [round(len(series) * share / 24.0) for share in (shares[0], shares[0] + shares[1])]
    borders = [_moment((series.start + day * 24 * HOUR).date(), series) for day in days]
    return split_by_date(series, borders[0], borders[1])


def _moment(border: date | datetime, series: HourlySeries) -> datetime:
    """A border on the series' clock."""
    if not isinstance(border, datetime):
        return datetime.combine(border, time(), tzinfo=series.start.tzinfo)
    if (border.tzinfo is None) == (series.start.tzinfo is None):
        return border
    if border.tzinfo is None:
        return border.replace(tzinfo=UTC)
    raise ValueError(f"{series.name} has no time zone, but the border {border.isoformat()} has one")


def _period(series: HourlySeries) -> str:
    return f"{series.start.isoformat()} to {series.end.isoformat()}"


# Episodes.


@dataclass(frozen=True)
class Forecast:
    """A forecast of the next `hours` hours, issued anew in every round.

    The forecast that is issued in round h for lead k = 1..hours (the value of round h + k) is
    actual * (1 + error_k), not below 0, where error_k is a random walk over the leads with standard deviation
    `error * sqrt(k / 24)`: relative error grows with lead time, and neighbouring leads err alike. Errors of
    different issues are independent. `error = 0` is a perfect forecast.
    """

    hours: int = 24
    """Leads L."""
    error: float = 0.0
    """Relative error 24 hours ahead (standard deviation)."""

    def __post_init__(self) -> None:
        validate.count("hours", self.hours)
        validate.number("error", self.error, minimum=0.0)

    def draw(
        self, series: HourlySeries, first: NDArray[np.int64], horizon: int, random: np.random.Generator
    ) -> NDArray[np.float64]:
        """[N, H, L] forecasts for the windows that begin at `first` [N]; entry [n, h, k-1] has lead k."""
        rounds = first[:, None, None] + np.arange(horizon)[:, None]
        actual: NDArray[np.float64] = series.values[rounds + np.arange(1, self.hours + 1)]
        if self.error == 0.0:
            return actual
        walk = np.cumsum(random.standard_normal(actual.shape), axis=-1) * (self.error / math.sqrt(24.0))
        return np.asarray(np.maximum(actual * (1.0 + walk), 0.0))


def clock_context(hours: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """The hour of the day as a point on a circle: `clock_sin` and `clock_cos`, shaped like `hours`.

    Example:
        >>> clock_context(np.array([[0, 6]]))["clock_sin"]
        array([[0., 1.]])
    """
    angle = 2.0 * np.pi * hours / 24.0
    return {"clock_sin": np.sin(angle), "clock_cos": np.cos(angle)}


def add_clock(episodes: Episodes) -> Episodes:
    """The episodes with the series `clock_sin` and `clock_cos`; their `start_hours` must be known."""
    if episodes.start_hours is None:
        raise ValueError(
            f"the hour in which an episode starts is not known; give start_hours to {episodes!r}"
        )
    hours = (episodes.start_hours[:, None] + np.arange(episodes.horizon)) % 24
    series = {name: episodes[name] for name in episodes.names}
    return Episodes({**series, **clock_context(hours)}, episodes.start_hours)


def add_forecast(episodes: Episodes, *names: str, hours: int | None = None) -> Episodes:
    """The episodes with a perfect forecast `x_forecast` [N, H, L, ...] of each named series x, to the episode's end.

    Entry [n, h, k-1] is the value k rounds after h, and 0 beyond the last round. `build_carbon_episodes` makes
    forecasts that err.

    Args:
        episodes: N of H rounds.
        names: Series [N, H] or [N, H, n].
        hours: Leads L; H - 1 if None.

    Example:
        >>> added = add_forecast(Episodes({"demand": np.array([[1.0, 2.0, 3.0]])}), "demand")
        >>> added["demand_forecast"][0].tolist()
        [[2.0, 3.0], [3.0, 0.0], [0.0, 0.0]]
    """
    leads = validate.count("hours", max(episodes.horizon - 1, 1) if hours is None else hours)
    series = {name: episodes[name] for name in episodes.names}
    for name in names:
        padded = np.pad(episodes[name], ((0, 0), (0, leads), *((0, 0),) * (episodes[name].ndim - 2)))
        ahead = np.lib.stride_tricks.sliding_window_view(padded[:, 1:], leads, axis=1)
        series[f"{name}_forecast"] = np.moveaxis(ahead[:, : episodes.horizon], -1, 2).copy()
    return Episodes(series, episodes.start_hours)


def augment(
    episodes: Episodes,
    count: int,
    seed: int,
    noise: float = 0.03,
    limits: Mapping[str, tuple[float, float]] | None = None,
    independent: Collection[str] = (),
) -> Episodes:
    """More episodes of the same kind: windows drawn again, each series of each at a slightly other level.

    The first episodes are the given ones. Each further one is a given one, drawn at random with replacement,
    in which every series is multiplied by its own factor 1 + noise * z, z standard normal cut at +-3. A
    series and its forecast (`x` and `x_forecast`) share the factor; the clock is left alone. Series that are
    `independent` of the others are those of another episode instead, unchanged.

    Args:
        episodes: What there is, N episodes.
        count: How many there shall be, at least N.
        seed: Of the draw.
        noise: Relative standard deviation of the level, below 1/3.
        limits: For each name the smallest and the largest value; what leaves them is clipped.
        independent: Series that have nothing to do with the others, such as disturbances.
    """
    validate.count("count", count, minimum=len(episodes))
    if not 0.0 <= validate.number("noise", noise) < 1.0 / 3.0:
        raise ValueError(f"noise must be at least 0 and below 1/3, got {noise!r}")
    random = np.random.default_rng(seed)
    extra = count - len(episodes)
    chosen = np.concatenate([np.arange(len(episodes)), random.integers(len(episodes), size=extra)])
    others = random.integers(len(episodes), size=extra) if independent else chosen[len(episodes) :]
    levels: dict[str, NDArray[np.float64]] = {}
    series = {}
    for name in episodes.names:
        values = episodes[name][chosen]
        if name in independent:
            values[len(episodes) :] = episodes[name][others]
        elif not name.startswith("clock_"):
            base = name.removesuffix("_forecast")
            if base not in levels:
                levels[base] = 1.0 + noise * np.clip(random.standard_normal(extra), -3.0, 3.0)
            values[len(episodes) :] *= levels[base].reshape(-1, *[1] * (values.ndim - 1))
            values[len(episodes) :] = np.clip(
                values[len(episodes) :], *(limits or {}).get(base, (-np.inf, np.inf))
            )
        series[name] = values
    return Episodes(series, None if episodes.start_hours is None else episodes.start_hours[chosen])


DEMAND_MEAN, DEMAND_PEAK, RENEWABLES_MEAN = 3.45, 5.9, 2.3
"""The range of the authors' data, in their unit of energy an hour."""


def scale_carbon(
    demand: HourlySeries,
    renewables: HourlySeries,
    demand_mean: float = DEMAND_MEAN,
    demand_peak: float = DEMAND_PEAK,
    renewables_mean: float = RENEWABLES_MEAN,
) -> tuple[HourlySeries, HourlySeries]:
    """Bring both series into the range of the authors' data, for which `Carbon`'s constants are proved.

    Renewables are multiplied so that their mean is `renewables_mean`. Demand is multiplied so that its mean
    is `demand_mean`; if its peak were then above `demand_peak`, it is flattened (factor and offset) so that
    mean and peak are as given. Neither becomes negative if it was not.
    """
    for series in (demand, renewables):
        if series.values.min() < 0.0:
            raise ValueError(
                f"{series.name} must not be negative, its smallest value is {series.values.min():g}"
            )
    scaled = demand.scaled(mean=demand_mean)
    if scaled.values.max() > demand_peak:
        scaled = demand.scaled(mean=demand_mean, peak=demand_peak)
    return scaled, renewables.scaled(mean=renewables_mean)


def _aligned(
    demand: HourlySeries, renewables: HourlySeries, how: Alignment
) -> tuple[HourlySeries, HourlySeries]:
    first, second = align(replace(demand, name="demand"), replace(renewables, name="renewables"), how=how)
    return first, second


def build_carbon_episodes(
    demand: HourlySeries,
    renewables: HourlySeries,
    seed: int,
    *,
    scale: bool = True,
    how: Alignment = "overlap",
    horizon: int = 24,
    stride: int = 1,
    count: int | None = None,
    noise: float = 0.03,
    clock: bool = False,
    forecast: Forecast | None = None,
    zone: str | None = None,
) -> Episodes:
    """Episodes for `tether.envs.Carbon` from two hourly series.

    Efficiency noise is N(0, 1/15) clipped to [-0.2, 0.2] and the drop rate U[0, 0.1], both independent in
    every hour of every window, also where windows overlap.

    Args:
        demand: Work that arrives, any unit if `scale`.
        renewables: Renewable energy, any unit if `scale`.
        seed: Of everything that is drawn.
        scale: Bring both into the range of the authors' data (`scale_carbon`), on the period they have in
            common.
        how: How they are aligned (`align`).
        horizon: Rounds of an episode, H.
        stride: Hours from one window's start to the next one's.
        count: Augment to this number of episodes (`augment`), or cut to it; None: every window once.
        noise: Relative noise of the level of augmented windows.
        clock: Add `clock_sin` and `clock_cos` [N, H].
        forecast: Add `demand_forecast` and `renewables_forecast` [N, H, L]; windows end L hours earlier.
        zone: Time zone of the clock and of `start_hours`; None: the series' own clock.

    Example:
        >>> hours = np.arange(240)
        >>> demand = HourlySeries(datetime(2019, 1, 1), 2.0 + np.sin(hours / 4.0), name="demand")
        >>> sun = HourlySeries(datetime(2019, 1, 1), np.maximum(np.sin(hours / 4.0), 0.0), name="renewables")
        >>> build_carbon_episodes(demand, sun, seed=0, clock=True)
        Episodes(217 of 24 rounds: demand, renewables, clock_sin, clock_cos, efficiency_noise, drop_rate)
    """
    demand, renewables = _aligned(demand, renewables, how)
    if scale:
        demand, renewables = scale_carbon(demand, renewables)
    random = np.random.default_rng(seed)
    first = window_starts(
        len(demand), horizon, stride, forecast.hours if forecast else 0, "the common period"
    )
    index = first[:, None] + np.arange(horizon)
    hours = demand.clock_hours(zone)
    series = {"demand": demand.values[index], "renewables": renewables.values[index]}
    if clock:
        series |= clock_context(hours[index])
    if forecast:
        for source in (demand, renewables):
            series[f"{source.name}_forecast"] = forecast.draw(source, first, horizon, random)
    episodes = Episodes(series, hours[first])
    if count is not None and validate.count("count", count) <= len(episodes):
        episodes = episodes[:count]
    elif count is not None:
        limits = {"demand": (0.0, float(demand.values.max())), "renewables": (0.0, np.inf)}
        episodes = augment(episodes, count, int(random.integers(2**63)), noise, limits)
    shape = (len(episodes), horizon)
    drawn = {
        "efficiency_noise": np.clip(random.normal(0.0, 1.0 / 15.0, shape), -0.2, 0.2),
        "drop_rate": random.uniform(0.0, 0.1, shape),
    }
    return Episodes({name: episodes[name] for name in episodes.names} | drawn, episodes.start_hours)


def build_carbon_splits(
    demand: HourlySeries,
    renewables: HourlySeries,
    seed: int,
    borders: tuple[date, date] | Sequence[float],
    *,
    scale: bool = True,
    how: Alignment = "overlap",
    count: int | None = None,
    **options: Any,
) -> dict[str, Episodes]:
    """Episodes for `tether.envs.Carbon` in `train`, `val` and `test`; no window crosses a border.

    The series are aligned and scaled as a whole, then cut. Every part has its own draw of the noise.

    Args:
        demand: See `build_carbon_episodes`.
        renewables: See there.
        seed: See there.
        borders: The days on which `val` and `test` begin, or three shares that sum to 1.
        scale: See there.
        how: See there.
        count: Augment `train` to this number of episodes; `val` and `test` stay as they are.
        **options: The other options of `build_carbon_episodes`.
    """
    demand, renewables = _aligned(demand, renewables, how)
    if scale:
        demand, renewables = scale_carbon(demand, renewables)
    parts = [_split(series, borders) for series in (demand, renewables)]
    seeds = np.random.SeedSequence(seed).generate_state(len(SPLITS))
    episodes = {}
    for name, part_seed in zip(SPLITS, seeds, strict=True):
        options["count"] = count if name == "train" else None
        pair = [part[name] for part in parts]
        try:
            episodes[name] = build_carbon_episodes(pair[0], pair[1], int(part_seed), scale=False, **options)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return episodes


def _split(series: HourlySeries, borders: tuple[date, date] | Sequence[float]) -> dict[str, HourlySeries]:
    if len(borders) == 2 and isinstance(borders[0], date) and isinstance(borders[1], date):
        return split_by_date(series, borders[0], borders[1])
    return split_by_share(series, [float(share) for share in borders if not isinstance(share, date)])
