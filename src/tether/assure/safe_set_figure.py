"""The picture of one guarded episode: which actions were safe, what was played, and the cost against its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from tether.core.drawing import BLACK, BLUE, GREEN, GREY, RED, new_figure, styled

if TYPE_CHECKING:
    from tether.assure.safe_sets import SafeSets

SHOWN = 6
"""Entries of an action that get a row of their own."""


@styled
def episode_figure(sets: SafeSets, title: str = "") -> Figure:
    """A row for each entry of the action, and one for the cumulative cost."""
    rounds = np.arange(1, len(sets.costs) + 1)
    entries = int(np.prod(sets.played.shape[1:]))
    rows = min(entries, SHOWN)
    figure, axes = new_figure(7.0, 0.8 + 2.3 * (rows + 1), rows=rows + 1, sharex=True)
    parts = [np.reshape(each, (len(rounds), entries)).T for each in sets[1:6]]
    for i in range(rows):
        _draw_actions(axes[i, 0], rounds, *(each[i] for each in parts))
        axes[i, 0].set_ylabel("action" if entries == 1 else f"action, entry {i + 1}")
    axis = axes[-1, 0]
    axis.plot(rounds, sets.bounds, color=BLACK, label="the bound")
    axis.plot(rounds, np.cumsum(sets.costs), color=BLUE, label="played")
    axis.plot(rounds, np.cumsum(sets.prior_costs), color=GREY, linestyle="--", label="prior")
    axis.set(xlabel="round", ylabel="cost so far", xlim=(0.5, len(rounds) + 0.5))
    axis.set_ylim(bottom=0.0)
    axis.legend(loc="upper left", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=4, loc="outside lower center")
    contract = sets.contract
    figure.suptitle(title or f"lam = {contract.lam:g}, b = {contract.b:g}", x=0.02, ha="left")
    return figure


def _draw_actions(axis: Any, rounds: Any, low: Any, high: Any, prior: Any, wish: Any, played: Any) -> None:
    # Each round's interval as a bar of its own: between rounds there is nothing to interpolate.
    edges = np.append(rounds - 0.5, rounds[-1] + 0.5)
    axis.stairs(high, edges, baseline=low, fill=True, color=GREEN, alpha=0.25, linewidth=0, label="safe")
    axis.stairs(prior, edges, baseline=None, color=GREY, linestyle="--", linewidth=1.2, label="prior")
    axis.plot(rounds, wish, "x", color=RED, markersize=4, label="proposed", clip_on=False)
    axis.plot(rounds, played, "o", color=BLUE, markersize=3.5, label="played")
    # What is safe, or proposed, may reach far beyond all that anybody plays.
    near = np.concatenate([prior, played, np.clip(wish, *_around(prior, played))])
    room = 0.15 * max(float(np.ptp(near)), 1e-9)
    axis.set_ylim(float(near.min()) - room, float(near.max()) + room)


def _around(prior: Any, played: Any) -> tuple[float, float]:
    """As far as proposals are shown."""
    both = np.concatenate([prior, played])
    width = max(float(np.ptp(both)), 1e-9)
    return float(both.min()) - width, float(both.max()) + width
