"""Generated episodes, calibrated to real series, so that everything runs on a fresh machine.

`synthetic_carbon` imitates the *test* split of the paper's carbon data (1416 windows over two months of Azure
2019 demand and CAISO 2019 renewables, both scaled by the authors), the split of every published number. The
generator knows only the few numbers of `DemandModel` and `RENEWABLES`; no value of the series is in it.

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
Other noise on the authors' series does the same (3.2 % above, standard deviation 3.2 %): theirs is a mild
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
- Noise: the authors drew it independently for each window and hour (their windows do not slide over it); n1 is normal
  with standard deviation 1/15, clipped to [-0.2, 0.2], and n2 is uniform on [0, 0.1]. So it is here.
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
    soft_above,
    soft_below,
)

EFFICIENCY_NOISE_STD = 1.0 / 15.0
"""Standard deviation of n1 before it is clipped, in work per unit of energy."""
EFFICIENCY_NOISE_MAX = 0.2
"""Largest |n1|."""
DROP_RATE_MAX = 0.1
"""Largest n2, a share of the backlog in an hour."""


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


DEMAND = DemandModel()
RENEWABLES = RenewablesModel(
    base=0.935,
    base_shape=Harmonic(0.282, 16.0),
    base_season=0.13,
    solar=2.568,
    sunrise=7.757,
    sunrise_width=0.39,
    sunrise_season=-0.20,
    sunset=16.19,
    sunset_width=0.555,
    sunset_season=0.51,
    wind_std=0.31,
    wind_hours=22.0,
    wind_by_day=0.5,
    cloud_std=0.27,
    cloud_hours=14.0,
    lowest=0.07,
    softness=0.05,
)
"""Parameters of the renewables C_h, in the authors' scaled energy an hour; 0.07 is the split's minimum."""


def synthetic_carbon(seed: int, n: int, horizon: int = 24) -> Episodes:
    """Carbon episodes with the statistics of the authors' test windows (listed at the top of this module).

    As in the authors' data the episodes are windows that slide by one hour over a single series of
    n + horizon - 1 hours, while the noise is drawn for each window separately. Another n gives another series.

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
    rng = checked_generator(seed, n, horizon)
    phase = season_phase(rng, n + horizon - 1)
    demand = _demand(rng, phase, DEMAND)
    renewables = RENEWABLES.draw(rng, phase)
    series = {"demand": demand, "renewables": renewables}
    return sliding_episodes(series, draw_noise(rng, n, horizon), horizon)


def draw_noise(rng: np.random.Generator, n: int, horizon: int) -> dict[str, Array]:
    """What nobody sees before acting: `efficiency_noise` (n1) and `drop_rate` (n2), each [N, H]."""
    efficiency_noise = rng.normal(0.0, EFFICIENCY_NOISE_STD, (n, horizon))
    return {
        "efficiency_noise": efficiency_noise.clip(-EFFICIENCY_NOISE_MAX, EFFICIENCY_NOISE_MAX),
        "drop_rate": rng.uniform(0.0, DROP_RATE_MAX, (n, horizon)),
    }


def _demand(rng: np.random.Generator, phase: Array, model: DemandModel) -> Array:
    """Demand of each hour: [T] angle of the season to [T]."""
    clock = clock_hours(len(phase))
    season = model.season * np.tanh(model.season_steepness * np.sin(phase))
    level = model.level_std * fading_noise(rng, len(phase), model.level_hours, model.level_hours)
    bump_std = model.bump_std + harmonic_sum(model.bump_profile, clock)
    bump = bump_std * fading_noise(rng, len(phase), model.bump_hours, model.bump_hours)
    free = model.mean + harmonic_sum(model.shape, clock) + season + level + bump
    return soft_below(soft_above(free, model.lowest, model.softness), model.highest, model.softness)
