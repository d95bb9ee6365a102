"""Random search for a counterexample to any bound of a structure.

The two trajectories of a certificate, own and prior's, are drawn at the edge of the gaps that the structure is told, or
reached by rounds of wild actions with the structure's own gaps, with noise at its corners, and simulated by the
environment itself: now with any action, from the next round on with the prior's. Everything that
`tether.certificates.structured` asks of a structure is then compared with what happened.
"""

from __future__ import annotations

import numpy as np

import tether
from tether.envs.carbon import CarbonState
from tether.envs.inference import InferenceState

EPSILON = float(np.finfo(float).eps)
ROUNDS = 6
"""What a deviation costs later is followed for so many rounds."""
SEQUENCE = 8
"""Rounds of wild actions in a row."""


def counterexamples(env, structure, rng, count=100_000):
    """For each bound the largest amount by which it was broken; at most round-off if it holds."""
    own, prior, gaps = DRAW[type(env)](env, rng, count)
    series = draw_series(env, rng, ROUNDS, count)
    worst, *_ = play_round(env, structure, own, prior, gaps, series, 0, wild_action(env, own, series, 0, rng))
    return {name: float(np.max(values)) for name, values in worst.items()}


def sequence_counterexamples(env, structure, rng, count=10_000):
    """The same in every round of episodes that begin without gaps, where gaps are what the structure made of them."""
    zero = np.zeros(count)
    own = prior = type(env.initial())(*(zero + number for number in env.initial()))
    gaps = structure.start(zero)
    series = draw_series(env, rng, SEQUENCE + ROUNDS, count)
    found = {}
    for h in range(SEQUENCE):
        action = wild_action(env, own, series, h, rng)
        worst, own, prior, gaps = play_round(env, structure, own, prior, gaps, series, h, action)
        for name, values in worst.items():
            found[name] = max(found.get(name, -np.inf), float(np.max(values)))
    return found


def play_round(env, structure, own, prior, gaps, series, h, action):
    """One round: for each bound by how much it was broken, and the states and gaps after it."""
    seen = read(env, structure, own, series, h)
    gaps = structure.refine(gaps, seen, EPSILON, np)
    before = structure.exposure(gaps, seen, act(env, own, series, h), action, np)
    own, cost = step(env, own, series, h, action)
    prior, prior_cost = step(env, prior, series, h, act(env, prior, series, h))
    floor, next_gaps = structure.close(before.step, cost, EPSILON, np)
    floor = np.maximum(floor, env.cost_floor)
    next_seen = read(env, structure, own, series, h + 1)
    next_gaps = structure.refine(next_gaps, next_seen, EPSILON, np)
    following = act(env, own, series, h + 1)
    after = structure.exposure(next_gaps, next_seen, following, following, np)
    worst = {"ceiling": cost - before.ceiling, "floor": floor - prior_cost}
    for name, gap, actual in actual_gaps(own, prior, next_gaps):
        worst[name] = actual - gap
    paid = cost - prior_cost
    last = len(before.totals) - 1
    worst["now"] = paid - before.totals[0]
    own_later, prior_later = own, prior
    for n in range(1, ROUNDS):
        own_later, cost_n = step(env, own_later, series, h + n, act(env, own_later, series, h + n))
        prior_later, prior_n = step(env, prior_later, series, h + n, act(env, prior_later, series, h + n))
        paid = paid + cost_n - prior_n
        worst["later"] = np.maximum(worst.get("later", -np.inf), paid - before.totals[min(n, last)])
    known = cost - floor
    worst["consistent now"] = known - before.totals[0]
    for n in range(last + 1):
        gained = known + after.totals[n] - before.totals[min(n + 1, last)]
        worst["consistent later"] = np.maximum(worst.get("consistent later", -np.inf), gained)
    return worst, own, prior, next_gaps


def guarded_costs(env, certificate, episodes, rounded=lambda values: values):
    """Costs [N, H] of the scripts behind the guard, all episodes at once in NumPy: the certificate's own code.

    And which episodes, [N], had what the certificate takes for an assumption breach.

    Args:
        env: Of `tether.experiments.attack.systems`.
        certificate: Structured.
        episodes: Whose scripts are played; what is not a number is replaced by a large one.
        rounded: What happens to observations, actions and costs on their way between plant and guard.
    """
    count, horizon = episodes["demand"].shape
    script = np.where(np.abs(episodes["script"]) >= 1e20, 10.0, episodes["script"])
    zero = np.zeros(count)
    state = type(env.initial())(*(zero + number for number in env.initial()))
    memory = certificate.start(np, zero)
    costs = np.empty((count, horizon))
    for h in range(horizon):
        drawn = {name: episodes[name][:, h] for name in env.series}
        observation = rounded(env.observe(state, drawn))
        prior = env.prior(np.moveaxis(observation, 0, -1))
        proposal = script[:, h] * (observation[0] + observation[3] + 1.0)
        opened = certificate.open(memory, observation, np)
        choice = certificate.choose(opened, proposal, prior, env.low, env.high, "l2", np)
        state, _, costs[:, h] = env.step(state, drawn, rounded(choice.action))
        memory = certificate.update(memory, choice.taken, rounded(costs[:, h]), np)
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


def actual_gaps(own, prior, gaps):
    if len(gaps) == 2:
        yield "above", gaps[0], own.backlog - prior.backlog
        yield "below", gaps[1], prior.backlog - own.backlog
    else:
        yield "below", gaps[0], prior.charge - own.charge
