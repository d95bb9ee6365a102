"""The command `tether bench faults`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tether.cli import shell
from tether.core import output, validate

if TYPE_CHECKING:
    from tether.serve.campaign import Verdict


@dataclass(frozen=True)
class Options:
    """What `tether bench faults` can be asked for."""

    crashes: Annotated[int, typer.Option(help="Simulated crashes, at least.", min=1)] = 2000
    kills: Annotated[
        int, typer.Option(help="How often a real process is killed, with each durability.", min=0)
    ] = 20
    sabotage: Annotated[
        str | None,
        typer.Option(
            help="Break the service on purpose, which must then be found: answer-first, no-checksum, free-in-gaps or "
            "forget-applied."
        ),
    ] = None
    out: Annotated[Path, shell.out_option("results.json")] = Path("out/bench/faults")
    seed: Annotated[int, shell.seed_option("Of the first world; with --crashes 1 of the only one.")] = 0


def faults(options: Options) -> None:
    """Let everything fail around the service, and see whether the promise holds.

    Simulated worlds, deterministic by seed: crashes between any two operations of the disk, torn writes, losses of
    power, a full disk, a slow one, changed bits, requests and answers that are lost, doubled and overtake each other, a
    clock that jumps, an operator who interferes. Then a real process is killed in the middle of its work. Every round
    is audited against the prior on the same draws, every repeated answer is compared, and the account in the end with
    that of an undisturbed run. A world that fails can be repeated alone: --seed N --crashes 1 --kills 0. Exit code 1
    if anything is not as it must be; with --sabotage, if nothing was found.
    """
    from tether.serve.campaign import campaign, judge
    from tether.serve.kills import killed
    from tether.serve.sabotage import SABOTAGES

    if options.sabotage is not None:
        validate.choice("--sabotage", options.sabotage, tuple(SABOTAGES))
    folder = output.prepare_folder(options.out)
    with shell.counting("crashes", options.crashes) as report:
        verdicts = {"simulated": campaign(options.crashes, options.seed, options.sabotage, report)}
    if options.kills and options.sabotage is None:
        for durability in ("process", "group", "power"):
            with tempfile.TemporaryDirectory() as place:
                finding = killed(Path(place) / "journal", options.kills, options.seed, durability)
            verdicts[f"killed, {durability}"] = judge([finding])
    for name, verdict in verdicts.items():
        _show(name, verdict)
    shell.finish(folder, {name: verdict.to_json() for name, verdict in verdicts.items()})
    found = not all(verdict.holds for verdict in verdicts.values())
    if options.sabotage is not None:
        shell.console.print(f"{options.sabotage}: {'found' if found else 'NOT found'}")
    if found == (options.sabotage is None):
        raise typer.Exit(1)


def _show(name: str, verdict: Verdict) -> None:
    counts = verdict.counts
    lines = [
        f"{name}: {counts['crashes']} crashes ({counts['power_losses']} losses of power) in {verdict.worlds} worlds, "
        f"{counts['operations']} operations of the disk",
        f"  torn ends cut off {counts['cut']}, damaged journals refused {counts['damaged']}, answers kept back by a "
        f"full disk {counts['refused']}",
        f"  rounds {counts['rounds']}: without an answer {counts['alone']}, in a gap {counts['gaps']}",
        f"  episodes {verdict.episodes}: broken promises {verdict.violations}, margin at least "
        f"{verdict.worst_margin:.2g}; the learner alone breaks {verdict.unguarded:.0%}; with b 5 % less it would be "
        f"{verdict.looser:.0%}",
        f"  wrong: {len(verdict.wrong)}",
        *(f"    seed {seed}: {what}" for seed, what in verdict.wrong[:5]),
    ]
    for line in lines:
        shell.console.print(line, soft_wrap=True, markup=False, highlight=False)
