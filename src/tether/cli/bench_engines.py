"""The command `tether bench engines`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.cli import shell
from tether.core import output
from tether.systems import registry


@dataclass(frozen=True)
class Options:
    """What `tether bench engines` can be asked for."""

    system: Annotated[str, typer.Option(help=f"Whose attack is computed: {shell.SYSTEMS}.")] = (
        registry.names()[0]
    )
    seconds: Annotated[str, typer.Option(help="Lengths of pieces, comma-separated.")] = "1,10,60"
    pieces: Annotated[str, typer.Option(help="How many of each length, comma-separated.")] = "10,3,1"
    run: Annotated[int, typer.Option(help="Pieces of the run whose schedule is simulated.", min=1)] = 56
    length: Annotated[float, typer.Option(help="Seconds of each of them.", min=0.001)] = 40.0
    cores: Annotated[int, typer.Option(help="Cores of a node.", min=1)] = 32
    out: shell.Out = Path("out/bench/engines")


def engines(options: Options) -> None:
    """Measure what Ray costs: the same pieces on Ray with one worker and in one process, in turn, in one run.

    Both sides are pinned to a core and have compiled before. Then the schedule on 1 to 64 nodes is simulated, from what
    the first piece of a worker and the handing out of a piece take: of a run as it is, and of one a hundred times as
    large. Needs the extra `ray`; some minutes.
    """
    from tether.bench import engines

    lengths = shell.numbers("--seconds", options.seconds)
    counts = [int(each) for each in shell.numbers("--pieces", options.pieces)]
    if len(lengths) != len(counts):
        raise ValueError(f"--seconds and --pieces must list as many, got {options.seconds}, {options.pieces}")
    folder = output.prepare_folder(options.out)
    with shell.waiting("measuring"):
        found, costs = engines.measure(options.system, lengths, counts)
    shell.console.print(_overheads(found))
    shell.console.print(
        f"A cluster of this machine is there after {costs.start:.1f} s; the first piece of a worker takes "
        f"{costs.first:.1f} s more; the driver hands out {1.0 / costs.hand_out:.0f} pieces a second.",
        highlight=False,
    )
    content: dict[str, Any] = {
        "overheads": [each._asdict() | {"ratio": each.ratio, "beside": each.beside} for each in found],
        "costs": costs._asdict(),
        "schedules": [],
    }
    for count in (options.run, 100 * options.run):
        made = list(engines.estimates([options.length] * count, options.cores, costs))
        shell.console.print(_schedules(made, options))
        content["schedules"] += [
            {"nodes": nodes, **each._asdict(), "efficiency": each.efficiency, "bottleneck": each.bottleneck}
            for nodes, each in made
        ]
    shell.finish(folder, content)


def _overheads(found: Any) -> Table:
    table = Table(title="The same pieces on both engines, one core", box=SIMPLE_HEAD)
    table.caption = (
        "Ray / work: time on Ray over that of its work alone. Processor: seconds of one, Ray / local. Other work on "
        "the machine changes Ray / local, and hardly these two."
    )
    for name in ("piece", "pieces", "local", "Ray", "Ray / local", "Ray / work", "processor"):
        table.add_column(name, justify="right")
    for each in found:
        table.add_row(
            f"{each.seconds:g} s",
            f"{each.pieces}",
            f"{each.local:.1f} s",
            f"{each.ray:.1f} s",
            f"{each.ratio:.3f}",
            f"{each.beside:.3f}",
            f"{each.processor:.3f}",
        )
    return table


def _schedules(made: Any, options: Options) -> Table:
    _, first = made[0]
    title = f"Simulated: {first.pieces} pieces of {options.length:g} s, nodes of {options.cores} cores"
    table = Table(title=title, box=SIMPLE_HEAD)
    for name in ("nodes", "workers", "seconds", "efficiency", "bottleneck"):
        table.add_column(name, justify="right")
    for nodes, each in made:
        table.add_row(
            f"{nodes}", f"{each.workers}", f"{each.seconds:.0f}", f"{each.efficiency:.0%}", each.bottleneck
        )
    return table
