"""Attacks on plants as they are: costs that come late or never, actuators that are off or play certain levels only."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tether.certificates import Certificate, LipschitzCertificate
from tether.core.contract import Contract
from tether.core.ops import namespace
from tether.core.projection import length
from tether.systems.base import Env, Step

ACTUATOR = "actuator"
"""The series of what the actuator does, from -1 to 1 of its tolerance for each entry of the action."""
SPENT = 0.4
"""The part of what a round earns that a declared actuator may cost."""


@dataclass(frozen=True)
class Scenario:
    """What is special about how a plant is attacked."""

    title: str
    delay: int = 0
    """Of `tether.rollout`."""
    missing: float = 0.0
    """Of `tether.rollout`."""
    tolerance: float = 0.0
    """Share of what the contract can pay for by which an actuator is off."""
    quantum: float = 0.0
    """The same for half of the step between the actions that it can play."""

    @property
    def actuated(self) -> bool:
        """Whether it is about the actuator, of which only `LipschitzCertificate` can take account."""
        return self.tolerance + self.quantum > 0.0


SCENARIOS = {
    "late": Scenario("costs 3 rounds late", delay=3),
    "missing": Scenario("30 % of the costs missing", missing=0.3),
    "both": Scenario("costs a round late, 10 % missing", delay=1, missing=0.1),
    "tolerance": Scenario("an actuator that is off", tolerance=1.0),
    "quantised": Scenario("an actuator with levels", quantum=1.0),
}
"""By name; each is asked of every system."""


def plant(env: Env, scenario: Scenario, contract: Contract) -> Env:
    """The scripted plant with the scenario's actuator, of a size that the contract can pay for; else as it is."""
    if not scenario.actuated:
        return env
    off = SPENT * contract.earned / _gamma(env, contract)
    each = off / float(length(np.ones(env.action_shape), env.norm))
    return sloppy(env, scenario.tolerance * each, 2.0 * scenario.quantum * each)


def affordable(env: Env, contract: Contract, off: float) -> Contract:
    """The contract with a b that pays for an actuator that is `off` by so much: its own, if that is enough."""
    least = _gamma(env, contract) * off / SPENT
    if least <= contract.earned:
        return contract
    b = contract.b + least - contract.earned
    digits = 1 - math.floor(math.log10(b))
    return dataclasses.replace(contract, b=math.ceil(b * 10.0**digits) / 10.0**digits)


def _gamma(env: Env, contract: Contract) -> float:
    """All that a unit deviation can cost."""
    certificate = LipschitzCertificate(contract, env.sensitivity)
    return float(certificate.total(certificate.start()))


def tolerating(certificate: Certificate, off: float) -> Certificate:
    """The certificate that knows by how much an actuator is off, if it is."""
    return certificate.tolerating(off) if off > 0.0 else certificate  # type: ignore[attr-defined]


@cache
def sloppy(env: Env, tolerance: float, quantum: float) -> Env:
    """The scripted plant whose actuator rounds to multiples of `quantum` and is off by up to `tolerance`.

    Its attribute `decided` is the plant that plays what is decided, which the promise compares with (see
    `tether.assure.coarse`); `off` is by how much an action can be off, in the plant's norm.
    """
    kind: Any = type(env)
    decided: Env = dataclasses.replace(env, context=(ACTUATOR, *env.context))

    class Sloppy(kind):  # type: ignore[misc]
        """See `sloppy`."""

        off = float(length(np.full(env.action_shape, tolerance + 0.5 * quantum), env.norm))

        def step(self, state: Any, drawn: Any, played: Any) -> Step:
            """With what the actuator makes of the action."""
            xp = namespace(played)
            if quantum > 0.0:
                played = xp.clip(xp.round(played / quantum) * quantum, self.low, self.high)
            moved = played + tolerance * xp.reshape(drawn[ACTUATOR], self.action_shape)
            after: Step = super().step(state, drawn, xp.clip(moved, self.low, self.high))
            return after

    Sloppy.decided = decided
    made: Env = Sloppy(**{each.name: getattr(decided, each.name) for each in dataclasses.fields(kind)})
    return made
