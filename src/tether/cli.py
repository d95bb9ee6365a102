"""The command `tether`: each subcommand says what it does, shows its progress and writes `results.json`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from tether.experiments import (
    attack_cli,
    bench_data,
    data_cli,
    estimate_cli,
    limit_cli,
    open_cli,
    sensitivity_cli,
    train_cli,
    verify_cli,
)

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
app.command("estimate")(estimate_cli.command)
reproduce.command("estimate")(estimate_cli.reproduce_command)
bench.command("estimate")(estimate_cli.bench_command)
reproduce.command("open")(open_cli.command)
app.command("attack")(attack_cli.command)
app.command("verify")(verify_cli.command)
app.command("sensitivity")(sensitivity_cli.command)

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


def _part(of: str) -> Any:
    """An option that chooses some of what a plan has."""
    return typer.Option(help=f"{of}, comma-separated; all that the plan has without it.")


def _size(of: str) -> Any:
    """An option that changes a number of the plan."""
    return typer.Option(help=f"{of}; that of the plan without it.", min=1)


@reproduce.command(
    "inference",
    help="""Run the paper's evaluation of sustainable AI inference.

    As `tether reproduce carbon`, for the battery system. Real data is the GPU power of the BLOOM service.""",
)
@reproduce.command(
    "carbon",
    help="""Run the paper's evaluation of carbon-aware scheduling.

    Hostile learners with and without the guard; prior, RL, CRL, ACRL, RL+ACD and Random+ACD, offline and online, over
    lam, b and seeds, audited in every round. Writes `report.html`, `results.json` and `figures/`. Finished pieces stay:
    a killed run goes on with `--resume`.

    For instance `tether reproduce carbon --full --recipe paper`, on the authors' data with
    `--data ../shared/data/carbon --paper ../shared/paper`.""",
)
def reproduce_system(
    context: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report, results.json and the figures. [default: out/SYSTEM]"),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's whole grid, or a small one in about a minute.")
    ] = False,
    recipe: Annotated[
        str,
        typer.Option(
            help="How learners are trained: tether (ours) or paper. --full --recipe paper is the paper's."
        ),
    ] = "tether",
    data: Annotated[
        Path | None,
        typer.Option(
            help="Episode file (.npz, as `tether data build` makes it), or folder with the authors' carbon windows or "
            "the BLOOM series; embedded data without it."
        ),
    ] = None,
    paper: Annotated[
        Path | None,
        typer.Option(help="Folder with the authors' published.json, to show their numbers beside."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds; the spread over them is shown. [default: 3, full: 5]", min=1),
    ] = None,
    seed: Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that the folder holds.")
    ] = False,
    methods: Annotated[str | None, _part("Any of prior, random+acd, rl, rl+acd, crl, acrl")] = None,
    rules: Annotated[str | None, _part("Any of paper, released, tight")] = None,
    modes: Annotated[str | None, _part("Any of offline, online")] = None,
    lams: Annotated[str | None, _part("Relative slacks")] = None,
    bs: Annotated[str | None, _part("Slacks a round, cost units")] = None,
    episodes: Annotated[int | None, _size("Synthetic training episodes")] = None,
    passes: Annotated[int | None, _size("Offline: passes over them")] = None,
    explored: Annotated[int | None, _size("Online: episodes that are played")] = None,
) -> None:
    """Run the evaluation of the system that the command is called after."""
    system = str(context.info_name)
    count = (5 if full else 3) if seeds is None else seeds
    names = {
        name: None if text is None else tuple(each.strip() for each in text.split(","))
        for name, text in (("methods", methods), ("rules", rules), ("modes", modes))
    }
    numbers = {
        name: None if text is None else tuple(train_cli.numbers(f"--{name}", text))
        for name, text in (("lams", lams), ("bs", bs))
    }
    counts = {"train_episodes": episodes, "passes": passes, "explored": explored}
    changes = {"seeds": tuple(range(seed, seed + count)), "recipe": recipe, **names, **numbers, **counts}
    _reproduce(system, out or Path("out") / system, full, data, paper, resume, changes)


def _reproduce(
    system: str,
    out: Path,
    full: bool,
    data: Path | None,
    paper: Path | None,
    resume: bool,
    changes: dict[str, Any],
) -> None:
    import shutil
    import time

    from tether.experiments import engines, results
    from tether.experiments import paper as evaluation
    from tether.experiments.report import summary_tables, write_report

    plan = evaluation.plan_for(system, "full" if full else "quick", **changes)
    plant = evaluation.load_data(plan, data)
    identity = evaluation.identity(plan, plant, _command(), data, paper)
    with engines.claim(out) as folder, _progress() as progress:
        todo = evaluation.pieces(plan, plant, folder, data, paper)
        task = progress.add_task(system, total=len(todo))
        step = progress.add_task("", total=None)
        began = time.monotonic()

        def tell(piece: engines.Piece, done: int, total: int, words: str) -> None:
            progress.update(step, completed=done, total=total, description=f"{piece.name} {words}".strip())

        def finished(piece: engines.Piece, found: bool) -> None:
            nonlocal began
            progress.advance(task)
            number = int(progress.tasks[0].completed)
            took = "found" if found else f"{time.monotonic() - began:.1f} s"
            progress.console.print(
                f"{system} {number:>2}/{len(todo)}  {piece.name:<28} {took}", highlight=False
            )
            began = time.monotonic()

        try:
            done = engines.run_pieces(folder, identity, todo, resume=resume, tell=tell, finished=finished)
        except KeyboardInterrupt:
            progress.console.print(
                "Stopped. Finished pieces are kept: the same command with --resume goes on."
            )
            raise
        progress.update(step, description="report", total=None)
        content = evaluation.assemble(plan, plant, engines.read_identity(folder), done)
        results.write_results(folder / "results.json", content)
        page = write_report(folder)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    console.print(*summary_tables(content), sep="\n")
    # A path that is broken into lines cannot be copied.
    for name, path in (
        ("Report", page),
        ("Results", folder / "results.json"),
        ("Figures", folder / "figures"),
    ):
        console.print(f"{name}: {path}", soft_wrap=True)


def _command() -> str:
    """The command as typed, without what does not change the results: --resume and --out."""
    kept: list[str] = []
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument == "--out":
            next(arguments, None)
        elif argument != "--resume" and not argument.startswith("--out="):
            kept.append(argument)
    return shlex.join(["tether", *kept])


@app.command("report")
def report_command(
    folder: Annotated[
        Path, typer.Argument(help="One that `tether reproduce` wrote, or one with several of those in it.")
    ],
    figures: Annotated[bool, typer.Option(help="Draw the figures for print, too.")] = True,
    claims: Annotated[
        Path | None,
        typer.Option(
            help="Document in which to renew the table of the paper's claims, such as docs/reproduce.md."
        ),
    ] = None,
) -> None:
    """Build report.html and the figures again from results.json.

    Given a folder that holds the folders of several runs, the page shows all of them, and the comparison with the paper
    has a column for the authors' data and one for embedded data.
    """
    from tether.experiments.report import write_report

    console.print(f"Report: {write_report(folder, draw=figures, claims=claims)}", soft_wrap=True)


@reproduce.command("published")
def reproduce_published(
    paper: Annotated[Path, typer.Option(help="Folder with the authors' published.json and networks_b2.npz.")],
    data: Annotated[Path, typer.Option(help="Folder with the authors' carbon data (.mat).")],
    out: Out = Path("out/published"),
    seed: Seed = 0,  # noqa: ARG001
    budgets: Annotated[
        bool, typer.Option("--budgets/--no-budgets", help="Train CRL for several B, about a minute.")
    ] = True,
) -> None:
    """Play the authors' networks through our guard, and compare with every number that they published.

    Rule `released`, their constants, their 1416 test windows; and their RL network without a guard. Then, at lam = 2
    and b = 2, what follows from numbers that the paper does not print or prints otherwise: the constant `carried`, the
    largest backlog, two weights of the reward. Last, what shows why printed numbers differ from ours: the months
    and networks behind RL's cost, random networks, CRL's B. The seeds are fixed: `--seed` is of no consequence.
    """
    from tether.experiments import choices as unprinted
    from tether.experiments import output, published
    from tether.experiments.choices import choices_table, play_choices
    from tether.experiments.report import section_of

    folder = output.prepare_folder(out)
    with _progress() as progress:
        task = progress.add_task("playing", total=None)
        rows = published.play_published(
            paper, data, report=lambda done, total: progress.update(task, completed=done, total=total)
        )
        free, (least, largest) = published.play_rl(paper, data), published.play_idle(paper, data)
        choices = play_choices(paper, data)
        scaled, months = unprinted.play_scaled(paper, data), unprinted.play_months(paper, data)
        drawn = unprinted.play_random(paper, data)
        trained = unprinted.train_budgets(data) if budgets else []
    found = unprinted.evidence(published.read_published(paper), scaled, months, drawn, trained)
    tables = [choices_table(choices), *([unprinted.budgets_table(trained)] if trained else [])]
    console.print(published.published_table(rows))
    console.print(published.rl_table(free, published.read_published(paper)["paper_text"]))
    console.print(
        f"A network that proposes 0, behind rule released: regret {least:.2f} to {largest:.2f} over lam and b"
    )
    console.print(*tables, sep="\n")
    for each in found:
        console.print(f"{each['on']}: {each['text']}")
    results = {
        "rows": [asdict(row) | {"agrees": row.agrees} for row in rows],
        "rl_network": [asdict(row) for row in free],
        "idle_regret": [least, largest],
        "choices": [asdict(choice) for choice in choices],
        "scaled": [asdict(row) for row in scaled],
        "months": asdict(months),
        "random": [asdict(row) for row in drawn],
        "budgets": [asdict(row) for row in trained],
        "evidence": found,
        "sections": [section_of(table) for table in tables],
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(f"Results: {folder / 'results.json'}")


@reproduce.command("theory")
def reproduce_theory(
    out: Out = Path("out/theory"),
    lam: Annotated[float, typer.Option(help="Relative slack, for the learning curves.")] = 0.25,
    b: Annotated[float, typer.Option(help="Slack a round, for the learning curves, cost units.")] = 0.25,
    lams: Annotated[str, typer.Option(help="Values of lam to check the theorems at.")] = "0,0.5,1,4",
    bs: Annotated[str, typer.Option(help="Values of b to check them at.")] = "0,0.5,1,4",
    episodes: Annotated[int, typer.Option(help="Episodes that each seed learns for (K).", min=10)] = 500,
    seeds: Annotated[int, typer.Option(help="Number of seeds; the spread over them is shown.", min=1)] = 10,
    seed: Seed = 0,
    delta: Annotated[float, typer.Option(help="Probability that the confidence sets may fail with.")] = 0.1,
    scale: Annotated[
        float | None, typer.Option(help="beta used / beta printed; the classical ellipsoid if not given.")
    ] = None,
    rule: Annotated[str, typer.Option(help="The guard's rule: paper, released or tight.")] = "tight",
    states: Annotated[int, typer.Option(help="Grid nodes of the state.", min=2)] = 21,
    actions: Annotated[int, typer.Option(help="Proposals to choose from.", min=2)] = 25,
) -> None:
    """Run the exact algorithm (Algorithm 2) and put both theorems beside what is measured.

    On a small carbon system, with an exact oracle: pseudo-regret of the optimistic learner, of one without optimism and
    of a random one, violations, coverage of the true model; Theorems 5.1 and 5.2 along lam and along b. Writes
    `results.json`, `learning` and `bounds` as .png and .svg. Some minutes.

    For instance `tether reproduce theory --episodes 2000 --lams 0,1,4 --bs 0,1,4`.
    """
    from typing import cast, get_args

    from tether.certificates import Rule
    from tether.experiments import figures, output, theory_figures
    from tether.experiments import theory as experiment
    from tether.experiments.report import section_of
    from tether.learn.planning import Resolution

    folder = output.prepare_folder(out)
    lam, b = _validate.number("--lam", lam, minimum=0.0), _validate.number("--b", b, minimum=0.0)
    if not 0.0 < delta < 1.0:
        raise ValueError(f"--delta must be between 0 and 1, got {delta!r}")
    if scale is not None:
        _validate.number("--scale", scale, above=0.0)
    _validate.choice("rule", rule, get_args(Rule))
    grid = [
        [_validate.number(name, each, minimum=0.0) for each in train_cli.numbers(name, text)]
        for name, text in (("--lams", lams), ("--bs", bs))
    ]
    with _progress() as progress:
        task = progress.add_task("learning", total=None)
        study = experiment.theory_study(
            lam,
            b,
            *grid,
            episodes=episodes,
            seeds=list(range(seed, seed + seeds)),
            delta=delta,
            scale=scale,
            rule=cast(Rule, rule),
            resolution=Resolution(states=states, actions=actions),
            report=lambda done, total: progress.update(task, completed=done, total=total),
        )
    for table in study.tables():
        console.print(table)
    for name, figure in (
        ("learning", theory_figures.learning_figure(study)),
        ("bounds", theory_figures.bounds_figure(study)),
    ):
        for suffix in (".png", ".svg"):
            figures.save(figure, folder / (name + suffix))
    results = study.as_json() | {
        "evidence": study.evidence(),
        "sections": [section_of(table) for table in study.tables()],
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(
        f"Figures: {folder / 'learning.png'}, {folder / 'bounds.png'}   Results: {folder / 'results.json'}"
    )


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


@bench.command("sets")
def bench_sets_command(
    out: Out = Path("out/bench/sets"),
    seeds: Annotated[int, typer.Option(help="Number of seeds; the spread over them is shown.", min=1)] = 5,
    episodes: Annotated[int, typer.Option(help="Episodes of each seed.", min=1)] = 100,
) -> None:
    """Measure how much of the largest safe set the structured certificates allow.

    The largest safe set is found by brute force over a grid of draws: with what the certificate knows of the past, and,
    as nobody can online, with the prior's state and costs as they really are.
    """
    from tether.experiments.maximal import bench_sets

    _measure("tether bench sets", out, bench_sets(seeds, episodes))


@bench.command("monitor")
def bench_monitor_command(
    out: Out = Path("out/bench/monitor"),
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="Number of seeds; the spread over them is shown.", min=1)] = 5,
    episodes: Annotated[int, typer.Option(help="Episodes of each drift and seed.", min=1)] = 40,
    rounds: Annotated[
        int, typer.Option(help="Rounds without a drift, for each system and monitor.", min=48)
    ] = 1_000_000,
    begins: Annotated[int, typer.Option(help="Round from which on the plant drifts.", min=1, max=24)] = 9,
    lam: Annotated[float, typer.Option(help="Relative slack of the promise.")] = 1.0,
    b: Annotated[float, typer.Option(help="Slack a round of the promise, cost units.")] = 1.0,
    repetitions: Annotated[int, typer.Option(help="How often each guard is timed, alternately.", min=3)] = 21,
) -> None:
    """Watch plants that leave their claims, and plants that do not, and time the monitor.

    First, plants that drift: in how many episodes a number outside of the claims was seen, whether it was flagged by
    the very call that brought it, and how often the promise was broken. Then false alarms, in a million rounds of every
    system with its noise at its ends in half of the draws, and with observations in float64 and float32. Last, the
    time of act + observe with a monitor over that without. Some minutes.

    For instance `tether bench monitor --episodes 1000 --lam 0.2 --b 0.2`.
    """
    from tether.experiments import bench as benchmarks
    from tether.experiments import monitoring, output

    folder = output.prepare_folder(out)
    lam, b = _validate.number("--lam", lam, minimum=0.0), _validate.number("--b", b, minimum=0.0)
    with _progress() as progress:
        task = progress.add_task("drifts", total=len(monitoring.DRIFTS) * seeds)
        drifts = []
        for drift in monitoring.DRIFTS:
            for each in range(seed, seed + seeds):
                drifts.append(monitoring.drift_row(drift, lam, b, episodes, each, begins))
                progress.advance(task)
        progress.update(task, description="false alarms", completed=0, total=None)
        alarms = list(
            monitoring.alarm_rows(
                rounds, seed, lambda done, total: progress.update(task, completed=done, total=total)
            )
        )
        progress.update(task, description="time", completed=0, total=None)
        times = list(monitoring.overhead(seed, repetitions))
    console.print(*monitoring.drift_tables(drifts, begins), monitoring.alarm_table(alarms))
    console.print(benchmarks.table("Time of a monitor", times))
    results = {
        "begins": begins,
        "lam": lam,
        "b": b,
        "drifts": monitoring.as_json(drifts),
        "conforming": monitoring.as_json(alarms),
        "measurements": benchmarks.as_json(times),
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(f"Results: {folder / 'results.json'}")


@bench.command("train")
def bench_train_command(
    out: Out = Path("out/bench/train"),
    seed: Seed = 0,
    repetitions: Annotated[int, typer.Option(help="How often each is measured.", min=3)] = 5,
    episodes: Annotated[int, typer.Option(help="Synthetic episodes of a pass.", min=50)] = 1000,
) -> None:
    """Measure offline ACRL training against an eager PyTorch loop of the same update (extra `sb3` has PyTorch)."""
    from tether.experiments.bench import bench_train

    _measure("tether bench train", out, bench_train(seed, repetitions, episodes))


@bench.command("exact")
def bench_exact_command(
    out: Out = Path("out/bench/exact"),
    seed: Seed = 0,
    repetitions: Annotated[int, typer.Option(help="How often each grid is measured, in turns.", min=3)] = 7,
) -> None:
    """Measure one value iteration of the exact algorithm on grids of growing size, and its compilation."""
    from tether.experiments.bench import bench_exact

    _measure("tether bench exact", out, bench_exact(seed, repetitions))


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
    data: Annotated[
        Path, typer.Option(help="Folder with the authors' carbon data (.mat), or episode file (.npz).")
    ],
    out: Out = Path("out/calibration"),
    seeds: Annotated[int, typer.Option(help="Number of seeds; the spread over them is shown.", min=1)] = 5,
    seed: Seed = 0,
) -> None:
    """Compare the synthetic carbon data with the authors' test windows, or with your own.

    Level, spread and autocorrelation of demand and renewables, and the prior's reward and costs, of the real test
    windows and of as many synthetic ones for each seed. Windows must slide by one hour. Writes `results.json` and
    `calibration.png`.
    """
    from tether.experiments import figures, output
    from tether.experiments.calibration import calibrate
    from tether.experiments.learners import load_system

    folder = output.prepare_folder(out)
    real = load_system("carbon", data, 1, seed, held_out=False).test
    calibration = calibrate(real, list(range(seed, seed + seeds)))
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
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError) as error:
        if os.environ.get("TETHER_DEBUG"):
            raise
        message = " ".join(str(error).split())
        print(f"tether: error: {message} (TETHER_DEBUG=1 shows where)", file=sys.stderr)
        sys.exit(2)
