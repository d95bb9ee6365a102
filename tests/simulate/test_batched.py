"""A function that JAX cannot trace plays compiled episodes, asked once a round for all of them."""

from __future__ import annotations

import numpy as np
import pytest

import tether
from tether import BatchedPolicy

ENV = tether.envs.Carbon()


@pytest.mark.slow
def test_it_plays_what_a_traced_policy_plays_and_is_asked_once_a_round():
    asked = []

    def half(observations):
        asked.append(observations.shape)
        return 0.5 * observations[:, :1]  # an answer in brackets

    days = tether.data.synthetic_carbon(seed=0, n=7)
    run = tether.rollout(ENV, BatchedPolicy(half), days)
    traced = tether.rollout(ENV, lambda observation, key: 0.5 * observation[0], days)
    np.testing.assert_allclose(run.actions, traced.actions, rtol=1e-6)
    assert asked == [(7, 4)] * days.horizon


def test_online_it_is_asked_for_one():
    policy = BatchedPolicy(lambda observations: observations[:, :2], shape=(2,))
    assert policy(np.array([1.0, 2.0, 3.0])).tolist() == [1.0, 2.0]


def test_too_few_answers_are_refused():
    with pytest.raises(ValueError, match=r"1 observations must give 1 actions of shape \(\), got \(3,\)"):
        BatchedPolicy(lambda observations: observations[0])(np.zeros(3))
    with pytest.raises(TypeError, match="callable"):
        BatchedPolicy(3)
