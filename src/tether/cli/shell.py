"""What every command shares: its options, where it prints, how it shows progress and what it writes."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import inspect
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar, get_type_hints

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tether.cli.fitting import Fitting
from tether.core import extras, output, validate
from tether.engines.engine import Engine, Local
from tether.engines.pieces import Store
from tether.systems import registry

if TYPE_CHECKING:
    from tether.engines.pieces import Piece

T = TypeVar("T")
console = Console()
"""Where results are printed, tables fitted to the terminal; progress goes to standard error."""
console.push_render_hook(Fitting(console))


# Options. A command is a frozen dataclass of these, and a function of it: see `command`.


def out_option(holds: str = "results.json and the figures") -> Any:
    """The option `--out`, of a folder that holds this."""
    return typer.Option("--out", help=f"Folder for {holds}; made if it is not there.")


def seed_option(of: str = "First random seed.") -> Any:
    """The option `--seed`."""
    return typer.Option("--seed", help=of, min=0)


SYSTEMS = f"{', '.join(registry.names())}, or module:object for a system of your own"
"""What can be given where a command asks for a system."""

Out = Annotated[Path, out_option()]
Seed = Annotated[int, seed_option()]
Seeds = Annotated[int, typer.Option(help="Number of seeds; the spread over them is shown.", min=1)]
SystemName = Annotated[str, typer.Argument(help=f"{SYSTEMS}.", show_default=False)]
Lam = Annotated[float, typer.Option(help="Relative slack of the promise.")]
B = Annotated[float, typer.Option(help="Slack a round of the promise, cost units.")]
Lams = Annotated[str, typer.Option(help="Relative slacks, comma-separated.")]
Bs = Annotated[str, typer.Option(help="Slacks a round, comma-separated.")]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Episode file (.npz, as `tether data build` makes it), minari:ID, or folder with the authors' carbon data "
        "(.mat); synthetic episodes without it."
    ),
]
"""Where episodes come from, in every command that takes them."""
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", help="local: on this machine. ray: on a Ray cluster (extra `ray`; docs/cluster.md)."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(help="ray: a running cluster, auto or HOST:PORT; one of this machine, for now, without it."),
]
Workers = Annotated[
    int | None, typer.Option(help="ray: pieces that are computed at a time; one a core without it.", min=1)
]


def command(name: str, work: Callable[[T], None]) -> Callable[..., None]:
    """The command that does `work`, a function of one dataclass whose fields are the command's options.

    Typer reads the options of a command from the parameters of a function; this one has a parameter for each field.
    An extra of the package that is missing is named, and what needs it: `name`, such as `tether train`.
    """
    (parameter,) = inspect.signature(work).parameters
    options = get_type_hints(work)[parameter]
    hints = get_type_hints(options, include_extras=True)

    def call(**given: Any) -> None:
        try:
            work(options(**given))
        except ModuleNotFoundError as error:
            raise extras.missing(name, error) from None

    fields = dataclasses.fields(options)
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields
        ]
    )
    call.__annotations__ = {field.name: hints[field.name] for field in fields}
    call.__doc__ = work.__doc__
    return call


def listed(text: str) -> list[str]:
    """The words that an option lists, separated by commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


def numbers(name: str, text: str) -> list[float]:
    """The numbers that the option `name` lists, separated by commas."""
    try:
        return [float(each) for each in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers separated by commas, got {text!r}") from None


def contracts(lams: str, bs: str) -> list[tuple[float, float]]:
    """Every (lam, b) of the options `--lams` and `--bs`, lam by lam for each b."""
    return [(lam, b) for b in numbers("--bs", bs) for lam in numbers("--lams", lams)]


def promise(lam: float, b: float) -> tuple[float, float]:
    """The options `--lam` and `--b`, checked."""
    return validate.number("--lam", lam, minimum=0.0), validate.number("--b", b, minimum=0.0)


def seeds_from(seed: int, count: int) -> list[int]:
    """So many seeds, from the first one on."""
    return list(range(seed, seed + count))


def default_folder(*names: str) -> Path:
    """Where the results of a command go if nothing else is asked for; a system may be called module:object."""
    return Path("out", *(name.replace(":", "-") for name in names))


# Progress.


class Report(Protocol):
    """Says how far a command has come."""

    def __call__(self, done: int, total: int | None = None, what: str | None = None) -> None:
        """`done` of `total` (as said before, if it is None) of `what`."""


def progress(*more: ProgressColumn, bar_width: int | None = 40) -> Progress:
    """Bars on standard error, with columns for more; they disappear at the end."""
    terminal = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width),
        MofNCompleteColumn(),
        *more,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # Elsewhere than on a terminal a bar would only leave an empty line before an error.
    return Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Report]:
    """A single bar; it moves when the function that it gives is called."""
    with progress() as bars:
        task = bars.add_task(what, total=total)

        def report(done: int, total: int | None = None, what: str | None = None) -> None:
            bars.update(task, completed=done, total=total, description=what)

        yield report


class Watch:
    """Shows how far a run is, piece by piece.

    With `lines` it leaves one for each finished piece; `resumes` is the command that goes on with a stopped run.
    """

    def __init__(
        self,
        bars: Progress,
        of: str,
        count: int,
        *,
        lines: bool = True,
        resumes: str = "the same command with --resume",
    ) -> None:
        self._progress, self._of, self._count, self._lines, self._resumes = bars, of, count, lines, resumes
        self._all = bars.add_task(of, total=count)
        self._piece = bars.add_task("", total=None)
        self._done = self._found = 0
        self._workers = 1
        self._first = self._began = time.monotonic()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is KeyboardInterrupt:
            self._progress.console.print(f"Stopped. Finished pieces are kept: {self._resumes} goes on.")

    def tell(self, piece: Piece, done: int, total: int, words: str) -> None:
        """How far a piece is."""
        self._progress.update(
            self._piece, completed=done, total=total, description=f"{piece.name} {words}".strip()
        )

    def working(self, busy: int, workers: int) -> None:
        """How many pieces are at work elsewhere."""
        self._workers = workers
        self._progress.update(self._piece, completed=busy, total=workers, description="workers")

    def finished(self, piece: Piece, found: bool) -> None:
        """A piece was computed, or found where an earlier run left it."""
        self._progress.advance(self._all)
        self._done, self._found = self._done + 1, self._found + found
        if self._lines:
            took = "found" if found else f"{time.monotonic() - self._began:.1f} s"
            line = f"{self._of} {self._done:>2}/{self._count}  {piece.name:<28} {took}{self._left()}"
            self._progress.console.print(line, highlight=False, soft_wrap=True)
        self._began = time.monotonic()

    def _left(self) -> str:
        """In words, if there are several workers."""
        computed = self._done - self._found
        if self._workers == 1 or not computed:
            return ""
        left = (time.monotonic() - self._first) / computed * (self._count - self._done)
        return f"   {self._workers} workers, about {left:.0f} s left"

    def show(self, line: str) -> None:
        """Leave a line above the bars."""
        self._progress.console.print(line, soft_wrap=True)

    def say(self, what: str) -> None:
        """What is done after the last piece."""
        self._progress.update(self._piece, description=what, total=None)


@contextmanager
def watching(of: str, count: int, *, lines: bool, resumes: str = "the same command") -> Iterator[Watch]:
    """A `Watch` with its bars."""
    with progress() as bars, Watch(bars, of, count, lines=lines, resumes=resumes) as watch:
        yield watch


@contextmanager
def waiting(what: str, patience: float = 1.0) -> Iterator[None]:
    """Says what takes so long and for how long already, once it takes longer than `patience`, seconds."""
    terminal = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bars = Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
    bars.add_task(what, total=None)
    timer = threading.Timer(patience, bars.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        bars.stop()


# Engines.


@contextmanager
def engine(options: Any, processes: int = 1) -> Iterator[Engine]:
    """What the options `--engine`, `--address` and `--workers` ask for; `processes` are those of the local one."""
    validate.choice("--engine", options.engine, ("local", "ray"))
    if options.engine == "local":
        if options.address is not None or options.workers is not None:
            raise ValueError("--address and --workers are for --engine ray, got --engine local")
        yield Local(processes)
        return
    from tether.engines.cluster import Cluster

    cluster = Cluster(options.address, options.workers)
    with ExitStack() as stack:
        with waiting("joining the cluster" if options.address else "starting Ray"):
            stack.enter_context(cluster)
        yield cluster


UNSEEN = ("out", "engine", "address", "workers", "processes", "resume")
"""Options that do not change the results."""


def unfinished(folder: Path, options: Any) -> Store:
    """Where the pieces of this very run are kept until it is finished: the same command goes on with them.

    Other options, other data, other versions and other code are another run.
    """
    known = {name: value for name, value in vars(options).items() if name not in UNSEEN}
    digest = hashlib.sha256(repr((known, output.provenance(""))).encode())
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    module, colon, _ = str(known.get("system")).partition(":")
    spec = importlib.util.find_spec(module) if colon else None
    files += [Path(spec.origin)] if spec is not None and spec.origin is not None else []
    for file in files:
        digest.update(file.read_bytes())
    if known.get("data") is not None and Path(known["data"]).exists():
        for file in sorted(Path(known["data"]).rglob("*")) or [Path(known["data"])]:
            digest.update(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    return Store(folder / "unfinished" / digest.hexdigest()[:16], "pickle")


def forget(store: Store) -> None:
    """Remove what a finished run, or one before it, has left."""
    shutil.rmtree(store.folder.parent, ignore_errors=True)


# Results.


def typed() -> str:
    """The command as typed, without the options that do not change the results."""
    kept: list[str] = []
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        name, equals, _ = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in UNSEEN:
            kept.append(argument)
        elif not equals and name != "resume":
            next(arguments, None)
    return shlex.join(["tether", *kept])


def write_results(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write `results.json`, with where it comes from."""
    path = folder / "results.json"
    output.write_json(path, {**content, "provenance": output.provenance(typed())})
    return path


def finish(folder: Path, content: Mapping[str, Any], figures: Sequence[str] = ()) -> None:
    """Write `results.json`, and say where it and the figures of these names are."""
    results = write_results(folder, content)
    drawn = ", ".join(str(folder / name) for name in figures)
    label = "Figures" if len(figures) > 1 else "Figure"
    # A path that is broken into lines cannot be copied.
    console.print(
        f"{label}: {drawn}   Results: {results}" if drawn else f"Results: {results}", soft_wrap=True
    )
