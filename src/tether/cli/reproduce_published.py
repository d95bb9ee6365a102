"""The command `tether reproduce published`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output


@dataclass(frozen=True)
class Options:
    """What `tether reproduce published` can be asked for."""

    paper: Annotated[Path, typer.Option(help="Folder with the authors' published.json and networks_b2.npz.")]
    data: Annotated[Path, typer.Option(help="Folder with the authors' carbon data (.mat).")]
    out: shell.Out = Path("out/published")
    seed: shell.Seed = 0
    """The seeds are fixed: it is of no consequence."""
    budgets: Annotated[
        bool, typer.Option("--budgets/--no-budgets", help="Train CRL for several B, about a minute.")
    ] = True


def reproduce_published(options: Options) -> None:
    """Play the authors' networks through our guard, and compare with every number that they published.

    Rule `released`, their constants, their 1416 test windows; and their RL network without a guard. Then, at lam = 2
    and b = 2, what follows from numbers that the paper does not print or prints otherwise: the constant `carried`, the
    largest backlog, two weights of the reward. Last, what shows why printed numbers differ from ours: the months and
    networks behind RL's cost, random networks, CRL's B. The seeds are fixed: `--seed` is of no consequence.
    """
    from tether.paper.report import section_of
    from tether.paper.studies import choices as unprinted
    from tether.paper.studies import published

    paper, data, console = options.paper, options.data, shell.console
    folder = output.prepare_folder(options.out)
    with shell.counting("playing") as report:
        rows = published.play_published(paper, data, report=report)
        free, (least, largest) = published.play_rl(paper, data), published.play_idle(paper, data)
        choices = unprinted.play_choices(paper, data)
        scaled, months = unprinted.play_scaled(paper, data), unprinted.play_months(paper, data)
        drawn = unprinted.play_random(paper, data)
        trained = unprinted.train_budgets(data) if options.budgets else []
    found = unprinted.evidence(published.read_published(paper), scaled, months, drawn, trained)
    tables = [unprinted.choices_table(choices), *([unprinted.budgets_table(trained)] if trained else [])]
    console.print(published.published_table(rows))
    console.print(published.rl_table(free, published.read_published(paper)["paper_text"]))
    console.print(
        f"A network that proposes 0, behind rule released: regret {least:.2f} to {largest:.2f} over lam and b"
    )
    console.print(*tables, sep="\n")
    for each in found:
        console.print(f"{each['on']}: {each['text']}")
    content = {
        "rows": [asdict(row) | {"agrees": row.agrees} for row in rows],
        "rl_network": [asdict(row) for row in free],
        "idle_regret": [least, largest],
        "choices": [asdict(choice) for choice in choices],
        "scaled": [asdict(row) for row in scaled],
        "months": asdict(months),
        "random": [asdict(row) for row in drawn],
        "budgets": [asdict(row) for row in trained],
        "evidence": found,
        "sections": [section_of(table) for table in tables],
    }
    shell.finish(folder, content)
