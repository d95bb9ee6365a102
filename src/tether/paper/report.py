"""`report.html`: results as one page that needs nothing else, and the figures for print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tether.core.files import complete_file
from tether.learn.methods import METHODS
from tether.paper.results import find_results
from tether.paper.studies.claims import claims_table, write_claims
from tether.paper.studies.comparison import averages, compare

SCRIPTS = ("base.js", "charts.js", "words.js", "player.js", "page.js")
"""The parts of the page's script, in the order in which they build on each other."""


def write_report(folder: str | Path, *, draw: bool = True, claims: Path | None = None) -> Path:
    """Build `report.html` from the results in `folder` or in the folders in it, and figures beside each results.json.

    Args:
        folder: One that `tether reproduce` wrote, or one that holds several of those.
        draw: Whether to draw the figures for print.
        claims: A document between whose marks the table of the paper's claims is to be written, too.

    Returns:
        The page.
    """
    from tether.core import drawing
    from tether.paper import figures

    root = Path(folder)
    found = find_results(root)
    page = root / "report.html"
    with complete_file(page) as draft:
        draft.write_text(
            render(list(found.studies.values()), found.sections, found.evidence), encoding="utf-8"
        )
    if claims is not None:
        write_claims(claims, list(found.studies.values()), found.evidence)
    for file, results in found.studies.items() if draw else ():
        for name, figure in figures.paper_figures(results).items():
            for suffix in (".png", ".svg"):
                drawing.save(figure, file.parent / "figures" / f"{name}{suffix}")
    return page


def write_first_figure(folder: Path, about: dict[str, Any]) -> Path:
    """Draw what the guard does to hostile learners, which is known before anything is learned.

    Args:
        folder: Of a run that has finished its piece `guard`.
        about: The parts `title` and `data` of its `results.json`.

    Returns:
        The figure, which the report draws again.
    """
    from tether.core import drawing
    from tether.paper import figures

    study = json.loads((folder / "pieces" / "guard.json").read_text(encoding="utf-8"))
    file = folder / "figures" / "guard.png"
    drawing.save(figures.guard_figure({**about, "guard": study}), file)
    return file


def render(
    studies: Sequence[dict[str, Any]],
    sections: Sequence[dict[str, Any]] = (),
    evidence: Sequence[dict[str, Any]] = (),
) -> str:
    """The page as text: markup, style, script and data in one.

    Args:
        studies: Contents of `results.json`.
        sections: Further tables (see `find_results`).
        evidence: What other studies found about differences from the paper.
    """
    parts = resources.files("tether.paper") / "page"
    content = json.dumps(
        {
            "results": list(studies),
            "methods": [
                {
                    "name": each.name,
                    "title": each.title,
                    "guarded": each.guarded,
                    "memory": each.sees_memory,
                }
                for each in METHODS
            ],
            "averages": [averages(study) for study in studies],
            "claims": claims_table(studies, evidence),
            "comparison": compare(studies),
            "sections": list(sections),
        },
        allow_nan=False,
    )
    # "</script>" inside the data would end it; "\\u003c" is the same to JSON.
    data = content.replace("<", "\\u003c")
    page = (parts / "page.html").read_text(encoding="utf-8")
    for mark, text in (
        ("/*{css}*/", (parts / "page.css").read_text(encoding="utf-8")),
        ("/*{js}*/", "\n".join((parts / name).read_text(encoding="utf-8") for name in SCRIPTS)),
        ("{data}", data),
    ):
        before, found, after = page.partition(mark)
        assert found, f"page.html has no {mark}"
        page = before + text + after
    return page


def summary_tables(results: dict[str, Any]) -> list[Table]:
    """For the terminal: each method at one setting, over the seeds; a table for each way of learning."""
    lam, b = results["guard"]["lam"], results["guard"]["b"]
    promise = f"J_h <= (1 + {lam:g}) J_h(prior) + {b:g} h in every round"
    tables = []
    for mode in results["grid"]["modes"]:
        table = Table(
            title=f"{results['system']}, learned {mode}: {promise}",
            caption=f"{results['data']['test_episodes']} test episodes; mean ± standard deviation over "
            f"{len(results['grid']['seeds'])} seeds; viol.: share of the episodes with a violation",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        for name in ("method", "rule"):
            table.add_column(name, no_wrap=True)
        for name in ("reward", "regret", "mean cost", "worst", "viol."):
            table.add_column(name, justify="right", no_wrap=True)
        rows = [row for row in results["scores"] if (row["mode"], row["lam"], row["b"]) == (mode, lam, b)]
        for method, rule in dict.fromkeys((row["method"], row["rule"]) for row in rows):
            mine = [row for row in rows if (row["method"], row["rule"]) == (method, rule)]
            rate = float(np.mean([row["violation_rate"] for row in mine]))
            table.add_row(
                method,
                rule or "-",
                _spread([row["reward"] for row in mine]),
                "-" if mine[0]["regret"] is None else _spread([row["regret"] for row in mine]),
                _spread([row["cost"] for row in mine]),
                f"{max(row['worst_cost'] for row in mine):.0f}",
                f"[{'red' if rate > 0.0 else 'green'}]{rate:.1%}",
            )
        tables.append(table)
    return [*tables, *_averages_table(results)]


def _averages_table(results: dict[str, Any]) -> list[Table]:
    """CRL's average cost beside the bound that it is trained for, if there is a CRL."""
    rows = averages(results)
    if not rows:
        return []
    met = sum(row["verdict"] == "met" for row in rows)
    table = Table(
        title=f"{results['system']}: CRL's average cost on test episodes against its bound",
        caption=f"met in {met} of {len(rows)}; no promise for a single episode follows from it",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("learned", no_wrap=True)
    for name in ("lam", "b", "average cost", "bound", "seeds", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["mode"],
            f"{row['lam']:g}",
            f"{row['b']:g}",
            _spread(row["costs"]),
            f"{row['bound']:.1f}",
            f"{row['kept']} of {len(row['costs'])}",
            f"[{'green' if row['verdict'] == 'met' else 'red'}]{row['verdict']}",
        )
    return [table]


def section_of(table: Table) -> dict[str, Any]:
    """A table of the terminal as one of the page (see `find_results`)."""
    columns = [[Text.from_markup(str(cell)).plain for cell in column.cells] for column in table.columns]
    return {
        "title": Text.from_markup(str(table.title or "")).plain,
        "text": Text.from_markup(str(table.caption or "")).plain,
        "columns": [Text.from_markup(str(column.header)).plain for column in table.columns],
        "rows": [list(row) for row in zip(*columns, strict=True)],
    }


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values):.1f}"
