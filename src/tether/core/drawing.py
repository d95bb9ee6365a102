"""Figures, drawn without a display and readable in print: one style, one place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.lines
import numpy as np
from matplotlib.figure import Figure

from tether.core.files import complete_file

if TYPE_CHECKING:
    from tether.core.audit import Audit

# Okabe and Ito's palette, told apart with every kind of colour vision.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
SKY, PURPLE, BLACK = "#56B4E9", "#CC79A7", "#000000"

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "axes.titlesize": 9,
    "figure.titlesize": 9,
    "svg.hashsalt": "tether",
}

styled = mpl.rc_context(_STYLE)
"""Decorator of functions that draw: everything in them is in the house style."""


def new_figure(
    width: float, height: float, columns: int = 1, rows: int = 1, **options: Any
) -> tuple[Figure, Any]:
    """A figure in the house style, sizes in inches, and its array of axes [rows, columns]."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save(figure: Figure, path: str | Path) -> None:
    """Save a figure as .png, .svg or .pdf."""
    target = Path(path)
    if target.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"a figure is saved as .png, .svg or .pdf, got {str(path)!r}")
    with mpl.rc_context(_STYLE), complete_file(target) as draft:
        # Without a date the same results give the same file.
        figure.savefig(draft, dpi=160, metadata={"Date": None} if target.suffix == ".svg" else None)


def draw_spread(axis: Any, curves: Any, color: str, label: str) -> None:
    """The median of curves [N, H] over rounds 1..H, and the band of the middle 90 % of them."""
    rounds = np.arange(1, curves.shape[1] + 1)
    low, middle, high = np.quantile(curves, [0.05, 0.5, 0.95], axis=0)
    axis.fill_between(rounds, low, high, color=color, alpha=0.2, linewidth=0)
    axis.plot(rounds, middle, color=color, label=label)


@styled
def audit_figure(audit: Audit) -> Figure:
    """The figure of one audit: cumulative cost as a share of its bound."""
    figure, axes = new_figure(5.5, 3.4)
    axis = axes[0, 0]
    share = audit.cumulative_costs / audit.bounds
    draw_spread(axis, share, BLUE, "median, and the middle 90 % of the episodes")
    worst = share[np.argmax(np.max(share, axis=1))]
    axis.plot(np.arange(1, len(worst) + 1), worst, ":", color=BLUE, label="the episode nearest to its bound")
    axis.axhline(1.0, color=RED, linewidth=1.2, label="the bound")
    axis.set_xlabel("round h")
    axis.set_ylabel("cumulative cost / its bound")
    verdict = (
        "kept in every round" if audit.holds else f"broken in {audit.violation_rate:.1%} of the episodes"
    )
    axis.set_title(
        f"lam = {audit.contract.lam:g}, b = {audit.contract.b:g}: the promise is {verdict}", loc="left"
    )
    axis.set_ylim(bottom=0.0)
    axis.legend(loc="best", fontsize=8)
    return figure
