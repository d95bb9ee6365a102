"""The command `tether bench data`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output


@dataclass(frozen=True)
class Options:
    """What `tether bench data` can be asked for."""

    rows: Annotated[int, typer.Option(help="Readings to generate.")] = 10_000_000
    files: Annotated[int, typer.Option(help="Gzip files to spread them over.")] = 10
    repeats: Annotated[int, typer.Option(help="Runs of each reader; the fastest counts.")] = 3
    seed: Annotated[int, shell.seed_option("Of the readings.")] = 0
    out: Annotated[Path | None, shell.out_option("results.json")] = None


def data(options: Options) -> None:
    """Reduce generated Azure CPU readings to hourly load, beside chunked pandas.

    The files are made in a temporary folder (about 0.7 GB for 10 million rows)
    and removed. Needs polars, and pandas to compare with.

    For example:

      tether bench data --out out/bench-data

      tether bench data --rows 1000000 --repeats 3
    """
    from tether.bench.data import MEMORY_LIMIT_MB, RATIO_WANTED, bench_data, bench_table

    figures = bench_data(options.rows, options.files, options.repeats, options.seed)
    shell.console.print(bench_table(figures), highlight=False)
    aims = f"peak memory below {MEMORY_LIMIT_MB:g} MB: {'yes' if figures['peak_below_limit'] else 'NO'}; "
    aims += f"at least {RATIO_WANTED:g} times as fast as pandas: {'yes' if figures['fast_enough'] else 'NO'}"
    shell.console.print(aims, highlight=False)
    if options.out is not None:
        shell.finish(output.prepare_folder(options.out), figures)
