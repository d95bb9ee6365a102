"""The command `tether attack-contract`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.cli import shell
from tether.core import output, validate

if TYPE_CHECKING:
    from tether.assure.contracts import Finding


@dataclass(frozen=True)
class Options:
    """What `tether attack-contract` can be asked for."""

    kind: Annotated[str, typer.Argument(help="continuing, schedule, raised or probability.", metavar="KIND")]
    plants: Annotated[int, typer.Option(help="Plants at a time, one fleet.", min=10)] = 10_000
    rounds: Annotated[int, typer.Option(help="Rounds of each plant, for continuing.", min=100)] = 10_000
    episodes: Annotated[int, typer.Option(help="Episodes of 24 rounds in all, for the others.", min=10)] = (
        1_000_000
    )
    loosen: Annotated[
        float,
        typer.Option(help="Claim constants that are smaller by this factor; above 1 the promise must break."),
    ] = 1.0
    out: shell.Out = Path("out/attack-contract")
    seed: shell.Seed = 0


def attack_contract(options: Options) -> None:
    """Try to break a contract without a last round, with schedules, raised while running, or with a probability.

    A fleet of plants whose constants are exact, so that nothing is to spare, with learners that always push, switch,
    save and strike, or propose rubbish; every round is compared with the prior on the same draws, and the same
    proposals are played without the guard. Exit code 1 if a promise was broken (with a probability: more often than
    it allows); with `--loosen`, if none was.

    For instance `tether attack-contract continuing`, or `tether attack-contract schedule --loosen 1.05`.
    """
    from tether.assure import contracts

    validate.choice("KIND", options.kind, get_args(contracts.Kind))
    loosen = validate.number("--loosen", options.loosen, minimum=1.0)
    folder = output.prepare_folder(options.out)
    sizes = options.plants, options.rounds, options.episodes, options.seed
    with shell.counting(options.kind) as report:
        found = list(contracts.attack(cast(contracts.Kind, options.kind), *sizes, loosen, report))
    shell.console.print(_table(options.kind, loosen, found))
    rows = [{**asdict(each), "kept": each.kept} for each in found]
    shell.finish(folder, {"kind": options.kind, "loosened": loosen, "findings": rows})
    kept = all(each.kept for each in found)
    if kept != (loosen <= 1.0):
        raise typer.Exit(1)


def _table(kind: str, loosen: float, found: list[Finding]) -> Table:
    rounds = sum(each.rounds for each in found)
    loosened = f", constants claimed {loosen:g} times too small" if loosen > 1.0 else ""
    grid = Table(title=f"{kind}: {rounds:,} guarded rounds{loosened}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    grid.add_column(
        "contract", min_width=12, max_width=20
    )  # it may wrap where the terminal is narrow, numbers are never cut
    for name in ("rule", "episodes", "broken", "unguarded", "nearest", "late"):
        grid.add_column(name, justify="right", no_wrap=True)
    for each in found:
        colour = "green" if each.kept else "red"
        allowed = f" of {each.allowed * each.plants:,.0f}" if each.allowed else ""
        grid.add_row(
            each.contract,
            each.rule,
            f"{each.plants:,}",
            f"[{colour}]{each.violations:,}{allowed}",
            f"{each.unguarded:,}",
            f"{each.nearest:.1e}",
            f"{each.late / max(each.early, 1e-300):.3g}",
        )
    grid.caption = "broken: episodes in violation, of those that a probability allows; unguarded: without the guard; \
nearest: smallest margin over its bound; late: mean radius in the last tenth of the rounds over that in the second"
    return grid
