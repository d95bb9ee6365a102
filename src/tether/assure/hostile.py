"""Learners that nobody would trust, with no guard and with each of its rules: what the guard is worth by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates import LipschitzCertificate, Rule
from tether.core.audit import Audit, audit
from tether.core.contract import Contract
from tether.core.run import Run
from tether.data.episodes import Episodes
from tether.simulate.rollout import Policy, rollout
from tether.systems.base import Env
from tether.systems.carbon.env import Carbon
from tether.systems.inference.env import Inference


@dataclass(frozen=True)
class Greedy:
    """Maximises the reward of the round at hand and never thinks of what it leaves behind."""

    env: Carbon | Inference
    ceiling: float = 60.0
    """Larger than any maximiser, energy units; the action box cuts what is above it."""

    def __call__(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """The root of the reward's falling derivative in the action, by bisection."""

        def halve(_: int, bracket: tuple[Any, Any]) -> tuple[Any, Any]:
            low, high = bracket
            middle = 0.5 * (low + high)
            rising = self._derivative(observation, middle) > 0.0
            return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

        bracket = (jnp.zeros_like(observation[0]), jnp.full_like(observation[0], self.ceiling))
        low, high = jax.lax.fori_loop(0, 40, halve, bracket)
        return 0.5 * (low + high)

    def _derivative(self, observation: Any, action: Any) -> Any:
        """Of the round's reward, with every random factor at its mean; it falls with the action."""
        env = self.env
        demand, renewables, last_action, state = observation
        # Before the first round nothing was switched yet: last_action is 0 and costs nothing.
        switching = 2.0 * env.switching_weight * jnp.where(last_action > 0.0, action - last_action, 0.0)
        if isinstance(env, Carbon):
            revenue = 0.5 * env.revenue_weight * jnp.sqrt(env.efficiency / action)
            return revenue - 2.0 * jnp.maximum(action - renewables, 0.0) - switching
        spent, charged = 0.5 * (1.0 + env.discharge_rate_min), 0.5 * (1.0 + env.charge_rate_min)
        unmet = 2.0 * env.demand_weight * jnp.maximum(demand - action, 0.0)
        performance = env.performance_weight * env.performance_scale / (1.0 + env.performance_scale * action)
        shortfall = jnp.maximum(spent * action - state - charged * renewables, 0.0)
        return unmet + performance - switching - env.carbon_weight * 2.0 * spent * shortfall


@dataclass(frozen=True)
class Uniform:
    """Proposes any energy up to `ceiling` with equal probability: a learner before its first update."""

    ceiling: float = 8.0

    def __call__(self, observation: Any, key: Any) -> Any:
        """A new draw each round."""
        return jax.random.uniform(key, dtype=observation.dtype, maxval=self.ceiling)


def guard_study(
    env: Env,
    contract: Contract,
    draw: Callable[[int], Episodes],
    seeds: Sequence[int],
    rules: Sequence[Rule] = get_args(Rule),
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, Any]:
    """Play the prior, a random and a greedy learner, with no guard and with each rule.

    Args:
        env: The carbon or the inference system.
        contract: The promise.
        draw: The episodes of a seed.
        seeds: Of the episodes, where they are drawn, and of the random learner.
        rules: Of the guard.
        report: Called with (pieces done, pieces in all) after each piece of work.

    Returns:
        The part `guard` of `results.json` (see docs/results.md).
    """
    if not isinstance(env, Carbon | Inference):
        raise TypeError(f"the greedy learner knows Carbon and Inference, not {type(env).__name__}")
    learners: dict[str, Policy] = {"random": Uniform(), "greedy": Greedy(env)}
    guards: list[Rule | None] = [None, *rules]
    played: dict[tuple[str, Rule | None], list[tuple[Run, Audit]]] = {("prior", None): []}
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
                certificate = None if rule is None else LipschitzCertificate(contract, env.sensitivity, rule)
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


def _row(learner: str, rule: Rule | None, results: list[tuple[Run, Audit]]) -> dict[str, Any]:
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


def _curve(learner: str, rule: Rule | None, verdict: Audit) -> dict[str, Any]:
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
