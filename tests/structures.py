"""Hostile scripts behind a structured certificate, all episodes at once in NumPy."""

from __future__ import annotations

import numpy as np

from tether.assure.attack import hostile_episodes
from tether.assure.breeding import scripted
from tether.assure.coarse import trusted
from tether.certificates import Box, Outcome
from tether.core.ops import NUMPY
from tether.systems import registry


def hostile_draws(env, count, rng, horizon=24):
    """`hostile_episodes` for a plant of an installed system."""
    return hostile_episodes(registry.of_env(env), env, count, rng, horizon)


def guarded_costs(env, certificate, episodes, box=None):
    """Costs [N, H] of the scripts behind the guard, all episodes at once in NumPy: the certificate's own code.

    And which episodes, [N], had what the certificate takes for an assumption breach.

    Args:
        env: Of `tether.assure.attack.plants`, with an action that is a number; or such a plant made `coarse`.
        certificate: Structured.
        episodes: Whose scripts are played; what is not a number is replaced by a large one.
        box: The actions that there are; the environment's if None.
    """
    count, horizon = episodes["demand"].shape
    script = np.where(np.abs(episodes["script"]) >= 1e20, 10.0, episodes["script"])
    zero = np.zeros(count)
    state = type(env.initial())(*(zero + number for number in env.initial()))
    memory = certificate.start(NUMPY, zero)
    box = box or Box(env.low, env.high, env.norm)
    costs = np.empty((count, horizon))
    for h in range(horizon):
        drawn = {name: episodes[name][:, h] for name in env.series}
        observation = env.observe(state, drawn)
        prior = env.prior(np.moveaxis(observation, 0, -1))
        proposal = scripted(prior, script[:, h], *env.action_range())
        opened = certificate.open(memory, observation, NUMPY)
        choice = certificate.choose(opened, proposal, prior, box, NUMPY)
        state, _, costs[:, h] = env.step(state, drawn, choice.action)
        memory = certificate.update(memory, choice.taken, Outcome(costs[:, h]), NUMPY)
    return costs, memory.breached


def prior_costs(env, episodes):
    """Costs [N, H] of the prior on the same draws, which the promise compares with."""
    env = trusted(env)
    count, horizon = episodes["demand"].shape
    state = type(env.initial())(*(np.zeros(count) + number for number in env.initial()))
    series = {name: episodes[name].T for name in env.series}
    costs = np.empty((count, horizon))
    for h in range(horizon):
        state, costs[:, h] = step(env, state, series, h, act(env, state, series, h))
    return costs


def at(series, n):
    return {name: values[n] for name, values in series.items()}


def act(env, state, series, n):
    observation = env.observe(state, at(series, n))
    return env.prior(np.moveaxis(observation, 0, -1))


def step(env, state, series, n, action):
    state, _, cost = env.step(state, at(series, n), action)
    return state, cost
