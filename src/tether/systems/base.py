"""What an environment is: pure functions of an episode, in any array namespace."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from tether.certificates.model import Model
from tether.certificates.structure import Structure
from tether.core.contract import Contract
from tether.core.monitor import Ranges
from tether.core.ops import namespace
from tether.core.projection import Norm
from tether.core.sensitivity import Sensitivity
from tether.data.episodes import Episodes

Shape = Literal["normal", "uniform"]
"""Shape of a distribution whose mean and spread are unknown; values are cut to the series' `limits`."""


class Evidence(NamedTuple):
    """What a round revealed about the hidden series: q linear equations, features @ values = targets."""

    features: Any
    """[q, d] one column for each name in the environment's `hidden`; a row of zeros says nothing."""
    targets: Any
    """[q]"""


class Step(NamedTuple):
    """What one round gave."""

    state: Any
    """The state after the round."""
    reward: Any
    """Scalar."""
    cost: Any
    """Scalar, at least the environment's `cost_floor`; of several costs [m], in the order of `cost_names`."""


class Played(NamedTuple):
    """One round as `play` played it."""

    round: int
    """Counted from 1."""
    state: Any
    """Before the round."""
    drawn: dict[str, Any]
    """The series of the round."""
    action: Any
    """What was played."""
    step: Step
    """What came of it."""


@dataclass(frozen=True)
class Env(ABC):
    """A system with a trusted policy, as pure functions of what was drawn for the episode.

    An implementation writes `initial`, `observe`, `step` and `prior` with plain arithmetic and the functions of
    `namespace(...)`, for a single episode; `tether.rollout` compiles and batches them, and the Gymnasium adapters
    call them as they are. `drawn` maps each name in `series` to its value in the round at hand.
    """

    series: ClassVar[tuple[str, ...]]
    """Names of the series that an episode must have."""
    observation_names: ClassVar[tuple[str, ...]]
    """What the entries of the observation are."""
    cost_names: ClassVar[tuple[str, ...]] = ("cost",)
    """What a round's costs are called. Of several the first is what `cost_floor`, `sensitivity`, `structure` and
    `contract` are about; the others have bounds and contracts of their own (`tether.Several`)."""
    action_shape: ClassVar[tuple[int, ...]] = ()
    """Shape of an action: () for a number, (n,) for a vector."""
    norm: ClassVar[Norm] = "l2"
    """The norm for which `sensitivity` holds."""
    hidden: ClassVar[Mapping[str, Shape]] = {}
    """Those of `series` that nobody sees before acting, each with the shape of its distribution.

    A learner that explores online has to find out how they are distributed; see `evidence`.
    """

    shared: ClassVar[tuple[str, ...]] = ()
    """Entries of the state that nothing that is played changes, such as a clock or the weather. With the same draws
    they are the same whoever acts, so `tether.verify` never gives the two sides of a comparison different ones."""

    context: tuple[str, ...] = field(default=(), kw_only=True)
    """Further series, such as a clock or a day-ahead forecast, that are appended to the observation in this order."""

    @property
    @abstractmethod
    def low(self) -> Any:
        """Lower bounds of the action."""

    @property
    @abstractmethod
    def high(self) -> Any:
        """Upper bounds of the action; infinite where there are none."""

    @property
    @abstractmethod
    def cost_floor(self) -> float:
        """A cost that no round goes below (epsilon)."""

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """Proved bounds on what a deviation from the prior does to the cost."""

    @property
    def structure(self) -> Structure:
        """What a `tether.Structured` certificate needs to know of the system, where that has been derived."""
        raise NotImplementedError(
            f"no structure is known for {type(self).__name__}; use tether.LipschitzCertificate with its sensitivity"
        )

    @property
    def identifying(self) -> Structure:
        """A structure that also relies on what rewards tell of the disturbances, where that has been derived."""
        raise NotImplementedError(
            f"what rewards tell of {type(self).__name__} is not known; use tether.Structured with its structure"
        )

    def model(self) -> Model:
        """What `tether.certificates.compiled` compiles a certificate from: by default these functions and ranges.

        A series without an effect on costs is to be left out by a fixed range in `search_ranges`.
        """
        return Model.from_env(self)

    def monitor(self) -> Ranges:
        """What a round can give within `limits`, for `tether.Guard(..., monitor=...)`, where that has been derived."""
        raise NotImplementedError(
            f"no ranges are known for {type(self).__name__}; write tether.Ranges or use tether.LipschitzMonitor"
        )

    @abstractmethod
    def initial(self) -> Any:
        """The state before the first round, a NamedTuple of numbers."""

    @abstractmethod
    def observe(self, state: Any, drawn: Mapping[str, Any]) -> Any:
        """What a policy sees before it acts, without the context: [o]."""

    @abstractmethod
    def step(self, state: Any, drawn: Mapping[str, Any], action: Any) -> Step:
        """Play one round."""

    @abstractmethod
    def prior(self, observation: Any, key: Any = None) -> Any:
        """The trusted policy: observation [..., o] to action [..., *action_shape]."""

    @abstractmethod
    def limits(self) -> Mapping[str, tuple[Any, Any]]:
        """For each series the range of values for which `sensitivity` is proved."""

    def search_ranges(self) -> Mapping[str, tuple[Any, Any]]:
        """Where `tether.verify` looks for counterexamples: finite ranges, by name; both ends belong to them.

        The entries of the state that costs depend on must be there, and whatever is unbounded otherwise: series (which
        have their `limits` by default) and `"action"` (`low` to `high`). A series that is a vector in each round needs
        a range of vectors. low = high keeps a number fixed, where no cost depends on it.
        """
        return {}

    def action_range(self) -> tuple[Any, Any]:
        """Finite (low, high) of the actions to try, [*action_shape] each: of `search_ranges`, else `low` and `high`."""
        ends = self.search_ranges().get("action", (self.low, self.high))
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), self.action_shape) for end in ends)
        if not np.all(np.isfinite(low) & np.isfinite(high)):
            raise ValueError(
                f"the actions of {type(self).__name__} have no finite range, {low!s} to {high!s}: write one for "
                f'"action" in {type(self).__name__}.search_ranges'
            )
        return low, high

    def evidence(self, state: Any, drawn: Mapping[str, Any], action: Any, step: Step) -> Evidence | None:  # noqa: ARG002
        """What an observer of the round learns about the hidden series afterwards; None if the system does not say.

        A learner that explores online then fits mean and spread of each hidden series to these equations. Without
        them it fits a small ensemble of networks to the transitions instead.

        Args:
            state: Before the round.
            drawn: The series of the round except the hidden ones.
            action: What was played.
            step: What came of it.
        """
        return None

    @property
    def visible(self) -> tuple[str, ...]:
        """Names of the series that are seen before acting."""
        return tuple(name for name in self.drawn_names if name not in self.hidden)

    @property
    def drawn_names(self) -> tuple[str, ...]:
        """Names of all the series that an episode must have, those of the context included."""
        return (*self.series, *self.context)

    def observation(self, state: Any, drawn: Mapping[str, Any]) -> Any:
        """What a policy sees: `observe`, and after it the context, flat."""
        seen = self.observe(state, drawn)
        if not self.context:
            return seen
        xp = namespace(seen)
        return xp.concat([seen, *(xp.reshape(xp.asarray(drawn[name]), (-1,)) for name in self.context)])

    def shown(self, observation: Any) -> tuple[Any, dict[str, Any]]:
        """The state and the visible series of a round, as far as an observation [o] shows them by their names.

        An entry `x_1`, `x_2`, ... is one of a vector x, unless state or series have that name themselves. A part of
        the state that is not shown is as in `initial`.
        """
        entries: dict[str, Any] = {}
        known = {*self.initial()._fields, *self.series}
        for i, name in enumerate(self.observation_names):
            stem, _, number = name.rpartition("_")
            if number.isdigit() and name not in known:
                entries.setdefault(stem, []).append(observation[i])
            else:
                entries[name] = observation[i]
        xp = namespace(observation)
        parts = {name: xp.stack(part) if isinstance(part, list) else part for name, part in entries.items()}
        initial = self.initial()
        state = initial._replace(**{name: parts[name] for name in initial._fields if name in parts})
        return state, {name: parts[name] for name in self.visible if name in parts}

    def contract(self, lam: float, b: float, horizon: int = 24) -> Contract:
        """The contract with this environment's cost floor."""
        return Contract(lam=lam, b=b, horizon=horizon, cost_floor=self.cost_floor)

    def check(self, episodes: Episodes) -> None:
        """Refuse episodes that lack a series, or in which a value leaves the range that `sensitivity` covers."""
        if not isinstance(episodes, Episodes):
            raise TypeError(f"episodes must be tether.data.Episodes, got {type(episodes).__name__}")
        missing = [name for name in self.drawn_names if name not in episodes.names]
        if missing:
            raise ValueError(
                f"{type(self).__name__} needs the series {', '.join(self.drawn_names)}; "
                f"{', '.join(missing)} missing from {episodes!r}"
            )
        for name, (lowest, highest) in self.limits().items():
            values = episodes[name]
            outside = np.argwhere((values < lowest) | (values > highest))
            if outside.size:
                place = tuple(int(i) for i in outside[0])
                least, most = (np.broadcast_to(end, values.shape)[place] for end in (lowest, highest))
                raise ValueError(
                    f"{name} must be between {least:g} and {most:g} for the constants of "
                    f"{type(self).__name__} to hold; at (episode, round) {place} it is {values[place]:g}"
                )


def play(
    env: Env, series: Mapping[str, Any], act: Callable[[int, Any, dict[str, Any]], Any]
) -> Iterator[Played]:
    """Play one episode round by round in NumPy: the one loop over `Env.step` that is not compiled.

    `tether.simulate.eager` plays policies and guards with it.

    Args:
        env: The system.
        series: What was drawn, [H, ...] by name; `env.series` at least.
        act: `act(h, state, drawn)` is what is played in round h, counted from 1.
    """
    state = env.initial()
    for h in range(len(series[env.series[0]])):
        drawn = {name: np.asarray(values[h]) for name, values in series.items()}
        action = act(h + 1, state, drawn)
        step = env.step(state, drawn, action)
        yield Played(h + 1, state, drawn, action, step)
        state = step.state
