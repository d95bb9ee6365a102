"""What is known of a linear plant whose cost is a distance, for certificates that replay the prior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tether.certificates import Bounds, Structure

Rows = tuple[tuple[float, ...], ...]
"""A matrix, as plain numbers."""


@dataclass(frozen=True)
class LinearStructure(Structure):
    """x' = A x + B a + v with any v of a box, cost w |x' - T|, prior pi(x) = clip(k (T - x), -1, 1).

    *The gap* e = x - x+ does not depend on v: playing a it becomes e' = A e + B (a - pi(x - e)), exactly.

    *Where the prior is linear.* R is |x_i - T| <= 1/k in each zone. With M = A - k B and |v + (A - I) T| <= d,
    |M| (1/k) + d <= 1/k (checked) means that the prior keeps a plant in R that is in R. The prior's plant starts there.
    An action after which the own plant is in R whatever v is therefore leads to gaps M e', M^2 e', ... under the prior.

    *Now and later.* Distances differ by no more than the gap, and c+ >= 0, so with n_j = w |M^j e'|

        T_n = n_0 + ... + n_n                      rest = n_K (|M| + |M^2| + ...) in the spectral norm.

    Any other action is not safe: T_0 is true of it, the other bounds are infinite. *Floor*: c - n_0; replaying the
    prior with what v was (`tether.certificates.Shadowing`) gives c+ itself.
    """

    kind: ClassVar[str] = "linear"
    scalar: ClassVar[bool] = False
    gap_names: ClassVar[tuple[str, ...]] = ("gap",)
    terms: ClassVar[int] = 8
    """K: from there on every later round is counted at once."""

    A: Rows
    B: Rows
    disturbance: tuple[tuple[float, ...], tuple[float, ...]]
    """(low, high) of v, degrees."""
    target: float
    """T, degrees."""
    gain: float
    """k, of the prior, per degree."""
    weight: float
    """w, cost of a degree."""

    def __post_init__(self) -> None:
        radius = 1.0 / self.gain
        reach = np.abs(self._closed) @ np.full(self.entries, radius) + self._drift
        if not np.all(reach <= radius):
            raise ValueError(
                f"the prior may leave {radius:g} degrees around the target, it reaches {reach.max():g}"
            )

    @property
    def entries(self) -> int:  # type: ignore[override]
        """How many zones there are."""
        return len(self.A)

    @property
    def low(self) -> float:
        """Full cooling."""
        return -1.0

    @property
    def high(self) -> float:
        """Full heating."""
        return 1.0

    @property
    def scale(self) -> float:
        """Temperatures are rounded in proportion to their size, and the cost of that adds up over the rounds."""
        return self.weight * abs(self.target) * math.sqrt(self.entries) * (1.0 + self._rest)

    @cached_property
    def _matrices(self) -> tuple[Any, Any]:
        return np.array(self.A), np.array(self.B)

    @cached_property
    def _closed(self) -> Any:
        """M."""
        A, B = self._matrices
        return A - self.gain * B

    @cached_property
    def _drift(self) -> Any:
        """[n] d."""
        moved = (self._matrices[0] - np.eye(self.entries)) @ np.full(self.entries, self.target)
        return np.max([np.abs(moved + end) for end in self.disturbance], axis=0)

    @cached_property
    def _powers(self) -> Any:
        """[K + 1, n, n] of M."""
        return np.array([np.linalg.matrix_power(self._closed, j) for j in range(self.terms + 1)])

    @cached_property
    def _rest(self) -> float:
        """|M| + |M^2| + ...: 400 terms, and the others by the norm of the 20 th power."""
        norms = [float(np.linalg.norm(np.linalg.matrix_power(self._closed, j), 2)) for j in range(1, 421)]
        if not norms[19] < 1.0:
            raise ValueError(f"gaps must shrink under the prior, got {norms[19]:g} of one after 20 rounds")
        return sum(norms[:400]) + sum(norms[400:]) / (1.0 - norms[19])

    def start(self, zero: Any) -> Any:
        """No gap."""
        return (zero + np.zeros(self.entries),)

    def read(self, observation: Any) -> Any:
        """([n] temperatures,)."""
        return (observation[: self.entries],)

    def admits(self, seen: Any, ops: Any) -> Any:
        """Whether the temperatures are numbers."""
        return ops.all(ops.isfinite(seen[0]))

    def agrees(self, seen: Any, prior: Any, epsilon: Any, ops: Any) -> Any:
        """Whether the prior plays what the bounds take it to play."""
        off = abs(prior - self._prior(seen[0], ops))
        return ops.all(off <= 64.0 * epsilon * (1.0 + self.gain * abs(self.target)))

    def gaps_between(self, seen: Any, prior_seen: Any, ops: Any) -> Any:  # noqa: ARG002
        """The gap itself."""
        return (seen[0] - prior_seen[0],)

    def gap_features(self, gaps: Any, ops: Any) -> Any:
        """How far a zone is above and below the prior's, degrees, at most."""
        return ops.maximum(ops.max(gaps[0]), 0.0), ops.maximum(ops.max(-gaps[0]), 0.0)

    def bounds(self, now: Any, action: Any, plan: int, ops: Any) -> Bounds:  # noqa: ARG002
        """See the class."""
        (gap,), (own,) = now.gaps, now.seen
        A, B = self._matrices
        after = A @ gap + B @ (action - self._prior(own - gap, ops))
        # A root of 0 has no slope; the least positive number takes nothing away from a bound.
        later = self.weight * ops.sqrt(ops.sum((self._powers @ after) ** 2, axis=1) + 1e-30)
        away = A @ own + B @ action - self.target
        away = ops.maximum(
            abs(away + np.array(self.disturbance[0])), abs(away + np.array(self.disturbance[1]))
        )
        inside = ops.all(away <= 1.0 / self.gain)
        credit = now.lam * now.cost_floor
        totals = [later[0] - credit]
        for j in range(1, self.terms + 1):
            totals.append(totals[-1] + later[j] - credit)
        totals.append(totals[-1] + self._rest * later[self.terms] - credit)
        held = (totals[0], *(ops.where(inside, each, math.inf) for each in totals[1:]))
        return Bounds(held, self.weight * ops.sqrt(ops.sum(away**2) + 1e-30), (after, later[0]))

    def close(self, step: Any, cost: Any, epsilon: Any, ops: Any) -> Any:  # noqa: ARG002
        """The floor is the cost less what the gap explains."""
        after, difference = step
        return ops.maximum(cost - difference, 0.0), (after,)

    def unseen(self, step: Any, ops: Any) -> Any:  # noqa: ARG002
        """The gap does not depend on the cost."""
        return (step[0],)

    def _prior(self, temperatures: Any, ops: Any) -> Any:
        return ops.clip(self.gain * (self.target - temperatures), -1.0, 1.0)
