"""Train RLlib's PPO inside the guard and, for comparison, without it; then audit every episode of both trainings.

    python examples/train_rllib_guarded.py --iterations 10

RLlib sees an ordinary Gymnasium environment, `tether.gym.Guarded`: what it proposes is moved into the safe set before
it is played. Needs `pip install "tether-rl[learn,gym]" "ray[rllib]" torch`, in an environment of its own: RLlib pins an
older Gymnasium than the one that tether is tested with.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

import tether
import tether.adapters.episode_env
from tether.gym import Guarded

LAM, B = 0.5, 0.5


class Recorder(gymnasium.Wrapper):
    """Writes the index and the costs of every episode that is played to a file of its own."""

    def __init__(self, env: gymnasium.Env, folder: Path) -> None:
        super().__init__(env)
        self.file = folder / f"{id(self)}.jsonl"
        self.episode: int | None = None
        self.costs: list[float] = []

    def reset(self, **options: Any) -> Any:
        """Begin another episode."""
        observation, info = self.env.reset(**options)
        self.episode, self.costs = info["episode_index"], []
        return observation, info

    def step(self, action: Any) -> Any:
        """Play a round and note what it cost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.costs.append(info["cost"])
        if terminated or truncated:
            with self.file.open("a") as file:
                file.write(json.dumps({"episode": self.episode, "costs": self.costs}) + "\n")
        return observation, reward, terminated, truncated, info


def make_env(config: dict[str, Any]) -> gymnasium.Env:
    """The plant, guarded or not, as RLlib wants it: actions from -1 to 1, observations in float32."""
    env = gymnasium.make("tether/Carbon-v0", draw_seed=config["seed"], draws=500, action_high=12.0)
    plant = env.unwrapped
    if config["guarded"]:
        contract = plant.system.contract(LAM, B)
        env = Guarded(env, tether.LipschitzCertificate(contract, plant.system.sensitivity), plant.prior)
    env = Recorder(env, Path(config["folder"]))
    env = gymnasium.wrappers.RescaleAction(env, np.float32(-1.0), np.float32(1.0))
    box = env.observation_space
    single = gymnasium.spaces.Box(box.low.astype(np.float32), box.high.astype(np.float32), dtype=np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda seen: seen.astype(np.float32), single)


def train(folder: Path, iterations: int, seed: int, *, guarded: bool) -> float:
    """Train PPO; the mean reward of the last iteration's episodes."""
    register_env("tether", make_env)
    config = (
        PPOConfig()
        .environment("tether", env_config={"seed": seed, "guarded": guarded, "folder": str(folder)})
        .env_runners(num_env_runners=0, batch_mode="complete_episodes")
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=960, minibatch_size=240, num_epochs=10, lr=3e-4)
        .debugging(seed=seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    reward = float("nan")
    for _ in range(iterations):
        reward = algorithm.train()["env_runners"]["episode_return_mean"]
    algorithm.stop()
    return float(reward)


def audit(folder: Path, seed: int) -> tether.Audit:
    """The verdict on every whole episode that was played while it learned."""
    rows = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.open()]
    env = gymnasium.make("tether/Carbon-v0", draw_seed=seed, draws=500, action_high=12.0).unwrapped
    whole = [row for row in rows if len(row["costs"]) == env.horizon]
    prior = tether.rollout(env.system, env.system.prior, env.episodes[[row["episode"] for row in whole]])
    return tether.audit(np.array([row["costs"] for row in whole]), prior, env.system.contract(LAM, B))


def main(arguments: Sequence[str] | None = None) -> dict[str, tether.Audit]:
    """Run the comparison; returns the audits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=10, help="of PPO, 40 episodes each")
    parser.add_argument("--seed", type=int, default=0, help="of the episodes and of PPO")
    parser.add_argument(
        "--out", type=Path, default=Path("out/rllib"), help="where the episodes are noted down"
    )
    options = parser.parse_args(arguments)
    audits = {}
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        for name, guarded in (("inside the guard", True), ("without the guard", False)):
            folder = options.out.resolve() / name.replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            for file in folder.glob("*.jsonl"):
                file.unlink()
            reward = train(folder, options.iterations, options.seed, guarded=guarded)
            audits[name] = audit(folder, options.seed)
            print(
                f"\nRLlib's PPO {name}, every episode of the training audited; reward {reward:.4g} in the end"
            )
            print(audits[name])
    finally:
        ray.shutdown()
    return audits


if __name__ == "__main__":
    main()
