"""What a system is to the rest of tether: its parts, and which of them may be missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tether.core.monitor import Monitor
from tether.data.episodes import Episodes
from tether.systems.base import Env
from tether.systems.program import Program

NO_NUMBER = 1e30
"""In a hostile script, which must be finite, stands for a proposal that is not a number; see `System.traps`."""


class Draw(Protocol):
    """Draws synthetic episodes, the same ones for the same seed."""

    def __call__(self, seed: int, n: int, horizon: int = 24) -> Episodes:
        """`n` episodes of `horizon` rounds; a system has a default horizon of its own."""


class Splits(NamedTuple):
    """Episodes to learn from and to be judged by."""

    train: Episodes
    test: Episodes
    validation: Episodes | None = None
    """Between the two; the training episodes serve where there is none."""


@dataclass(frozen=True)
class Reader:
    """How to read a folder of real data."""

    read: Callable[[Path, int], Splits]
    """(folder, seed): the seed is for what has to be generated beside it."""
    origin: str
    """Which series are real, in words, for reports."""
    help: str
    """What the folder must hold, in a few words."""
    source: str = "folder"
    """What results.json calls the data; `authors` for the data of the paper."""
    recognises: Callable[[Path], bool] | None = None
    """Whether a folder looks like one, for `tether data describe`."""


@dataclass(frozen=True)
class Builder:
    """How to make episodes from hourly series, for `tether data build`."""

    series: Mapping[str, str]
    """The series that it needs, by name, and what each of them is."""
    build: Callable[..., Episodes]
    """(series by name, seed, how=..., **windows): see `tether.data.periods.align` for `how` and
    `tether.data.windows.cut_windows` for the rest ..."""
    build_splits: Callable[..., dict[str, Episodes]]
    """... (series by name, seed, borders, how=..., **windows): the same in sets that share no hour, see
    `tether.data.periods.split`."""
    help: str
    """What it does with them, in a sentence."""


@dataclass(frozen=True)
class Defaults:
    """Numbers with which a system is trained and evaluated unless others are asked for."""

    width: int = 40
    """Neurons of each hidden layer."""
    episodes: int = 4000
    """Episodes that are explored online, K."""
    learning_rate: float = 1e-3
    """Of the recipe `paper`."""
    lams: tuple[float, ...] = (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    """Relative slacks of a full evaluation ..."""
    quick_lams: tuple[float, ...] = (0.0, 2.0, 6.0)
    """... and of a quick one."""
    bs: tuple[float, ...] = (2.0, 6.0)
    """Slacks a round, cost units."""
    train_episodes: int = 2136
    """Synthetic episodes to train on in a full evaluation."""
    paper_passes: int = 60
    """Passes over them in a full evaluation with the recipe `paper`."""
    random_high: float | None = None
    """Largest action that a random learner proposes; that of `Env.action_range` if None."""
    planning_rate: float | None = None
    """Of the optimiser of `tether.learn.mpc`, action units; a twentieth of `Env.action_range` if None."""


@dataclass(frozen=True)
class Drift:
    """A way in which the plant can leave its claims, for `tether bench monitor`."""

    what: str
    """In words."""
    series: str | None
    """The hidden series that falls below its claimed minimum; None if it is the cost that grows, which is for systems
    whose state after a round tells what it cost."""
    offset: Callable[[Any], float] = lambda env: 0.0  # noqa: ARG005
    """What to add to the series before a share of it is taken: a noise is a share of its mean and itself."""


class SafeSetGoal(NamedTuple):
    """What `tether bench sets` measures: how much of the largest safe set a structured certificate allows."""

    lam: float
    """Of the contract."""
    b: float
    """Of the contract."""
    share: float
    """Of the largest deviation, which should be allowed on average and in all but 1 % of the rounds."""


@dataclass(frozen=True)
class System:
    """A system as every command sees it. Only the first four parts are required.

    A package of your own makes it known by an entry point:

        [project.entry-points."tether.systems"]
        tank = "my_package:system"

    Example:
        >>> from tether.systems import registry
        >>> carbon = registry.find("carbon")
        >>> carbon.env().cost_floor, len(carbon.draw(0, 5, 24))
        (1.0, 5)
    """

    name: str
    """As it is called on the command line and in files: lower case, no spaces."""
    title: str
    """As people call it."""
    env: Callable[..., Env]
    """Its class; with no arguments it makes the standard plant. `gymnasium.make` knows it as tether/CLASS-v0."""
    draw: Draw
    """Synthetic episodes."""
    reader: Reader | None = None
    """Real data, if there is any."""
    builder: Builder | None = None
    """Episodes from series of your own, if they can be made."""
    program: Callable[[Any, int], Program] | None = None
    """(env, horizon): the convex hindsight program; a generic nonlinear one is used where there is none."""
    unforeseen: Callable[..., Callable[[Any, int], Program]] | None = None
    """(lam, b, priced=...): `program(env, horizon)` of what no policy can earn that does not foresee the disturbances,
    in each episode or, if it is priced, in expectation; see `tether.systems.unforeseen`."""
    variants: Mapping[str, Callable[[], Env]] = field(default_factory=dict)
    """Plants with other parameters that stress its bounds, for `tether attack`, by what is special about them."""
    traps: Callable[[Any, dict[str, Any], np.random.Generator], None] | None = None
    """(env, series, rng): sets traps in hostile draws [N, H, ...], in place, where nature can do worse than extremes.

    The series `script` [N, H, *action_shape] is what the hostile policy proposes: -1 is the lowest action, 0 the
    prior's, 1 the highest, `NO_NUMBER` what is not a number."""
    without_noise: Callable[[Any], Env] | None = None
    """The plant whose hidden series are (nearly) fixed, to measure what noise takes from a learner."""
    defaults: Defaults = Defaults()
    """How it is trained and evaluated."""
    drifts: tuple[Drift, ...] = ()
    """How it can leave its claims."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """Labels of axes, with units, by visible series; `"action"` is that of the actions, `"reward"` and `"cost"` are
    those of an episode. What has the same label is on the same axis of the report's player; what has none gets an axis
    of its own."""
    extremes: Callable[[Any, Any, Mapping[str, Any], Any], Iterator[Mapping[str, Any]]] | None = None
    """(env, state, drawn, action) of one round, or of many with cases first: values of the hidden series among which
    are those that make cost and next state smallest and largest; the corners of their `limits` if None."""
    constants_monitor: Callable[[Any], Monitor] | None = None
    """(env): what somebody who has only constants would watch, for `tether bench monitor`."""
    safe_sets: SafeSetGoal | None = None
    """For `tether bench sets`, if the structure has a `recovery` and its gaps are those of one number."""
    action_high: Callable[[Any], Any] | None = None
    """(env): a finite upper bound of the actions for Gymnasium, where the environment has none."""
    observation_bounds: Callable[[Any, Any], Mapping[str, tuple[float, float]]] | None = None
    """(env, action_high): bounds of what is observed for Gymnasium, by entry, where the environment has none."""

    @property
    def env_name(self) -> str:
        """What the environment is called, such as Carbon: in Gymnasium its id is tether/Carbon-v0."""
        return str(getattr(self.env, "__name__", self.name.capitalize()))

    def part(self, name: str, wanted_by: str) -> Any:
        """A part that may be missing, which is then named in the error.

        Args:
            name: Of the part.
            wanted_by: The command or function that cannot do without it.
        """
        found = getattr(self, name)
        if found is None:
            raise ValueError(
                f"{wanted_by} needs the part {name!r} of a system, which {self.name} does not have; "
                f"see tether.systems.system.System.{name}"
            )
        return found
