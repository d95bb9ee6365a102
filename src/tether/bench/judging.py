"""How good estimated constants are, on plants whose constants are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from tether.core import drawing
from tether.estimation import known_plants as known
from tether.estimation.estimate import estimate

SLOPES = ("immediate", "carried", "L_c_prior", "L_c_state", "L_f_action", "L_f_state", "L_pi")


@dataclass(frozen=True)
class Judged:
    """One plant: recommended over true, at least 1 where the recommendation is sound."""

    seed: int
    states: int
    actions: int
    ratios: dict[str, float]
    """Of every constant. cost_floor: depth below the mean cost. p: the sum over n. cost_response: the sum
    of what the guard assumes a deviation does to the costs of this and the next rounds, over what it does at most."""
    sound: dict[str, bool]
    truth: dict[str, Any]
    recommended: dict[str, Any]
    warnings: list[str]


GUARD = ("immediate", "carried", "p", "cost_floor")
"""What the guard is given."""


def judge(seed: int, rows: int) -> Judged:
    """Estimate the constants of the plant of a seed from `rows` logged rounds, and compare."""
    plant = known.make_plant(seed)
    episodes = rows // known.ROUNDS
    found = estimate(known.play(plant, episodes, seed), seed=seed)
    truth = known.find_truth(plant, episodes, 10_000_000 + seed)
    numbers = {name: found.needed(name) for name in (*SLOPES, "cost_floor", "rho")}
    p = found.scale * numbers["rho"] ** np.arange(known.LAGS + 1)
    cost_response = np.concatenate([[numbers["immediate"]], numbers["carried"] * p[:-1]])
    depth = truth.mean_cost - truth.cost_floor
    ratios = {name: numbers[name] / getattr(truth, name) for name in SLOPES}
    ratios |= {
        "p": float(p.sum() / truth.p.sum()),
        "cost_floor": (truth.mean_cost - numbers["cost_floor"]) / depth,
        "cost_response": float(cost_response.sum() / truth.cost_response.sum()),
    }
    sound = {name: ratios[name] >= 1.0 for name in (*SLOPES, "cost_floor")}
    sound |= {
        "p": bool(np.all(p >= truth.p)),
        "cost_response": bool(np.all(cost_response >= truth.cost_response)),
    }
    exact = {name: getattr(truth, name) for name in (*SLOPES, "cost_floor", "mean_cost")}
    return Judged(
        seed=seed,
        states=len(plant.sat),
        actions=len(plant.r),
        ratios=ratios,
        sound=sound,
        truth=exact | {"p": truth.p, "cost_response": truth.cost_response},
        recommended=numbers | {"scale": found.scale},
        warnings=list(found.warnings),
    )


def judged_table(judged: Sequence[Judged]) -> Table:
    """How often each recommendation is not below the truth, and how far above it."""
    table = Table(
        *("constant", "not below the truth", "recommended / true: median", "smallest", "largest", "aims"),
        title=f"{len(judged)} plants with known constants",
    )
    enough = int(np.ceil(0.95 * len(judged)))
    for name in judged[0].ratios:
        good = sum(each.sound[name] for each in judged)
        ratios = [each.ratios[name] for each in judged]
        median = float(np.median(ratios))
        aims = (
            ""
            if name == "cost_response"
            else f"{'yes' if good >= enough else 'NO'}, {'yes' if median <= 2.0 else 'NO'}"
        )
        table.add_row(
            name,
            f"{good} of {len(judged)}",
            f"{median:.2f}",
            f"{min(ratios):.2f}",
            f"{max(ratios):.2f}",
            aims,
        )
    together = sum(all(each.sound[name] for name in GUARD) for each in judged)
    table.add_row(
        "all of the guard's",
        f"{together} of {len(judged)}",
        "",
        "",
        "",
        "yes" if together >= enough else "NO",
    )
    return table


@drawing.styled
def judged_figure(judged: Sequence[Judged]) -> Figure:
    """Recommended over true, a point for each plant."""
    figure, axes = drawing.new_figure(8.0, 3.8)
    axis = axes[0, 0]
    for place, name in enumerate(judged[0].ratios):
        values = np.array([each.ratios[name] for each in judged])
        offsets = np.linspace(-0.25, 0.25, len(values))
        colours = [drawing.BLUE if each.sound[name] else drawing.RED for each in judged]
        axis.scatter(place + offsets, values, s=12, c=colours)
        axis.plot([place - 0.3, place + 0.3], [np.median(values)] * 2, color=drawing.BLACK)
    axis.axhline(1.0, color=drawing.RED, linewidth=1.0)
    axis.axhline(2.0, color=drawing.GREY, linestyle="--", linewidth=1.0)
    axis.set_yscale("log")
    axis.set_yticks([0.5, 1, 2, 4, 8, 16, 32], ["0.5", "1", "2", "4", "8", "16", "32"])
    axis.set_xticks(range(len(judged[0].ratios)), list(judged[0].ratios), rotation=30)
    axis.set_ylabel("recommended / true")
    axis.set_title(f"{len(judged)} plants; line: median; red: below the truth", loc="left")
    return figure
