"""Actions as a structure computes with them: which there are, and how far it is from one to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from tether.certificates.structure import Structure
from tether.core.certificate import Action, Box
from tether.core.ops import FLOATS, NUMPY, Flag, Number, Ops
from tether.core.projection import length


class Ways:
    """The part of a `tether.certificates.Structured` that looks at actions."""

    system: Structure

    def _single(self, ops: Ops) -> Ops:
        """What the structure computes with: a share and a cost are single numbers, whatever an action is."""
        if not self.system.scalar:
            return NUMPY if ops is FLOATS else ops
        return FLOATS if self.system.entries and ops is NUMPY else ops

    def _inside(self, action: Action, box: Box, ops: Ops) -> Action:
        """The nearest action that there is, and for which the bounds hold."""
        low, high = self._ends(action)
        action = ops.minimum(ops.maximum(action, box.low), box.high)
        return ops.minimum(ops.maximum(action, low), high)

    def _ends(self, action: Action) -> tuple[Any, Any]:  # noqa: ARG002
        """Of the actions for which the bounds hold, as numbers that can be compared with an action."""
        return self.system.low, self.system.high

    def _covers(self, action: Action, ops: Ops) -> Flag:
        """Whether the bounds hold for an action, as `_entries` gives it."""
        low, high = self._ends(action)
        if isinstance(action, list):
            covered = True
            ends = (np.broadcast_to(end, (len(action),)) for end in (low, high))
            for each, least, most in zip(action, *ends, strict=True):
                covered = ops.logical_and(covered, ops.logical_and(each >= least, each <= most))
            return covered
        inside = ops.logical_and(action >= low, action <= high)
        return ops.all(inside) if self.system.entries > 0 else inside

    def _entries(self, action: Action, ops: Ops) -> Action:
        """A vector as a list of single numbers, if that is how the system is described.

        A compiler then sees numbers only, and does not work out a vector again for each of its entries.
        """
        if not self.system.scalar or self.system.entries == 0:
            return action
        if ops.cases:
            return list(np.moveaxis(action, -1, 0))
        return action.tolist() if isinstance(action, np.ndarray) else list(action)

    def _farthest(self, start: Action, wish: Action, ops: Ops) -> Number:
        """The share of the way to the wish beyond which nothing is searched: 10^4 times the start's size."""
        if isinstance(start, list):
            way = ops.largest([abs(there - here) for here, there in zip(start, wish, strict=True)])
            size = ops.largest([abs(here) for here in start])
        else:
            vector = self.system.entries > 0
            way, size = (length(each, "linf", ops) if vector else abs(each) for each in (wish - start, start))
        farthest = 1e4 * (1.0 + size)
        far = way > farthest
        return ops.where(far, farthest / ops.where(far, way, 1.0), 1.0)
