"""How close the synthetic carbon data is to the authors': the same statistics of both, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.core import drawing
from tether.data.episodes import Episodes
from tether.learn.plant import load_plant
from tether.simulate.rollout import rollout
from tether.systems.carbon import Carbon, system
from tether.systems.carbon.synthetic import synthetic_carbon

SERIES = ("demand", "renewables")


def real_windows(data: Path) -> Episodes:
    """The test windows of a folder with the authors' carbon data, or the episodes of a file (.npz) to test on."""
    return load_plant(system, data, 1, 0, held_out=False).test


def hourly(windows: Any) -> Any:
    """The hourly series [T] over which windows [N, H] slide."""
    if not np.array_equal(windows[1:, :-1], windows[:-1, 1:]):
        raise ValueError(
            "the windows must slide by one hour, so that they can be joined again; these do not "
            "(`tether data build --stride 1`, without --episodes)"
        )
    return np.concatenate([windows[:, 0], windows[-1, 1:]])


def autocorrelation(series: Any, lag: int) -> float:
    """Autocorrelation of a series [T] about its mean."""
    centred = series - series.mean()
    return float(np.mean(centred[lag:] * centred[:-lag]) / np.mean(centred**2))


def statistics(episodes: Episodes) -> dict[str, float]:
    """Level, spread and memory of both series, and what the prior earns and costs on them."""
    found = {}
    for name in SERIES:
        series = hourly(episodes[name])
        found[f"{name} mean"] = float(series.mean())
        found[f"{name} std"] = float(series.std())
        found[f"{name} lag 1"] = autocorrelation(series, 1)
        found[f"{name} lag 24"] = autocorrelation(series, 24)
    env = Carbon()
    prior = rollout(env, env.prior, episodes, record="outcomes")
    found["prior mean reward"] = float(prior.returns.mean())
    found["prior mean cost"] = float(prior.total_costs.mean())
    found["prior worst cost"] = float(prior.total_costs.max())
    return found


@dataclass(frozen=True)
class Calibration:
    """Real and synthetic episodes compared."""

    real: dict[str, float]
    synthetic: list[dict[str, float]]
    """One for each seed."""
    seeds: list[int]
    figure: Figure

    def off(self, name: str) -> list[float]:
        """Relative difference to the real data, one for each seed."""
        return [found[name] / self.real[name] - 1.0 for found in self.synthetic]

    def table(self) -> Table:
        """The comparison for people."""
        table = Table(
            title="Synthetic carbon data beside the authors'", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        table.caption = (
            f"seeds {self.seeds[0]} to {self.seeds[-1]}; off: how far the seeds' mean is from real; "
            "within 5 %: how many seeds"
        )
        table.add_column("statistic", no_wrap=True)
        for name in ("real", "synthetic", "lowest", "highest", "off", "within 5 %"):
            table.add_column(name, justify="right", no_wrap=True)
        for name, real in self.real.items():
            values, off = [found[name] for found in self.synthetic], self.off(name)
            near = sum(abs(each) <= 0.05 for each in off)
            table.add_row(
                name,
                *(f"{number:.4g}" for number in (real, np.mean(values), min(values), max(values))),
                f"[{'green' if abs(np.mean(off)) <= 0.05 else 'red'}]{np.mean(off):+.1%}",
                f"{near} of {len(off)}",
            )
        return table


def calibrate(real: Episodes, seeds: list[int]) -> Calibration:
    """Compare `real` with as many synthetic episodes for each seed."""
    drawn = [synthetic_carbon(seed, len(real), real.horizon) for seed in seeds]
    return Calibration(statistics(real), [statistics(each) for each in drawn], seeds, _figure(real, drawn[0]))


@drawing.styled
def _figure(real: Episodes, synthetic: Episodes) -> Figure:
    figure, axes = drawing.new_figure(9.5, 5.0, columns=2, rows=2, width_ratios=[2.4, 1.0])
    for row, name in enumerate(SERIES):
        days, profile = axes[row]
        for episodes, color, label in (
            (real, drawing.GREY, "authors'"),
            (synthetic, drawing.BLUE, "synthetic"),
        ):
            series = hourly(episodes[name])
            days.plot(
                np.arange(min(len(series), 14 * 24)) / 24.0, series[: 14 * 24], color=color, label=label
            )
            by_hour = series[: len(series) // 24 * 24].reshape(-1, 24)
            low, middle, high = np.quantile(by_hour, [0.05, 0.5, 0.95], axis=0)
            profile.fill_between(range(24), low, high, color=color, alpha=0.2, linewidth=0)
            profile.plot(range(24), middle, color=color)
        days.set_ylabel(name)
        days.set_xlabel("day")
        profile.set_xlabel("hour of the clock")
    axes[0, 0].set_title("The first fourteen days", loc="left")
    axes[0, 1].set_title("Median day, middle 90 %", loc="left")
    axes[0, 0].legend(loc="upper right", ncols=2)
    return figure
