"""What others decided: the rounds of an episode in which the plant played something else than the guard said."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tether.core import convert, validate
from tether.core.actions import Actions
from tether.core.certificate import Action
from tether.core.decision import Override

KEPT = 1000
"""How many overrides are kept, the last ones."""
UNSAID = "not said"


def require_reason(override: object, applied: object) -> None:
    """Refuse a reason that is no text, or without what was applied."""
    if override is not None and (not isinstance(override, str) or applied is None):
        raise ValueError(
            "override says who decided otherwise and why, and needs what was applied; got "
            f"{convert.text(override)} with applied={convert.text(applied)}; the round stays open"
        )


def applied_action(
    actions: Actions, applied: object, decided: Action, epsilon: float
) -> tuple[Action, str | None]:
    """(what was applied inside the bounds, or None if that was decided; what is wrong with it, if it was outside).

    Round-off of an action on its way to the plant is a share `epsilon` of it, and is in the certificate's reserve.

    Raises:
        ValueError: It is no action.
    """
    action = actions.usable(applied)
    if action is None:
        raise ValueError(
            f"applied must be a finite action of shape {actions.shape}, got {convert.text(applied)}; the round stays "
            "open"
        )
    if actions.near(action, decided, epsilon):
        return None, None
    nearest = np.clip(action, actions.low, actions.high)
    nearest = float(nearest) if isinstance(action, float) else nearest
    complaint = None
    if not actions.near(action, nearest, epsilon):
        complaint = f"{convert.text(applied)} was applied, outside the bounds {actions.low} to {actions.high}"
    return nearest, complaint


class Overrides:
    """The overrides of an episode.

    Attributes:
        kept: At most the last `KEPT` of them.
    """

    def __init__(self) -> None:
        self.kept: deque[Override] = deque(maxlen=KEPT)

    def __iter__(self) -> Any:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)

    def reset(self) -> None:
        """Begin an episode."""
        self.kept.clear()

    def close(self, round_now: int, why: str | None, applied: Any, overridden: bool) -> None:
        """A round is over: what was applied in it if something was, and if the promise is not the guard's after it."""
        if not overridden:
            for i, each in enumerate(self.kept):
                if each.until is None:
                    self.kept[i] = replace(each, until=round_now)
        if applied is not None:
            plain = convert.from_json(convert.plain_numbers(applied))
            until = None if overridden else round_now
            self.kept.append(Override(round_now, why or UNSAID, plain, not overridden, until))

    def rounds(self, closed: int) -> tuple[int, ...]:
        """Of the first `closed` rounds those in which the promise is the operator's, counted from 1."""
        found: set[int] = set()
        for each in self.kept:
            found.update(range(each.round, closed + 1 if each.until is None else each.until))
        return tuple(sorted(found))

    def to_json(self) -> list[Any]:
        """Plain values fit for JSON."""
        return [convert.to_json(asdict(each)) for each in self.kept]

    def restore(self, saved: Any, overridden: bool, round_now: int) -> None:
        """What `to_json` gave, checked: one is open if and only if the state is overridden."""
        self.kept = deque((Override(**convert.from_json(each)) for each in saved), maxlen=KEPT)
        for each in self.kept:
            validate.count("an override's round", each.round)
            latest = round_now if each.until is None else validate.count("until", each.until)
            if not each.round <= latest <= round_now:
                raise ValueError(f"an override must lie before round {round_now}, got {each!r}")
        if overridden != any(each.until is None for each in self.kept):
            raise ValueError("overrides must have an open one if and only if the state is overridden")
