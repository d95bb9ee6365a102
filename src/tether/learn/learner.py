"""What all methods share: the recipe, what a method is, and the step that the loss of a batch of episodes leads to.

A method itself is an object in a file of its own; `tether.learn.methods` lists them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tether.certificates import Certificate, Structured
from tether.core import validate
from tether.core.audit import margin, tie_share
from tether.core.contract import Contract
from tether.core.run import Run
from tether.data.episodes import Episodes
from tether.learn.policy import NetworkPolicy
from tether.simulate.rollout import play
from tether.systems.base import Env

Head = Literal["proposal", "inside"]
Schedule = Literal["cosine", "constant"]
Mode = Literal["offline", "online"]


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
    """Of Adam, the largest ..."""
    schedule: Schedule = "cosine"
    """... from where it falls to 0 along a cosine, or is constant."""
    warmup: float = 0.0
    """Share of the gradient steps in which the rate rises from 0 to the largest, with `cosine`."""
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
        for name in ("reserve", "optimism", "warmup"):
            validate.number(name, getattr(self, name), minimum=0.0)
        validate.choice("head", self.head, get_args(Head))
        validate.choice("schedule", self.schedule, get_args(Schedule))
        if self.failure >= 1.0:
            raise ValueError(f"failure is a probability below 1, got {self.failure!r}")
        if self.warmup >= 1.0:
            raise ValueError(f"warmup is a share of the steps below 1, got {self.warmup!r}")


class State(NamedTuple):
    """Everything that changes while training; leaves are [trained settings, seeds, ...]."""

    policies: NetworkPolicy
    optimiser: Any
    own: Any
    """What the method itself carries from step to step (`Method.start`)."""
    fit: Any = None
    """Online: what the model has seen."""
    slope: Any = None
    """Online: [d] slope of the value in the model's parameters; optimism follows it."""


class Check(NamedTuple):
    """Validation episodes, on which an expected cost is measured, but not improved."""

    drawn: dict[str, Any]
    """Series of the episodes, [H, N]."""
    prior_costs: Any
    """[H, N] the prior's cumulative costs on them."""


class Batch(NamedTuple):
    """The episodes of one gradient step."""

    system: Any
    """The environment, or what a model takes it to be."""
    drawn: dict[str, Any]
    """Series of the episodes, [H, N]."""
    prior_costs: Any
    """[H, N] the prior's cumulative costs on them; online None unless the method `bounds_cost`."""
    check: Check | None
    """Some of the validation episodes; None unless the method `bounds_cost`."""


class Outcome(NamedTuple):
    """What a batch of episodes gave."""

    reward: Any
    """Mean episode reward."""
    costs: Any
    """[H, N] cumulative costs."""
    feedback: Any = None
    """What the method's `after_step` gets to see."""


@dataclass(frozen=True)
class Method:
    """A way to come to a policy and to play it: which guard there is, what is learned, and from what loss.

    A subclass sets the class attributes below and overrides the hooks that it needs. It holds no state: what changes
    while training is in `State`; two instances of one class are equal. `tether.train` takes an instance, or the name of
    one of `tether.learn.methods.METHODS`.
    """

    name: ClassVar[str]
    """On the command line and in files."""
    title: ClassVar[str]
    """In tables and figures."""
    guarded: ClassVar[bool] = False
    """Whether it plays through the guard (ACD, Algorithm 1)."""
    learns: ClassVar[bool] = True
    """Whether its network is trained at all."""
    sees_memory: ClassVar[bool] = False
    """Whether the network sees the guard's memory: the paper's augmented state s_h. It is trained for one contract."""
    bounds_cost: ClassVar[bool] = False
    """Whether the loss compares costs: it is given the prior's costs, and validation episodes to measure them on."""
    plays_prior: ClassVar[bool] = False
    """Whether it plays the prior's actions and not those of a network."""

    def __str__(self) -> str:
        return self.name

    def trained_once(self, mode: Mode) -> bool:
        """Whether one training serves all (lam, b): what knows nothing of the contract, neither to learn nor to play.

        Online what is learned depends on what was played, and so on the guard.
        """
        return not (self.sees_memory or self.bounds_cost or (self.guarded and mode == "online"))

    def learned_by(self, mode: Mode) -> Method:  # noqa: ARG002
        """The method whose training this one plays; itself unless it shares."""
        return self

    def start(self, policies: NetworkPolicy) -> Any:  # noqa: ARG002
        """What the method carries before the first step; leaves [trained settings, seeds, ...]."""
        return ()

    def guard_in_training(self, certificate: Certificate) -> Certificate | None:  # noqa: ARG002
        """The guard that the episodes of a gradient step are played through; None for none."""
        return None

    def loss(
        self,
        policy: NetworkPolicy,
        own: Any,  # noqa: ARG002
        batch: Batch,
        certificate: Certificate,
        recipe: Recipe,  # noqa: ARG002
    ) -> tuple[Any, Outcome]:
        """The loss of one policy on a batch of episodes: minus the mean reward a round.

        Args:
            policy: One policy.
            own: What the method carries for it.
            batch: The episodes.
            certificate: The guard's, with the contract of this setting.
            recipe: How to train.
        """
        reward, costs = play_batch(policy, batch, self.guard_in_training(certificate))
        return -reward / certificate.contract.horizon, Outcome(reward, costs)

    def after_step(self, own: Any, feedback: Any, recipe: Recipe) -> Any:  # noqa: ARG002
        """What the method carries after a gradient step whose loss gave `feedback`."""
        return own

    def after_pass(
        self,
        own: Any,
        policy: NetworkPolicy,  # noqa: ARG002
        system: Any,  # noqa: ARG002
        check: Check,  # noqa: ARG002
        contract: Contract,  # noqa: ARG002
        recipe: Recipe,  # noqa: ARG002
    ) -> Any:
        """What the method carries after a pass (online: block of episodes), given all validation episodes.

        It is called if the method `bounds_cost`.
        """
        return own

    def result(self, state: State) -> NetworkPolicy:
        """The policies that a training ends with."""
        return state.policies

    def multipliers(self, state: State) -> Any:
        """[trained settings, seeds] weight of the cost in the loss; 0 without one."""
        return jnp.zeros(grid_of(state.policies))


def grid_of(policies: NetworkPolicy) -> tuple[int, int]:
    """(trained settings, seeds) of stacked policies."""
    settings, seeds = policies.biases[0].shape[:2]
    return settings, seeds


def play_batch(policy: NetworkPolicy, batch: Batch, guard: Certificate | None) -> tuple[Any, Any]:
    """Mean episode reward, and cumulative costs [H, N], of a policy on the episodes of a batch."""
    played = play(batch.system, policy, batch.drawn, guard, jnp.uint32(0), "outcomes")
    return jnp.mean(jnp.sum(played["rewards"], axis=0)), jnp.cumsum(played["costs"], axis=0)


def series_of(episodes: Episodes, names: Iterable[str]) -> dict[str, Any]:
    """Series of episodes by name, [H, N], float32: rounds first, as a rollout wants them."""
    return {name: jnp.asarray(np.swapaxes(episodes[name], 0, 1), jnp.float32) for name in names}


def episodes_of(series: dict[str, Any], chosen: Any) -> dict[str, Any]:
    """The episodes with the indices `chosen` [B] of series [H, N]: [H, B]."""
    return {name: values[:, chosen] for name, values in series.items()}


class Learner(eqx.Module):
    """A method with its optimiser: the compiled part that does not depend on where the episodes come from."""

    method: Method
    optimiser: optax.GradientTransformation
    recipe: Recipe

    def start(self, policies: NetworkPolicy) -> State:
        """Untrained policies [trained settings, seeds, ...]."""
        optimiser = jax.vmap(jax.vmap(self.optimiser.init))(policies)
        return State(policies, optimiser, self.method.start(policies))

    def loss(
        self, policy: NetworkPolicy, own: Any, batch: Batch, certificate: Certificate
    ) -> tuple[Any, Outcome]:
        """The method's loss of one policy on a batch of episodes."""
        return self.method.loss(policy, own, batch, certificate, self.recipe)

    def long(self, certificate: Certificate) -> bool:
        """Whether what follows its gradient is a long program (`tether.core.compiler`), as it is through a structure.

        The code is then no slower either: a pass of a training took 0.84 to 0.89 times the processor time; a rollout
        0.8 to 1.5 times, so that it is not one.
        """
        return isinstance(self.method.guard_in_training(certificate), Structured)

    def step(self, state: State, slope: NetworkPolicy, feedback: Any) -> State:
        """Follow the gradient of one policy's loss."""
        changes, optimiser = self.optimiser.update(slope, state.optimiser, state.policies)
        return state._replace(
            policies=optax.apply_updates(state.policies, changes),
            optimiser=optimiser,
            own=self.method.after_step(state.own, feedback, self.recipe),
        )

    def finish_pass(self, state: State, system: Any, check: Check, contract: Contract) -> State:
        """Judge one policy on all validation episodes."""
        own = self.method.after_pass(state.own, state.policies, system, check, contract, self.recipe)
        return state._replace(own=own)


class Task(NamedTuple):
    """What is to be trained, on what; the same for both modes."""

    learner: Learner
    env: Env
    data: Episodes
    prior: Run
    """The prior on the data."""
    certificates: Any
    """Of the trained settings, stacked, float32."""
    seeds: list[int]
    validation: Episodes


def rate_of(recipe: Recipe, updates: int) -> float | optax.Schedule:
    """The learning rate: that of all of so many gradient steps, or by the number of the step.

    Example:
        >>> rate = rate_of(Recipe(learning_rate=1.0, warmup=0.2), 10)
        >>> [round(float(rate(step)), 2) for step in (0, 1, 2, 6, 10)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if recipe.schedule == "constant":
        return recipe.learning_rate
    rising = int(recipe.warmup * updates)
    falling = optax.cosine_decay_schedule(recipe.learning_rate, max(updates - rising, 1))
    if rising == 0:
        return falling
    return optax.join_schedules([optax.linear_schedule(0.0, recipe.learning_rate, rising), falling], [rising])


@functools.cache
def learner_of(method: Method, recipe: Recipe, updates: int) -> Learner:
    """The learner of a training with so many gradient steps; one object for equal ones, so that it compiles once."""
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate_of(recipe, updates)))
    return Learner(method, optimiser, recipe)


def judge(contract: Any, costs: Any, prior_costs: Any) -> tuple[Any, Any]:
    """Share of the episodes that broke the promise, and the smallest margin, cost units; all costs are J_h, [H, N].

    Of several contracts, a tuple, the costs are [H, N, m] and any promise counts.
    """
    several = contract if isinstance(contract, tuple) else (contract,)
    pairs = [each.reshape(*each.shape[:2], len(several)) for each in (costs, prior_costs)]
    judged = [_judge(each, *(cost[..., i] for cost in pairs)) for i, each in enumerate(several)]
    broken = jnp.any(jnp.stack([each for each, _ in judged]), axis=0)
    return jnp.mean(broken), jnp.min(jnp.stack([least for _, least in judged]))


def _judge(contract: Contract, costs: Any, prior_costs: Any) -> tuple[Any, Any]:
    """[N] whether an episode broke the promise, and the smallest margin, cost units."""
    bounds = contract.bound(prior_costs, jnp.arange(1, contract.horizon + 1)[:, None])
    margins = margin(bounds, costs, jnp)
    broken = ~(margins >= -tie_share(costs.dtype) * bounds)  # as in `tether.audit`
    return jnp.any(broken, axis=0), jnp.min(margins)
