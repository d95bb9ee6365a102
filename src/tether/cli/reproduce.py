"""The commands `tether reproduce SYSTEM`: the paper's evaluation of a system that is installed, or of your own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from tether.cli import shell
from tether.engines import folders
from tether.engines.pieces import Piece
from tether.systems import registry

if TYPE_CHECKING:
    from tether.learn.plant import Plant
    from tether.paper.evaluation import Evaluation

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
    engine: shell.EngineName = "local"
    address: shell.Address = None
    workers: shell.Workers = None

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
    scale = "full" if options.full else "quick"
    asked = _Asked(options.system, scale, options.changes(), options.data, options.paper)
    system = registry.find(options.system)
    with (
        folders.claim(options.out or shell.default_folder(system.name)) as folder,
        shell.engine(options) as engine,
    ):
        known, pieces = engine.plan(_plan, asked, folder)
        resumes = "the same command with --resume"
        with shell.watching(system.name, len(pieces), lines=True, resumes=resumes) as watch:
            shown = _FirstFigure(
                watch, lambda: engine.aside(_first_figure, asked.system, folder, known["data"])
            )
            done = folders.run_pieces(
                folder, known, pieces, resume=options.resume, engine=engine, watch=shown
            )
            watch.say("report")
            engine.aside(_finish, asked, folder, done)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    places = {"Report": "report.html", "Results": "results.json", "Figures": "figures"}
    for name, place in places.items():
        shell.console.print(f"{name}: {folder / place}", soft_wrap=True)


class _FirstFigure:
    """A watcher that shows a figure as soon as there is one, which is before anything is learned."""

    def __init__(self, watch: shell.Watch, draw: Callable[[], Path]) -> None:
        self._watch, self._draw = watch, draw
        self.tell, self.working = watch.tell, watch.working

    def finished(self, piece: Piece, found: bool) -> None:
        """See `Watcher`."""
        self._watch.finished(piece, found)
        if piece.name == "guard":
            self._watch.show(f"First figure: {self._draw()}")


def _first_figure(system: str, folder: Path, data: dict[str, Any]) -> Path:
    from tether.paper.report import write_first_figure

    return write_first_figure(folder, {"title": registry.find(system).title, "data": data})


class _Asked(NamedTuple):
    """What was asked for, as plain data."""

    system: str
    scale: Any
    changes: dict[str, Any]
    data: Path | None
    paper: Path | None


def _loaded(asked: _Asked) -> tuple[Evaluation, Plant]:
    from tether.paper import evaluation

    system = registry.find(asked.system)
    wanted = evaluation.evaluation_of(system, asked.scale, **asked.changes)
    return wanted, evaluation.load_data(wanted, system, asked.data)


def _plan(asked: _Asked, folder: Path) -> tuple[dict[str, Any], list[Piece]]:
    """All that decides the results, and what is to be computed."""
    from tether.paper import evaluation
    from tether.paper.identity import identity

    wanted, plant = _loaded(asked)
    known = identity(wanted, plant, shell.typed(), asked.data, asked.paper)
    return known, evaluation.pieces(wanted, plant, folder, asked.data, asked.paper)


def _finish(asked: _Asked, folder: Path, done: dict[str, Any]) -> None:
    """Put the pieces together, write the report and show the tables."""
    from tether.paper import assembly, results
    from tether.paper.report import summary_tables, write_report

    content = assembly.assemble(*_loaded(asked), folders.read_identity(folder), done)
    results.write_results(folder / "results.json", content)
    write_report(folder)
    shell.console.print(*summary_tables(content), sep="\n")
