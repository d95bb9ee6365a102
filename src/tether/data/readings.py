"""From readings at nearly regular times to the mean of each hour, with short gaps bridged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tether.core import validate
from tether.data.series import Intake

MAX_GAP_HOURS = 3.0
"""Gaps up to this length are bridged by a straight line unless the caller says otherwise."""

Where = Callable[[int], str]
"""From the number of a reading to the place it came from, such as `supply.csv, row 14`."""


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
    # NumPy adds in the order of the readings. Polars does not: its means differ in the last digit, and with them every
    # result that rests on them.
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
