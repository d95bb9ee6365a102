"""The promise itself: what the guarded policy may cost, relative to the trusted one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tether.core import schedule, validate
from tether.core.ops import NUMPY, Number, Ops
from tether.core.schedule import Horizon, Rate, Schedule


@dataclass(frozen=True)
class Contract:
    """The anytime-competitive promise, for every round h of every episode.

        J_h(guarded) <= (1 + lam) * J_h(prior) + h * b,    J_h = sum of the costs of rounds 1..h

    With a `lam` or a `b` for each round, J_h(guarded) <= sum_{i<=h} ((1 + lam_i) c_i(prior) + b_i).

    Args:
        lam: Relative slack (the paper's lambda), at least 0. `lam=2` lets the cost triple. A number, a sequence of one
            for each round, or `tether.periodic([...])`.
        b: Slack earned each round, in units of cost, at least 0. Likewise.
        horizon: Number of rounds of an episode (the paper's H), at least 1; `math.inf` if there is no last round.
        cost_floor: A cost that no round of any policy goes below (the paper's epsilon), at least 0.
            An under-estimate is sound; it only makes the guard more careful.
        confidence: The probability with which the promise holds, in all rounds of an episode together, where what it
            rests on holds with that probability only. 1, the default, is the certain promise.
        rests_on: What the probability is about, in words; needed if and only if `confidence` is below 1.

    Example:
        >>> contract = Contract(lam=2.0, b=2.0, horizon=24, cost_floor=1.0)
        >>> contract.earned
        4.0
        >>> contract.bound(prior_cost=10.0, rounds=3)
        36.0
        >>> Contract(lam=0.0, b=[0.0, 0.0, 4.0], horizon=3).bounds([[1.0, 1.0, 1.0]]).tolist()
        [[1.0, 2.0, 7.0]]
    """

    lam: Rate
    b: Rate
    horizon: Horizon
    cost_floor: float = 0.0
    confidence: float = 1.0
    rests_on: str = ""

    def __post_init__(self) -> None:
        if self.horizon != math.inf:
            object.__setattr__(self, "horizon", validate.count("horizon", self.horizon))
        for name in ("lam", "b"):
            object.__setattr__(self, name, schedule.rate(name, getattr(self, name), self.horizon))
        object.__setattr__(self, "cost_floor", validate.number("cost_floor", self.cost_floor, minimum=0.0))
        confidence = validate.number("confidence", self.confidence, above=0.0)
        object.__setattr__(self, "confidence", confidence)
        if confidence > 1.0:
            raise ValueError(f"confidence must be at most 1, got {self.confidence!r}")
        if not isinstance(self.rests_on, str) or (confidence < 1.0) != bool(self.rests_on.strip()):
            raise ValueError(
                "rests_on must say what a confidence below 1 is about, and nothing else; got confidence="
                f"{self.confidence!r}, rests_on={self.rests_on!r}"
            )

    @cached_property
    def continuing(self) -> bool:
        """Whether there is no last round."""
        return bool(self.horizon == math.inf)

    @cached_property
    def scheduled(self) -> bool:
        """Whether `lam` or `b` changes from round to round."""
        return isinstance(self.lam, Schedule) or isinstance(self.b, Schedule)

    @property
    def certain(self) -> bool:
        """Whether the promise holds whatever happens, and not with a probability below 1."""
        return self.confidence >= 1.0

    @property
    def earned(self) -> float:
        """The slack that every round earns whatever happens, lam * eps + b, in units of cost; that of the first."""
        lam, b = self.lam, self.b
        if isinstance(lam, Schedule) or isinstance(b, Schedule):
            lam, b = schedule.first(lam), schedule.first(b)
        earned: Number = lam * self.cost_floor + b
        return earned

    @property
    def least_earned(self) -> float:
        """The slack that no round earns less than, in units of cost."""
        least = [schedule.least_from(rate, 0.0, NUMPY) for rate in (self.lam, self.b)]
        return float(least[0] * self.cost_floor + least[1])

    def lam_at(self, rounds: Number, ops: Ops) -> Number:
        """The `lam` of the round that comes after so many."""
        return schedule.at(self.lam, rounds, ops)

    def b_at(self, rounds: Number, ops: Ops) -> Number:
        """The `b` of the round that comes after so many, cost units."""
        return schedule.at(self.b, rounds, ops)

    def earned_at(self, rounds: Number, ops: Ops) -> Number:
        """The slack that the round after so many earns whatever happens, cost units."""
        if not self.scheduled:
            return self.earned
        return self.lam_at(rounds, ops) * self.cost_floor + self.b_at(rounds, ops)

    def least_lam(self, rounds: Number, ops: Ops) -> Number:
        """The smallest `lam` of the round that comes after so many and of all later ones."""
        return schedule.least_from(self.lam, rounds, ops)

    def b_until(self, rounds: Number, ops: Ops) -> Number:
        """The `b` of the first `rounds` rounds together, cost units."""
        return schedule.until(self.b, rounds, ops)

    def earned_ahead(self, rounds: Number, count: int, ops: Ops) -> Any:
        """[..., count] what the next 1, 2, ..., `count` rounds earn together, cost units, if there is a schedule."""
        lams, bs = (schedule.ahead(each, rounds, count, ops) for each in (self.lam, self.b))
        return ops.cumulative_sum(lams * self.cost_floor + bs, axis=-1)

    def bound(self, prior_cost: Any, rounds: Any) -> Any:
        """The largest cumulative cost allowed after so many rounds.

        Args:
            prior_cost: Cumulative cost of the prior over those rounds, J_h(prior); a number or an array.
            rounds: The number of rounds h, counted from 1; a number or an array that broadcasts.

        Raises:
            ValueError: `lam` is a schedule, for which the costs of each round are needed: use `bounds`.
        """
        if isinstance(self.lam, Schedule):
            raise ValueError(
                "with a lam for each round the bound needs the cost of each: use bounds(prior_costs)"
            )
        earned = self.b_until(rounds, NUMPY)
        return (1.0 + self.lam) * prior_cost + earned

    def bounds(self, prior_costs: Any) -> Any:
        """[..., H] the largest cumulative costs allowed after 1, 2, ..., H rounds, from the prior's costs [..., H]."""
        costs = np.asarray(prior_costs)
        played: Any = np.arange(costs.shape[-1])
        if costs.shape[-1] > self.horizon:
            raise ValueError(f"expected costs of at most {self.horizon} rounds, got {costs.shape[-1]}")
        if not isinstance(self.lam, Schedule):
            return self.bound(np.cumsum(costs, axis=-1), played + 1)
        allowed = np.cumsum((1.0 + self.lam_at(played, NUMPY)) * costs, axis=-1)
        return allowed + self.b_until(played + 1, NUMPY)

    def raised(self, lam: Any = None, b: Any = None) -> Contract:
        """The contract with a larger `lam` or `b`, or both; None leaves one as it is.

        Of a number and a schedule, or of two schedules, the larger counts in every round.

        Raises:
            ValueError: One of them would be lower.
        """
        return replace(
            self,
            lam=schedule.raised("lam", self.lam, lam, self.horizon),
            b=schedule.raised("b", self.b, b, self.horizon),
        )

    def resting_on(self, what: str, confidence: float) -> Contract:
        """The contract where it also rests on something that holds with a probability only.

        By the union bound everything that it rests on holds together with at least 1 minus the sum of what is missing
        to 1, whether or not these events are independent.

        Args:
            what: In words.
            confidence: Its probability, above 0 and at most 1.

        Raises:
            ValueError: Nothing is left of the probability.
        """
        together = self.confidence - (1.0 - validate.number("confidence", confidence, above=0.0))
        if together >= 1.0:
            return self
        if together <= 0.0:
            raise ValueError(
                f"nothing is left of the promise: it holds with probability {self.confidence:g}, and {what} with "
                f"{confidence:g}"
            )
        rests_on = f"{self.rests_on}; {what}" if self.rests_on else what
        return replace(self, confidence=together, rests_on=rests_on)

    def require_constant(self, what: str) -> None:
        """Refuse a contract without a last round or with a schedule, which `what` has no use for."""
        if self.continuing or self.scheduled:
            raise ValueError(
                f"{what} needs one lam, one b and a last round; got lam={self.lam!r}, b={self.b!r}, "
                f"horizon={self.horizon!r}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe it exactly, fit for JSON; a probability only if there is one."""
        described = {
            "lam": schedule.to_json(self.lam),
            "b": schedule.to_json(self.b),
            "horizon": "inf" if self.continuing else self.horizon,
            "cost_floor": self.cost_floor,
        }
        probable = {"confidence": self.confidence, "rests_on": self.rests_on}
        return described if self.certain else {**described, **probable}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Contract:
        """The contract that `to_dict` described."""
        rates = {name: schedule.from_json(description[name]) for name in ("lam", "b")}
        horizon = math.inf if description["horizon"] == "inf" else description["horizon"]
        return cls(**{**description, **rates, "horizon": horizon})

    def __str__(self) -> str:
        if self.scheduled:
            rates = ", ".join(schedule.text(f"{name}_i", getattr(self, name)) for name in ("lam", "b"))
            promise = f"J_h <= sum of (1 + lam_i) c_i(prior) + b_i, {rates}"
        else:
            promise = f"J_h <= (1 + {self.lam:g}) J_h(prior) + {self.b:g} h"
        if self.certain:
            return promise
        return (
            f"{promise}, with probability {self.confidence:.12g} an episode, which rests on {self.rests_on}"
        )
