"""A simulated plant whose control loop asks the guard: an installed system, a learner that climbs, and an auditor.

The simulator knows what was drawn, so that it can do what nobody can online: replay the prior on the same draws, and
say after each round whether the promise was kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tether.certificates import Structured
from tether.serve.backups import backup_policies
from tether.serve.client import Client
from tether.systems.base import Env, play
from tether.systems.system import System

TOLERANCE = 1e-6
"""Relative; the simulator computes in another order than the guard."""


class Climber:
    """A learner: it moves the prior's actions by a share a round, and keeps what earned more.

    Args:
        env: The system.
        horizon: Rounds of an episode.
        seed: Of what it tries.
    """

    def __init__(self, env: Env, horizon: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        low, high = env.action_range()
        self._width = np.asarray(high - low)
        self._best = np.zeros((horizon, *env.action_shape))
        self._tried = self._best
        self._earned = -np.inf

    def begin(self) -> None:
        """Think of something else to try in the coming episode."""
        self._tried = self._best + 0.15 * self._rng.standard_normal(self._best.shape) * self._width

    def propose(self, number: int, prior: Any) -> Any:
        """What to propose in a round."""
        return np.asarray(prior) + self._tried[number - 1]

    def learn(self, reward: float) -> None:
        """Keep what was tried, if the episode earned more than the best before."""
        if reward > self._earned:
            self._earned, self._best = reward, self._tried


class Round(NamedTuple):
    """What happened in a round."""

    episode: str
    round: int
    decided: bool
    """Whether the guard decided it; if not, it was away."""
    reason: str
    cost: float
    """Sum over the rounds so far."""
    bound: float
    """What the promise allows, from a replay of the prior."""
    reward: float
    """Sum over the rounds so far."""

    @property
    def kept(self) -> bool:
        """Whether the promise was kept."""
        return self.cost <= self.bound * (1.0 + TOLERANCE)


def policies_of(env: Env, lam: float, b: float, horizon: int) -> dict[str, Callable[[Any], Any]]:
    """The prior of a system, and the other backups that its structured certificate has, by name."""
    prior = env.prior
    try:
        certificate = Structured(env.contract(lam, b, horizon), env.structure)
    except NotImplementedError:
        return {"prior": prior}
    return backup_policies(certificate, prior, env.low, env.high, env.norm)


def live(
    client: Client,
    system: System,
    lam: float,
    b: float,
    *,
    horizon: int = 24,
    seed: int = 0,
    pause: float = 0.0,
) -> Iterator[Round]:
    """Episodes without end, each round as it is closed.

    Args:
        client: Of the plant.
        system: What is simulated.
        lam: As the service promises.
        b: Likewise.
        horizon: Rounds of an episode.
        seed: Of the draws and the learner.
        pause: Seconds that a round takes.
    """
    env = system.env()
    learner = Climber(env, horizon, seed)
    number = 0
    while True:
        episodes = system.draw(seed * 1_000_003 + number, 1, horizon)
        drawn = {name: episodes[name][0] for name in env.drawn_names}
        priors = [
            step.step.cost for step in play(env, drawn, lambda _h, x, z: env.prior(env.observation(x, z)))
        ]
        yield from _episode(client, env, drawn, learner, (1.0 + lam) * np.cumsum(priors), b, pause)
        number += 1


def _episode(
    client: Client, env: Env, drawn: dict[str, Any], learner: Climber, bounds: Any, b: float, pause: float
) -> Iterator[Round]:
    name = client.reset()
    learner.begin()
    cost = reward = 0.0
    last: dict[str, Any] = {}

    def act(number: int, state: Any, seen: dict[str, Any]) -> Any:
        observation = env.observation(state, seen)
        played = client.act(observation, learner.propose(number, env.prior(observation)))
        last["played"] = played
        return np.clip(played.action, env.low, env.high)

    for step in play(env, drawn, act):
        client.observe(float(step.step.cost), reward=float(step.step.reward))
        cost += float(step.step.cost)
        reward += float(step.step.reward)
        played, bound = last["played"], float(bounds[step.round - 1]) + step.round * b
        yield Round(name, step.round, played.decided, played.reason, cost, bound, reward)
        time.sleep(pause)
    learner.learn(reward)
