"""A learner that trains through a structured certificate follows what it earns, at lam = 0 as well."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from tether.simulate import rollout
from tether.simulate.rollout import play
from tether.simulate.trees import as_tree
from tether.systems.certified import certificate_of

HORIZON = 6


@pytest.mark.parametrize("kind", ["structured", "identified"])
def test_the_gradient_through_the_guard_is_what_differences_say(kind, monkeypatch):
    # Apart from what a proposal beyond the edge is told beside its derivative.
    monkeypatch.setattr(rollout, "_reached", lambda action, _: action)
    env = tether.envs.Carbon()
    episodes = tether.data.synthetic_carbon(seed=0, n=12, horizon=HORIZON)
    with jax.enable_x64(True):
        drawn = {name: jnp.asarray(np.swapaxes(episodes[name], 0, 1)) for name in env.drawn_names}

        @jax.jit
        def earned(weights, certificate):
            def policy(seen, key):
                return jnp.maximum(jnp.dot(weights, seen[:4]), 0.1)

            played = play(env, policy, drawn, certificate, jnp.uint32(0), "outcomes")
            return jnp.mean(jnp.sum(played["rewards"], axis=0))

        slope_of = jax.jit(jax.grad(earned))
        # Mostly more is left undone than is safe, so that the guard moves what is proposed.
        weights, step = jnp.asarray([0.7, 0.1, 0.1, 0.5]), 1e-4
        for lam, b in ((0.0, 2.0), (0.0, 0.5), (2.0, 2.0)):
            certificate = jax.tree.map(
                lambda leaf: jnp.asarray(leaf, float),
                as_tree(certificate_of(kind, env, env.contract(lam, b, HORIZON))),
            )
            slope = np.asarray(slope_of(weights, certificate))
            ends = [
                [float(earned(weights + sign * step * each, certificate)) for sign in (1.0, -1.0)]
                for each in np.eye(4)
            ]
            moved = np.array([(high - low) / (2.0 * step) for high, low in ends])
            assert np.abs(moved).max() > 1.0
            assert slope == pytest.approx(moved, rel=0.01, abs=0.01 * np.abs(moved).max())
