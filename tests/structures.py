"""Hard cases for `tether.certificates.falsify`, and structures with one bound loosened.

The two trajectories of a certificate, own and prior's, are drawn at the edge of the gaps that the structure is told,
with noise at its corners.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import asdict, dataclass

import numpy as np

import tether
from tether.certificates import CarbonStructure, CoolingStructure, InferenceStructure, falsify
from tether.certificates.falsify import ROUNDS, Situation
from tether.envs.base import namespace
from tether.envs.carbon import CarbonState
from tether.envs.cooling import CoolingState
from tether.envs.inference import InferenceState

LOOSE = 1.05


def counterexamples(env, structure, seed, count=200_000):
    """For each bound the largest amount by which it was broken; at most round-off if it holds."""
    draw = {"carbon": draw_carbon, "inference": draw_inference, "cooling": draw_cooling}[structure.kind]
    broken = falsify(env, structure, count=count, seed=seed, draw=draw)
    gaps = {"carbon": ("above", "below"), "inference": ("below",), "cooling": ("above", "below")}
    for i, name in enumerate(gaps[structure.kind]):
        broken[name] = broken.pop(f"gap {i}")
    return broken


def draw_carbon(env, structure, rng, count):
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
    own, prior = CarbonState(x, zero, zero + 1.0), CarbonState(other, zero, zero + 1.0)
    gaps = structure.refine(gaps, (x, series["demand"][0]), np)
    return Situation(own, prior, gaps, series, action)


def draw_inference(env, structure, rng, count):
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
    wished = env.prior(
        np.moveaxis(env.observe(own, {name: values[0] for name, values in series.items()}), 0, -1)
    )
    action = (
        wished
        + rng.choice([-1.0, -0.1, 0.0, 0.1, 1.0], size=count) * rng.uniform(size=count) * env.action_max
    )
    gaps = structure.refine(gaps, (x,), np)
    return Situation(own, prior, gaps, series, np.clip(action, 0.0, env.action_max))


def draw_cooling(env, structure, rng, count):
    """Days that are hot, cold or usual throughout, or change; rooms that are off by any amount."""
    kinds = rng.integers(4, size=(1, count, 1))
    load, heat = rng.choice([0.0, 3.0, 20.0], size=(2, ROUNDS, count, 2))
    outside = rng.choice([-10.0, 24.0, 60.0], size=(ROUNDS, count))
    load = np.where(kinds == 0, 20.0, np.where(kinds == 1, 0.0, np.where(kinds == 2, heat[:1], load)))
    outside = np.where(kinds[..., 0] == 0, 60.0, np.where(kinds[..., 0] == 1, -10.0, outside))
    series = {
        "heat_load": load,
        "outside": outside,
        "price": np.zeros((ROUNDS, count)),
        "effectiveness": corners(rng, (ROUNDS, count, 2), env.effectiveness_min, 1.0, weights=(0.4, 0.4)),
    }
    sizes = rng.choice([0.1, 1.0, 20.0], size=(2, count, 1)) * rng.choice([0.0, 1.0, 1.0], size=(2, count, 1))
    x = env.setpoint + sizes[0] * rng.normal(size=(count, 2))
    apart = sizes[1] * rng.normal(size=(count, 2))
    wider = rng.choice([0.0, 0.0, 0.3], size=(4, count)) * rng.exponential(size=(4, count))
    gaps = tuple(sign * apart[:, i] + wider[2 * i + (sign < 0)] for i in (0, 1) for sign in (1, -1))
    own, prior = CoolingState(x), CoolingState(x - apart)
    wished = env.prior(env.observe(own, {name: values[0] for name, values in series.items()}))
    action = wished + rng.choice([0.0, 0.1, 1.0, 8.0], size=(count, 1)) * rng.normal(size=(count, 2))
    return Situation(own, prior, gaps, series, np.clip(action, 0.0, env.action_max))


def corners(rng, shape, low, high, weights):
    """Uniform between `low` and `high`, with these probabilities at the two ends."""
    place = rng.uniform(size=shape)
    values = rng.uniform(low, high, size=shape)
    return np.where(place < weights[0], low, np.where(place > 1.0 - weights[1], high, values))


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
        return (floor * LOOSE if self.loose == "floor" else floor), gaps

    def refine(self, gaps, seen, xp):
        gaps = super().refine(gaps, seen, xp)
        above = 0.0 if self.loose != "above" else 1.0 - 1.0 / LOOSE
        below = 0.0 if self.loose != "below" else 1.0 - 1.0 / LOOSE
        shares = {1: (below,), 2: (above, below), 4: (above, below, above, below)}[len(gaps)]
        return tuple(gap - share * abs(gap) for gap, share in zip(gaps, shares, strict=True))


@dataclass(frozen=True)
class LoosenedCarbon(Loosened, CarbonStructure):
    loose: str = ""


@dataclass(frozen=True)
class LoosenedInference(Loosened, InferenceStructure):
    loose: str = ""


@dataclass(frozen=True)
class LoosenedCooling(Loosened, CoolingStructure):
    loose: str = ""


def loosened(structure, bound):
    cls = {"carbon": LoosenedCarbon, "inference": LoosenedInference, "cooling": LoosenedCooling}[
        structure.kind
    ]
    return cls(**asdict(structure), loose=bound)


SYSTEMS = {
    "carbon": tether.envs.Carbon(),
    "inference": tether.envs.Inference(),
    "cooling": tether.envs.Cooling(),
    "carbon that drops much": tether.envs.Carbon(efficiency_noise_max=0.1, drop_rate_max=0.4, demand_max=1.0),
    "carbon near its cap": tether.envs.Carbon(backlog_max=4.0),
    "inference, large slack": tether.envs.Inference(carbon_slack=4.0, capacity=2.0, discharge_rate_min=0.2),
    "cooling, uneven": tether.envs.Cooling(
        discomfort=(0.5, 3.0), wall=0.3, leak=0.1, band=0.0, gain=1.2, effectiveness_min=0.5
    ),
}
BOUNDS = {
    "carbon": ("now", "later", "floor", "above", "below"),
    "inference": ("now", "later", "floor", "below"),
    "cooling": ("now", "later", "floor", "above", "below"),
}


# Episodes with a script: how the proposal differs from the prior's action, as a share of it.
SCRIPTED = {name: dataclasses.replace(SYSTEMS[name], context=("script",)) for name in BOUNDS}


def hostile(observation, key):
    """What the script says; absurd values become NaN and infinity."""
    xp = namespace(observation)
    vector = observation.shape[0] == 7
    script = observation[6] if vector else observation[4]
    script = xp.where(script > 1e29, math.inf, xp.where(script < -1e29, math.nan, script))
    if vector:  # where electricity is dear, one room is treated contrary to the other
        other = xp.where(observation[3] > 0.5, 10.0 - script, script)
        return xp.stack([script, other]) * (0.4 * observation[:2] + 0.5)
    return script * (observation[0] + observation[3] + 1.0)


def episodes_for(env, count, rng, horizon=24):
    """Noise at its worst corners and the scripts of hostile policies."""
    shape = (count, horizon)
    series = {}
    for name, (low, high) in env.limits().items():
        worst = {"efficiency_noise": (0.7, 0.1), "discharge_rate": (0.1, 0.7), "charge_rate": (0.7, 0.1)}
        rooms = (2,) if name in ("heat_load", "effectiveness") else ()
        bottom, top = (18.0, 30.0) if name == "outside" else (-6.0, 6.0)
        ends = max(low, bottom), min(high, top)
        series[name] = corners(rng, (*shape, *rooms), *ends, worst.get(name, (0.4, 0.4)))
    rounds = np.arange(horizon)
    strike = rng.integers(horizon, size=(count, 1))
    # Too little work or cooling is what hurts, too much in the inference system.
    bad, good = (10.0, 0.0) if isinstance(env, tether.envs.Inference) else (0.0, 10.0)
    follow = np.full(shape, 1.0)
    kinds = np.stack(
        [
            np.full(shape, bad),
            np.where(rounds < strike, good, bad) + 0.0 * follow,
            np.where(rounds == strike, bad, 1.1),
            np.where(rounds % 2 == strike % 2, bad, good),
            rng.exponential(size=shape),
            rng.choice([bad, good, 1e30, -1e30, 1e20], size=shape),
        ]
    )
    series["script"] = kinds[rng.integers(len(kinds), size=count), np.arange(count)]
    if "charge_rate" in series:
        set_traps(env, series, rng)
    if "heat_load" in series:  # some episodes are too hot for any unit from some hour on
        hot = (rounds >= rng.integers(horizon, size=(count, 1))) & (rng.random((count, 1)) < 0.25)
        series["heat_load"][hot], series["outside"][hot], series["effectiveness"][hot] = 20.0, 60.0, 1.0
    return tether.data.Episodes(series)


def set_traps(env, series, rng):
    """In a third of the episodes: spend unseen what the battery would have kept, where it is missed most.

    In one round the prior would keep just so much; in the next its own shortfall is the largest possible.
    """
    count, horizon = series["demand"].shape
    trapped = np.flatnonzero(rng.uniform(size=count) < 1.0 / 3.0)[:, None]
    kept = np.exp(rng.uniform(np.log(1e-3), np.log(0.3), size=trapped.shape))
    due = (env.demand_max - math.sqrt(env.carbon_slack)) / env.structure.charge_rate
    first, second = np.arange(0, horizon, 2)[None, :], np.arange(1, horizon, 2)[None, :]
    series["demand"][trapped, first], series["demand"][trapped, second] = 3.0, env.demand_max
    series["renewables"][trapped, first] = (3.0 + kept) / env.charge_rate_min
    series["renewables"][trapped, second] = due
    series["charge_rate"][trapped, np.arange(horizon)[None, :]] = env.charge_rate_min
    series["discharge_rate"][trapped, np.arange(horizon)[None, :]] = 1.0
    series["script"][trapped, first], series["script"][trapped, second] = 10.0, -1e30


CONTRACTS = ((0.0, 2.0), (2.0, 0.3), (10.0, 6.0), (0.0, 0.01), (0.0, 0.0))
