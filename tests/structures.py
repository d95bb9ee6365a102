"""Random search for a counterexample to any bound of a structure.

The two trajectories of a certificate, own and prior's, are drawn at the edge of the gaps that the structure is told, or
reached by rounds of wild actions with the structure's own gaps, with noise at its corners, and simulated by the
environment itself: now with any action, from the next round on with the prior's. Everything that
`tether.certificates.structured` asks of a structure is then compared with what happened.
"""

from __future__ import annotations

import numpy as np

import tether
from tether.certificates import Box, Outcome
from tether.certificates.falsify import EPSILON, ROUNDS, Situation, compare
from tether.envs.carbon import CarbonState
from tether.envs.inference import InferenceState
from tether.ops import NUMPY

SEQUENCE = 8
"""Rounds of wild actions in a row."""


def counterexamples(env, structure, rng, count=100_000):
    """For each bound the largest amount by which it was broken; at most round-off if it holds."""
    own, prior, gaps = DRAW[type(env)](env, rng, count)
    series = draw_series(env, rng, ROUNDS, count)
    return worst(
        play_round(env, structure, own, prior, gaps, series, 0, wild_action(env, own, series, 0, rng))
    )


def sequence_counterexamples(env, structure, rng, count=10_000):
    """The same in every round of episodes that begin without gaps, where gaps are what the structure made of them."""
    zero = np.zeros(count)
    own = prior = type(env.initial())(*(zero + number for number in env.initial()))
    gaps = structure.start(zero)
    series = draw_series(env, rng, SEQUENCE + ROUNDS, count)
    found = {}
    for h in range(SEQUENCE):
        action = wild_action(env, own, series, h, rng)
        compared = play_round(env, structure, own, prior, gaps, series, h, action)
        own, prior, gaps = compared.own, compared.prior, compared.gaps
        for name, amount in worst(compared).items():
            found[name] = max(found.get(name, -np.inf), amount)
    return found


def worst(compared):
    return {name: float(np.max(amount)) for name, amount in compared.excess.items()}


def play_round(env, structure, own, prior, gaps, series, h, action):
    """One round in NumPy, compared with what the structure says of it."""

    def system(state, n, action):
        wish = act(env, state, series, n)
        after, cost = step(env, state, series, n, wish if action is None else action)
        return env.observe(state, at(series, n)), wish, cost, after

    gaps = structure.refine(gaps, read(env, structure, own, series, h), EPSILON, np)
    situation = Situation(own, prior, gaps, range(h, h + ROUNDS), action)
    return compare(structure, system, situation, env.cost_floor)


def guarded_costs(env, certificate, episodes, rounded=lambda values: values):
    """Costs [N, H] of the scripts behind the guard, all episodes at once in NumPy: the certificate's own code.

    And which episodes, [N], had what the certificate takes for an assumption breach.

    Args:
        env: Of `tether.experiments.attack.systems`, with an action that is a number.
        certificate: Structured.
        episodes: Whose scripts are played; what is not a number is replaced by a large one.
        rounded: What happens to observations, actions and costs on their way between plant and guard.
    """
    count, horizon = episodes["demand"].shape
    script = np.where(np.abs(episodes["script"]) >= 1e20, 10.0, episodes["script"])
    zero = np.zeros(count)
    state = type(env.initial())(*(zero + number for number in env.initial()))
    memory = certificate.start(NUMPY, zero)
    box = Box(env.low, env.high, env.norm)
    costs = np.empty((count, horizon))
    for h in range(horizon):
        drawn = {name: episodes[name][:, h] for name in env.series}
        observation = rounded(env.observe(state, drawn))
        prior = env.prior(np.moveaxis(observation, 0, -1))
        proposal = script[:, h] * (observation[0] + observation[3] + 1.0)
        opened = certificate.open(memory, observation, NUMPY)
        choice = certificate.choose(opened, proposal, prior, box, NUMPY)
        state, _, costs[:, h] = env.step(state, drawn, rounded(choice.action))
        memory = certificate.update(memory, choice.taken, Outcome(rounded(costs[:, h])), NUMPY)
    return costs, memory.breached


def prior_costs(env, episodes):
    """Costs [N, H] of the prior on the same draws."""
    count, horizon = episodes["demand"].shape
    state = type(env.initial())(*(np.zeros(count) + number for number in env.initial()))
    series = {name: episodes[name].T for name in env.series}
    costs = np.empty((count, horizon))
    for h in range(horizon):
        state, costs[:, h] = step(env, state, series, h, act(env, state, series, h))
    return costs


def draw_series(env, rng, rounds, count):
    """Noise at its corners, [rounds, count]."""
    shape = (rounds, count)
    if isinstance(env, tether.envs.Carbon):
        noise, drop, demand = env.efficiency_noise_max, env.drop_rate_max, env.demand_max
        return {
            "demand": corners(rng, shape, 0.0, demand, weights=(0.1, 0.5)),
            "renewables": np.zeros(shape),
            "efficiency_noise": corners(rng, shape, -noise, noise, weights=(0.6, 0.1)),
            "drop_rate": corners(rng, shape, 0.0, drop, weights=(0.4, 0.3)),
        }
    series = {
        "demand": corners(rng, shape, 0.0, env.demand_max, weights=(0.1, 0.4)),
        "renewables": rng.choice([0.0, 1.0, 3.0, 6.0], size=shape) * rng.uniform(size=shape),
        "discharge_rate": corners(rng, shape, env.discharge_rate_min, 1.0, weights=(0.2, 0.6)),
        "charge_rate": corners(rng, shape, env.charge_rate_min, 1.0, weights=(0.6, 0.2)),
    }
    # Renewables for which the prior's own shortfall is largest, in some rounds.
    slack = min(np.sqrt(env.carbon_slack), env.demand_max)
    worst = (env.demand_max - slack) / env.structure.charge_rate
    series["renewables"][rng.uniform(size=shape) < 0.3] = worst
    return series


def wild_action(env, own, series, h, rng):
    """The prior's action, or a little or much more or less."""
    wished = act(env, own, series, h)
    count = len(wished)
    away = rng.choice([-1.0, -0.5, -0.1, 0.0, 0.1, 1.0], size=count) * rng.uniform(size=count)
    scale = wished if isinstance(env, tether.envs.Carbon) else env.action_max
    action = np.where(rng.uniform(size=count) < 0.05, 0.0, wished + away * scale)
    return np.clip(action, env.low, env.high)


def draw_carbon(env, rng, count):
    """Two backlogs, and gaps that are theirs half of the time; else they are larger."""
    x = corners(rng, count, 0.0, env.backlog_max, weights=(0.2, 0.05)) * rng.choice([0.2, 1.0], size=count)
    apart = rng.choice([0.0, 0.3, 1.0], size=count) * rng.uniform(-1.0, 1.0, size=count) * env.backlog_max
    other = np.clip(x + apart, 0.0, env.backlog_max)
    wider = rng.choice([0.0, 1.0], size=(2, count)) * rng.exponential(size=(2, count))
    gaps = (np.maximum(x - other, 0.0) + wider[0], np.maximum(other - x, 0.0) + wider[1])
    zero = np.zeros(count)
    return CarbonState(x, zero, zero + 1.0), CarbonState(other, zero, zero + 1.0), gaps


def draw_inference(env, rng, count):
    """Two charges, and a gap that is theirs half of the time; else it is larger."""
    x = corners(rng, count, 0.0, env.capacity, weights=(0.5, 0.05)) * rng.choice([0.2, 1.0], size=count)
    apart = rng.choice([0.0, 0.2, 1.0], size=count) * rng.uniform(-0.3, 1.0, size=count) * env.capacity
    other = np.clip(x + apart, 0.0, env.capacity)
    gaps = (np.maximum(other - x, 0.0) + rng.choice([0.0, 1.0], size=count) * rng.exponential(size=count),)
    zero = np.zeros(count)
    return InferenceState(x, zero, zero + 1.0), InferenceState(other, zero, zero + 1.0), gaps


DRAW = {tether.envs.Carbon: draw_carbon, tether.envs.Inference: draw_inference}


def corners(rng, shape, low, high, weights):
    """Uniform between `low` and `high`, with these probabilities at the two ends."""
    place = rng.uniform(size=shape)
    values = rng.uniform(low, high, size=shape)
    return np.where(place < weights[0], low, np.where(place > 1.0 - weights[1], high, values))


def at(series, n):
    return {name: values[n] for name, values in series.items()}


def act(env, state, series, n):
    observation = env.observe(state, at(series, n))
    return env.prior(np.moveaxis(observation, 0, -1))


def step(env, state, series, n, action):
    state, _, cost = env.step(state, at(series, n), action)
    return state, cost


def read(env, structure, state, series, n):
    return structure.read(env.observe(state, at(series, n)))
