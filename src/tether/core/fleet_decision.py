"""What a fleet decides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tether.core.decision import Reason

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

REASONS = tuple(reason for reason in Reason if reason is not Reason.OVERRIDE)
"""Why a decision of a fleet is what it is; a fleet is not told of overrides."""


@dataclass(frozen=True)
class FleetDecision:
    """What a fleet decided in one call; the rows of plants that did not act have no meaning."""

    rounds: Floats
    """[n] each plant's round, counted from 1."""
    actions: Floats
    """[n] or [n, k] what to play."""
    prior_actions: Floats
    """[n] or [n, k] what the prior would play."""
    deviations: Floats
    """[n] ||action - prior action||, action units."""
    radii: Floats
    """[n] the largest that was safe, action units."""
    margins: Floats
    """[n] how far below its bound each cumulative cost will be at least, cost units; NaN after a breach."""
    intervened: Flags
    """[n] whether the action differs from the proposal."""
    reason_codes: NDArray[np.int8]
    """[n] places in `tuple(tether.Reason)`."""
    backup_codes: NDArray[np.int64]
    """[n] places in the certificate's `backup_names`."""
    backup_names: tuple[str, ...]
    """Of the certificate."""

    @cached_property
    def reasons(self) -> NDArray[np.str_]:
        """[n] why, in the words of `tether.Reason`."""
        return np.array([str(each) for each in REASONS])[self.reason_codes]

    @cached_property
    def backups(self) -> NDArray[np.str_]:
        """[n] what keeps the promise from the next round on if nothing else is decided."""
        return np.array(self.backup_names)[self.backup_codes]
