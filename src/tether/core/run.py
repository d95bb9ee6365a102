"""What a batch of episodes gave."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Run:
    """Episodes that a policy played, N of them, H rounds each.

    Fields that were not recorded (see `tether.rollout`) are None.

    Example:
        >>> Run(rewards=np.ones((2, 3)), costs=np.full((2, 3), 0.5))
        Run(mean return 3, mean total cost 1.5; rewards [2, 3], costs [2, 3])
    """

    rewards: Floats
    """[N, H] reward of each round."""
    costs: Floats
    """[N, H] cost of each round; of several costs [N, H, m]."""
    actions: Floats | None = None
    """[N, H] or [N, H, n] what was played."""
    proposals: Floats | None = None
    """[N, H] or [N, H, n] what the policy proposed."""
    prior_actions: Floats | None = None
    """[N, H] or [N, H, n] what the prior would have played in the same state."""
    observations: Floats | None = None
    """[N, H, o] what the policy saw."""
    deviations: Floats | None = None
    """[N, H] ||action - prior action||, action units."""
    radii: Floats | None = None
    """[N, H] largest safe deviation; infinite without a guard."""
    margins: Floats | None = None
    """[N, H] certified distance below the bound, cost units; NaN without a guard or after a breach."""
    uncertified_from: NDArray[np.integer] | None = None
    """[N] the round, counted from 1, from which on the promise is not certified, because an assumption was breached in
    it; H + 1 if it is certified in every round. Of several contracts [N, m]. None without a guard."""
    overridden: NDArray[np.bool_] | None = None
    """[N, H] whether a round's promise was an operator's, because of an override; None if nothing was overridden."""
    bindings: NDArray[np.integer] | None = None
    """[N, H] of several contracts which kept the action from being the proposal, by its place; -1 if none did."""

    def __len__(self) -> int:
        return len(self.costs)

    def __repr__(self) -> str:
        recorded = [
            f"{each.name} {list(np.shape(getattr(self, each.name)))}"
            for each in fields(self)
            if getattr(self, each.name) is not None
        ]
        means = (
            f"mean return {self.returns.mean():.6g}, mean total cost {self.total_costs.mean():.6g}; "
            if self.costs.size
            else ""
        )
        return f"Run({means}{', '.join(recorded)})"

    @property
    def breached(self) -> NDArray[np.bool_] | None:
        """[N] whether an assumption was breached; from then on the prior was played. Of several contracts [N, m]."""
        return None if self.uncertified_from is None else self.uncertified_from <= self.costs.shape[1]

    @property
    def returns(self) -> Floats:
        """[N] total reward of each episode."""
        return np.asarray(np.sum(self.rewards, axis=1, dtype=np.float64))

    @property
    def total_costs(self) -> Floats:
        """[N] total cost of each episode; of several costs [N, m]."""
        return np.asarray(np.sum(self.costs, axis=1, dtype=np.float64))
