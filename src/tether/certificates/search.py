"""The search of a structured certificate: how far on the way to the proposal (**) holds.

Notation as in `tether.certificates.structured`. On plain floats nothing is worked out that is not asked for, and
nothing twice: the proposal first, and only if it is not safe where the search begins, and the way in between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from tether.certificates.account import Opened, Taken
from tether.certificates.share import either, largest_share, least_excess, on_the_way
from tether.certificates.structure import Bounds, Round, Structure
from tether.core.certificate import Action, Box
from tether.core.contract import Contract
from tether.core.ops import FLOATS, Flag, Number, Ops
from tether.core.straight import Written, evaluating, writing

Played = TypeVar("Played")


class Search:
    """The part of a `tether.certificates.Structured` that searches."""

    contract: Contract
    system: Structure

    @cached_property
    def _said_straight(self) -> bool:
        """Whether it may be written down as straight lines: if the structure says so, for itself."""
        system = type(self.system)
        said = system.scalar and vars(system).get("straight", False)
        return self._itself and not self.contract.scheduled and bool(said)

    def _settled(
        self,
        opened: Opened,
        now: Round,
        wish: Action,
        plans: tuple[int, ...],
        odd: tuple[Flag, Flag],
        ops: Ops,
    ) -> tuple[Action, Taken, Number]:
        """`_moved`; of vectors on floats as straight lines, where the structure says so and the round is ordinary."""
        ordinary = not (ops is FLOATS and any((*odd, opened.overridden)))
        if ops is FLOATS and isinstance(wish, list) and ordinary and self._said_straight:
            ends = tuple(np.asarray(end).tolist() for end in (now.low, now.high))
            key = "settled", opened.epsilon, plans, repr(ends)

            def write() -> Callable[..., Any]:
                def moved(told: Any, ops: Ops) -> Any:
                    opened, prior, wish = told
                    box = Box(now.low, now.high, "l2")
                    here = self._round(opened, list(prior), box, ops)
                    return self._moved(opened, here, list(wish), plans, (False, False), ops)

                return writing(moved, (opened, tuple(now.prior), tuple(wish)))

            written = self.written.of(key, write)
            found = None if written is None else written((opened, now.prior, wish))
            if found is not None:
                settled: tuple[Action, Taken, Number] = found
                return settled
        return self._moved(opened, now, wish, plans, odd, ops)

    def _searched(
        self,
        opened: Opened,
        now: Round,
        wish: Action,
        plans: tuple[int, ...],
        played: Callable[[Action, Number], Played],
        ops: Ops,
    ) -> Played:
        """played(where the search begins, how far towards the proposal (**) holds)."""
        if not ops.lazy:
            start, _ = self._start(opened, now, plans, ops)
            return played(start, self._share(opened, now, start, wish, plans, ops))
        least = self._evaluation(opened, now, plans, ops)
        at_wish = least(wish)

        def moved() -> Played:
            start, at_start = self._start(opened, now, plans, ops)
            if at_start is None:
                at_start = least(start)

            def excess(_: Any, share: Number) -> Number:
                return least(on_the_way(start, wish, share, ops))

            known, farthest = (at_start, at_wish), self._farthest(start, wish, ops)
            return played(start, largest_share(excess, (), farthest, ops, self.system.turns, known))

        return ops.branch(at_wish <= 0.0, lambda: played(wish, 1.0), moved)

    def _evaluation(
        self, opened: Opened, now: Round, plans: tuple[int, ...], ops: Ops
    ) -> Callable[[Action], Number]:
        """`_least` of any action, on floats as straight lines (`tether.core.straight`) where it can be written so."""
        unit, gaps, seen = self._unit_round_off(opened.epsilon), len(now.gaps), len(now.seen)

        def evaluated(numbers: Any, action: Any, ops: Ops) -> Number:
            slack, b, remaining, prior, lam, low, high = numbers[gaps + seen :]
            known = opened._replace(slack=slack, b=b, remaining=remaining)
            here = Round(numbers[:gaps], numbers[gaps : gaps + seen], prior, lam, now.cost_floor, low, high)
            return self._least(known, unit, here, action, plans, ops)

        if ops is FLOATS and isinstance(now.prior, float) and not self.contract.scheduled:
            numbers = (
                *now.gaps, *now.seen, opened.slack, opened.b, opened.remaining, now.prior, now.lam, now.low, now.high
            )  # fmt: skip
            written = self.written.of(
                (unit, plans, now.cost_floor), lambda: evaluating(evaluated, len(numbers))
            )
            if written is not None:
                return partial(written, numbers)
        return lambda action: self._least(opened, unit, now, action, plans, ops)

    @cached_property
    def written(self) -> Written:
        """What was written down of it, see `tether.core.straight`."""
        return Written()

    def _share(
        self,
        opened: Opened,
        now: Round,
        start: Action,
        wish: Action,
        plans: tuple[int, ...],
        ops: Ops,
    ) -> Number:
        """How far towards the proposal (**) holds."""
        unit = self._unit_round_off(opened.epsilon)  # a plain number

        def excess(inputs: tuple[Opened, Round, Any, Any], share: Number) -> Number:
            traced, now, start, wish = inputs
            return self._least(traced, unit, now, on_the_way(start, wish, share, ops), plans, ops)

        inputs = (opened, now, start, wish)
        farthest = self._farthest(start, wish, ops)
        return largest_share(excess, inputs, farthest, ops, self.system.turns)

    def _least(
        self, opened: Opened, unit: float, now: Round, action: Action, plans: tuple[int, ...], ops: Ops
    ) -> Number:
        """The excess over (**) of an action with the best of the backups, in a search; `unit` as in `_excess`."""
        with self.system.searching():
            bounds = self._all(now, action, plans, ops)
        return least_excess([self._excess(opened, each, ops, unit) for each in bounds], ops)

    def _start(
        self, opened: Opened, now: Round, plans: tuple[int, ...], ops: Ops
    ) -> tuple[Action, Number | None]:
        """Where the search begins: the prior's action if it is safe, else the carried backup's.

        Where it is `lazy`, also its excess over (**); None if that was not worked out.
        """
        if not self.system.backups:
            return now.prior, None
        bounds = self._all(now, now.prior, plans, ops)
        unit = self._unit_round_off(opened.epsilon)
        excess = least_excess([self._excess(opened, each, ops, unit) for each in bounds], ops)
        if not ops.lazy:
            return either(excess <= 0.0, now.prior, self._carried(opened, now, ops), ops), None

        def carried() -> tuple[Action, Number]:
            start = self._carried(opened, now, ops)
            return start, self._evaluation(opened, now, plans, ops)(start)

        return ops.branch(excess <= 0.0, lambda: (now.prior, excess), carried)

    @property
    def _itself(self) -> bool:
        raise NotImplementedError

    def _moved(
        self,
        opened: Opened,
        now: Round,
        wish: Action,
        plans: tuple[int, ...],
        odd: tuple[Flag, Flag],
        ops: Ops,
    ) -> tuple[Action, Taken, Number]:
        raise NotImplementedError

    def _round(self, opened: Opened, prior: Action, box: Box, ops: Ops) -> Round:
        raise NotImplementedError

    def _unit_round_off(self, epsilon: float) -> float:
        raise NotImplementedError

    def _farthest(self, start: Action, wish: Action, ops: Ops) -> Number:
        raise NotImplementedError

    def _all(self, now: Round, action: Action, plans: tuple[int, ...], ops: Ops) -> list[Bounds]:
        raise NotImplementedError

    def _excess(self, opened: Opened, bounds: Bounds, ops: Ops, unit: float, part: float = 1.0) -> Number:
        raise NotImplementedError

    def _carried(self, opened: Opened, now: Round, ops: Ops) -> Action:
        raise NotImplementedError
