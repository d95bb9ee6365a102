"""Random search for a counterexample to any bound of a structure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from tether import _validate
from tether.certificates.structure import Structure

EPSILON = float(np.finfo(float).eps)
ROUNDS = 6
"""Rounds of the prior over which what an action costs later is added up, the action's own round included."""
WARM_UP = 3
"""Rounds in which the two trajectories may come apart before the bounds are looked at."""


class Situation(NamedTuple):
    """Where bounds are looked at; everything for `count` cases at once, cases first."""

    own: Any
    """State of the environment."""
    prior: Any
    """The prior's own state."""
    gaps: tuple[Any, ...]
    """Gaps that hold for them, as `Structure.refine` gives them."""
    series: Any
    """What is drawn, by name, [ROUNDS, count, ...]; for `compare` a sequence of rounds."""
    action: Any
    """What is played in the first round, [count, ...]."""


def falsify(
    env: Any,
    structure: Structure,
    episodes: Any = None,
    *,
    count: int = 50_000,
    seed: int = 0,
    draw: Callable[[Any, Structure, np.random.Generator, int], Situation] | None = None,
) -> dict[str, float]:
    """Simulate both trajectories and compare all that a structure says with what happens.

    An action is played once and the prior from the next round on, on the own trajectory and on the prior's, with the
    same draws, by the environment itself. Needs JAX.

    Args:
        env: A `tether.envs.Env`.
        structure: What is said of it.
        episodes: `tether.data.Episodes` that show how large the series get; half of their values are replaced by the
            ends of `env.limits()`, or of what the episodes have where there is no limit. Not needed with `draw`.
        count: Number of random cases.
        seed: Of the cases.
        draw: `draw(env, structure, rng, count) -> Situation`, for cases that are harder than those of played episodes.

    Returns:
        For each bound the largest amount by which it was broken, cost or state units; round-off or less if none was:
        `step i` (gap i, as `close` and `refine` leave it), `ceiling`, `floor`, `now` (t_0), `later` (t_n, n >= 1) and
        `next`, condition (2) of `tether.certificates.structured`. Condition (1) holds by what `Structured` does.
    """
    count = _validate.count("count", count)
    rng = np.random.default_rng(_validate.count("seed", seed, minimum=0))
    if draw is None and episodes is None:
        raise ValueError("falsify needs episodes of the system, or a function `draw` that makes up cases")
    import jax

    with jax.enable_x64(True):
        situation = (
            _played(env, structure, episodes, rng, count)
            if draw is None
            else draw(env, structure, rng, count)
        )
        return _broken(env, structure, situation)


class Compared(NamedTuple):
    """What a structure says of one round and of those after it, beside what happened."""

    excess: dict[str, Any]
    """By bound, how much more there was than it says; at most round-off if it holds (see `falsify`)."""
    size: Any
    """Of the costs that were compared: what their round-off is proportional to."""
    own: Any
    """State of the environment after the round."""
    prior: Any
    """The prior's own state after the round."""
    gaps: tuple[Any, ...]
    """What the structure says of them then."""


def compare(
    structure: Structure,
    system: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]],
    situation: Situation,
    cost_floor: float,
    xp: Any = np,
    entries: Callable[[Any], Any] = lambda action: action,
) -> Compared:
    """Play a round and those after it on both trajectories, and compare; of single numbers or of many cases at once.

    Args:
        structure: What is said.
        system: `system(state, draw, action) -> (observation, prior's action, cost, next state)`; with action None the
            prior's is played.
        situation: Where; its series is a sequence, one entry a round.
        cost_floor: Of the contract.
        xp: Array namespace to compute in.
        entries: Makes of an action what a structure takes: a number, or n of them.
    """
    own, prior, gaps, draws, action = situation
    _, _, prior_cost, prior_next = system(prior, draws[0], None)
    observation, wish, cost, own_next = system(own, draws[0], action)
    before = structure.exposure(gaps, structure.read(observation), entries(wish), entries(action), xp)
    floor, pending = structure.close(before.step, cost, EPSILON, xp)
    floor = xp.maximum(xp.maximum(floor, cost - before.totals[0]), cost_floor)  # as `Structured.update` does
    excess = {
        "ceiling": cost - before.ceiling,
        "floor": floor - prior_cost,
        "now": cost - prior_cost - before.totals[0],
    }
    paid, size, last = (
        cost - prior_cost,
        abs(cost) + abs(prior_cost) + structure.scale,
        len(before.totals) - 1,
    )
    later, state, prior_state = [], own_next, prior_next
    for n, draw in enumerate(draws[1:], start=1):
        prior_seen, _, prior_cost, prior_state = system(prior_state, draw, None)
        observation, wish, cost_n, state = system(state, draw, None)
        if n == 1:
            seen = structure.read(observation)
            left = structure.refine(pending, seen, EPSILON, xp)
            there = structure.apart(seen, structure.read(prior_seen), xp)
            for i, pair in enumerate(zip(there, left, strict=True)):
                excess[f"step {i}"] = pair[0] - pair[1]
            totals = structure.exposure(left, seen, entries(wish), entries(wish), xp).totals
            excess["next"] = reduce(
                xp.maximum,
                [cost - floor + total - before.totals[min(k + 1, last)] for k, total in enumerate(totals)],
            )
        paid, size = paid + cost_n - prior_cost, size + abs(cost_n) + abs(prior_cost)
        later.append(paid - before.totals[min(n, last)])
    excess["later"] = reduce(xp.maximum, later)
    return Compared(excess, size, own_next, prior_next, left)


def _broken(env: Any, structure: Structure, situation: Situation) -> dict[str, float]:
    draws = [_at(situation.series, n) for n in range(ROUNDS)]
    found = compare(
        structure, _batched(env), situation._replace(series=draws), env.cost_floor, entries=_entries
    )
    return {name: float(np.max(amount)) for name, amount in found.excess.items()}


def _played(env: Any, structure: Structure, episodes: Any, rng: np.random.Generator, count: int) -> Situation:
    """Trajectories that came apart in up to `WARM_UP` rounds of any actions; gaps as carried, or as they really are."""
    import jax

    env.check(episodes)
    system = _batched(env)
    series = {name: _extremes(env, name, episodes[name], rng, count) for name in env.drawn_names}
    own = jax.tree.map(lambda number: np.broadcast_to(number, (count, *np.shape(number))), env.initial())
    prior, pending = own, structure.start(np.zeros(count))
    quiet = rng.integers(WARM_UP + 1, size=count)
    exact = rng.random(count) < 0.5
    for n in range(WARM_UP + 1):
        drawn = _at(series, n)
        prior_seen, _, _, prior_next = system(prior, drawn, None)
        observation, wish, _, _ = system(own, drawn, None)
        seen = structure.read(observation)
        gaps = structure.refine(pending, seen, EPSILON, np)
        gaps = tuple(
            np.where(exact, actual, gap)
            for gap, actual in zip(gaps, structure.apart(seen, structure.read(prior_seen), np), strict=True)
        )
        spread = 1.0 + np.max(np.abs(wish))
        shape = (count, *[1] * (wish.ndim - 1))
        size = rng.choice([0.0, 0.01, 0.1, 1.0], size=shape) * rng.uniform(-spread, spread, size=wish.shape)
        action = np.clip(wish + np.where(np.reshape(quiet > n, shape), 0.0, size), env.low, env.high)
        action = np.moveaxis(np.array(_clipped(structure, _entries(action))), -1, 0)
        if n < WARM_UP:
            step = structure.exposure(gaps, seen, _entries(wish), _entries(action), np).step
            _, _, cost, own = system(own, drawn, action)
            _, pending = structure.close(step, cost, EPSILON, np)
            prior = prior_next
    return Situation(own, prior, gaps, {name: values[WARM_UP:] for name, values in series.items()}, action)


def _clipped(structure: Structure, entries: Any) -> Any:
    low, high = np.asarray(structure.low), np.asarray(structure.high)
    if low.ndim or high.ndim:
        low, high = (np.broadcast_to(each, (len(entries),))[:, None] for each in (low, high))
    return np.clip(entries, low, high)


def _extremes(env: Any, name: str, values: Any, rng: np.random.Generator, count: int) -> Any:
    """[WARM_UP + ROUNDS, count, ...] values of the episodes, half of them replaced by the ends of their range."""
    size = (WARM_UP + ROUNDS, count)
    drawn = values[rng.integers(values.shape[0], size=size), rng.integers(values.shape[1], size=size)]
    low, high = env.limits().get(name, (-np.inf, np.inf))
    low, high = (
        end if np.isfinite(end) else seen for end, seen in ((low, values.min()), (high, values.max()))
    )
    place = rng.random(drawn.shape)
    return np.where(place < 0.25, low, np.where(place > 0.75, high, drawn))


def _at(series: dict[str, Any], n: int) -> dict[str, Any]:
    return {name: values[n] for name, values in series.items()}


def _entries(action: Any) -> Any:
    """[count, n] as n rows, which a structure takes one by one; [count] as it is."""
    return np.moveaxis(action, 0, -1)


@lru_cache(maxsize=8)
def _batched(env: Any) -> Callable[[Any, dict[str, Any], Any], tuple[Any, Any, Any, Any]]:
    """(state, drawn, action or None for the prior's) to (observation [o, count], prior's action, cost, next state)."""
    import jax

    def one(state: Any, drawn: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        observation = env.observation(state, drawn)
        wish = env.prior(observation)
        after = env.step(state, drawn, wish if action is None else action)
        return observation, wish, after.cost, after.state

    compiled = jax.jit(jax.vmap(one))

    def played(state: Any, drawn: dict[str, Any], action: Any) -> tuple[Any, Any, Any, Any]:
        observation, wish, cost, after = jax.tree.map(np.asarray, compiled(state, drawn, action))
        return np.moveaxis(observation, 0, -1), wish, cost, after

    return played
