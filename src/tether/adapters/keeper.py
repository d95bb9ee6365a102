"""One guard at one Gymnasium environment: shapes, number types, where the cost is, and the report of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tether.certificates import Certificate
from tether.core import convert
from tether.core.guard import Decision, Guard, GuardMisuse, Reason
from tether.core.monitor import Monitor
from tether.core.projection import Norm

Array = NDArray[Any]
Prior = Callable[[Any], Any]
"""`prior(observation) -> action`: the trusted policy; its action may have any shape of the right size."""
Cost = str | Callable[[Any, Any, Any, Any], Any] | None
"""Where the cost is: the key in `info`, or `cost(observation, action, next_observation, info)`."""

ABSENT: Any = object()
"""A step of five values has no cost among them."""


class Keeper:
    """One guard at one environment: shapes, number types and the report."""

    def __init__(
        self,
        space: Any,
        certificate: Certificate,
        prior: Prior,
        norm: Norm,
        monitor: Monitor | None,
        resolution: float,
    ) -> None:
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            raise TypeError(
                "the guard moves actions by real amounts, so the action space must be a gymnasium.spaces.Box "
                f"of floating-point numbers, or Discrete or MultiDiscrete with tether.Switches, got {space}"
            )
        if not callable(prior):
            raise TypeError(f"prior must be callable as prior(observation) -> action, got {prior!r}")
        self._space, self._prior = space, prior
        low, high = (bound.ravel().astype(np.float64) for bound in (space.low, space.high))
        # What is played is rounded to the box's digits.
        coarsest = max(resolution, float(np.finfo(space.dtype).eps))
        self.guard = Guard(certificate, self._ask_prior, low, high, norm, monitor, resolution=coarsest)
        self.reset()

    def reset(self) -> None:
        """Begin an episode of the guard."""
        self.guard.reset()
        self._over = False
        self._counts = dict.fromkeys(map(str, Reason), 0)

    def act(self, observation: Any, proposal: Any) -> tuple[Array, dict[str, Any]]:
        """The action to play, in the shape and type of the space, and the report up to now."""
        if self._over:
            raise GuardMisuse("the episode is over; call reset() before the next step")
        horizon = self.guard.horizon
        if self.guard.round > horizon:
            raise GuardMisuse(
                f"the environment did not end the episode after the {horizon} rounds of the certificate's "
                f"contract, and nothing is promised for round {horizon + 1}; end it there with "
                f"gymnasium.wrappers.TimeLimit(env, {horizon}), or make a contract with a longer horizon"
            )
        decision = self.guard.act(observation, self._flat(proposal))
        action = self._playable(decision)
        report = decision._asdict() | {
            "action": action.copy(),
            "prior_action": self._shaped(decision.prior_action),
            "proposal": convert.copied(proposal),
            "reason": str(decision.reason),
        }
        self._counts[report["reason"]] += 1
        return action, report

    def observe(
        self,
        cost: Any,
        info: Mapping[str, Any],
        after: Any,
        reward: Any,
        report: dict[str, Any],
        over: bool,
    ) -> None:
        """Close the round with what the step gave, and complete its report."""
        self._over = over
        names = self.guard.certificate.revealed_names
        revealed = info.get("revealed") if names else None
        if isinstance(revealed, Mapping):
            revealed = {name: revealed[name] for name in names if name in revealed}
        # A step that gives no cost gives none later either, so that it is no cost to wait for.
        told = math.nan if cost is None else cost
        self.guard.observe(told, revealed, next_observation=after, reward=reward)
        report["cost"] = (
            convert.as_number(cost)
            if getattr(self.guard.certificate, "contracts", None) is None
            else convert.copied(cost)
        )
        report["counts"] = dict(self._counts)
        breach = self.guard.breach
        report["breach"] = None if breach is None else asdict(breach)
        report["uncertified_from"] = self.guard.uncertified_from

    def appended(self, observation: Any) -> Any:
        """The observation with the guard's memory, scaled as `Guarded` says."""
        features = np.zeros_like(self._units)
        if self.guard.round <= self.guard.horizon:
            features = np.array(self.guard.features(observation))
        # A margin may be below 0 by round-off.
        memory = np.log1p(np.maximum(features, 0.0) / self._units)
        return np.concatenate([observation, memory.astype(np.asarray(observation).dtype)])

    @cached_property
    def _units(self) -> Array:
        """What `appended` scales by."""
        return np.array(self.guard.certificate.feature_units())

    def masks(self, observation: Any) -> Array:  # noqa: ARG002
        """Which actions are safe, of a finite set."""
        raise TypeError(f"there are masks of finite sets of actions only; the action space is {self._space}")

    def harmless(self, proposals: Array) -> Array:
        """What is handed to an environment that ignores it."""
        clipped: Array = np.clip(np.nan_to_num(proposals), self._space.low, self._space.high)
        return clipped.astype(self._space.dtype)

    def _ask_prior(self, observation: Any) -> Any:
        answer = self._prior(observation)
        array = convert.as_array(answer)
        if array.size != self._space.low.size:
            return answer
        return array.astype(self._space.dtype).astype(np.float64).ravel()

    def _flat(self, proposal: Any) -> Any:
        """The proposal as [n] if it has n numbers; else as it is, which the guard counts as invalid."""
        try:
            array = convert.as_array(proposal)
        except Exception:  # whatever a stranger's object does when it is asked for numbers
            return None
        return array.ravel() if array.size == self._space.low.size else array

    def _playable(self, decision: Decision) -> Array:
        """The decision's action as the space has it, rounded towards the prior's action."""
        exact, prior = np.asarray(decision.action), np.asarray(decision.prior_action)
        action = exact.astype(self._space.dtype)
        farther = np.abs(action.astype(np.float64) - prior) > np.abs(exact - prior)
        action = np.where(farther, np.nextafter(action, prior.astype(self._space.dtype)), action)
        return action.reshape(self._space.shape)

    def _shaped(self, action: Any) -> Array:
        return np.array(action, dtype=self._space.dtype).reshape(self._space.shape)


def with_memory(space: Any, certificate: Certificate) -> spaces.Box:
    """The space of observations with the guard's memory appended."""
    if (
        not isinstance(space, spaces.Box)
        or len(space.shape) != 1
        or not np.issubdtype(space.dtype, np.floating)
    ):
        raise TypeError(
            "append_memory needs observations that are a vector of floating-point numbers, a Box [o]; "
            "wrap the environment in gymnasium.wrappers.FlattenObservation first. "
            f"The observation space is {space}"
        )
    count = len(certificate.feature_names)
    low = np.concatenate([space.low, np.zeros(count)]).astype(space.dtype)
    high = np.concatenate([space.high, np.full(count, np.inf)]).astype(space.dtype)
    return spaces.Box(low, high, dtype=space.dtype.type)


def checked_cost(cost: Any) -> Cost:
    """`cost` if it says where the cost is, else an error."""
    if cost is None or isinstance(cost, str) or callable(cost):
        return cost  # type: ignore[no-any-return]
    raise TypeError(
        "cost must be None, a key of info, or callable as cost(observation, action, next_observation, info), "
        f"got {cost!r}"
    )


def unpacked(result: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
    """(observation, reward, cost, terminated, truncated, info) of a step of five or six values."""
    if len(result) == 6:
        return tuple(result)
    if len(result) == 5:
        observation, reward, terminated, truncated, info = result
        return observation, reward, ABSENT, terminated, truncated, info
    raise ValueError(
        "step must return (observation, reward, terminated, truncated, info), or Safety-Gymnasium's "
        "(observation, reward, cost, terminated, truncated, info); "
        f"the environment returned {len(result)} values"
    )


def read_cost(source: Cost, six: Any, before: Any, action: Any, after: Any, info: Any) -> Any:
    """The cost of a step in the type in which it came, which says how exact it is; of an array of one, the number."""
    if callable(source):
        cost = source(before, action, after, info)
    elif source is None and six is not ABSENT:
        cost = six
    else:
        key = "cost" if source is None else source
        if key not in info:
            names = ", ".join(map(repr, info)) or "nothing"
            raise ValueError(
                f"the environment's step reported no cost: expected info[{key!r}], but info has {names}; "
                "give cost=<the key in info> or cost=<a function of (observation, action, next_observation, info)>"
            )
        cost = info[key]
    return cost.reshape(())[()] if isinstance(cost, np.ndarray) and cost.size == 1 else cost
