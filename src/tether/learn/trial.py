"""A method trained and tested on a plant: the recipe by its name, the scores, and what exploring cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from tether.certificates import Certificate
from tether.core import validate
from tether.learn.methods import method_of
from tether.learn.plant import Plant
from tether.learn.train import History, Mode, Recipe, Score, Training, evaluate, regrets, train
from tether.systems.system import Defaults

RecipeName = Literal["tether", "closer", "paper"]
"""How a learner is trained: soon good, closer to the limit for more work, or as the paper says."""
COPIES: Mapping[RecipeName, int] = {"tether": 1, "closer": 4, "paper": 1}
"""How many times the training episodes `tether.learn.plant.load_plant` is asked for."""
EARLY = 500
"""Episodes that the paper's figures of an exploration show."""


def recipe_of(name: RecipeName, defaults: Defaults, **changes: Any) -> Recipe:
    """A recipe by its name.

    `tether`: Adam at 3e-3, falling to 0 along a cosine. `closer`: at 8e-3, after a rise in the first steps, which a
    rate of this size needs; 64 neurons, and further copies of the training episodes (`COPIES`). `paper`: Adam at the
    paper's constant rate, and the paper's K episodes, all different (`tether.learn.plant.augmented`). All: an update
    every 50 episodes, and but for `closer` the system's network. What the paper leaves open, the gradient steps of an
    update, is 50: one for each episode played since the last update.

    Args:
        name: `tether`, `closer` or `paper`.
        defaults: Of the system: neurons, episodes that are explored, and the rate of `paper`.
        changes: Other fields of `Recipe`; those that are None are left as they are.
    """
    validate.choice("recipe", name, get_args(RecipeName))
    recipe = Recipe(episodes=defaults.episodes, width=defaults.width)
    if name == "closer":
        recipe = replace(recipe, learning_rate=8e-3, warmup=0.07, width=64)
    if name == "paper":
        recipe = replace(recipe, learning_rate=defaults.learning_rate, schedule="constant")
    return replace(recipe, **{field: value for field, value in changes.items() if value is not None})


class Result(NamedTuple):
    """One trained method and its scores on the test episodes."""

    training: Training
    scores: list[Score]


def run_method(
    method: str,
    plant: Plant,
    certificate: Certificate,
    lams: list[float],
    bs: list[float],
    seeds: list[int],
    recipe: Recipe,
    checkpoint: Path | None,
    report: Callable[[int, History], None],
    mode: Mode = "offline",
    learned: Training | None = None,
) -> Result:
    """Train a method for the whole grid and evaluate it; offline `rl+acd` is `rl`, and shares its checkpoint.

    Nothing is trained where `learned` is what the method plays already.
    """
    played = method_of(method)
    training = learned or train(
        played.learned_by(mode), plant.env, plant.train, certificate, mode=mode, lams=lams, bs=bs,
        seeds=seeds, recipe=recipe, validation=plant.validation, checkpoint=checkpoint, report=report,
    )  # fmt: skip
    training = replace(training, method=played)
    return Result(training, evaluate(training, plant.env, plant.test, certificate))


class Explored(NamedTuple):
    """How one method fared in one setting while it explored; lists have an entry for each seed."""

    method: str
    lam: float
    b: float
    regret_first: list[float] | None
    """Mean regret of the first block of episodes; None if no `rl` was trained to compare with."""
    regret_early: list[float] | None
    """Of the first 500 episodes."""
    regret_late: list[float] | None
    """Of the last 500."""
    violation_rate: list[float]
    """Share of all explored episodes."""
    worst_margin: float
    """Smallest bound minus cost in any of them, cost units."""


def explorations(plant: Plant, results: list[Result]) -> list[Explored]:
    """What the online trainings among `results` explored, with the regret against `rl` if that is among them."""
    reference = next((result.training for result in results if result.training.method.name == "rl"), None)
    found = []
    for training, _ in results:
        seen = training.exploration
        if seen is None:
            continue
        regret = None if reference is None else regrets(training, plant.env, plant.train, reference)
        for i, (lam, b) in enumerate(training.settings):
            windows = (slice(0, 50), slice(0, EARLY), slice(-EARLY, None))
            parts = [
                None if regret is None else regret[window, i].mean(axis=0).tolist() for window in windows
            ]
            rates = seen.violations[:, i].mean(axis=0).tolist()
            found.append(
                Explored(
                    training.method.name,
                    lam,
                    b,
                    regret_first=parts[0],
                    regret_early=parts[1],
                    regret_late=parts[2],
                    violation_rate=rates,
                    worst_margin=float(seen.margins[:, i].min()),
                )
            )
    return found
