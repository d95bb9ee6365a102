"""The command `tether data build`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from tether.cli import data_sources, shell
from tether.cli.data_describe import episode_parts, parts_table
from tether.core import validate
from tether.data.enrich import Forecast
from tether.data.periods import Alignment, Borders
from tether.data.readings import MAX_GAP_HOURS
from tether.data.series import HourlySeries
from tether.data.sources.azure import START
from tether.data.sources.caiso import ZONE
from tether.data.store import read_episode_file, save_episodes
from tether.systems import registry
from tether.systems.system import Builder


@dataclass(frozen=True)
class Options:
    """What `tether data build` can be asked for."""

    system: shell.SystemName
    series: Annotated[
        list[str],
        typer.Option(
            help="NAME=PATH for each series that the system needs: Azure, CAISO, CodeCarbon or BLOOM data."
        ),
    ]
    out: Annotated[Path, typer.Option(help="The episode file to write, .npz.")]
    split: Annotated[
        str, typer.Option(help="Where val and test begin (two dates), or three shares; empty: one set.")
    ] = ""
    seed: Annotated[int, shell.seed_option("Of everything that is drawn.")] = 0
    align: Annotated[str, typer.Option(help="overlap, or hour-of-year if the years differ.")] = "overlap"
    azure_start: Annotated[
        str, typer.Option(help="When second 0 of an Azure trace was; with UTC offset it can overlap CAISO.")
    ] = START.isoformat()
    horizon: Annotated[int, typer.Option(help="Hours of an episode.")] = 24
    stride: Annotated[int, typer.Option(help="Hours from one window to the next.")] = 1
    episodes: Annotated[
        int | None, typer.Option(help="Augment to this number (with --split: the train set).")
    ] = None
    noise: Annotated[float, typer.Option(help="Relative noise of the level of augmented windows.")] = 0.03
    clock: Annotated[bool, typer.Option("--clock", help="Add clock_sin and clock_cos.")] = False
    forecast: Annotated[
        str, typer.Option(help="Add day-ahead forecasts: none, perfect, or the relative error 24 h ahead.")
    ] = "none"
    max_gap_hours: data_sources.MaxGap = MAX_GAP_HOURS
    zone: data_sources.Zone = ZONE
    sources: data_sources.Sources = data_sources.RENEWABLE_SOURCES

    def windows(self) -> dict[str, Any]:
        """How episodes are aligned and cut, as builders take it."""
        validate.choice("--align", self.align, get_args(Alignment))
        return {
            "how": self.align,
            "horizon": self.horizon,
            "stride": self.stride,
            "count": self.episodes,
            "noise": self.noise,
            "clock": self.clock,
            "forecast": parse_forecast(self.forecast),
        }


def build(options: Options) -> None:
    """Make an episode file for a system from hourly series.

    Each source is reduced to hours; the series are aligned, scaled as the system
    asks and cut into sliding windows; then what is random in each window is
    drawn. Read the result with tether.data.load_episodes(FILE) or
    load_episodes(FILE, split="train").

    For example:

      tether data build carbon --series demand=vm_cpu_readings/ --series
      renewables=fuelsource/ --align hour-of-year --out carbon.npz

      tether data build carbon --series demand=vm_cpu_readings/ --series
      renewables=caiso.csv --azure-start 2019-03-01T00:00-08:00 --split
      2019-03-18,2019-03-23 --episodes 4000 --clock --forecast 0.1 --seed 7
      --out carbon.npz

      tether data build carbon --series demand=bloom_gpu_power_10min.csv
      --series renewables=caiso.csv --align hour-of-year --split 0.6,0.2,0.2
      --out bloom.npz
    """
    out = options.out
    if out.suffix != ".npz":
        raise ValueError(f"--out must end in .npz, got {str(out)!r}")
    builder: Builder = registry.find(options.system).part("builder", "tether data build")
    windows, borders = options.windows(), parse_split(options.split)
    series = _load(parse_series(options.series, builder), options)
    made = (
        builder.build_splits(series, options.seed, borders, **windows)
        if borders
        else builder.build(series, options.seed, **windows)
    )
    save_episodes(out, made, provenance=shell.typed())
    parts = episode_parts(read_episode_file(out).splits)
    shell.console.print(parts_table("episodes", out, parts), highlight=False)
    shell.console.print(builder.help, highlight=False)
    shell.console.print(f"saved {out}", highlight=False)


def _load(paths: dict[str, Path], options: Options) -> dict[str, HourlySeries]:
    """The hourly series in the files or folders of these names."""
    start = _start(options.azure_start)
    limits = options.max_gap_hours, options.zone, options.sources, start
    with data_sources.reading(*paths.values()) as progress:
        return {
            name: data_sources.load(data_sources.recognise(path), path, *limits, progress)
            for name, path in paths.items()
        }


def parse_series(texts: list[str], builder: Builder) -> dict[str, Path]:
    """The path of each series that a builder needs, in its order, from NAME=PATH."""
    given = dict(text.partition("=")[::2] for text in texts)
    if sorted(given) != sorted(builder.series) or len(given) < len(texts) or not all(given.values()):
        needed = ", ".join(f"{name}=PATH ({what})" for name, what in builder.series.items())
        raise ValueError(f"--series must be given once for each of {needed}; got {' '.join(texts)}")
    return {name: Path(given[name]) for name in builder.series}


def parse_split(text: str) -> Borders | None:
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
        raise ValueError(f"--azure-start must be {expected}, got {text!r}") from None
