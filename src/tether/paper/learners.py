"""Train methods on a system and show what they earn, cost and break, over all settings and seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.certificates import Certificate, LipschitzCertificate, Rule, Structured
from tether.core import validate
from tether.core.contract import Contract
from tether.data.enrich import add_clock, add_forecast, augment
from tether.data.episodes import Episodes
from tether.data.store import read_episode_file
from tether.learn.methods import method_of
from tether.learn.train import History, Mode, Recipe, Score, Training, evaluate, regrets, train
from tether.systems import registry
from tether.systems.base import Env
from tether.systems.carbon.reader import load_carbon

WIDTHS = {"carbon": 40, "inference": 50, "cooling": 40}
"""Neurons of a hidden layer for each system, as in the paper where it has the system."""


EPISODES = {"carbon": 4000, "inference": 2160, "cooling": 4000}
"""Episodes that are explored online for each system, as in the paper where it has the system."""
PAPER_RATES = {"carbon": 1e-3, "inference": 1e-4, "cooling": 1e-3}
"""The paper's learning rate for each system; it has no cooling, which gets that of carbon."""
RecipeName = Literal["tether", "paper"]
"""How a learner is trained: as we found best, or as the paper says."""
EARLY = 500
"""Episodes that the paper's figures of an exploration show."""


class System(NamedTuple):
    """A system with episodes to train and to test on."""

    env: Env
    train: Episodes
    test: Episodes
    validation: Episodes | None = None
    """Months between those: CRL learns there how much of the allowed cost to leave."""


YEAR = 8760
"""Hours over which synthetic validation episodes are spread, so that they know every season."""
INPUTS = ("clock", "forecast")
"""What a learner can be shown beside the paper's observation."""
REMOVABLE = ("noise", "shift")
"""What can be taken away: the disturbances, and the difference between the episodes to train and to test on."""
Kind = Literal["lipschitz", "structured"]
"""What a certificate can know of a system."""
LEVELS = 0.2
"""Relative spread of the levels that `load_system` gives to further copies of the training episodes."""


def recipe_of(name: RecipeName, system: str, **changes: Any) -> Recipe:
    """A recipe by its name.

    `tether`: Adam at 3e-3, falling to 0 along a cosine. `paper`: Adam at the paper's constant rate, and the paper's K
    episodes, all different (`augmented`). Both: the paper's network, and an update every 50 episodes. What the paper
    leaves open, the gradient steps of an update, is 50 in both: one for each episode played since the last update.

    Args:
        name: `tether` or `paper`.
        system: `carbon`, `inference` or `cooling`.
        changes: Other fields of `Recipe`; those that are None are left as they are.
    """
    validate.choice("recipe", name, get_args(RecipeName))
    recipe = Recipe(episodes=EPISODES[system], width=WIDTHS[system])
    if name == "paper":
        recipe = replace(recipe, learning_rate=PAPER_RATES[system], schedule="constant")
    return replace(recipe, **{field: value for field, value in changes.items() if value is not None})


def augmented(system: System, count: int, seed: int) -> System:
    """The paper's augmentation: the training episodes, and others made from them, `count` in all.

    The paper does not say how. Here a further episode is one of the given ones with each visible series at a level
    that is a few per cent off, and the disturbances of another episode (`tether.data.augment`).
    """
    if count <= len(system.train):
        return system
    hidden = tuple(system.env.hidden)
    train = augment(system.train, count, seed, limits=system.env.limits(), independent=hidden)
    return system._replace(train=train)


def certificate_of(kind: Kind, env: Env, contract: Contract, rule: Rule = "tight") -> Certificate:
    """The certificate of that kind for a system; only `lipschitz` has rules."""
    validate.choice("certificate", kind, get_args(Kind))
    if kind == "structured":
        return Structured(contract, env.structure)
    return LipschitzCertificate(contract, env.sensitivity, rule)


def load_system(
    name: str,
    data: Path | None,
    episodes: int,
    seed: int,
    inputs: Sequence[str] = (),
    copies: int = 1,
    without: Sequence[str] = (),
    held_out: bool = True,
) -> System:
    """A system by its name, on stored episodes, on the authors' data (carbon only) or on synthetic data.

    Args:
        name: `carbon`, `inference` or `cooling`.
        data: Episode file (.npz), such as `tether data build` writes, or folder with the authors' carbon data; None for
            synthetic data.
        episodes: Synthetic training episodes; two thirds as many are drawn to test on, from another seed, and a
            third as many, spread over a year of a third seed, to validate on.
        seed: Of the synthetic data.
        inputs: Any of `INPUTS`, appended to the observation.
        copies: How many times the training episodes to train on; all but the first time at other levels of their
            visible series and with another episode's disturbances (`tether.data.augment`).
        without: Any of `REMOVABLE`, to measure what it takes from a learner.
        held_out: Whether the episodes to test on must be others than those to train on. If not, an episode file may
            hold a single set, which then serves for both.
    """
    for each in without:
        validate.choice("without", each, REMOVABLE)
    env, train, test, validation = _load(name, data, episodes, seed, held_out)
    assert validation is not None
    if "noise" in without:
        env = registry.find(name).part("without_noise", "--without noise")(env)
        train, test, validation = (_still(each, tuple(env.hidden)) for each in (train, test, validation))
    if "shift" in without:
        train = validation = test
    if copies > 1:
        count = copies * len(train)
        train = augment(train, count, seed, LEVELS, env.limits(), independent=tuple(env.hidden))
    env, (train, test, validation) = shown(env, inputs, train, test, validation)
    return System(env, train, test, validation)


def _still(episodes: Episodes, hidden: Sequence[str]) -> Episodes:
    """The episodes with the disturbances at 0."""
    series = {name: episodes[name] * (name not in hidden) for name in episodes.names}
    return Episodes(series, episodes.start_hours)


def shown(env: Env, inputs: Sequence[str], *episodes: Episodes) -> tuple[Env, list[Episodes]]:
    """The system whose observation also has these `INPUTS`, and the episodes with the series that this needs.

    Forecasts that the episodes bring are kept, errors and all; for series without one it is perfect.
    """
    for each in inputs:
        validate.choice("inputs", each, INPUTS)
    context: tuple[str, ...] = ()
    given = list(episodes)
    if "clock" in inputs:
        given = [add_clock(each) for each in given]
        context = ("clock_sin", "clock_cos")
    if "forecast" in inputs:
        given = [
            add_forecast(each, *(name for name in env.visible if f"{name}_forecast" not in each.names))
            for each in given
        ]
        context += tuple(f"{series}_forecast" for series in env.visible)
    return replace(env, context=context), given


def is_episode_file(data: Path | None) -> bool:
    """Whether `--data` names an episode file, and not a folder of the authors' data or nothing."""
    return data is not None and data.suffix == ".npz"


def _load(name: str, data: Path | None, episodes: int, seed: int, held_out: bool) -> System:
    found = registry.find(name)
    env = found.env()
    if data is None:
        draw = found.draw
        # Not every so many hours, which would be the same hour of the day each time.
        spread = np.linspace(0, YEAR - 1, max(1, episodes // 3)).astype(int)
        validation = draw(seed + 2_000_000, YEAR)[spread]
        return System(
            env, draw(seed, episodes), draw(seed + 1_000_000, max(1, 2 * episodes // 3)), validation
        )
    if is_episode_file(data):
        stored = _stored(data, held_out)
        for each in stored:
            env.check(each)
        return System(env, *stored)
    if name != "carbon":
        raise ValueError(
            f"--data for {name} must be an episode file (.npz); {data} would be the authors' carbon data"
        )
    return System(env, *(load_carbon(data, split) for split in ("train", "test", "val")))


def _stored(file: Path, held_out: bool) -> tuple[Episodes, Episodes, Episodes]:
    """The sets of an episode file to train, to test and to validate on.

    The last is the set `val`; a file without one validates on what it trains on, as `train` does by itself.
    """
    splits = read_episode_file(file).splits
    if {"train", "test"} <= set(splits):
        return splits["train"], splits["test"], splits.get("val", splits["train"])
    if not held_out and len(splits) == 1:
        (only,) = splits.values()
        return only, only, only
    held = ", ".join(map(repr, splits)) if "" not in splits else "one set without a name"
    raise ValueError(
        f"{file} must hold the sets 'train' and 'test', it holds {held}; make it with "
        "`tether data build --split 0.6,0.2,0.2` or tether.data.save_episodes(file, {'train': ..., 'test': ...})"
    )


class Result(NamedTuple):
    """One trained method and its scores on the test episodes."""

    training: Training
    scores: list[Score]


def run_method(
    method: str,
    system: System,
    certificate: Certificate,
    lams: list[float],
    bs: list[float],
    seeds: list[int],
    recipe: Recipe,
    checkpoint: Path | None,
    report: Callable[[int, History], None],
    mode: Mode = "offline",
) -> Result:
    """Train a method for the whole grid and evaluate it; offline `rl+acd` is `rl`, and shares its checkpoint."""
    played = method_of(method)
    training = train(
        played.learned_by(mode), system.env, system.train, certificate, mode=mode, lams=lams, bs=bs,
        seeds=seeds, recipe=recipe, validation=system.validation, checkpoint=checkpoint, report=report,
    )  # fmt: skip
    training = replace(training, method=played)
    return Result(training, evaluate(training, system.env, system.test, certificate))


def results_table(
    system: str, results: list[Result], published: dict[tuple[str, float, float], float]
) -> Table:
    """Methods by settings, mean and spread over the seeds.

    Args:
        system: Its name.
        results: What was trained.
        published: The authors' mean rewards by (method, lam, b), shown beside ours.
    """
    table = Table(title=f"{system}: test episodes, mean ± standard deviation over the seeds", box=SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    table.caption = (
        "viol.: share of the test episodes with a violation in any round; training: of those in training"
    )
    table.add_column("method", no_wrap=True)
    names = [
        "lam",
        "b",
        "reward",
        *(["published"] if published else []),
        "mean cost",
        "viol.",
        "training",
    ]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for training, scores in results:
        seen = training.history.violations
        for lam, b in training.settings:
            mine = [score for score in scores if (score.lam, score.b) == (lam, b)]
            rewards, costs = [score.reward for score in mine], [score.cost for score in mine]
            rate = float(np.mean([score.violation_rate for score in mine]))
            # Offline `rl+acd` is trained in the data, unguarded; it has played nowhere yet.
            borrowed = training.method.learned_by("offline") != training.method
            played = len(seen) and (training.exploration is not None or not borrowed)
            during = f"{seen[:, training.settings.index((lam, b))].mean():.1%}" if played else "-"
            known = published.get((training.method.name, lam, b))
            table.add_row(
                training.method.name,
                f"{lam:g}",
                f"{b:g}",
                f"{np.mean(rewards):.2f}±{np.std(rewards):.2f}",
                *(["-" if known is None else f"{known:.2f}"] if published else []),
                f"{np.mean(costs):.1f}",
                f"[{'red' if rate > 0.0 else 'green'}]{rate:.1%}",
                during,
            )
        table.add_section()
    return table


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


def explorations(system: System, results: list[Result]) -> list[Explored]:
    """What the online trainings among `results` explored, with the regret against `rl` if that is among them."""
    reference = next((result.training for result in results if result.training.method.name == "rl"), None)
    found = []
    for training, _ in results:
        seen = training.exploration
        if seen is None:
            continue
        regret = None if reference is None else regrets(training, system.env, system.train, reference)
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


def exploration_table(system: str, explored: list[Explored]) -> Table:
    """Regret and violations while exploring, mean and spread over the seeds."""
    table = Table(
        title=f"{system}: while exploring, mean ± standard deviation over the seeds", box=SIMPLE_HEAD
    )
    table.padding = (0, 1, 0, 0)
    table.caption = "regret: reward of rl after all episodes, on the same episodes, minus the reward earned"
    table.add_column("method", no_wrap=True)
    for name in ("lam", "b", "regret, first 50", f"first {EARLY}", f"last {EARLY}", "viol.", "margin"):
        table.add_column(name, justify="right", no_wrap=True)
    for i, each in enumerate(explored):
        if i and explored[i - 1].method != each.method:
            table.add_section()
        rate = float(np.mean(each.violation_rate))
        parts = (each.regret_first, each.regret_early, each.regret_late)
        table.add_row(
            each.method,
            f"{each.lam:g}",
            f"{each.b:g}",
            *("-" if part is None else f"{np.mean(part):.2f}±{np.std(part):.2f}" for part in parts),
            f"[{'red' if rate > 0.0 else 'green'}]{rate:.1%}",
            f"{each.worst_margin:.1f}",
        )
    return table
