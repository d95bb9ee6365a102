"""The command `tether sensitivity`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tether.cli.train import Data
from tether.core import validate

console = Console()


def command(
    system: Annotated[str, typer.Argument(help="carbon, inference or cooling.")],
    lam: Annotated[float, typer.Option(help="Relative slack of the promise.")] = 0.0,
    b: Annotated[float, typer.Option(help="Slack a round of the promise, cost units.")] = 2.0,
    episodes: Annotated[int, typer.Option(help="Episodes of each kind of draws and each seed.", min=1)] = 512,
    data: Data = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds; the spread over them is shown.", min=1)] = 3,
    seed: Annotated[int, typer.Option("--seed", help="First random seed.", min=0)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for results.json and the figures. [default: out/sensitivity/SYSTEM]"
        ),
    ] = None,
) -> None:
    """Show what wrong constants do: reward and violations when the guard is told 1/4 to 4 times the proved ones.

    Each constant alone, then immediate, carried and rho together; under hostile learners and a greedy one, on everyday
    draws and on hostile ones (every series at the ends of its range). Writes `results.json`, `everyday.png` and
    `hostile.png`. The default promise is the tightest of the paper's.

    For instance `tether sensitivity cooling --lam 0 --b 1 --seeds 5`.
    """
    from tether.assure import wrong_constants
    from tether.core import drawing, output
    from tether.paper.learners import load_system

    lam, b = validate.number("--lam", lam, minimum=0.0), validate.number("--b", b, minimum=0.0)
    plant = load_system(system, data, 1, seed, held_out=False)
    env = plant.env
    folder = output.prepare_folder(Path("out/sensitivity") / system if out is None else out)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(system, total=None)
        results = wrong_constants.study(
            env,
            env.contract(lam, b, plant.test.horizon),
            episodes,
            list(range(seed, seed + seeds)),
            everyday=None if data is None else plant.test,
            report=lambda done, total: progress.update(task, completed=done, total=total),
        )
    for table in wrong_constants.study_tables(results):
        console.print(table)
    for draws in wrong_constants.DRAWS:
        drawing.save(wrong_constants.study_figure(results, draws), folder / f"{draws}.png")
    content = results | {"provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]]))}
    output.write_json(folder / "results.json", content)
    console.print(
        f"Figures: {folder / 'everyday.png'}, {folder / 'hostile.png'}   Results: {folder / 'results.json'}",
        soft_wrap=True,
    )
