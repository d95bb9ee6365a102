"""What a batch of episodes gave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Run:
    """Episodes that a policy played, N of them, H rounds each.

    Fields that were not recorded (see `tether.rollout`) are None.
    """

    rewards: Floats
    """[N, H] reward of each round."""
    costs: Floats
    """[N, H] cost of each round."""
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
    it; H + 1 if it is certified in every round. None without a guard."""

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def breached(self) -> NDArray[np.bool_] | None:
        """[N] whether an assumption was breached; from then on the prior was played."""
        return None if self.uncertified_from is None else self.uncertified_from <= self.costs.shape[1]

    @property
    def returns(self) -> Floats:
        """[N] total reward of each episode."""
        return np.asarray(np.sum(self.rewards, axis=1, dtype=np.float64))

    @property
    def total_costs(self) -> Floats:
        """[N] total cost of each episode."""
        return np.asarray(np.sum(self.costs, axis=1, dtype=np.float64))
