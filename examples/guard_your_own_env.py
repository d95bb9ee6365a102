"""Guard an environment of your own: here a water tank, of which tether knows nothing.

    python examples/guard_your_own_env.py

Rain and consumption change the level x of a tank, and a pump adds or drains a (both in metres):

    x' = x + 0.5 a + w, cut to [0, 2]        |a| <= 1, |w| <= 0.1
    cost    |x' - 1|
    reward  -a^2, what pumping costs

The prior you trust: a = 1 - x, half of the way back to 1 metre. What the guard has to know, worked out by hand:

- A deviation d moves the level, and so the cost, by 0.5 d in its own round: `immediate=0.5`.
- Under the prior the level becomes 0.5 x + 0.5 + w, so half of a gap is left after each round: the cost is moved
  by 0.5 * 0.5 d one round later, `carried=0.25`, and by half as much in each further one, `geometric(0.5)`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import tether
from tether.adapters.guarded import Guarded

HORIZON = 48


class Tank(gymnasium.Env):
    """The tank above, as anyone would write it for Gymnasium; a step reports its cost in `info["cost"]`."""

    observation_space = spaces.Box(0.0, 2.0, (1,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Fill the tank to 1 metre; draw what rain and consumption will do."""
        super().reset(seed=seed, options=options)
        self.level = 1.0
        self.weather = list(self.np_random.uniform(-0.1, 0.1, HORIZON))
        return np.array([self.level]), {}

    def step(self, action: Any) -> Any:
        """One hour."""
        self.level = min(max(self.level + 0.5 * float(action[0]) + self.weather.pop(), 0.0), 2.0)
        reward, cost = -(float(action[0]) ** 2), abs(self.level - 1.0)
        return np.array([self.level]), reward, not self.weather, False, {"cost": cost}


def prior(observation: Any) -> Any:
    """Half of the way back to 1 metre."""
    return 1.0 - observation


def idle(observation: Any) -> Any:  # noqa: ARG001
    """Never pump."""
    return [0.0]


def play(env: gymnasium.Env, policy: Any, episodes: int) -> np.ndarray:
    """The costs [episodes, H] of a policy; episode i has the draws of seed i."""
    costs = []
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        terminated = False
        while not terminated:
            observation, _, terminated, _, info = env.step(policy(observation))
            costs.append(info["cost"])
    return np.reshape(costs, (episodes, HORIZON))


def main(arguments: Sequence[str] | None = None) -> dict[str, tether.Audit]:
    """Let a policy that never pumps run the tank, with and without the guard; returns the audits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=200, help="how many to play (default: %(default)s)")
    options = parser.parse_args(arguments)

    contract = tether.Contract(lam=0.5, b=0.02, horizon=HORIZON)
    bounds = tether.Sensitivity(immediate=0.5, carried=0.25, perturbation=tether.geometric(0.5))
    guarded = Guarded(Tank(), tether.LipschitzCertificate(contract, bounds), prior)

    prior_costs = play(Tank(), prior, options.episodes)
    audits = {}
    for name, env in (("without the guard", Tank()), ("inside the guard", guarded)):
        audits[name] = tether.audit(play(env, idle, options.episodes), prior_costs, contract)
        print(f"\nA policy that never pumps, {name}\n{audits[name]}")
    return audits


if __name__ == "__main__":
    main()
