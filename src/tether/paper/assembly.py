"""`results.json` of an evaluation: its pieces put together, with regrets, bounds, and what the player shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from tether.data.episodes import Episodes
from tether.learn.plant import Plant
from tether.learn.train import Mode
from tether.learn.trial import recipe_of
from tether.paper.evaluation import BLOCK, SHOWN, Evaluation, rounded
from tether.paper.results import SCHEMA
from tether.simulate.rollout import rollout


def assemble(
    evaluation: Evaluation, plant: Plant, known: dict[str, Any], done: dict[str, Any]
) -> dict[str, Any]:
    """`results.json`; docs/results.md explains every field.

    Args:
        evaluation: What was run.
        plant: On what.
        known: The run's `identity`.
        done: The content of each piece by its name.
    """
    env, test = plant.env, plant.test
    recipe = recipe_of(evaluation.recipe, plant.system.defaults)
    prior = rollout(env, env.prior, test, record="outcomes")
    published = done.get("published", {})
    return {
        "schema": SCHEMA,
        "system": evaluation.system,
        "title": plant.system.title,
        "scale": evaluation.scale,
        "grid": {
            name: list(getattr(evaluation, name))
            for name in ("lams", "bs", "seeds", "methods", "rules", "trained_rules", "modes")
        },
        "training": {
            "recipe": evaluation.recipe,
            "passes": evaluation.passes,
            "explored": evaluation.explored,
            "block": BLOCK,
            **{
                name: getattr(recipe, name)
                for name in ("learning_rate", "schedule", "batch", "steps", "width")
            },
        },
        "data": known["data"],
        "prior": {
            "reward": float(prior.returns.mean()),
            "cost": float(prior.total_costs.mean()),
            "worst_cost": float(prior.total_costs.max()),
        },
        "bounds": _bounds(evaluation, prior.total_costs, test.horizon),
        "scores": _with_regrets(_gathered(done, "scores")),
        "exploration": _gathered(done, "exploration"),
        "guard": done["guard"],
        "limit": _limit(done),
        "boards": _boards(plant),
        "episodes": _episodes(plant, np.cumsum(prior.costs, axis=1)),
        "tracks": _gathered(done, "tracks"),
        "published": published.get("published", []),
        "rl_network": published.get("rl_network", []),
        "idle_regret": published.get("idle_regret"),
        "paper": known["paper"],
        "provenance": {"command": known["command"], **known["machine"]},
    }


def _bounds(evaluation: Evaluation, costs: Any, horizon: int) -> list[dict[str, Any]]:
    """For each (lam, b) the bounds on the mean and on the worst cost of an episode, from the prior's costs [N]."""
    return [
        {
            "lam": lam,
            "b": b,
            "cost": float((1.0 + lam) * costs.mean() + horizon * b),
            "worst_cost": float((1.0 + lam) * costs.max() + horizon * b),
        }
        for b in evaluation.bs
        for lam in evaluation.lams
    ]


def _limit(done: dict[str, Any]) -> dict[str, Any] | None:
    """The hindsight limit of one setting, and the share of it that each policy reaches."""
    found = done["limit"]
    if found is None:
        return None
    room = found["upper"] - found["prior"]
    shares = [
        {**row, "share": (row["reward"] - found["prior"]) / room if room > 0.0 else None}
        for row in _gathered(done, "limited")
    ]
    return {**found, "shares": shares}


def _gathered(done: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [
        dict(row)
        for name, content in done.items()
        if name.startswith(get_args(Mode))
        for row in content.get(part, [])
    ]


def _with_regrets(scores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The scores, each with its regret against RL of the same mode, setting and seed; None if RL was not run."""
    reference = {
        (each["mode"], each["lam"], each["b"], each["seed"]): each["reward"]
        for each in scores
        if each["method"] == "rl"
    }
    for each in scores:
        best = reference.get((each["mode"], each["lam"], each["b"], each["seed"]))
        each["regret"] = None if best is None else best - each["reward"]
    return scores


def _entries(episodes: Episodes, series: str) -> Iterator[tuple[str, Any]]:
    """(name, [N, H]) of a series; of a vector in each round `x_1`, `x_2`, ..., as in an observation."""
    values = episodes[series]
    if values.ndim == 2:
        yield series, values
        return
    flat = values.reshape(*values.shape[:2], -1)
    for i in range(flat.shape[2]):
        yield f"{series}_{i + 1}", flat[:, :, i]


def _boards(plant: Plant) -> list[dict[str, Any]]:
    """What the player draws on which axis: a board for each entry of the action, and for each further axis.

    A series with the label of the actions is on their board: a vector with as many entries as the action has entry by
    entry, all else on each of them.
    """
    axes, env = plant.system.axes, plant.env
    label = axes.get("action", "action")
    count = int(np.prod(env.action_shape, dtype=int))
    boards: list[dict[str, Any]] = [
        {"label": label if count == 1 else f"{label}, action {i + 1}", "action": i, "series": []}
        for i in range(count)
    ]
    others: dict[str, dict[str, Any]] = {}
    for series in env.visible:
        entries = [name for name, _ in _entries(plant.test, series)]
        if axes.get(series) == label:
            one_each = len(entries) == count
            for i, board in enumerate(boards):
                board["series"] += [entries[i]] if one_each else entries
        else:
            name = axes.get(series, series.replace("_", " "))
            others.setdefault(name, {"label": name, "action": None, "series": []})["series"] += entries
    return [*boards, *others.values()]


def _episodes(plant: Plant, prior_costs: Any) -> list[dict[str, Any]]:
    """The first test episodes: what is visible in each round, and the prior's cumulative cost."""
    shown = plant.test[: min(SHOWN, len(plant.test))]
    visible = [entry for series in plant.env.visible for entry in _entries(shown, series)]
    return [
        {
            **{name: rounded(values[i]) for name, values in visible},
            "prior_cost": rounded(prior_costs[i]),
            "start_hour": None if shown.start_hours is None else int(shown.start_hours[i]),
        }
        for i in range(len(shown))
    ]
