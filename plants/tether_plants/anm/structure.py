"""What is known of ANM6Easy: its power flow, and what its MPC pays at each time of the day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tether.certificates import Bounds, Structure
from tether_plants.anm.adapter import ROUNDS, table
from tether_plants.anm.flow import OFF, held, played


@dataclass(frozen=True)
class GridStructure(Structure):
    """Power flow is memoryless and the day is known, so a round's excess is computed, not bounded.

    *The prior's plant* pays `held` at each time of day: c+ is known. *Backup `hold`*: play what the MPC plays with an
    empty battery. Whatever is in the own battery, that costs what the prior pays, up to `OFF`, or what it costs if the
    battery is full and cannot be charged: y_k <= worst := max over the day of held' + OFF - (1 + lam) [held - OFF]^+.
    So T_0 = c + OFF - (1 + lam) [held - OFF]^+ with the cost c of the action itself, and T_n <= T_0 + 96 worst.
    Under the prior as backup nothing is claimed of later rounds, as its answers jump with the charge.
    """

    kind: ClassVar[str] = "grid"
    entries: ClassVar[int] = 3
    scalar: ClassVar[bool] = False
    backups: ClassVar[tuple[str, ...]] = ("hold",)
    turns: ClassVar[int] = 8

    @property
    def scale(self) -> float:
        """A penalty of a heavy overload."""
        return 10.0

    def start(self, zero: Any) -> Any:
        """There is nothing to remember of the gap."""
        return (zero,)

    def read(self, observation: Any) -> Any:
        """(time of day, charge)."""
        return observation[0], observation[1]

    def admits(self, seen: Any, ops: Any) -> Any:
        """Whether that is a time of day and a charge."""
        clock, charge = seen
        day = ops.logical_and(clock >= -0.01, clock <= ROUNDS - 0.99)
        return ops.logical_and(day, ops.logical_and(charge >= -1e-3, charge <= 100.001))

    def gaps_between(self, seen: Any, prior_seen: Any, ops: Any) -> Any:  # noqa: ARG002
        """None that matters."""
        return (0.0 * seen[0],)

    def backup(self, plan: int, now: Any, ops: Any) -> Any:  # noqa: ARG002
        """What the MPC plays with an empty battery."""
        return ops.asarray(table()[:, 0], dtype=now.prior.dtype)[_clock(now.seen[0], ops)]

    def bounds(self, now: Any, action: Any, plan: int, ops: Any) -> Bounds:
        """See the class."""
        clock, (paid, full) = _clock(now.seen[0], ops), held()
        cost = played(clock, ops.clip(now.seen[1], 0.0, 100.0), action)[1] + OFF
        paid, full = (ops.asarray(each, dtype=cost.dtype) for each in (paid, full))
        least = ops.maximum(paid[clock] - OFF, 0.0)
        first = cost - (1.0 + now.lam) * least
        worst = ops.maximum(ops.max(full + OFF - (1.0 + now.lam) * ops.maximum(paid - OFF, 0.0)), 0.0)
        later = first + (ROUNDS * worst if plan == 1 else np.inf)
        return Bounds((first, later), cost, (least,))

    def close(self, step: Any, cost: Any, epsilon: Any, ops: Any) -> Any:  # noqa: ARG002
        """The floor is what the prior pays."""
        return step[0], (0.0 * step[0],)

    def unseen(self, step: Any, ops: Any) -> Any:  # noqa: ARG002
        """There is nothing to remember."""
        return (0.0 * step[0],)


def _clock(clock: Any, ops: Any) -> Any:
    """The time of day as an index, whatever is seen."""
    return ops.asarray(ops.clip(clock + 0.5, 0.0, ROUNDS - 0.5)).astype(int)
