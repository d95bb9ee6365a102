"""Episodes cut as sliding windows from hourly series, with the clock and forecasts on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tether.core import validate
from tether.data.enrich import Forecast, augment, clock_context
from tether.data.episodes import Episodes
from tether.data.series import HourlySeries, window_starts


def cut_windows(
    series: Sequence[HourlySeries],
    random: np.random.Generator,
    *,
    horizon: int = 24,
    stride: int = 1,
    count: int | None = None,
    noise: float = 0.03,
    clock: bool = False,
    forecast: Forecast | None = None,
    zone: str | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Episodes:
    """Episodes of `horizon` hours from series that cover the same hours (`align`).

    Args:
        series: One or more; each gives the series of its name.
        random: Draws forecast errors and augmented windows.
        horizon: Rounds of an episode, H.
        stride: Hours from one window's start to the next one's.
        count: Augment to this number of episodes (`augment`), or cut to it; None: every window once.
        noise: Relative noise of the level of augmented windows.
        clock: Add `clock_sin` and `clock_cos` [N, H].
        forecast: Add `x_forecast` [N, H, L] for every series x; windows end L hours earlier.
        zone: Time zone of the clock and of `start_hours`; None: that of the series.
        limits: For each name the smallest and the largest value of augmented windows.

    Example:
        >>> from datetime import datetime
        >>> load = HourlySeries(datetime(2019, 1, 1), np.arange(72.0), name="load")
        >>> cut_windows([load], np.random.default_rng(0), forecast=Forecast(hours=8))
        Episodes(41 of 24 rounds: load, load_forecast)
    """
    leads = forecast.hours if forecast else 0
    first = window_starts(len(series[0]), horizon, stride, leads, "the common period")
    index = first[:, None] + np.arange(horizon)
    hours = series[0].clock_hours(zone)
    values = {each.name: each.values[index] for each in series}
    if clock:
        values |= clock_context(hours[index])
    if forecast:
        values |= {f"{each.name}_forecast": forecast.draw(each, first, horizon, random) for each in series}
    episodes = Episodes(values, hours[first])
    if count is None:
        return episodes
    if validate.count("count", count) <= len(episodes):
        kept: Episodes = episodes[:count]
        return kept
    return augment(episodes, count, int(random.integers(2**63)), noise, limits)
