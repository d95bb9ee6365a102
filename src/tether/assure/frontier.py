"""What a contract costs and what it brings: reward against cost over a grid of (lam, b), to choose from.

For each contract there are three points. The *prior* is the same in all of them. The *learner* is one that was trained
for the contract and plays behind its guard. The *limit* is the best that hindsight allows (`tether.assure.limit`), at
the cost that the contract permits: (1 + lam) J_H(prior) + H b, which no sequence that keeps the promise exceeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tether.assure.limit import Limit
from tether.core.contract import Contract
from tether.core.run import Run
from tether.learn.train import Score


@dataclass(frozen=True)
class Point:
    """Reward and cost of one episode, over the test episodes; what is over seeds has its spread."""

    reward: float
    """Mean, reward units an episode."""
    mean_cost: float
    """Mean, cost units an episode; of the limit the mean that the contract permits."""
    worst_cost: float
    """Of the worst episode of all seeds; of the limit the most that the contract permits in any."""
    reward_spread: float = 0.0
    """Standard deviation over the seeds."""
    violation_rate: float = 0.0
    """Share of the test episodes with a violation in any round."""


@dataclass(frozen=True)
class Contracted:
    """All that there is to say of one contract."""

    lam: float
    b: float
    learner: Point
    limit: Point
    share: float | None
    """Of the way from the prior to the limit that the learner has come; None if there is no way to go."""
    best: bool
    """Whether no other contract of the grid permits less in the worst episode and lets the learner earn more."""


def prior_point(prior: Run) -> Point:
    """The prior's point, from its run over the test episodes."""
    costs = prior.total_costs
    return Point(float(prior.returns.mean()), float(costs.mean()), float(costs.max()))


def learner_point(scores: Sequence[Score]) -> Point:
    """The learner's point under one contract, from its scores, one for each seed."""
    rewards = [score.reward for score in scores]
    return Point(
        float(np.mean(rewards)),
        float(np.mean([score.cost for score in scores])),
        max(score.worst_cost for score in scores),
        reward_spread=float(np.std(rewards)),
        violation_rate=max(score.violation_rate for score in scores),
    )


def limit_point(found: Limit, contract: Contract, prior: Run) -> Point:
    """The limit's point: its reward, and what the contract permits.

    Args:
        found: Of some test episodes.
        contract: The promise.
        prior: Over all of the test episodes, so that what is permitted is comparable with what others cost.
    """
    permitted = contract.bound(prior.total_costs, contract.horizon)
    return Point(float(found.upper.mean()), float(np.mean(permitted)), float(np.max(permitted)))


def contracted(
    prior: Point, grid: Sequence[tuple[float, float]], learners: Sequence[Point], limits: Sequence[Point]
) -> list[Contracted]:
    """The contracts of a grid, with what the learner has of the limit and which of them are worth a look.

    Args:
        prior: Of all test episodes.
        grid: (lam, b) of each contract.
        learners: In the same order.
        limits: In the same order. Where their rewards are of fewer episodes they must be at the level of all of them:
            moved by what the prior earns more in all of them.
    """
    rows = []
    for (lam, b), learner, limit in zip(grid, learners, limits, strict=True):
        way = limit.reward - prior.reward
        share = (learner.reward - prior.reward) / way if way > 0.0 else None
        beaten = any(
            other.reward > learner.reward and bound.worst_cost <= limit.worst_cost
            for other, bound in zip(learners, limits, strict=True)
        )
        rows.append(Contracted(lam, b, learner, limit, share, best=not beaten))
    return rows
