"""Load a saved Stable-Baselines3 model and run it behind the guard, outside Gymnasium.

    python examples/guard_a_saved_model.py                     # trains and saves a small model first
    python examples/guard_a_saved_model.py --model my_ppo.zip  # PPO, trained on tether/Carbon-v0

Needs `pip install "tether-rl[sb3]"`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO

import tether
import tether.adapters.episode_env
from tether.gym import policy_from_sb3


def main(arguments: Sequence[str] | None = None) -> tether.Audit:
    """Play episodes with the model behind the guard, and audit them; returns the audit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, help="a saved PPO model; without it a new one is trained and saved"
    )
    parser.add_argument(
        "--steps", type=int, default=4800, help="training steps of the new one (default: %(default)s)"
    )
    parser.add_argument("--episodes", type=int, default=50, help="how many to play (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the episodes and of PPO (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    path = options.model or train(options.steps, options.seed)

    env = tether.envs.Carbon()
    contract = env.contract(lam=0.5, b=0.5)
    certificate = tether.LipschitzCertificate(contract, env.sensitivity)

    # The three lines: the model, a function of the observation, the guard.
    model = PPO.load(path, device="cpu")
    propose = policy_from_sb3(model, shape=env.action_shape)
    guard = tether.Guard(certificate, env.prior, low=env.low)

    # Your plant stands here; this one is simulated, so that the prior can be replayed and the promise checked.
    episodes = tether.data.synthetic_carbon(options.seed + 1, options.episodes)
    costs = []
    for i in range(len(episodes)):
        state = env.initial()
        guard.reset()
        for h in range(contract.horizon):
            drawn = {name: episodes[name][i, h] for name in env.series}
            observation = env.observe(state, drawn)
            decision = guard.act(observation, propose(observation))
            state, _, cost = env.step(state, drawn, decision.action)
            guard.observe(cost)
            costs.append(float(cost))
    prior = tether.rollout(env, env.prior, episodes)
    verdict = tether.audit(np.reshape(costs, (len(episodes), -1)), prior, contract)
    print(verdict)
    print("decisions:", {str(reason): count for reason, count in guard.counts.items()})
    return verdict


def train(steps: int, seed: int) -> Path:
    """A PPO model that has seen a little of the carbon system, saved."""
    env = gymnasium.make("tether/Carbon-v0", draw_seed=seed)
    model = PPO("MlpPolicy", env, n_steps=min(steps, 1200), batch_size=120, seed=seed, device="cpu").learn(
        steps
    )
    path = Path(tempfile.mkdtemp()) / "carbon_ppo.zip"
    model.save(path)
    print(f"saved a model of {steps} training steps as {path}")
    return path


if __name__ == "__main__":
    main()
