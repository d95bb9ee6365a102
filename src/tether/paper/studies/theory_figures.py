"""The figures of `tether reproduce theory`."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from tether.core import drawing
from tether.paper.studies.theory_tables import TheoryStudy

COLORS: dict[str, str] = {
    "optimistic": drawing.BLUE,
    "certainty-equivalent": drawing.GREEN,
    "counting": drawing.PURPLE,
    "random": drawing.ORANGE,
}


@drawing.styled
def learning_figure(study: TheoryStudy) -> Figure:
    """Cumulative pseudo-regret with Theorem 5.2's bounds, and the gap to pi-circ, over the episodes."""
    figure, axes = drawing.new_figure(9.5, 4.0, columns=2)
    left, right = axes[0]
    k = np.arange(1, study.episodes + 1)
    for name, curves in study.curves.items():
        for axis, key, factor in ((left, "regret", 1.0), (right, "gap", 100.0)):
            values = np.maximum(factor * curves[key], 1e-3)
            if key == "regret" or name == "optimistic":
                band = (values.min(axis=0), values.max(axis=0))
                axis.fill_between(k, *band, color=COLORS[name], alpha=0.15, linewidth=0)
            axis.plot(k, values.mean(axis=0), color=COLORS[name], label=name if key == "regret" else None)
    (row,) = (each for each in study.settings if (each.lam, each.b) == (study.lam, study.b))
    left.axhline(row.used_bound, color=drawing.RED, label="Theorem 5.2 at the beta used, k = K")
    left.axhline(row.printed_bound, color=drawing.RED, linestyle="--", label="Theorem 5.2 as printed, k = K")
    left.set_ylabel("cumulative pseudo-regret, reward units")
    left.set_title("What learning costs: mean, and all seeds", loc="left")
    right.axhline(1.0, color=drawing.GREY, linestyle=":", label="1 %")
    right.set_ylabel("greedy policy below pi-circ, %")
    right.set_title("Each episode's greedy policy: mean, and all optimistic seeds", loc="left")
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("episode k")
    figure.legend(loc="outside lower center", fontsize=8, ncols=3)
    figure.suptitle(
        f"Algorithm 2, small carbon system, lam = {study.lam:g}, b = {study.b:g}, {len(study.seeds)} seeds",
        x=0.01,
        ha="left",
    )
    return figure


@drawing.styled
def bounds_figure(study: TheoryStudy) -> Figure:
    """Both theorems: bound and measurement along lam and along b."""
    figure, axes = drawing.new_figure(9.5, 6.6, columns=2, rows=2)
    for column, (rows, name) in enumerate(zip(study.lines(), ("lam", "b"), strict=True)):
        at = [getattr(row, name) for row in rows]
        fixed = f"b = {study.b:g}" if name == "lam" else f"lam = {study.lam:g}"
        top, bottom = axes[0, column], axes[1, column]
        top.plot(at, [row.promise_bound for row in rows], "-", color=drawing.RED, label="Theorem 5.1")
        top.plot(at, [row.projected for row in rows], "--", color=drawing.GREY, label="pi-perp of its proof")
        top.plot(
            at, [max(row.regret, 0.0) for row in rows], "o-", color=drawing.BLUE, label="measured, pi-circ"
        )
        top.set_yscale("symlog", linthresh=0.01)
        top.set_ylim(bottom=-0.001)
        top.set_title(f"What the promise costs: V* - V, {fixed}", loc="left")
        printed = [row.printed_bound for row in rows]
        bottom.plot(at, printed, "--", color=drawing.RED, label="Theorem 5.2 as printed")
        bottom.plot(
            at, [row.used_bound for row in rows], "-", color=drawing.RED, label="Theorem 5.2 at the beta used"
        )
        bottom.plot(
            at,
            [row.printed_regret for row in rows],
            "s--",
            color=drawing.ORANGE,
            label="measured, printed beta",
        )
        measured = np.array([row.learning_regrets for row in rows])
        bottom.fill_between(
            at, measured.min(axis=1), measured.max(axis=1), color=drawing.BLUE, alpha=0.2, linewidth=0
        )
        bottom.plot(
            at, measured.mean(axis=1), "o-", color=drawing.BLUE, label="measured, beta used (all seeds)"
        )
        bottom.set_yscale("log")
        bottom.set_ylim(bottom=0.1)
        bottom.set_title(f"What learning costs: PReg({study.episodes}), {fixed}", loc="left")
        for axis in (top, bottom):
            axis.set_xlabel(name)
            axis.set_ylabel("reward units")
    handles = [*axes[0, 0].get_legend_handles_labels()[0], *axes[1, 0].get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", fontsize=8, ncols=3)
    return figure
