"""What every certificate answers to a proposal."""

from __future__ import annotations

from typing import Any, NamedTuple


class Choice(NamedTuple):
    """What a certificate makes of a proposal."""

    action: Any
    """What to play."""
    deviation: Any
    """||action - prior||, action units."""
    radius: Any
    """The largest deviation that is safe; for a structured certificate, on the way to the proposal."""
    margin: Any
    """How far below its bound J_h stays at least, cost units."""
    taken: Any
    """What `update` needs."""
    breached: Any
    """Whether an assumption is known to be breached, so that only the prior is played."""
