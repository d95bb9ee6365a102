"""Rollouts in parts are rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np
import pytest

import tether


@dataclass(frozen=True)
class InParts(tether.LipschitzCertificate):
    """A certificate of which few episodes are played at a time."""

    lanes: ClassVar[int] = 4


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "count"), [("float64", 10), ("float64", 4), ("float32", 9)])
def test_parts_of_a_rollout_give_the_same_numbers_as_the_whole(precision, count):
    env = tether.envs.Carbon()
    episodes = tether.data.synthetic_carbon(seed=0, n=count)
    contract = env.contract(lam=1.0, b=1.0)

    def noisy(observation, key):
        return 0.5 * env.prior(observation) + jax.random.uniform(key, dtype=observation.dtype)

    whole, parts = (
        tether.rollout(env, noisy, episodes, kind(contract, env.sensitivity), seed=3, precision=precision)
        for kind in (tether.LipschitzCertificate, InParts)
    )
    for name in ("actions", "rewards", "costs", "observations", "margins"):
        one, other = getattr(whole, name), getattr(parts, name)
        assert one.dtype == other.dtype == np.dtype(precision)
        np.testing.assert_array_equal(one, other)
    assert len({tuple(row) for row in parts.proposals.tolist()}) == count  # every episode has keys of its own
