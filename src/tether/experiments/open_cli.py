"""The command `tether reproduce open`: what the paper leaves open of its second system."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

if TYPE_CHECKING:
    from tether.experiments.open_parameters import PriorForm, Screened, Trained

console = Console()


def command(
    out: Annotated[
        Path, typer.Option("--out", help="Folder for results.json; made if it is not there.")
    ] = Path("out/open"),
    settings: Annotated[int, typer.Option(help="Random settings to screen.", min=1)] = 3000,
    trained: Annotated[int, typer.Option(help="Of those that pass, how many to train at most.", min=0)] = 4,
    seeds: Annotated[int, typer.Option(help="Number of seeds of the learners.", min=1)] = 3,
    seed: Annotated[int, typer.Option("--seed", help="First random seed.", min=0)] = 0,
    episodes: Annotated[int, typer.Option(help="Synthetic training episodes.", min=50)] = 240,
    passes: Annotated[int, typer.Option(help="Passes over them.", min=1)] = 40,
) -> None:
    """Look for values of what the paper leaves open of AI inference under which all that it reports holds at once.

    First the printed form of the prior Carbon-B beside the one whose certificate is proved. Then random values of Q_c,
    C_d, C_i, capacity, first charge and scale: screened with Carbon-B and a greedy policy, and the most promising
    trained, with the Lipschitz rule `tight` and with the structured certificate. Some minutes.
    """
    from tether.envs import Inference
    from tether.experiments import open_parameters, output
    from tether.experiments.learners import load_system
    from tether.experiments.report import section_of

    folder = output.prepare_folder(out)
    drawn = load_system("inference", None, episodes, seed)
    forms = open_parameters.prior_forms(Inference(), drawn.test)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("screening", total=settings)
        passed, found = open_parameters.search(
            drawn, settings, trained, range(seed, seed + seeds), passes,
            lambda what, done, total: progress.update(task, description=what, completed=done, total=total),
        )  # fmt: skip
    tables = [prior_table(forms), search_table(settings, passed, found)]
    for table in tables:
        console.print(table)
    output.write_json(
        folder / "results.json",
        {
            "priors": [asdict(form) for form in forms],
            "screened": settings,
            "passed": [asdict(each) for each in passed],
            "trained": [asdict(each) | {"claims": each.claims()} for each in found],
            "evidence": open_parameters.evidence(settings, passed, found),
            "sections": [section_of(table) for table in tables],
            "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
        },
    )
    console.print(f"Results: {folder / 'results.json'}")


def prior_table(forms: list[PriorForm]) -> Table:
    """The forms of Carbon-B side by side."""
    table = Table(
        title="Carbon-B as printed, and in the form that a certificate is proved for", box=SIMPLE_HEAD
    )
    table.caption = "differs: share of the actions that the Lipschitz form would not take in the same state"
    table.add_column("form", no_wrap=True)
    for name in ("differs", "reward", "mean cost", "worst cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for form in forms:
        numbers = (form.reward, form.cost, form.worst_cost)
        table.add_row(form.form, f"{form.differs:.1%}", *(f"{number:.2f}" for number in numbers))
    return table


def search_table(settings: int, passed: list[Screened], found: list[Trained]) -> Table:
    """What was trained, and which claims do not hold."""
    whole = sum(all(each.claims().values()) for each in found)
    table = Table(title="Inference: values of the open parameters, and the paper's claims", box=SIMPLE_HEAD)
    table.caption = (
        f"{settings} settings drawn, {len(passed)} pass the screening, {len(found)} trainings; all claims hold in "
        f"{whole} of them. Regrets are of the training episodes, as in the paper: mean over the seeds, ACRL at lam = 5 "
        "and 7."
    )
    table.add_column("Q_c, C_d, C_i; capacity, charged; demand, renewables")
    for name in ("guard", "Carbon-B", "CRL", "ACRL 5", "ACRL 7"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("does not hold")
    for each in found:
        at = each.setting
        words = (
            f"{at.carbon_slack:.2f}, {at.demand_weight:.2f}, {at.performance_scale:.2f}; {at.capacity:.1f}, "
            f"{at.charged:.0%}; {at.demand:.1f}, x{at.renewables:.2f}"
        )
        regrets = (each.prior, each.crl, each.acrl, each.acrl_freer)
        failing = ", ".join(claim for claim, holds in each.claims().items() if not holds)
        table.add_row(
            words, each.certificate, *(f"{np.mean(regret):.2f}" for regret in regrets), failing or "all hold"
        )
    return table
