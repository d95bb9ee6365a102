"""What all learners share: the recipe, the loss of a batch of episodes, and the step that it leads to."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tether.certificates import Certificate
from tether.core import validate
from tether.core.audit import margin, tie_share
from tether.core.contract import Contract
from tether.learn.policy import NetworkPolicy
from tether.simulate.rollout import play

Head = Literal["proposal", "inside"]
Schedule = Literal["cosine", "constant"]
Method = Literal["prior", "random+acd", "rl", "rl+acd", "crl", "acrl"]
GUARDED: tuple[Method, ...] = ("random+acd", "rl+acd", "acrl")
"""The methods that play through the guard."""
LEARNING: tuple[Method, ...] = ("rl", "rl+acd", "crl", "acrl")
"""The methods that learn at all."""


@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults serve all systems, settings and both modes."""

    passes: int = 100
    """Offline: times that the training episodes are gone through."""
    episodes: int = 4000
    """Online: episodes that are played, K."""
    batch: int = 50
    """Episodes of a gradient step; online also the episodes between two updates of the policy."""
    steps: int = 50
    """Online: gradient steps of an update, each on `batch` episodes that the model imagines. As many as episodes were
    played since the last update make K gradient steps in all."""
    learning_rate: float = 3e-3
    """Of Adam at the start ..."""
    schedule: Schedule = "cosine"
    """... from where it falls to 0 along a cosine, or is constant."""
    width: int = 40
    """Neurons of each of the two hidden layers."""
    head: Head = "proposal"
    """ACRL: whether the network proposes an action, which the guard moves into the safe set, or acts `inside` it."""
    penalty: float = 1.0
    """CRL: weight of the excess, the logarithm of the cost over what is aimed at, in the pressure on the policy ..."""
    patience: float = 20.0
    """... and the gradient steps in which the multiplier would grow by as much."""
    reserve: float = 0.05
    """CRL: share of the allowed cost that is aimed to be left, so that the expectation holds despite sampling."""
    optimism: float = 1.0
    """Online: factor on the radius of the model's confidence set; 0 believes the fitted model."""
    failure: float = 0.05
    """Online: probability with which the confidence set may miss the truth, delta."""

    def __post_init__(self) -> None:
        for name in ("passes", "episodes", "batch", "steps", "width"):
            validate.count(name, getattr(self, name))
        for name in ("learning_rate", "penalty", "patience", "failure"):
            validate.number(name, getattr(self, name), above=0.0)
        for name in ("reserve", "optimism"):
            validate.number(name, getattr(self, name), minimum=0.0)
        validate.choice("head", self.head, get_args(Head))
        validate.choice("schedule", self.schedule, get_args(Schedule))
        if self.failure >= 1.0:
            raise ValueError(f"failure is a probability below 1, got {self.failure!r}")


class Kept(NamedTuple):
    """The policy that a CRL training ends with; leaves [trained settings, seeds, ...]."""

    policies: NetworkPolicy
    score: Any
    """Mean reward on the validation episodes if the mean cost there was within what is aimed at, else
    `INFEASIBLE` minus that cost."""


INFEASIBLE = -1e9
"""Below every reward: a policy that costs too much is kept only until there is one that does not."""


class State(NamedTuple):
    """Everything that changes while training; leaves are [trained settings, seeds, ...]."""

    policies: NetworkPolicy
    optimiser: Any
    multipliers: Any
    """CRL's; 0 for the others."""
    kept: Kept | None = None
    """CRL: the best policy so far that kept the expected cost."""
    fit: Any = None
    """Online: what the model has seen."""
    slope: Any = None
    """Online: [d] slope of the value in the model's parameters; optimism follows it."""


class Outcome(NamedTuple):
    """What a batch of episodes gave."""

    reward: Any
    """Mean episode reward."""
    costs: Any
    """[H, N] cumulative costs."""
    excess: Any
    """CRL: logarithm of the mean final cost over what is aimed at, on training or on validation episodes, whichever
    is larger."""


class Check(NamedTuple):
    """Episodes on which CRL's expected cost is measured, but not improved."""

    drawn: dict[str, Any]
    """Series of the episodes, [H, N]."""
    prior_costs: Any
    """[H, N] the prior's cumulative costs on them."""


class Learner(eqx.Module):
    """The compiled part that does not depend on where the episodes come from."""

    method: Method
    optimiser: optax.GradientTransformation
    recipe: Recipe

    def start(self, policies: NetworkPolicy) -> State:
        """Untrained policies [trained settings, seeds, ...]."""
        shape = policies.biases[0].shape[:2]
        kept = Kept(policies, jnp.full(shape, -jnp.inf, jnp.float32)) if self.method == "crl" else None
        return State(policies, jax.vmap(jax.vmap(self.optimiser.init))(policies), jnp.zeros(shape), kept)

    def loss(
        self,
        policy: NetworkPolicy,
        multiplier: Any,
        system: Any,
        drawn: dict[str, Any],
        prior_costs: Any,
        certificate: Certificate,
        check: Check | None = None,
    ) -> tuple[Any, Outcome]:
        """Minus the mean reward a round; for CRL with the pressure of the expected cost.

        CRL's is an augmented Lagrangian. The pressure comes from the larger of the excesses on training and on
        validation episodes; the gradient from training episodes alone.

        Args:
            policy: One policy.
            multiplier: CRL's.
            system: The environment, or what a model takes it to be.
            drawn: Series of the episodes, [H, N].
            prior_costs: [H, N] the prior's cumulative costs on them; only CRL needs them.
            certificate: The guard's, and CRL's contract.
            check: CRL: some of the validation episodes.
        """
        contract = certificate.contract
        guard = certificate if self.method == "acrl" else None
        played = play(system, policy, drawn, guard, jnp.uint32(0), "outcomes")
        costs = jnp.cumsum(played["costs"], axis=0)
        reward = jnp.mean(jnp.sum(played["rewards"], axis=0))
        value = -reward / contract.horizon
        if self.method != "crl":
            return value, Outcome(reward, costs, jnp.zeros(()))
        assert check is not None
        excess = self._excess(contract, jnp.mean(costs[-1]), prior_costs)
        checked = self._excess(contract, self._checked(policy, system, check)[1], check.prior_costs)
        felt = jax.lax.stop_gradient(jnp.maximum(excess, checked))
        pressure = jnp.maximum(multiplier + self.recipe.penalty * felt, 0.0)
        return value + pressure * excess, Outcome(reward, costs, felt)

    def aim(self, contract: Contract, prior_costs: Any) -> Any:
        """CRL: the mean final cost that is aimed at, somewhat below what is allowed."""
        allowed = jnp.mean((1.0 + contract.lam) * prior_costs[-1]) + contract.horizon * contract.b
        return (1.0 - self.recipe.reserve) * allowed

    def _excess(self, contract: Contract, cost: Any, prior_costs: Any) -> Any:
        """Logarithm of a mean cost over what is aimed at; of a thousandth of it if the cost is 0."""
        return jnp.log(cost / self.aim(contract, prior_costs) + 1e-3)

    def _checked(self, policy: NetworkPolicy, system: Any, check: Check) -> tuple[Any, Any]:
        """Mean reward and mean cost of an unguarded policy on validation episodes; no gradient comes from there."""
        policy = jax.lax.stop_gradient(policy)
        played = play(system, policy, check.drawn, None, jnp.uint32(0), "outcomes")
        return tuple(jnp.mean(jnp.sum(played[name], axis=0)) for name in ("rewards", "costs"))  # type: ignore[return-value]

    def keep(self, state: State, system: Any, check: Check, contract: Contract) -> State:
        """CRL: keep the policy if it is better than the one that is kept, judged on all validation episodes."""
        assert state.kept is not None
        reward, cost = self._checked(state.policies, system, check)
        score = jnp.where(cost <= self.aim(contract, check.prior_costs), reward, INFEASIBLE - cost)
        better = score > state.kept.score
        kept = jax.tree.map(
            lambda new, old: jnp.where(better, new, old), Kept(state.policies, score), state.kept
        )
        return state._replace(kept=kept)

    def step(self, state: State, slope: NetworkPolicy, excess: Any) -> State:
        """Follow the gradient; CRL's multiplier follows the excess."""
        changes, optimiser = self.optimiser.update(slope, state.optimiser, state.policies)
        multipliers = state.multipliers
        if self.method == "crl":
            rate = self.recipe.penalty / self.recipe.patience
            multipliers = jnp.maximum(multipliers + rate * excess, 0.0)
        return state._replace(
            policies=optax.apply_updates(state.policies, changes),
            optimiser=optimiser,
            multipliers=multipliers,
        )


@functools.cache
def learner_of(method: Method, recipe: Recipe, updates: int) -> Learner:
    """The learner of a training with so many gradient steps; the same one again, so that nothing compiles anew."""
    rate: float | optax.Schedule = recipe.learning_rate
    if recipe.schedule == "cosine":
        rate = optax.cosine_decay_schedule(recipe.learning_rate, max(updates, 1))
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    return Learner(method, optimiser, recipe)


def judge(contract: Contract, costs: Any, prior_costs: Any) -> tuple[Any, Any]:
    """Share of the episodes that broke the promise, and the smallest margin, cost units; all costs are J_h, [H, N]."""
    bounds = contract.bound(prior_costs, jnp.arange(1, contract.horizon + 1)[:, None])
    margins = margin(bounds, costs, jnp)
    broken = ~(margins >= -tie_share(costs.dtype) * bounds)  # as in `tether.audit`
    return jnp.mean(jnp.any(broken, axis=0)), jnp.min(margins)
