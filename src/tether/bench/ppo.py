"""A yardstick of `tether bench learners`: PPO as JAX libraries have it, all of an iteration in one compiled program.

Episodes are played side by side in a scan over the rounds, through the guard; then come generalised advantages and
clipped updates on shuffled minibatches, with Adam. It sees what our learners see: the observation and the guard's
memory. It is told nothing of the system but the rewards.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tether.core.certificate import Box, Certificate, Outcome
from tether.core.ops import jax_ops
from tether.data.episodes import Episodes
from tether.systems.base import Env

WIDTH, RATE, CLIP, EPOCHS, MINIBATCHES, DISCOUNT, TRACE = 64, 1e-3, 0.2, 4, 8, 0.99, 0.95
"""Neurons of a hidden layer, Adam's step, how far a ratio counts, passes over a batch and parts of each, gamma, lambda:
what such libraries begin with."""


class Actor(eqx.Module):
    """The mean of the actions: two hidden layers of tanh; also the policy that is judged."""

    weights: list[Any]
    biases: list[Any]
    mean: Any
    """[o + m] of what is seen: the observation, and the logarithm of the guard's features in their units."""
    scale: Any
    """[o + m] likewise."""
    units: Any
    """[m] of the guard's features."""
    low: Any
    """The action at an output of -1."""
    high: Any
    """The action at an output of 1."""
    uses_memory: bool = eqx.field(default=True, static=True)

    def inputs(self, seen: Any) -> Any:
        """[o + m] what was seen, scaled."""
        count = seen.shape[-1] - len(self.units)
        memory = jnp.log1p(jnp.maximum(seen[..., count:], 0.0) / self.units)
        scaled = (jnp.concat([seen[..., :count], memory], axis=-1) - self.mean) / self.scale
        return jnp.clip(scaled, -10.0, 10.0)

    def output(self, inputs: Any) -> Any:
        """[n] the network's answer, from about -1 to 1."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            inputs = jnp.tanh(inputs @ weight + bias)
        return inputs @ self.weights[-1] + self.biases[-1]

    def action(self, output: Any) -> Any:
        """The action that an output stands for."""
        return self.low + (jnp.clip(output, -1.0, 1.0) + 1.0) / 2.0 * (self.high - self.low)

    def __call__(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """The action without exploration."""
        return self.action(self.output(self.inputs(observation)))


class Learner(NamedTuple):
    """All that PPO changes while it learns."""

    actor: Actor
    critic: Actor
    log_std: Any
    """[n] of the exploration."""


class Batch(NamedTuple):
    """What was played, [H, N, ...]."""

    inputs: Any
    outputs: Any
    chances: Any
    """Logarithm of the probability density of the outputs."""
    values: Any
    rewards: Any


def network(key: Any, sizes: tuple[int, ...], last: float, like: dict[str, Any]) -> Actor:
    """A fresh network with orthogonal weights, the last of them small."""
    keys = jax.random.split(key, len(sizes) - 1)
    scales = [2.0**0.5] * (len(sizes) - 2) + [last]
    weights = [
        jax.nn.initializers.orthogonal(scale)(each, shape)
        for each, scale, shape in zip(keys, scales, pairwise(sizes), strict=True)
    ]
    return Actor(weights, [jnp.zeros(size) for size in sizes[1:]], **like)


def fresh(env: Env, certificate: Certificate, prior: Any, seed: int, high: float) -> Learner:
    """A learner that has learned nothing; `prior` [..., o] are observations of the prior's, by which it scales."""
    units = np.asarray(certificate.feature_units(), dtype=np.float32)
    flat = np.asarray(prior, dtype=np.float32).reshape(-1, np.shape(prior)[-1])
    like = {
        "mean": jnp.concat([flat.mean(axis=0), np.zeros_like(units)]),
        "scale": jnp.concat([flat.std(axis=0) + 1e-3, np.ones_like(units)]),
        "units": jnp.asarray(units),
        "low": jnp.asarray(env.low, dtype=jnp.float32),
        "high": jnp.asarray(high, dtype=jnp.float32),
    }
    count, actions = flat.shape[1] + len(units), int(np.prod(env.action_shape))
    first, second = jax.random.split(jax.random.key(seed))
    actor = network(first, (count, WIDTH, WIDTH, actions), 0.01, like)
    critic = network(second, (count, WIDTH, WIDTH, 1), 1.0, like)
    return Learner(actor, critic, jnp.full(actions, -1.0))


def _chance(learner: Learner, inputs: Any, outputs: Any) -> Any:
    off = (outputs - learner.actor.output(inputs)) / jnp.exp(learner.log_std)
    return jnp.sum(-0.5 * off**2 - learner.log_std, axis=-1)


def _played(env: Env, certificate: Certificate, learner: Learner, drawn: Any, key: Any) -> Batch:
    """Episodes `drawn` [H, N] with exploration, through the guard."""
    ops, count = jax_ops(), jax.tree.leaves(drawn)[0].shape[1]
    low, high = (jnp.asarray(end, dtype=jnp.float32) for end in (env.low, env.high))
    box = Box(cast(Any, low), cast(Any, high), env.norm)

    def one(state: Any, memory: Any, now: Any, key: Any) -> Any:
        observation = env.observation(state, now)
        opened = certificate.open(memory, observation, ops)
        seen = jnp.concat([observation, jnp.stack(certificate.features(opened, ops))])
        inputs = learner.actor.inputs(seen)
        noise = jax.random.normal(key, learner.log_std.shape)
        output = learner.actor.output(inputs) + jnp.exp(learner.log_std) * noise
        proposal = jnp.reshape(learner.actor.action(output), env.action_shape)
        prior = jnp.reshape(env.prior(observation), env.action_shape)
        choice = certificate.choose(opened, proposal, prior, box, ops)
        state, reward, cost = env.step(state, now, choice.action)
        memory = certificate.update(memory, choice.taken, Outcome(cost), ops)
        value = learner.critic.output(inputs)[0]
        return (state, memory), Batch(inputs, output, _chance(learner, inputs, output), value, reward)

    def turn(carry: Any, given: Any) -> Any:
        now, key = given
        side_by_side: Any = jax.vmap(one)
        return side_by_side(*carry, now, jax.random.split(key, count))

    zero = jnp.zeros(count, dtype=jnp.float32)
    memory = jax.vmap(lambda each: certificate.start(ops, each))(zero)
    state = jax.tree.map(lambda number: jnp.full(count, number, zero.dtype), env.initial())
    keys = jax.random.split(key, len(jax.tree.leaves(drawn)[0]))
    batch: Batch = jax.lax.scan(turn, (state, memory), (drawn, keys))[1]
    return batch


def _advantages(batch: Batch) -> Any:
    """[H, N] generalised advantages; nothing comes after the last round."""

    def back(carry: Any, now: Any) -> Any:
        later, following = carry
        reward, value = now
        advantage = reward + DISCOUNT * following - value + DISCOUNT * TRACE * later
        return (advantage, value), advantage

    zero = jnp.zeros_like(batch.values[0])
    return jax.lax.scan(back, (zero, zero), (batch.rewards, batch.values), reverse=True)[1]


def _loss(learner: Learner, part: Batch, advantages: Any, targets: Any) -> Any:
    ratio = jnp.exp(_chance(learner, part.inputs, part.outputs) - part.chances)
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gain = jnp.minimum(ratio * scaled, jnp.clip(ratio, 1.0 - CLIP, 1.0 + CLIP) * scaled).mean()
    values = jax.vmap(learner.critic.output)(part.inputs)[:, 0]
    return -gain + 0.5 * ((values - targets) ** 2).mean()


class Ppo:
    """PPO on one system behind one guard.

    Args:
        env: The system; its actions are numbers.
        certificate: The guard's.
        reward_scale: What rewards are divided by.
        episodes: Played in an iteration.
    """

    def __init__(self, env: Env, certificate: Certificate, reward_scale: float, episodes: int) -> None:
        self._optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(RATE, eps=1e-5))
        self.episodes = episodes

        def iterate(learner: Learner, state: Any, drawn: Any, key: Any) -> Any:
            first, second = jax.random.split(key)
            batch = _played(env, certificate, learner, drawn, first)
            batch = batch._replace(rewards=batch.rewards / reward_scale)
            advantages = _advantages(batch)
            flat = jax.tree.map(
                lambda each: each.reshape(-1, *each.shape[2:]), (batch, advantages, advantages + batch.values)
            )

            def minibatch(carry: Any, places: Any) -> Any:
                learner, state = carry
                gradient = jax.grad(_loss)(learner, *jax.tree.map(lambda each: each[places], flat))
                trained = gradient._replace(
                    actor=_only_weights(gradient.actor), critic=_only_weights(gradient.critic)
                )
                change, state = self._optimiser.update(trained, state)
                return (jax.tree.map(jnp.add, learner, change), state), None

            def epoch(carry: Any, key: Any) -> Any:
                places = jax.random.permutation(key, len(flat[1])).reshape(MINIBATCHES, -1)
                return jax.lax.scan(minibatch, carry, places)

            (learner, state), _ = jax.lax.scan(epoch, (learner, state), jax.random.split(second, EPOCHS))
            return learner, state

        self._iterate = jax.jit(iterate)

    def start(self, learner: Learner) -> Any:
        """The optimiser before the first iteration."""
        return self._optimiser.init(learner)

    def iterate(
        self, learner: Learner, state: Any, data: Episodes, names: tuple[str, ...], key: Any
    ) -> tuple[Learner, Any]:
        """Play some of the episodes, drawn by `key`, and learn from them."""
        places = np.asarray(jax.random.choice(key, len(data), (self.episodes,), replace=False))
        drawn = {name: jnp.asarray(np.asarray(data[name])[places].T, dtype=jnp.float32) for name in names}
        learner, state = self._iterate(learner, state, drawn, jax.random.fold_in(key, 1))
        return learner, state


def _only_weights(gradient: Actor) -> Actor:
    """Without what is not learned: scales and bounds."""
    fixed: dict[str, Any] = {
        name: jnp.zeros_like(getattr(gradient, name)) for name in ("mean", "scale", "units", "low", "high")
    }
    return Actor(gradient.weights, gradient.biases, **fixed)
