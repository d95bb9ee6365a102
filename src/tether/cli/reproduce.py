"""The commands `tether reproduce SYSTEM`: the paper's evaluation of a system that is installed, or of your own."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tether.cli import shell

if TYPE_CHECKING:
    pass

OWN = "module:object"
"""What the command for systems that no package names is called in the help."""


class Group(TyperGroup):
    """Takes the place of a system that is not installed as the name of a command, too."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name."""
        return super().get_command(ctx, OWN if ":" in cmd_name else cmd_name)


def _part(of: str) -> Any:
    """An option that chooses some of what a plan has."""
    return typer.Option(help=f"{of}, comma-separated; all that the plan has without it.")


def _size(of: str) -> Any:
    """An option that changes a number of the plan."""
    return typer.Option(help=f"{of}; that of the plan without it.", min=1)


@dataclass(frozen=True)
class Options:
    """What `tether reproduce SYSTEM` can be asked for."""

    context: typer.Context
    """The command is called after the system."""
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report, results.json and the figures. [default: out/SYSTEM]"),
    ] = None
    full: Annotated[
        bool,
        typer.Option("--full/--quick", help="The system's whole grid, or a small one in about a minute."),
    ] = False
    recipe: Annotated[
        str,
        typer.Option(
            help="How learners are trained: tether (ours) or paper. --full --recipe paper is the paper's."
        ),
    ] = "tether"
    data: Annotated[
        Path | None,
        typer.Option(
            help="Episode file (.npz, as `tether data build` makes it), or folder of real data that the system has a "
            "reader for; embedded data without it."
        ),
    ] = None
    paper: Annotated[
        Path | None,
        typer.Option(help="Folder with the authors' published.json, to show their numbers beside."),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds; the spread over them is shown. [default: 3, full: 5]", min=1),
    ] = None
    seed: shell.Seed = 0
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that the folder holds.")] = (
        False
    )
    methods: Annotated[str | None, _part("Any of prior, random+acd, rl, rl+acd, crl, acrl")] = None
    rules: Annotated[
        str | None, _part("Certificates of the guard, any of paper, released, tight, structured")
    ] = None
    modes: Annotated[str | None, _part("Any of offline, online")] = None
    lams: Annotated[str | None, _part("Relative slacks")] = None
    bs: Annotated[str | None, _part("Slacks a round, cost units")] = None
    episodes: Annotated[int | None, _size("Synthetic training episodes")] = None
    passes: Annotated[int | None, _size("Offline: passes over them")] = None
    explored: Annotated[int | None, _size("Online: episodes that are played")] = None

    @property
    def system(self) -> str:
        """The name of the system, or where it is."""
        return str(self.context.info_name)

    def changes(self) -> dict[str, Any]:
        """What is asked for beside the plan; None where nothing is."""
        count = (5 if self.full else 3) if self.seeds is None else self.seeds
        words = {"methods": self.methods, "rules": self.rules, "modes": self.modes}
        grid = {"lams": self.lams, "bs": self.bs}
        return {
            "seeds": tuple(shell.seeds_from(self.seed, count)),
            "recipe": self.recipe,
            **{
                name: text and tuple(each.strip() for each in text.split(",")) for name, text in words.items()
            },
            **{name: text and tuple(shell.numbers(f"--{name}", text)) for name, text in grid.items()},
            "train_episodes": self.episodes,
            "passes": self.passes,
            "explored": self.explored,
        }


def reproduce(options: Options) -> None:
    """Run the paper's evaluation of this system.

    Hostile learners with and without the guard; prior, RL, CRL, ACRL, RL+ACD and Random+ACD, offline and online, over
    lam, b and seeds, audited in every round. Writes `report.html`, `results.json` and `figures/`. Finished pieces stay:
    a killed run goes on with `--resume`.

    For instance `tether reproduce carbon --full --recipe paper`, on the authors' data with
    `--data ../shared/data/carbon --paper ../shared/paper`.
    """
    from tether.paper import assembly, engines, evaluation, results
    from tether.paper.identity import identity
    from tether.paper.report import summary_tables, write_first_figure, write_report
    from tether.systems import registry

    data, paper, system = options.data, options.paper, registry.find(options.system)
    wanted = evaluation.evaluation_of(system, "full" if options.full else "quick", **options.changes())
    plant = evaluation.load_data(wanted, system, data)
    known = identity(wanted, plant, _typed(), data, paper)
    with engines.claim(options.out or shell.default_folder(system.name)) as folder:
        todo = evaluation.pieces(wanted, plant, folder, data, paper)
        with shell.progress() as progress:
            watch = shell.Watch(progress, system.name, len(todo))

            def finished(piece: engines.Piece, found: bool) -> None:
                watch.finished(piece, found)
                if piece.name == "guard":
                    first = write_first_figure(folder, {"title": system.title, "data": known["data"]})
                    progress.console.print(f"First figure: {first}", soft_wrap=True)

            with watch:
                done = engines.run_pieces(
                    folder, known, todo, resume=options.resume, tell=watch.tell, finished=finished
                )
            watch.say("report")
            content = assembly.assemble(wanted, plant, engines.read_identity(folder), done)
            results.write_results(folder / "results.json", content)
            page = write_report(folder)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    shell.console.print(*summary_tables(content), sep="\n")
    places = {"Report": page, "Results": folder / "results.json", "Figures": folder / "figures"}
    for name, path in places.items():
        shell.console.print(f"{name}: {path}", soft_wrap=True)


def _typed() -> str:
    """The command as typed, without what does not change the results: --resume and --out."""
    kept: list[str] = []
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument == "--out":
            next(arguments, None)
        elif argument != "--resume" and not argument.startswith("--out="):
            kept.append(argument)
    return shlex.join(["tether", *kept])
