"""Where a guard stands in its episode."""

from __future__ import annotations

from typing import Any

from tether.core.certificate import Certificate
from tether.core.decision import Breach, Override
from tether.core.late import Pending
from tether.core.overrides import Overrides
from tether.core.schedule import Horizon


class Standing:
    """What can be asked of a `tether.Guard` at any time: its round, and what is special about its episode."""

    certificate: Certificate
    breach: Breach | None
    _state: Any
    _overrides: Overrides
    _pending: Pending

    @property
    def round(self) -> int:
        """The round that is open or comes next, counted from 1; horizon + 1 when the episode is over."""
        return int(self._state.rounds) + 1

    @property
    def horizon(self) -> Horizon:
        """Number of rounds of an episode; `math.inf` if there is no last one."""
        return self.certificate.contract.horizon

    @property
    def uncertified_from(self) -> Horizon:
        """The round from which on the promise of this episode is not certified; horizon + 1 if it all is."""
        return self.horizon + 1 if self.breach is None else self.breach.round

    @property
    def overrides(self) -> tuple[Override, ...]:
        """What others decided in this episode, as far as `observe` was told; at most the last 1000."""
        return tuple(self._overrides)

    @property
    def rounds_under_override(self) -> tuple[int, ...]:
        """The closed rounds of this episode, counted from 1, whose promise is the operator's, not the guard's.

        They begin with an override that was not safe, and end before the first round in which what is played is known
        to be safe again: in that round and later ones the promise holds, with all that the override cost.
        """
        return self._overrides.rounds(self.round - 1)

    @property
    def pending(self) -> tuple[int, ...]:
        """The rounds that wait for their cost, counted from 1."""
        return tuple(self._pending)
