"""An ordinary round of a guard in few steps.

Where all is single numbers and nothing is out of the ordinary, most of a round's time goes into calls rather than into
its arithmetic. Here such a round is decided and closed at one go. Whatever is not ordinary is left to `tether.Guard`,
which looks at all of it again and reports it; `tests/core/test_straight.py` compares both ways to the last digit.
"""

from __future__ import annotations

from collections import Counter
from math import isfinite
from typing import Any

import numpy as np
from numpy import ndarray

from tether.core.actions import Actions, Answer
from tether.core.actuator import Actuator
from tether.core.certificate import Action, Box, Certificate, Observation
from tether.core.decision import Decision, Reason
from tether.core.meter import Meter
from tether.core.ops import FLOAT64
from tether.core.overrides import Overrides
from tether.core.straight import Straight, new
from tether.core.watch import Watch

_FLOATS = (float, np.float64)
_FLOAT64 = np.dtype(float)


class Plainly:
    """The part of a `tether.Guard` that has short ways."""

    certificate: Certificate
    counts: Counter[Reason]
    _actions: Actions
    _actuator: Actuator
    _box: Box
    _decided: Any
    _epsilon: float
    _meter: Meter
    _overrides: Overrides
    _state: Any
    _straight: Straight
    _taken: Any
    _watch: Watch

    def _decide_plainly(
        self, observation: Observation, proposal: Any, prior: Action, answer: Answer
    ) -> Decision | None:
        """`_decide` where all is single numbers, in fewer steps; None where anything is out of the ordinary."""
        actions, certificate, state = self._actions, self.certificate, self._state
        if type(proposal) not in _FLOATS or actions.shape or not getattr(certificate, "straight", False):
            return None
        if state.breached or state.overridden or self._actuator.rounds:
            return None
        wish = float(proposal)
        if not isfinite(wish):
            return None
        epsilon = self._epsilon
        fine = type(observation) is ndarray and observation.dtype is _FLOAT64
        if not (fine and answer[1] <= epsilon >= FLOAT64):
            self._epsilon = epsilon = self._round_off(observation, None, None, answer)
        try:
            choice = self._straight.chosen(certificate, state, self._box, observation, wish, prior, epsilon)
        except Exception:  # `_decide` meets it again, and reports it
            return None
        action, deviation, radius, margin, backup, taken, breached, overridden, _ = choice
        if breached:
            return None
        reason = actions.reason(action, wish, False, overridden)
        decision: Decision = new(Decision, (
            int(state.rounds) + 1, action, prior, proposal, deviation, radius, margin, action != wish, reason,
            certificate.backup_names[int(backup)], None,
        ))  # fmt: skip
        self.counts[reason] += 1
        self._taken, self._decided = taken, action
        return decision

    def _close_plainly(self, cost: Any) -> bool:
        """Close a round of single numbers in fewer steps; whether that was possible, as nothing is out of the ordinary.

        Certificates that are `straight` make no use of what is seen next.
        """
        certificate, state, taken, epsilon = self.certificate, self._state, self._taken, self._epsilon
        plain = taken is not None and getattr(certificate, "straight", False) and type(cost) in _FLOATS
        if (
            not plain
            or state.breached
            or state.overridden
            or self._watch.monitor is not None
            or self._actuator.exact
            or self._overrides.kept
        ):
            return False
        cost = float(cost)
        if (
            epsilon < FLOAT64
            or not isinstance(self._decided, float)
            or self._meter.refused(cost, epsilon) is not None
        ):
            return False
        try:
            after = self._straight.updating(certificate, state, taken, epsilon)(state, taken, cost)
        except Exception:  # `_close_round` meets it again, and reports it
            return False
        if after.breached or after.rounds != state.rounds + 1.0:
            return False
        self._taken, self._state = None, after
        return True

    def _round_off(self, observation: Observation, proposal: object, wish: Action, answer: Answer) -> float:
        raise NotImplementedError
