"""What the commands `tether data` share: which source a file comes from, and how it is read."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from tether.cli import shell
from tether.data.chunks import csv_files, open_text
from tether.data.series import HourlySeries
from tether.data.sources.azure import START, load_azure
from tether.data.sources.caiso import RENEWABLE, load_caiso
from tether.data.sources.gpu import load_bloom, load_codecarbon
from tether.systems import registry
from tether.systems.system import System

Kind = Literal["CAISO", "Azure", "CodeCarbon", "BLOOM", "episodes"]
RENEWABLE_SOURCES = ",".join(RENEWABLE)
MaxGap = Annotated[float, typer.Option(help="Longest gap, in hours, that is bridged by a straight line.")]
Zone = Annotated[str, typer.Option(help="Time zone of CAISO times without UTC offset.")]
Sources = Annotated[str, typer.Option(help="CAISO columns to sum, separated by commas.")]


def system_of(path: Path) -> System | None:
    """The installed system whose data a folder holds, if any."""
    for system in map(registry.find, registry.names()) if path.is_dir() else ():
        if system.reader and system.reader.recognises and system.reader.recognises(path):
            return system
    return None


def recognise(path: Path) -> Kind:
    """Which source a file or folder comes from, judged by its first line."""
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


def _first_line(file: Path) -> str:
    try:
        with open_text(file) as stream:
            line: bytes = stream.readline(100_000)
            return line.decode("utf-8-sig", "replace").strip()
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{file} is not a complete gzip file: {error}") from None


def load(
    kind: Kind,
    path: Path,
    max_gap_hours: float,
    zone: str,
    sources: str,
    start: datetime = START,
    progress: Callable[[Path], None] | None = None,
) -> HourlySeries:
    """The hourly series in a file or folder of this kind; `progress` is called with each file that is read."""
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
def reading(*paths: Path) -> Iterator[Callable[[Path], None]]:
    """A bar over the files of all paths, shown if there are several."""
    count = sum(len(csv_files(path, ("*.csv", "*.csv.gz"))) for path in paths)
    with shell.progress() as bars:
        task = bars.add_task("reading", total=count, visible=count >= 3)
        yield lambda file: bars.update(task, advance=1, description=file.name)
