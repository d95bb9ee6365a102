"""The command `tether sensitivity`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tether.cli import shell
from tether.core import output
from tether.engines.engine import run
from tether.engines.pieces import Piece, Report, Store
from tether.systems import registry

if TYPE_CHECKING:
    from tether.assure.wrong_constants import Part, Study


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
    engine: shell.EngineName = "local"
    address: shell.Address = None
    workers: shell.Workers = None


def sensitivity(options: Options) -> None:
    """Show what wrong constants do: reward and violations when the guard is told 1/4 to 4 times the proved ones.

    Each constant alone, then immediate, carried and rho together; under hostile learners and a greedy one, on everyday
    draws and on hostile ones (every series at the ends of its range). Writes `results.json`, `everyday.png` and
    `hostile.png`. The default promise is the tightest of the paper's.

    For instance `tether sensitivity cooling --lam 0 --b 1 --seeds 5`.
    """
    shell.promise(options.lam, options.b)
    name = registry.find(options.system).name
    folder = output.prepare_folder(options.out or shell.default_folder("sensitivity", name))
    with shell.engine(options) as engine:
        names, pieces = engine.plan(_plan, options)
        store = shell.unfinished(folder, options)
        with shell.watching(name, len(pieces), lines=options.engine != "local") as watch:
            run(engine, pieces, store, watch)
        engine.aside(_finish, options, folder, store, names)
    shell.forget(store)


def _plan(options: Options) -> tuple[list[str], list[Piece]]:
    """A piece for each seed and kind of draws: all learners, with all constants in one compiled program."""
    from tether.assure.wrong_constants import DRAWS

    _study(options)  # what is wrong with the options is said before any work
    seeds = shell.seeds_from(options.seed, options.seeds)
    pieces = [
        Piece(f"{kind}-{seed}", partial(_part, options, seed, kind)) for seed in seeds for kind in DRAWS
    ]
    return [piece.name for piece in pieces], pieces


@cache
def _study(options: Options) -> Study:
    from tether.assure.wrong_constants import Study
    from tether.learn.plant import load_plant

    plant = load_plant(registry.find(options.system), options.data, 1, options.seed, held_out=False)
    contract = plant.env.contract(options.lam, options.b, plant.test.horizon)
    everyday = plant.system.draw if options.data is None else plant.test
    return Study(plant.env, contract, options.episodes, everyday=everyday)


def _part(options: Options, seed: int, kind: str, report: Report) -> Part:
    """Compute a piece."""
    return _study(options).part(seed, kind, lambda done, total: report(done, total, ""))


def _finish(options: Options, folder: Path, store: Store, names: list[str]) -> None:
    """Show and write what was found."""
    from tether.assure import wrong_constants
    from tether.core import drawing

    results = _study(options).assemble([store.read(name) for name in names])
    for table in wrong_constants.study_tables(results):
        shell.console.print(table)
    for draws in wrong_constants.DRAWS:
        drawing.save(wrong_constants.study_figure(results, draws), folder / f"{draws}.png")
    shell.finish(folder, results, ["everyday.png", "hostile.png"])
