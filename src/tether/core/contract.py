"""The promise itself: what the guarded policy may cost, relative to the trusted one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tether.core import validate


@dataclass(frozen=True)
class Contract:
    """The anytime-competitive promise, for every round h of every episode.

        J_h(guarded) <= (1 + lam) * J_h(prior) + h * b,    J_h = sum of the costs of rounds 1..h

    Args:
        lam: Relative slack (the paper's lambda), at least 0. `lam=2` lets the cost triple.
        b: Slack earned each round, in units of cost, at least 0.
        horizon: Number of rounds of an episode (the paper's H), at least 1.
        cost_floor: A cost that no round of any policy goes below (the paper's epsilon), at least 0.
            An under-estimate is sound; it only makes the guard more careful.

    Example:
        >>> contract = Contract(lam=2.0, b=2.0, horizon=24, cost_floor=1.0)
        >>> contract.earned
        4.0
        >>> contract.bound(prior_cost=10.0, rounds=3)
        36.0
    """

    lam: float
    b: float
    horizon: int
    cost_floor: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lam", validate.number("lam", self.lam, minimum=0.0))
        object.__setattr__(self, "b", validate.number("b", self.b, minimum=0.0))
        object.__setattr__(self, "horizon", validate.count("horizon", self.horizon))
        object.__setattr__(self, "cost_floor", validate.number("cost_floor", self.cost_floor, minimum=0.0))

    @property
    def earned(self) -> float:
        """The slack that every round earns whatever happens, lam * eps + b, in units of cost."""
        return self.lam * self.cost_floor + self.b

    def bound(self, prior_cost: Any, rounds: Any) -> Any:
        """The largest cumulative cost allowed after so many rounds.

        Args:
            prior_cost: Cumulative cost of the prior over those rounds, J_h(prior); a number or an array.
            rounds: The number of rounds h, counted from 1; a number or an array that broadcasts.
        """
        return (1.0 + self.lam) * prior_cost + rounds * self.b
