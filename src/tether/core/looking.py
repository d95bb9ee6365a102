"""What a guard answers without playing: its features, what a wish would lead to, and which actions are safe."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.core.actions import Actions, Answer
from tether.core.certificate import Action, Choice, Observation
from tether.core.decision import GuardMisuse
from tether.core.finite import FiniteActions
from tether.core.ops import NUMPY, Ops, coarsest, quietly
from tether.core.standing import Standing
from tether.core.turn import Turn


class Looking(Standing):
    """The part of `tether.Guard` that only looks."""

    prior: Any
    _actions: Actions
    _ops: Ops
    _epsilon: float
    _turn: Turn

    def features(self, observation: Observation) -> tuple[float, ...]:
        """The certificate's `features` of the coming round, named by its `feature_names`.

        Args:
            observation: What `act` will be given.

        Raises:
            GuardMisuse: The episode is over.
        """
        with self._turn.lock:
            self._require_round()
            try:
                with quietly(self._ops):
                    epsilon = max(self._epsilon, coarsest(observation))
                    opened = self.certificate.open(self._state, observation, self._ops, epsilon)
                    return tuple(float(each) for each in self.certificate.features(opened, self._ops))
            except Exception:  # `act` will report it; nothing is known here
                return (0.0,) * len(self.certificate.feature_names)

    def reach(self, observation: Observation, wish: Action) -> tuple[Action, Action]:
        """What would be played in the coming round if `wish` were proposed, without playing it.

        A policy that wants to stay inside the safe set asks this first: any action between the two that are returned
        is safe if the safe set is star-shaped around the prior's action (`act` checks it in any case).

        Args:
            observation: What `act` will be given.
            wish: An action.

        Returns:
            The prior's action, and the safe action nearest to the wish.

        Raises:
            GuardMisuse: The episode is over.
            PriorFailed: The prior raised or returned something that is not an action.
        """
        with self._turn:
            self._require_round()
            answer = self._actions.ask(self.prior, observation)
            prior = action = answer.required(self.round)
            if answer.complaint is None and not self._state.breached:
                with contextlib.suppress(Exception):  # `act` will report it and play the prior
                    usable = self._actions.usable(wish)
                    epsilon = self._round_off(observation, wish, usable, answer)
                    choice = self._choose(observation, usable, prior, epsilon)
                    action = prior if choice.breached else choice.action
            return self._actions.given(prior), self._actions.given(action)

    def mask(self, observation: Observation) -> NDArray[np.bool_]:
        """[n] which actions of a finite set are safe in the coming round; the prior's always is.

        What `act` plays is the proposal if it is one of these, else the nearest of them.

        Args:
            observation: What `act` will be given.

        Raises:
            TypeError: The certificate is not for a finite set of actions; see `tether.Switches`.
            GuardMisuse: The episode is over.
            PriorFailed: The prior raised or returned something that is not an action.
        """
        certificate: Any = self.certificate
        actions: FiniteActions | None = getattr(certificate, "actions", None)
        if actions is None:
            raise TypeError(
                f"there is a mask of a finite set of actions only: tether.Switches, got {certificate!r}"
            )
        with self._turn:
            self._require_round()
            answer = self._actions.ask(self.prior, observation)
            prior = answer.required(self.round)
            only: NDArray[np.bool_] = np.arange(actions.n) == actions.number_of(prior)
            if not self._state.breached:
                with (
                    contextlib.suppress(Exception),
                    quietly(NUMPY),
                ):  # `act` will report it and play the prior
                    ops = self._ops if isinstance(prior, float) else NUMPY
                    epsilon = self._round_off(observation, None, None, answer)
                    opened = certificate.open(self._state, observation, self._ops, epsilon)
                    only = np.asarray(certificate.mask(opened, prior, ops)) | only
            return only

    def _require_round(self) -> None:
        if self._state.rounds >= self.certificate.contract.horizon:
            raise GuardMisuse(f"the episode of {self.horizon} rounds is over; call reset() to begin another")

    def _round_off(self, observation: Observation, proposal: object, wish: Action, answer: Answer) -> float:
        """Relative round-off of what the guard was told in this episode, this round included."""
        epsilon, seen, said = self._epsilon, coarsest(observation), answer[1]
        epsilon = seen if seen > epsilon else epsilon
        epsilon = said if said > epsilon else epsilon
        if wish is None:  # nothing is finer than what was seen
            return epsilon
        asked = coarsest(proposal)
        return asked if asked > epsilon else epsilon

    def _choose(self, observation: Observation, wish: Action, prior: Action, epsilon: float) -> Choice:
        raise NotImplementedError
