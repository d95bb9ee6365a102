"""The table and the figure of `tether frontier`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import matplotlib.ticker
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.assure.frontier import Contracted, Point
from tether.core.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, new_figure, styled
from tether.systems.system import System

COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
"""Of the values of b, over and over."""


@dataclass(frozen=True)
class Words:
    """How a system's reward and cost are called, and what a unit of reward is worth."""

    reward: str
    """Label with unit."""
    cost: str
    """Label with unit."""
    worth: float | None = None
    """Money for a unit of reward; None if nobody said."""
    currency: str = ""

    @classmethod
    def of(cls, system: System, worth: float | None, currency: str) -> Words:
        """From the labels `"reward"` and `"cost"` of the system's `axes`."""
        return cls(system.axes.get("reward", "reward"), system.axes.get("cost", "cost"), worth, currency)

    def money(self, reward: float) -> str:
        """An amount."""
        assert self.worth is not None
        return f"{reward * self.worth:+,.2f} {self.currency}"


def frontier_table(title: str, prior: Point, rows: list[Contracted], words: Words, proven: bool) -> Table:
    """A line a contract: what it permits, what the learner costs and brings, what there is to gain at most."""
    table = Table(title=f"{title}: an episode under each contract", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    broken = max(row.learner.violation_rate for row in rows)
    table.caption = (
        f"The prior: reward {prior.reward:.2f}, cost {prior.mean_cost:.1f} mean, {prior.worst_cost:.1f} worst. "
        f"Units: {words.reward}; {words.cost}. permitted: the most that the promise allows the worst of them; "
        "worst, mean: what the learner costs; gained: its reward above the prior's; limit: what hindsight gains; "
        f"*: no contract of the grid permits less and gains more. Episodes that break the promise: {broken:.0%}."
    )
    if not proven:
        table.caption += " The limit is the best that a search found, NOT a proven upper bound."
    money = words.worth is not None
    for name in ("lam", "b", "", "permitted", "worst", "mean", "gained", "limit", *(["money"] * money)):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        learner, gained = row.learner, row.learner.reward - prior.reward
        spread = f" ± {learner.reward_spread:.2f}" if learner.reward_spread > 0.0 else ""
        table.add_row(
            f"{row.lam:g}",
            f"{row.b:g}",
            "*" if row.best else "",
            f"{row.limit.worst_cost:.1f}",
            f"{learner.worst_cost:.1f}",
            f"{learner.mean_cost:.1f}",
            f"{gained:+.2f}{spread}",
            f"{row.limit.reward - prior.reward:+.2f}",
            *([words.money(gained)] if money else []),
        )
    return table


@styled
def frontier_figure(title: str, prior: Point, rows: list[Contracted], words: Words) -> Figure:
    """Reward against the worst and against the mean cost of an episode; a colour for each b, a line along lam."""
    figure, axes = new_figure(9.5, 4.6, columns=2, sharey=True)
    bs = sorted({row.b for row in rows})
    for axis, field, name in zip(
        axes[0], ("worst_cost", "mean_cost"), ("worst episode", "mean episode"), strict=True
    ):
        for i, b in enumerate(bs):
            shown = sorted((row for row in rows if row.b == b), key=lambda row: row.lam)
            _draw(axis, shown, field, COLORS[i % len(COLORS)], f"b = {b:g}")
        axis.plot(getattr(prior, field), prior.reward, "*", color=BLACK, markersize=11)
        axis.set_xlabel(f"{words.cost}, {name}")
        if getattr(prior, field) > 0.0:  # costs go over orders of magnitude, unless the prior's are none
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter("")
    axes[0, 0].set_ylabel(f"{words.reward}, mean episode")
    if words.worth is not None:
        worth = words.worth
        money = axes[0, 1].secondary_yaxis(
            "right",
            functions=(lambda y: (y - prior.reward) * worth, lambda y: y / worth + prior.reward),
        )
        money.set_ylabel(f"above the prior, {words.currency} an episode")
    handles, _ = axes[0, 0].get_legend_handles_labels()
    handles += [
        axes[0, 0].plot([], [], *look, color=GREY, label=label)[0]
        for look, label in (
            (("o-",), "learner, along lam"),
            (("^:",), "hindsight limit, at what the contract permits"),
        )
    ]
    handles.append(axes[0, 0].plot([], [], "*", color=BLACK, markersize=9, label="prior")[0])
    figure.legend(handles=handles, ncols=len(handles), loc="outside lower center", fontsize=8)
    figure.suptitle(
        f"{title}: what each contract costs and brings (numbers: lam; ring: none better in the grid)"
    )
    return figure


def _draw(axis: Any, rows: list[Contracted], field: str, color: str, label: str) -> None:
    """The learner and the limit for one b; a thin line joins what was spent and what is permitted."""
    spent = [getattr(row.learner, field) for row in rows]
    earned = [row.learner.reward for row in rows]
    axis.errorbar(
        spent,
        earned,
        yerr=[row.learner.reward_spread for row in rows],
        fmt="o-",
        color=color,
        markersize=4,
        label=label,
    )
    permitted = [getattr(row.limit, field) for row in rows]
    axis.plot(permitted, [row.limit.reward for row in rows], "^:", color=color, markersize=4, alpha=0.6)
    for row, x, y in zip(rows, spent, earned, strict=True):
        axis.annotate(
            f"{row.lam:g}", (x, y), xytext=(5, -9), textcoords="offset points", fontsize=7, color=color
        )
        if row.best:
            axis.plot(x, y, "o", color=color, markersize=9, fillstyle="none")
