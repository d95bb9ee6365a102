"""The command `tether bench estimate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output


@dataclass(frozen=True)
class Options:
    """What `tether bench estimate` can be asked for."""

    rows: Annotated[int, typer.Option(help="Rows of the log.", min=10_000)] = 10_000_000
    seed: Annotated[int, shell.seed_option("Of the log.")] = 0
    out: Annotated[Path, shell.out_option("results.json")] = Path("out/bench/estimate")


def estimate(options: Options) -> None:
    """Measure time and peak memory of `tether estimate` on a large CSV file and the same in Parquet.

    The files are made in a temporary folder (about 0.8 GB for 10 million rows) and removed. Each is read in a process
    of its own. Needs polars.
    """
    from tether.bench.log_memory import MEMORY_LIMIT_MB, logs_table, measure_logs

    folder = output.prepare_folder(options.out)
    measured = measure_logs(options.rows, options.seed)
    shell.console.print(logs_table(measured), highlight=False)
    kept = all(each["peak_memory_mb"] < MEMORY_LIMIT_MB for each in measured)
    shell.console.print(
        f"peak memory below {MEMORY_LIMIT_MB:g} MB: {'yes' if kept else 'NO'}", highlight=False
    )
    shell.finish(folder, {"measured": measured})
