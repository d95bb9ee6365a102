"""The command `tether reproduce theory`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from tether.cli import shell
from tether.core import output, validate

if TYPE_CHECKING:
    from tether.paper.studies.theory_tables import TheoryStudy


@dataclass(frozen=True)
class Options:
    """What `tether reproduce theory` can be asked for."""

    out: shell.Out = Path("out/theory")
    lam: Annotated[float, typer.Option(help="Relative slack, for the learning curves.")] = 0.25
    b: Annotated[float, typer.Option(help="Slack a round, for the learning curves, cost units.")] = 0.25
    lams: Annotated[str, typer.Option(help="Values of lam to check the theorems at.")] = "0,0.5,1,4"
    bs: Annotated[str, typer.Option(help="Values of b to check them at.")] = "0,0.5,1,4"
    episodes: Annotated[int, typer.Option(help="Episodes that each seed learns for (K).", min=10)] = 500
    seeds: shell.Seeds = 10
    seed: shell.Seed = 0
    delta: Annotated[float, typer.Option(help="Probability that the confidence sets may fail with.")] = 0.1
    scale: Annotated[
        float | None, typer.Option(help="beta used / beta printed; the classical ellipsoid if not given.")
    ] = None
    rule: Annotated[str, typer.Option(help="The guard's rule: paper, released or tight.")] = "tight"
    states: Annotated[int, typer.Option(help="Grid nodes of the state.", min=2)] = 21
    actions: Annotated[int, typer.Option(help="Proposals to choose from.", min=2)] = 25


def reproduce_theory(options: Options) -> None:
    """Run the exact algorithm (Algorithm 2) and put both theorems beside what is measured.

    On a small carbon system, with an exact oracle: pseudo-regret of the optimistic learner, of one without optimism and
    of a random one, violations, coverage of the true model; Theorems 5.1 and 5.2 along lam and along b. Writes
    `results.json`, `learning` and `bounds` as .png and .svg. Some minutes.

    For instance `tether reproduce theory --episodes 2000 --lams 0,1,4 --bs 0,1,4`.
    """
    from tether.core import drawing
    from tether.paper.report import section_of
    from tether.paper.studies import theory_figures

    folder = output.prepare_folder(options.out)
    study = _study(options)
    for table in study.tables():
        shell.console.print(table)
    for name, figure in (
        ("learning", theory_figures.learning_figure(study)),
        ("bounds", theory_figures.bounds_figure(study)),
    ):
        for suffix in (".png", ".svg"):
            drawing.save(figure, folder / (name + suffix))
    sections = [section_of(table) for table in study.tables()]
    shell.finish(
        folder,
        study.as_json() | {"evidence": study.evidence(), "sections": sections},
        ["learning.png", "bounds.png"],
    )


def _study(options: Options) -> TheoryStudy:
    """Check the options, and learn."""
    from tether.certificates import Rule
    from tether.exact.grid import Resolution
    from tether.paper.studies.theory import theory_study

    lam, b = shell.promise(options.lam, options.b)
    if not 0.0 < options.delta < 1.0:
        raise ValueError(f"--delta must be between 0 and 1, got {options.delta!r}")
    if options.scale is not None:
        validate.number("--scale", options.scale, above=0.0)
    validate.choice("rule", options.rule, get_args(Rule))
    grid = [
        [validate.number(name, each, minimum=0.0) for each in shell.numbers(name, text)]
        for name, text in (("--lams", options.lams), ("--bs", options.bs))
    ]
    with shell.counting("learning") as report:
        return theory_study(
            lam,
            b,
            *grid,
            episodes=options.episodes,
            seeds=shell.seeds_from(options.seed, options.seeds),
            delta=options.delta,
            scale=options.scale,
            rule=cast(Rule, options.rule),
            resolution=Resolution(states=options.states, actions=options.actions),
            report=report,
        )
