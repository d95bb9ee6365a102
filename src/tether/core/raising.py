"""Contracts that are raised while a guard runs: what an episode promises, round by round.

Raising lam or b makes the promise of the rounds to come weaker, and everything that was checked stays true: with a
larger lam no excess c_i - (1 + lam_i) c+_i is larger, with a larger b more is allowed. So the action that was checked
last, and the backup after it, keep the raised promise as well. What was earned before stays what it was: the
certificate moves its account (`rebased`), so that the b of past rounds is counted as it was promised then.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tether.core import schedule, validate
from tether.core.certificate import Certificate
from tether.core.contract import Contract
from tether.core.decision import GuardMisuse
from tether.core.ops import NUMPY
from tether.core.standing import Standing
from tether.core.turn import Turn


class Raising(Standing):
    """The part of a guard that knows what each round of its episode promises."""

    _promised: list[tuple[int, Contract]]
    """From which round on which contract holds; the first from round 1."""
    _turn: Turn
    _taken: Any

    @property
    def contract(self) -> Contract:
        """What this episode promises: the certificate's contract, or a schedule if that was raised in this episode.

        Of an episode without a last round that was raised, the promise of the rounds that are closed.
        """
        if len(self._promised) == 1:
            return self.certificate.contract
        horizon = self.certificate.contract.horizon
        return spliced(self._promised, self.round - 1 if math.isinf(horizon) else horizon)

    def raise_contract(self, *, lam: Any = None, b: Any = None) -> None:
        """Promise less from the coming round on, in this episode and in those that follow: a larger `lam` or `b`.

        What was promised for the rounds before stays as it was; `contract` has both, and is what to audit with.

        Args:
            lam: The new `lam`, a number or a schedule, see `Contract.raised`; None to leave it.
            b: The new `b`, likewise.

        Raises:
            ValueError: One of them would be lower.
            GuardMisuse: A round is open: observe its cost first.
            TypeError: The certificate is one of your own that has no `rebased(state, contract)`.
        """
        with self._turn:
            if self._taken is not None:
                raise GuardMisuse(f"round {self.round} is open; call observe(cost), then raise the contract")
            raised = self.certificate.contract.raised(lam, b)
            certificate: Any = self.certificate
            if not hasattr(certificate, "rebased"):
                raise TypeError(f"{certificate!r} cannot be raised while it runs: it has no rebased")
            self.certificate = replace(certificate, contract=raised)
            self._state = certificate.rebased(self._state, raised)
            before = [(at, contract) for at, contract in self._promised if at < self.round]
            self._promised = [*before, (self.round, raised)]

    def _restore_promises(self, saved: Any) -> None:
        """Take over what `promises_to_json` gave: contracts that were only ever raised, from round 1 on.

        None if nothing was raised.
        """
        if saved is None:
            return
        pieces = [(validate.count("a contract's round", at), Contract.from_dict(each)) for at, each in saved]
        rounds = [at for at, _ in pieces]
        if rounds[:1] != [1] or rounds != sorted(rounds):
            raise ValueError(f"contracts must begin with rounds that rise from 1, got {rounds}")
        before = self.certificate.contract
        for _, after in pieces:
            if before.raised(after.lam, after.b) != after:
                raise ValueError(f"contracts can only be raised, got {after!r} after {before!r}")
            before = after
        self._promised = pieces
        self.certificate = replace(self.certificate, contract=before)  # type: ignore[type-var]


def promises_to_json(signed: Certificate, promised: list[tuple[int, Contract]]) -> dict[str, Any]:
    """`contracts`: from which round on which contract holds, fit for JSON; nothing if it is what was signed."""
    if promised == [(1, signed.contract)]:
        return {}
    return {"contracts": [[at, contract.to_dict()] for at, contract in promised]}


def spliced(promised: list[tuple[int, Contract]], horizon: int) -> Contract:
    """One contract of so many rounds, with a schedule, from contracts that hold from given rounds on.

    Args:
        promised: (first round, contract); the first from round 1.
        horizon: At least 1.
    """
    rates = {"lam": np.empty(horizon), "b": np.empty(horizon)}
    for at, contract in promised:
        rounds: Any = np.arange(at - 1, horizon)
        for name, values in rates.items():
            values[at - 1 :] = schedule.at(getattr(contract, name), rounds, NUMPY)
    return replace(contract, horizon=horizon, lam=rates["lam"].tolist(), b=rates["b"].tolist())
