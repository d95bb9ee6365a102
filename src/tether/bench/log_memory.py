"""Time and peak memory of `tether estimate` on large logs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

MEMORY_LIMIT_MB = 1000.0
_PROGRAM = """
import json, sys, time
from tether.core.output import peak_memory
from tether.estimation.estimate import estimate
begin = time.perf_counter()
found = estimate(sys.argv[1])
print(json.dumps([found.rows, time.perf_counter() - begin, peak_memory()]))
"""
"""What a fresh process does with a file."""


def measure_logs(rows: int, seed: int) -> list[dict[str, Any]]:
    """Make a log of `rows` rounds as CSV and as Parquet, and read each in a process of its own.

    Returns:
        For each file its kind, `megabytes`, `rows`, `seconds` and `peak_memory_mb`.
    """
    import polars

    with tempfile.TemporaryDirectory(prefix="tether-bench-") as place:
        text = Path(place) / "log.csv"
        write_log(text, rows, seed)
        polars.scan_csv(text).sink_parquet(text.with_suffix(".parquet"))
        return [_measure(file) for file in (text, text.with_suffix(".parquet"))]


def _measure(file: Path) -> dict[str, Any]:
    line = [sys.executable, "-c", _PROGRAM, str(file)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"estimate failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    rows, seconds, memory = json.loads(done.stdout)
    return {
        "file": file.suffix[1:],
        "megabytes": file.stat().st_size / 1e6,
        "rows": rows,
        "seconds": seconds,
        "peak_memory_mb": memory,
    }


def logs_table(measured: list[dict[str, Any]]) -> Table:
    """The figures of `measure_logs` as a table."""
    table = Table("file", "size (MB)", "rows", "time (s)", "peak memory (MB)", title="tether bench estimate")
    for each in measured:
        table.add_row(
            str(each["file"]),
            f"{each['megabytes']:.0f}",
            f"{each['rows']:,}",
            f"{each['seconds']:.1f}",
            f"{each['peak_memory_mb']:.0f}",
        )
    return table


def write_log(file: Path, rows: int, seed: int, piece: int = 500_000) -> None:
    """A CSV log of `rows` rounds of a linear plant with two states, written piece by piece."""
    import polars

    random = np.random.default_rng(seed)
    episodes = 1000
    state = np.zeros((episodes, 2))
    dynamics, push, gain = np.array([[0.7, 0.2], [0.0, 0.6]]), np.array([0.5, 1.0]), np.array([0.1, 0.3])
    written = 0
    with file.open("wb") as stream:
        while written < rows:
            length = max(1, min(piece, rows - written) // episodes)
            parts = []
            for step in range(length):
                prior = -state @ gain
                action = prior + random.uniform(-0.2, 0.2, episodes)
                cost = 2.0 + np.sum(state**2, axis=1) + action**2 + random.uniform(-0.2, 0.2, episodes)
                after = state @ dynamics.T + action[:, None] * push + random.uniform(-0.5, 0.5, (episodes, 2))
                parts.append(
                    np.column_stack([np.full(episodes, step + 1), state, prior, action, cost, after])
                )
                state = after
            # Episode by episode, each piece with episodes of its own.
            table = np.stack(parts, axis=1).reshape(episodes * length, -1)
            number = written // (episodes * length) * episodes + np.repeat(np.arange(episodes), length)
            names = ("round", "state_1", "state_2", "prior", "action", "cost", "next_state_1", "next_state_2")
            frame = polars.DataFrame({"episode": number} | dict(zip(names, table.T, strict=True)))
            frame.write_csv(stream, include_header=written == 0, float_precision=6)
            written += len(table)
