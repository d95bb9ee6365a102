"""What a guard allows in each round of an episode: the picture behind a certificate."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from tether.assure.hostile import Greedy
from tether.certificates import Certificate, LipschitzCertificate
from tether.core.guard import Guard
from tether.data.episodes import Episodes
from tether.simulate.eager import eager
from tether.systems.base import Env


class SafeSets(NamedTuple):
    """One episode of a greedy learner behind a guard, [H] each or [H, n] where actions are vectors, action units."""

    name: str
    low: NDArray[np.float64]
    """The lowest safe action; of a vector how far down each entry may go while the others are the prior's."""
    high: NDArray[np.float64]
    """The highest safe action, likewise, at most that of `Env.action_range`."""
    prior: NDArray[np.float64]
    wish: NDArray[np.float64]
    """What the learner proposed."""
    played: NDArray[np.float64]


def safe_sets(env: Env, episode: Episodes, certificate: Certificate) -> SafeSets:
    """Play one episode through the online guard, and ask it in each round how far it would go."""
    guard = Guard(certificate, env.prior, env.low, env.high, env.norm)
    greedy = jax.jit(Greedy(env))
    ends: list[list[Any]] = []

    def policy(observation: Any) -> Any:
        ends.append([_farthest(env, guard, observation, end) for end in env.action_range()])
        with jax.enable_x64(True):
            return np.asarray(greedy(np.asarray(observation, dtype=np.float64)))

    turns = list(eager(env, episode, policy, guard))
    name = "Lipschitz" if isinstance(certificate, LipschitzCertificate) else "structured"
    low, high = np.moveaxis(np.array(ends), 1, 0)
    prior = np.array([turn.decision.prior_action for turn in turns if turn.decision is not None])
    wish, played = np.array([turn.proposal for turn in turns]), np.array([turn.action for turn in turns])
    return SafeSets(name, low, high, prior, wish, played)


def _farthest(env: Env, guard: Guard, observation: Any, end: Any) -> Any:
    """The safe action nearest to `end`; of a vector each entry of it by itself."""
    if not env.action_shape:
        return float(guard.reach(observation, float(end))[1])
    prior, found = np.asarray(env.prior(observation), dtype=np.float64), np.empty(env.action_shape)
    for place in np.ndindex(*env.action_shape):
        wish = prior.copy()
        wish[place] = end[place]
        found[place] = np.asarray(guard.reach(observation, wish)[1])[place]
    return found
