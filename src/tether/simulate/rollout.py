"""Compiled, batched episodes: any policy, with or without the guard in the loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether.core import validate
from tether.core.certificate import Box, Certificate, Choice, Outcome
from tether.core.ops import jax_ops
from tether.core.projection import length
from tether.core.run import Run
from tether.data.episodes import Episodes
from tether.simulate.jitted import jitted
from tether.simulate.lanes import in_parts
from tether.simulate.late import Late, close, state_of, waiting
from tether.simulate.trees import as_tree
from tether.systems.base import Env

Policy = Callable[..., Any]
Precision = Literal["float64", "float32"]
Record = Literal["all", "outcomes"]
_OUTCOMES = ("rewards", "costs")
_TRANSITIONS = (*_OUTCOMES, "actions", "states", "next_states")


def rollout(
    env: Env,
    policy: Policy,
    episodes: Episodes,
    certificate: Certificate | None = None,
    *,
    seed: int = 0,
    precision: Precision = "float64",
    record: Record = "all",
    delay: int = 0,
    missing: float = 0.0,
) -> Run:
    """Play every episode with `policy`, through the guard if there is a certificate.

    One compiled scan over the rounds, batched over the episodes. Another policy of the same structure (an
    `equinox.Module` with other weights), another (lam, b) or other episodes of the same shape compile nothing new.

    Args:
        env: The system.
        policy: `policy(observation, key) -> action`, traceable by JAX; observation is [o]. A dataclass names in
            `tree_numbers` the fields that may be others without compiling anew. To a policy with a true
            attribute `uses_memory` the certificate's features are appended. One with a true attribute `inside` gets
            a third argument `reach(wish) -> (prior's action, safe action nearest to the wish)`, `masked` the mask [n].
        episodes: What was drawn; they are checked against the ranges that the environment's constants cover.
        certificate: The guard's certificate; None to play unguarded (actions are clipped to the box). What its
            `revealed_names` asks for is revealed after each round.
        seed: Seed of the keys that the policy gets, a different one each round of each episode.
        precision: Floating-point type of the computation. Audits that claim the promise use float64.
        record: `"all"` fields of the `Run`, or `"outcomes"`: rewards and costs only, for very large batches.
        delay: The guard learns a round's cost only when so many more rounds are over.
        missing: The share of the rounds, drawn by `seed`, whose cost the guard never learns.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> episodes = tether.data.synthetic_carbon(seed=0, n=100)
        >>> contract = env.contract(lam=1.0, b=1.0)
        >>> certificate = tether.LipschitzCertificate(contract, env.sensitivity)
        >>> idle = lambda observation, key: 0.0
        >>> prior = tether.rollout(env, env.prior, episodes)
        >>> tether.audit(tether.rollout(env, idle, episodes), prior, contract).violation_rate
        1.0
        >>> tether.audit(tether.rollout(env, idle, episodes, certificate), prior, contract).violation_rate
        0.0
    """
    env.check(episodes)
    _check_player(policy, certificate, episodes.horizon)
    check_costs(env, certificate)
    if hasattr(policy, "tree_numbers"):
        as_tree(policy)
    seed = validate.count("seed", seed, minimum=0)
    validate.choice("precision", precision, get_args(Precision))
    validate.choice("record", record, get_args(Record))
    with jax.enable_x64(precision == "float64"):
        # Rounds first, so that a round's values of all episodes lie side by side.
        drawn = {name: jnp.asarray(np.swapaxes(episodes[name], 0, 1)) for name in env.drawn_names}
        numbers = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, dtype=precision) if eqx.is_inexact_array_like(leaf) else leaf,
            as_tree(certificate),
        )
        late, start = _late(certificate, delay, missing), jnp.asarray(seed, dtype=jnp.uint32)
        lanes = getattr(certificate, "lanes", len(episodes))
        if len(episodes) <= lanes:
            played = play(env, policy, drawn, numbers, start, record, late)
        else:
            keys = jax.random.split(jax.random.key(start), len(episodes))
            played = in_parts(
                lambda part, keys: play(env, policy, part, numbers, start, record, late, keys),
                (drawn, keys),
                lanes,
            )
        recorded = {name: np.swapaxes(np.asarray(values), 0, 1) for name, values in played.items()}
    breached = recorded.pop("breached", None)
    if breached is not None:
        recorded["uncertified_from"] = _uncertified_from(breached, delay)
    return Run(**recorded)


def _uncertified_from(breached: Any, delay: int) -> Any:
    """[N] of flags [N, H]: a breach lasts until the end, so that the rounds without one are those before it.

    If costs are late, it may be one of the round whose cost came in that round.
    """
    held = np.sum(~breached, axis=1)
    return np.maximum(1 + held - np.where(held < breached.shape[1], delay, 0), 1)


def _check_player(policy: Policy, certificate: Certificate | None, horizon: int) -> None:
    """Refuse a policy and a certificate that cannot play episodes of this horizon together."""
    if not callable(policy):
        raise TypeError(f"policy must be callable as policy(observation, key) -> action, got {policy!r}")
    if certificate is not None and certificate.contract.horizon not in (horizon, math.inf):
        raise ValueError(
            f"the certificate is for a horizon of {certificate.contract.horizon} rounds, "
            f"the episodes have {horizon}"
        )
    asks = [name for name in ("uses_memory", "inside", "masked") if getattr(policy, name, False)]
    if certificate is None and asks:
        raise ValueError("this policy reads the guard's memory; play it with a certificate")
    if "masked" in asks and not hasattr(certificate, "mask"):
        raise ValueError("this policy is masked; play it with tether.Switches, which has a mask")


def check_costs(env: Env, certificate: Certificate | None) -> None:
    """Refuse a certificate that does not have a contract for each cost."""
    if certificate is None:
        return
    contracts = getattr(certificate, "contracts", None)
    wanted, names = len(env.cost_names), ("cost",) if contracts is None else tuple(contracts)
    if wanted != len(names) or (wanted > 1 and set(names) <= set(env.cost_names) and names != env.cost_names):
        raise ValueError(
            f"{type(env).__name__} has the costs {', '.join(env.cost_names)}, in this order; the certificate is for "
            f"{', '.join(names)}"
        )


def _late(certificate: Any, delay: int, missing: float) -> Late | None:
    """How costs come; None if in time."""
    validate.count("delay", delay, minimum=0)
    if validate.number("missing", missing, minimum=0.0) > 1.0:
        raise ValueError(f"missing is a share of the rounds, at most 1, got {missing!r}")
    if delay == 0 and missing == 0.0:
        return None
    if not hasattr(certificate, "defer"):
        raise ValueError(
            f"delay and missing are about what a guard learns, and need a certificate that can wait for costs; got "
            f"{type(certificate).__name__}"
        )
    return Late(delay, jnp.asarray(missing))


@jitted
def play(
    env: Env,
    policy: Policy,
    drawn: Any,
    certificate: Certificate | None,
    seed: Any,
    record: str,
    late: Late | None = None,
    keys: Any = None,
) -> dict[str, Any]:
    """Play the episodes `drawn`, [H, N]; what is recorded is [H, N, ...], with `"transitions"` the states too.

    `keys` [N] of the episodes are those of `seed`, if they are not given.
    """
    count = jax.tree.leaves(drawn)[0].shape[1]
    if keys is None:
        keys = jax.random.split(jax.random.key(seed), count)
    keys_of_round: Any = jax.vmap(jax.random.fold_in, in_axes=(0, None))
    play_round: Any = jax.vmap(
        lambda carry, now, key, index: _round(env, policy, certificate, carry, now, key, late, index),
        in_axes=(0, 0, 0, None),
    )

    def rounds(carry: Any, drawn_now: Any) -> tuple[Any, Any]:
        index, inner = carry
        inner, seen = play_round(inner, drawn_now, keys_of_round(keys, index), index)
        kept = {
            "outcomes": _OUTCOMES,
            "transitions": _TRANSITIONS,
            "all": seen.keys() - {"states", "next_states"},
        }
        return (index + 1, inner), {name: seen[name] for name in kept[record]}

    zero = jnp.zeros(count)
    memory: Any = None if certificate is None else jax.vmap(lambda z: certificate.start(jax_ops(), z))(zero)
    state = jax.tree.map(
        lambda number: jnp.tile(jnp.asarray(number, zero.dtype), (count, *[1] * np.ndim(number))),
        env.initial(),
    )
    if late is not None:
        first = jax.tree.map(lambda values: values[0], drawn)
        memory = jax.vmap(lambda *given: waiting(env, certificate, late, *given))(memory, state, first)
    seen: dict[str, Any]
    _, seen = jax.lax.scan(rounds, (0, (state, memory)), drawn)
    return seen


def _round(
    env: Env,
    policy: Policy,
    certificate: Certificate | None,
    carry: Any,
    drawn: Any,
    key: Any,
    late: Late | None,
    index: Any,
) -> tuple[Any, dict[str, Any]]:
    """One round of one episode; `index` is its number, counted from 0."""
    state, memory = carry
    ops = jax_ops()
    observation = env.observation(state, drawn)
    low, high = (_in_precision(end, observation.dtype) for end in (env.low, env.high))
    box = Box(low, high, env.norm)
    seen_by_policy = observation
    opened = None if certificate is None else certificate.open(state_of(memory), observation, ops)
    if certificate is not None and getattr(policy, "uses_memory", False):
        seen_by_policy = jnp.concat([observation, jnp.stack(certificate.features(opened, ops))])
    prior = _shaped(env, env.prior(observation), observation.dtype)

    def reach(wish: Any) -> tuple[Any, Any]:
        return prior, certificate.choose(opened, wish, prior, box, ops).action  # type: ignore[union-attr]

    asks: tuple[Any, ...] = (reach,) if getattr(policy, "inside", False) else ()
    if getattr(policy, "masked", False):
        asks = (certificate.mask(opened, prior, ops),)  # type: ignore[union-attr]
    proposal = _shaped(env, policy(seen_by_policy, key, *asks), observation.dtype)
    if certificate is None:
        margin: Any = jnp.asarray(jnp.nan)
        radius: Any = jnp.asarray(jnp.inf)
        action = jnp.clip(proposal, low, high)
        deviation = length(action - prior, env.norm, ops)
    else:
        choice = certificate.choose(opened, proposal, prior, box, ops)
        action, deviation, radius = _reached(choice.action, proposal), choice.deviation, choice.radius
        margin = jnp.where(choice.breached, jnp.nan, choice.margin)
    before = state
    state, reward, cost = env.step(before, drawn, action)
    if certificate is not None:
        revealed = {name: drawn[name] for name in certificate.revealed_names} or None
        outcome = Outcome(cost, revealed=revealed, reward=reward)
        memory = close(certificate, memory, choice.taken, outcome, late, index, key)
    seen = {
        "rewards": reward,
        "costs": cost,
        "actions": action,
        "proposals": proposal,
        "prior_actions": prior,
        "observations": observation,
        "deviations": deviation,
        "radii": radius,
        "margins": margin,
        "states": before,
        "next_states": state,
    }
    if certificate is not None:
        seen |= _judged(state_of(memory), choice)
    return (state, memory), seen


def _in_precision(end: Any, dtype: Any) -> Any:
    """Bounds of the actions; vectors in the plant's precision, since JAX must not meet an array of NumPy in two."""
    return jnp.asarray(end, dtype) if np.ndim(end) else end


@jax.custom_vjp
def _reached(action: Any, proposal: Any) -> Any:  # noqa: ARG001
    """The action that a proposal was moved to; a learner is told where less of a proposal would be better.

    Beyond the edge of the safe set a little more or less of a proposal plays the same, and its derivative is 0: a
    policy that proposes too much in every round would never learn to save. So where a step against the gradient would
    move the action inward, away from the edge, the proposal has the gradient of the action.
    """
    return action


def _reached_forward(action: Any, proposal: Any) -> tuple[Any, tuple[Any, Any]]:
    return action, (action, proposal)


def _reached_backward(kept: tuple[Any, Any], slope: Any) -> tuple[Any, Any]:
    action, proposal = kept
    return slope, jnp.where(slope * (proposal - action) > 0.0, slope, 0.0)


_reached.defvjp(_reached_forward, _reached_backward)


def _judged(held: Any, choice: Choice) -> dict[str, Any]:
    """Whether anything is breached; of several contracts which, and which binds."""
    if not hasattr(held, "void"):
        return {"breached": held.breached}
    return {"breached": jnp.stack(held.void), "bindings": jnp.asarray(choice.binding, dtype=int)}


def _shaped(env: Env, action: Any, dtype: Any) -> Any:
    array = jnp.asarray(action, dtype=dtype)
    if array.size != int(np.prod(env.action_shape)):
        raise ValueError(
            f"an action of {type(env).__name__} has shape {env.action_shape}, the policy returned {array.shape}"
        )
    return jnp.reshape(array, env.action_shape)
