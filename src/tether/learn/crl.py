"""CRL: bound the expected cost, E[J_H - (1 + lam) J_H(prior)] <= H b, by an augmented Lagrangian.

Algorithm 2 without the guard, and with another line 5: the gradient is that of the value minus the pressure of the
cost.

    5   pressure = [multiplier + penalty * excess]^+          `CRL.loss`
        policy follows the gradient of value - pressure * excess
        multiplier = [multiplier + rate * excess]^+           `CRL.after_step`
    10  of the policies so far, keep the one that earns       `CRL.after_pass`
        most within the allowed cost

The excess is the logarithm of the mean final cost over what is aimed at. An expectation that holds in the training
episodes need not hold in other months, so that it is measured on validation episodes too, and the larger one counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tether.certificates import Certificate
from tether.core.contract import Contract
from tether.learn.learner import Batch, Check, Method, Outcome, Recipe, State, grid_of, play_batch
from tether.learn.policy import NetworkPolicy
from tether.simulate.rollout import play

INFEASIBLE = -1e9
"""Below every reward: a policy that costs too much is kept only until there is one that does not."""


class Kept(NamedTuple):
    """The best policy so far that kept the expected cost; leaves [trained settings, seeds, ...]."""

    policies: NetworkPolicy
    score: Any
    """Mean reward on the validation episodes if the mean cost there was within what is aimed at, else
    `INFEASIBLE` minus that cost."""


class Dual(NamedTuple):
    """What CRL carries from step to step."""

    multiplier: Any
    """[trained settings, seeds] of the constraint."""
    kept: Kept


class CRL(Method):
    """Maximise E[sum_h r_h] while the expected final cost stays within its bound; no guard."""

    name = "crl"
    title = "CRL"
    bounds_cost = True

    def start(self, policies: NetworkPolicy) -> Dual:
        """No pressure, and anything is better than what is kept."""
        shape = grid_of(policies)
        return Dual(jnp.zeros(shape), Kept(policies, jnp.full(shape, -jnp.inf, jnp.float32)))

    def loss(
        self, policy: NetworkPolicy, own: Dual, batch: Batch, certificate: Certificate, recipe: Recipe
    ) -> tuple[Any, Outcome]:
        """Minus the mean reward a round, plus the pressure of the expected cost.

        The pressure comes from the larger of the excesses on training and on validation episodes; the gradient from
        training episodes alone.
        """
        assert batch.check is not None
        contract = certificate.contract
        reward, costs = play_batch(policy, batch, None)
        excess = _excess(contract, jnp.mean(costs[-1]), batch.prior_costs, recipe)
        checked_cost = _mean_outcome(policy, batch.system, batch.check)[1]
        checked = _excess(contract, checked_cost, batch.check.prior_costs, recipe)
        larger = jax.lax.stop_gradient(jnp.maximum(excess, checked))
        pressure = jnp.maximum(own.multiplier + recipe.penalty * larger, 0.0)
        return -reward / contract.horizon + pressure * excess, Outcome(reward, costs, larger)

    def after_step(self, own: Dual, feedback: Any, recipe: Recipe) -> Dual:
        """The multiplier follows the excess, `feedback`."""
        rate = recipe.penalty / recipe.patience
        return own._replace(multiplier=jnp.maximum(own.multiplier + rate * feedback, 0.0))

    def after_pass(
        self, own: Dual, policy: NetworkPolicy, system: Any, check: Check, contract: Contract, recipe: Recipe
    ) -> Dual:
        """Keep the policy if it is better than the one that is kept, judged on all validation episodes."""
        reward, cost = _mean_outcome(policy, system, check)
        score = jnp.where(cost <= _aim(contract, check.prior_costs, recipe), reward, INFEASIBLE - cost)
        better = score > own.kept.score
        kept = jax.tree.map(lambda new, old: jnp.where(better, new, old), Kept(policy, score), own.kept)
        return own._replace(kept=kept)

    def result(self, state: State) -> NetworkPolicy:
        """The policies that were kept."""
        kept: NetworkPolicy = state.own.kept.policies
        return kept

    def multipliers(self, state: State) -> Any:
        """[trained settings, seeds] of the constraint."""
        return state.own.multiplier


def _aim(contract: Contract, prior_costs: Any, recipe: Recipe) -> Any:
    """The mean final cost that is aimed at, somewhat below what is allowed."""
    allowed = jnp.mean((1.0 + contract.lam) * prior_costs[-1]) + contract.horizon * contract.b
    return (1.0 - recipe.reserve) * allowed


def _excess(contract: Contract, cost: Any, prior_costs: Any, recipe: Recipe) -> Any:
    """Logarithm of a mean cost over what is aimed at; of a thousandth of it if the cost is 0."""
    return jnp.log(cost / _aim(contract, prior_costs, recipe) + 1e-3)


def _mean_outcome(policy: NetworkPolicy, system: Any, check: Check) -> tuple[Any, Any]:
    """Mean reward and mean cost on validation episodes, unguarded; no gradient comes from there."""
    played = play(system, jax.lax.stop_gradient(policy), check.drawn, None, jnp.uint32(0), "outcomes")
    return tuple(jnp.mean(jnp.sum(played[name], axis=0)) for name in ("rewards", "costs"))  # type: ignore[return-value]
