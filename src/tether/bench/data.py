"""How fast, and in how much memory, Azure CPU readings become hourly load, beside chunked pandas.

Every contestant runs in a fresh process that reports its own time (imports left out) and its peak memory.
Two ways of using pandas are measured: all columns, as `read_csv` does unless told otherwise, and only the two
that are needed.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from tether.core import validate
from tether.core.output import peak_memory
from tether.data.sources.azure import COLUMNS, load_azure

STAMPS_PER_FILE = 48
"""Four hours of readings, as many as a file of the trace has, about."""
CONTESTANTS = ("tether", "pandas", "pandas-two-columns")
MEMORY_LIMIT_MB, RATIO_WANTED = 600.0, 3.0


def bench_data(rows: int = 10_000_000, files: int = 10, repeats: int = 3, seed: int = 0) -> dict[str, Any]:
    """Make files in the Azure layout in a temporary folder and reduce them to hourly load in each way.

    Args:
        rows: Readings, at least this many; spread evenly over files, moments and machines.
        files: Number of gzip files.
        repeats: Runs of each contestant, in turn; the fastest counts.
        seed: Of the readings.

    Returns:
        For each contestant `seconds`, `cpu_seconds` (of all threads), `peak_mb` and `ratio`, its time over
        tether's, which is not fair where other programs keep the processors busy; the size of the data;
        `largest_difference`, relative, between the hourly loads; and whether the two aims are met.
    """
    for name, value in (("rows", rows), ("files", files), ("repeats", repeats)):
        validate.count(name, value)
    machines = math.ceil(rows / (files * STAMPS_PER_FILE))
    with tempfile.TemporaryDirectory(prefix="tether-bench-") as folder:
        made = _fresh_process("generate", folder, str(machines), str(files), str(seed))
        runs = [{name: _fresh_process(name, folder) for name in CONTESTANTS} for _ in range(repeats)]
    best = {
        name: min((run[name] for run in runs), key=lambda run: float(run["seconds"])) for name in CONTESTANTS
    }
    reference = np.array(best["tether"]["hourly"])
    differences = [np.max(np.abs(np.array(run["hourly"]) / reference - 1.0)) for run in best.values()]
    if max(differences) > 1e-9:
        raise AssertionError(
            f"the hourly loads differ by {max(differences):.1e}: the benchmark is not a fair one"
        )
    figures: dict[str, Any] = {"rows": machines * files * STAMPS_PER_FILE, "files": files, **made}
    figures |= {"repeats": repeats, "hours": reference.size, "largest_difference": float(max(differences))}
    for name, run in best.items():
        figures[name] = {key: run[key] for key in ("seconds", "cpu_seconds", "peak_mb")}
        figures[name]["ratio"] = run["seconds"] / best["tether"]["seconds"]
    peak = max(run["tether"]["peak_mb"] for run in runs)
    figures["peak_below_limit"] = bool(peak < MEMORY_LIMIT_MB)
    figures["fast_enough"] = bool(figures["pandas"]["ratio"] >= RATIO_WANTED)
    return figures


def bench_table(figures: dict[str, Any]) -> Table:
    """The figures of `bench_data` as a table."""
    title = f"{figures['rows']:,} Azure readings in {figures['files']} files to hourly load"
    table = Table("reader", "time (s)", "ratio", "CPU time (s)", "peak memory (MB)", title=title)
    for name in CONTESTANTS:
        run = figures[name]
        numbers = (f"{run[key]:.2f}" for key in ("seconds", "ratio", "cpu_seconds"))
        table.add_row(name, *numbers, f"{run['peak_mb']:.0f}")
    return table


def generate(folder: Path, machines: int, files: int, seed: int) -> dict[str, Any]:
    """Write files in the Azure layout: ids of 64 characters, loads with a daily swing, six decimals."""
    import polars

    random = np.random.default_rng(seed)
    ids = polars.Series([base64.b64encode(random.bytes(48)).decode() for _ in range(machines)])
    size = 0
    for number in range(files):
        stamps = (number * STAMPS_PER_FILE + np.arange(STAMPS_PER_FILE)) * 300
        swing = 20.0 + 10.0 * np.sin(2.0 * np.pi * stamps / 86400.0)
        average = np.clip(
            swing[:, None] + random.normal(0.0, 5.0, (STAMPS_PER_FILE, machines)), 0.0, 100.0
        ).ravel()
        rows = {"timestamp": np.repeat(stamps, machines), "vm": polars.concat([ids] * STAMPS_PER_FILE)}
        rows |= {"low": 0.5 * average, "high": np.minimum(1.5 * average, 100.0), "average": average}
        text = polars.DataFrame(rows).write_csv(include_header=False, float_precision=6).encode()
        file = folder / f"vm_cpu_readings-file-{number + 1}-of-{files}.csv.gz"
        file.write_bytes(gzip.compress(text, compresslevel=1))
        size += file.stat().st_size
    return {"compressed_mb": size / 1e6}


def _hourly_tether(folder: Path) -> list[float]:
    return [float(value) for value in load_azure(folder).values]


def _hourly_pandas(folder: Path, columns: list[str] | None) -> list[float]:
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]

    options: dict[str, Any] = {"header": None, "names": list(COLUMNS), "usecols": columns}
    sums = [
        chunk.groupby("timestamp")["avg cpu"].sum()
        for file in sorted(folder.glob("*.csv.gz"))
        for chunk in pd.read_csv(file, chunksize=500_000, **options)
    ]
    moments = pd.concat(sums).groupby(level=0).sum()
    hourly: list[float] = (moments.groupby(moments.index // 3600).mean() / 100.0).tolist()
    return hourly


_READERS: dict[str, Callable[[Path], list[float]]] = {
    "tether": _hourly_tether,
    "pandas": lambda folder: _hourly_pandas(folder, None),
    "pandas-two-columns": lambda folder: _hourly_pandas(folder, ["timestamp", "avg cpu"]),
}


def _fresh_process(*arguments: str) -> dict[str, Any]:
    """Run this module with arguments in a process of its own and read what it prints."""
    command_line = [sys.executable, "-m", "tether.bench.data", *arguments]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{arguments[0]} failed: {lines[-1]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _main(arguments: list[str]) -> None:
    """What a fresh process does: generate files, or read them in one of the ways."""
    name, folder = arguments[0], Path(arguments[1])
    if name == "generate":
        print(json.dumps(generate(folder, *map(int, arguments[2:]))))
        return
    importing = "polars" if name == "tether" else "pandas"
    __import__(importing)
    begin, cpu = time.perf_counter(), time.process_time()
    hourly = _READERS[name](folder)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    peak = peak_memory()
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak, "hourly": hourly}))


if __name__ == "__main__":
    _main(sys.argv[1:])
