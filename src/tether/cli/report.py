"""The command `tether report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell


@dataclass(frozen=True)
class Options:
    """What `tether report` can be asked for."""

    folder: Annotated[
        Path, typer.Argument(help="One that `tether reproduce` wrote, or one with several of those in it.")
    ]
    figures: Annotated[bool, typer.Option(help="Draw the figures for print, too.")] = True
    claims: Annotated[
        Path | None,
        typer.Option(
            help="Document in which to renew the table of the paper's claims, such as docs/reproduce.md."
        ),
    ] = None


def report(options: Options) -> None:
    """Build report.html and the figures again from results.json.

    Given a folder that holds the folders of several runs, the page shows all of them, and the comparison with the paper
    has a column for the authors' data and one for embedded data.
    """
    from tether.paper.report import write_report

    page = write_report(options.folder, draw=options.figures, claims=options.claims)
    shell.console.print(f"Report: {page}", soft_wrap=True)
