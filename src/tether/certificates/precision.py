"""How finely the compiler looks."""

from __future__ import annotations

from dataclasses import dataclass

from tether.core import validate


@dataclass(frozen=True)
class Precision:
    """How finely the compiler looks; more costs time and gives freedom, never soundness."""

    cells: int = 4
    """Pieces into which the range of draws is cut in the round at hand, about."""
    later_cells: int = 1
    """The same in later rounds."""
    rounds: int | None = None
    """K, later rounds that are looked at one by one, if a tail is known; None for what the compiler finds worth it."""

    def __post_init__(self) -> None:
        for name in ("cells", "later_cells"):
            validate.count(name, getattr(self, name))
        if self.rounds is not None:
            validate.count("rounds", self.rounds, minimum=0)
