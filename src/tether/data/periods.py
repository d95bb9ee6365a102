"""Several series over the same hours, and one series cut into a part to train on and parts to be judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Literal

from tether.core import validate
from tether.data.series import HOUR, HourlySeries

Alignment = Literal["overlap", "hour-of-year"]
Borders = tuple[date, date] | Sequence[float]
"""The days on which validation and test begin, or three shares that sum to 1."""
SPLITS = ("train", "val", "test")


def align(*series: HourlySeries, how: Alignment = "overlap") -> tuple[HourlySeries, ...]:
    """Cut several series to the period they have in common.

    Args:
        series: Two or more.
        how: `overlap`: the same hours of the same years. `hour-of-year`: the others are first moved by whole
            years (and their clocks taken as the first one's), for sources from different years or without a
            date.

    Example:
        >>> import numpy as np
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
        periods = ", ".join(f"{part.name} {part.period}" for part in moved)
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
        >>> import numpy as np
        >>> year = HourlySeries(datetime(2019, 1, 1), np.zeros(24 * 365))
        >>> parts = split_by_date(year, date(2019, 7, 1), date(2019, 9, 1))
        >>> {name: len(part) // 24 for name, part in parts.items()}
        {'train': 181, 'val': 62, 'test': 122}
    """
    borders = [_moment(border, series) for border in (val_from, test_from)]
    edges = [series.start, *borders, series.end]
    if not all(early < late for early, late in pairwise(edges)):
        wanted = " and ".join(border.isoformat() for border in borders)
        raise ValueError(f"the split at {wanted} leaves an empty part: {series.name} covers {series.period}")
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


def split(series: HourlySeries, borders: Borders) -> dict[str, HourlySeries]:
    """Cut a series by two dates (`split_by_date`) or by three shares (`split_by_share`)."""
    if len(borders) == 2 and isinstance(borders[0], date) and isinstance(borders[1], date):
        return split_by_date(series, borders[0], borders[1])
    return split_by_share(series, [float(share) for share in borders if not isinstance(share, date)])
