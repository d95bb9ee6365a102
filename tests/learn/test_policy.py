from __future__ import annotations

import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether import NetworkPolicy, load_policy
from tether.simulate.trees import as_tree

BOXES = [
    (0.0, math.inf, 4.0),
    (0.0, 6.0, 2.5),
    (-math.inf, math.inf, -1.0),
    (0.0, 6.0, 0.0),
    ([0.0, -1.0], 8.0, [2.0, 3.0]),
]


def fresh(low=0.0, high=math.inf, center=4.0, seed=0, memory=0):
    return NetworkPolicy.fresh(
        [1.0, 2.0], [0.5, 2.0], low=low, high=high, center=center, width=8, seed=seed, memory=memory
    )  # fmt: skip


@pytest.mark.parametrize(("low", "high", "center"), BOXES)
def test_first_actions_are_near_the_center_and_always_in_the_box(low, high, center):
    policy = fresh(low, high, center)
    for observation in np.random.default_rng(0).normal(loc=[1.0, 2.0], size=(50, 2)):
        action = policy(observation)
        assert np.shape(action) == np.shape(center)
        assert np.all((action >= low) & (action <= high))
        assert np.all(np.abs(action - center) < 1.5)


@jax.jit
def played(policy, seen):
    """What a policy plays in a compiled program, which is one for all weights, as in a rollout."""
    return policy(seen)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), size=st.sampled_from([1.0, 30.0, 1e3]))
def test_numpy_and_jax_play_the_same_action(seed, size):
    policy = fresh(seed=seed, memory=3)
    seen = size * np.random.default_rng(seed).normal(size=5)
    with jax.enable_x64(True):
        compiled = played(as_tree(policy), jnp.asarray(seen))
    assert float(policy(seen)) == pytest.approx(float(compiled), rel=1e-9, abs=1e-12)


def test_the_output_cannot_die():
    policy = fresh()
    pushed = jax.tree.map(lambda leaf: leaf - 3.0, as_tree(policy))
    with jax.enable_x64(True):
        slope = jax.grad(lambda bias: _with_bias(pushed, bias)(jnp.zeros(2)))(jnp.zeros(1))
    assert abs(float(slope[0])) > 0.0


def _with_bias(policy, bias):
    import dataclasses

    return dataclasses.replace(policy, biases=(*policy.biases[:-1], bias))


@pytest.mark.parametrize(("low", "high", "center"), BOXES)
def test_a_saved_policy_plays_the_same(tmp_path, low, high, center):
    policy = fresh(low, high, center)
    policy.save(tmp_path / "policy.npz")
    again = load_policy(tmp_path / "policy.npz")
    for observation in np.random.default_rng(1).normal(size=(20, 2)):
        np.testing.assert_array_equal(policy(observation), again(observation))


def test_what_is_no_policy_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a policy saved by"):
        load_policy(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    (tmp_path / "text.npz").write_text("hello")
    for name in ("other", "text"):
        with pytest.raises(ValueError, match="is not a policy saved by"):
            load_policy(tmp_path / f"{name}.npz")


def test_a_loaded_policy_plays_in_the_online_guard_without_jax(tmp_path):
    NetworkPolicy.fresh(
        np.zeros(4), np.ones(4), low=0.0, high=math.inf, center=4.0, width=8, seed=0, memory=3
    ).save(tmp_path / "policy.npz")
    code = f"""
import sys, numpy as np, tether
from tether.envs import Carbon
env = Carbon()
policy = tether.load_policy({str(tmp_path / "policy.npz")!r})
certificate = tether.LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity)
guard = tether.Guard(certificate, env.prior, low=0.0)
observation = np.array([3.5, 2.0, 0.0, 0.0])
print(guard.act(observation, policy.propose(guard, observation)))
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("kind", ["lipschitz", "structured"])
def test_a_policy_inside_the_safe_set_is_never_moved_and_plays_alike_online_and_compiled(kind, tmp_path):
    env = tether.envs.Carbon()
    contract = env.contract(lam=1.0, b=1.0)
    certificate = {
        "lipschitz": tether.LipschitzCertificate(contract, env.sensitivity),
        "structured": tether.certificates.Structured(contract, env.structure),
    }[kind]
    NetworkPolicy.fresh(
        np.zeros(4), np.ones(4), low=0.0, high=math.inf, center=0.5, width=8, seed=0,
        memory=len(certificate.feature_names), inside=True,
    ).save(tmp_path / "policy.npz")  # fmt: skip
    policy = load_policy(tmp_path / "policy.npz")
    episodes = tether.data.synthetic_carbon(seed=0, n=3)
    run = tether.rollout(env, policy, episodes, certificate)
    np.testing.assert_allclose(run.actions, run.proposals, rtol=0.0, atol=1e-9)
    assert np.max(run.deviations) > 0.05
    assert tether.audit(run, tether.rollout(env, env.prior, episodes), contract).violation_rate == 0.0
    guard, state = tether.Guard(certificate, env.prior, low=0.0, resolution=0.0), env.initial()
    for h in range(24):
        drawn = {name: episodes[name][0, h] for name in env.series}
        observation = env.observe(state, drawn)
        decision = guard.act(observation, policy.propose(guard, observation))
        assert decision.action == pytest.approx(run.actions[0, h], abs=1e-9)
        state, _, cost = env.step(state, drawn, decision.action)
        guard.observe(cost)
    with pytest.raises(ValueError, match="play it with a certificate"):
        tether.rollout(env, policy, episodes)
    with pytest.raises(ValueError, match=r"use policy\.propose"):
        policy(np.zeros(4 + policy.memory))
