"""Generated episodes, calibrated to real series, so that everything runs on a fresh machine.

`synthetic_carbon` imitates the *test* split of the paper's carbon data (1416 windows over two months of Azure
2019 demand and CAISO 2019 renewables, both scaled by the authors), the split of every published number. The
generator knows only the few numbers of `DemandModel` and `RenewablesModel`; no value of the series is in it.

What it was calibrated to, as measured on that split. Series statistics are those of the hourly series (the
first column of the windows, then the rest of the last window), autocorrelations are about its overall mean,
and the prior is OPT-QoS, `tether.envs.Carbon().prior`, over the 24 rounds of each window:

    =============================  =======  ==========
    statistic                      demand   renewables
    =============================  =======  ==========
    mean                            3.4953      1.8359
    standard deviation              0.6869      1.2620
    autocorrelation over 1 hour     0.9847      0.9301
    autocorrelation over 24 hours   0.8373      0.9635
    =============================  =======  ==========

    the prior's mean episode reward 495.747, mean episode cost 27.816, worst episode cost 34.356

How well it meets them with n = 1416, over 300 seeds: always within 5 %, and mostly within 2 %, except for
demand's standard deviation and autocorrelation over 24 hours (within 5 % for 19 seeds in 20, and closer in a
longer series) and for the worst cost (within 5 % for 4 seeds in 5). That is an extreme of the draws of n1: on
average it is 2.6 % above the authors', with a standard deviation of 3 % between seeds, and it grows with n.
Fresh noise on the authors' own series does the same (3.2 % above, standard deviation 3.2 %): theirs is a mild
draw. No seed and no order of the draws was chosen for its result.

How each part was found:

- Daily shapes: least squares to the split's mean day; three harmonics for demand, a cosine and a bell with
  logistic flanks for renewables.
- Season: demand is about 1 lower in the second month than in the first and changes within a week; renewables
  and the length of the day decline with it. Here both follow a cycle of two months that starts anywhere. A
  whole number of cycles fits in the series, so that its mean and spread do not depend on where.
- Departures from shape and season: standard deviation by hour of the clock and autocorrelation over 1 to 48
  hours of what is left when both are taken out; then lowered a little, and the season raised, until the table
  was met.
- No weekly pattern: means by weekday, of this split and of the training split, differ less than those of
  shuffled days.
- Noise: the authors drew it anew for each window and hour (their windows do not slide over it); n1 is normal
  with standard deviation 1/15, clipped to [-0.2, 0.2], and n2 is uniform on [0, 0.1]. So it is here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tether.core import validate
from tether.data.episodes import Episodes

Array = NDArray[np.float64]

HOURS_PER_DAY = 24
SEASON_HOURS = 60 * HOURS_PER_DAY
"""Nominal length of the seasonal cycle in hours: the split's two months."""
RETURN_HOURS = 3.0 * HOURS_PER_DAY
"""Time in hours in which a departure from shape and season is made up for; so only the season is slow."""
EFFICIENCY_NOISE_STD = 1.0 / 15.0
"""Standard deviation of n1 before it is clipped, in work per unit of energy."""
EFFICIENCY_NOISE_MAX = 0.2
"""Largest |n1|."""
DROP_RATE_MAX = 0.1
"""Largest n2, a share of the backlog in an hour."""


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
class DemandModel:
    """Parameters of the demand mu_h, in the authors' scaled work an hour if no unit is given."""

    mean: float = 3.47
    """Mean; 0.7 % below the split's, to meet its mean cost although its n1 happens to be a mild draw."""
    shape: tuple[Harmonic, ...] = (Harmonic(0.444, 19.3), Harmonic(0.062, 10.0, 2), Harmonic(0.027, 3.1, 3))
    """Mean day: trough at 7 in the morning, peak at 8 in the evening."""
    season: float = 0.57
    """Half the distance between the month of high demand and that of low demand."""
    season_steepness: float = 6.0
    """How squarely the season changes: tanh(steepness * sine); at 6 a change takes about three days."""
    level_std: float = 0.15
    """Departure from the mean day that lasts: standard deviation ..."""
    level_hours: float = 10.0
    """... and time in hours of either of its two exponential filters (two make it smooth)."""
    bump_std: float = 0.20
    """Departure of a few hours: standard deviation, averaged over the clock ..."""
    bump_hours: float = 2.8
    """... time in hours of either of its two exponential filters ..."""
    bump_profile: tuple[Harmonic, ...] = (Harmonic(0.11, 2.4), Harmonic(0.10, 5.9, 2))
    """... and what is added to its standard deviation by the clock: nights vary most, noons least."""
    lowest: float = 0.8
    """Soft lower bound; the split's minimum is 1.76."""
    highest: float = 6.0
    """Soft upper bound, for which the constants of `tether.envs.Carbon` hold; the split's maximum is 5.83."""
    softness: float = 0.15
    """How near a bound the squashing begins."""


@dataclass(frozen=True)
class RenewablesModel:
    """Parameters of the renewables C_h, in the authors' scaled energy an hour if no unit is given."""

    base: float = 0.935
    """Mean of wind, water and the rest."""
    base_shape: Harmonic = Harmonic(0.282, 16.0)
    """Their mean day: more in the afternoon and the evening than before dawn."""
    base_season: float = 0.13
    """Their seasonal amplitude."""
    solar: float = 2.568
    """Height of the solar bell, flat-topped because the panels are many and far apart."""
    sunrise: float = 7.757
    """Clock hour at which the bell is half up ..."""
    sunrise_width: float = 0.39
    """... the width in hours of that logistic flank ..."""
    sunrise_season: float = -0.20
    """... and by how many hours the season moves it (earlier at the season's height)."""
    sunset: float = 16.19
    """Clock hour at which the bell is half down ..."""
    sunset_width: float = 0.555
    """... the width in hours of that flank ..."""
    sunset_season: float = 0.51
    """... and by how many hours the season moves it."""
    wind_std: float = 0.31
    """Departure of the wind: standard deviation at night ..."""
    wind_hours: float = 22.0
    """... correlation time in hours ..."""
    wind_by_day: float = 0.5
    """... and the share of it that remains while the sun shines."""
    cloud_std: float = 0.27
    """Departure of the sun at the top of the bell: standard deviation ..."""
    cloud_hours: float = 14.0
    """... and correlation time in hours."""
    lowest: float = 0.07
    """Soft lower bound: the split's minimum."""
    softness: float = 0.05
    """How near the bound the squashing begins."""


DEMAND = DemandModel()
RENEWABLES = RenewablesModel()


def synthetic_carbon(seed: int, n: int, horizon: int = 24) -> Episodes:
    """Carbon episodes with the statistics of the authors' test windows (listed at the top of this module).

    As in the authors' data the episodes are windows that slide by one hour over a single series of
    n + horizon - 1 hours, while the noise is drawn anew for each window. Another n gives another series.

    Args:
        seed: At least 0; the same seed, n and horizon give the same episodes.
        n: Number of windows, at least 1. The authors' splits have 2136, 696 and 1416.
        horizon: Hours in a window, at least 1.

    Returns:
        Episodes for `tether.envs.Carbon`; window i starts at hour i mod 24 of the clock.

    Example:
        >>> episodes = synthetic_carbon(seed=0, n=48)
        >>> episodes
        Episodes(48 of 24 rounds: demand, renewables, efficiency_noise, drop_rate)
        >>> bool(np.all(episodes["demand"][1:, :-1] == episodes["demand"][:-1, 1:]))  # they slide
        True
    """
    seed = validate.count("seed", seed, minimum=0)
    n = validate.count("n", n)
    horizon = validate.count("horizon", horizon)
    rng = np.random.default_rng(seed)
    phase = _season_phase(rng, n + horizon - 1)
    demand = _demand(rng, phase, DEMAND)
    renewables = _renewables(rng, phase, RENEWABLES)
    efficiency_noise = rng.normal(0.0, EFFICIENCY_NOISE_STD, (n, horizon))
    drop_rate = rng.uniform(0.0, DROP_RATE_MAX, (n, horizon))
    series = {
        "demand": sliding_window_view(demand, horizon),
        "renewables": sliding_window_view(renewables, horizon),
        "efficiency_noise": efficiency_noise.clip(-EFFICIENCY_NOISE_MAX, EFFICIENCY_NOISE_MAX),
        "drop_rate": drop_rate,
    }
    return Episodes(series, start_hours=np.arange(n) % HOURS_PER_DAY)


def _season_phase(rng: np.random.Generator, hours: int) -> Array:
    """Angle of the seasonal cycle in each hour [T], from a random start.

    The cycle is stretched so that a whole number of it fits, unless the series is shorter than half of one.
    """
    cycles = round(hours / SEASON_HOURS)
    period = hours / cycles if cycles else SEASON_HOURS
    start = rng.uniform(0.0, 2.0 * np.pi)
    return start + np.arange(hours, dtype=np.float64) * (2.0 * np.pi / period)


def _demand(rng: np.random.Generator, phase: Array, model: DemandModel) -> Array:
    """Demand of each hour: [T] angle of the season to [T]."""
    clock = _clock(len(phase))
    season = model.season * np.tanh(model.season_steepness * np.sin(phase))
    level = model.level_std * _noise(rng, len(phase), model.level_hours, model.level_hours)
    bump_std = model.bump_std + _total(model.bump_profile, clock)
    bump = bump_std * _noise(rng, len(phase), model.bump_hours, model.bump_hours)
    free = model.mean + _total(model.shape, clock) + season + level + bump
    return _below(_above(free, model.lowest, model.softness), model.highest, model.softness)


def _renewables(rng: np.random.Generator, phase: Array, model: RenewablesModel) -> Array:
    """Renewables of each hour: [T] angle of the season to [T]."""
    clock = _clock(len(phase))
    season = np.sin(phase)
    up = _logistic((clock - model.sunrise - model.sunrise_season * season) / model.sunrise_width)
    down = _logistic((model.sunset + model.sunset_season * season - clock) / model.sunset_width)
    sun = up * down
    wind = model.wind_std * _noise(rng, len(phase), model.wind_hours)
    cloud = model.cloud_std * _noise(rng, len(phase), model.cloud_hours)
    base = model.base + model.base_shape(clock) + model.base_season * season
    free = base + wind * (1.0 - (1.0 - model.wind_by_day) * sun) + (model.solar + cloud) * sun
    return _above(free, model.lowest, model.softness)


def _clock(hours: int) -> Array:
    """Hour of the clock, 0 to 23, of each hour: [T]."""
    return np.arange(hours, dtype=np.float64) % HOURS_PER_DAY


def _total(harmonics: tuple[Harmonic, ...], clock: Array) -> Array:
    """The sum of the harmonics at these hours of the clock: [T]."""
    return sum((harmonic(clock) for harmonic in harmonics), start=np.zeros_like(clock))


def _noise(rng: np.random.Generator, hours: int, *correlation_hours: float) -> Array:
    """Stationary Gaussian noise [T] of mean 0 and variance 1, white noise through a filter for each time.

    One exponential filter gives an AR(1) process, two an AR(2) process, which is smooth from hour to hour.
    The weights are made to sum to 0, so that the noise returns to its mean and adds no season of its own.
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


def _logistic(x: Array) -> Array:
    """The logistic function, from 0 to 1."""
    return 1.0 / (1.0 + np.exp(-x))


def _above(x: Array, bound: float, softness: float) -> Array:
    """`x` squashed smoothly to values of at least `bound`."""
    return bound + softness * np.logaddexp(0.0, (x - bound) / softness)


def _below(x: Array, bound: float, softness: float) -> Array:
    """`x` squashed smoothly to values of at most `bound`."""
    return bound - softness * np.logaddexp(0.0, (bound - x) / softness)
