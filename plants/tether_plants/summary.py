"""The rows of a study, put together over the seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

TITLES = {None: "unguarded", "lipschitz": "Lipschitz", "compiled": "compiled", "shadowed": "shadowed"}
"""Of certificates."""


def summary(results: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each learner and certificate, in their order: means and spreads over the seeds.

    `kept` is the share of what the same learner gains without a guard, with the same seeds; where a guard is played for
    fewer episodes, those of the others are its first ones and more.
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
        free = [row for row in rows.get((learner, None), []) if row["seed"] in {each["seed"] for each in own}]
        wide = np.array([row["return"] - row["prior_return"] for row in free])
        prior = float(np.mean([row["prior_return"] for row in own]))
        found.append(
            {
                "learner": learner,
                "certificate": certificate,
                "seeds": len(own),
                "episodes": int(own[0]["episodes"]),
                "return": float(np.mean([row["return"] for row in own])),
                "spread": float(np.std([row["return"] for row in own])),
                "gain": float(gains.mean()),
                "gain_spread": float(gains.std()),
                "gain_share": float(gains.mean() / abs(prior)) if prior else float("nan"),
                "kept": float(gains.mean() / wide.mean())
                if learner != "prior" and wide.mean()
                else float("nan"),
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
                f"{row['return']:.2f} ± {row['spread']:.2f}",
                "-" if none else f"{row['gain']:.2f} ± {row['gain_spread']:.2f}",
                "-" if none else f"{row['gain_share']:.1%}",
                "-" if none else f"{row['kept']:.1%}",
                f"{row['violation_rate']:.1%}",
                "-" if learned is None else f"{learned:.1%}",
            ]
        )
    rows += [["any", TITLES.get(name, name), *["-"] * 4, "none", *["-"] * 2] for name in results["absent"]]
    reasons = "".join(
        f" {TITLES.get(name, name).capitalize()}: {why}." for name, why in results["absent"].items()
    )
    episodes = results["rows"][0]["episodes"]
    few = {row["certificate"]: row["episodes"] for row in results["rows"] if row["episodes"] != episodes}
    fewer = "".join(f"; {TITLES.get(name, name)}: {count}" for name, count in few.items())
    return {
        "title": f"{results['title']}: lam = {contract['lam']:g}, b = {contract['b']:g}",
        "text": f"{results['source']}; so many seeds from 0 on, {episodes} episodes each{fewer}. Reward: "
        f"{results['reward']}; ± standard deviation over seeds. Kept: share of what the same learner gains without a "
        "guard, in all episodes of the same seeds. Violated: share of the episodes, audited against the prior in the "
        "original environment." + reasons,
        "columns": columns,
        "rows": rows,
    }
