"""`tether data`: look at a file of data, and make episode files from sources."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from tether.core import validate
from tether.core.output import prepare_folder, provenance, write_json
from tether.data.chunks import csv_files
from tether.data.enrich import Forecast
from tether.data.episodes import Episodes
from tether.data.periods import Alignment
from tether.data.readings import MAX_GAP_HOURS
from tether.data.series import HourlySeries, autocorrelation
from tether.data.sources.azure import START, load_azure
from tether.data.sources.caiso import RENEWABLE, ZONE, load_caiso
from tether.data.sources.gpu import load_bloom, load_codecarbon
from tether.data.store import read_episode_file, save_episodes
from tether.systems.carbon.build import build_carbon_episodes, build_carbon_splits
from tether.systems.carbon.reader import FILES, Split, load_carbon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

Kind = Literal["CAISO", "Azure", "CodeCarbon", "BLOOM", "carbon .mat", "episodes"]
app = typer.Typer(name="data", no_args_is_help=True, help="Look at data files and make episodes from them.")

RENEWABLE_SOURCES = ",".join(RENEWABLE)
_UNSHOWN = ("efficiency_noise", "drop_rate", "clock_sin", "clock_cos")
MaxGap = Annotated[float, typer.Option(help="Longest gap, in hours, that is bridged by a straight line.")]
Zone = Annotated[str, typer.Option(help="Time zone of CAISO times without UTC offset.")]
Sources = Annotated[str, typer.Option(help="CAISO columns to sum, separated by commas.")]


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


@app.command()
def describe(
    path: Annotated[Path, typer.Argument(help="A data file, or a folder of the files of one source.")],
    out: Annotated[Path | None, typer.Option(help="Folder for describe.png and results.json.")] = None,
    max_gap_hours: MaxGap = MAX_GAP_HOURS,
    zone: Zone = ZONE,
    sources: Sources = RENEWABLE_SOURCES,
) -> None:
    """Show what a file holds: period, sampling, gaps, level, autocorrelation.

    Recognised are CAISO generation by source (CSV), CPU readings of the Azure
    Public Dataset V2 (CSV, gzip), CodeCarbon's emissions.csv, the BLOOM series,
    a folder with the authors' .mat windows, and episode files (.npz).

    For example:

      tether data describe fuelsource/ --max-gap-hours 6

      tether data describe vm_cpu_readings/ --out out/azure

      tether data describe CAISO-supply-20190310.csv --sources solar,wind

      tether data describe carbon.npz
    """
    kind = recognise(path)
    if kind in ("carbon .mat", "episodes"):
        parts, note = _episode_parts(path, kind)
    else:
        with _progress(path) as progress:
            series = _load(kind, path, max_gap_hours, zone, sources, progress=progress)
            parts = [_series_part(series, zone if kind == "CAISO" else None)]
        note = ""
    console = Console()
    console.print(_table(kind, path, parts), highlight=False)
    if note:
        console.print(f"made by: {note}", highlight=False)
    if out is not None:
        folder = prepare_folder(out)
        _save_figure(describe_figure(parts), folder / "describe.png")
        told = [{"name": part.name, "unit": part.unit, **part.numbers} for part in parts]
        content: dict[str, Any] = {"kind": kind, "path": str(path), "made_by": note, "series": told}
        content["provenance"] = provenance(f"tether data describe {path} --out {out}")
        write_json(folder / "results.json", content)
        console.print(f"saved {folder / 'describe.png'} and {folder / 'results.json'}", highlight=False)


@app.command()
def build(
    demand: Annotated[Path, typer.Option(help="Work that arrives: Azure, CodeCarbon or BLOOM data.")],
    renewables: Annotated[Path, typer.Option(help="Renewable energy: CAISO file or folder.")],
    out: Annotated[Path, typer.Option(help="The episode file to write, .npz.")],
    split: Annotated[
        str, typer.Option(help="Where val and test begin (two dates), or three shares; empty: one set.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    align: Annotated[str, typer.Option(help="overlap, or hour-of-year if the years differ.")] = "overlap",
    demand_start: Annotated[
        str, typer.Option(help="When second 0 of an Azure trace was; with UTC offset it can overlap CAISO.")
    ] = START.isoformat(),
    horizon: Annotated[int, typer.Option(help="Hours of an episode.")] = 24,
    stride: Annotated[int, typer.Option(help="Hours from one window to the next.")] = 1,
    episodes: Annotated[
        int | None, typer.Option(help="Augment to this number (with --split: the train set).")
    ] = None,
    noise: Annotated[float, typer.Option(help="Relative noise of the level of augmented windows.")] = 0.03,
    clock: Annotated[bool, typer.Option("--clock", help="Add clock_sin and clock_cos.")] = False,
    forecast: Annotated[
        str, typer.Option(help="Add day-ahead forecasts: none, perfect, or the relative error 24 h ahead.")
    ] = "none",
    max_gap_hours: MaxGap = MAX_GAP_HOURS,
    zone: Zone = ZONE,
    sources: Sources = RENEWABLE_SOURCES,
) -> None:
    """Make an episode file for tether.envs.Carbon from demand and renewables.

    Both sources are reduced to hours, aligned, scaled into the range of the
    authors' data (demand: mean 3.45, at most 5.9; renewables: mean 2.3) and cut
    into sliding windows; then the noise of each window is drawn. Read the result
    with tether.data.load_episodes(FILE) or load_episodes(FILE, split="train").

    For example:

      tether data build --demand vm_cpu_readings/ --renewables fuelsource/
      --align hour-of-year --out carbon.npz

      tether data build --demand vm_cpu_readings/ --renewables caiso.csv
      --demand-start 2019-03-01T00:00-08:00 --split 2019-03-18,2019-03-23
      --episodes 4000 --clock --forecast 0.1 --seed 7 --out carbon.npz

      tether data build --demand bloom_gpu_power_10min.csv --renewables
      caiso.csv --align hour-of-year --split 0.6,0.2,0.2 --out bloom.npz
    """
    if out.suffix != ".npz":
        raise ValueError(f"--out must end in .npz, got {str(out)!r}")
    validate.choice("--align", align, get_args(Alignment))
    borders = parse_split(split)
    options: dict[str, Any] = {"how": align, "horizon": horizon, "stride": stride, "count": episodes}
    options |= {"noise": noise, "clock": clock, "forecast": parse_forecast(forecast)}
    start = _start(demand_start)
    with _progress(demand, renewables) as progress:
        load = [
            _load(recognise(path), path, max_gap_hours, zone, sources, start, progress)
            for path in (demand, renewables)
        ]
    made = (
        build_carbon_splits(load[0], load[1], seed, borders, **options)
        if borders
        else build_carbon_episodes(load[0], load[1], seed, **options)
    )
    command = f"tether data build --demand {demand} --renewables {renewables} --out {out} --seed {seed}"
    command += f" --align {align} --horizon {horizon} --stride {stride} --forecast {forecast}"
    command += (f" --split {split}" if split else "") + (f" --episodes {episodes}" if episodes else "")
    save_episodes(out, made, provenance=command + (" --clock" if clock else ""))
    console = Console()
    console.print(_table("episodes", out, _episode_parts(out, "episodes")[0]), highlight=False)
    console.print(f"saved {out}", highlight=False)


def recognise(path: Path) -> Kind:
    """Which source a file or folder comes from, judged by its first line."""
    if path.is_dir() and any((path / file).exists() for file in FILES.values()):
        return "carbon .mat"
    file = csv_files(path, ("*.csv", "*.csv.gz"))[0]
    if file.suffix == ".npz":
        return "episodes"
    columns = [name.strip().lower() for name in _first_line(file).split(",")]
    if {"timestamp", "duration", "gpu_power"} <= set(columns):
        return "CodeCarbon"
    if "time" in columns and {"gpu_power_mean_w", "requests"} & set(columns):
        return "BLOOM"
    if {"solar", "wind"} & set(columns):
        return "CAISO"
    if len(columns) == 5 and columns[0].isdecimal():
        return "Azure"
    raise ValueError(
        f"{file}, row 1: not the layout of CAISO (a column Solar), Azure (five columns without header), "
        "CodeCarbon (timestamp, duration, gpu_power) or BLOOM (time, gpu_power_mean_w or requests)"
    )


def parse_split(text: str) -> tuple[date, date] | list[float] | None:
    """Two dates or three shares, separated by commas; None for an empty text.

    Example:
        >>> parse_split("0.6,0.2,0.2"), parse_split("2019-07-01,2019-09-01")
        ([0.6, 0.2, 0.2], (datetime.date(2019, 7, 1), datetime.date(2019, 9, 1)))
    """
    if not text:
        return None
    pieces = [piece.strip() for piece in text.split(",")]
    try:
        if len(pieces) == 2:
            return date.fromisoformat(pieces[0]), date.fromisoformat(pieces[1])
        if len(pieces) == 3:
            return [float(piece) for piece in pieces]
    except ValueError:
        pass
    expected = "two dates (2019-07-01,2019-09-01) or three shares (0.6,0.2,0.2)"
    raise ValueError(f"--split must be {expected}, got {text!r}")


def parse_forecast(text: str) -> Forecast | None:
    """`none`, `perfect` or the relative error 24 hours ahead."""
    if text in ("none", "perfect"):
        return None if text == "none" else Forecast()
    try:
        return Forecast(error=float(text))
    except ValueError:
        raise ValueError(f"--forecast must be none, perfect or an error such as 0.1, got {text!r}") from None


def _start(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        expected = "a time such as 2019-03-01T00:00+00:00"
        raise ValueError(f"--demand-start must be {expected}, got {text!r}") from None


def _first_line(file: Path) -> str:
    with file.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(file) if packed else file.open("rb") as stream:
            return stream.readline(100_000).decode("utf-8-sig", "replace").strip()
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{file} is not a complete gzip file: {error}") from None


def _load(
    kind: Kind,
    path: Path,
    max_gap_hours: float,
    zone: str,
    sources: str,
    start: datetime = START,
    progress: Callable[[Path], None] | None = None,
) -> HourlySeries:
    match kind:
        case "CAISO":
            names = [name.strip() for name in sources.split(",") if name.strip()]
            return load_caiso(path, sources=names, max_gap_hours=max_gap_hours, zone=zone, progress=progress)
        case "Azure":
            return load_azure(path, start=start, max_gap_hours=max_gap_hours, progress=progress)
        case "CodeCarbon":
            return load_codecarbon(path, max_gap_hours=max_gap_hours)
        case "BLOOM":
            return load_bloom(path, max_gap_hours=max_gap_hours)
        case _:
            raise ValueError(f"{path} holds episodes, not a series that episodes can be made of")


@contextmanager
def _progress(*paths: Path) -> Iterator[Callable[[Path], None]]:
    """A bar over the files of all paths, shown if there are several; it disappears at the end."""
    from rich.progress import Progress

    count = sum(len(csv_files(path, ("*.csv", "*.csv.gz"))) for path in paths)
    with Progress(console=Console(stderr=True), transient=True, disable=count < 3) as bar:
        task = bar.add_task("reading", total=count)
        yield lambda file: bar.update(task, advance=1, description=file.name)


# What is told.


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


def _episode_parts(path: Path, kind: Kind) -> tuple[list[Part], str]:
    if kind == "episodes":
        content = read_episode_file(path)
        splits, note = content.splits, content.provenance
    else:
        splits, note = {split: load_carbon(path, split) for split in get_args(Split)}, ""
    parts = [
        _episode_part(split or "episodes", episodes, name)
        for split, episodes in splits.items()
        for name in episodes.names
        if episodes[name].ndim == 2
    ]
    return parts, note


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
    return Part(name, "", values, clock, axis, "", drawn, numbers)


def _table(kind: Kind, path: Path, parts: list[Part]) -> Table:
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
    """For up to six series, noise and clock left out: the series, and its daily profile with its spread."""
    from tether.core import drawing

    shown = [part for part in parts if part.name not in _UNSHOWN][:6] or parts[:1]
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


def _save_figure(figure: Figure, path: Path) -> None:
    from tether.core import drawing

    drawing.save(figure, path)
