"""The command `tether bench late`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output, validate
from tether.systems import registry


@dataclass(frozen=True)
class Options:
    """What `tether bench late` can be asked for."""

    system: shell.SystemName
    lam: shell.Lam = 2.0
    b: shell.B = 2.0
    delays: Annotated[str, typer.Option(help="Rounds by which costs are late, comma-separated.")] = "0,1,3,12"
    missing: Annotated[str, typer.Option(help="Shares of the costs that never come, comma-separated.")] = (
        "0,0.1,0.2,0.3"
    )
    horizon: Annotated[int, typer.Option(help="Rounds of an episode.", min=1)] = 24
    episodes: Annotated[int, typer.Option(help="Episodes of each seed.", min=1)] = 200
    seeds: shell.Seeds = 5
    seed: shell.Seed = 0
    out: shell.Out = Path("out/bench/late")


def late(options: Options) -> None:
    """Measure what late and missing costs cost: reward against delay, behind each certificate.

    A greedy learner, which breaks the promise without a guard, plays behind the guard; costs come after so many rounds,
    and a share of them never. The promise is audited in every round. Writes `results.json` and `late.png`. Exit code 1
    if the promise was broken, or if it is kept without a guard as well, so that nothing was shown.

    For instance `tether bench late carbon`.
    """
    from tether.bench import late as study
    from tether.core import drawing

    system = registry.find(options.system)
    lam, b = shell.promise(options.lam, options.b)
    contract = system.env().contract(lam, b, options.horizon)
    delays = [int(each) for each in shell.numbers("--delays", options.delays)]
    shares = shell.numbers("--missing", options.missing)
    for share in shares:
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"--missing must be shares between 0 and 1, got {share:g}")
    for delay, given in zip(delays, shell.numbers("--delays", options.delays), strict=True):
        validate.count("--delays", delay if delay == given else given, minimum=0)
    folder = output.prepare_folder(options.out)
    seeds = shell.seeds_from(options.seed, options.seeds)
    count = len(study.certificates(system.env(), contract)) * len(delays) * len(shares)
    with shell.counting("guards", count) as report:
        rows = list(study.late_rows(system, contract, delays, shares, seeds, options.episodes, report))
    title = f"{options.system}, lam = {lam:g}, b = {b:g}"
    shell.console.print(study.table(title, rows))
    drawing.save(study.late_figure(f"{title}: {len(seeds)} seeds", rows), folder / "late.png")
    broken = sum(each.violations for each in rows if each.guard not in (study.PRIOR, study.UNGUARDED))
    unguarded = sum(each.violations for each in rows if each.guard == study.UNGUARDED)
    shell.console.print(f"Violations behind the guard: {broken}; without it: {unguarded}")
    shell.finish(folder, {"system": options.system, "lam": lam, "b": b, "late": study.as_json(rows)})
    if broken or not unguarded:
        raise typer.Exit(1)
