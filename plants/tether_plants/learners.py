"""Learners that any plant can have: Stable-Baselines3 inside the guard or without one, and one that asks for everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import tether
from tether.gym import Guarded
from tether_plants.plant import Learned, Learner, Plant


def always(action: Callable[[Any], Any]) -> Learner:
    """No learner at all: a rule that proposes `action(observation)`, guard or not; what the guard makes of greed."""

    def learner(_plant: Plant, _seed: int, _certificate: str | None) -> Learned:
        return Learned(lambda _env, observation: action(observation))

    return learner


class _Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws one of the training episodes at each reset, and keeps what every one of them cost."""

    def __init__(self, env: Any, episodes: Any, seed: int) -> None:
        super().__init__(env)
        self._episodes, self._rng = np.asarray(episodes), np.random.default_rng(seed)
        self.played: list[int] = []
        self.costs: list[list[float]] = []

    def reset(self, **_options: Any) -> Any:
        """Begin another training episode."""
        self.played.append(int(self._rng.choice(self._episodes)))
        self.costs.append([])
        return self.env.reset(options={"episode": self.played[-1]})

    def step(self, action: Any) -> Any:
        """Play a round and note what it cost."""
        result = self.env.step(action)
        self.costs[-1].append(result[4]["cost"])
        return result


def sb3(steps: int, **options: Any) -> Learner:
    """PPO of Stable-Baselines3, trained for so many rounds; with a guard it sees the guard's memory.

    Args:
        steps: Rounds of training.
        options: Of `stable_baselines3.PPO`, over ours.
    """

    def learner(plant: Plant, seed: int, certificate: str | None) -> Learned:
        import torch
        from stable_baselines3 import PPO

        torch.set_num_threads(1)
        env: Any = plant.make()
        if certificate is not None:
            known = plant.certificates[certificate](plant.contract)
            env = Guarded(env, known, plant.prior, append_memory=True)
        train, _ = plant.episodes(seed, 1)
        recorder = _Recorder(env, train, seed)
        scaled = gymnasium.wrappers.RescaleAction(recorder, -1.0, 1.0)
        rounds = plant.contract.horizon
        defaults = {
            "n_steps": 8 * rounds,
            "batch_size": rounds,
            "gamma": 0.99,
            "policy_kwargs": {"log_std_init": -1.0},
        }
        model = PPO("MlpPolicy", scaled, seed=seed, device="cpu", **{**defaults, **options})
        model.learn(steps)
        space = env.action_space

        def propose(_env: Any, observation: Any) -> Any:
            action, _ = model.predict(observation, deterministic=True)
            return space.low + (np.clip(action, -1.0, 1.0) + 1.0) / 2.0 * (space.high - space.low)

        training = _told(plant, recorder)
        return Learned(propose, memory=certificate is not None, training=training)

    return learner


def _told(plant: Plant, recorder: _Recorder) -> dict[str, Any]:
    """How many of the complete training episodes broke the promise."""
    from tether_plants.study import play

    whole = [i for i, costs in enumerate(recorder.costs) if len(costs) == plant.contract.horizon]
    episodes, costs = [recorder.played[i] for i in whole], [recorder.costs[i] for i in whole]
    again = {episode: i for i, episode in enumerate(dict.fromkeys(episodes))}
    prior = play(plant, list(again), None)
    verdict = tether.audit(costs, prior.costs[[again[episode] for episode in episodes]], plant.contract)
    return {"episodes": len(whole), "violation_rate": verdict.violation_rate}
