"""How much of what could be allowed a certificate allows: its safe set beside the largest that keeps the promise.

On the carbon and the inference system a backup keeps every later excess at or below 0 (`clear`, `idle`). So an action
can be made up for later iff the promise is kept in its own round whatever is drawn, and the largest robust safe set is

    { a :  A + c(a, draw) - (1 + lam) c+(draw) <= h b   for every draw },

found here by brute force over a grid of draws, with nothing of the certificate's mathematics. A and the prior's state
are either what the certificate knows of them (its account and gaps), or what they really are, which nobody is told
online.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.bench.speed import Measurement
from tether.certificates import Box, Outcome, Structured
from tether.core.contract import Contract
from tether.core.ops import NUMPY
from tether.data.episodes import Episodes
from tether.systems.base import Env
from tether.systems.carbon.env import Carbon
from tether.systems.carbon.synthetic import synthetic_carbon
from tether.systems.inference.env import Inference
from tether.systems.inference.synthetic import synthetic_inference

Array = NDArray[np.float64]
GRID = 9
"""Values of each hidden series that are tried, its ends included."""
HALVINGS = 30
"""Of the interval in which the end of the largest safe set lies."""
LEAST = 1e-3
"""Deviations that are allowed at most so far are not compared: there is nothing to allow. Action units."""


class Allowed(NamedTuple):
    """What is allowed towards the extreme proposal, as shares of the largest that could be, one for each round."""

    known: Array
    """Of the largest with the account and the gaps that the certificate knows."""
    true: Array
    """Of the largest with the account and the prior's state as they really are."""


def allowed_shares(env: Env, contract: Contract, episodes: Episodes, extreme: float) -> Allowed:
    """Play `extreme` (0, or the largest action) and the prior by turns through the guard, and compare in each round.

    Args:
        env: The carbon or the inference system.
        contract: The promise.
        episodes: What is drawn.
        extreme: The proposal; in every other stretch of rounds the prior is played, so that slack is earned.
    """
    certificate = Structured(contract, env.structure)
    count = len(episodes)
    zero: Any = np.zeros(count)
    own = prior_state = type(env.initial())(*(zero + number for number in env.initial()))
    memory, paid = certificate.start(NUMPY, zero), zero
    strikes = np.random.default_rng(0).uniform(size=(count, contract.horizon)) < 0.5
    box = Box(env.low, env.high, env.norm)
    shares: dict[str, list[Array]] = {"known": [], "true": []}
    for h in range(contract.horizon):
        drawn = {name: episodes[name][:, h] for name in env.series}
        observation = env.observe(own, drawn)
        prior = env.prior(np.moveaxis(observation, 0, -1))
        opened = certificate.open(memory, observation, NUMPY)
        proposal = zero + extreme
        reached = certificate.choose(opened, proposal, prior, box, NUMPY).action
        situations: dict[str, tuple[Any, list[Any]]] = {
            "known": (memory.account, _prior_states(opened.gaps, own)),
            "true": (paid, [prior_state]),
        }
        for name, (account, states) in situations.items():
            limit = (h + 1) * contract.b - account
            farthest = _farthest(env, contract.lam, own, states, drawn, prior, extreme, limit)
            compared = np.abs(farthest - prior) > LEAST
            shares[name].append(
                (np.abs(reached - prior) / np.where(compared, np.abs(farthest - prior), 1.0))[compared]
            )
        choice = certificate.choose(opened, np.where(strikes[:, h], proposal, prior), prior, box, NUMPY)
        prior_action = env.prior(np.moveaxis(env.observe(prior_state, drawn), 0, -1))
        own, _, cost = env.step(own, drawn, choice.action)
        prior_state, _, prior_cost = env.step(prior_state, drawn, prior_action)
        memory = certificate.update(memory, choice.taken, Outcome(cost), NUMPY)
        paid = paid + cost - (1.0 + contract.lam) * prior_cost
    return Allowed(np.concatenate(shares["known"]), np.concatenate(shares["true"]))


def _prior_states(gaps: Any, own: Any) -> list[Any]:
    """The prior's states at the ends of what the gaps allow; between them nothing is worse."""
    entry = own._fields[0]
    above, below = (gaps[0], gaps[1]) if len(gaps) > 1 else (0.0 * gaps[0], gaps[0])
    level = getattr(own, entry)
    return [own._replace(**{entry: level - above}), own._replace(**{entry: level + below})]


def _farthest(
    env: Env, lam: float, own: Any, states: list[Any], drawn: Any, prior: Array, extreme: float, limit: Array
) -> Array:
    """The action nearest to `extreme`, from the prior's on, whose excess is within the limit whatever is drawn."""
    prior_costs = []
    grids = [np.linspace(*env.limits()[name], GRID) for name in env.hidden]
    combinations = [dict(zip(env.hidden, values, strict=True)) for values in _products(grids)]
    for hidden in combinations:
        now = {**drawn, **hidden}
        costs = [
            env.step(state, now, env.prior(np.moveaxis(env.observe(state, now), 0, -1))).cost
            for state in states
        ]
        prior_costs.append(np.min(costs, axis=0))

    def safe(action: Array) -> Any:
        worst = np.full(len(prior), -math.inf)
        for hidden, prior_cost in zip(combinations, prior_costs, strict=True):
            cost = env.step(own, {**drawn, **hidden}, action).cost
            worst = np.maximum(worst, cost - (1.0 + lam) * prior_cost)
        return worst <= limit

    inside, outside = prior.copy(), np.full(len(prior), extreme)
    outside = np.where(safe(prior), outside, prior)
    inside = np.where(safe(outside), outside, inside)
    for _ in range(HALVINGS):
        middle = 0.5 * (inside + outside)
        held = safe(middle)
        inside, outside = np.where(held, middle, inside), np.where(held, outside, middle)
    return np.asarray(inside)


def _products(grids: list[Array]) -> list[tuple[float, ...]]:
    return [
        tuple(float(entry) for entry in point)
        for point in np.stack(np.meshgrid(*grids), -1).reshape(-1, len(grids))
    ]


SETTINGS = (("carbon", 2.0, 2.0, 0.95), ("inference", 5.0, 0.1, 0.9))
"""System, lam, b, and the share that should be allowed."""


def bench_sets(seeds: int, episodes: int) -> Iterator[Measurement]:
    """The shares that are allowed, over seeds; see the module.

    Args:
        seeds: 0 to `seeds` - 1, of the episodes.
        episodes: Of each seed.
    """
    for name, lam, b, wanted in SETTINGS:
        env: Env = {"carbon": Carbon, "inference": Inference}[name]()
        draw = {"carbon": synthetic_carbon, "inference": synthetic_inference}[name]
        extreme = 0.0 if name == "carbon" else env.high
        found = [
            allowed_shares(env, env.contract(lam, b), draw(seed, episodes), extreme) for seed in range(seeds)
        ]
        where = f"{name} ({lam:g}, {b:g})"
        rows = {
            f"{where}, same knowledge, mean": [float(np.mean(each.known)) for each in found],
            f"{where}, same knowledge, 1 % quantile": [
                float(np.quantile(each.known, 0.01)) for each in found
            ],
            f"{where}, prior's state known, mean": [float(np.mean(each.true)) for each in found],
        }
        for what, values in rows.items():
            target = f">= {wanted:g}" if "same" in what else ""
            middle = float(np.median(values))
            met = middle >= wanted if target else None
            yield Measurement(what, middle, min(values), max(values), "share", target, met)
