"""What was estimated, as a table and as figures."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from tether.core import drawing
from tether.estimation.estimates import Estimates


def estimates_table(found: Estimates) -> Table:
    """What was found, as a table."""
    title = f"Estimated, not proved: {found.rows:,} rows, confidence {found.confidence:g}, safety {found.safety:g}"
    table = Table("constant", "recommended", "most likely", "interval", "rows", "what it is", title=title)
    for name, each in found.constants.items():
        if each.value is None or each.low is None or each.high is None or each.recommended is None:
            table.add_row(name, "not identified", "", "", "0", each.meaning)
            continue
        table.add_row(
            name,
            f"{each.recommended:.4g}",
            f"{each.value:.4g}",
            f"{each.low:.4g} to {each.high:.4g}",
            f"{each.evidence:,}",
            f"{each.meaning}, {each.unit}",
        )
    return table


@drawing.styled
def slopes_figure(found: Estimates) -> Figure:
    """For each constant: local slopes over the sample, the extrapolated value, its limit and the recommendation."""
    names = [name for name in found.constants if name in found.slopes and found[name].identified]
    columns = 2
    rows = -(-len(names) // columns)
    figure, axes = drawing.new_figure(9.0, 2.1 * rows + 0.6, columns=columns, rows=rows)
    for axis, name in zip(axes.ravel(), names, strict=False):
        each = found[name]
        assert each.value is not None
        assert each.recommended is not None
        assert each.low is not None
        assert each.high is not None
        floor = name == "cost_floor"
        values = -found.slopes[name] if floor else found.slopes[name]
        axis.hist(values, bins=60, color=drawing.GREY, alpha=0.6, log=True, label="seen, local")
        axis.axvline(
            each.value,
            color=drawing.BLUE,
            linestyle="--",
            label=f"{found.times:g} times as long, most likely",
        )
        limit = each.low if floor else each.high
        axis.axvline(limit, color=drawing.BLUE, label=f"its limit, confidence {found.confidence:g}")
        axis.axvline(each.recommended, color=drawing.RED, label="recommended")
        axis.set_title(f"{name}: {each.meaning}", loc="left", fontsize=8)
        axis.set_xlabel(each.unit)
        axis.set_ylabel("rows")
    for axis in axes.ravel()[len(names) :]:
        axis.axis("off")
    handles, labels = axes.ravel()[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(f"Estimated, not proved: {found.rows:,} logged rounds", x=0.01, ha="left")
    return figure


@drawing.styled
def perturbation_figure(found: Estimates) -> Figure:
    """How a deviation fades: measured on average, and the recommended p(n)."""
    figure, axes = drawing.new_figure(9.0, 3.6, columns=2)
    left, right = axes[0]
    impulse, gain = found.impulse, found["L_f_action"]
    later = np.arange(24 if impulse is None else len(impulse.state))
    p = found.scale * (found["rho"].recommended or 0.0) ** later
    if impulse is not None and gain.recommended is not None:
        left.errorbar(
            later,
            impulse.state,
            2.0 * impulse.state_error,
            fmt="o",
            color=drawing.BLUE,
            markersize=3,
            label="measured mean, two standard errors",
        )
        left.plot(later, gain.recommended * p, color=drawing.RED, label="recommended: L_f_action p(n)")
        carried, immediate = found["carried"].recommended, found["immediate"].recommended
        assert carried is not None
        assert immediate is not None
        right.errorbar(
            later, impulse.cost, 2.0 * impulse.cost_error, fmt="o", color=drawing.BLUE, markersize=3
        )
        right.plot(later, np.concatenate([[immediate], carried * p[:-1]]), color=drawing.RED)
        right.set_ylabel("response of the cost, cost per action")
        right.set_title("immediate, then carried p(n - 1)", loc="left")
        noise = float(np.median(impulse.state_error)), float(np.median(impulse.cost_error))
        for axis, level in zip((left, right), noise, strict=True):
            axis.set_ylim(bottom=0.3 * level)
    else:
        left.plot(later, p, color=drawing.RED, label="recommended p(n), not checked against responses")
        right.axis("off")
    for axis in (left, right):
        axis.set_yscale("log")
        axis.set_xlabel("rounds after the deviation, n")
    left.set_ylabel("response of the state, state per action")
    left.set_title("What a unit deviation leaves n rounds after the next state", loc="left")
    left.legend(fontsize=8)
    return figure
