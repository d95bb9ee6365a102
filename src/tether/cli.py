"""The command `tether`: each subcommand says what it does, shows its progress and writes `results.json`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tether import __version__, _validate
from tether.experiments import bench_data, data_cli, limit_cli, train_cli

if TYPE_CHECKING:
    from tether.experiments.bench import Measurement

app = typer.Typer(
    name="tether",
    help="Let a learning policy run your plant while its cost stays within reach of the policy you trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
reproduce = typer.Typer(
    help="Run the paper's evaluation, with tables, figures and results.json.", no_args_is_help=True
)
bench = typer.Typer(help="Measure speed against yardsticks, in one run, as ratios.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")
app.add_typer(bench, name="bench")
app.add_typer(data_cli.app, name="data")
bench.command("data")(bench_data.command)
app.command("train")(train_cli.command)
app.command("limit")(limit_cli.command)

console = Console()

Out = Annotated[
    Path, typer.Option("--out", help="Folder for results.json and the figures; made if it is not there.")
]
Seed = Annotated[int, typer.Option("--seed", help="First random seed.", min=0)]


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        console.print(f"tether {__version__}")
        raise typer.Exit


@reproduce.command("carbon")
def reproduce_carbon(
    out: Out = Path("out/carbon"),
    lam: Annotated[float, typer.Option(help="Relative slack of the contract.")] = 2.0,
    b: Annotated[float, typer.Option(help="Slack a round of the contract, cost units.")] = 2.0,
    seeds: Annotated[int, typer.Option(help="Number of seeds; the spread over them is shown.", min=1)] = 5,
    seed: Seed = 0,
    episodes: Annotated[int, typer.Option(help="Synthetic episodes a seed.", min=1)] = 1416,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the authors' carbon data (.mat); its test windows are played."),
    ] = None,
) -> None:
    """Guard a random and a greedy learner on the carbon system.

    Plays the prior, a random and a greedy learner on the same episodes, each learner with no guard and with the three
    rules of the guard, and audits the promise in every round of every episode. Writes `results.json` and `guard.png`.

    For instance `tether reproduce carbon --lam 0 --b 6 --data ../shared/data/carbon`.
    """
    from tether.experiments import figures, output
    from tether.experiments.paper import guard_study

    folder = output.prepare_folder(out)
    lam, b = _validate.number("--lam", lam, minimum=0.0), _validate.number("--b", b, minimum=0.0)
    with _progress() as progress:
        task = progress.add_task("playing", total=None)
        study = guard_study(
            lam,
            b,
            list(range(seed, seed + seeds)),
            episodes,
            data,
            report=lambda done, total: progress.update(task, completed=done, total=total),
        )
    console.print(study.table())
    figures.save(study.figure, folder / "guard.png")
    results = {
        "contract": asdict(study.contract),
        "episodes": study.episodes,
        "seeds": study.seeds,
        "rows": [asdict(row) for row in study.rows],
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(f"Figure: {folder / 'guard.png'}   Results: {folder / 'results.json'}")


@reproduce.command("published")
def reproduce_published(
    paper: Annotated[Path, typer.Option(help="Folder with the authors' published.json and networks_b2.npz.")],
    data: Annotated[Path, typer.Option(help="Folder with the authors' carbon data (.mat).")],
    out: Out = Path("out/published"),
    seed: Seed = 0,  # noqa: ARG001
) -> None:
    """Play the authors' networks through our guard, and compare with every number that they published.

    Rule `released`, their constants, their 1416 test windows. Nothing here is random: the seed is of no consequence.
    """
    from tether.experiments import output
    from tether.experiments.published import play_published, published_table

    folder = output.prepare_folder(out)
    with _progress() as progress:
        task = progress.add_task("playing", total=None)
        rows = play_published(
            paper, data, report=lambda done, total: progress.update(task, completed=done, total=total)
        )
    console.print(published_table(rows))
    results = {
        "rows": [asdict(row) | {"agrees": row.agrees} for row in rows],
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(f"Results: {folder / 'results.json'}")


@bench.command("guard")
def bench_guard_command(
    out: Out = Path("out/bench/guard"),
    seed: Seed = 0,
    repetitions: Annotated[
        int, typer.Option(help="How often each pair is measured, alternately.", min=3)
    ] = 9,
) -> None:
    """Measure the online guard and the compiled rollout.

    One act + observe against the same projection as a parametrised cvxpy problem (extra `bench`), a long horizon
    against a short one, guarded rounds a second, and what `import tether` costs. Nothing else should run meanwhile.
    """
    from tether.experiments.bench import bench_guard

    _measure("tether bench guard", out, bench_guard(seed, repetitions))


@bench.command("train")
def bench_train_command(
    out: Out = Path("out/bench/train"),
    seed: Seed = 0,
    repetitions: Annotated[int, typer.Option(help="How often each is measured.", min=3)] = 5,
) -> None:
    """Measure offline ACRL training against an eager PyTorch loop of the same update (extra `sb3` has PyTorch)."""
    from tether.experiments.bench import bench_train

    _measure("tether bench train", out, bench_train(seed, repetitions))


def _measure(title: str, out: Path, measurements: Iterator[Measurement]) -> None:
    """Take the measurements, show them and write them down."""
    from tether.experiments import bench as benchmarks
    from tether.experiments import output

    folder = output.prepare_folder(out)
    taken = []
    with _progress() as progress:
        task = progress.add_task("measuring", total=None)
        for each in measurements:
            taken.append(each)
            progress.update(task, completed=len(taken))
    console.print(benchmarks.table(title, taken))
    results = {
        "measurements": benchmarks.as_json(taken),
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(f"Results: {folder / 'results.json'}")


@data_cli.app.command("calibration")
def data_calibration(
    data: Annotated[Path, typer.Option(help="Folder with the authors' carbon data (.mat).")],
    out: Out = Path("out/calibration"),
    seeds: Annotated[int, typer.Option(help="Number of seeds; the spread over them is shown.", min=1)] = 5,
    seed: Seed = 0,
) -> None:
    """Compare the synthetic carbon data with the authors' test windows.

    Level, spread and autocorrelation of demand and renewables, and the prior's reward and costs, of the authors' data
    and of as many synthetic windows for each seed. Writes `results.json` and `calibration.png`.
    """
    from tether.data import load_carbon
    from tether.experiments import figures, output
    from tether.experiments.calibration import calibrate

    folder = output.prepare_folder(out)
    calibration = calibrate(load_carbon(data, "test"), list(range(seed, seed + seeds)))
    console.print(calibration.table())
    figures.save(calibration.figure, folder / "calibration.png")
    results = {
        "real": calibration.real,
        "synthetic": calibration.synthetic,
        "seeds": calibration.seeds,
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(f"Figure: {folder / 'calibration.png'}   Results: {folder / 'results.json'}")


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, TypeError, OSError, ImportError) as error:
        if os.environ.get("TETHER_DEBUG"):
            raise
        message = " ".join(str(error).split())
        print(f"tether: error: {message} (TETHER_DEBUG=1 shows where)", file=sys.stderr)
        sys.exit(2)
