"""Costs that come late or not at all, in compiled episodes: what waits is a ring of fixed size in the scan's carry."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tether.core.certificate import Box, Outcome
from tether.core.ops import jax_ops
from tether.systems.base import Env

STREAM = 0x1A7E
"""Folded into a round's key: whether a cost is missing has nothing to do with what the policy draws."""


class Late(NamedTuple):
    """How costs come; see `tether.rollout`."""

    delay: int
    """Rounds that are closed before a cost is known."""
    missing: Any
    """The share of the rounds whose cost never comes."""


class Waiting(NamedTuple):
    """A certificate's state, and the rounds that wait for their costs."""

    state: Any
    owed: Any
    """What `Certificate.defer` gave, [delay, ...]."""
    costs: Any
    """[delay]"""
    comes: Any
    """[delay] whether the cost will come."""


def state_of(memory: Any) -> Any:
    """The certificate's state, whether something waits or not."""
    return memory.state if isinstance(memory, Waiting) else memory


def waiting(env: Env, certificate: Any, late: Late, memory: Any, state: Any, drawn: Any) -> Waiting:
    """The memory of an episode's first round, in which nothing waits."""

    def owed() -> Any:
        ops, box = jax_ops(), Box(env.low, env.high, env.norm)
        observation = env.observation(state, drawn)
        prior = jnp.reshape(jnp.asarray(env.prior(observation), observation.dtype), env.action_shape)
        opened = certificate.open(memory, observation, ops)
        taken = certificate.choose(opened, prior, prior, box, ops).taken
        return _arrays(certificate.defer(memory, taken, Outcome(jnp.nan), ops)[1])

    like = jax.eval_shape(owed)
    ring = jax.tree.map(lambda each: jnp.zeros((late.delay, *each.shape), each.dtype), like)
    return Waiting(memory, ring, jnp.zeros(late.delay), jnp.zeros(late.delay, dtype=bool))


def close(
    certificate: Any, memory: Any, taken: Any, outcome: Outcome, late: Late | None, index: Any, key: Any
) -> Any:
    """The memory after round `index`; if costs are late, its own is deferred, that of round index - delay settled."""
    ops = jax_ops()
    if late is None:
        return certificate.update(memory, taken, outcome, ops)
    comes = ~jax.random.bernoulli(jax.random.fold_in(key, STREAM), late.missing)
    state, owed = certificate.defer(memory.state, taken, outcome._replace(cost=jnp.nan), ops)
    if late.delay == 0:
        seen = certificate.update(memory.state, taken, outcome, ops)
        return memory._replace(state=_either(comes, seen, state))
    place = index % late.delay
    due = jax.tree.map(lambda ring: ring[place], (memory.owed, memory.costs, memory.comes))
    # What is no array, such as the round-off of the number type, is the same in every round.
    settled = certificate.settle(state, eqx.combine(due[0], owed), Outcome(due[1]), ops)
    now = (_arrays(owed), outcome.cost, comes)
    rings = jax.tree.map(lambda ring, each: ring.at[place].set(each), tuple(memory[1:]), now)
    return Waiting(_either(due[2], settled, state), *rings)


def _arrays(owed: Any) -> Any:
    return eqx.filter(owed, eqx.is_array)


def _either(condition: Any, if_true: Any, if_false: Any) -> Any:
    return jax.tree.map(lambda *pair: jnp.where(condition, *pair), if_true, if_false)
