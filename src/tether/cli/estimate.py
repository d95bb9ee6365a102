"""The commands `tether estimate`, `tether reproduce estimate` and `tether bench estimate`."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tether.core import output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tether.estimation.estimates import Estimates

console = Console()
SLOPES = ("immediate", "carried", "L_c_prior", "L_c_state", "L_f_action", "L_f_state", "L_pi")
MEMORY_LIMIT_MB = 1000.0


def command(
    file: Annotated[Path, typer.Argument(help="The log: CSV (plain or gzip) or Parquet, one row a round.")],
    state: Annotated[str, typer.Option(help="Columns of the state. [default: state, state_*]")] = "",
    action: Annotated[str, typer.Option(help="Columns of the action. [default: action, action_*]")] = "",
    prior: Annotated[str, typer.Option(help="Columns of the prior's action. [default: prior, prior_*]")] = "",
    context: Annotated[
        str,
        typer.Option(help="Columns that no action changes: demand, weather. [default: context, context_*]"),
    ] = "",
    next_state: Annotated[
        str,
        typer.Option(
            help="Columns of the state after the round. [default: next_state*, or the next row's state]"
        ),
    ] = "",
    cost: Annotated[str, typer.Option(help="Column of the cost.")] = "cost",
    episode: Annotated[str, typer.Option(help="Column of the episode.")] = "episode",
    round_: Annotated[str, typer.Option("--round", help="Column of the round.")] = "round",
    confidence: Annotated[float, typer.Option(help="Of each limit, one-sided.")] = 0.95,
    safety: Annotated[float, typer.Option(help="Factor on the limits, at least 1.")] = 1.2,
    times: Annotated[
        float, typer.Option(help="How much longer than the log the operation is that the constants are for.")
    ] = 20.0,
    seed: Annotated[int, typer.Option("--seed", help="Of the sample of rows.", min=0)] = 0,
    out: Annotated[Path, typer.Option("--out", help="Folder for results.json and the figures.")] = Path(
        "out/estimate"
    ),
) -> None:
    """Estimate the guard's constants from a log of the prior with a small dither.

    Columns `episode`, `round`, `state`, `action`, `cost`, and if you have them `next_state`, `prior` (what the prior
    would have played) and `context`; several as `state_1, state_2`. Names that differ are given by the options,
    comma-separated. The file is read in pieces: memory does not grow with it. The numbers are estimates for the region
    that the log visits, with a confidence and a safety factor; they are not proved.

    For instance `tether estimate log.csv`, or
    `tether estimate plant.parquet --state level,pressure --action valve --prior pid --context demand --cost eur`.
    """
    from tether.estimation.estimate import estimate

    given = {
        role: tuple(name.strip() for name in text.split(",") if name.strip())
        for role, text in (
            ("state", state),
            ("action", action),
            ("prior", prior),
            ("context", context),
            ("next_state", next_state),
        )
    }
    folder = output.prepare_folder(out)
    begin = time.perf_counter()
    with _progress() as bar:
        task = bar.add_task("rows", total=None)
        found = estimate(
            file,
            columns=given | {"cost": cost, "episode": episode, "round": round_},
            confidence=confidence,
            safety=safety,
            times=times,
            seed=seed,
            progress=lambda rows: bar.update(task, completed=rows),
        )
    seconds, memory = time.perf_counter() - begin, output.peak_memory()
    console.print(estimates_table(found), highlight=False)
    for text in found.warnings:
        console.print(f"warning: {text}", highlight=False)
    if all(found[name].identified for name in ("immediate", "carried", "rho")):
        bounds = found.sensitivity
        console.print(
            f"Use (estimated, not proved): tether.Sensitivity(immediate={bounds.immediate:.6g}, "
            f"carried={bounds.carried:.6g}, "
            f"perturbation=tether.geometric({found.perturbation.rho:.6g}, {found.perturbation.scale:.6g})), "
            f"cost_floor={found['cost_floor'].recommended:.6g}",
            highlight=False,
            soft_wrap=True,
        )
    else:
        console.print("No Sensitivity can be recommended from this log; the warnings say what to log.")
    console.print(f"{found.rows:,} rows in {seconds:.1f} s, peak memory {memory:.0f} MB", highlight=False)
    from tether.core import drawing

    made = {"slopes.png": slopes_figure(found), "perturbation.png": perturbation_figure(found)}
    for name, figure in made.items():
        drawing.save(figure, folder / name)
    results = found.to_dict() | {
        "file": str(file),
        "seconds": seconds,
        "peak_memory_mb": memory,
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(
        f"Figures: {folder / 'slopes.png'}, {folder / 'perturbation.png'}   Results: {folder / 'results.json'}",
        soft_wrap=True,
    )


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    terminal = Console(stderr=True)
    # Elsewhere than on a terminal a bar would only leave an empty line before an error.
    return Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)


def _styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """In the house style, which is loaded when it is first needed."""

    def styled(*arguments: Any) -> Figure:
        from tether.core import drawing

        return drawing.styled(draw)(*arguments)

    return styled


def estimates_table(found: Estimates) -> Table:
    """What was found, as a table."""
    title = f"Estimated, not proved: {found.rows:,} rows, confidence {found.confidence:g}, safety {found.safety:g}"
    table = Table("constant", "recommended", "most likely", "interval", "rows", "what it is", title=title)
    for name, each in found.constants.items():
        if each.value is None or each.low is None or each.high is None or each.recommended is None:
            table.add_row(name, "not identified", "", "", "0", each.meaning)
            continue
        table.add_row(
            name,
            f"{each.recommended:.4g}",
            f"{each.value:.4g}",
            f"{each.low:.4g} to {each.high:.4g}",
            f"{each.evidence:,}",
            f"{each.meaning}, {each.unit}",
        )
    return table


@_styled
def slopes_figure(found: Estimates) -> Figure:
    """For each constant: local slopes over the sample, the extrapolated value, its limit and the recommendation."""
    from tether.core import drawing

    names = [name for name in found.constants if name in found.slopes and found[name].identified]
    columns = 2
    rows = -(-len(names) // columns)
    figure, axes = drawing.new_figure(9.0, 2.1 * rows + 0.6, columns=columns, rows=rows)
    for axis, name in zip(axes.ravel(), names, strict=False):
        each = found[name]
        assert each.value is not None
        assert each.recommended is not None
        assert each.low is not None
        assert each.high is not None
        floor = name == "cost_floor"
        values = -found.slopes[name] if floor else found.slopes[name]
        axis.hist(values, bins=60, color=drawing.GREY, alpha=0.6, log=True, label="seen, local")
        axis.axvline(
            each.value,
            color=drawing.BLUE,
            linestyle="--",
            label=f"{found.times:g} times as long, most likely",
        )
        limit = each.low if floor else each.high
        axis.axvline(limit, color=drawing.BLUE, label=f"its limit, confidence {found.confidence:g}")
        axis.axvline(each.recommended, color=drawing.RED, label="recommended")
        axis.set_title(f"{name}: {each.meaning}", loc="left", fontsize=8)
        axis.set_xlabel(each.unit)
        axis.set_ylabel("rows")
    for axis in axes.ravel()[len(names) :]:
        axis.axis("off")
    handles, labels = axes.ravel()[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(f"Estimated, not proved: {found.rows:,} logged rounds", x=0.01, ha="left")
    return figure


@_styled
def perturbation_figure(found: Estimates) -> Figure:
    """How a deviation fades: measured on average, and the recommended p(n)."""
    from tether.core import drawing

    figure, axes = drawing.new_figure(9.0, 3.6, columns=2)
    left, right = axes[0]
    impulse, push = found.impulse, found["L_f_action"]
    later = np.arange(24 if impulse is None else len(impulse.state))
    p = found.scale * (found["rho"].recommended or 0.0) ** later
    if impulse is not None and push.recommended is not None:
        left.errorbar(
            later,
            impulse.state,
            2.0 * impulse.state_error,
            fmt="o",
            color=drawing.BLUE,
            markersize=3,
            label="measured mean, two standard errors",
        )
        left.plot(later, push.recommended * p, color=drawing.RED, label="recommended: L_f_action p(n)")
        carried, immediate = found["carried"].recommended, found["immediate"].recommended
        assert carried is not None
        assert immediate is not None
        right.errorbar(
            later, impulse.cost, 2.0 * impulse.cost_error, fmt="o", color=drawing.BLUE, markersize=3
        )
        right.plot(later, np.concatenate([[immediate], carried * p[:-1]]), color=drawing.RED)
        right.set_ylabel("response of the cost, cost per action")
        right.set_title("immediate, then carried p(n - 1)", loc="left")
        noise = float(np.median(impulse.state_error)), float(np.median(impulse.cost_error))
        for axis, level in zip((left, right), noise, strict=True):
            axis.set_ylim(bottom=0.3 * level)
    else:
        left.plot(later, p, color=drawing.RED, label="recommended p(n), not checked against responses")
        right.axis("off")
    for axis in (left, right):
        axis.set_yscale("log")
        axis.set_xlabel("rounds after the deviation, n")
    left.set_ylabel("response of the state, state per action")
    left.set_title("What a unit deviation leaves n rounds after the next state", loc="left")
    left.legend(fontsize=8)
    return figure


# How good it is, on systems whose constants are known.


@dataclass(frozen=True)
class Judged:
    """One system: recommended over true, at least 1 where the recommendation is sound."""

    seed: int
    states: int
    actions: int
    ratios: dict[str, float]
    """Of every constant. cost_floor: depth below the mean cost. p: the sum over n. felt: the sum of what the guard
    assumes a deviation does to the costs of this and the next rounds, over what it does at most."""
    sound: dict[str, bool]
    truth: dict[str, Any]
    recommended: dict[str, Any]
    warnings: list[str]


GUARD = ("immediate", "carried", "p", "cost_floor")
"""What the guard is given."""


def judge(seed: int, rows: int) -> Judged:
    """Estimate the constants of the system of a seed from `rows` logged rounds, and compare."""
    from tether.estimation import known_plants as known
    from tether.estimation.estimate import estimate

    system = known.make_plant(seed)
    episodes = rows // known.ROUNDS
    found = estimate(known.play(system, episodes, seed), seed=seed)
    truth = known.find_truth(system, episodes, 10_000_000 + seed)
    numbers = {name: found.needed(name) for name in (*SLOPES, "cost_floor", "rho")}
    p = found.scale * numbers["rho"] ** np.arange(known.LAGS + 1)
    felt = np.concatenate([[numbers["immediate"]], numbers["carried"] * p[:-1]])
    depth = truth.mean_cost - truth.cost_floor
    ratios = {name: numbers[name] / getattr(truth, name) for name in SLOPES}
    ratios |= {
        "p": float(p.sum() / truth.p.sum()),
        "cost_floor": (truth.mean_cost - numbers["cost_floor"]) / depth,
        "felt": float(felt.sum() / truth.cost_response.sum()),
    }
    sound = {name: ratios[name] >= 1.0 for name in (*SLOPES, "cost_floor")}
    sound |= {"p": bool(np.all(p >= truth.p)), "felt": bool(np.all(felt >= truth.cost_response))}
    exact = {name: getattr(truth, name) for name in (*SLOPES, "cost_floor", "mean_cost")}
    return Judged(
        seed=seed,
        states=len(system.sat),
        actions=len(system.r),
        ratios=ratios,
        sound=sound,
        truth=exact | {"p": truth.p, "felt": truth.cost_response},
        recommended=numbers | {"scale": found.scale},
        warnings=list(found.warnings),
    )


def judged_table(judged: Sequence[Judged]) -> Table:
    """How often each recommendation is not below the truth, and how far above it."""
    table = Table(
        *("constant", "not below the truth", "recommended / true: median", "smallest", "largest", "aims"),
        title=f"{len(judged)} systems with known constants",
    )
    enough = int(np.ceil(0.95 * len(judged)))
    for name in judged[0].ratios:
        good = sum(each.sound[name] for each in judged)
        ratios = [each.ratios[name] for each in judged]
        median = float(np.median(ratios))
        aims = (
            ""
            if name == "felt"
            else f"{'yes' if good >= enough else 'NO'}, {'yes' if median <= 2.0 else 'NO'}"
        )
        table.add_row(
            name,
            f"{good} of {len(judged)}",
            f"{median:.2f}",
            f"{min(ratios):.2f}",
            f"{max(ratios):.2f}",
            aims,
        )
    together = sum(all(each.sound[name] for name in GUARD) for each in judged)
    table.add_row(
        "all of the guard's",
        f"{together} of {len(judged)}",
        "",
        "",
        "",
        "yes" if together >= enough else "NO",
    )
    return table


@_styled
def judged_figure(judged: Sequence[Judged]) -> Figure:
    """Recommended over true, a point for each system."""
    from tether.core import drawing

    figure, axes = drawing.new_figure(8.0, 3.8)
    axis = axes[0, 0]
    for place, name in enumerate(judged[0].ratios):
        values = np.array([each.ratios[name] for each in judged])
        offsets = np.linspace(-0.25, 0.25, len(values))
        colours = [drawing.BLUE if each.sound[name] else drawing.RED for each in judged]
        axis.scatter(place + offsets, values, s=12, c=colours)
        axis.plot([place - 0.3, place + 0.3], [np.median(values)] * 2, color=drawing.BLACK)
    axis.axhline(1.0, color=drawing.RED, linewidth=1.0)
    axis.axhline(2.0, color=drawing.GREY, linestyle="--", linewidth=1.0)
    axis.set_yscale("log")
    axis.set_yticks([0.5, 1, 2, 4, 8, 16, 32], ["0.5", "1", "2", "4", "8", "16", "32"])
    axis.set_xticks(range(len(judged[0].ratios)), list(judged[0].ratios), rotation=30)
    axis.set_ylabel("recommended / true")
    axis.set_title(f"{len(judged)} systems; line: median; red: below the truth", loc="left")
    return figure


def reproduce_command(
    out: Annotated[Path, typer.Option("--out", help="Folder for results.json and the figure.")] = Path(
        "out/estimate-known"
    ),
    systems: Annotated[int, typer.Option(help="Number of systems; their seeds count up.", min=1)] = 20,
    rows: Annotated[int, typer.Option(help="Logged rounds of each.", min=2000)] = 100_000,
    seed: Annotated[int, typer.Option("--seed", help="First seed.", min=0)] = 0,
) -> None:
    """Judge `tether estimate` on systems whose constants are known exactly.

    Scalar and vector systems, drawn from the seed, with additive and multiplicative noise
    (`tether.estimation.known_plants` says how, and what the truth is). Aims: recommended constants not below the
    truth in 19 of 20 systems, and at most twice the truth in the median. Some minutes. Writes `results.json` and
    `known.png`.
    """
    folder = output.prepare_folder(out)
    judged = []
    with _progress() as bar:
        task = bar.add_task("systems", total=systems)
        for each in range(seed, seed + systems):
            judged.append(judge(each, rows))
            # After each system, so that a run that is stopped leaves what it has.
            content = {
                "rows": rows,
                "systems": [vars(system) for system in judged],
                "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
            }
            output.write_json(folder / "results.json", content)
            bar.update(task, advance=1)
    console.print(judged_table(judged), highlight=False)
    from tether.core import drawing

    drawing.save(judged_figure(judged), folder / "known.png")
    console.print(f"Figure: {folder / 'known.png'}   Results: {folder / 'results.json'}", soft_wrap=True)


# Memory.


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


def bench_command(
    rows: Annotated[int, typer.Option(help="Rows of the log.", min=10_000)] = 10_000_000,
    seed: Annotated[int, typer.Option("--seed", help="Of the log.", min=0)] = 0,
    out: Annotated[Path, typer.Option("--out", help="Folder for results.json.")] = Path("out/bench/estimate"),
) -> None:
    """Measure time and peak memory of `tether estimate` on a large CSV file and the same in Parquet.

    The files are made in a temporary folder (about 0.8 GB for 10 million rows) and removed. Each is read in a process
    of its own. Needs polars.
    """
    import polars

    folder = output.prepare_folder(out)
    measured = []
    with tempfile.TemporaryDirectory(prefix="tether-bench-") as place:
        text = Path(place) / "log.csv"
        write_log(text, rows, seed)
        polars.scan_csv(text).sink_parquet(text.with_suffix(".parquet"))
        for file in (text, text.with_suffix(".parquet")):
            program = (
                "import json,sys,time; from tether.estimation.estimate import estimate; "
                "from tether.core.output import peak_memory; begin=time.perf_counter(); "
                "found=estimate(sys.argv[1]); "
                "print(json.dumps([found.rows, time.perf_counter()-begin, peak_memory()]))"
            )
            done = subprocess.run(
                [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(
                    f"estimate failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
                )
            read, seconds, memory = json.loads(done.stdout)
            measured.append(
                {
                    "file": file.suffix[1:],
                    "megabytes": file.stat().st_size / 1e6,
                    "rows": read,
                    "seconds": seconds,
                    "peak_memory_mb": memory,
                }
            )
    table = Table("file", "size (MB)", "rows", "time (s)", "peak memory (MB)", title="tether bench estimate")
    for each in measured:
        table.add_row(
            str(each["file"]),
            f"{each['megabytes']:.0f}",
            f"{each['rows']:,}",
            f"{each['seconds']:.1f}",
            f"{each['peak_memory_mb']:.0f}",
        )
    console.print(table, highlight=False)
    kept = all(each["peak_memory_mb"] < MEMORY_LIMIT_MB for each in measured)
    console.print(f"peak memory below {MEMORY_LIMIT_MB:g} MB: {'yes' if kept else 'NO'}", highlight=False)
    results = {
        "measured": measured,
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(f"Results: {folder / 'results.json'}", soft_wrap=True)
