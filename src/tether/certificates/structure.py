"""What a structured certificate has to be told of a system: true bounds, and nothing else.

Two plants are compared: your own, which plays what the guard lets through, and the one that the prior would have had
from the start, on the same draws of luck. Their costs in round i are c_i and c+_i, and the round's *excess* is

    y_i = c_i - (1 + lam) c+_i.

A `Structure` carries *gaps*, whatever it needs to know of how far the two states may be apart, and gives bounds on sums
of excesses that hold whatever the draws are. They must be **true**. They need not be consistent from round to round,
sharp, monotone or convex: a bound that is worse in the next round costs freedom and never the promise
(`tether.certificates.structured` has the proof).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, NamedTuple

from tether.certificates.share import SEARCH
from tether.core.certificate import Action, Observation
from tether.core.ops import Flag, Number, Ops

Numbers = tuple[Number, ...]


class Round(NamedTuple):
    """A round as a structure sees it, before anything is played."""

    gaps: Numbers
    """What is known of the gaps, as `Structure.refine` gave it."""
    seen: Numbers
    """What was read of the observation."""
    prior: Action
    """The prior's action: a number, or a list of n numbers."""
    lam: Number
    """Of the contract; where that changes from round to round, the smallest of this and all later rounds."""
    cost_floor: Number
    """Of the contract (eps), cost units."""
    low: Number
    """Lower bounds of the actions that can be played, a number or [n]."""
    high: Number
    """Upper bounds of the actions that can be played, a number or [n]."""


class Bounds(NamedTuple):
    """What an action now, and a backup from the next round on, can lead to, whatever the draws are."""

    totals: Numbers
    """(T_0, ..., T_K), cost units: y_h + ... + y_{h+n} <= T_n, the last one for every n >= K. T_0 is this round's."""
    ceiling: Number
    """The largest cost that this round can have; one above it contradicts the structure."""
    step: Numbers
    """Numbers that `Structure.close` needs of this round."""

    @classmethod
    def from_differences(
        cls, differences: Sequence[Number], rest: Number, now: Round, ceiling: Number, step: Numbers
    ) -> Bounds:
        """Bounds from how much more than the prior each round can cost.

        Args:
            differences: (D_0, ..., D_K): c_{h+k} - c+_{h+k} <= D_k.
            rest: What the rounds after these can cost more than the prior, all together; at least 0.
            now: The round.
            ceiling: See `Bounds`.
            step: See `Bounds`.

        As c+ >= eps, y_{h+k} <= D_k - lam*eps.

        Example:
            >>> now = Round((), (), 0.0, lam=2.0, cost_floor=1.0, low=0.0, high=1.0)
            >>> Bounds.from_differences([3.0, 1.0], 0.5, now, ceiling=9.0, step=()).totals
            (1.0, 0.0, -1.5)
        """
        credit = now.lam * now.cost_floor
        totals = [differences[0] - credit]
        for difference in (*differences[1:], rest):
            totals.append(totals[-1] + difference - credit)
        return cls(tuple(totals), ceiling, step)


class Structure(ABC):
    """What is known of a system; an implementation is a frozen dataclass of plain numbers.

    To write: `start`, `read`, `gaps_between`, `bounds` and `close`, with the arithmetic of Python and of
    `tether.core.ops.Ops` only; the rest has defaults. `tether.verify(env, Structured(...))` searches for what is
    not true.
    """

    kind: ClassVar[str]
    """Its name in `to_dict`."""
    entries: ClassVar[int] = 0
    """How many numbers an action is; 0 if it is a number, not a vector."""
    scalar: ClassVar[bool] = True
    """Whether all gaps, and all that is read, are single numbers; if some are arrays, the online guard uses NumPy."""
    backups: ClassVar[tuple[str, ...]] = ()
    """Policies beside the prior that lead back to safety, by name; `bounds` and `backup` know them as 1, 2, ..."""
    recovery: ClassVar[str | None] = None
    """The backup under which no later round has a positive excess whatever is drawn, if there is one. An action can
    then be made up for iff the promise holds in its own round: `tether bench sets` knows the largest safe set."""
    gap_names: ClassVar[tuple[str, ...]] = ()
    """What each gap that `refine` gives is called, such as above and below; several may share a name."""
    sharp: ClassVar[tuple[str, ...]] = ("now", "later", "floor")
    """Of T_0 (`now`), the other T_n (`later`) and the floor those that decide something: a system in which only
    T_0 is ever looked at has no `later`."""

    straight: ClassVar[bool] = False
    """Whether whole rounds may be written down as straight lines (`tether.core.straight`): if all its methods are made
    of arithmetic and of `Ops`, and give the same for the same numbers. Each class says so for itself, as what a class
    that is derived from it does is not known."""
    turns: ClassVar[int] = SEARCH
    """Evaluations in the search for the largest safe share, at most; more where they are quick."""

    @property
    def loosenable(self) -> tuple[str, ...]:
        """The bounds that `tether attack --loosen` can make claim too much: `sharp`, and the gaps by name."""
        return (*self.sharp, *dict.fromkeys(self.gap_names))

    @property
    def low(self) -> Number:
        """Lowest action for which the bounds hold, a number or [n]."""
        return -math.inf

    @property
    def high(self) -> Number:
        """Highest action for which the bounds hold, a number or [n]."""
        return math.inf

    @property
    def scale(self) -> float:
        """A cost of the size that round-off in the system's own arithmetic is proportional to, cost units."""
        return 1.0

    @abstractmethod
    def start(self, zero: Number) -> Numbers:
        """The gaps before the first round, where both plants are in the same state."""

    @abstractmethod
    def read(self, observation: Observation) -> Numbers:
        """The numbers of an observation [o] that the bounds need."""

    @abstractmethod
    def gaps_between(self, seen: Numbers, prior_seen: Numbers, ops: Ops) -> Numbers:
        """The gaps, as `refine` gives them, if what the prior's plant shows were known too."""

    @abstractmethod
    def bounds(self, now: Round, action: Action, plan: int, ops: Ops) -> Bounds:
        """The bounds for `action` now and, from the next round on, backup number `plan`; 0 is the prior.

        For a vector, `action` and `now.prior` are lists of n numbers if `scalar`.
        """

    @abstractmethod
    def close(self, step: Numbers, cost: Number, epsilon: Number, ops: Ops) -> tuple[Number, Numbers]:
        """(floor, gaps of the next round) once the cost is seen: c+_h >= floor.

        `epsilon` is the relative round-off of cost and state; what is concluded from them must allow for it.
        """

    def told(
        self,
        step: Numbers,  # noqa: ARG002
        closed: tuple[Number, Numbers],
        cost: Number,  # noqa: ARG002
        reward: Number,  # noqa: ARG002
        first: Flag,  # noqa: ARG002
        epsilon: Number,  # noqa: ARG002
        ops: Ops,  # noqa: ARG002
    ) -> tuple[Number, Numbers]:
        """What `close` gave (`closed`), with what the round's reward tells beside its cost; nothing by default.

        Whoever relies on it says so in the structure: a promise then rests on rewards as it rests on costs.

        Args:
            step: As for `close`.
            closed: (floor, gaps of the next round).
            cost: As for `close`.
            reward: As the plant tells it; it may be no number.
            first: Whether the round is the first one.
            epsilon: Relative round-off of cost, reward and state.
            ops: What to compute with.
        """
        return closed

    def searching(self) -> AbstractContextManager[None]:
        """What `bounds` is called in while an action is searched for; that which is found is looked at again outside.

        There it may be less careful about round-off, but for a small part of (**)'s reserve.
        """
        return nullcontext()

    def unseen(self, step: Numbers, ops: Ops) -> Numbers:
        """The gaps of the next round if the cost is not known, where that has been derived: as `close` gives them."""
        raise NotImplementedError(
            f"{type(self).__name__} has no bounds for a round whose cost is missing; write its `unseen`"
        )

    def plans(self, low: Number, high: Number) -> tuple[int, ...]:  # noqa: ARG002
        """The backups worth looking at if actions are between `low` and `high`, by number; all of them."""
        return tuple(range(1 + len(self.backups)))

    def backup(self, plan: int, now: Round, ops: Ops) -> Action:
        """What backup number `plan` >= 1 plays now; the shape of `now.prior`."""
        raise NotImplementedError(f"{type(self).__name__} has no backup number {plan}")

    def admits(self, seen: Numbers, ops: Ops) -> Flag:
        """Whether what was read is within the ranges for which the bounds hold; finite numbers are by default."""
        possible = ops.isfinite(seen[0])
        for each in seen[1:]:
            possible = ops.logical_and(possible, ops.isfinite(each))
        return possible

    def agrees(self, seen: Numbers, prior: Action, epsilon: Number, ops: Ops) -> Flag:  # noqa: ARG002
        """Whether `prior` is, up to round-off, the action of the prior that the bounds are about; True if unknown."""
        return True

    def refine(self, gaps: Numbers, seen: Numbers, epsilon: Number, ops: Ops) -> Numbers:  # noqa: ARG002
        """The gaps that `start` or `close` left, with what seeing the state adds; `epsilon`: its round-off."""
        return gaps

    def gap_features(self, gaps: Numbers, ops: Ops) -> tuple[Number, Number]:  # noqa: ARG002
        """The gaps as two numbers that a learner can use, such as own state above and below the prior's."""
        return gaps[0], gaps[-1]

    def gaps_from_features(self, above: Number, below: Number) -> Numbers:
        """The gaps whose features are these, if they can be told from them; `PlanningPolicy` needs it."""
        raise NotImplementedError(
            f"the gaps of {type(self).__name__} cannot be told from {above!r}, {below!r}"
        )
