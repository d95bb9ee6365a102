"""One figure a plant: what is earned at which violation rate, and one episode beside its bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tether_plants.summary import TITLES, summary


def write_figure(results: dict[str, Any], folder: Path) -> Path:
    """`figure.png`: gains with their violation rates on the left, an episode's cost beside its bound on the right."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained")
    rows = [row for row in summary(results) if row["learner"] != "prior"]
    names = [f"{row['learner']}, {TITLES.get(row['certificate'], row['certificate'])}" for row in rows]
    colours = ["#b3452c" if row["violation_rate"] > 0.0 else "#2c6e8f" for row in rows]
    left.barh(names, [row["gain"] for row in rows], xerr=[row["gain_spread"] for row in rows], color=colours)
    for place, row in enumerate(rows):
        said = f" {row['violation_rate']:.0%} violated" if row["violation_rate"] else " none violated"
        left.annotate(said, (max(row["gain"] + row["gain_spread"], 0.0), place), va="center", fontsize=7)
    left.invert_yaxis()
    left.margins(x=0.35)
    left.set_xlabel(f"gain over the prior an episode ({results['reward']})", fontsize=8)
    left.tick_params(labelsize=7)
    _episode(right, results)
    figure.suptitle(f"{results['title']} ({results['source']})", fontsize=10)
    path = folder / "figure.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _episode(axes: Any, results: dict[str, Any]) -> None:
    """Cumulative costs of one episode."""
    traces, contract = results["traces"], results["contract"]
    prior = np.cumsum(traces["prior"])
    rounds = np.arange(1, len(prior) + 1)
    bound = (1.0 + contract["lam"]) * prior + contract["b"] * rounds
    axes.plot(rounds, bound, color="black", lw=1.2, ls="--", label="bound", zorder=5)
    axes.plot(rounds, prior, color="grey", lw=1.2, label="prior")
    own = {name: np.cumsum(trace) for name, trace in traces.items() if name != "prior"}
    learners = list(dict.fromkeys(name.split()[0] for name in own))
    for name, costs in own.items():
        learner, guard = name.split()
        style = {"unguarded": ":", "lipschitz": "-.", "compiled": (0, (4, 1)), "shadowed": "-"}[guard]
        axes.plot(rounds, costs, lw=1.1, ls=style, color=f"C{learners.index(learner)}", label=name)
    axes.set_ylim(0.0, 1.6 * float(bound[-1]))
    axes.set_xlabel("round", fontsize=8)
    axes.set_ylabel("cost so far", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
