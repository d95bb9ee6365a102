"""Train PPO inside the guard and, for comparison, without it; then audit every episode of both trainings.

    python examples/train_ppo_guarded.py --system carbon --steps 50000

The audit replays the prior on the draws of the training episodes, so it says of each of them, from the first
on, whether the promise J_h <= (1 + lam) J_h(prior) + h b held in every round. Needs `pip install "tether-rl[sb3]"`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO

import tether
import tether.adapters.episode_env
from tether.adapters.guarded import Guarded

# Contracts (lam, b) under which PPO without the guard breaks the promise in more than half of its episodes.
TIGHT = {"carbon": (0.5, 0.5), "inference": (1.0, 0.5), "cooling": (0.5, 0.5)}

# How PPO explores decides how it fares without the guard, so it is given a fair start: a first policy with a
# standard deviation of 0.37 of half the box, and for Carbon a box of twice what the prior usually plays. In
# the default box, which holds whatever the prior could ever play, a standard deviation of 1 ended in idleness
# after 50,000 steps (and nearly every episode in violation); one of 0.14 was still wasting energy after 17,000,
# which harms nobody. Were the prior to ask for more than 12, the guard would report a breach.
BOX = {"carbon": {"action_high": 12.0}}


class Recorder(gymnasium.Wrapper):
    """Keeps the index, the costs and the rewards of every episode that is played."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.episodes: list[int] = []
        self.costs: list[list[float]] = []
        self.rewards: list[list[float]] = []
        self.interventions = 0

    def reset(self, **options: Any) -> Any:
        """Begin another episode."""
        observation, info = self.env.reset(**options)
        self.episodes.append(info["episode_index"])
        self.costs.append([])
        self.rewards.append([])
        return observation, info

    def step(self, action: Any) -> Any:
        """Play a round and note what it cost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.costs[-1].append(info["cost"])
        self.rewards[-1].append(float(reward))
        self.interventions += info.get("tether", {}).get("intervened", False)
        return observation, reward, terminated, truncated, info


def train(
    system: str, contract: tether.Contract, steps: int, seed: int, *, guarded: bool, append_memory: bool
) -> Recorder:
    """Train PPO for `steps` steps and return the record of all that happened while it learned."""
    env = gymnasium.make(f"tether/{system.capitalize()}-v0", draw_seed=seed, **BOX.get(system, {}))
    plant = env.unwrapped.system
    if guarded:
        certificate = tether.LipschitzCertificate(contract, plant.sensitivity)
        env = Guarded(env, certificate, env.unwrapped.prior, norm=plant.norm, append_memory=append_memory)
    recorder = Recorder(env)
    rescaled = gymnasium.wrappers.RescaleAction(recorder, -1.0, 1.0)
    rounds = min(steps, 100 * contract.horizon)
    model = PPO(
        "MlpPolicy",
        rescaled,
        n_steps=rounds,
        batch_size=rounds // 10,
        policy_kwargs={"log_std_init": -1.0},
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    return recorder


def audit(recorder: Recorder, contract: tether.Contract) -> tuple[tether.Audit, tether.Run]:
    """The verdict on all the recorded episodes, and the prior's replay of them."""
    env = recorder.unwrapped
    played = [i for i, costs in enumerate(recorder.costs) if costs]
    draws = env.episodes[[recorder.episodes[i] for i in played]]
    prior = tether.rollout(env.system, env.system.prior, draws)
    # The last episode may be cut short by the end of training. Going on at the prior's cost adds no violation.
    costs = np.array(prior.costs)
    for row, i in zip(costs, played, strict=True):
        row[: len(recorder.costs[i])] = recorder.costs[i]
    return tether.audit(costs, prior, contract), prior


def main(arguments: Sequence[str] | None = None) -> dict[str, tether.Audit]:
    """Run the comparison; returns the audits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", choices=sorted(TIGHT), default="carbon")
    parser.add_argument(
        "--steps", type=int, default=50_000, help="training steps of each run (default: %(default)s)"
    )
    parser.add_argument("--lam", type=float, help="relative slack of the contract (default: a tight one)")
    parser.add_argument("--b", type=float, help="slack that each round earns (default: a tight one)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the episodes and of PPO (default: %(default)s)"
    )
    parser.add_argument("--append-memory", action="store_true", help="show PPO what the guard allows")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)

    plant = gymnasium.make(f"tether/{options.system.capitalize()}-v0", draws=1).unwrapped.system
    lam, b = TIGHT[options.system]
    contract = plant.contract(
        lam if options.lam is None else options.lam, b if options.b is None else options.b
    )
    audits = {}
    for name, guarded in (("inside the guard", True), ("without the guard", False)):
        recorder = train(
            options.system, contract, options.steps, options.seed,
            guarded=guarded, append_memory=options.append_memory,
        )  # fmt: skip
        verdict, prior = audit(recorder, contract)
        steps = sum(map(len, recorder.costs))
        whole = [sum(rewards) for rewards in recorder.rewards if len(rewards) == contract.horizon]
        late = whole[-max(1, len(whole) // 10) :]
        print(
            f"\nPPO {name}, {options.system}: {steps} training steps, all {len(verdict.bounds)} episodes audited"
        )
        print(verdict)
        print(
            f"  mean reward             {np.mean(late):.5g} in the last tenth, prior {np.mean(prior.returns):.5g}"
        )
        broken = np.any(verdict.violations[-len(late) :], axis=1)
        print(f"  violations in the end   {np.mean(broken):.2%} of the episodes in the last tenth")
        print(f"  proposals replaced      {recorder.interventions / steps:.1%}")
        audits[name] = verdict
    return audits


if __name__ == "__main__":
    main()
