"""The command `tether bench learners`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output


@dataclass(frozen=True)
class LearnersOptions:
    """What `tether bench learners` can be asked for."""

    out: shell.Out = Path("out/bench/learners")
    seeds: shell.Seeds = 3
    passes: Annotated[int, typer.Option(help="Passes of ours over 1000 episodes.", min=2)] = 30
    episodes: Annotated[int, typer.Option(help="Episodes that each PPO may play.", min=50)] = 20_000
    every: Annotated[int, typer.Option(help="Episodes after which PPO is judged.", min=50)] = 1000


def learners(options: LearnersOptions) -> None:
    """Compare our learner with PPO of Stable-Baselines3 (extra `sb3`) and PPO compiled by JAX, behind the same guard.

    How many episodes and seconds, compilation included, until 95 % of our gain over the prior is reached.
    """
    from tether.bench.learners import bench_learners
    from tether.bench.speed import as_json, table, yardstick_system

    folder = output.prepare_folder(options.out)
    taken, ways = bench_learners(
        yardstick_system(),
        options.seeds,
        options.passes,
        options.episodes,
        options.every,
        shell.console.print,
    )
    shell.console.print(table("tether bench learners", taken))
    shell.finish(folder, {"measurements": as_json(taken), **ways})
