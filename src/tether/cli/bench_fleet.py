"""The commands `tether bench fleet` and `tether bench continuing`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import bench, shell


@dataclass(frozen=True)
class FleetOptions:
    """What `tether bench fleet` can be asked for."""

    out: shell.Out = Path("out/bench/fleet")
    seed: shell.Seed = 0
    plants: Annotated[int, typer.Option(help="Plants of the fleet.", min=1)] = 10_000
    repetitions: Annotated[int, typer.Option(help="Episodes that are timed.", min=3)] = 9


def fleet(options: FleetOptions) -> None:
    """Measure guarded rounds a second of a fleet, and compare its decisions with those of single guards."""
    from tether.bench.fleet import bench_fleet

    taken = bench_fleet(options.seed, options.plants, options.repetitions)
    bench.measure("tether bench fleet", options.out, taken)


@dataclass(frozen=True)
class ContinuingOptions:
    """What `tether bench continuing` can be asked for."""

    out: shell.Out = Path("out/bench/continuing")
    seed: shell.Seed = 0
    rounds: Annotated[int, typer.Option(help="Rounds of one guard.", min=1000)] = 10_000_000


def continuing(options: ContinuingOptions) -> None:
    """Run one guard without a last round for long, and see whether its freedom fades or its memory grows."""
    from tether.bench.fleet import bench_continuing

    bench.measure("tether bench continuing", options.out, bench_continuing(options.seed, options.rounds))
