"""A system with episodes to learn from and to be judged by: what every command that plays a system begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tether.core import validate
from tether.data.enrich import add_clock, add_forecast, add_history, augment
from tether.data.episodes import Episodes
from tether.data.sources.minari import is_minari, load_minari
from tether.data.store import read_episode_file
from tether.systems.base import Env
from tether.systems.system import Splits, System

YEAR = 8760
"""Hours over which synthetic validation episodes are spread, so that they know every season."""
INPUTS = ("history", "clock", "forecast")
"""What a learner can be shown beside the system's own observation."""
HISTORY = 3
"""Rounds of a history if nothing else is asked for."""
REMOVABLE = ("noise", "shift")
"""What can be taken away: the disturbances, and the difference between the episodes to train and to test on."""
LEVELS = 0.2
"""Relative spread of the levels that `load_plant` gives to further copies of the training episodes."""


class Plant(NamedTuple):
    """A system, an environment of it, and episodes to train and to test on."""

    system: System
    env: Env
    train: Episodes
    test: Episodes
    validation: Episodes | None = None
    """Months between those: CRL learns there how much of the allowed cost to leave. None: the training episodes."""


def load_plant(
    system: System,
    data: Path | None,
    episodes: int,
    seed: int,
    inputs: Sequence[str] = (),
    copies: int = 1,
    without: Sequence[str] = (),
    held_out: bool = True,
) -> Plant:
    """A system's standard plant on stored episodes, on real data that it can read, or on synthetic data.

    Args:
        system: What `tether.systems.registry.find` found.
        data: Episode file (.npz), such as `tether data build` writes, or folder for the system's reader; None for
            synthetic data.
        episodes: Synthetic training episodes; two thirds as many are drawn to test on, from another seed, and a
            third as many, spread over a year of a third seed, to validate on.
        seed: Of the synthetic data, and of what a reader has to generate beside the real one.
        inputs: Any of `INPUTS`, appended to the observation.
        copies: How many times the training episodes to train on; all but the first time at other levels of their
            visible series and with another episode's disturbances (`tether.data.augment`).
        without: Any of `REMOVABLE`, to measure what it takes from a learner.
        held_out: Whether the episodes to test on must be others than those to train on. If not, an episode file may
            hold a single set, which then serves for both.
    """
    for each in without:
        validate.choice("without", each, REMOVABLE)
    env = system.env()
    train, test, validation = _splits(system, env, data, episodes, seed, held_out)
    if "noise" in without:
        env = system.part("without_noise", "--without noise")(env)
        hidden = tuple(env.hidden)
        train, test = _still(train, hidden), _still(test, hidden)
        validation = None if validation is None else _still(validation, hidden)
    if "shift" in without:
        train = validation = test
    if copies > 1:
        count = copies * len(train)
        train = augment(train, count, seed, LEVELS, env.limits(), independent=tuple(env.hidden))
    wider, (train, test) = shown(env, inputs, train, test)
    if validation is not None:
        _, (validation,) = shown(env, inputs, validation)
    return Plant(system, wider, train, test, validation)


def augmented(plant: Plant, count: int, seed: int) -> Plant:
    """The paper's augmentation: the training episodes, and others made from them, `count` in all.

    The paper does not say how. Here a further episode is one of the given ones with each visible series at a level
    that is a few per cent off, and the disturbances of another episode (`tether.data.augment`).
    """
    if count <= len(plant.train):
        return plant
    hidden = tuple(plant.env.hidden)
    train = augment(plant.train, count, seed, limits=plant.env.limits(), independent=hidden)
    return plant._replace(train=train)


def shown(env: Env, inputs: Sequence[str], *episodes: Episodes) -> tuple[Env, list[Episodes]]:
    """The system whose observation also has these `INPUTS`, and the episodes with the series that this needs.

    `history:5` and `forecast:8` are of so many rounds; without a number a history has `HISTORY`, and a forecast goes to
    the end of the episode. Forecasts that the episodes bring are kept, errors and all; for series without one it is
    perfect.
    """
    asked = dict(_input(each) for each in inputs)
    context: tuple[str, ...] = ()
    given = list(episodes)
    if "history" in asked:
        given = [add_history(each, *env.visible, hours=asked["history"] or HISTORY) for each in given]
        context = tuple(f"{series}_history" for series in env.visible)
    if "clock" in asked:
        given = [add_clock(each) for each in given]
        context += ("clock_sin", "clock_cos")
    if "forecast" in asked:
        given = [
            add_forecast(
                each,
                *(name for name in env.visible if f"{name}_forecast" not in each.names),
                hours=asked["forecast"],
            )
            for each in given
        ]
        context += tuple(f"{series}_forecast" for series in env.visible)
    return replace(env, context=context), given


def _input(text: str) -> tuple[str, int | None]:
    """An input and its number of rounds, if it has one."""
    name, colon, rounds = text.partition(":")
    validate.choice("inputs", name, INPUTS)
    if not colon:
        return name, None
    if name == "clock" or not rounds.isdigit() or int(rounds) == 0:
        raise ValueError(f"inputs may be history:5 or forecast:8, of so many rounds, got {text!r}")
    return name, int(rounds)


def is_episode_file(data: Path | None) -> bool:
    """Whether `--data` names an episode file or a Minari data set, and not a folder of real data or nothing."""
    return data is not None and (data.suffix == ".npz" or is_minari(data))


def draw_test(system: System, episodes: int, seed: int) -> Episodes:
    """The synthetic episodes to test on that belong to so many to train on: two thirds as many, of another seed."""
    return system.draw(seed + 1_000_000, max(1, 2 * episodes // 3))


def _splits(system: System, env: Env, data: Path | None, episodes: int, seed: int, held_out: bool) -> Splits:
    if data is None:
        # Not every so many hours, which would be the same hour of the day each time.
        spread = np.linspace(0, YEAR - 1, max(1, episodes // 3)).astype(int)
        validation = system.draw(seed + 2_000_000, YEAR)[spread]
        return Splits(system.draw(seed, episodes), draw_test(system, episodes, seed), validation)
    if is_episode_file(data):
        stored = _logged(data, env) if is_minari(data) else _stored(data, held_out)
        for each in stored:
            env.check(each)
        return Splits(*stored)
    if system.reader is None:
        raise ValueError(
            f"--data for {system.name} must be an episode file (.npz): the system has no reader for a folder, "
            f"got {data}"
        )
    return system.reader.read(data, seed)


def _logged(data: Path, env: Env) -> tuple[Episodes, Episodes, Episodes]:
    """The episodes of a Minari data set, in their order: three fifths to train, a fifth to test and to validate on."""
    episodes = load_minari(str(data), env.series)
    if len(episodes) < 5:
        raise ValueError(
            f"{data} must have at least 5 episodes to train, validate and test on, it has {len(episodes)}"
        )
    first, second = 3 * len(episodes) // 5, 4 * len(episodes) // 5
    return episodes[:first], episodes[second:], episodes[first:second]


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


def _still(episodes: Episodes, hidden: Sequence[str]) -> Episodes:
    """The episodes with the disturbances at 0."""
    series = {name: episodes[name] * (name not in hidden) for name in episodes.names}
    return Episodes(series, episodes.start_hours)
