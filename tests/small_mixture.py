"""Small instances of the exact algorithm, made once a process so that what is compiled for them is compiled once."""

from __future__ import annotations

from functools import cache

import numpy as np

import tether
from tether.exact import optimistic
from tether.exact.example import BacklogMixture
from tether.exact.grid import Problem, Resolution, prepare
from tether.exact.mixture import MixtureSystem

GRID = Resolution(states=9, actions=5, surplus=9, memory=4)
EXAMPLE = BacklogMixture(
    demand=(2.0, 1.5, 1.0), renewables=(0.0, 0.5, 5.0), kept=(0.2, 1.0), initial=(0.5, 1.5)
)
"""Three rounds, four transition functions, three kinds of hours, two initial states."""
LAM, B = 0.6, 0.4
THETA = np.array([0.8, 0.1, 0.1])
"""What nature draws with: hours in which the most optimistic model is wrong."""


@cache
def guarded(lam: float = LAM, b: float = B, rule: str = "tight") -> Problem:
    return prepare(EXAMPLE.system, EXAMPLE.certificate(lam, b, rule), GRID)


@cache
def unguarded() -> Problem:
    return prepare(EXAMPLE.system, None, GRID)


@cache
def surface() -> optimistic.Surface:
    return optimistic.make_surface(guarded(), points=30)


KAPPA = 3.0


@cache
def two_rounds() -> MixtureSystem:
    """A system that can be solved by hand.

    The prior plays 0 and costs 1 a round, the floor; an action a costs a more. In the first round it earns a, in the
    second KAPPA * x * a, where the state x is 0 or 1, whichever function nature draws; theta = (1 - q, q). Nothing is
    carried, so with E = lam + b the guard allows a_1 <= E and a_1 + a_2 <= 2 E. As long as 2 E is at most 2, the
    largest action,

        V_circ = max over a_1 in [0, E] of a_1 + KAPPA q (2 E - a_1) = max(E + KAPPA q E, 2 KAPPA q E)
        V*     = 2 + 2 KAPPA q
    """
    return MixtureSystem(
        horizon=2,
        states=(0.0, 2.0),
        actions=(0.0, 2.0),
        initial=0.0,
        transitions=(lambda at, x, a: 0.0 * x, lambda at, x, a: 1.0 + 0.0 * x),
        reward=lambda at, x, a: a * (at == 1) + KAPPA * x * a * (at == 2),
        cost=lambda at, x, a: 1.0 + a,
        prior=lambda at, x: 0.0 * x,
    )


def two_rounds_certificate(lam: float, b: float) -> tether.LipschitzCertificate:
    contract = tether.Contract(lam=lam, b=b, horizon=2, cost_floor=1.0)
    return tether.LipschitzCertificate(contract, tether.Sensitivity(1.0, 0.0, tether.geometric(0.5)))
