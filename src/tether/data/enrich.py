"""What is added to episodes: the clock, forecasts, and more episodes of the same kind."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tether.core import validate
from tether.data.episodes import Episodes
from tether.data.series import HourlySeries


@dataclass(frozen=True)
class Forecast:
    """A forecast of the next `hours` hours, issued in every round.

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
    """The episodes with a perfect forecast `x_forecast` [N, H, L, ...] of each named series x, to its end.

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


def add_history(episodes: Episodes, *names: str, hours: int = 3) -> Episodes:
    """The episodes with what was seen before of each named series x, `x_history` [N, H, L, ...].

    Entry [n, h, k-1] is the value k rounds before h; before the first round it is that of the first.

    Args:
        episodes: N of H rounds.
        names: Series [N, H] or [N, H, n].
        hours: Rounds L.

    Example:
        >>> added = add_history(Episodes({"demand": np.array([[1.0, 2.0, 3.0]])}), "demand", hours=2)
        >>> added["demand_history"][0].tolist()
        [[1.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
    """
    validate.count("hours", hours)
    before = np.maximum(np.arange(episodes.horizon)[:, None] - np.arange(1, hours + 1), 0)
    series = {name: episodes[name] for name in episodes.names}
    series |= {f"{name}_history": episodes[name][:, before] for name in names}
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
    in which every series is multiplied by a factor 1 + noise * z, z standard normal cut at +-3. A
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
