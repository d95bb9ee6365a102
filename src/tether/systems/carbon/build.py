"""Episodes of the carbon system from hourly series of demand and renewables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tether.data.episodes import Episodes
from tether.data.periods import SPLITS, Alignment, Borders, align, split
from tether.data.series import HourlySeries
from tether.data.windows import cut_windows
from tether.systems.carbon.synthetic import draw_noise

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


def _common(
    demand: HourlySeries, renewables: HourlySeries, how: Alignment, scale: bool
) -> tuple[HourlySeries, HourlySeries]:
    """Both over the hours that they have in common, and then scaled if wanted."""
    first, second = align(replace(demand, name="demand"), replace(renewables, name="renewables"), how=how)
    return scale_carbon(first, second) if scale else (first, second)


def build_carbon_episodes(
    demand: HourlySeries,
    renewables: HourlySeries,
    seed: int,
    *,
    scale: bool = True,
    how: Alignment = "overlap",
    **windows: Any,
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
        **windows: How windows are cut: `horizon`, `stride`, `count`, `noise`, `clock`, `forecast` and `zone` of
            `tether.data.windows.cut_windows`.

    Example:
        >>> from datetime import datetime
        >>> hours = np.arange(240)
        >>> demand = HourlySeries(datetime(2019, 1, 1), 2.0 + np.sin(hours / 4.0), name="demand")
        >>> sun = HourlySeries(datetime(2019, 1, 1), np.maximum(np.sin(hours / 4.0), 0.0), name="renewables")
        >>> build_carbon_episodes(demand, sun, seed=0, clock=True)
        Episodes(217 of 24 rounds: demand, renewables, clock_sin, clock_cos, efficiency_noise, drop_rate)
    """
    demand, renewables = _common(demand, renewables, how, scale)
    random = np.random.default_rng(seed)
    limits = {"demand": (0.0, float(demand.values.max())), "renewables": (0.0, np.inf)}
    episodes = cut_windows((demand, renewables), random, limits=limits, **windows)
    series = {name: episodes[name] for name in episodes.names}
    return Episodes(
        series | draw_noise(random, len(episodes), episodes.horizon), start_hours=episodes.start_hours
    )


def build_carbon_splits(
    demand: HourlySeries,
    renewables: HourlySeries,
    seed: int,
    borders: Borders,
    *,
    scale: bool = True,
    how: Alignment = "overlap",
    count: int | None = None,
    **windows: Any,
) -> dict[str, Episodes]:
    """Episodes for `tether.envs.Carbon` in `train`, `val` and `test`; no window crosses a border.

    The series are aligned and scaled as a whole, then cut. The noise of each part is drawn separately.

    Args:
        demand: See `build_carbon_episodes`.
        renewables: See there.
        seed: See there.
        borders: The days on which `val` and `test` begin, or three shares that sum to 1.
        scale: See there.
        how: See there.
        count: Augment `train` to this number of episodes; `val` and `test` stay as they are.
        **windows: See there.
    """
    demand, renewables = _common(demand, renewables, how, scale)
    parts = [split(series, borders) for series in (demand, renewables)]
    seeds = np.random.SeedSequence(seed).generate_state(len(SPLITS))
    episodes = {}
    for name, part_seed in zip(SPLITS, seeds, strict=True):
        windows["count"] = count if name == "train" else None
        pair = [part[name] for part in parts]
        try:
            episodes[name] = build_carbon_episodes(pair[0], pair[1], int(part_seed), scale=False, **windows)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return episodes
