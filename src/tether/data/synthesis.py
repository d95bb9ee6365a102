"""Building blocks of synthetic series: daily shapes, a season, noise that fades, renewables; all hourly, all seeded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tether.core import validate
from tether.data.episodes import Episodes

Array = NDArray[np.float64]

HOURS_PER_DAY = 24
SEASON_HOURS = 60 * HOURS_PER_DAY
"""Nominal length of the seasonal cycle in hours: two months, as long as a split of the paper's data."""
RETURN_HOURS = 3.0 * HOURS_PER_DAY
"""Time in hours in which a departure from shape and season is made up for; so only the season is slow."""


@dataclass(frozen=True)
class Harmonic:
    """A cosine of the hour of the clock that goes through `cycles` periods a day and peaks at `peak_hour`."""

    amplitude: float
    peak_hour: float
    cycles: int = 1

    def __call__(self, clock: Array) -> Array:
        """Its value at these hours of the clock: [T] to [T]."""
        return self.amplitude * np.cos(2.0 * np.pi * self.cycles * (clock - self.peak_hour) / HOURS_PER_DAY)


@dataclass(frozen=True)
class Daily:
    """A series with a daily shape, a departure from it that fades, and a soft lower bound."""

    mean: float
    shape: Harmonic
    """Added to the mean, by the clock."""
    std: float
    """Standard deviation of the departure ..."""
    hours: float
    """... and its correlation time in hours."""
    lowest: float
    """Soft lower bound."""
    softness: float
    """How near the bound the squashing begins."""

    def draw(self, rng: np.random.Generator, hours: int) -> Array:
        """So many hours from midnight on: [T]."""
        free = self.mean + self.shape(clock_hours(hours)) + self.std * fading_noise(rng, hours, self.hours)
        return soft_above(free, self.lowest, self.softness)


@dataclass(frozen=True)
class RenewablesModel:
    """Solar, wind and other renewables of a region; energy an hour where no other unit is given."""

    base: float
    """Mean of wind, water and the rest."""
    base_shape: Harmonic
    """Their mean day: more in the afternoon and the evening than before dawn."""
    base_season: float
    """Their seasonal amplitude."""
    solar: float
    """Height of the solar bell, flat-topped because the panels are many and far apart."""
    sunrise: float
    """Clock hour at which the bell is half up ..."""
    sunrise_width: float
    """... the width in hours of that logistic flank ..."""
    sunrise_season: float
    """... and by how many hours the season moves it (earlier at the season's height)."""
    sunset: float
    """Clock hour at which the bell is half down ..."""
    sunset_width: float
    """... the width in hours of that flank ..."""
    sunset_season: float
    """... and by how many hours the season moves it."""
    wind_std: float
    """Departure of the wind: standard deviation at night ..."""
    wind_hours: float
    """... correlation time in hours ..."""
    wind_by_day: float
    """... and the share of it that remains while the sun shines."""
    cloud_std: float
    """Departure of the sun at the top of the bell: standard deviation ..."""
    cloud_hours: float
    """... and correlation time in hours."""
    lowest: float
    """Soft lower bound."""
    softness: float
    """How near the bound the squashing begins."""

    def draw(self, rng: np.random.Generator, phase: Array) -> Array:
        """Renewables of each hour: [T] angle of the season (`season_phase`) to [T]."""
        clock = clock_hours(len(phase))
        season = np.sin(phase)
        up = logistic((clock - self.sunrise - self.sunrise_season * season) / self.sunrise_width)
        down = logistic((self.sunset + self.sunset_season * season - clock) / self.sunset_width)
        sun = up * down
        wind = self.wind_std * fading_noise(rng, len(phase), self.wind_hours)
        cloud = self.cloud_std * fading_noise(rng, len(phase), self.cloud_hours)
        base = self.base + self.base_shape(clock) + self.base_season * season
        free = base + wind * (1.0 - (1.0 - self.wind_by_day) * sun) + (self.solar + cloud) * sun
        return soft_above(free, self.lowest, self.softness)


def checked_generator(seed: int, n: int, horizon: int) -> np.random.Generator:
    """The random numbers of a seed, for `n` windows of `horizon` hours; all three are checked."""
    validate.count("n", n)
    validate.count("horizon", horizon)
    return np.random.default_rng(validate.count("seed", seed, minimum=0))


def sliding_episodes(series: Mapping[str, Array], drawn: Mapping[str, Array], horizon: int) -> Episodes:
    """Episodes that are windows sliding by one hour over hourly series that begin at midnight.

    Args:
        series: For each name [T] or [T, k], with T = n + horizon - 1 for n windows.
        drawn: What is drawn for each window separately: for each name [n, horizon] or [n, horizon, k].
        horizon: Hours in a window.
    """
    windows = {
        name: np.moveaxis(sliding_window_view(values, horizon, axis=0), -1, 1)
        for name, values in series.items()
    }
    count = len(next(iter(windows.values())))
    return Episodes({**windows, **drawn}, start_hours=np.arange(count) % HOURS_PER_DAY)


def season_phase(rng: np.random.Generator, hours: int) -> Array:
    """Angle of the seasonal cycle in each hour [T], from a random start.

    The cycle is stretched so that a whole number of it fits, unless the series is shorter than half of one.
    """
    cycles = round(hours / SEASON_HOURS)
    period = hours / cycles if cycles else SEASON_HOURS
    start = rng.uniform(0.0, 2.0 * np.pi)
    return start + np.arange(hours, dtype=np.float64) * (2.0 * np.pi / period)


def clock_hours(hours: int) -> Array:
    """Hour of the clock, 0 to 23, of each hour: [T]."""
    return np.arange(hours, dtype=np.float64) % HOURS_PER_DAY


def harmonic_sum(harmonics: tuple[Harmonic, ...], clock: Array) -> Array:
    """The sum of the harmonics at these hours of the clock: [T]."""
    return sum((harmonic(clock) for harmonic in harmonics), start=np.zeros_like(clock))


def fading_noise(rng: np.random.Generator, hours: int, *correlation_hours: float) -> Array:
    """Stationary Gaussian noise [T] of mean 0 and variance 1, white noise through a filter for each time.

    One exponential filter gives an AR(1) process, two an AR(2) process, which is smooth from hour to hour.
    The weights are made to sum to 0, so that the noise returns to its mean and adds no season.
    """
    kernel = np.ones(1)
    for time in correlation_hours:
        kernel = np.convolve(kernel, _decay(time))
    recovery = _decay(RETURN_HOURS)
    kernel = np.pad(kernel, (0, max(0, len(recovery) - len(kernel))))
    kernel[: len(recovery)] -= recovery * (kernel.sum() / recovery.sum())
    kernel /= np.sqrt(np.sum(kernel**2))
    return np.convolve(rng.standard_normal(hours + len(kernel) - 1), kernel, mode="valid")


def _decay(hours: float) -> Array:
    """Weights of an exponential filter; beyond eight times `hours` they are below 1/2000 and left out."""
    return np.exp(-np.arange(round(8.0 * hours)) / hours)


def logistic(x: Array) -> Array:
    """The logistic function, from 0 to 1."""
    return 1.0 / (1.0 + np.exp(-x))


def soft_above(x: Array, bound: float, softness: float) -> Array:
    """`x` squashed smoothly to values of at least `bound`."""
    return bound + softness * np.logaddexp(0.0, (x - bound) / softness)


def soft_below(x: Array, bound: float, softness: float) -> Array:
    """`x` squashed smoothly to values of at most `bound`."""
    return bound - softness * np.logaddexp(0.0, (bound - x) / softness)
