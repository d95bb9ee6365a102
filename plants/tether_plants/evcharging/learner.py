"""Our learner for the car park: one rule for every car, eight weights, found by the cross-entropy method in a copy.

The copy has the cars of the training days, their batteries' exact flow and the guard (in coarse shares of the way), but
not the overload of cables. It is compiled by JAX; candidates are drawn around the best so far.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tether.core.ops import jax_ops
from tether_plants.evcharging.adapter import CARBON, PROFIT
from tether_plants.evcharging.structure import AMPERE, CHARGERS, FULL, HOURS, ROUNDS, flow
from tether_plants.plant import Learned, Plant, find
from tether_plants.search import cross_entropy

CARS, DAYS = 60, 8
OPS = jax_ops()
SHARES = jnp.array([1.0, 0.75, 0.5, 0.25, 0.0])
START = np.array([3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])


class Days(NamedTuple):
    """Cars and grid of some days."""

    car: Any
    """[D, cars, 4] round of arrival, of departure, named for it, kWh."""
    grid: Any
    """[D, 289, 4] kg CO2/kWh now, mean and least forecast, and the time of day."""


def features(missing: Any, left: Any, grid: Any, xp: Any = jnp) -> Any:
    """[..., cars, 8] of each car; `grid` is [..., 4]."""
    now, mean, least, time = (grid[..., i : i + 1] + 0.0 * missing for i in range(4))
    spare = xp.clip(left * HOURS - missing / FULL, -1.0, 6.0)
    angle = 2.0 * np.pi * time
    parts = [1.0 + 0.0 * missing, 20.0 * (now - mean), 20.0 * (now - least), 5.0 * now]
    return xp.stack([*parts, spare, missing / 10.0, xp.sin(angle), xp.cos(angle)], axis=-1)


def wish(weights: Any, missing: Any, left: Any, grid: Any, xp: Any = jnp) -> Any:
    """Pilot signals (A) that the rule asks for."""
    score = (features(missing, left, grid, xp) * weights).sum(axis=-1)
    return 32.0 / (1.0 + xp.exp(-xp.clip(score, -30.0, 30.0)))


@partial(jax.jit, static_argnames="guarded")
def earned(weights: Any, days: Days, lam: Any, b: Any, guarded: bool) -> Any:
    """Mean reward of a day, dollars."""
    arrival, departure, named, energy = (days.car[..., i] for i in range(4))

    def step(carry: Any, h: Any) -> Any:
        own, prior, account = carry
        own, prior = (jnp.where(arrival == h, energy, each) for each in (own, prior))
        there = ((arrival <= h) & (h < departure)).astype(own.dtype)
        left = named - h
        asked = 8.0 * jnp.ceil(wish(weights, own, left, days.grid[:, h]) / 8.0 - 1e-6)
        shares = SHARES if guarded else SHARES[:1]
        signals = 8.0 * jnp.ceil((32.0 + shares[:, None, None] * (asked - 32.0)) / 8.0 - 1e-6)
        after, prior_after = flow(own, AMPERE * signals, HOURS, OPS), flow(prior, FULL, HOURS, OPS)
        rest = jnp.maximum(left - 1.0, 0.0) * HOURS
        lacks = flow(after, FULL, rest, OPS) - (1.0 + lam) * flow(prior_after, FULL, rest, OPS)
        due, waiting = there * (left == 1.0), there * (left > 1.0)
        first = (due * (after - (1.0 + lam) * prior_after)).sum(-1)
        total = first + (waiting * jnp.maximum(lacks, 0.0)).sum(-1)
        safe = (account + first <= (h + 1) * b) & (account + total <= (h + 2) * b)
        chosen = jnp.argmax(safe.at[-1].set(True), axis=0) if guarded else 0 * account.astype(int)
        after = jnp.take_along_axis(after, chosen[None, :, None], axis=0)[0]
        account = account + jnp.take_along_axis(first, chosen[None], axis=0)[0]
        account = jnp.minimum(account, (h + 1) * b)
        delivered = (there * (own - after)).sum(-1)
        reward = delivered * (PROFIT - CARBON * days.grid[:, h + 1, 0])
        kept = [jnp.where(there > 0.0, each, 0.0) for each in (after, prior_after)]
        return (*kept, account), reward.mean()

    nothing = jnp.zeros_like(energy)
    _, rewards = jax.lax.scan(step, (nothing, nothing, nothing[:, 0]), jnp.arange(ROUNDS))
    return rewards.sum()


def drawn(plant: Plant, episodes: Any) -> Days:
    """The cars and the grid of these days, from the original."""
    env: Any = plant.make()
    cars, grids = np.zeros((len(episodes), CARS, 4)), []
    cars[..., :2] = -1.0
    for day, episode in enumerate(episodes):
        env.reset(options={"episode": int(episode)})
        there = [
            (max(car.arrival, 1), car.departure, car.estimated_departure, car.requested_energy)
            for car in env.original._evs
        ]
        cars[day, : min(len(there), CARS)] = there[:CARS]
        moer = env.original.moer
        clock = np.arange(ROUNDS + 1) / ROUNDS
        grids.append(np.stack([moer[:, 0], moer[:, 1:].mean(1), moer[:, 1:].min(1), clock], axis=-1))
    return Days(jnp.asarray(cars), jnp.asarray(np.stack(grids)))


@cache
def _found(plant_name: str, seed: int, guarded: bool) -> Any:
    """The weights; found once, whatever the guard knows."""
    plant = find(plant_name)
    days = drawn(plant, list(plant.episodes(seed, 1)[0])[:DAYS])
    lam, b = plant.contract.lam, plant.contract.b
    score = jax.jit(jax.vmap(lambda weights: earned(weights, days, lam, b, guarded)))
    return cross_entropy(lambda tried: score(jnp.asarray(tried)), START, seed)


def learner(plant: Plant, seed: int, certificate: str | None) -> Learned:
    """The rule, trained through the copy's guard if there is to be one."""
    weights = _found(plant.name, seed, certificate is not None)

    def rows(observations: Any, _features: Any) -> Any:
        missing, left = observations[:, :CHARGERS], observations[:, CHARGERS : 2 * CHARGERS]
        return wish(weights, missing, left, observations[:, 3 * CHARGERS : 3 * CHARGERS + 4], np)

    def propose(_env: Any, observation: Any) -> Any:
        return rows(np.asarray(observation)[None], None)[0]

    return Learned(propose, rows, training={"days": DAYS})
