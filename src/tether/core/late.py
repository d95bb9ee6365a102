"""Rounds that wait for their cost: what closing them later needs, for so many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tether.core import convert, validate
from tether.core.ops import FLOATS, Ops, quietly

MOST = 1000
"""How many rounds wait for their cost, unless a guard is told otherwise or the horizon is shorter."""


class Pending:
    """The rounds of an episode whose costs are not known yet, with what `Certificate.settle` needs of each.

    If there are more than `most`, the oldest is given up: it stays counted as what it could have been at worst.

    Args:
        most: How many are kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.reset()

    def __iter__(self) -> Any:
        return iter(self._owed)

    def reset(self) -> None:
        """Begin an episode."""
        self._owed: dict[int, Any] = {}
        self._given_up = 0

    def add(self, round_now: int, owed: Any) -> None:
        """The cost of a round did not come."""
        self._owed[round_now] = owed
        if len(self._owed) > self.most:
            self._given_up = next(iter(self._owed))
            del self._owed[self._given_up]

    def take(self, round_late: object, round_now: int) -> tuple[int, Any]:
        """(the round, what it owes), which is no longer pending.

        Raises:
            ValueError: It does not wait for a cost.
        """
        late = validate.count("round", round_late)
        if late >= round_now:
            raise ValueError(f"round {late} is not closed yet; give its cost, or None, to observe")
        if late not in self._owed:
            lost = f" or was given up, as more than {self.most} waited," if late <= self._given_up else ""
            waiting = ", ".join(map(str, self._owed)) or "none"
            raise ValueError(
                f"round {late} has its cost already{lost} and waits for none; waiting: {waiting}"
            )
        return late, self._owed.pop(late)

    def to_json(self) -> dict[str, Any]:
        """Plain values fit for JSON."""
        owed = [[late, convert.plain_lists(each)] for late, each in self._owed.items()]
        return {"most": self.most, "given_up": self._given_up, "owed": owed}

    def restore(self, saved: dict[str, Any], restored: Any, round_now: int) -> None:
        """What `to_json` gave, checked; `restored` makes what a certificate is owed of plain lists."""
        self._given_up = validate.count("given_up", saved["given_up"], minimum=0)
        last = self._given_up
        for late, owed in saved["owed"]:
            if not last < validate.count("a pending round", late) < round_now:
                raise ValueError(
                    f"pending rounds must rise, up to {round_now - 1}, got {late!r} after {last}"
                )
            self._owed[late], last = restored(owed), late
        if len(self._owed) > self.most:
            raise ValueError(f"at most {self.most} rounds are pending, got {len(self._owed)}")


def advanced(
    before: Any, more: float, ops: Ops, step: Callable[..., Any], *given: Any
) -> tuple[Any, str | None, Any]:
    """(the state that step(before, *given) is, with `more` rounds closed; what is wrong with it, if anything).

    The third is what `step` gave, if that is a breach; None if not.

    Raises:
        ValueError: The certificate cannot do this at all.
    """
    rounds = before.rounds + more
    complaint = broken = None
    if not before.breached:
        try:
            if ops is FLOATS:  # without a context, which costs as much as a few sums
                updated = step(before, *given)
            else:
                with quietly(ops):
                    updated = step(before, *given)
            if float(updated.rounds) != rounds:
                raise ValueError(f"after {before.rounds:g} rounds it counted {updated.rounds!r}")
            if not updated.breached:
                return updated, None, None
            complaint, broken = "more than the certificate knows to be possible or can compute with", updated
        except NotImplementedError as error:
            raise ValueError(f"{error}; the round stays open") from error
        except Exception as error:
            complaint = f"and the certificate raised {convert.text(error)}"
    # What is left of the state if nothing more can be said of it: finite numbers, and the count.
    return before._replace(rounds=rounds), complaint, broken
