"""The commands of `tether`, by name: each says what it does, shows its progress and writes `results.json`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer

from tether.cli import (
    attack,
    attack_contract,
    bench,
    bench_compile,
    bench_data,
    bench_engines,
    bench_estimate,
    bench_faults,
    bench_fleet,
    bench_late,
    bench_learners,
    bench_monitor,
    bench_scale,
    bench_serve,
    compile_model,
    data_build,
    data_calibration,
    data_describe,
    demo,
    estimate,
    frontier,
    journal,
    limit,
    report,
    reproduce,
    reproduce_alternatives,
    reproduce_estimate,
    reproduce_open,
    reproduce_paced,
    reproduce_published,
    reproduce_theory,
    sensitivity,
    serve,
    shell,
    train,
    verify,
)
from tether.systems import registry

app = typer.Typer(
    name="tether",
    help="Let a learning policy run your plant while its cost stays within reach of the policy you trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
reproduce_group = typer.Typer(
    name="reproduce",
    cls=reproduce.Group,
    help="Run the paper's evaluation, with tables, figures and results.json.",
    no_args_is_help=True,
)
bench_group = typer.Typer(
    name="bench", help="Measure speed against yardsticks, in one run, as ratios.", no_args_is_help=True
)
data_group = typer.Typer(
    name="data", no_args_is_help=True, help="Look at data files and make episodes from them."
)

journal_group = typer.Typer(
    name="journal", no_args_is_help=True, help="Look at what a guard or a service has written down."
)


def _add(group: typer.Typer, commands: dict[str, Callable[[Any], None]], of: str | None = None) -> None:
    """Each name as a command of the group that does this work; `of` stands in the list of the group."""
    for name, work in commands.items():
        path = f"tether {name}" if group is app else f"tether {group.info.name} {name}"
        group.command(name, short_help=of and of.format(name))(shell.command(path, work))


_add(
    app,
    {
        "compile": compile_model.compile_model,
        "train": train.train,
        "limit": limit.limit,
        "frontier": frontier.frontier,
        "estimate": estimate.estimate,
        "attack": attack.attack,
        "attack-contract": attack_contract.attack_contract,
        "verify": verify.verify,
        "sensitivity": sensitivity.sensitivity,
        "report": report.report,
        "serve": serve.serve,
        "token": serve.token,
        "health": serve.health,
        "plant": serve.plant,
        "demo": demo.demo,
    },
)
_add(
    reproduce_group,
    dict.fromkeys((*registry.names(), reproduce.OWN), reproduce.reproduce),
    of="Run the paper's evaluation of the system {}.",
)
_add(
    reproduce_group,
    {
        "published": reproduce_published.reproduce_published,
        "theory": reproduce_theory.reproduce_theory,
        "estimate": reproduce_estimate.reproduce_estimate,
        "open": reproduce_open.reproduce_open,
        "paced": reproduce_paced.reproduce_paced,
        "alternatives": reproduce_alternatives.reproduce_alternatives,
    },
)
_add(
    bench_group,
    {
        "guard": bench.guard,
        "sets": bench.sets,
        "compile": bench_compile.compile_,
        "monitor": bench_monitor.monitor,
        "train": bench.train,
        "exact": bench.exact,
        "estimate": bench_estimate.estimate,
        "data": bench_data.data,
        "serve": bench_serve.serve,
        "fuzz": bench_serve.fuzz,
        "faults": bench_faults.faults,
        "engines": bench_engines.engines,
        "scale": bench_scale.scale,
        "fleet": bench_fleet.fleet,
        "continuing": bench_fleet.continuing,
        "late": bench_late.late,
        "learners": bench_learners.learners,
    },
)
_add(
    data_group,
    {
        "describe": data_describe.describe,
        "build": data_build.build,
        "calibration": data_calibration.calibration,
    },
)
_add(journal_group, {"verify": journal.verify, "replay": journal.replay, "export": journal.export})
for _group in (reproduce_group, bench_group, data_group, journal_group):
    app.add_typer(_group)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        shell.console.print(f"tether {metadata.version('tether-rl')}")
        raise typer.Exit
