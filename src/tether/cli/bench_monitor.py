"""The command `tether bench monitor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output


@dataclass(frozen=True)
class Options:
    """What `tether bench monitor` can be asked for."""

    out: shell.Out = Path("out/bench/monitor")
    seed: shell.Seed = 0
    seeds: shell.Seeds = 5
    episodes: Annotated[int, typer.Option(help="Episodes of each drift and seed.", min=1)] = 40
    rounds: Annotated[
        int, typer.Option(help="Rounds without a drift, for each system and monitor.", min=48)
    ] = 1_000_000
    begins: Annotated[int, typer.Option(help="Round from which on the plant drifts.", min=1, max=24)] = 9
    lam: shell.Lam = 1.0
    b: shell.B = 1.0
    repetitions: Annotated[int, typer.Option(help="How often each guard is timed, alternately.", min=3)] = 21


def monitor(options: Options) -> None:
    """Watch plants that leave their claims, and plants that do not, and time the monitor.

    First, plants that drift: in how many episodes a number outside of the claims was seen, whether it was flagged by
    the very call that brought it, and how often the promise was broken. Then false alarms, in a million rounds of every
    system with its noise at its ends in half of the draws, and with observations in float64 and float32. Last, the
    time of act + observe with a monitor over that without. Some minutes.

    For instance `tether bench monitor --episodes 1000 --lam 0.2 --b 0.2`.
    """
    from tether.bench import monitoring, speed
    from tether.bench.parts import skipped

    for line in skipped("monitor"):
        shell.console.print(line)
    folder = output.prepare_folder(options.out)
    lam, b = shell.promise(options.lam, options.b)
    seeds = shell.seeds_from(options.seed, options.seeds)
    plants = monitoring.drifts()
    with shell.counting("drifts", len(plants) * len(seeds)) as report:
        drifts = []
        for drift in plants:
            for seed in seeds:
                drifts.append(monitoring.drift_row(drift, lam, b, options.episodes, seed, options.begins))
                report(len(drifts))
        report(0, what="false alarms")
        alarms = list(monitoring.alarm_rows(options.rounds, options.seed, report))
        report(0, what="time")
        times = list(monitoring.overhead(options.seed, options.repetitions))
    shell.console.print(*monitoring.drift_tables(drifts, options.begins), monitoring.alarm_table(alarms))
    shell.console.print(speed.table("Time of a monitor", times))
    content = {
        "begins": options.begins,
        "lam": lam,
        "b": b,
        "drifts": monitoring.as_json(drifts),
        "conforming": monitoring.as_json(alarms),
        "measurements": speed.as_json(times),
    }
    shell.finish(folder, content)
