"""The paper's two theorems as numbers for a system at hand, to be put beside what is measured.

**Theorem 5.1** bounds what the promise costs: with the optimal unconstrained policy pi-star and the optimal policy
behind the guard pi-circ,

    V*(x_1) - V_circ(x_1) <= E sum_h L_{Q,h} [eta - (lam*eps + b + DeltaG_h) / Gamma_{h,h}]^+

Its proof plays pi-perp, the projection of pi-star by rule `paper`; DeltaG_h = [R_{h-1}]^+ is what that play has gained,
and the expectation is over its draws. (The printed Lemma has the two values in the wrong order.) The lemma that
D_h >= lam*eps + b + DeltaG_h holds for the rules `paper` and `released`, not for `tight`, which may spend the earnings
of later rounds early. The theorem holds for all three: whatever pi-perp plays is safe under the wider rules too, so
that their optimal policies earn at least as much.

**Theorem 5.2** bounds what learning costs: with probability 1 - delta, for Vbar a bound on the value,

    PReg(K) <= 1 + d_Q H Vbar + 4 sqrt(d_Q beta_K K H) + H sqrt(2 K H log(1/delta))

It is carried over from rewards in [0, 1], where the value is at most H, and in one place the H was not replaced: the
martingale of the proof has steps of size Vbar, so the last term must be Vbar sqrt(2 K H log(2/delta)) (with half of
delta for each of two events). In the others it was replaced by the product H Vbar where Vbar suffices: in the second
term, and in beta, which is H^2 times larger than it need be. `regret_bound` computes the statement in both forms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether import _validate
from tether.certificates import LipschitzCertificate
from tether.learn import optimistic, planning
from tether.learn.planning import Floats, MixtureSystem, Problem, Resolution
from tether.ops import jax_ops

Form = Literal["printed", "corrected"]


def eluder_dimension(value_range: float, dimension: int, epsilon: float) -> float:
    """An upper bound on dim_E(Q, epsilon) of the linear-mixture class (Russo and Van Roy 2014, Proposition 6).

    Two members of the class differ by <features, theta - theta'>, and theta - theta' sums to 0: with the last
    coordinate eliminated there are n = d - 1 features, each at most Vbar in size, and coordinates of norm at most 1:
    dim_E <= 3 n e/(e-1) log(3 + 3 (2 sqrt(n) Vbar / epsilon)^2) + 1.
    """
    free = max(dimension - 1, 1)
    spread = 2.0 * math.sqrt(free) * value_range / epsilon
    return 3.0 * free * math.e / (math.e - 1.0) * math.log(3.0 + 3.0 * spread**2) + 1.0


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
    _validate.choice("form", form, get_args(Form))
    plays = episodes * horizon
    d_q = eluder_dimension(value_range, dimension, 1.0 / plays)
    if form == "printed":
        beta = (
            optimistic.confidence_radius(value_range, horizon, dimension, episodes, delta)
            if beta is None
            else beta
        )
        first, last = d_q * horizon * value_range, horizon * math.sqrt(2.0 * plays * math.log(1.0 / delta))
    else:
        if beta is None:
            beta = corrected_radius(value_range, horizon, dimension, episodes, delta / 2.0)
        first, last = d_q * value_range, value_range * math.sqrt(2.0 * plays * math.log(2.0 / delta))
    return 1.0 + first + 4.0 * math.sqrt(d_q * beta * plays) + last


def corrected_radius(value_range: float, horizon: int, dimension: int, episodes: int, delta: float) -> float:
    """beta_k with the range of the values, Vbar, where the paper prints Vbar H."""
    return optimistic.confidence_radius(value_range / horizon, horizon, dimension, episodes, delta)


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
    bound: float
    """The theorem's bound on V*(x_1) - V_circ(x_1)."""
    projected: float
    """The regret of pi-perp itself on the continuous system: between what is optimal and the bound."""


@dataclass(frozen=True)
class Unconstrained:
    """The optimal unconstrained policy pi-star for one theta; made by `solve_unconstrained`."""

    problem: Problem
    plan: planning.Plan
    theta: Floats
    value: float
    """V*(x_1) on the continuous system, over every draw."""
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
    problem = planning.prepare(system, None, resolution)
    true = system.check_theta(theta)
    policy = planning.plan(problem, true)
    with jax.enable_x64(True):
        quality = np.asarray(_free_quality(problem, jnp.asarray(policy.values), jnp.asarray(true)))
    proposals = np.linspace(*system.actions, problem.resolution.actions)
    slopes = np.abs(np.diff(quality, axis=1)) / np.diff(proposals)[:, None]
    with jax.enable_x64(True):
        prior = np.asarray(planning.evaluate_on_grid(system, problem.resolution)["prior"])
    eta = float(np.abs(proposals[policy.greedy[:, :, 0, 0]] - prior).max())
    value = planning.play_every_draw(problem, policy, true, true).value
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
    draws, chances = planning.every_draw(star.system, star.theta)
    with jax.enable_x64(True):
        numbers = jax.tree.map(lambda number: jnp.asarray(number, dtype=float), paper)
        played = _project_optimal(
            star.problem,
            numbers,
            jnp.asarray(star.plan.values[..., 0]),
            jnp.asarray(star.theta),
            jnp.asarray(draws),
        )
        rewards, gains = (np.asarray(each) for each in played)
    horizon = star.system.horizon
    totals = np.array(
        [float(paper.total(paper.start()._replace(rounds=float(closed)))) for closed in range(horizon)]
    )
    short = np.maximum(star.eta - (paper.contract.earned + gains) / totals, 0.0)
    return PromiseCost(
        eta=star.eta,
        lipschitz=star.lipschitz,
        totals=totals,
        gains=chances @ gains,
        bound=float(chances @ (short @ star.lipschitz)),
        projected=star.value - float(chances @ rewards.sum(axis=1)),
    )


@eqx.filter_jit
def _project_optimal(problem: Problem, certificate: Any, values: Any, theta: Any, draws: Any) -> Any:
    """pi-perp: pi-star's actions through the guard; its rewards and DeltaG_h, [N, H] each."""
    system = problem.system
    grid = planning.proposal_grid(system, problem.resolution)
    chances = jnp.asarray(system.mixture) @ theta

    def one_round(carry: Any, now: Any) -> tuple[Any, Any]:
        state, guard = carry
        at, after, draw = now

        def quality(action: Any) -> Any:
            arrived = planning.next_states(system, at, state, action)
            ahead: Any = jax.vmap(lambda each: planning.interpolate(problem, after, at, each, None))
            return system.reward(at, state, action) + chances @ ahead(arrived)

        proposal = grid[jnp.argmax(jax.vmap(quality)(grid))]
        bounds, rest = certificate.bounds, certificate.contract.horizon - guard.rounds
        gain = guard.surplus - bounds.carried * bounds.perturbation.felt_over(guard.memory, rest, jnp)
        action, _, guard = planning.guarded_decision(system, certificate, at, state, guard, proposal)
        reward = jnp.asarray(system.reward(at, state, action), dtype=float)
        arrived = planning.next_states(system, at, state, action)[draw]
        return (arrived, guard), (reward, jnp.maximum(gain, 0.0))

    def episode(drawn: Any) -> Any:
        start = (jnp.asarray(system.initial, dtype=float), certificate.start(jax_ops(), jnp.zeros(())))
        return jax.lax.scan(one_round, start, (planning.rounds_of(system), values[1:], drawn))[1]

    return jax.lax.map(episode, draws, batch_size=1024)
