"""The PyTorch yardstick computes what the library computes."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tether
from tether.bench.torch_yardstick import guarded_rollout, torch_updates
from tether.core.ops import NUMPY

SERIES = ("demand", "renewables", "efficiency_noise", "drop_rate")
LAM, B = 2.0, 2.0


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Two threads on busy cores wait for each other, at times for a second an update."""
    try:
        import torch
    except ModuleNotFoundError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def episodes():
    return tether.data.synthetic_carbon(seed=0, n=50)


def differences(episodes, rule):
    """Largest difference of what was played and of what the policy saw, and how often the guard intervened."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; it is in the extra [sb3]")
    env = tether.envs.Carbon()
    certificate = tether.LipschitzCertificate(env.contract(LAM, B), env.sensitivity, rule)
    ours = tether.rollout(env, lambda observation, key: observation[1] + 1.0, episodes, certificate)
    series = torch.tensor(np.stack([episodes[name] for name in SERIES]))
    seen = []

    def policy(inputs):
        seen.append(inputs)
        return inputs[:, 1] + 1.0

    actions, rewards, costs = guarded_rollout(policy, series, LAM, B, rule)
    inputs = torch.stack(seen, dim=1)
    sensitivity = env.sensitivity
    later = np.arange(episodes.horizon)[::-1]
    total = sensitivity.immediate + sensitivity.carried * sensitivity.perturbation.sum_over(later, NUMPY)
    memory = np.zeros_like(ours.deviations)
    for h in range(1, episodes.horizon):
        memory[:, h] = sensitivity.perturbation.remember(memory[:, h - 1], ours.deviations[:, h - 1], NUMPY)
    pairs = {
        "actions": (ours.actions, actions),
        "rewards": (ours.rewards, rewards),
        "costs": (ours.costs, costs),
        "observations": (ours.observations, inputs[..., :4]),
        "allowances": (ours.radii * total, inputs[..., 4]),
        "margins": (ours.margins + sensitivity.immediate * ours.deviations, inputs[..., 5]),
        "carried": (memory, inputs[..., 6]),
    }
    largest = {name: np.abs(mine - other.numpy()).max() for name, (mine, other) in pairs.items()}
    return largest, np.mean(ours.actions != ours.proposals)


@pytest.mark.parametrize("rule", ["released", "tight"])
def test_it_sees_and_plays_what_the_rollout_does(episodes, rule, monkeypatch):
    # The yardstick does not round radii inward; without that the two are the same numbers.
    monkeypatch.setattr(tether.LipschitzCertificate, "_unit_round_off", lambda self, number: 0.0)
    largest, intervened = differences(episodes, rule)
    assert max(largest.values()) < 1e-9, largest
    assert 0.1 < intervened < 1.0


@pytest.mark.parametrize("rule", ["released", "tight"])
def test_rounding_inward_is_all_that_differs(episodes, rule):
    largest, _ = differences(episodes, rule)
    assert max(largest.values()) < 1e-5, largest


@pytest.mark.parametrize("rule", ["released", "tight"])
def test_updates_increase_the_reward_and_follow_the_seed(episodes, rule):
    pytest.importorskip("torch", reason="PyTorch is not installed; it is in the extra [sb3]")
    series = [episodes[name] for name in SERIES]
    # 50 episodes are one batch, so that every update sees the same ones.
    seconds, rewards = torch_updates(*series, lam=LAM, b=B, rule=rule, updates=30, seed=0)
    assert seconds > 0.0
    assert len(rewards) == 30
    assert np.isfinite(rewards).all()
    assert rewards[-1] > rewards[0]
    _, again = torch_updates(*series, lam=LAM, b=B, rule=rule, updates=2, seed=0)
    assert again == pytest.approx(rewards[:2], rel=1e-12)


def test_the_rule_that_it_does_not_have_is_refused(episodes):
    pytest.importorskip("torch", reason="PyTorch is not installed; it is in the extra [sb3]")
    series = [episodes[name] for name in SERIES]
    with pytest.raises(ValueError, match="paper"):
        torch_updates(*series, lam=LAM, b=B, rule="paper", updates=1, seed=0)


def test_without_pytorch_it_says_what_to_install(episodes, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    series = [episodes[name] for name in SERIES]
    with pytest.raises(ImportError, match=r"tether-rl\[sb3\]"):
        torch_updates(*series, lam=LAM, b=B, rule="tight", updates=1, seed=0)
