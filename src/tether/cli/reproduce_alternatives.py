"""The command `tether reproduce alternatives`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.cli import shell


@dataclass(frozen=True)
class Options:
    """What `tether reproduce alternatives` can be asked for."""

    systems: Annotated[
        str, typer.Option(help="Systems, comma-separated; without it all that are installed.")
    ] = ""
    episodes: Annotated[
        int, typer.Option(help="Synthetic training episodes; two thirds as many to test on.", min=3)
    ] = 480
    passes: Annotated[int, typer.Option(help="Passes over them.", min=1)] = 60
    limited: Annotated[int, typer.Option(help="Test episodes whose hindsight limit is found.", min=1)] = 100
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that the folder holds.")] = (
        False
    )
    seeds: shell.Seeds = 5
    out: shell.Out = Path("out/alternatives")
    seed: shell.Seed = 0


def reproduce_alternatives(options: Options) -> None:
    """Compare the guard with what people would write instead: reward, violations, share of the hindsight limit.

    A shield that plays the prior once the bound is near, a fixed blend with the prior, a one-step worst-case filter, a
    nominal MPC with the bound as constraint, a penalty on an augmented state (as Saute RL), and a Lagrangian; each at
    the contract that the system's quick evaluation shows. Finished systems stay: `--resume` goes on.

    For instance `tether reproduce alternatives --systems carbon,inference`.
    """
    from tether.engines import folders
    from tether.engines.engine import Local
    from tether.engines.pieces import Piece
    from tether.paper.report import section_of
    from tether.systems import registry

    names = shell.listed(options.systems) or registry.names()
    known = {name: getattr(options, name) for name in ("episodes", "passes", "limited", "seeds", "seed")}
    known |= {"study": "alternatives", "systems": list(names)}
    with folders.claim(options.out) as folder:
        pieces = [Piece(name, partial(_rows, options, name)) for name in names]
        resumes = "the same command with --resume"
        with shell.watching("alternatives", len(pieces), lines=True, resumes=resumes) as watch:
            done = folders.run_pieces(
                folder, {**known, "command": shell.typed()}, pieces,
                resume=options.resume, engine=Local(), watch=watch,
            )  # fmt: skip
        tables = [_table(content) for content in done.values()]
        shell.console.print(*tables, sep="\n")
        shell.finish(folder, {"systems": done, "sections": [section_of(each) for each in tables]})


def _rows(options: Options, name: str, report: Any) -> dict[str, Any]:
    from tether.learn.plant import load_plant
    from tether.paper.evaluation import evaluation_of
    from tether.paper.studies.alternatives import Study
    from tether.systems import registry

    system = registry.find(name)
    plant = load_plant(system, None, options.episodes, options.seed)
    lam, b = evaluation_of(system, "quick").shown
    seeds = shell.seeds_from(options.seed, options.seeds)
    contract = plant.env.contract(lam, b, plant.test.horizon)
    study = Study(plant, contract, seeds, options.passes, options.limited)
    return {"system": name, "lam": lam, "b": b, "episodes": len(plant.test), "rows": study.rows(report)}


def _table(content: dict[str, Any]) -> Table:
    table = Table(
        title=f"{content['system']}: what people would write instead (lam = {content['lam']:g}, b = {content['b']:g})",
        caption=f"{content['episodes']} test episodes; ± standard deviation over the seeds; share: of the hindsight "
        "limit; viol.: share of the episodes that break the promise; worst: largest cost over its bound",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("way", no_wrap=True)
    for name in ("reward", "share", "viol.", "worst"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in content["rows"]:
        rate = float(np.mean(row["violation_rates"]))
        table.add_row(
            row["way"],
            _spread(row["rewards"], 1),
            "-" if row["shares"] is None else _spread(row["shares"], 3),
            f"[{'red' if rate > 0.0 else 'green'}]{rate:.1%}",
            f"{row['worst']:.2f}",
        )
    return table


def _spread(values: list[float], digits: int) -> str:
    middle = f"{np.mean(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ± {np.std(values):.{digits}f}"
