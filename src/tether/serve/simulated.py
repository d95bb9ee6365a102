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

STEP, WILD = 0.04, 0.08
"""How far the learner tries, as a share of the range of actions, and how often it proposes anything at all."""
TOLERANCE = 1e-6
"""Relative; the simulator computes in another order than the guard."""


class Climber:
    """A learner: it moves the prior's actions by an amount, keeps what gained, and explores wildly now and then.

    Args:
        env: The system.
        seed: Of what it tries.
    """

    def __init__(self, env: Env, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._low, self._high = env.action_range()
        self._best = self._tried = np.zeros(env.action_shape)
        self._gained = 0.0

    def begin(self) -> None:
        """Think of something else to try in the coming episode."""
        step = self._rng.standard_normal(self._best.shape) * (self._high - self._low)
        self._tried = self._best + STEP * step

    def propose(self, prior: Any) -> Any:
        """What to propose in a round."""
        if self._rng.random() < WILD:
            return self._rng.uniform(self._low, self._high)
        return np.asarray(prior) + self._tried

    def learn(self, gained: float) -> None:
        """Keep what was tried, if it gained more than the best before; that one's luck is forgotten slowly."""
        if gained > self._gained:
            self._gained, self._best = gained, self._tried
        self._gained *= 0.9


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
    gained: float
    """Reward so far, above what the prior would have earned."""

    @property
    def kept(self) -> bool:
        """Whether the promise was kept."""
        return self.cost <= self.bound * (1.0 + TOLERANCE)


class Replay(NamedTuple):
    """What the prior would have done on the same draws."""

    bounds: Any
    """[H] what the promise allows the cost so far to be."""
    rewards: Any
    """[H] reward so far."""


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
    learner = Climber(env, seed)
    number = 0
    while True:
        episodes = system.draw(seed * 1_000_003 + number, 1, horizon)
        drawn = {name: episodes[name][0] for name in env.drawn_names}
        trusted = [each.step for each in play(env, drawn, lambda _h, x, z: env.prior(env.observation(x, z)))]
        replay = Replay(
            (1.0 + lam) * np.cumsum([float(step.cost) for step in trusted]) + b * np.arange(1, horizon + 1),
            np.cumsum([float(step.reward) for step in trusted]),
        )
        yield from _episode(client, env, drawn, learner, replay, pause)
        number += 1


def _episode(
    client: Client, env: Env, drawn: dict[str, Any], learner: Climber, replay: Replay, pause: float
) -> Iterator[Round]:
    name = client.reset()
    learner.begin()
    cost = reward = gained = 0.0
    last: dict[str, Any] = {}

    def act(_number: int, state: Any, seen: dict[str, Any]) -> Any:
        observation = env.observation(state, seen)
        played = client.act(observation, learner.propose(env.prior(observation)))
        last["played"] = played
        return np.clip(played.action, env.low, env.high)

    for step in play(env, drawn, act):
        client.observe(float(step.step.cost), reward=float(step.step.reward))
        cost += float(step.step.cost)
        reward += float(step.step.reward)
        played, now = last["played"], step.round - 1
        gained = reward - replay.rewards[now]
        yield Round(name, step.round, played.decided, played.reason, cost, replay.bounds[now], gained)
        time.sleep(pause)
    learner.learn(gained)
