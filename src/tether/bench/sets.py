"""How much of what could be allowed a certificate allows: its safe set beside the largest that keeps the promise.

Some structures name a backup that keeps every later excess at or below 0 (`Structure.recovery`). An action can then be
made up for later iff the promise is kept in its own round whatever is drawn, and the largest robust safe set is

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
from tether.simulate.eager import Many
from tether.systems import registry
from tether.systems.base import Env
from tether.systems.system import SafeSetGoal, System

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


def allowed_shares(env: Env, contract: Contract, episodes: Episodes) -> Allowed:
    """Play the costlier end of the actions and the prior by turns through the guard, and compare in each round.

    In every other stretch of rounds the prior is played, so that slack is earned.

    Args:
        env: A system whose actions and state (its first entry, which the gaps are about) are numbers, and whose
            structure has a `recovery`.
        contract: The promise.
        episodes: What is drawn.
    """
    certificate, many = Structured(contract, env.structure), Many(env)
    count = len(episodes)
    zero: Any = np.zeros(count)
    own = prior_state = many.initial(count)
    extreme = _costlier_end(env, many, episodes)
    memory, paid = certificate.start(NUMPY, zero), zero
    strikes = np.random.default_rng(0).uniform(size=(count, contract.horizon)) < 0.5
    box = Box(env.low, env.high, env.norm)
    shares: dict[str, list[Array]] = {"known": [], "true": []}
    for h in range(contract.horizon):
        drawn = {name: episodes[name][:, h] for name in env.series}
        observation, prior = many.look(own, drawn)
        opened = certificate.open(memory, np.moveaxis(observation, -1, 0), NUMPY)
        proposal = zero + extreme
        reached = certificate.choose(opened, proposal, prior, box, NUMPY).action
        situations: dict[str, tuple[Any, list[Any]]] = {
            "known": (memory.account, _prior_states(env.structure.gap_names, opened.gaps, own)),
            "true": (paid, [prior_state]),
        }
        for name, (account, states) in situations.items():
            limit = (h + 1) * contract.b - account
            farthest = _farthest(many, contract.lam, own, states, drawn, prior, extreme, limit)
            compared = np.abs(farthest - prior) > LEAST
            shares[name].append(
                (np.abs(reached - prior) / np.where(compared, np.abs(farthest - prior), 1.0))[compared]
            )
        choice = certificate.choose(opened, np.where(strikes[:, h], proposal, prior), prior, box, NUMPY)
        prior_action = many.look(prior_state, drawn)[1]
        own, _, cost = many.step(own, drawn, choice.action)
        prior_state, _, prior_cost = many.step(prior_state, drawn, prior_action)
        memory = certificate.update(memory, choice.taken, Outcome(cost), NUMPY)
        paid = paid + cost - (1.0 + contract.lam) * prior_cost
    return Allowed(np.concatenate(shares["known"]), np.concatenate(shares["true"]))


def _costlier_end(env: Env, many: Many, episodes: Episodes) -> float:
    """The end of the actions at which the first round costs more."""
    drawn = {name: episodes[name][:, 0] for name in env.series}
    start = many.initial(len(episodes))
    ends = [float(end) for end in env.action_range()]
    costs = [np.mean(many.step(start, drawn, np.full(len(episodes), end)).cost) for end in ends]
    return ends[int(np.argmax(costs))]


def _prior_states(names: tuple[str, ...], gaps: Any, own: Any) -> list[Any]:
    """The prior's states at the ends of what the gaps allow; between them nothing is worse."""
    entry = own._fields[0]
    level = getattr(own, entry)
    by_name = dict(zip(names, gaps, strict=True))
    ends = level - by_name.get("above", 0.0), level + by_name.get("below", 0.0)
    return [own._replace(**{entry: end}) for end in ends]


def _farthest(
    many: Many,
    lam: float,
    own: Any,
    states: list[Any],
    drawn: Any,
    prior: Array,
    extreme: float,
    limit: Array,
) -> Array:
    """The action nearest to `extreme`, from the prior's on, whose excess is within the limit whatever is drawn."""
    prior_costs, env = [], many.env
    grids = [np.linspace(*env.limits()[name], GRID) for name in env.hidden]
    combinations = [
        {name: np.full(len(prior), value) for name, value in zip(env.hidden, values, strict=True)}
        for values in _products(grids)
    ]
    for hidden in combinations:
        now = {**drawn, **hidden}
        costs = [many.step(state, now, many.look(state, now)[1]).cost for state in states]
        prior_costs.append(np.min(costs, axis=0))

    def safe(action: Array) -> Any:
        worst = np.full(len(prior), -math.inf)
        for hidden, prior_cost in zip(combinations, prior_costs, strict=True):
            cost = many.step(own, {**drawn, **hidden}, action).cost
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


def measured() -> dict[str, tuple[System, SafeSetGoal]]:
    """The installed systems for which the largest safe set is known, by name."""
    found = {name: registry.find(name) for name in registry.names()}
    return {name: (each, each.safe_sets) for name, each in found.items() if each.safe_sets is not None}


def bench_sets(seeds: int, episodes: int) -> Iterator[Measurement]:
    """The shares that are allowed, over seeds; see the module.

    Args:
        seeds: 0 to `seeds` - 1, of the episodes.
        episodes: Of each seed.
    """
    for name, (system, (lam, b, wanted)) in measured().items():
        env = system.env()
        if env.structure.recovery is None:
            raise ValueError(
                f"{type(env.structure).__name__} names no recovery; the largest set is not known"
            )
        found = [
            allowed_shares(env, env.contract(lam, b), system.draw(seed, episodes)) for seed in range(seeds)
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
