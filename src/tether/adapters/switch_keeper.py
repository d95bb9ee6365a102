"""One guard at one Gymnasium environment whose actions are switches: `Discrete` and `MultiDiscrete` spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from tether.adapters.keeper import Array, Keeper, Prior
from tether.certificates import Certificate
from tether.core import convert
from tether.core.finite import FiniteActions, product_inside
from tether.core.guard import Decision, Guard
from tether.core.monitor import Monitor
from tether.core.projection import Norm


class SwitchKeeper(Keeper):
    """See `tether.adapters.keeper.Keeper`; the prior and the learner name actions as the space does."""

    def __init__(
        self, space: Any, certificate: Any, prior: Prior, monitor: Monitor | None, resolution: float
    ) -> None:
        actions: FiniteActions = certificate.actions
        sizes = (
            (int(space.n),) if isinstance(space, spaces.Discrete) else tuple(np.ravel(space.nvec).tolist())
        )
        if sizes != ((actions.n,) if actions.steps is None else actions.steps):
            raise ValueError(
                f"the certificate is for {actions.n} actions, of switches with {actions.steps} steps, "
                f"the action space is {space}"
            )
        if not callable(prior):
            raise TypeError(f"prior must be callable as prior(observation) -> action, got {prior!r}")
        self._space, self._prior, self._set = space, prior, actions
        self._first = np.asarray(getattr(space, "start", 0))
        self.guard = Guard(certificate, self._ask_prior, monitor=monitor, resolution=resolution)
        self.reset()

    def masks(self, observation: Any) -> Array:
        """[n] the safe actions; of several switches [n_1 + ... + n_d], see `Guarded.action_masks`."""
        mask = self.guard.mask(observation)
        if self._set.steps is None:
            return mask
        first = np.ravel(self._ask_prior(observation)).astype(int)
        return np.concatenate(product_inside(mask.reshape(self._set.steps), first.tolist()))

    def harmless(self, proposals: Array) -> Array:
        """The first action of each, for what does not play."""
        return np.broadcast_to(self._first, proposals.shape).astype(self._space.dtype)

    def _ask_prior(self, observation: Any) -> Any:
        return self._flat(self._prior(observation))

    def _flat(self, proposal: Any) -> Any:
        """The proposal, counted from 0; what is none as None, which the guard counts as invalid."""
        try:
            array = convert.as_array(proposal)
        except Exception:  # whatever a stranger's object does when it is asked for numbers
            return None
        if array.size != self._first.size:
            return array
        steps = array.ravel() - self._first.ravel()
        return steps if self._set.steps is not None else float(steps[0])

    def _playable(self, decision: Decision) -> Any:
        return self._shaped(decision.action)

    def _shaped(self, action: Any) -> Any:
        named = np.asarray(action) + self._first
        return named.astype(self._space.dtype).reshape(self._space.shape)[()]


def keeper_of(
    space: Any,
    certificate: Certificate,
    prior: Prior,
    norm: Norm,
    monitor: Monitor | None,
    resolution: float,
) -> Keeper:
    """The keeper for an action space."""
    switched = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    if switched != hasattr(certificate, "actions"):
        raise TypeError(
            "a Discrete or MultiDiscrete action space needs a certificate for a finite set of actions, "
            "tether.Switches(certificate, tether.FiniteActions(values)), and only these; "
            f"the action space is {space}, the certificate {certificate!r}"
        )
    if switched:
        return SwitchKeeper(space, certificate, prior, monitor, resolution)
    return Keeper(space, certificate, prior, norm, monitor, resolution)
