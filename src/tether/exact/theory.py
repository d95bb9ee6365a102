"""The paper's two theorems as numbers for a system at hand, to be put beside what is measured.

**Theorem 5.1** bounds what the promise costs: with the optimal unconstrained policy pi-star and the optimal policy
behind the guard pi-circ,

    V*(x_1) - V_circ(x_1) <= E sum_h L_{Q,h} [eta - (lam*eps + b + DeltaG_h) / Gamma_{h,h}]^+

Its proof plays pi-perp, the projection of pi-star by rule `paper`; DeltaG_h = [R_{h-1}]^+ is what that play has
gained, and the expectation is over its draws. (The printed Lemma has the two values in the wrong order.) The lemma
that D_h >= lam*eps + b + DeltaG_h holds for the rules `paper` and `released`, not for `tight`, which may spend the
earnings of later rounds early. The theorem holds for all three: whatever pi-perp plays is safe under the wider rules
too, so that their optimal policies earn at least as much.

**Theorem 5.2** bounds what learning costs: with probability 1 - delta, for Vbar a bound on the range of the values,

    PReg(K) <= 1 + d_Q H Vbar + 4 sqrt(d_Q beta_K K H) + H sqrt(2 K H log(1/delta))

It is carried over from rewards in [0, 1], where the value is at most H, and in two places that H was not turned into
Vbar as it should. The martingale of the proof has differences within [-Vbar, Vbar], so that the last term must be
Vbar sqrt(2 K H log(2/delta)) (with half of delta for each of two events). And beta has (Vbar H)^2 where Vbar^2 is
enough: `optimistic.confidence_radius` has both, with the derivation. `regret_bound` computes both forms of the
theorem.

The second term is as printed in both, H included. G_k is frozen while episode k is played. Write w_{k,h} for the
width of Q at (s_h, a_h, V_{h+1}) over G_k. If w_{k,h} > epsilon, two members of G_k differ there by more than
epsilon; their squared differences over all *earlier episodes* sum to at most 4 beta, so that (s_h, a_h, V_{h+1})
depends on fewer than 4 beta / epsilon^2 disjoint sequences of earlier episodes. But in any list of N points there is
one that depends on at least N / d_Q - 1 disjoint sequences of points before it in the list, and at most H - 1 of
these contain a point of its own episode. So at most (4 beta / epsilon^2 + H) d_Q of the K H widths exceed epsilon.
Sorted, the t-th largest is then at most Vbar for t <= d_Q H and sqrt(4 d_Q beta / (t - d_Q H)) beyond, unless it is
below 1/(K H), which sums to 1 + d_Q H Vbar + 4 sqrt(d_Q beta K H). With sets that are renewed after every round it
would be 1 for H. The widths can reach it: where episode j < d_Q plays a new direction in all of its rounds, none of
them is narrowed by the others.

The first line of Algorithm 2, G_1 = {ghat_1}, is a set that misses the true g, and the *proof* needs g in every G_k:
it fails for k = 1. The statement survives: one episode costs at most Vbar, and since V_{H+1} = 0 an episode has H - 1
widths and not H, which leaves d_Q Vbar of the second term for it. Here G_1 is the whole simplex, and nothing needs
mending.

**Both together** bound Regret(K) = sum_k (V*(x_1^k) - V_k(x_1^k)), the regret to the optimal unconstrained policy, by
the sum of Theorem 5.1 over the initial states that were drawn and Theorem 5.2. Both hold for each draw of the x_1^k,
and so for their expectation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates import LipschitzCertificate
from tether.core import validate
from tether.core.ops import jax_ops
from tether.exact import optimistic, planning
from tether.exact.grid import (
    Problem,
    Resolution,
    evaluate_on_grid,
    guard_at_start,
    guarded_decision,
    interpolate,
    prepare,
    proposal_grid,
)
from tether.exact.mixture import Floats, MixtureSystem, every_draw, next_states, rounds_of
from tether.exact.optimistic import Form
from tether.exact.playing import play_every_draw


def eluder_dimension(feature_range: float, dimension: int, epsilon: float) -> float:
    """An upper bound on dim_E(Q, epsilon) of the linear-mixture class (Russo and Van Roy 2014, Proposition 6).

    Two members of the class differ by <features, theta - theta'>, and theta - theta' sums to 0: with the last
    coordinate eliminated there are n = d - 1 features and coordinates of norm at most 1:
    dim_E <= 3 n e/(e-1) log(3 + 3 (2 sqrt(n) L / epsilon)^2) + 1. The contract enters through L alone, and only through
    its logarithm.

    Args:
        feature_range: L, by how much V(s') can differ between two transition functions; at most Vbar.
        dimension: d, of theta.
        epsilon: Reward units.
    """
    free = max(dimension - 1, 1)
    spread = 2.0 * math.sqrt(free) * feature_range / epsilon
    return 3.0 * free * math.e / (math.e - 1.0) * math.log(3.0 + 3.0 * spread**2) + 1.0


def independent_features(features: Any, epsilon: float) -> int:
    """A lower bound on dim_E(Q, epsilon): the length of a sequence of independent ones of the `features` [N, d].

    For one epsilon' >= epsilon, x is independent of x_1..x_t if some rho = theta - theta' has sum_i <x_i, rho>^2 <=
    epsilon'^2 and |<x, rho>| > epsilon'. With the last coordinate eliminated every rho of norm 1/sqrt(n), n = d - 1, is
    a difference of two thetas. So x' A^-1 x > 1 is enough, for A = n epsilon'^2 I + sum_i x_i x_i': the maximiser of
    <x, rho> over rho' A rho <= epsilon'^2 is such a rho. Greedy: the next is always the one that is barely independent,
    and the longest sequence of several epsilon' counts.
    """
    points = np.asarray(features, dtype=float)
    points = points[:, :-1] - points[:, -1:]
    free = points.shape[1]
    if free == 0:
        return 0
    largest, longest = float(np.linalg.norm(points, axis=1).max()), 0
    while largest > math.sqrt(free) * epsilon:
        matrix, length = free * epsilon**2 * np.eye(free), 0
        while True:
            sizes = np.einsum("ni,ij,nj->n", points, np.linalg.inv(matrix), points)
            sizes[sizes <= 1.0 + 1e-9] = np.inf
            nearest = int(np.argmin(sizes))
            if not np.isfinite(sizes[nearest]):
                break
            matrix, length = matrix + np.outer(points[nearest], points[nearest]), length + 1
        longest, epsilon = max(longest, length), 4.0 * epsilon
    return longest


def regret_bound(
    value_range: float,
    horizon: int,
    dimension: int,
    episodes: int,
    delta: float,
    *,
    beta: float | None = None,
    form: Form = "printed",
) -> float:
    """Theorem 5.2's bound on the cumulative pseudo-regret of K episodes.

    Args:
        value_range: Vbar.
        horizon: H.
        dimension: d, of theta.
        episodes: K.
        delta: The probability that it may fail with.
        beta: Squared radius of the confidence set that was used; None for the one that the form of the theorem asks
            for. With a smaller one the bound holds as long as the true theta is in every set.
        form: `"printed"` or `"corrected"`, see the module's documentation.
    """
    validate.choice("form", form, get_args(Form))
    plays = episodes * horizon
    d_q = eluder_dimension(value_range, dimension, 1.0 / plays)
    # Corrected: half of delta for the confidence sets, half for the martingale.
    step, failure = (horizon, delta) if form == "printed" else (value_range, delta / 2.0)
    if beta is None:
        beta = optimistic.confidence_radius(value_range, horizon, dimension, episodes, failure, form=form)
    martingale = step * math.sqrt(2.0 * plays * math.log(1.0 / failure))
    return 1.0 + d_q * horizon * value_range + 4.0 * math.sqrt(d_q * beta * plays) + martingale


@dataclass(frozen=True)
class PromiseCost:
    """Theorem 5.1 for one system and one contract."""

    eta: float
    """sup |pi*(x) - prior(x)| over rounds and states, action units."""
    lipschitz: Floats
    """[H] L_{Q,h}: greatest slope of Q^{pi*}_h in the action, reward per action."""
    totals: Floats
    """[H] Gamma_{h,h}, cost per action."""
    gains: Floats
    """[H] E[DeltaG_h] when pi-perp plays, cost units."""
    bounds: Floats
    """[I] the theorem's bound on V*(x_1) - V_circ(x_1), for each initial state."""
    bound: float
    """Its mean over the initial states, the bound on E[V*(x_1) - V_circ(x_1)]."""
    projected: float
    """The regret of pi-perp itself on the continuous system: between what is optimal and the bound."""


@dataclass(frozen=True)
class Unconstrained:
    """The optimal unconstrained policy pi-star for one theta; made by `solve_unconstrained`."""

    problem: Problem
    plan: planning.GridPlan
    theta: Floats
    value: float
    """E[V*(x_1)] on the continuous system, over every draw."""
    eta: float
    lipschitz: Floats

    @property
    def system(self) -> MixtureSystem:
        """The system that it is optimal for."""
        return self.problem.system


def solve_unconstrained(
    system: MixtureSystem, theta: Any, resolution: Resolution | None = None
) -> Unconstrained:
    """pi-star with what Theorem 5.1 needs of it: eta and L_{Q,h}, over every node of the grid."""
    problem = prepare(system, None, resolution)
    true = system.check_theta(theta)
    policy = planning.plan(problem, true)
    with jax.enable_x64(True):
        quality = np.asarray(_free_quality(problem, jnp.asarray(policy.values), jnp.asarray(true)))
    proposals = np.linspace(*system.actions, problem.resolution.actions)
    slopes = np.abs(np.diff(quality, axis=1)) / np.diff(proposals)[:, None]
    with jax.enable_x64(True):
        prior = np.asarray(evaluate_on_grid(system, problem.resolution)["prior"])
    eta = float(np.abs(proposals[policy.greedy[:, :, 0, 0]] - prior).max())
    value = play_every_draw(problem, policy, true, true).value
    return Unconstrained(problem, policy, true, value, eta, slopes.max(axis=(1, 2)))


@eqx.filter_jit
def _free_quality(problem: Problem, values: Any, theta: Any) -> Any:
    """Q^{pi*} without a guard, at every round, proposal and state node: [H, n_a, n_x]."""
    chances = (jnp.asarray(problem.system.mixture) @ theta)[:, None]

    def one_round(now: Any) -> Any:
        tables, after = now
        expected = planning.expected_values(after, tables, chances)
        return tables.reward[:, :, 0] + jnp.moveaxis(expected[:, :, 0, 0], 0, 1)

    return jax.lax.map(one_round, (problem.tables, values[1:]))


def promise_cost(star: Unconstrained, certificate: LipschitzCertificate) -> PromiseCost:
    """Theorem 5.1's bound for a contract, with the expectation taken over every draw of the continuous system."""
    paper = replace(certificate, rule="paper")
    firsts, draws, chances = every_draw(star.system, star.theta)
    with jax.enable_x64(True):
        numbers = jax.tree.map(lambda number: jnp.asarray(number, dtype=float), paper)
        played = _project_optimal(
            star.problem,
            numbers,
            jnp.asarray(star.plan.values[..., 0]),
            jnp.asarray(star.theta),
            (jnp.asarray(firsts), jnp.asarray(draws)),
        )
        rewards, gains = (np.asarray(each) for each in played)
    horizon = star.system.horizon
    totals = np.array(
        [float(paper.total(paper.start()._replace(rounds=float(closed)))) for closed in range(horizon)]
    )
    short = np.maximum(star.eta - (paper.contract.earned + gains) / totals, 0.0)
    sums = np.bincount(firsts, chances * (short @ star.lipschitz))
    return PromiseCost(
        eta=star.eta,
        lipschitz=star.lipschitz,
        totals=totals,
        gains=chances @ gains,
        bounds=sums / star.system.initial_chances,
        bound=float(sums.sum()),
        projected=star.value - float(chances @ rewards.sum(axis=1)),
    )


@eqx.filter_jit
def _project_optimal(problem: Problem, certificate: Any, values: Any, theta: Any, every: Any) -> Any:
    """pi-perp: pi-star's actions through the guard; its rewards and DeltaG_h, [N, H] each."""
    system = problem.system
    grid = proposal_grid(system, problem.resolution)
    chances = jnp.asarray(system.mixture) @ theta

    def one_round(carry: Any, now: Any) -> tuple[Any, Any]:
        state, guard = carry
        at, after, draw = now

        def quality(action: Any) -> Any:
            arrived = next_states(system, at, state, action)
            ahead: Any = jax.vmap(lambda each: interpolate(problem, after, at, each, None))
            return system.reward(at, state, action) + chances @ ahead(arrived)

        proposal = grid[jnp.argmax(jax.vmap(quality)(grid))]
        bounds, rest = certificate.bounds, certificate.contract.horizon - guard.rounds
        gain = guard.surplus - bounds.carried * bounds.perturbation.carried_deviation_over(
            guard.memory, rest, jax_ops()
        )
        action, _, guard = guarded_decision(system, certificate, at, state, guard, proposal)
        reward = jnp.asarray(system.reward(at, state, action), dtype=float)
        arrived = next_states(system, at, state, action)[draw]
        return (arrived, guard), (reward, jnp.maximum(gain, 0.0))

    def episode(each: Any) -> Any:
        first, drawn = each
        start = (jnp.asarray(system.initial)[first], guard_at_start(certificate))
        return jax.lax.scan(one_round, start, (rounds_of(system), values[1:], drawn))[1]

    return jax.lax.map(episode, every, batch_size=1024)
