"""Exact planning behind the guard: value iteration on a grid (`tether.exact.grid`), for a batch of thetas at once.

With the tables of a `Problem` value iteration is gathers and sums. Interpolation weights are probabilities, so the grid
is itself a Markov decision process, in which the values of policies are exact. How far it is from the continuous system
is measured: by finer grids, and by `tether.exact.playing`, which plays a plan on the continuous system over every
possible draw.

Everything computes in float64, in JAX's local context.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether.exact.grid import Problem, Tables, cell_corners, corner_weight, guard_at_start, interpolate
from tether.exact.mixture import Floats


class GridPlan(NamedTuple):
    """The result of value iteration for a batch of B thetas."""

    values: Any
    """[H + 1, n_x, n_g, B] V_h at the nodes; the last is 0."""
    greedy: Any
    """[H, n_x, n_g, B] index of the best proposal at each node."""
    starts: Any
    """[I, B] V_1 at each initial state."""
    start: Any
    """[B] its mean over the initial states, E[V_1(x_1)]."""


def expected_values(values: Any, tables: Tables, chances: Any) -> Any:
    """E_g[V(x', guard)] for each state node, action node and guard node: [n_x, n_a, n_g, B].

    A loop over the transition functions and not a sum: the compiler would merge a sum into what gathers from it, and
    compute each entry again for each of the many places that need it.

    Args:
        values: [n_x, n_g, B] V of the next round.
        tables: Those of this round.
        chances: [M, B] the distribution over transition functions.
    """

    def add(total: Any, now: Any) -> tuple[Any, None]:
        lower, weight, chance = now
        weight = weight[..., None, None]
        return total + chance * ((1.0 - weight) * values[lower] + weight * values[lower + 1]), None

    zero = jnp.zeros((*tables.next_place.shape[1:], *values.shape[1:]))
    return jax.lax.scan(add, zero, (tables.next_place, tables.next_weight, chances))[0]


def _over_proposals(
    problem: Problem, expected: Any, tables: Tables, fold: Callable[[Any, Any, Any], Any], start: Any
) -> Any:
    """Fold Q over the proposals: fold(carry, index of the proposal, Q at the nodes [n_x, n_g, B]) -> carry.

    Q is the reward, and `expected` at the action played and the guard's coordinates after it.
    """
    states, actions, guards, batch = expected.shape
    flat = expected.reshape(states * actions * guards, batch)
    first = jnp.arange(states)[:, None] * (actions * guards)

    def one_proposal(carry: Any, now: Any) -> tuple[Any, None]:
        index, place, weights, reward = now
        quality: Any = reward[..., None]
        for offset, corner in cell_corners(problem.sizes, (actions,)):
            quality = quality + corner_weight(weights, corner)[..., None] * flat[first + place + offset]
        return fold(carry, index, quality), None

    inputs = (jnp.arange(actions, dtype=jnp.int32), tables.place, tables.weights, tables.reward)
    return jax.lax.scan(one_proposal, start, inputs)[0]


def _no_values(problem: Problem, batch: int) -> Any:
    return jnp.zeros((problem.resolution.states, math.prod(problem.sizes), batch))


def iterate_values(problem: Problem, thetas: Any) -> GridPlan:
    """Value iteration (the paper's equation for Q-tilde) for thetas [B, d]."""
    chances = jnp.asarray(problem.system.mixture) @ thetas.T

    def better(best: Any, index: Any, quality: Any) -> Any:
        return jnp.maximum(best[0], quality), jnp.where(quality > best[0], index, best[1])

    def backwards(values: Any, tables: Tables) -> tuple[Any, tuple[Any, Any]]:
        nothing = (jnp.full_like(values, -jnp.inf), jnp.zeros(values.shape, dtype=jnp.int32))
        expected = expected_values(values, tables, chances)
        best, greedy = _over_proposals(problem, expected, tables, better, nothing)
        return best, (best, greedy)

    last = _no_values(problem, thetas.shape[0])
    _, (values, greedy) = jax.lax.scan(backwards, last, problem.tables, reverse=True)
    starts = _at_start(problem, values[0])
    mean = jnp.asarray(problem.system.initial_chances) @ starts
    return GridPlan(jnp.concat([values, last[None]]), greedy, starts, mean)


def evaluate_policy(problem: Problem, greedy: Any, theta: Any) -> Any:
    """Value [I, B] at each initial state, under theta [d], of policies with the proposals `greedy` [H, n_x, n_g, B]."""
    batch = greedy.shape[-1]
    chances = (jnp.asarray(problem.system.mixture) @ theta)[:, None]
    states, actions, guards = problem.resolution.states, problem.resolution.actions, math.prod(problem.sizes)
    rows, nodes, columns = jnp.arange(states)[:, None, None], jnp.arange(guards)[:, None], jnp.arange(batch)

    def backwards(values: Any, now: tuple[Tables, Any]) -> tuple[Any, None]:
        tables, choice = now
        expected = expected_values(values, tables, chances).reshape(-1, batch)
        place = tables.place[choice, rows, nodes] + rows * (actions * guards)
        weights = [tables.weights[:, c][choice, rows, nodes] for c in range(tables.weights.shape[1])]
        total: Any = tables.reward[choice, rows, nodes]
        for offset, corner in cell_corners(problem.sizes, (actions,)):
            total = total + corner_weight(weights, corner) * expected[place + offset, columns]
        return total, None

    first, _ = jax.lax.scan(backwards, _no_values(problem, batch), (problem.tables, greedy), reverse=True)
    return _at_start(problem, first)


def _at_start(problem: Problem, values: Any) -> Any:
    """The value [I, B] at each initial state, of values [n_x, n_g, B] before the first round."""
    start = guard_at_start(problem.certificate)
    at_each: Any = jax.vmap(lambda state: interpolate(problem, values, 0, state, start))
    return at_each(jnp.asarray(problem.system.initial))


@eqx.filter_jit
def evaluate_random(problem: Problem, theta: Any) -> Any:
    """Value at each initial state, under theta [d], of proposals drawn uniformly: [I]."""
    chances = (jnp.asarray(problem.system.mixture) @ theta)[:, None]

    share = 1.0 / problem.resolution.actions

    def backwards(values: Any, tables: Tables) -> tuple[Any, None]:
        expected, nothing = expected_values(values, tables, chances), jnp.zeros_like(values)
        mean = _over_proposals(
            problem, expected, tables, lambda total, _, quality: total + share * quality, nothing
        )
        return mean, None

    first, _ = jax.lax.scan(backwards, _no_values(problem, 1), problem.tables, reverse=True)
    return _at_start(problem, first)[:, 0]


_compiled_iterate = eqx.filter_jit(iterate_values)
_compiled_evaluate = eqx.filter_jit(evaluate_policy)


def plan(problem: Problem, theta: Any) -> GridPlan:
    """The optimal policy for one theta [d], or for each of a batch [B, d], by value iteration on the grid.

    With a certificate this is the optimal policy behind the guard (pi-circ for the true theta), without one the
    optimal unconstrained policy (pi-star).
    """
    thetas = _batch(problem, theta)
    with jax.enable_x64(True):
        return GridPlan(*(np.asarray(each) for each in _compiled_iterate(problem, jnp.asarray(thetas))))


def evaluate(problem: Problem, policy: GridPlan, theta: Any) -> Floats:
    """Value at each initial state of the greedy policies of a plan when nature draws with `theta` [d]: [I, B]."""
    with jax.enable_x64(True):
        true = jnp.asarray(problem.system.check_theta(theta))
        return np.asarray(_compiled_evaluate(problem, jnp.asarray(policy.greedy), true))


def random_value(problem: Problem, theta: Any) -> float:
    """Value of proposals drawn uniformly from the action grid, under `theta` [d], mean over the initial states."""
    with jax.enable_x64(True):
        values = np.asarray(evaluate_random(problem, jnp.asarray(problem.system.check_theta(theta))))
        return float(problem.system.initial_chances @ values)


def _batch(problem: Problem, theta: Any) -> Floats:
    thetas = np.atleast_2d(np.asarray(theta, dtype=float))
    return np.stack([problem.system.check_theta(each) for each in thetas])
