"""Generated episodes of AI inference: the demand of a language model's GPUs, and renewables.

Demand imitates the GPU power of the BLOOM service over 19 days (readings of ten minutes, averaged over each
of 455 full hours), multiplied so that its mean is 3.5, close to that of the paper's carbon demand. Renewables
imitate the *training* split of the paper's carbon data (CAISO 2019, scaled by the authors). The generator
knows only the few numbers of `GpuDemandModel` and `RENEWABLES`; no value of the series is in it.

What it was calibrated to, and what it gives. Autocorrelations are about the overall mean; "here" is the mean,
and the standard deviation between seeds, over seeds 1000 to 1199 with n = 1440:

    =============================  ========  ===============  ==========  ===============
    statistic                      BLOOM     here             training    here
                                   (demand)                   renewables
    =============================  ========  ===============  ==========  ===============
    mean                             3.5000   3.500 +- 0.007      2.4788   2.473 +- 0.015
    standard deviation               0.4846   0.483 +- 0.017      1.4192   1.417 +- 0.016
    autocorrelation over 1 hour      0.5347   0.533 +- 0.027      0.9473   0.946 +- 0.001
    autocorrelation over 24 hours    0.0197   0.026 +- 0.038      0.9538   0.929 +- 0.009
    =============================  ========  ===============  ==========  ===============

So all are met within 5 % on average, except demand's autocorrelation over 24 hours, which is met within 0.05:
in 455 hours of this generator it is 0.02 +- 0.07, so that the 0.02 of the real series says only that there is
hardly any daily cycle. No seed and no order of the draws was chosen for its result.

How each part was found:

- Demand: GPUs draw power when idle, and bursts of requests add to it. Above 1250 W, the power of the real
  series is log-normal (its logarithm has skewness 0.2 and kurtosis 3.1). The logarithm has one daily harmonic
  that is above its sampling error, and what is left is an AR(1) process. Median, spread and correlation time
  are such that mean, standard deviation and autocorrelation over 1 hour of a long series are met; the
  percentiles 1, 5, 25, 50, 75 and 99 then are within 2 %, the 95th is 5 % lower.
- Renewables: the model of `tether.data.synthetic_carbon` with other numbers, found by least squares to the mean and
  the standard deviation of each hour of the clock, the autocorrelations and the overall mean and spread of
  the split. The wind, the clouds' correlation time and the seasonal amplitude of the base were held at round
  values, as the split (one winter and spring) hardly tells them from the season. A soft upper bound stands
  for installed capacity.
- Rates: v_a uniform on [0.7, 1] and v_e on [0.8, 1], as in the paper, drawn independently for each window and hour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tether.data.episodes import Episodes
from tether.data.synthesis import (
    Array,
    Harmonic,
    RenewablesModel,
    checked_generator,
    clock_hours,
    fading_noise,
    harmonic_sum,
    season_phase,
    sliding_episodes,
    soft_below,
)

DISCHARGE_RATE_MIN = 0.7
"""Smallest v_a; the largest is 1."""
CHARGE_RATE_MIN = 0.8
"""Smallest v_e; the largest is 1."""


@dataclass(frozen=True)
class GpuDemandModel:
    """Parameters of the demand mu_h, in scaled energy an hour (1 is 475 W) if no unit is given."""

    idle: float = 2.63
    """What GPUs take without requests; 1250 W."""
    load: float = 0.758
    """Median of what requests add."""
    shape: tuple[Harmonic, ...] = (Harmonic(0.16, 16.1),)
    """Daily shape of the logarithm of the load: a little more in the afternoon."""
    load_std: float = 0.516
    """Departure of the logarithm of the load from its shape: standard deviation ..."""
    load_hours: float = 1.7
    """... and correlation time in hours."""
    highest: float = 6.0
    """Soft upper bound, for which the constants of `tether.envs.Inference` hold; the maximum is 5.39."""
    softness: float = 0.15
    """How near the bound the squashing begins."""


DEMAND = GpuDemandModel()
RENEWABLES = RenewablesModel(
    base=1.42,
    base_shape=Harmonic(0.28, 16.8),
    base_season=0.62,
    solar=2.57,
    sunrise=7.06,
    sunrise_width=0.47,
    sunrise_season=-0.92,
    sunset=16.89,
    sunset_width=0.52,
    sunset_season=1.85,
    wind_std=0.25,
    wind_hours=22.0,
    wind_by_day=0.5,
    cloud_std=0.55,
    cloud_hours=14.0,
    lowest=0.3,
    softness=0.05,
)
"""Parameters of the renewables e_h; the training split's minimum is 0.3."""
RENEWABLES_HIGHEST = 5.8
"""Soft upper bound of the renewables, the installed capacity; the training split's maximum is 5.55."""
RENEWABLES_SOFTNESS = 0.2
"""How near that bound the squashing begins."""


def synthetic_inference(seed: int, n: int, horizon: int = 24) -> Episodes:
    """Inference episodes with the statistics of real GPU power and renewables (listed above).

    The episodes are windows that slide by one hour over a single series of n + horizon - 1 hours, while the
    charging and discharging rates are drawn for each window separately. Another n gives another series.

    Args:
        seed: At least 0; the same seed, n and horizon give the same episodes.
        n: Number of windows, at least 1. The paper trains on 2160 and tests on 1440.
        horizon: Hours in a window, at least 1.

    Returns:
        Episodes for `tether.envs.Inference`; window i starts at hour i mod 24 of the clock.

    Example:
        >>> episodes = synthetic_inference(seed=0, n=48)
        >>> episodes
        Episodes(48 of 24 rounds: demand, renewables, discharge_rate, charge_rate)
        >>> bool(np.all(episodes["demand"][1:, :-1] == episodes["demand"][:-1, 1:]))  # they slide
        True
    """
    rng = checked_generator(seed, n, horizon)
    phase = season_phase(rng, n + horizon - 1)
    demand = _gpu_demand(rng, len(phase), DEMAND)
    renewables = soft_below(RENEWABLES.draw(rng, phase), RENEWABLES_HIGHEST, RENEWABLES_SOFTNESS)
    drawn = {
        "discharge_rate": rng.uniform(DISCHARGE_RATE_MIN, 1.0, (n, horizon)),
        "charge_rate": rng.uniform(CHARGE_RATE_MIN, 1.0, (n, horizon)),
    }
    return sliding_episodes({"demand": demand, "renewables": renewables}, drawn, horizon)


def _gpu_demand(rng: np.random.Generator, hours: int, model: GpuDemandModel) -> Array:
    """Demand of each hour: [T]."""
    departure = model.load_std * fading_noise(rng, hours, model.load_hours)
    load = model.load * np.exp(harmonic_sum(model.shape, clock_hours(hours)) + departure)
    return soft_below(model.idle + load, model.highest, model.softness)
