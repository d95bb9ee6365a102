"""The command `tether attack`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tether.cli.train import numbers
from tether.core import validate

if TYPE_CHECKING:
    from tether.assure.attack import Finding

console = Console()


def command(
    system: Annotated[str, typer.Argument(help="carbon, inference or cooling.")],
    certificate: Annotated[
        str, typer.Option(help="What is attacked: structured, shadowing or lipschitz (rule tight).")
    ] = "structured",
    lams: Annotated[str, typer.Option(help="Relative slacks, comma-separated.")] = "0,2",
    bs: Annotated[str, typer.Option(help="Slacks a round, comma-separated.")] = "0.01,2",
    episodes: Annotated[
        int, typer.Option(help="Episodes in all; at least a batch for each system and contract.", min=1)
    ] = 1_000_000,
    horizon: Annotated[int, typer.Option(help="Rounds of an episode.", min=1)] = 24,
    loosen: Annotated[
        str | None,
        typer.Option(
            help="Play the same attack with one bound loosened, which must then break the promise: now, later, floor, "
            "above or below; several comma-separated, or all. Structured certificates only."
        ),
    ] = None,
    factor: Annotated[float, typer.Option(help="By how much --loosen loosens.")] = 1.05,
    precision: Annotated[
        str, typer.Option(help="float64 or float32: of plant, guard and costs.")
    ] = "float64",
    batch: Annotated[int, typer.Option(help="Episodes that are played at a time.", min=10)] = 10_000,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for results.json; made if it is not there.")
    ] = Path("out/attack"),
    seed: Annotated[int, typer.Option("--seed", help="Random seed.", min=0)] = 0,
) -> None:
    """Try to break the promise of a certificate, and say how near it came.

    Noise at its worst corners (held, mixed, switched in time, so that gaps are hidden first and released later), demand
    and renewables at their limits, policies that propose extremes, alternate, save and strike or propose rubbish; half
    of each batch is bred from the episodes that came nearest to breaking the promise. Every round is audited against
    the prior on the same draws. The same policies without the guard show that the attack is one. Besides the paper's
    parameters, systems are attacked whose parameters stress a bound, and the paper's with sensors, actuators and
    meters of float32, float16 and mixed types. Exit code 1 if the promise was broken or the guard gave a false alarm;
    with `--loosen`, if the promise was not broken.

    For instance `tether attack carbon`, `tether attack inference --loosen all --episodes 200000`, or
    `tether attack carbon --certificate lipschitz --lams 0 --bs 1`.
    """
    from tether.assure import attack
    from tether.core import output
    from tether.simulate.rollout import Precision

    validate.choice("system", system, tuple(attack.BOUNDS))
    validate.choice("--certificate", certificate, ("structured", "shadowing", "lipschitz"))
    validate.choice("--precision", precision, get_args(Precision))
    validate.number("--factor", factor, above=1.0)
    loosened: list[str | None] = [None]
    if loosen is not None:
        if certificate != "structured":
            raise ValueError("--loosen is for --certificate structured, whose bounds it knows")
        known = attack.BOUNDS[system]
        loosened = list(known) if loosen == "all" else [each.strip() for each in loosen.split(",")]
        for each in loosened:
            validate.choice("--loosen", each, (*known, "all"))
    grid = [(lam, b) for b in numbers("--bs", bs) for lam in numbers("--lams", lams)]
    plants = attack.systems(system)
    if loosen is None and precision == "float64":
        plants = plants | attack.coarse_systems(system)
    contracts = [
        (name, env, env.contract(lam, b, horizon)) for name, env in plants.items() for lam, b in grid
    ]
    batches = max(1, -(-episodes // (len(contracts) * batch)))
    folder = output.prepare_folder(out)

    findings: dict[str | None, list[Finding]] = {bound: [] for bound in loosened}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("episodes", total=len(loosened) * len(contracts) * batches * batch)
        for bound in loosened:
            for name, env, contract in contracts:
                found = attack.attack(
                    name,
                    env,
                    attack.certify(env, certificate, contract, bound, factor),
                    batches * batch,
                    seed,
                    batch=batch,
                    precision=cast(Precision, precision),
                    report=lambda done: progress.advance(task, done),
                )
                findings[bound].append(found)

    for bound, found_all in findings.items():
        console.print(_table(f"{system}, {certificate}", bound, factor, found_all))
    broken = {bound: sum(each.violations for each in found) for bound, found in findings.items()}
    missed = [bound for bound, count in broken.items() if (count > 0) == (bound is None)]
    alarms = 0
    if loosen is None:
        alarms = sum(each.breaches for each in findings[None])
        console.print(
            "The promise was BROKEN." if missed else "The promise was kept in every round of every episode."
        )
        console.print(f"False alarms of the guard (an assumption breach that was none): {alarms}")
    else:
        for bound, count in broken.items():
            verdict = f"found: {count} episodes break the promise" if count else "NOT found"
            console.print(f"{bound} loosened by {factor - 1.0:.3g}: {verdict}")
    results = {
        "system": system,
        "certificate": certificate,
        "horizon": horizon,
        "precision": precision,
        "factor": factor,
        "attacks": [
            {"loosened": bound, **asdict(each)} for bound, found_all in findings.items() for each in found_all
        ],
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", results)
    console.print(f"Results: {folder / 'results.json'}")
    if missed or alarms:
        raise typer.Exit(1)


def _table(title: str, bound: str | None, factor: float, findings: list[Finding]) -> Table:
    loosened = "" if bound is None else f", {bound} loosened by {factor - 1.0:.3g}"
    table = Table(title=title + loosened, box=SIMPLE_HEAD, show_footer=True)
    table.padding = (0, 1, 0, 0)
    table.caption = "margin: bound minus cost, cost units, and as a share of the bound, where it was smallest"
    total, violations = sum(each.episodes for each in findings), sum(each.violations for each in findings)
    unguarded = sum(each.unguarded * each.episodes for each in findings) / total
    table.add_column("system", "all", no_wrap=True)
    feet = {
        "lam": "",
        "b": "",
        "episodes": f"{total}",
        "viol.": f"{violations}",
        "margin": f"{min(each.worst_margin for each in findings):.2g}",
        "share": f"{min(each.nearest for each in findings):.1g}",
        "unguarded": f"{unguarded:.0%}",
    }
    for name, foot in feet.items():
        table.add_column(name, foot, justify="right", no_wrap=True)
    for each in findings:
        table.add_row(
            each.system,
            f"{each.lam:g}",
            f"{each.b:g}",
            f"{each.episodes}",
            f"{each.violations}",
            f"{each.worst_margin:.2g}",
            f"{each.nearest:.1g}",
            f"{each.unguarded:.0%}",
        )
    return table
