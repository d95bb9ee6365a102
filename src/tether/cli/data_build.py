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
from tether.data.series import (
    MAX_GAP_HOURS,
    Alignment,
    Forecast,
    build_carbon_episodes,
    build_carbon_splits,
)
from tether.data.sources.azure import START
from tether.data.sources.caiso import ZONE
from tether.data.store import save_episodes


@dataclass(frozen=True)
class Options:
    """What `tether data build` can be asked for."""

    demand: Annotated[Path, typer.Option(help="Work that arrives: Azure, CodeCarbon or BLOOM data.")]
    renewables: Annotated[Path, typer.Option(help="Renewable energy: CAISO file or folder.")]
    out: Annotated[Path, typer.Option(help="The episode file to write, .npz.")]
    split: Annotated[
        str, typer.Option(help="Where val and test begin (two dates), or three shares; empty: one set.")
    ] = ""
    seed: Annotated[int, shell.seed_option("Of everything that is drawn.")] = 0
    align: Annotated[str, typer.Option(help="overlap, or hour-of-year if the years differ.")] = "overlap"
    demand_start: Annotated[
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


def build(options: Options) -> None:
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
    out = options.out
    if out.suffix != ".npz":
        raise ValueError(f"--out must end in .npz, got {str(out)!r}")
    validate.choice("--align", options.align, get_args(Alignment))
    borders = parse_split(options.split)
    chosen: dict[str, Any] = {
        "how": options.align,
        "horizon": options.horizon,
        "stride": options.stride,
        "count": options.episodes,
        "noise": options.noise,
        "clock": options.clock,
        "forecast": parse_forecast(options.forecast),
    }
    start = _start(options.demand_start)
    with data_sources.reading(options.demand, options.renewables) as progress:
        load, generation = (
            data_sources.load(
                data_sources.recognise(path),
                path,
                options.max_gap_hours,
                options.zone,
                options.sources,
                start,
                progress,
            )
            for path in (options.demand, options.renewables)
        )
    made = (
        build_carbon_splits(load, generation, options.seed, borders, **chosen)
        if borders
        else build_carbon_episodes(load, generation, options.seed, **chosen)
    )
    save_episodes(out, made, provenance=shell.typed())
    shell.console.print(parts_table("episodes", out, episode_parts(out, "episodes")[0]), highlight=False)
    shell.console.print(f"saved {out}", highlight=False)


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
