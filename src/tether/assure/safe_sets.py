"""What a guard allows in each round of an episode: the picture behind a certificate."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.assure.hostile import Greedy
from tether.certificates import Certificate, LipschitzCertificate
from tether.core.guard import Guard
from tether.data.episodes import Episodes
from tether.systems.base import Env
from tether.systems.carbon.env import Carbon
from tether.systems.inference.env import Inference

TOP = 12.0
"""Largest energy that is drawn."""


class SafeSets(NamedTuple):
    """One episode of a greedy learner behind a guard, [H] each, energy units."""

    name: str
    low: NDArray[np.float64]
    """The lowest safe action."""
    high: NDArray[np.float64]
    """The highest safe action, at most `TOP`."""
    prior: NDArray[np.float64]
    wish: NDArray[np.float64]
    """What the learner proposed."""
    played: NDArray[np.float64]


def safe_sets(env: Env, episode: Episodes, certificate: Certificate) -> SafeSets:
    """Play one episode through the online guard, and ask it in each round how far it would go."""
    if not isinstance(env, Carbon | Inference):
        raise TypeError(f"the greedy learner is known for Carbon and Inference, not for {env!r}")
    guard, greedy = Guard(certificate, env.prior, env.low, env.high), Greedy(env)
    state: Any = env.initial()
    rounds = []
    for h in range(episode.horizon):
        drawn = {name: episode[name][0, h] for name in env.series}
        observation = env.observe(state, drawn)
        ends = [float(guard.reach(observation, wish)[1]) for wish in (0.0, min(float(env.high), TOP))]
        decision = guard.act(observation, float(greedy(observation)))
        state, _, cost = env.step(state, drawn, decision.action)
        guard.observe(float(cost))
        rounds.append([*ends, decision.prior_action, float(greedy(observation)), decision.action])
    name = "Lipschitz" if isinstance(certificate, LipschitzCertificate) else "structured"
    return SafeSets(name, *np.array(rounds).T)
