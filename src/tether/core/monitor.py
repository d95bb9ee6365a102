"""Watching the assumptions online: is what a round gave consistent with what was claimed of the system?

A monitor says what is possible, from plain numbers; the guard asks it and acts on the answer (`Guard(monitor=...)`). It
can only refute: what it does not refute may still be wrong. Nothing here imports JAX, and nothing in a round's way uses
arrays, which would take longer than the guard itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tether.core import validate
from tether.core.projection import NORMS, Norm

TOLERANCE = 1e-6
"""Share of the numbers involved that round-off may amount to: eight units of float32."""

Range = tuple[float, float, float]
"""(low, high, scale) of a number. The scale is the size of the largest numbers that the ends were computed from, which
says how much round-off may matter."""
EntryRange = tuple[Any, float, float, float]
"""(key, low, high, scale) of the entry `observation[key]`."""


MONITOR_METHODS = ("start", "arrived", "paid")
"""What a guard needs of a `Monitor`."""


class Contradiction(NamedTuple):
    """What was seen and cannot be, by what is claimed."""

    what: str
    """The number that it is about."""
    low: float
    high: float
    seen: float
    ago: int = 0
    """0 if it belongs to the round at hand, 1 if to the one before, whose outcome is only seen now."""

    def __str__(self) -> str:
        return f"{self.what} was {self.seen:.9g}, claimed between {self.low:.9g} and {self.high:.9g}"


Verdict = tuple[Any, Contradiction | None]
"""The memory from here on, and what was contradicted, if anything."""


class Monitor(Protocol):
    """What a guard asks twice in every round. It has no state of its own: it is handed its memory and returns it.

    A memory is None or nested tuples of numbers and None, so that the guard can save it. Observations and actions that
    are arrays come as (nested) lists of numbers.
    """

    def start(self) -> Any:
        """The memory before the first round."""

    def arrived(self, memory: Any, observation: Any) -> Verdict:
        """An observation came: is it possible, after what was seen in the rounds before?"""

    def paid(self, memory: Any, observation: Any, action: Any, cost: float) -> Verdict:
        """The cost of what was played came: is it possible?"""


@dataclass(frozen=True)
class Ranges:
    """Ranges of the cost and of the next state, for a system of which an upper and a lower bound are known.

    Args:
        claims: `claims(observation, action, cost) -> (range of the cost, ranges of entries of the next observation)`:
            (low, high, scale) or None, and any number of (key, low, high, scale); see `Range`. Those of the next
            observation may make use of the cost that was seen.
        initial: Ranges of entries of the first observation of an episode.
        limits: Ranges of entries of every observation.
        cost_after: `cost_after(observation) -> range` of the cost of the round before it.
        tolerance: Share of scale and seen value by which a value may be outside; the default suits float32.

    Example:
        >>> def claims(observation, inflow, cost):  # a tank loses up to a tenth, and what is left costs its square
        ...     most = observation[0] + inflow
        ...     return (0.81 * most**2, most**2, most**2), [(0, cost**0.5, cost**0.5, most)]
        >>> tank = Ranges(claims)
        >>> memory, nothing = tank.paid(tank.start(), [2.0], 1.0, cost=8.41)
        >>> print(tank.arrived(memory, [2.5])[1])
        observation[0] was 2.5, claimed between 2.9 and 2.9
    """

    claims: Callable[[Any, Any, float], tuple[Range | None, Sequence[EntryRange]]] | None = None
    initial: Sequence[EntryRange] = ()
    limits: Sequence[EntryRange] = ()
    cost_after: Callable[[Any], Range] | None = None
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        for name in ("claims", "cost_after"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise TypeError(f"{name} must be a function or None, got {getattr(self, name)!r}")
        for name in ("initial", "limits"):
            for each in getattr(self, name):
                if len(each) != 4:
                    raise ValueError(f"{name} must hold (key, low, high, scale), got {each!r}")
        validate.number("tolerance", self.tolerance, minimum=0.0)

    def start(self) -> Any:
        """(ranges of the coming observation, cost of the round before: none)."""
        return self.initial, None

    def arrived(self, memory: Any, observation: Any) -> Verdict:
        """Observation against its ranges, cost against the state that it led to."""
        ranges, cost = memory
        # Nearly all are inside, and a comparison takes less time than a call.
        for key, low, high, scale in ranges:
            entry = observation[key]
            if not low <= entry <= high and outside(entry, low, high, scale, self.tolerance):
                ago = 0 if cost is None else 1
                return memory, Contradiction(f"observation[{key!r}]", low, high, entry, ago)
        for key, low, high, scale in self.limits:
            entry = observation[key]
            if not low <= entry <= high and outside(entry, low, high, scale, self.tolerance):
                return memory, Contradiction(f"observation[{key!r}]", low, high, entry)
        if self.cost_after is not None and cost is not None:
            low, high, scale = self.cost_after(observation)
            if outside(cost, low, high, scale, self.tolerance):
                return memory, Contradiction("the cost, by the state that it led to,", low, high, cost, 1)
        return memory, None

    def paid(self, memory: Any, observation: Any, action: Any, cost: float) -> Verdict:  # noqa: ARG002
        """Cost against its range."""
        if self.claims is None:
            return ((), cost), None
        claimed, ranges = self.claims(observation, action, cost)
        if claimed is not None:
            low, high, scale = claimed
            if not low <= cost <= high and outside(cost, low, high, scale, self.tolerance):
                return (ranges, cost), Contradiction("the cost", low, high, cost)
        return (ranges, cost), None


@dataclass(frozen=True)
class LipschitzMonitor:
    """Rounds against each other, for a system of which only constants are known.

    For any two rounds i and j, with u what cost and next state depend on,

        |c_i - c_j|          <=  cost_lipschitz  (||u_i - u_j|| + ||a_i - a_j||) + cost_noise
        ||x'_i - x'_j||      <=  state_lipschitz (||u_i - u_j|| + ||a_i - a_j||) + state_noise

    where the noise is the *width* of what is unknown: the largest minus the smallest that a disturbance makes of the
    same (u, a). Everything else that changes from round to round, such as demand, must be among the inputs u. Each
    round is compared with the last few of the episode.

    Args:
        cost_lipschitz: L_c, cost units per unit of inputs and action.
        state_lipschitz: L_f, state units per unit of inputs and action; None not to look at next states.
        cost_noise: Width of the cost, cost units.
        state_noise: Width of the next state, in the norm, state units.
        inputs: `inputs(observation) -> numbers` u, what cost and next state depend on; the observation itself if None.
        state: `state(observation) -> numbers` x; the observation itself if None.
        norm: For inputs, actions and states.
        remembered: How many rounds each round is compared with.
        tolerance: Share of the numbers involved that round-off may amount to.

    Example:
        >>> monitor = LipschitzMonitor(cost_lipschitz=2.0, cost_noise=0.5)
        >>> memory, nothing = monitor.paid(monitor.start(), [1.0], 3.0, cost=7.0)
        >>> memory, nothing = monitor.arrived(memory, [1.0])
        >>> monitor.paid(memory, [1.0], 3.5, cost=9.0)[1]
        Contradiction(what='the cost, by those of rounds before,', low=5.5, high=8.5, seen=9.0, ago=0)
    """

    cost_lipschitz: float
    state_lipschitz: float | None = None
    cost_noise: float = 0.0
    state_noise: float = 0.0
    inputs: Callable[[Any], Sequence[float]] | None = None
    state: Callable[[Any], Sequence[float]] | None = None
    norm: Norm = "l2"
    remembered: int = 4
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        for name in ("cost_lipschitz", "cost_noise", "state_noise", "tolerance"):
            validate.number(name, getattr(self, name), minimum=0.0)
        if self.state_lipschitz is not None:
            validate.number("state_lipschitz", self.state_lipschitz, minimum=0.0)
        for name in ("inputs", "state"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise TypeError(
                    f"{name} must be a function of an observation or None, got {getattr(self, name)!r}"
                )
        validate.choice("norm", self.norm, NORMS)
        validate.count("remembered", self.remembered)

    def start(self) -> Any:
        """(rounds that are complete: (inputs, action, cost, next state), the last round: None yet)."""
        return (), None

    def arrived(self, memory: Any, observation: Any) -> Verdict:
        """Complete the last round by its next state, and compare this with those of the remembered rounds."""
        rounds, last = memory
        if last is None:
            return memory, None
        inputs, action, cost, distances, scale = last
        after = found = None
        if self.state_lipschitz is not None:
            after = _entries(observation if self.state is None else self.state(observation))
            gap = _DISTANCES[self.norm]
            for other, distance in zip(rounds, distances, strict=True):
                most = self.state_lipschitz * distance + self.state_noise
                between = gap(after, other[3])
                size = self.state_lipschitz * scale + sum(map(abs, after))
                if outside(between, 0.0, most, size, self.tolerance):
                    what = "the distance to the next state of a round before"
                    found = Contradiction(what, 0.0, most, between, 1)
                    break
        return ((*rounds, (inputs, action, cost, after))[-self.remembered :], None), found

    def paid(self, memory: Any, observation: Any, action: Any, cost: float) -> Verdict:
        """Cost against those of the remembered rounds."""
        rounds = memory[0]
        inputs = _entries(observation if self.inputs is None else self.inputs(observation))
        actions = _entries(action)
        gap = _DISTANCES[self.norm]
        distances = tuple([gap(inputs, each[0]) + gap(actions, each[1]) for each in rounds])
        low, high = -math.inf, math.inf
        for other, distance in zip(rounds, distances, strict=True):
            most = self.cost_lipschitz * distance + self.cost_noise
            low, high = max(low, other[2] - most), min(high, other[2] + most)
        scale = 1.0 + sum(map(abs, inputs)) + sum(map(abs, actions))
        found = None
        if outside(cost, low, high, self.cost_lipschitz * scale, self.tolerance):
            found = Contradiction("the cost, by those of rounds before,", low, high, cost)
        return (rounds, (inputs, actions, cost, distances, scale)), found


def outside(seen: float, low: float, high: float, scale: float, tolerance: float) -> bool:
    """Whether `seen` is outside of what is claimed by more than round-off; NaN always is."""
    if low <= seen <= high:
        return False
    slack = tolerance * (scale + abs(seen))
    return not (low - slack <= seen <= high + slack and math.isfinite(seen))


def _entries(numbers: Any) -> tuple[float, ...]:
    """A number, or several, as a tuple."""
    return (numbers,) if isinstance(numbers, float | int) else tuple(numbers)


def _largest_apart(first: Sequence[float], second: Sequence[float]) -> float:
    return max([abs(one - other) for one, other in zip(first, second, strict=True)], default=0.0)


def _sum_apart(first: Sequence[float], second: Sequence[float]) -> float:
    return sum([abs(one - other) for one, other in zip(first, second, strict=True)])


_DISTANCES: dict[Norm, Callable[[Sequence[float], Sequence[float]], float]] = {
    "l1": _sum_apart,
    "l2": math.dist,
    "linf": _largest_apart,
}
