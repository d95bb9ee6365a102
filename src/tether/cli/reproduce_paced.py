"""The command `tether reproduce paced`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell


@dataclass(frozen=True)
class Options:
    """What `tether reproduce paced` can be asked for."""

    paper: Annotated[Path, typer.Option(help="Folder with the authors' networks_b2.npz.")]
    data: Annotated[Path, typer.Option(help="Folder with the authors' carbon data (.mat).")]
    lams: shell.Lams = "0,2,4,6,8,10"
    bs: shell.Bs = "2,6"
    episodes: Annotated[
        int, typer.Option(help="Test windows whose hindsight limit is found, for the shares.", min=1)
    ] = 236
    processes: Annotated[
        int | None, typer.Option(help="How many find limits at a time; all processors by default.", min=1)
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that the folder holds.")] = (
        False
    )
    seeds: shell.Seeds = 3
    out: shell.Out = Path("out/paced")
    seed: Annotated[int, shell.seed_option("First random seed of the search for the pace.")] = 0


def reproduce_paced(options: Options) -> None:
    """Pace the authors' RL network, which does not know the guard, and see what a larger safe set is worth to it.

    Behind the structured guard it may do far more than behind Lipschitz constants, and earns less: it spends
    everything in the first hours. `tether.pace` tunes, for each contract, how far to follow it, on the validation
    windows; all is played on the test windows: behind `tight`, behind the structured guard as it is, and paced. The
    guard is the same whatever the pace, so the promise holds. Finished contracts stay: `--resume` goes on.

    For instance `tether reproduce paced --paper ../shared/paper --data ../shared/data/carbon`.
    """
    from tether.core.drawing import save
    from tether.engines import folders
    from tether.paper.report import section_of
    from tether.paper.studies import paced

    grid = shell.contracts(options.lams, options.bs)
    known = {name: getattr(options, name) for name in ("lams", "bs", "episodes", "seeds", "seed")}
    known |= {"study": "paced", "paper": str(options.paper), "data": str(options.data)}
    with folders.claim(options.out) as folder:
        study = paced.Study(
            options.paper,
            options.data,
            folder / "solved",
            options.episodes,
            shell.seeds_from(options.seed, options.seeds),
            options.processes,
        )
        with shell.progress() as progress, shell.Watch(progress, "paced", len(grid)) as watch:
            done = folders.run_pieces(
                folder,
                {**known, "command": shell.typed()},
                study.pieces(grid),
                resume=options.resume,
                watch=watch,
            )
        rows = [paced.Row(**content) for content in done.values()]
        table = paced.paced_table(rows)
        figure = paced.paced_figure(rows)
        for suffix in ("png", "svg"):
            save(figure, folder / f"paced.{suffix}")
        shell.console.print(table)
        image = (folder / "paced.svg").read_text(encoding="utf-8")
        section = {
            **section_of(table),
            "image": image,
            "image_text": "Mean reward of the authors' RL network on their test windows, by guard.",
        }
        content = {
            "rows": [asdict(row) | {"paced": row.paced, "above_tight": row.above_tight} for row in rows]
        }
        shell.finish(folder, {**content, "sections": [section]}, ["paced.png", "paced.svg"])
