"""Tune a pace: how a policy that does not know the guard should spend what the guard allows over an episode.

See `tether.learn.paced` for what a pace is, and why it cannot touch the promise. Its few numbers are searched for by
playing episodes through the guard, all candidates at once in one compiled program. No derivative is taken, so the
policy may be anything that plays: a network of another library, a rule with jumps, a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether.core import validate
from tether.core.certificate import Certificate
from tether.data.episodes import Episodes
from tether.learn.paced import UNPACED, PacedPolicy
from tether.learn.policy import NetworkPolicy
from tether.learn.search import maximise
from tether.simulate.jitted import jitted
from tether.simulate.rollout import Policy, play, rollout
from tether.simulate.trees import as_tree, register
from tether.systems.base import Env

SMALLEST_SHARE = 0.05
"""Of the constant shares that are tried first."""
FIRST_STEP = 0.4
"""Of the weights in the search; a weight of 4 moves a share from a tenth to nine tenths."""

register(NetworkPolicy)
register(PacedPolicy)


def pace(
    policy: Policy,
    env: Env,
    episodes: Episodes,
    certificate: Certificate,
    *,
    candidates: int = 16,
    generations: int = 60,
    at_once: int = 200,
    seed: int = 0,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> PacedPolicy:
    """A policy that follows `policy` at a pace, tuned to earn most on `episodes` behind the guard.

    It only proposes otherwise: whatever was tuned, and on whatever episodes, the guard keeps the promise. On `episodes`
    it earns at least what `policy` earns as it is. Judge it on others.

    Args:
        policy: What `tether.rollout` takes; `tether.BatchedPolicy` makes one of a Stable-Baselines3 model or of any
            function that JAX cannot trace.
        env: The system. Its own observation is read by the pace, its `context` is not.
        episodes: To tune on, such as the months before those in which it is to play.
        certificate: The guard's certificate. Another (lam, b) wants another pace, which compiles nothing new.
        candidates: Paces that are played at a time, at least 4.
        generations: How many times.
        at_once: Episodes that the search plays, evenly chosen; the result is compared with `policy` on all of them.
        seed: Of the search, and of the keys that the policy gets.
        report: Called with (generations done, generations in all).

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> certificate = tether.LipschitzCertificate(env.contract(lam=2.0, b=2.0), env.sensitivity)
        >>> greedy = lambda observation, key: 0.5 * observation[0]
        >>> paced = pace(greedy, env, tether.data.synthetic_carbon(seed=0, n=30), certificate, generations=5)
        >>> before, after = paced.earned  # mean rewards
        >>> after >= before
        True
    """
    validate.count("candidates", candidates, minimum=4)
    validate.count("generations", generations, minimum=0)
    validate.count("at_once", at_once)
    before = float(rollout(env, policy, episodes, certificate, seed=seed, record="outcomes").returns.mean())
    chosen = episodes[np.linspace(0, len(episodes) - 1, min(at_once, len(episodes))).round().astype(int)]
    unpaced = _unpaced(policy, env, chosen, certificate)
    score = _scorer(unpaced, env, chosen, certificate, seed)
    first = _constant(candidates, len(unpaced.weights))
    found = maximise(
        score, first[-1], first=first, step=FIRST_STEP, candidates=candidates, generations=generations,
        seed=seed, report=report,
    )  # fmt: skip
    paced = replace(unpaced, weights=found.point)
    after = float(rollout(env, paced, episodes, certificate, seed=seed, record="outcomes").returns.mean())
    if not after >= before:
        return replace(unpaced, earned=(before, before))
    return replace(paced, earned=(before, after))


def _constant(candidates: int, size: int) -> Any:
    """[candidates, size] weights of constant shares."""
    shares = np.linspace(SMALLEST_SHARE, 1.0 - SMALLEST_SHARE, candidates)
    weights = np.zeros((candidates, size))
    weights[:, 0] = np.log(shares / (1.0 - shares))
    return weights


def _unpaced(policy: Policy, env: Env, episodes: Episodes, certificate: Certificate) -> PacedPolicy:
    """The policy as it is, its pace scaled by what the prior sees."""
    prior = rollout(env, env.prior, episodes)
    assert prior.observations is not None
    count = len(env.observation_names) or prior.observations.shape[-1]
    seen = prior.observations.reshape(-1, prior.observations.shape[-1])[:, :count]
    units = np.asarray(certificate.feature_units(), dtype=np.float64)
    weights = np.zeros(1 + units.size + count)
    weights[0] = UNPACED
    # What is the same in every round has no scale.
    scale = np.where(seen.std(axis=0) > 1e-9 * np.abs(seen).max(axis=0), seen.std(axis=0), 1.0)
    return PacedPolicy(policy, weights, units, seen.mean(axis=0), scale, tuple(env.action_shape))


def _scorer(
    unpaced: PacedPolicy, env: Env, episodes: Episodes, certificate: Certificate, seed: int
) -> Callable[[Any], Any]:
    """[candidates, n] weights to [candidates] mean rewards, in float32: what is searched with claims nothing."""
    series = {name: np.swapaxes(episodes[name], 0, 1) for name in env.drawn_names}

    def score(weights: Any) -> Any:
        with jax.enable_x64(False):
            drawn, numbers = jax.tree.map(
                lambda leaf: jnp.asarray(leaf, "float32") if eqx.is_inexact_array_like(leaf) else leaf,
                (series, as_tree(certificate)),
            )
            given = jnp.asarray(weights, "float32")
            return np.asarray(_rewards(env, unpaced, given, drawn, numbers, jnp.uint32(seed)))

    return score


@jitted
def _rewards(
    env: Env, paced: PacedPolicy, weights: Any, drawn: Any, certificate: Certificate, seed: Any
) -> Any:
    def reward(each: Any) -> Any:
        played = play(env, replace(paced, weights=each), drawn, certificate, seed, "outcomes")
        return jnp.mean(jnp.sum(played["rewards"], axis=0))

    return jax.vmap(reward)(weights)
