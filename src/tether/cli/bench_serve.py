"""The commands `tether bench serve` and `fuzz`: the service under load, and under nonsense."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output

Durability = Annotated[str, typer.Option(help="Of the journal: process, group or power.")]


@dataclass(frozen=True)
class ServeOptions:
    """What `tether bench serve` can be asked for."""

    out: shell.Out = Path("out/bench/serve")
    seed: shell.Seed = 0
    repetitions: Annotated[int, typer.Option(help="How often each size is measured, alternately.", min=3)] = 5
    decisions: Annotated[int, typer.Option(help="Decisions of each burst.", min=256)] = 2048
    memory: Annotated[
        int, typer.Option(help="Decisions over which the memory is watched; 0 leaves it out.", min=0)
    ] = 100_000
    minutes: Annotated[
        float, typer.Option(help="The memory is watched for no longer than that.", min=0.1)
    ] = 60.0
    latency: Annotated[bool, typer.Option(help="Measure latency and rate; without it, the memory only.")] = (
        True
    )
    durability: Durability = "process"
    kind: Annotated[str, typer.Option(help="Certificate: lipschitz or structured.")] = "lipschitz"


def serve(options: ServeOptions) -> None:
    """Measure decisions over HTTP on this machine, with 1, 16 and 256 plants, beside a handler that does nothing.

    A decision is act + observe. Nothing else should run meanwhile; where something does, the rate for a second of the
    service's own processor time says what it would be. `--memory 1000000` watches a million decisions.
    """
    from tether.bench import serving, speed
    from tether.core import validate

    validate.choice("--durability", options.durability, ("process", "group", "power"))
    validate.choice("--kind", options.kind, ("lipschitz", "structured"))
    folder = output.prepare_folder(options.out)
    taken = []
    with shell.counting("measuring") as report:
        if options.latency:
            for each in serving.bench_serve(
                options.seed, options.repetitions, options.decisions, options.durability, options.kind
            ):
                taken.append(each)
                report(len(taken))
        if options.memory:
            report(0, options.memory, "memory")
            taken += serving.bench_memory(
                options.seed, options.memory, options.durability, report, options.minutes
            )
    shell.console.print(speed.table("tether bench serve", taken))
    shell.finish(folder, {"measurements": speed.as_json(taken)})


@dataclass(frozen=True)
class FuzzOptions:
    """What `tether bench fuzz` can be asked for."""

    out: shell.Out = Path("out/bench/fuzz")
    seed: shell.Seed = 0
    requests: Annotated[int, typer.Option(help="How many.", min=1)] = 100_000


def fuzz(options: FuzzOptions) -> None:
    """Send nonsense to every endpoint: no 5xx, no state changed by what is refused, the same answer when repeated.

    Exit code 2 if there was a problem.
    """
    from tether.bench.fuzzing import fuzz as send
    from tether.serve.routes import ENDPOINTS

    folder = output.prepare_folder(options.out)
    with shell.counting("requests", options.requests) as report:
        found = send(options.requests, options.seed, report)
    calls = {end.call for end in ENDPOINTS}
    for call in sorted(calls):
        counts = {name.split()[1]: n for name, n in sorted(found.statuses.items()) if name.split()[0] == call}
        shell.console.print(f"{call:>14}  " + "  ".join(f"{status}: {n}" for status, n in counts.items()))
    shell.console.print(
        f"{found.requests:,} requests to {len(calls)} endpoints; {found.changed:,} were done and changed something, "
        f"{found.repeated:,} were repeated; problems: {len(found.problems)}",
        soft_wrap=True,
    )
    statuses = dict(sorted(found.statuses.items()))
    shell.finish(folder, {"requests": found.requests, "statuses": statuses, "problems": found.problems[:100]})
    if found.problems:
        raise ValueError(f"{len(found.problems)} problems; the first: {found.problems[0]}")
