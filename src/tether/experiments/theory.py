"""Algorithm 2 and both theorems on the small carbon system: what is proved beside what is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np

from tether import theory
from tether.audit import audit
from tether.certificates import Rule
from tether.experiments.theory_tables import NEAR, NEAR_OF_GAIN, LearningRow, SettingRow, TheoryStudy
from tether.learn import optimistic, planning
from tether.learn.carbon_mixture import CarbonMixture
from tether.learn.optimistic import Learning, Variant
from tether.learn.planning import Floats, Problem, Resolution


def theory_study(
    lam: float,
    b: float,
    lams: Sequence[float],
    bs: Sequence[float],
    *,
    episodes: int = 500,
    seeds: Sequence[int] = tuple(range(10)),
    delta: float = 0.1,
    scale: float | None = None,
    rule: Rule = "tight",
    resolution: Resolution | None = None,
    factors: Sequence[int] = (1, 2),
    lattice: int = 300,
    example: CarbonMixture | None = None,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> TheoryStudy:
    """Run Algorithm 2 and its variants at (lam, b), and check both theorems along lam and along b.

    Args:
        lam: The contract's relative slack, for the learning curves and where b varies.
        b: Its slack a round, for the learning curves and where lam varies.
        lams: Values of lam to check the theorems at.
        bs: Values of b to check them at.
        episodes: K.
        seeds: Of nature's draws.
        delta: The probability that the confidence sets may fail with.
        scale: beta used / beta printed; None for the classical ellipsoid (`optimistic.ellipsoid_radius`).
        rule: The guard's rule.
        resolution: The grid.
        factors: Refinements of it that its error is measured by.
        lattice: Thetas that the optimistic choice is tabulated at; its gap is looked for among six times as many.
        example: The system.
        report: Called with (pieces done, pieces in all).
    """
    example = CarbonMixture() if example is None else example
    resolution = Resolution() if resolution is None else resolution
    system, theta, seeds = example.system, example.theta, list(seeds)
    settings = sorted({(lam, b), *((each, b) for each in lams), *((lam, each) for each in bs)})
    total = (len(settings) + len(get_args(Variant)) - 1) * episodes + 2
    done = 0

    def progress(episode: int) -> None:
        report(done + episode, total)

    report(0, total)
    star = theory.solve_unconstrained(system, theta, resolution)
    # With no slack at all every proposal becomes the prior's action.
    strict = planning.prepare(system, example.certificate(0.0, 0.0, rule), resolution)
    prior = planning.plan(strict, theta).starts[:, 0]
    rows: list[SettingRow] = []
    for each_lam, each_b in settings:
        problem = planning.prepare(system, example.certificate(each_lam, each_b, rule), resolution)
        surface = optimistic.make_surface(problem, lattice)
        beta, printed_beta = _radii(problem, surface, episodes, delta, scale)
        learning = optimistic.learn(
            problem, theta, episodes, seeds, beta=beta, surface=surface, report=progress
        )
        done += episodes
        optimal = planning.plan(problem, theta)
        rows.append(_setting_row(star, prior, example, problem, surface, optimal, learning, delta))
        if (each_lam, each_b) == (lam, b):
            main = (problem, surface, beta, printed_beta, optimal, learning)
    problem, surface, beta, printed_beta, optimal, learning = main
    learnings = [learning]
    for variant in get_args(Variant)[1:]:
        radius = optimistic.counting_radius(system.dimension, delta) if variant == "counting" else beta
        learnings.append(
            optimistic.learn(
                problem,
                theta,
                episodes,
                seeds,
                variant=variant,
                beta=radius,
                surface=surface,
                report=progress,
            )
        )
        done += episodes

    places = [
        (s, k)
        for s in range(min(len(seeds), 2))
        for k in sorted({0, episodes // 10, episodes // 2, episodes - 1})
    ]
    gaps = [
        optimistic.optimism_gap(
            problem,
            learning.grams[at],
            learning.estimates[at],
            beta,
            learning.chosen[at],
            int(learning.firsts[at]),
        )
        for at in places
    ]
    report(total - 1, total)
    unguarded = planning.play_every_draw(star.problem, star.plan, theta, theta)
    verdict = audit(unguarded.run, unguarded.prior_costs, example.certificate(lam, b, rule).contract)
    broken = float(unguarded.chances @ verdict.violations.any(axis=1))
    grid = _grid_error(example, lam, b, rule, resolution, factors)
    report(total, total)
    return TheoryStudy(
        lam=lam,
        b=b,
        rule=rule,
        episodes=episodes,
        seeds=seeds,
        delta=delta,
        scale=beta / printed_beta,
        beta=beta,
        printed_beta=printed_beta,
        noise_range=float(surface.noise_range),
        largest_spread=learning.largest_spread,
        value_range=optimistic.value_range(problem),
        optimal=float(optimal.start[0]),
        unconstrained=float(star.plan.start[0]),
        prior=float(system.initial_chances @ prior),
        initial=system.initial.tolist(),
        unguarded_violation_rate=broken,
        optimism_gap=max(gaps),
        optimism_gap_places=len(gaps),
        grid=grid,
        variants=[_learning_row(each, problem, optimal) for each in learnings],
        settings=rows,
        curves={each.variant: _curves(each, optimal) for each in learnings},
    )


def _radii(
    problem: Problem, surface: optimistic.Surface, episodes: int, delta: float, scale: float | None
) -> tuple[float, float]:
    """The radius used and the printed one."""
    system = problem.system
    printed = optimistic.confidence_radius(
        optimistic.value_range(problem), system.horizon, system.dimension, episodes, delta
    )
    if scale is not None:
        return scale * printed, printed
    # Where the guard leaves no freedom there is no noise either; any radius then does.
    noise = max(float(surface.noise_range), 1e-6)
    return optimistic.ellipsoid_radius(noise, system.dimension, delta), printed


def _violations(problem: Problem, learning: Learning) -> tuple[float, float]:
    assert problem.certificate is not None
    horizon = problem.system.horizon
    verdict = audit(
        learning.costs.reshape(-1, horizon),
        learning.prior_costs.reshape(-1, horizon),
        problem.certificate.contract,
    )
    return verdict.violation_rate, verdict.worst_margin


def _setting_row(
    star: theory.Unconstrained,
    prior: Floats,
    example: CarbonMixture,
    problem: Problem,
    surface: optimistic.Surface,
    optimal: planning.Plan,
    learning: Learning,
    delta: float,
) -> SettingRow:
    """Both theorems at one (lam, b); `prior` [I] is what the prior is worth from each initial state."""
    assert problem.certificate is not None
    contract = problem.certificate.contract
    certificate = example.certificate(float(contract.lam), float(contract.b), problem.certificate.rule)
    theta, system = example.theta, problem.system
    cost = theory.promise_cost(star, certificate)
    played = planning.play_every_draw(problem, optimal, theta, theta)
    verdict = audit(played.run, played.prior_costs, certificate.contract)
    episodes = learning.values.shape[1]
    sizes = (optimistic.value_range(problem), system.horizon, system.dimension, episodes, delta)
    lost, began = _lost(learning, optimal), learning.firsts
    used_bound = theory.regret_bound(*sizes, beta=learning.beta, form="corrected")
    near = NEAR * np.abs(optimal.starts[began, 0])
    near_of_gain = NEAR_OF_GAIN * (optimal.starts[:, 0] - prior)[began]
    epsilon, reach = 1.0 / (episodes * system.horizon), float(surface.noise_range)
    return SettingRow(
        lam=certificate.contract.lam,
        b=certificate.contract.b,
        regret=star.value - played.value,
        grid_regret=float(star.plan.start[0] - optimal.start[0]),
        projected=cost.projected,
        promise_bound=cost.bound,
        eta=cost.eta,
        gains=cost.gains.tolist(),
        totals=cost.totals.tolist(),
        lipschitz=cost.lipschitz.tolist(),
        learning_regrets=lost.sum(axis=1).tolist(),
        combined_regrets=np.sum(star.plan.starts[began, 0] - learning.values, axis=1).tolist(),
        combined_bounds=(cost.bounds[began].sum(axis=1) + used_bound).tolist(),
        feature_range=reach,
        eluder=(
            float(theory.independent_features(surface.features, epsilon)),
            theory.eluder_dimension(reach, system.dimension, epsilon),
        ),
        settled=settled(lost, near),
        settled_of_gain=settled(lost, near_of_gain),
        slopes=[log_log_slope(each) for each in np.cumsum(lost, axis=1)],
        coverage=float(np.mean(learning.covered)),
        violation_rate=_violations(problem, learning)[0],
        every_draw_violation_rate=verdict.violation_rate,
        used_bound=used_bound,
        printed_regret=_printed_regret(problem, surface, optimal, theta, learning, sizes),
        printed_bound=theory.regret_bound(*sizes),
        corrected_bound=theory.regret_bound(*sizes, form="corrected"),
    )


def _lost(learning: Learning, optimal: planning.Plan) -> Floats:
    """[S, K] pseudo-regret of each episode."""
    return np.asarray(optimal.starts[learning.firsts, 0] - learning.values)


def settled(lost: Floats, near: Floats) -> list[int]:
    """For each seed, the number of episodes after which none loses more than `near`; both [S, K]."""
    late = lost > near + 1e-9
    return [int(np.flatnonzero(each)[-1]) + 1 if each.any() else 0 for each in late]


def _printed_regret(
    problem: Problem,
    surface: optimistic.Surface,
    optimal: planning.Plan,
    theta: Floats,
    learning: Learning,
    sizes: Any,
) -> float:
    """PReg(K) with the printed beta; the greatest of the seeds, whose initial states are those of `learning`.

    Each of the KH terms of the set's sum is at most the square of the noise's range. While twice that range leaves the
    sum below beta no theta is ever excluded, every episode plans for the best theta of its initial state, and its
    regret is that of this plan. That is so for thousands of episodes; beyond them it is played.
    """
    _, horizon, _, episodes, _ = sizes
    beta, seeds = optimistic.confidence_radius(*sizes), learning.seeds
    if episodes * horizon * (2.0 * float(surface.noise_range)) ** 2 > beta:
        played = optimistic.learn(problem, theta, episodes, seeds, beta=beta, surface=surface)
        return float(_lost(played, optimal).sum(axis=1).max())
    best = np.asarray(surface.points)[np.argmax(np.asarray(surface.values), axis=1)]
    earned = np.diagonal(planning.evaluate(problem, planning.plan(problem, best), theta))
    return float((optimal.starts[:, 0] - earned)[learning.firsts].sum(axis=1).max())


def _curves(learning: Learning, optimal: planning.Plan) -> dict[str, Floats]:
    best = optimal.starts[learning.firsts, 0]
    return {
        "regret": np.cumsum(best - learning.values, axis=1),
        "gap": (best - learning.greedy_values) / np.abs(best),
    }


def _learning_row(learning: Learning, problem: Problem, optimal: planning.Plan) -> LearningRow:
    curves = _curves(learning, optimal)
    rate, margin = _violations(problem, learning)
    return LearningRow(
        variant=learning.variant,
        slope=log_log_slope(curves["regret"].mean(axis=0)),
        slopes=[log_log_slope(each) for each in curves["regret"]],
        regrets=curves["regret"][:, -1].tolist(),
        final_gaps=curves["gap"][:, -1].tolist(),
        coverage=float(np.mean(learning.covered)),
        violation_rate=rate,
        worst_margin=margin,
    )


def log_log_slope(curve: Floats) -> float:
    """Slope of log(curve) against log(k) over the last decade, k = K/10..K, by least squares."""
    k = np.arange(1, len(curve) + 1)
    last = k >= len(curve) / 10.0
    return float(np.polyfit(np.log(k[last]), np.log(np.maximum(curve[last], 1e-12)), 1)[0])


def _grid_error(
    example: CarbonMixture, lam: float, b: float, rule: Rule, resolution: Resolution, factors: Sequence[int]
) -> dict[str, Any]:
    """V_circ and V* on finer grids, and what the plans earn on the continuous system over every draw."""
    system, theta = example.system, example.theta
    circ, played, star = [], [], []
    for factor in factors:
        finer = resolution.refined(factor)
        problem = planning.prepare(system, example.certificate(lam, b, rule), finer)
        plan = planning.plan(problem, theta)
        circ.append(float(plan.start[0]))
        played.append(planning.play_every_draw(problem, plan, theta, theta).value)
        star.append(float(planning.plan(planning.prepare(system, None, finer), theta).start[0]))
    return {
        "factors": list(factors),
        "circ": circ,
        "circ_played": played,
        "star": star,
        "circ_error": abs(circ[0] - played[-1]) / abs(played[-1]),
    }
