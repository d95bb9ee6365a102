"""The command `tether data describe`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from tether.cli import data_sources, shell
from tether.core import output
from tether.data.episodes import Episodes
from tether.data.readings import MAX_GAP_HOURS
from tether.data.series import HourlySeries, autocorrelation
from tether.data.sources.caiso import ZONE
from tether.data.store import read_episode_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Options:
    """What `tether data describe` can be asked for."""

    path: Annotated[Path, typer.Argument(help="A data file, or a folder of the files of one source.")]
    out: Annotated[Path | None, shell.out_option("describe.png and results.json")] = None
    max_gap_hours: data_sources.MaxGap = MAX_GAP_HOURS
    zone: data_sources.Zone = ZONE
    sources: data_sources.Sources = data_sources.RENEWABLE_SOURCES


def describe(options: Options) -> None:
    """Show what a file holds: period, sampling, gaps, level, autocorrelation.

    Recognised are CAISO generation by source (CSV), CPU readings of the Azure
    Public Dataset V2 (CSV, gzip), CodeCarbon's emissions.csv, the BLOOM series,
    the data folders that installed systems know, such as the authors' .mat
    windows, and episode files (.npz).

    For example:

      tether data describe fuelsource/ --max-gap-hours 6

      tether data describe vm_cpu_readings/ --out out/azure

      tether data describe CAISO-supply-20190310.csv --sources solar,wind

      tether data describe carbon.npz
    """
    path = options.path
    kind, parts, note = _look_at(options)
    shell.console.print(parts_table(kind, path, parts), highlight=False)
    if note:
        shell.console.print(f"made by: {note}", highlight=False)
    if options.out is not None:
        from tether.core import drawing

        folder = output.prepare_folder(options.out)
        drawing.save(describe_figure(parts), folder / "describe.png")
        told = [{"name": part.name, "unit": part.unit, **part.numbers} for part in parts]
        results = {"kind": kind, "path": str(path), "made_by": note, "series": told}
        shell.finish(folder, results, ["describe.png"])


def _look_at(options: Options) -> tuple[str, list[Part], str]:
    """What kind of data a file or folder holds, its series, and how it was made as far as it says so."""
    path = options.path
    system = data_sources.system_of(path)
    if system and system.reader:
        train, test, validation = system.reader.read(path, 0)
        sets = {"train": train} | ({"val": validation} if validation else {}) | {"test": test}
        return f"{system.name} data", episode_parts(sets), ""
    kind = data_sources.recognise(path)
    if kind == "episodes":
        content = read_episode_file(path)
        return kind, episode_parts(content.splits), content.provenance
    zone = options.zone
    with data_sources.reading(path) as progress:
        series = data_sources.load(
            kind, path, options.max_gap_hours, zone, options.sources, progress=progress
        )
    return kind, [_series_part(series, zone if kind == "CAISO" else None)], ""


@dataclass(frozen=True)
class Part:
    """One series of a file, ready to be described."""

    name: str
    unit: str
    values: NDArray[np.float64]
    """[T]."""
    hours: NDArray[np.int64]
    """[T] hour of the clock."""
    axis: str
    """What the axis of time of its figure is called."""
    clock: str
    """What is said about the clock there."""
    drawn: int
    """How many values are drawn hour by hour."""
    numbers: dict[str, Any]
    """What is told about it."""
    slides: bool = True
    """Whether it is one series, seen whole or through windows that slide by an hour."""


def _series_part(series: HourlySeries, zone: str | None) -> Part:
    intake = series.intake
    numbers: dict[str, Any] = {"hours": len(series)}
    if intake is not None:
        numbers = {"rows": intake.rows, "hours": len(series)}
    numbers |= {"from": series.start.isoformat(), "to": series.end.isoformat()}
    if intake is not None:
        numbers |= {"sampling_minutes": intake.sampling_minutes, "gaps_bridged": intake.gaps}
        numbers |= {"longest_gap_hours": intake.longest_gap_hours, "negative_values_clipped": intake.clipped}
    numbers |= _statistics(series.values)
    axis = f"days since {series.start:%Y-%m-%d %H:%M}" + (" UTC" if series.start.tzinfo else "")
    clock = f" ({zone.split('/')[-1].replace('_', ' ')})" if zone else " (UTC)" if series.start.tzinfo else ""
    hours = series.clock_hours(zone)
    return Part(series.name, series.unit, series.values, hours, axis, clock, len(series), numbers)


def _statistics(values: NDArray[np.float64]) -> dict[str, float | None]:
    numbers = {"mean": values.mean(), "spread": values.std(), "min": values.min(), "max": values.max()}
    numbers |= {f"lag_{lag}": autocorrelation(values, lag) for lag in (1, 24)}
    return {name: float(number) if math.isfinite(number) else None for name, number in numbers.items()}


def episode_parts(splits: Mapping[str, Episodes]) -> list[Part]:
    """Each series of every set of episodes."""
    return [
        _episode_part(split or "episodes", episodes, name)
        for split, episodes in splits.items()
        for name in episodes.names
        if episodes[name].ndim == 2
    ]


def _episode_part(split: str, episodes: Episodes, name: str) -> Part:
    """Windows that slide by one hour are joined again; others are put end to end."""
    windows: NDArray[np.float64] = episodes[name]
    starts = np.zeros(len(episodes), dtype=np.int64) if episodes.start_hours is None else episodes.start_hours
    hours = (starts[:, None] + np.arange(episodes.horizon)) % 24
    sliding = len(windows) > 1 and bool(np.array_equal(windows[1:, :-1], windows[:-1, 1:]))
    values = np.concatenate([windows[:, 0], windows[-1, 1:]]) if sliding else windows.ravel()
    clock = np.concatenate([hours[:, 0], hours[-1, 1:]]) if sliding else hours.ravel()
    axis = "days: windows that slide by an hour, joined" if sliding else "days: up to 60 episodes, end to end"
    numbers: dict[str, Any] = {"set": split, "episodes": len(episodes), "rounds": episodes.horizon}
    numbers |= _statistics(windows.ravel()) | {"lag_1": None, "lag_24": None}
    if sliding:
        numbers |= {lag: _statistics(values)[lag] for lag in ("lag_1", "lag_24")}
    drawn = values.size if sliding else 60 * episodes.horizon
    return Part(name, "", values, clock, axis, "", drawn, numbers, sliding)


def parts_table(kind: str, path: Path, parts: list[Part]) -> Table:
    """A row for each quantity of a series; a row for each series of episodes."""
    title = f"{path.name}: {kind}"
    if len(parts) == 1 and "from" in parts[0].numbers:
        table = Table("", parts[0].name, title=title)
        for name, number in parts[0].numbers.items():
            unit = f" ({parts[0].unit})" if name in ("mean", "spread", "min", "max") and parts[0].unit else ""
            table.add_row(f"{_words(name)}{unit}", _text(number))
        return table
    return _episode_table(title, parts)


def _episode_table(title: str, parts: list[Part]) -> Table:
    """A section for each set of episodes."""
    table = Table(title=title)
    table.add_column("series", no_wrap=True)
    names = [name for name in parts[0].numbers if name not in ("set", "episodes", "rounds")]
    for name in names:
        table.add_column(_words(name), justify="right")
    last = None
    for part in parts:
        if part.numbers["set"] != last:
            last = part.numbers["set"]
            table.add_section()
            table.add_row(f"[bold]{last}: {part.numbers['episodes']} of {part.numbers['rounds']} h")
        numbers = [part.numbers[name] for name in names]
        table.add_row(part.name, *("-" if number is None else f"{number:.3f}" for number in numbers))
    return table


def _words(name: str) -> str:
    return name.replace("lag_", "lag-").replace("_", " ")


def _text(number: Any) -> str:
    if number is None:
        return "-"
    if isinstance(number, float):
        return f"{number:.3g}" if abs(number) < 1e3 else f"{number:.0f}"
    return str(number)


def describe_figure(parts: list[Part]) -> Figure:
    """For up to six series: the series, and its daily profile with its spread.

    What is drawn for each window by itself is left out where other series slide with the windows, and so is the clock.
    """
    from tether.core import drawing

    sliding = [part for part in parts if part.slides]
    shown = [part for part in sliding or parts if not part.name.startswith("clock_")][:6] or parts[:1]
    height = 0.5 + 2.1 * len(shown)
    figure, axes = drawing.new_figure(9.0, height, columns=2, rows=len(shown), width_ratios=[2.2, 1.0])
    for part, (left, right) in zip(shown, axes, strict=True):
        _draw_series(left, part)
        _draw_day(right, part)
    axes[0, 0].set_title(shown[0].name if len(shown) == 1 else "hour by hour", loc="left")
    axes[0, 1].set_title("median, middle 90 %", loc="left")
    return figure


def _draw_series(axis: Any, part: Part) -> None:
    """Hour by hour; of a long series the hours are pale and the mean of each day is drawn over them."""
    from tether.core import drawing

    values = part.values[: part.drawn]
    long = values.size > 24 * 120
    times = np.arange(values.size) / 24.0
    axis.plot(times, values, color=drawing.BLUE, linewidth=0.5 if long else 0.8, alpha=0.35 if long else 1.0)
    if long:
        days = values[: values.size // 24 * 24].reshape(-1, 24).mean(axis=1)
        axis.plot(
            np.arange(days.size) + 0.5, days, color=drawing.ORANGE, linewidth=1.2, label="mean of the day"
        )
        axis.legend(loc="upper right")
    axis.set_ylabel(part.unit or f"{part.numbers['set']}: {part.name}")
    axis.set_xlabel(part.axis)
    axis.margins(x=0.0)


def _draw_day(axis: Any, part: Part) -> None:
    """The profile of a day."""
    from tether.core import drawing

    hours = [hour for hour in range(24) if np.any(part.hours == hour)]
    quantiles = [np.quantile(part.values[part.hours == hour], [0.05, 0.5, 0.95]) for hour in hours]
    low, middle, high = np.array(quantiles).T
    axis.fill_between(hours, low, high, color=drawing.BLUE, alpha=0.2, linewidth=0)
    axis.plot(hours, middle, color=drawing.BLUE)
    axis.set_xlim(0, 23)
    axis.set_xticks(range(0, 24, 3))
    axis.set_xlabel(f"hour of the day{part.clock}")
