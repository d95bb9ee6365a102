"""How a guard says that an assumption is breached."""

from __future__ import annotations

import math
import warnings
from typing import Any

from tether.core import convert
from tether.core.certificate import Action, Observation
from tether.core.decision import AssumptionBreach, Breach
from tether.core.standing import Standing
from tether.core.watch import Found


class Reporting(Standing):
    """The part of a `tether.Guard` that reports."""

    def _void(self, held: Any) -> tuple[str, ...] | None:
        """Of several contracts those whose promise is void; None if there is one contract."""
        contracts: Any = getattr(self.certificate, "contracts", None)
        if contracts is None:
            return None
        return tuple(name for name, lost in zip(contracts, held.void, strict=True) if lost)

    def _contract_name(self, place: float) -> str | None:
        contracts: Any = getattr(self.certificate, "contracts", None)
        return None if contracts is None else list(contracts)[int(place)]

    def _contradicted(self, found: Found) -> None:
        """Report what the monitor found."""
        self._report(self.round - found.ago, found.detail, **found.evidence)

    def _report(
        self,
        round_now: int,
        detail: str,
        *,
        claimed: tuple[float, float] | None = None,
        seen: float | None = None,
        observation: Observation | None = None,
        action: Action | None = None,
        contracts: tuple[str, ...] | None = None,
    ) -> None:
        self._state = self._state._replace(breached=True)
        if self.breach is None or round_now < self.breach.round:
            number = None if seen is None or math.isnan(seen) else seen
            evidence = convert.from_json(observation), convert.from_json(action)
            self.breach = Breach(round_now, detail, claimed, number, *evidence, contracts)
        self._warn(
            f"round {round_now}: {detail}; the promise is void from here on, and only the prior is played"
        )

    def _warn(self, message: str) -> None:
        warnings.warn(message, AssumptionBreach, stacklevel=5)
