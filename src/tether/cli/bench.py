"""The commands `tether bench guard`, `sets`, `train` and `exact`: measurements as ratios, in one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tether.cli import shell
from tether.core import output

if TYPE_CHECKING:
    from tether.bench.speed import Measurement


@dataclass(frozen=True)
class GuardOptions:
    """What `tether bench guard` can be asked for."""

    out: shell.Out = Path("out/bench/guard")
    seed: shell.Seed = 0
    repetitions: Annotated[int, typer.Option(help="How often each pair is measured, alternately.", min=3)] = 9
    compiled: Annotated[
        str,
        typer.Option(
            help="Systems whose certificates compiled from a model are measured too, comma-separated (module:object "
            "for your own); `first` is the first that is installed, `none` leaves them out."
        ),
    ] = "first"


def guard(options: GuardOptions) -> None:
    """Measure the online guard and the compiled rollout.

    One act + observe against the same projection as a parametrised cvxpy problem (extra `bench`), a long horizon
    against a short one, guarded rounds a second, and what `import tether` costs; of certificates compiled from a model
    also how long rollouts and trainings compile. Nothing else should run meanwhile.
    """
    from tether.bench.compiled_speed import bench_compiled
    from tether.bench.parts import skipped
    from tether.bench.speed import bench_guard, yardstick_system
    from tether.systems import registry

    named = [] if options.compiled in ("first", "none") else shell.listed(options.compiled)
    systems = [yardstick_system()] if options.compiled == "first" else [registry.find(name) for name in named]
    for line in skipped("structure"):
        shell.console.print(line)
    found = chain(
        bench_guard(options.seed, options.repetitions),
        bench_compiled(systems, options.seed, options.repetitions),
    )
    measure("tether bench guard", options.out, found)


@dataclass(frozen=True)
class SetsOptions:
    """What `tether bench sets` can be asked for."""

    out: shell.Out = Path("out/bench/sets")
    seeds: shell.Seeds = 5
    episodes: Annotated[int, typer.Option(help="Episodes of each seed.", min=1)] = 100


def sets(options: SetsOptions) -> None:
    """Measure how much of the largest safe set the structured certificates allow.

    The largest safe set is found by brute force over a grid of draws: with what the certificate knows of the past, and,
    as nobody can online, with the prior's state and costs as they really are.
    """
    from tether.bench.sets import bench_sets

    measure("tether bench sets", options.out, bench_sets(options.seeds, options.episodes))


@dataclass(frozen=True)
class TrainOptions:
    """What `tether bench train` can be asked for."""

    out: shell.Out = Path("out/bench/train")
    seed: shell.Seed = 0
    repetitions: Annotated[int, typer.Option(help="How often each is measured.", min=3)] = 5
    episodes: Annotated[int, typer.Option(help="Synthetic episodes of a pass.", min=50)] = 1000


def train(options: TrainOptions) -> None:
    """Measure offline ACRL training against an eager PyTorch loop of the same update (extra `sb3` has PyTorch)."""
    from tether.bench.speed import bench_train

    taken = bench_train(options.seed, options.repetitions, options.episodes)
    measure("tether bench train", options.out, taken)


@dataclass(frozen=True)
class ExactOptions:
    """What `tether bench exact` can be asked for."""

    out: shell.Out = Path("out/bench/exact")
    seed: shell.Seed = 0
    repetitions: Annotated[int, typer.Option(help="How often each grid is measured, in turns.", min=3)] = 7


def exact(options: ExactOptions) -> None:
    """Measure one value iteration of the exact algorithm on grids of growing size, and its compilation."""
    from tether.bench.speed import bench_exact

    measure("tether bench exact", options.out, bench_exact(options.seed, options.repetitions))


def measure(title: str, out: Path, measurements: Iterator[Measurement]) -> None:
    """Take the measurements, show them and write them down."""
    from tether.bench import speed

    folder = output.prepare_folder(out)
    taken: list[Measurement] = []
    with shell.counting("measuring") as report:
        for each in measurements:
            taken.append(each)
            report(len(taken))
    shell.console.print(speed.table(title, taken))
    shell.finish(folder, {"measurements": speed.as_json(taken)})
