"""Stable-Baselines3, the real library, trains and plays through the guard."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import tether
import tether.adapters.episode_env
from tether.adapters.guarded import Guarded
from tether.adapters.sb3 import policy_from_sb3

sb3 = pytest.importorskip(
    "stable_baselines3", reason="stable-baselines3 is not installed; it is the extra [sb3]"
)

LAM, B = 0.5, 0.5


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Recorder(gymnasium.Wrapper):
    """Keeps the index and the costs of every episode."""

    def __init__(self, env):
        super().__init__(env)
        self.episodes, self.costs = [], []

    def reset(self, **options):
        observation, info = self.env.reset(**options)
        self.episodes.append(info["episode_index"])
        self.costs.append([])
        return observation, info

    def step(self, action):
        result = self.env.step(action)
        self.costs[-1].append(result[-1]["cost"])
        return result

    def audit(self):
        """The verdict on all whole episodes."""
        env = self.unwrapped
        whole = [i for i, costs in enumerate(self.costs) if len(costs) == env.horizon]
        prior = tether.rollout(env.system, env.system.prior, env.episodes[[self.episodes[i] for i in whole]])
        return tether.audit([self.costs[i] for i in whole], prior, env.system.contract(LAM, B))


def make(system, guarded=True, append_memory=False):
    env = gymnasium.make(f"tether/{system}-v0", draws=300)
    plant = env.unwrapped.system
    if guarded:
        certificate = tether.LipschitzCertificate(plant.contract(LAM, B), plant.sensitivity)
        env = Guarded(env, certificate, env.unwrapped.prior, norm=plant.norm, append_memory=append_memory)
    return Recorder(env)


def learner(algorithm, env):
    if algorithm == "PPO":
        model = sb3.PPO("MlpPolicy", env, n_steps=240, batch_size=120, n_epochs=4, seed=0, device="cpu")
        return model.learn(960)
    options = {"learning_starts": 96, "train_freq": 8, "gradient_steps": 1, "batch_size": 64}
    return sb3.SAC("MlpPolicy", env, seed=0, device="cpu", **options).learn(720)


@pytest.mark.parametrize(
    ("algorithm", "system"),
    [("PPO", "Carbon"), ("PPO", "Inference"), ("PPO", "Cooling"), ("SAC", "Carbon"), ("SAC", "Cooling")],
)
def test_every_training_episode_keeps_the_promise_and_so_does_the_trained_model(algorithm, system):
    env = make(system, append_memory=algorithm == "SAC")
    model = learner(algorithm, env)
    verdict = env.audit()
    assert verdict.holds, str(verdict)
    assert len(verdict.bounds) >= 30

    env.episodes, env.costs = [], []
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        terminated = False
        while not terminated:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, terminated, _, info = env.step(action)
            assert info["tether"]["reason"] in ("safe", "too far")
    assert env.audit().holds


def test_the_same_training_without_the_guard_breaks_the_promise_in_most_episodes():
    env = make("Carbon", guarded=False)
    learner("PPO", env)
    assert env.audit().violation_rate > 0.5


def test_a_saved_model_goes_into_the_guard(tmp_path):
    env = make("Carbon", guarded=False)
    learner("PPO", env).save(tmp_path / "model.zip")

    system = tether.envs.Carbon()
    certificate = tether.LipschitzCertificate(system.contract(LAM, B), system.sensitivity)
    propose = policy_from_sb3(sb3.PPO.load(tmp_path / "model.zip", device="cpu"), shape=system.action_shape)
    guard = tether.Guard(certificate, system.prior, low=system.low)
    decision = guard.act(np.array([4.0, 1.0, 0.0, 0.0]), propose([4.0, 1.0, 0.0, 0.0]))
    assert decision.reason in (tether.Reason.SAFE, tether.Reason.TOO_FAR)
    assert decision.deviation <= decision.radius
