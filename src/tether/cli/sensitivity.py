"""The command `tether sensitivity`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output
from tether.systems import registry


@dataclass(frozen=True)
class Options:
    """What `tether sensitivity` can be asked for."""

    system: shell.SystemName
    lam: shell.Lam = 0.0
    b: shell.B = 2.0
    episodes: Annotated[int, typer.Option(help="Episodes of each kind of draws and each seed.", min=1)] = 512
    data: shell.Data = None
    seeds: shell.Seeds = 3
    seed: shell.Seed = 0
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for results.json and the figures. [default: out/sensitivity/SYSTEM]"
        ),
    ] = None


def sensitivity(options: Options) -> None:
    """Show what wrong constants do: reward and violations when the guard is told 1/4 to 4 times the proved ones.

    Each constant alone, then immediate, carried and rho together; under hostile learners and a greedy one, on everyday
    draws and on hostile ones (every series at the ends of its range). Writes `results.json`, `everyday.png` and
    `hostile.png`. The default promise is the tightest of the paper's.

    For instance `tether sensitivity cooling --lam 0 --b 1 --seeds 5`.
    """
    from tether.assure import wrong_constants
    from tether.core import drawing
    from tether.learn.plant import load_plant

    lam, b = shell.promise(options.lam, options.b)
    plant = load_plant(registry.find(options.system), options.data, 1, options.seed, held_out=False)
    name = plant.system.name
    folder = output.prepare_folder(options.out or shell.default_folder("sensitivity", name))
    with shell.counting(name) as report:
        results = wrong_constants.study(
            plant.env,
            plant.env.contract(lam, b, plant.test.horizon),
            options.episodes,
            shell.seeds_from(options.seed, options.seeds),
            everyday=plant.system.draw if options.data is None else plant.test,
            report=report,
        )
    for table in wrong_constants.study_tables(results):
        shell.console.print(table)
    for draws in wrong_constants.DRAWS:
        drawing.save(wrong_constants.study_figure(results, draws), folder / f"{draws}.png")
    shell.finish(folder, results, ["everyday.png", "hostile.png"])
