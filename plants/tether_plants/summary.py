"""The rows of a study, put together over the seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

TITLES = {None: "unguarded", "lipschitz": "Lipschitz", "compiled": "compiled", "shadowed": "shadowed"}
"""Of certificates."""


def summary(results: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each learner and certificate, in their order: means and spreads over the seeds.

    `kept` is the share of what the same learner gains without a guard in the same episodes of the same seeds.
    """
    rows: dict[tuple[str, Any], list[Any]] = {}
    for row in results["rows"]:
        rows.setdefault((row["learner"], row["certificate"]), []).append(row)
    found = []
    learners, guards = list(dict.fromkeys(learner for learner, _ in rows)), list(TITLES)
    order = sorted(rows, key=lambda each: (learners.index(each[0]), guards.index(each[1])))
    for learner, certificate in order:
        own = rows[learner, certificate]
        gains = np.array([row["return"] - row["prior_return"] for row in own])
        free = {row["seed"]: row["gains"] for row in rows.get((learner, None), [])}
        both = [(row["gains"], free[row["seed"]]) for row in own if row["seed"] in free]
        kept, wide = (float(np.sum([np.mean(pair[i][: len(pair[0])]) for pair in both])) for i in (0, 1))
        prior = float(np.mean([row["prior_return"] for row in own]))
        found.append(
            {
                "learner": learner,
                "certificate": certificate,
                "seeds": len(own),
                "episodes": sorted({int(row["episodes"]) for row in own}),
                "return": float(np.mean([row["return"] for row in own])),
                "spread": float(np.std([row["return"] for row in own])),
                "gain": float(gains.mean()),
                "gain_spread": float(gains.std()),
                "gain_share": float(gains.mean() / abs(prior)) if prior else float("nan"),
                "kept": kept / wide if learner != "prior" and wide else float("nan"),
                "violation_rate": float(np.mean([row["violation_rate"] for row in own])),
                "worst_margin": float(min(row["worst_margin"] for row in own)),
                "training_violation_rate": _mean(
                    [row["training"]["violation_rate"] for row in own if "violation_rate" in row["training"]]
                ),
                "milliseconds": float(np.mean([row["milliseconds"] for row in own])),
            }
        )
    return found


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def section(results: dict[str, Any]) -> dict[str, Any]:
    """The summary as a table, which `tether report` and the gallery show."""
    contract = results["contract"]
    columns = [
        "learner",
        "guard",
        "seeds",
        "episodes",
        "reward",
        "gain",
        "of the prior",
        "kept",
        "violated",
        "while learning",
    ]
    rows = []
    for row in summary(results):
        learned = row["training_violation_rate"]
        none = row["learner"] == "prior"
        rows.append(
            [
                row["learner"],
                "-" if none else TITLES.get(row["certificate"], row["certificate"]),
                row["seeds"],
                " to ".join(str(each) for each in dict.fromkeys((row["episodes"][0], row["episodes"][-1]))),
                f"{row['return']:.2f} ± {row['spread']:.2f}",
                "-" if none else f"{row['gain']:.2f} ± {row['gain_spread']:.2f}",
                "-" if none else f"{row['gain_share']:.1%}",
                "-" if none else f"{row['kept']:.1%}",
                f"{row['violation_rate']:.1%}",
                "-" if learned is None else f"{learned:.1%}",
            ]
        )
    rows += [["any", TITLES.get(name, name), *["-"] * 5, "none", *["-"] * 2] for name in results["absent"]]
    reasons = "".join(
        f" {TITLES.get(name, name).capitalize()}: {why}." for name, why in results["absent"].items()
    )
    return {
        "title": f"{results['title']}: lam = {contract['lam']:g}, b = {contract['b']:g}",
        "text": f"{results['source']}; so many seeds from 0 on, so many episodes of each. Reward: {results['reward']}; "
        "± standard deviation over seeds. Kept: share of what the same learner gains without a guard in the same "
        "episodes. Violated: share of the episodes, audited against the prior in the original environment."
        + _fewer(results)
        + _taken(results)
        + reasons,
        "columns": columns,
        "rows": rows,
    }


def _fewer(results: dict[str, Any]) -> str:
    """Why there are no more episodes, with the time that was measured."""
    if results["most"] is None:
        return ""
    taken = [row["milliseconds"] for row in results["rows"] if row["learner"] == "prior"]
    seconds = np.mean(taken) * results["contract"]["horizon"] / 1e3
    return (
        f" At most {results['most']} episodes a seed are played: with the prior one takes {seconds:.1f} seconds of a "
        "processor, with a guard more."
    )


def _taken(results: dict[str, Any]) -> str:
    """How long it took."""
    minutes = sum(row["seconds"] for row in results["rows"]) / 60.0
    return f" To train and to play all that took {minutes:.0f} minutes of a processor."
