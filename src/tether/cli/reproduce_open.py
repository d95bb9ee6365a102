"""The command `tether reproduce open`: what the paper leaves open of its second system."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.cli import shell
from tether.core import output

if TYPE_CHECKING:
    from tether.paper.studies.open_parameters import PriorForm, Screened, Trained


@dataclass(frozen=True)
class Options:
    """What `tether reproduce open` can be asked for."""

    out: Annotated[Path, shell.out_option("results.json")] = Path("out/open")
    settings: Annotated[int, typer.Option(help="Random settings to screen.", min=1)] = 3000
    trained: Annotated[int, typer.Option(help="Of those that pass, how many to train at most.", min=0)] = 4
    seeds: Annotated[int, typer.Option(help="Number of seeds of the learners.", min=1)] = 3
    seed: shell.Seed = 0
    episodes: Annotated[int, typer.Option(help="Synthetic training episodes.", min=50)] = 240
    passes: Annotated[int, typer.Option(help="Passes over them.", min=1)] = 40


def reproduce_open(options: Options) -> None:
    """Look for values of what the paper leaves open of AI inference under which all that it reports holds at once.

    First the printed form of the prior Carbon-B beside the one whose certificate is proved. Then random values of Q_c,
    C_d, C_i, capacity, first charge and scale: screened with Carbon-B and a greedy policy, and the most promising
    trained, with the Lipschitz rule `tight` and with the structured certificate. Some minutes.
    """
    from tether.paper.report import section_of
    from tether.paper.studies import open_parameters

    folder = output.prepare_folder(options.out)
    drawn = open_parameters.draw_plant(options.episodes, options.seed)
    forms = open_parameters.prior_forms(drawn.env, drawn.test)
    seeds = range(options.seed, options.seed + options.seeds)
    with shell.counting("screening", options.settings) as report:
        passed, found = open_parameters.search(
            drawn, options.settings, options.trained, seeds, options.passes,
            lambda what, done, total: report(done, total, what),
        )  # fmt: skip
    tables = [prior_table(forms), search_table(options.settings, passed, found)]
    for table in tables:
        shell.console.print(table)
    content = {
        "priors": [asdict(form) for form in forms],
        "screened": options.settings,
        "passed": [asdict(each) for each in passed],
        "trained": [asdict(each) | {"claims": each.claims()} for each in found],
        "evidence": open_parameters.evidence(options.settings, passed, found),
        "sections": [section_of(table) for table in tables],
    }
    shell.finish(folder, content)


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
