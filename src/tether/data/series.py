"""Hourly time series: one value an hour, scaled, cut and seen through windows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from tether.core import validate

HOUR = timedelta(hours=1)


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

    @property
    def period(self) -> str:
        """From when to when, for messages."""
        return f"{self.start.isoformat()} to {self.end.isoformat()}"

    def clock_hours(self, zone: str | None = None) -> NDArray[np.int64]:
        """[T] hour of the day, 0 to 23, on the clock of `start` (UTC or naive) or in a time zone.

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
                f"{self.name} covers {self.period}: nothing from {first.isoformat()} to {last.isoformat()}"
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


def hour_to_datetime(hour: int, aware: bool) -> datetime:
    """The start of an hour counted from 1970, aware (UTC) or naive."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + hour * HOUR
    return moment if aware else moment.replace(tzinfo=None)


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
