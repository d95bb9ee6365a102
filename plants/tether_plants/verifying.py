"""`tether.verify` on original environments: every constant is searched for a counterexample there."""

from __future__ import annotations

from typing import Any

import tether
from tether.assure.verify import Search
from tether_plants.plant import Check

SEARCH = Search(samples=100, generations=12, population=8)
"""An original environment takes its time: some hundreds of rounds a claim."""


def verified(simulator: Any, constants: tether.Sensitivity, rounds: int = 2) -> list[Check]:
    """A check for each constant: the largest ratio that was found, and what is claimed.

    Args:
        simulator: The original environment, by `tether.assure.verify.gymnasium_simulator` or `functions`.
        constants: What the Lipschitz certificate rests on.
        rounds: How far gaps are followed.
    """
    steps = [f"p({n + 1})" for n in range(rounds)] + [f"carried ({n})" for n in range(rounds)]
    found = tether.verify(simulator, constants, claims=["immediate", *steps], rounds=rounds, search=SEARCH)
    return [
        Check(
            f"tether verify, {each.claim} (largest quotient found, and claimed)",
            each.evaluations,
            float(each.largest),
            (1.0 + 1e-9) * float(each.claimed or 0.0),
        )
        for each in found.findings
    ]
