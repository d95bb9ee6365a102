"""What all learners share: the recipe, the loss of a batch of episodes, and the step that it leads to."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tether import _validate
from tether.audit import margin, tie_share
from tether.certificates import Certificate
from tether.contract import Contract
from tether.learn.rollout import play
from tether.policy import NetworkPolicy

Head = Literal["proposal", "inside"]
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
    """Online: gradient steps of an update."""
    learning_rate: float = 3e-3
    """Of Adam at the start; it falls to 0 along a cosine."""
    width: int = 40
    """Neurons of each of the two hidden layers."""
    head: Head = "proposal"
    """ACRL: whether the network proposes an action, which the guard moves into the safe set, or acts `inside` it."""
    penalty: float = 10.0
    """CRL: weight of the squared excess, and step of the multiplier, relative to the allowed cost."""
    reserve: float = 0.03
    """CRL: share of the allowed cost that is aimed to be left, so that the expectation holds despite sampling."""
    optimism: float = 1.0
    """Online: factor on the radius of the model's confidence set; 0 believes the fitted model."""
    failure: float = 0.05
    """Online: probability with which the confidence set may miss the truth, delta."""

    def __post_init__(self) -> None:
        for name in ("passes", "episodes", "batch", "steps", "width"):
            _validate.count(name, getattr(self, name))
        for name in ("learning_rate", "penalty", "failure"):
            _validate.number(name, getattr(self, name), above=0.0)
        for name in ("reserve", "optimism"):
            _validate.number(name, getattr(self, name), minimum=0.0)
        _validate.choice("head", self.head, get_args(Head))
        if self.failure >= 1.0:
            raise ValueError(f"failure is a probability below 1, got {self.failure!r}")


class State(NamedTuple):
    """Everything that changes while training; leaves are [trained settings, seeds, ...]."""

    policies: NetworkPolicy
    optimiser: Any
    multipliers: Any
    """CRL's; 0 for the others."""
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
    """CRL: mean final cost beyond what is aimed at, relative to what is allowed."""


class Learner(eqx.Module):
    """The compiled part that does not depend on where the episodes come from."""

    method: Method
    optimiser: optax.GradientTransformation
    recipe: Recipe

    def start(self, policies: NetworkPolicy) -> State:
        """Untrained policies [trained settings, seeds, ...]."""
        shape = policies.biases[0].shape[:2]
        return State(policies, jax.vmap(jax.vmap(self.optimiser.init))(policies), jnp.zeros(shape))

    def loss(
        self,
        policy: NetworkPolicy,
        multiplier: Any,
        system: Any,
        drawn: dict[str, Any],
        prior_costs: Any,
        certificate: Certificate,
    ) -> tuple[Any, Outcome]:
        """Minus the mean reward a round; for CRL with the augmented Lagrangian of the expected cost.

        Args:
            policy: One policy.
            multiplier: CRL's.
            system: The environment, or what a model takes it to be.
            drawn: Series of the episodes, [H, N].
            prior_costs: [H, N] the prior's cumulative costs on them; only CRL needs them.
            certificate: The guard's, and CRL's contract.
        """
        contract = certificate.contract
        guard = certificate if self.method == "acrl" else None
        played = play(system, policy, drawn, guard, jnp.uint32(0), "outcomes")
        costs = jnp.cumsum(played["costs"], axis=0)
        reward = jnp.mean(jnp.sum(played["rewards"], axis=0))
        value = -reward / contract.horizon
        if self.method != "crl":
            return value, Outcome(reward, costs, jnp.zeros(()))
        allowed = jnp.mean((1.0 + contract.lam) * prior_costs[-1]) + contract.horizon * contract.b
        excess = jnp.mean(costs[-1]) / allowed - (1.0 - self.recipe.reserve)
        penalty = self.recipe.penalty
        value = value + 0.5 * penalty * jnp.maximum(multiplier / penalty + excess, 0.0) ** 2
        return value, Outcome(reward, costs, excess)

    def step(self, state: State, slope: NetworkPolicy, excess: Any) -> State:
        """Follow the gradient; CRL's multiplier follows the excess."""
        changes, optimiser = self.optimiser.update(slope, state.optimiser, state.policies)
        multipliers = state.multipliers
        if self.method == "crl":
            multipliers = jnp.maximum(multipliers + self.recipe.penalty * 0.1 * excess, 0.0)
        return state._replace(
            policies=optax.apply_updates(state.policies, changes),
            optimiser=optimiser,
            multipliers=multipliers,
        )


@functools.cache
def learner_of(method: Method, recipe: Recipe, updates: int) -> Learner:
    """The learner of a training with so many gradient steps; the same one again, so that nothing compiles anew."""
    schedule = optax.cosine_decay_schedule(recipe.learning_rate, max(updates, 1))
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    return Learner(method, optimiser, recipe)


def judge(contract: Contract, costs: Any, prior_costs: Any) -> tuple[Any, Any]:
    """Share of the episodes that broke the promise, and the smallest margin, cost units; all costs are J_h, [H, N]."""
    bounds = contract.bound(prior_costs, jnp.arange(1, contract.horizon + 1)[:, None])
    margins = margin(bounds, costs, jnp)
    broken = ~(margins >= -tie_share(costs.dtype) * bounds)  # as in `tether.audit`
    return jnp.mean(jnp.any(broken, axis=0)), jnp.min(margins)
