"""What an actuator makes of an action: how far off it may be, and which actions it can play at all."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tether.core.actions import Actions
from tether.core.certificate import Action, Choice
from tether.core.projection import Norm, length


class Actuator:
    """The declared actuator of a plant; with nothing declared it plays what it is told.

    Let w be the largest distance, entry by entry, from an action inside the bounds to the nearest one that the actuator
    can play, and t the tolerance. A certificate that keeps the promise for everything within t + w of what it chooses
    keeps it for the nearest playable action of what it chooses, played within t: that is what is decided.

    Args:
        tolerance: How far what is played may be from what is decided, a number, or [n] for vectors; None for no such
            thing.
        quantum: The actuator rounds to multiples of it, a number or [n]; None if it does not.
        levels: The actuator rounds to one of these, for every entry; None if it does not.
        actions: Of the guard.

    Attributes:
        tolerance: A float, or [n].
        rounding: w, a float, or [n].
    """

    def __init__(
        self,
        tolerance: ArrayLike | None,
        quantum: ArrayLike | None,
        levels: ArrayLike | None,
        actions: Actions,
    ) -> None:
        self.given = (tolerance, quantum, levels)
        self._actions = actions
        self.tolerance = _sizes("tolerance", 0.0 if tolerance is None else tolerance)
        self._quantum = _sizes("quantum", 0.0 if quantum is None else quantum)
        self._levels = None if levels is None else np.unique(np.asarray(levels, dtype=float))
        self.rounding: Any = 0.5 * self._quantum
        if quantum is not None:
            self._check_quantum()
        if self._levels is not None:
            self.rounding = self._check_levels(self._levels)
        if self.inexact and actions.shape is None:  # a number, unless something declared is a vector
            actions.shape = np.broadcast_shapes(np.shape(self.tolerance), np.shape(self.rounding))
        self.shape: tuple[int, ...] = actions.shape or ()

    @property
    def off(self) -> Any:
        """T + w, a float or [n]: what a certificate has to allow for."""
        return self.tolerance + self.rounding

    @cached_property
    def inexact(self) -> bool:
        """Whether anything is declared."""
        return bool(np.any(self.off > 0.0))

    @cached_property
    def rounds(self) -> bool:
        """Whether some actions cannot be played."""
        return self._levels is not None or bool(np.any(self._quantum > 0.0))

    @cached_property
    def exact(self) -> bool:
        """Whether it plays just what is decided, after some actions had to be rounded."""
        return self.rounds and not np.any(self.tolerance > 0.0)

    def played(self, choice: Choice, prior: Action, norm: Norm) -> Choice:
        """The choice with the nearest action that can be played, which may be farther from the prior's by w."""
        action = self.playable(choice.action)
        deviation = float(length(action - prior, norm))
        rounding = self.rounding + 0.0 * abs(action)
        return choice._replace(
            action=action, deviation=deviation, radius=choice.radius + float(length(rounding, norm))
        )

    def playable(self, action: Action) -> Action:
        """The nearest action that can be played."""
        if self._levels is not None:
            nearest = self._levels[np.argmin(abs(np.asarray(action)[..., None] - self._levels), axis=-1)]
        else:
            size = np.where(self._quantum > 0.0, self._quantum, 1.0)
            rounded = np.clip(np.round(action / size) * size, self._actions.low, self._actions.high)
            nearest = np.where(self._quantum > 0.0, rounded, action)
        return float(nearest) if isinstance(action, float) else np.array(nearest)

    def _check_quantum(self) -> None:
        """Refuse a quantum that is 0, or bounds that cannot be played."""
        if not np.all(self._quantum > 0.0):
            raise ValueError(f"quantum must be greater than 0, got {self.given[1]!r}")
        for name in ("low", "high"):
            bound = np.asarray(getattr(self._actions, name))
            parts = np.where(np.isfinite(bound), bound, 0.0) / self._quantum
            if not np.allclose(parts, np.round(parts), rtol=0.0, atol=1e-6):
                raise ValueError(f"{name} must be a multiple of the quantum {self.given[1]!r}, got {bound}")

    def _check_levels(self, levels: Any) -> Any:
        """W of a list of levels."""
        low, high = self._actions.low, self._actions.high
        if self.given[1] is not None:
            raise ValueError("an actuator has a quantum or levels, not both")
        if levels.ndim != 1 or levels.size == 0 or not np.all(np.isfinite(levels)):
            raise ValueError(f"levels must be a list of numbers, got {self.given[2]!r}")
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
            raise ValueError(f"levels need finite bounds of the action, got low={low}, high={high}")
        if np.any(levels[0] < low) or np.any(levels[-1] > high):
            raise ValueError(f"levels must lie between low={low} and high={high}, got {self.given[2]!r}")
        between = 0.5 * float(np.max(np.diff(levels), initial=0.0))
        return np.maximum(between, np.maximum(levels[0] - low, high - levels[-1]))


def tolerating(certificate: Any, actuator: Actuator, norm: Norm) -> Any:
    """The certificate for a plant with this actuator."""
    if not actuator.inexact:
        return certificate
    if not hasattr(certificate, "tolerating"):
        raise ValueError(
            f"{type(certificate).__name__} has no bounds for an action, or a backup, that is played inexactly; use "
            "LipschitzCertificate, or say what was really played by observe(cost, applied=...)"
        )
    off = np.broadcast_to(actuator.off, actuator.shape)
    return certificate.tolerating(float(length(off, norm)) * (1.0 + 1e-9))


def _sizes(name: str, given: ArrayLike) -> Any:
    """A number or a vector of numbers, none of them negative."""
    sizes = np.array(given, dtype=float)
    if sizes.ndim > 1 or not np.all(np.isfinite(sizes)) or np.any(sizes < 0.0):
        raise ValueError(f"{name} must be a number or a vector of numbers of at least 0, got {given!r}")
    return sizes.item() if sizes.ndim == 0 else sizes
