"""The command `tether bench scale`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.cli import shell
from tether.core import drawing, output
from tether.systems import registry

if TYPE_CHECKING:
    from tether.bench.scale import Growth


@dataclass(frozen=True)
class Options:
    """What `tether bench scale` can be asked for."""

    system: Annotated[str, typer.Option(help=f"Whose episodes are played: {shell.SYSTEMS}.")] = (
        registry.names()[0]
    )
    most: Annotated[
        str,
        typer.Option(help="Bounds of sizes: 'episodes=10000,horizon=2400', of settings, states and actions."),
    ] = ""
    out: shell.Out = Path("out/bench/scale")


def scale(options: Options) -> None:
    """Measure how time and memory grow with episodes, horizon, settings, and the dimensions of state and action.

    Each size is played, or trained for, in a process of its own on one core, everything compiled before. An exponent
    of 1 is growth in proportion, 0 none. Writes `scale.png` and `results.json`; some minutes.
    """
    from tether.bench import scale

    folder, most = output.prepare_folder(options.out), {}
    for each in shell.listed(options.most):
        name, _, value = each.partition("=")
        if name not in scale.SIZES:
            raise ValueError(f"--most is name=number, of {', '.join(scale.SIZES)}, got {each!r}")
        most[name] = int(shell.numbers("--most", value)[0])
    with shell.counting("sizes") as report:
        found = list(scale.measure(options.system, most, report))
    shell.console.print(_table(found))
    drawing.save(scale.figure(found), folder / "scale.png")
    content = {
        "system": options.system,
        "growths": [
            {
                "what": each.what,
                "points": [point._asdict() for point in each.points],
                "exponents": dict(zip(("time", "memory"), each.exponents, strict=True)),
            }
            for each in found
        ],
    }
    shell.finish(folder, content, ["scale.png"])


def _table(found: list[Growth]) -> Table:
    from tether.bench.scale import FIXED

    table = Table(title="How time and memory grow", box=SIMPLE_HEAD)
    fixed = "; ".join(f"{growth.what}: {FIXED[growth.what]}" for growth in found)
    table.caption = f"exponents are over the larger half of the sizes. {fixed}"
    for name in ("what grows", "size", "seconds", "MB", "time ~", "memory ~"):
        table.add_column(name, justify="left" if name == "what grows" else "right", no_wrap=True)
    for growth in found:
        for place, point in enumerate(growth.points):
            last = place == len(growth.points) - 1
            table.add_row(
                growth.what if place == 0 else "",
                f"{point.size:,}",
                f"{point.seconds:.3g}",
                f"{point.memory:.0f}",
                *(f"size^{each:.2f}" if last else "" for each in growth.exponents),
            )
        table.add_section()
    return table
