"""A plan on the continuous system: nothing is snapped to the grid, and the prior is replayed on the same draws."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tether.core.run import Run
from tether.exact.grid import Problem, guard_at_start, guarded_decision, interpolate, proposal_grid
from tether.exact.mixture import Floats, every_draw, next_states, rounds_of
from tether.exact.planning import GridPlan


class PlayedRound(NamedTuple):
    """What one played round gave; features and target are those of the value-targeted regression."""

    reward: Any
    cost: Any
    prior_cost: Any
    action: Any
    features: Any
    """[d] E[V(s') | s, a] is <features, theta>."""
    target: Any
    """V(s') of the state that came."""
    spread: Any
    """Largest minus smallest V(s') over the transition functions: known before nature draws."""


def play_episode(
    problem: Problem, values: Any, theta: Any, first: Any, draws: Any, imposed: Any = None
) -> PlayedRound:
    """One episode on the continuous system, through the guard, and the prior replayed on the same draws.

    Args:
        problem: The problem.
        values: [H + 1, n_x, n_g] to be greedy for.
        theta: [d] the model to be greedy for.
        first: Which of the initial states nature draws.
        draws: [H] which transition function nature draws.
        imposed: [H] indices of proposals to play; -1, or no array at all, for the greedy one.
    """
    system, certificate = problem.system, problem.certificate
    mixture = jnp.asarray(system.mixture)
    grid = proposal_grid(system, problem.resolution)

    def one_round(carry: Any, now: Any) -> tuple[Any, PlayedRound]:
        state, guard, prior_state = carry
        at, values_after, draw, index = now

        def look_ahead(proposal: Any) -> Any:
            """Algorithm 1 and one step of the model: what is played, and V after each transition function [M]."""
            action, cost, after = guarded_decision(system, certificate, at, state, guard, proposal)
            reward = jnp.asarray(system.reward(at, state, action), dtype=float)
            arrived = next_states(system, at, state, action)
            here: Any = jax.vmap(lambda each: interpolate(problem, values_after, at, each, after))
            return reward, cost, action, after, arrived, here(arrived)

        options = jax.vmap(look_ahead)(grid)
        best = jnp.argmax(options[0] + options[-1] @ (mixture @ theta))
        chosen = jnp.where(index >= 0, index, best)
        reward, cost, action, after, arrived, ahead = jax.tree.map(lambda each: each[chosen], options)
        trusted = jnp.asarray(system.prior(at, prior_state), dtype=float)
        seen = PlayedRound(
            reward=reward,
            cost=cost,
            prior_cost=jnp.asarray(system.cost(at, prior_state, trusted), dtype=float),
            action=action,
            features=mixture.T @ ahead,
            target=ahead[draw],
            spread=jnp.max(ahead) - jnp.min(ahead),
        )
        return (arrived[draw], after, next_states(system, at, prior_state, trusted)[draw]), seen

    start = guard_at_start(certificate)
    initial = jnp.asarray(system.initial)[first]
    imposed = jnp.full(system.horizon, -1) if imposed is None else imposed
    inputs = (rounds_of(system), values[1:], draws, imposed)
    seen: PlayedRound = jax.lax.scan(one_round, (initial, start, initial), inputs)[1]
    return seen


@eqx.filter_jit
def _play_all(problem: Problem, values: Any, theta: Any, firsts: Any, draws: Any) -> PlayedRound:
    played: PlayedRound = jax.lax.map(
        lambda each: play_episode(problem, values, theta, *each), (firsts, draws), batch_size=1024
    )
    return played


class Played(NamedTuple):
    """Episodes that a plan played on the continuous system, and the prior's on the same draws."""

    run: Run
    prior_costs: Floats
    """[N, H] costs of the prior, replayed."""
    firsts: NDArray[np.int64]
    """[N] which initial state each episode began in."""
    chances: Floats
    """[N] probability of each episode's draws; they sum to 1 when all draws were played."""

    @property
    def value(self) -> float:
        """Mean total reward, weighted by the chances."""
        return float(self.run.returns @ self.chances / self.chances.sum())


def play(problem: Problem, policy: GridPlan, theta: Any, draws: Any, firsts: Any = None) -> Played:
    """Play the first policy of a plan on the continuous system, one episode for each row of `draws` [N, H].

    The greedy action looks one exact step ahead from wherever the system is: nothing is snapped to the grid.

    Args:
        problem: The problem.
        policy: A plan for this problem.
        theta: [d] the model that the plan was made for.
        draws: [N, H] indices of the transition functions that nature draws.
        firsts: [N] indices of the initial states that nature draws; None for the first one in every episode.
    """
    model = problem.system.check_theta(theta)
    began = np.zeros(len(draws), dtype=np.int64) if firsts is None else np.asarray(firsts)
    with jax.enable_x64(True):
        values = jnp.asarray(policy.values[..., 0])
        seen = _play_all(problem, values, jnp.asarray(model), jnp.asarray(began), jnp.asarray(draws))
        run = Run(np.asarray(seen.reward), np.asarray(seen.cost), actions=np.asarray(seen.action))
        return Played(run, np.asarray(seen.prior_cost), began, np.full(len(draws), 1.0 / len(draws)))


def play_every_draw(problem: Problem, policy: GridPlan, theta: Any, true_theta: Any) -> Played:
    """Play a plan on the continuous system over every sequence of draws, weighted as `true_theta` makes them likely.

    Its value is exact: no grid and no sampling.
    """
    every = every_draw(problem.system, true_theta)
    return play(problem, policy, theta, every.draws, every.firsts)._replace(chances=every.chances)
