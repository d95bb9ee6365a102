"""Learners that any plant can have: ours and Stable-Baselines3, inside the guard or without one, and plain greed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tether_plants.plant import Learned, Learner, Plant


def always(action: Callable[[Any], Any]) -> Learner:
    """No learner at all: a rule that proposes `action(observation)`, guard or not; what the guard makes of greed."""

    def learner(_plant: Plant, _seed: int, _certificate: str | None) -> Learned:
        return Learned(
            lambda _env, observation: action(observation),
            lambda observations, _features: np.array([action(each) for each in observations]),
        )

    return learner


def ours(
    env: Callable[[], Any],
    data: Callable[[Any], Any],
    *,
    passes: int = 30,
    batch: int = 20,
    rate: float = 3e-3,
    starts: int = 6,
    taught: Mapping[str, str] | None = None,
) -> Learner:
    """ACRL, trained through the guard on the plant's model; without a guard RL, which knows no cost.

    Behind a guard a proposal far outside of the safe set has next to no gradient, so that a network can be stuck from
    the first steps on. Several are trained, from other weights each, and the one that earned most in the last pass
    through the *training* episodes is kept.

    Args:
        env: Makes the plant as an environment of tether's, which the checks compare with the original one; from a
            `tether.Model` by `tether.systems.from_model(...).env`.
        data: From numbers of episodes to what was drawn in them.
        passes: Times that the training episodes are gone through.
        batch: Episodes of a gradient step.
        rate: Of Adam at the start.
        starts: Networks that are trained.
        taught: Certificates behind which training takes long, to those whose guard taught what is played behind them.
    """
    found: dict[tuple[int, str | None], Any] = {}

    def trained(plant: Plant, seed: int, certificate: str | None) -> Any:
        """(the policy, what is told of its training)."""
        from tether.learn.train import Recipe, train

        episodes = data(plant.episodes(seed, 1)[0])
        known = plant.certificates[certificate or next(iter(plant.certificates))](plant.contract)
        recipe = Recipe(passes=passes, batch=batch, learning_rate=rate)
        seeds = [starts * seed + i for i in range(starts)]
        training = train("acrl" if certificate else "rl", env(), episodes, known, seeds=seeds, recipe=recipe)
        best = seeds[int(np.argmax(training.history.rewards[-1, 0]))]
        broken = float(training.history.violations.mean())
        told = {"episodes": starts * passes * len(episodes), "violation_rate": broken}
        return training.policy(plant.contract.lam, plant.contract.b, best), told

    def learner(plant: Plant, seed: int, certificate: str | None) -> Learned:
        import jax

        teacher = (taught or {}).get(certificate or "", certificate)
        if (seed, teacher) not in found:
            found[seed, teacher] = trained(plant, seed, teacher)
        policy, told = found[seed, teacher]
        size = len(env().observation_names)

        def one(observation: Any, features: Any) -> Any:
            return policy(np.concatenate([observation[:size], features]))

        def propose(played: Any, observation: Any) -> Any:
            seen = np.asarray(observation, dtype=float)
            return one(seen, () if certificate is None else played.guard.features(seen))

        batched = jax.jit(jax.vmap(policy))

        def rows(observations: Any, features: Any) -> Any:
            memory = np.zeros((len(observations), 0)) if features is None else features
            with jax.enable_x64(True):
                return np.asarray(batched(np.concatenate([observations[:, :size], memory], axis=1)))

        return Learned(propose, rows, training=told)

    return learner


def sb3(
    steps: int,
    *,
    together: int = 8,
    spread: float = 0.05,
    make: Callable[[], Any] | None = None,
    **options: Any,
) -> Learner:
    """PPO of Stable-Baselines3, trained for so many rounds; with a guard it sees the guard's features.

    Args:
        steps: Rounds of training.
        together: Episodes that are played side by side.
        spread: Of the proposals while it explores, as a share of half the range of actions.
        make: Makes the environment to train on, where the original one is slow; the original one if None.
        options: Of `stable_baselines3.PPO`, over ours.
    """

    def learner(plant: Plant, seed: int, certificate: str | None) -> Learned:
        import torch
        from stable_baselines3 import PPO

        from tether_plants.training import Training

        torch.set_num_threads(1)
        known = None if certificate is None else plant.certificates[certificate](plant.contract)
        env = Training(plant, known, plant.episodes(seed, 1)[0], together, seed, make)
        defaults = {
            "n_steps": plant.contract.horizon,
            "batch_size": plant.contract.horizon,
            "gamma": 0.97,
            "learning_rate": 3e-4,
            "policy_kwargs": {"log_std_init": float(np.log(spread))},
        }
        model = PPO("MlpPolicy", env, seed=seed, device="cpu", **{**defaults, **options})
        model.learn(steps)

        def rows(observations: Any, features: Any) -> Any:
            action, _ = model.predict(env.scaled(observations, features), deterministic=True)
            return env.proposals(action)

        def propose(played: Any, observation: Any) -> Any:
            seen = np.asarray(observation, dtype=float)
            features = None if certificate is None else np.array([played.guard.features(seen)])
            return rows(seen[None], features)[0]

        return Learned(propose, rows, training=env.told())

    return learner
