"""What a plant that we did not write has to bring to be guarded, studied and shown beside the others."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium

import tether
from tether.certificates import Certificate

PLANTS = ("building", "anm", "evcharging", "microgrid")
"""A module of this package each, with a `PLANT`."""


@dataclass(frozen=True)
class Check:
    """An assumption that was compared with the original environment."""

    what: str
    """In words, with the unit."""
    rounds: int
    """In how many rounds it was looked at."""
    worst: float
    """The largest difference or quotient that was seen."""
    allowed: float
    """What the certificate allows."""

    @property
    def holds(self) -> bool:
        """Whether the original environment keeps it."""
        return self.worst <= self.allowed


Propose = Callable[[Any, Any], Any]
"""(environment, observation) to a proposal; the environment is a `tether.gym.Guarded` if there is a guard."""


@dataclass(frozen=True)
class Learned:
    """A policy, and what is known of how it was trained."""

    propose: Propose
    rows: Callable[[Any, Any], Any] | None = None
    """The same for many episodes side by side: observations [N, o] and the guards' features [N, f], or None without a
    guard, to proposals [N, n]. With it `study` plays all episodes at once (`tether_plants.rows`)."""
    memory: bool = False
    """Whether its observation ends with the guard's memory, as `Guarded(append_memory=True)` gives it."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """For the results: episodes, rounds, violations while it learned."""


Learner = Callable[[Any, int, "str | None"], Learned]
"""(plant, seed, name of the certificate or None) to a policy, trained through that guard or without one."""


@dataclass(frozen=True)
class Plant:
    """An environment of somebody else, with all that a study of it takes."""

    name: str
    """As in `PLANTS`."""
    title: str
    """As people call it."""
    source: str
    """Package, version and class."""
    prior_title: str
    """What the prior is."""
    cost_title: str
    """What a round costs, with its unit."""
    reward_title: str
    """What a round earns, with its unit."""
    contract: tether.Contract
    """The promise that is studied."""
    make: Callable[[], gymnasium.Env[Any, Any]]
    """The original environment in our adapter: a box of actions, the reward, `info["cost"]` and, for certificates that
    replay the prior, `info["revealed"]`. `reset(options={"episode": i})` begins episode i, always the same."""
    prior: Callable[[Any], Any]
    """The trusted policy, (observation) to an action; asked anew in each round, so without a memory."""
    certificates: Mapping[str, Callable[[tether.Contract], Certificate]]
    """By name, the weakest first: lipschitz, compiled, shadowed."""
    episodes: Callable[[int, int], tuple[Sequence[int], Sequence[int]]]
    """(seed, n) to the numbers of the episodes to train on, whatever n is, and of n others to test on."""
    learners: Mapping[str, Learner]
    """By name: ours, sb3, and rules that ask for as much as they can."""
    checks: Callable[[int], list[Check]]
    """(episodes) The assumptions against the original environment."""
    absent: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """Certificates that give nothing here, by name, to why, with the number that was measured."""
    measures: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    """Further numbers of a run (`tether_plants.study.Played`), by name, beside those of the prior's run."""
    most: int | None = None
    """Episodes a seed at most, where the original environment takes long."""


def find(name: str) -> Plant:
    """The plant of this name."""
    if name not in PLANTS:
        raise ValueError(f"there is no plant {name!r}; there are {', '.join(PLANTS)}")
    plant: Plant = importlib.import_module(f"tether_plants.{name}").PLANT
    return plant
