"""Costs that come late or never: compiled episodes decide as the online guard does."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import tether
from tether.simulate.eager import eager
from tether.simulate.late import STREAM

pytestmark = pytest.mark.slow


class Slow:
    """A guard whose meter is late; `comes[h]` is whether the cost of round h, counted from 0, ever comes."""

    def __init__(self, guard, delay, comes):
        self.guard, self.delay, self.comes, self.costs = guard, delay, comes, []

    def reset(self):
        self.guard.reset()

    def act(self, observation, proposal):
        return self.guard.act(observation, proposal)

    def observe(self, cost, revealed=None):
        self.costs.append(cost)
        h = len(self.costs) - 1
        self.guard.observe(cost if self.delay == 0 and self.comes[h] else None)
        due = h - self.delay
        if self.delay and due >= 0 and self.comes[due]:
            self.guard.report(due + 1, self.costs[due])


@pytest.mark.parametrize(
    ("kind", "delay", "missing"), [("lipschitz", 2, 0.3), ("lipschitz", 0, 0.4), ("structured", 2, 0.3)]
)
def test_a_late_rollout_decides_as_the_online_guard_does(kind, delay, missing):
    env, horizon = tether.envs.Carbon(), 8
    contract = env.contract(2.0, 1.0, horizon)
    made = {
        "lipschitz": lambda: tether.LipschitzCertificate(contract, env.sensitivity),
        "structured": lambda: tether.Structured(contract, env.structure),
    }[kind]()
    episodes = tether.data.Episodes(
        {name: tether.data.synthetic_carbon(seed=0, n=3)[name][:, :horizon] for name in env.drawn_names}
    )
    run = tether.rollout(env, lambda seen, key: 0.0, episodes, made, seed=7, delay=delay, missing=missing)
    keys = jax.random.split(jax.random.key(np.uint32(7)), 3)
    for i in range(3):
        with jax.enable_x64(True):
            rounds = [jax.random.fold_in(jax.random.fold_in(keys[i], h), STREAM) for h in range(horizon)]
            comes = [not bool(jax.random.bernoulli(key, missing)) for key in rounds]
        guard = tether.Guard(made, env.prior, low=0.0, resolution=0.0)
        turns = list(eager(env, episodes[i : i + 1], lambda seen: 0.0, Slow(guard, delay, comes)))
        np.testing.assert_allclose([turn.action for turn in turns], run.actions[i], rtol=1e-4)


def test_what_cannot_be_late_is_refused():
    env = tether.envs.Carbon()
    episodes = tether.data.synthetic_carbon(seed=0, n=1)
    certificate = tether.LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity)
    for options, said in (
        ({"delay": -1}, "delay must be at least 0, got -1"),
        ({"missing": 1.1}, "missing is a share of the rounds, at most 1, got 1.1"),
        ({"certificate": None, "delay": 1}, "need a certificate that can wait for costs; got NoneType"),
    ):
        given = {"certificate": certificate, **options}
        with pytest.raises(ValueError, match=said):
            tether.rollout(env, env.prior, episodes, given.pop("certificate"), **given)
