"""The actions of one guard: between which bounds they lie, which shape they have, and what the prior says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tether.core import convert
from tether.core.decision import PriorFailed, Reason
from tether.core.ops import FLOAT64, coarsest

_new: Any = tuple.__new__
# Looking up a member of an enumeration takes longer than deciding which.
_BREACH, _OVERRIDE, _INVALID = Reason.BREACH, Reason.OVERRIDE, Reason.INVALID_PROPOSAL
_SAFE, _TOO_FAR, _OUT_OF_BOUNDS = Reason.SAFE, Reason.TOO_FAR, Reason.OUT_OF_BOUNDS


class Answer(NamedTuple):
    """What the prior said."""

    action: Any
    """A float, or [n] for more than one number, inside the bounds; None if it gave no action."""
    epsilon: float
    """Relative round-off of its type."""
    complaint: str | None = None
    """What is wrong with it."""
    cause: Exception | None = None
    """What it raised."""

    def failed(self, round_now: int) -> PriorFailed:
        """What to raise if there is no action."""
        error = PriorFailed(f"round {round_now}: {self.complaint}; no action is known to be safe")
        error.__cause__ = self.cause
        return error

    def required(self, round_now: int) -> Any:
        """The action.

        Raises:
            PriorFailed: There is none.
        """
        if self.action is None:
            raise self.failed(round_now)
        return self.action


class Actions:
    """Bounds and shape; an action of one number is handled as a float and given back in its own shape.

    Args:
        low: Lower bounds, a number or [n]; None for none.
        high: Upper bounds, a number or [n]; None for none.

    Attributes:
        low: A float where one number says it, else [n].
        high: Likewise.
        shape: Known from vector bounds, or else from the prior's first action; None before it.
    """

    def __init__(self, low: ArrayLike | None, high: ArrayLike | None) -> None:
        self.low, self.high = _bound("low", low, -math.inf), _bound("high", high, math.inf)
        if not np.all(self.low <= self.high):
            raise ValueError(f"low must not exceed high, got low={low!r}, high={high!r}")
        shapes = (np.asarray(bound).shape for bound in (low, high))  # () of None, as of a number
        self.shape: tuple[int, ...] | None = np.broadcast_shapes(*shapes) or None

    def usable(self, value: Any) -> Any:
        """`value` as a finite action, a copy; None if it is no such thing. The prior has been asked before."""
        return convert.as_action(value, self.shape or ())

    def decided(self, value: Any) -> Any:
        """What a certificate chose, in the same way."""
        return convert.as_action(value, self.shape or ())

    def inside(self, action: Any) -> bool:
        """Whether an action is within the bounds."""
        if isinstance(action, float):
            return bool(self.low <= action <= self.high)
        return bool(np.all((self.low <= action) & (action <= self.high)))

    def near(self, action: Any, other: Any, share: float) -> bool:
        """Whether two actions differ by no more than a share of each entry of the second."""
        return bool(np.all(abs(action - other) <= share * abs(other)))

    def given(self, action: Any) -> Any:
        """An action in the shape that the prior's has; a copy, which its receiver may change."""
        if not self.shape:
            return action
        return np.array([action]) if self.shape == (1,) else action.copy()

    def reason(self, action: Any, wish: Any, breached: bool, overridden: bool = False) -> Reason:
        """Why `action` is played where `wish`, a usable proposal or None, was asked for."""
        if breached:
            return _BREACH
        if overridden:
            return _OVERRIDE
        if wish is None:
            return _INVALID
        if isinstance(action, float):  # as below, without calling for it
            if action == wish:
                return _SAFE
            return _TOO_FAR if self.low <= wish <= self.high else _OUT_OF_BOUNDS
        if equal(action, wish):
            return _SAFE
        return _TOO_FAR if self.inside(wish) else _OUT_OF_BOUNDS

    def ask(self, prior: Callable[[Any], Any], observation: Any) -> Answer:
        """The prior's answer to an observation, checked."""
        try:
            said = prior(observation)
            if isinstance(said, float) and self.shape == ():
                # As it mostly is: one number, as it was before, and inside the bounds.
                number = float(said)
                if self.low <= number <= self.high and math.isfinite(number):
                    found: Answer = _new(Answer, (number, FLOAT64, None, None))
                    return found
            epsilon = coarsest(said)
            shape = tuple(np.shape(said)) if self.shape is None else self.shape
        except Exception as error:
            return Answer(None, 0.0, f"the prior raised {convert.text(error)}", error)
        action = convert.as_action(said, shape) if len(shape) < 2 and 0 not in shape else None
        if action is None:
            expected = "number or vector" if self.shape is None else f"action of shape {self.shape}"
            return Answer(None, 0.0, f"the prior returned {convert.text(said)}, expected a finite {expected}")
        self.shape = shape
        if self.inside(action):
            return Answer(action, epsilon)
        clipped = np.clip(action, self.low, self.high)
        complaint = f"the prior returned {convert.text(said)}, outside the bounds {self.low} to {self.high}"
        return Answer(float(clipped) if isinstance(action, float) else clipped, epsilon, complaint)


def equal(first: Any, second: Any) -> bool:
    """Whether two actions of the same shape are the same; nothing is the same as None."""
    return bool(first == second) if isinstance(first, float) else bool(np.array_equal(first, second))


def bound_to_json(bound: Any) -> Any:
    """A bound fit for JSON, which knows no infinity: None stands for no bound."""
    if isinstance(bound, float):
        return None if math.isinf(bound) else bound
    return [bound_to_json(float(entry)) for entry in bound]


def bound_from_json(bound: Any, infinite: float) -> Any:
    """The bound that `bound_to_json` made fit for JSON."""
    if isinstance(bound, list):
        return [bound_from_json(entry, infinite) for entry in bound]
    return infinite if bound is None else bound


def _bound(name: str, given: ArrayLike | None, infinite: float) -> Any:
    """One side of the box: a float where one number says it, else [n], a copy."""
    bound = np.array(infinite if given is None else given, dtype=float)
    if bound.ndim > 1 or np.any(np.isnan(bound)) or np.any(bound == -infinite):
        raise ValueError(f"{name} must be a number or a vector of numbers, got {given!r}")
    return bound.item() if bound.size == 1 else bound
