"""The command `tether estimate`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tether.cli import shell
from tether.core import output

if TYPE_CHECKING:
    from tether.estimation.estimates import Estimates


@dataclass(frozen=True)
class Options:
    """What `tether estimate` can be asked for."""

    file: Annotated[
        Path,
        typer.Argument(
            help="The log: CSV (plain or gzip) or Parquet, one row a round; or minari:ID, a Minari data set."
        ),
    ]
    state: Annotated[str, typer.Option(help="Columns of the state. [default: state, state_*]")] = ""
    action: Annotated[str, typer.Option(help="Columns of the action. [default: action, action_*]")] = ""
    prior: Annotated[str, typer.Option(help="Columns of the prior's action. [default: prior, prior_*]")] = ""
    context: Annotated[
        str,
        typer.Option(help="Columns that no action changes: demand, weather. [default: context, context_*]"),
    ] = ""
    next_state: Annotated[
        str,
        typer.Option(
            help="Columns of the state after the round. [default: next_state*, or the next row's state]"
        ),
    ] = ""
    cost: Annotated[str, typer.Option(help="Column of the cost.")] = "cost"
    episode: Annotated[str, typer.Option(help="Column of the episode.")] = "episode"
    round_: Annotated[str, typer.Option("--round", help="Column of the round.")] = "round"
    confidence: Annotated[float, typer.Option(help="Of each limit, one-sided.")] = 0.95
    safety: Annotated[float, typer.Option(help="Factor on the limits, at least 1.")] = 1.2
    times: Annotated[
        float, typer.Option(help="How much longer than the log the operation is that the constants are for.")
    ] = 20.0
    known: Annotated[
        str,
        typer.Option(
            help="What needs no estimate: 'rho=1' where no gap can grow under the prior, as in a queue."
        ),
    ] = ""
    seed: Annotated[int, shell.seed_option("Of the sample of rows.")] = 0
    out: shell.Out = Path("out/estimate")

    def columns(self) -> dict[str, tuple[str, ...] | str]:
        """The names of the columns, by what is in them."""
        several = ("state", "action", "prior", "context", "next_state")
        given = {role: tuple(shell.listed(getattr(self, role))) for role in several}
        return given | {"cost": self.cost, "episode": self.episode, "round": self.round_}


def estimate(options: Options) -> None:
    """Estimate the guard's constants from a log of the prior with a small dither.

    Columns `episode`, `round`, `state`, `action`, `cost`, and if you have them `next_state`, `prior` (what the prior
    would have played) and `context`; several as `state_1, state_2`. Names that differ are given by the options,
    comma-separated. The file is read in pieces: memory does not grow with it. The numbers are estimates for the region
    that the log visits, with a confidence and a safety factor; they are not proved.

    For instance `tether estimate log.csv`, or
    `tether estimate plant.parquet --state level,pressure --action valve --prior pid --context demand --cost eur`.
    """
    from tether.core import drawing
    from tether.estimation import figures
    from tether.estimation.estimate import estimate

    folder = output.prepare_folder(options.out)
    begin = time.perf_counter()
    with shell.counting("rows") as report:
        found = estimate(
            options.file,
            columns=options.columns(),
            confidence=options.confidence,
            safety=options.safety,
            times=options.times,
            known=_known(options.known),
            seed=options.seed,
            progress=report,
        )
    seconds, memory = time.perf_counter() - begin, output.peak_memory()
    shell.console.print(figures.estimates_table(found), highlight=False)
    _recommend(found)
    shell.console.print(
        f"{found.rows:,} rows in {seconds:.1f} s, peak memory {memory:.0f} MB", highlight=False
    )
    drawing.save(figures.slopes_figure(found), folder / "slopes.png")
    drawing.save(figures.perturbation_figure(found), folder / "perturbation.png")
    content = {"file": str(options.file), "seconds": seconds, "peak_memory_mb": memory}
    shell.finish(folder, found.to_dict() | content, ["slopes.png", "perturbation.png"])


def _known(text: str) -> dict[str, float]:
    """The option `--known`: name=number, comma-separated."""
    found = {}
    for each in shell.listed(text):
        name, _, value = each.partition("=")
        (found[name.strip()],) = shell.numbers("--known", value)
    return found


def _recommend(found: Estimates) -> None:
    """Say what to do with the estimates."""
    for text in found.warnings:
        shell.console.print(f"warning: {text}", highlight=False)
    if not found.identified:
        shell.console.print("No Sensitivity can be recommended from this log; the warnings say what to log.")
        return
    useless = found.useless()
    if useless is not None:
        shell.console.print(useless, highlight=False, soft_wrap=True)
    bounds = found.sensitivity
    shell.console.print(
        f"Use (estimated, not proved): tether.Sensitivity(immediate={bounds.immediate:.6g}, "
        f"carried={bounds.carried:.6g}, "
        f"perturbation=tether.geometric({found.perturbation.rho:.6g}, {found.perturbation.scale:.6g})), "
        f"cost_floor={found['cost_floor'].recommended:.6g}",
        highlight=False,
        soft_wrap=True,
    )
