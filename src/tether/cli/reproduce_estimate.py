"""The command `tether reproduce estimate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output


@dataclass(frozen=True)
class Options:
    """What `tether reproduce estimate` can be asked for."""

    out: shell.Out = Path("out/estimate-known")
    systems: Annotated[int, typer.Option(help="Number of systems; their seeds count up.", min=1)] = 20
    rows: Annotated[int, typer.Option(help="Logged rounds of each.", min=2000)] = 100_000
    seed: Annotated[int, shell.seed_option("First seed.")] = 0


def reproduce_estimate(options: Options) -> None:
    """Judge `tether estimate` on systems whose constants are known exactly.

    Scalar and vector systems, drawn from the seed, with additive and multiplicative noise
    (`tether.estimation.known_plants` says how, and what the truth is). Aims: recommended constants not below the
    truth in 19 of 20 systems, and at most twice the truth in the median. Some minutes. Writes `results.json` and
    `known.png`.
    """
    from tether.bench.judging import judge, judged_figure, judged_table
    from tether.core import drawing

    folder = output.prepare_folder(options.out)
    judged = []
    content: dict[str, object] = {}
    with shell.counting("systems", options.systems) as report:
        for seed in shell.seeds_from(options.seed, options.systems):
            judged.append(judge(seed, options.rows))
            # After each system, so that a run that is stopped leaves what it has.
            content = {"rows": options.rows, "systems": [vars(system) for system in judged]}
            shell.write_results(folder, content)
            report(len(judged))
    shell.console.print(judged_table(judged), highlight=False)
    drawing.save(judged_figure(judged), folder / "known.png")
    shell.finish(folder, content, ["known.png"])
