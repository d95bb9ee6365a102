"""Learners that nobody would trust, with no guard and with each certificate: what the guard is worth by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether.core.audit import Audit, audit
from tether.core.contract import Contract
from tether.core.run import Run
from tether.data.episodes import Episodes
from tether.simulate.rollout import rollout
from tether.systems import registry
from tether.systems.base import Env
from tether.systems.certified import family_of, member

HALVINGS = 48
"""Of the interval in which an entry of the greedy action lies."""
DOUBLINGS = 30
"""Of the distance from the prior's action, where there is no largest or smallest action."""
SWEEPS = 4
"""Over the entries of a vector; each is the best for the others as they are."""


@dataclass(frozen=True)
class Greedy:
    """Maximises the reward of the round at hand and never thinks of what it leaves behind.

    The reward is that of the environment's own `step`, from the state and the series that the observation shows (see
    `tether.systems.base.Env.shown`), with the hidden series at the middle of their limits. Each entry of the action is
    where its derivative, by `jax.grad`, changes its sign, found by bisection: the maximum of a concave reward.
    """

    env: Env

    def __call__(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """Observation [o] to the action that promises the largest reward."""
        slope = jax.grad(self._reward(jnp.asarray(observation)))
        action = jnp.asarray(self.env.prior(observation), dtype=jnp.result_type(float))
        flat = jnp.reshape(action, (-1,))
        low, high = (jnp.broadcast_to(jnp.asarray(end, flat.dtype), flat.shape) for end in self._box())

        def along(entry: Any, others: Any, i: Any) -> Any:
            """The derivative by entry i where that is `entry`."""
            return jnp.reshape(slope(jnp.reshape(others.at[i].set(entry), action.shape)), (-1,))[i]

        def better(count: int, flat: Any) -> Any:
            i = count % flat.shape[0]
            return flat.at[i].set(_root(lambda entry: along(entry, flat, i), low[i], high[i], flat[i]))

        sweeps = flat.shape[0] * (SWEEPS if flat.shape[0] > 1 else 1)
        return jnp.reshape(jax.lax.fori_loop(0, sweeps, better, flat), action.shape)

    def _box(self) -> tuple[Any, Any]:
        return np.ravel(self.env.low), np.ravel(self.env.high)

    def _reward(self, observation: Any) -> Callable[[Any], Any]:
        """The expected reward of the round as a function of the action."""
        state, drawn = self.env.shown(observation)
        missing = [name for name in self.env.series if name not in drawn and name not in self.env.hidden]
        if missing:
            raise ValueError(
                f"the greedy learner must see {', '.join(missing)}, which the observation "
                f"{self.env.observation_names} of {type(self.env).__name__} does not name"
            )
        drawn = drawn | {name: jnp.asarray(middle) for name, middle in middles(self.env).items()}
        return lambda action: jnp.sum(self.env.step(state, drawn, action).reward)


def middles(env: Env) -> dict[str, Any]:
    """For each hidden series the middle of what it can be, as `Env.search_ranges` or `Env.limits` say."""
    known, found = {**env.limits(), **env.search_ranges()}, {}
    for name in env.hidden:
        middle = 0.5 * sum(np.asarray(end, dtype=np.float64) for end in known.get(name, (np.nan, np.nan)))
        if not np.all(np.isfinite(middle)):
            raise ValueError(
                f"the hidden series {name!r} has no middle: give it a finite range in "
                f"{type(env).__name__}.limits or {type(env).__name__}.search_ranges"
            )
        found[name] = middle
    return found


def _root(slope: Callable[[Any], Any], low: Any, high: Any, start: Any) -> Any:
    """Where a falling function changes its sign between `low` and `high`; an end, if it does not.

    Where an end is infinite, it is looked for from `start` on, twice as far each time.
    """

    def farther(sign: float, end: Any) -> Any:
        def double(_: int, far: Any) -> Any:
            return jnp.where(sign * slope(start + sign * far) > 0.0, 2.0 * far, far)

        far = jax.lax.fori_loop(0, DOUBLINGS, double, 1.0 + abs(start))
        return jnp.where(jnp.isfinite(end), end, start + sign * far)

    def halve(_: int, bracket: tuple[Any, Any]) -> tuple[Any, Any]:
        least, most = bracket
        middle = 0.5 * (least + most)
        rising = slope(middle) > 0.0
        return jnp.where(rising, middle, least), jnp.where(rising, most, middle)

    least, most = jax.lax.fori_loop(0, HALVINGS, halve, (farther(-1.0, low), farther(1.0, high)))
    return 0.5 * (least + most)


LEARNERS = ("random", "greedy")
"""Of the study."""


class Uniform(eqx.Module):
    """Proposes any action of a range with equal probability: a learner before its first update."""

    low: Any
    """[*action_shape]"""
    high: Any
    """[*action_shape]"""

    @classmethod
    def of(cls, env: Env) -> Uniform:
        """That of an environment: its `action_range`, up to what its system says of a random learner."""
        system = registry.of_env(env)
        most = None if system is None else system.defaults.random_high
        low, high = env.action_range()
        return cls(low, high if most is None else np.full(env.action_shape, most))

    @property
    def ends(self) -> tuple[Any, Any]:
        """(low, high)."""
        return self.low, self.high

    def __call__(self, observation: Any, key: Any) -> Any:
        """A new draw each round."""
        shape, dtype = np.shape(self.low), observation.dtype
        return jax.random.uniform(key, shape, dtype, minval=self.low, maxval=self.high)


class _Hostile(eqx.Module):
    """One of `LEARNERS`."""

    greedy: Greedy = eqx.field(static=True)
    uniform: Uniform
    which: Any = eqx.field(converter=jnp.asarray)
    """Its place among them."""

    def __call__(self, observation: Any, key: Any) -> Any:
        """What it proposes."""
        return jnp.where(self.which == 0, self.uniform(observation, key), self.greedy(observation))


def guard_study(
    env: Env,
    contract: Contract,
    draw: Callable[[int], Episodes],
    seeds: Sequence[int],
    rules: Sequence[str] | None = None,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, Any]:
    """Play the prior, a random and a greedy learner, with no guard and with each certificate.

    Args:
        env: The system.
        contract: The promise.
        draw: The episodes of a seed.
        seeds: Of the episodes, where they are drawn, and of the random learner.
        rules: Certificates of the guard (`tether.systems.certified.FAMILY`); all that the system has if None.
        report: Called with (pieces done, pieces in all) after each piece of work.

    Returns:
        The part `guard` of `results.json` (see docs/results.md).
    """
    # One program for both learners: which of them plays is a number in it.
    learners = {name: _Hostile(Greedy(env), Uniform.of(env), place) for place, name in enumerate(LEARNERS)}
    guards: list[str | None] = [None, *(family_of(env) if rules is None else rules)]
    played: dict[tuple[str, str | None], list[tuple[Run, Audit]]] = {("prior", None): []}
    total = len(seeds) * (1 + len(learners) * len(guards))
    done = 0
    for seed in seeds:
        episodes = draw(seed)
        prior = rollout(env, env.prior, episodes, record="outcomes")
        played["prior", None].append((prior, audit(prior, prior, contract)))
        done += 1
        report(done, total)
        for name, learner in learners.items():
            for rule in guards:
                certificate = None if rule is None else member(rule, env, contract)
                run = rollout(env, learner, episodes, certificate, seed=seed, record="outcomes")
                played.setdefault((name, rule), []).append((run, audit(run, prior, contract)))
                done += 1
                report(done, total)
    first = {key: results[0][1] for key, results in played.items()}
    return {
        "lam": contract.lam,
        "b": contract.b,
        "episodes": len(episodes),
        "rows": [_row(name, rule, results) for (name, rule), results in played.items()],
        "bound": _quantiles(first["prior", None].bounds),
        "curves": [_curve(name, rule, each) for (name, rule), each in first.items()],
    }


def _row(learner: str, rule: str | None, results: list[tuple[Run, Audit]]) -> dict[str, Any]:
    runs, audits = zip(*results, strict=True)
    return {
        "learner": learner,
        "guard": rule or "none",
        "rewards": [float(run.returns.mean()) for run in runs],
        "costs": [float(run.total_costs.mean()) for run in runs],
        "worst_cost": max(float(run.total_costs.max()) for run in runs),
        "violation_rates": [each.violation_rate for each in audits],
        "largest_share": max(float(np.max(_share(each))) for each in audits),
        "worst_margin": min(each.worst_margin for each in audits),
    }


def _curve(learner: str, rule: str | None, verdict: Audit) -> dict[str, Any]:
    """Over the rounds, for the first seed: the spread of J_h, and the largest J_h / bound_h."""
    return {
        "learner": learner,
        "guard": rule or "none",
        "cost": _quantiles(verdict.cumulative_costs),
        "worst_share": np.max(_share(verdict), axis=0).tolist(),
    }


def _share(verdict: Audit) -> Any:
    """[N, H] J_h / bound_h; a bound of 0 (lam = b = 0 and no cost yet) is met by a cost of 0."""
    costs, bounds = verdict.cumulative_costs, verdict.bounds
    return np.where(costs == 0.0, 0.0, costs / np.maximum(bounds, np.finfo(np.float64).tiny))


def _quantiles(curves: Any) -> dict[str, list[float]]:
    """The middle 90 % and the median of curves [N, H], each [H]."""
    low, middle, high = np.quantile(curves, [0.05, 0.5, 0.95], axis=0)
    return {"low": low.tolist(), "median": middle.tolist(), "high": high.tolist()}
