"""The command `tether bench compile`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output, validate


@dataclass(frozen=True)
class Options:
    """What `tether bench compile` can be asked for."""

    states: Annotated[str, typer.Option(help="Numbers of states, comma-separated.")] = "1,2,4,8"
    horizons: Annotated[str, typer.Option(help="Rounds of an episode, comma-separated.")] = "24,96,288"
    out: shell.Out = Path("out/bench/compile")


def compile_(options: Options) -> None:
    """Measure how the work of a compiled certificate grows with the state's dimension and with the horizon.

    Vessels in a row, as many actions as states; under one prior gaps shrink (K rounds and a tail are looked at),
    under the other they stay (all rounds to the horizon are). Set TETHER_CACHE=off to see what compiling really takes.
    """
    from rich.table import Table

    from tether.bench.compiling import measure

    folder = output.prepare_folder(options.out)
    sizes = {}
    for name in ("states", "horizons"):
        given = shell.numbers(f"--{name}", getattr(options, name))
        sizes[name] = [validate.count(f"--{name}", int(each)) for each in given]
    table = Table(
        "states",
        "horizon",
        "bounds",
        "compile (s)",
        "first round (s)",
        "round (ms)",
        title="tether bench compile",
    )
    found = []
    with shell.counting("plants", 2 * len(sizes["states"]) * len(sizes["horizons"])) as report:
        for each in measure(sizes["states"], sizes["horizons"]):
            found.append(each)
            report(len(found))
            bounds = "a tail" if each.tail else "to the horizon"
            table.add_row(
                f"{each.states}",
                f"{each.horizon}",
                bounds,
                f"{each.compile:.1f}",
                f"{each.first:.1f}",
                f"{each.round:.1f}",
            )
            shell.write_results(folder, {"plants": [asdict(one) for one in found]})
    shell.console.print(table)
    shell.finish(folder, {"plants": [asdict(one) for one in found]})
