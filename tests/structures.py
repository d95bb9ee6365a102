"""Random search for a counterexample to any bound of a structure, and structures with one bound loosened.

The two trajectories of a certificate, own and prior's, are drawn at the edge of the gaps that the structure is told,
with noise at its corners, and simulated by the environment itself: now with any action, from the next round on with
the prior's. Everything that `tether.certificates.structured` asks of a structure is then compared with what happened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tether
from tether.certificates import CarbonStructure, InferenceStructure
from tether.envs.carbon import CarbonState
from tether.envs.inference import InferenceState

LOOSE = 1.05
ROUNDS = 6


def counterexamples(env, structure, rng, count=200_000):
    """For each bound the largest amount by which it was broken; at most round-off if it holds."""
    draw = {"carbon": draw_carbon, "inference": draw_inference}[structure.kind]
    own, prior, gaps, series, action = draw(env, rng, count)
    seen = read(env, structure, own, series, 0)
    gaps = structure.refine(gaps, seen, np)
    before = structure.exposure(gaps, seen, act(env, own, series, 0), action, np)
    own, cost = step(env, own, series, 0, action)
    prior, prior_cost = step(env, prior, series, 0, act(env, prior, series, 0))
    floor, next_gaps = structure.close(before.step, cost, np.finfo(float).eps, np)
    floor = np.maximum(floor, env.cost_floor)
    next_seen = read(env, structure, own, series, 1)
    next_gaps = structure.refine(next_gaps, next_seen, np)
    following = act(env, own, series, 1)
    after = structure.exposure(next_gaps, next_seen, following, following, np)
    worst = {"ceiling": cost - before.ceiling, "floor": floor - prior_cost}
    for name, gap, actual in actual_gaps(structure, own, prior, next_gaps):
        worst[name] = actual - gap
    paid = cost - prior_cost
    last = len(before.totals) - 1
    worst["now"] = paid - before.totals[0]
    for n in range(1, ROUNDS):
        own, cost_n = step(env, own, series, n, act(env, own, series, n))
        prior, prior_n = step(env, prior, series, n, act(env, prior, series, n))
        paid = paid + cost_n - prior_n
        worst["later"] = np.maximum(worst.get("later", -np.inf), paid - before.totals[min(n, last)])
    known = cost - floor
    worst["consistent now"] = known - before.totals[0]
    for n in range(last + 1):
        gained = known + after.totals[n] - before.totals[min(n + 1, last)]
        worst["consistent later"] = np.maximum(worst.get("consistent later", -np.inf), gained)
    return {name: float(np.max(values)) for name, values in worst.items()}


def draw_carbon(env, rng, count):
    noise, drop, demand = env.efficiency_noise_max, env.drop_rate_max, env.demand_max
    series = {
        "demand": corners(rng, (ROUNDS, count), 0.0, demand, weights=(0.1, 0.5)),
        "renewables": np.zeros((ROUNDS, count)),
        "efficiency_noise": corners(rng, (ROUNDS, count), -noise, noise, weights=(0.6, 0.1)),
        "drop_rate": corners(rng, (ROUNDS, count), 0.0, drop, weights=(0.4, 0.3)),
    }
    x = corners(rng, count, 0.0, env.backlog_max, weights=(0.2, 0.05)) * rng.choice([0.2, 1.0], size=count)
    # Half of the time the gaps are those of the two states; else they are larger.
    apart = rng.choice([0.0, 0.3, 1.0], size=count) * rng.uniform(-1.0, 1.0, size=count) * env.backlog_max
    other = np.clip(x + apart, 0.0, env.backlog_max)
    wider = rng.choice([0.0, 1.0], size=(2, count)) * rng.exponential(size=(2, count))
    gaps = (np.maximum(x - other, 0.0) + wider[0], np.maximum(other - x, 0.0) + wider[1])
    zero = np.zeros(count)
    wished = (x + series["demand"][0]) / env.efficiency
    action = wished * (
        1.0 + rng.choice([-1.0, -0.5, -0.1, 0.0, 0.1, 1.0], size=count) * rng.uniform(size=count)
    )
    action = np.where(rng.uniform(size=count) < 0.05, 0.0, action)
    return CarbonState(x, zero, zero + 1.0), CarbonState(other, zero, zero + 1.0), gaps, series, action


def draw_inference(env, rng, count):
    series = {
        "demand": corners(rng, (ROUNDS, count), 0.0, env.demand_max, weights=(0.1, 0.4)),
        "renewables": rng.choice([0.0, 1.0, 3.0, 6.0], size=(ROUNDS, count))
        * rng.uniform(size=(ROUNDS, count)),
        "discharge_rate": corners(rng, (ROUNDS, count), env.discharge_rate_min, 1.0, weights=(0.2, 0.6)),
        "charge_rate": corners(rng, (ROUNDS, count), env.charge_rate_min, 1.0, weights=(0.6, 0.2)),
    }
    # Renewables for which the prior's own shortfall is largest, in some rounds.
    slack = min(np.sqrt(env.carbon_slack), env.demand_max)
    worst = (env.demand_max - slack) / env.structure.charge_rate
    pick = rng.uniform(size=(ROUNDS, count)) < 0.3
    series["renewables"][pick] = worst
    x = corners(rng, count, 0.0, env.capacity, weights=(0.5, 0.05)) * rng.choice([0.2, 1.0], size=count)
    apart = rng.choice([0.0, 0.2, 1.0], size=count) * rng.uniform(-0.3, 1.0, size=count) * env.capacity
    other = np.clip(x + apart, 0.0, env.capacity)
    gaps = (np.maximum(other - x, 0.0) + rng.choice([0.0, 1.0], size=count) * rng.exponential(size=count),)
    zero = np.zeros(count)
    own, prior = InferenceState(x, zero, zero + 1.0), InferenceState(other, zero, zero + 1.0)
    wished = act(env, own, series, 0)
    action = (
        wished
        + rng.choice([-1.0, -0.1, 0.0, 0.1, 1.0], size=count) * rng.uniform(size=count) * env.action_max
    )
    return own, prior, gaps, series, np.clip(action, 0.0, env.action_max)


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


def actual_gaps(structure, own, prior, gaps):
    if structure.kind == "carbon":
        yield "above", gaps[0], own.backlog - prior.backlog
        yield "below", gaps[1], prior.backlog - own.backlog
    else:
        yield "below", gaps[0], prior.charge - own.charge


class Loosened:
    """Mixed into a structure, it loosens the bound that `loose` names by 5 %."""

    def exposure(self, gaps, seen, prior, action, xp):
        exact = super().exposure(gaps, seen, prior, action, xp)
        first, *rest = exact.totals
        if self.loose == "now":
            return exact._replace(totals=(first / LOOSE, *rest))
        if self.loose == "later":
            return exact._replace(totals=(first, *(each / LOOSE for each in rest)))
        return exact

    def close(self, step, cost, epsilon, xp):
        floor, gaps = super().close(step, cost, epsilon, xp)
        if self.loose == "floor":
            floor = floor * LOOSE
        if self.loose == "above":
            gaps = (gaps[0] / LOOSE, *gaps[1:])
        if self.loose == "below":
            gaps = (*gaps[:-1], gaps[-1] / LOOSE)
        return floor, gaps


@dataclass(frozen=True)
class LoosenedCarbon(Loosened, CarbonStructure):
    loose: str = ""


@dataclass(frozen=True)
class LoosenedInference(Loosened, InferenceStructure):
    loose: str = ""


def loosened(structure, bound):
    cls = {"carbon": LoosenedCarbon, "inference": LoosenedInference}[structure.kind]
    return cls(**vars(structure), loose=bound)


SYSTEMS = {
    "carbon": tether.envs.Carbon(),
    "inference": tether.envs.Inference(),
    "carbon that drops much": tether.envs.Carbon(efficiency_noise_max=0.1, drop_rate_max=0.4, demand_max=1.0),
    "carbon near its cap": tether.envs.Carbon(backlog_max=4.0),
    "inference, large slack": tether.envs.Inference(carbon_slack=4.0, capacity=2.0, discharge_rate_min=0.2),
}
BOUNDS = {
    "carbon": ("now", "later", "floor", "above", "below"),
    "inference": ("now", "later", "floor", "below"),
}
