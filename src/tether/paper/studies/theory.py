"""Algorithm 2 and both theorems on the small carbon system: what is proved beside what is measured."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np

from tether.certificates import Rule
from tether.core.audit import audit
from tether.exact import optimistic, planning, theory
from tether.exact.example import BacklogMixture
from tether.exact.grid import Problem, Resolution, prepare
from tether.exact.mixture import Floats, MixtureSystem
from tether.exact.optimistic import Learning, Variant
from tether.exact.playing import play_every_draw
from tether.paper.studies.theory_tables import NEAR, NEAR_OF_GAIN, LearningRow, SettingRow, TheoryStudy


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
    example: BacklogMixture | None = None,
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
    plan = _Plan(
        example or BacklogMixture(),
        resolution or Resolution(),
        rule,
        episodes,
        list(seeds),
        delta,
        scale,
        lattice,
    )
    settings = sorted({(lam, b), *((each, b) for each in lams), *((lam, each) for each in bs)})
    return _run(plan, lam, b, settings, factors, report)


def _run(
    plan: _Plan,
    lam: float,
    b: float,
    settings: list[tuple[float, float]],
    factors: Sequence[int],
    report: Callable[[int, int], None],
) -> TheoryStudy:
    total = (len(settings) + len(get_args(Variant)) - 1) * plan.episodes + 2
    progress = _Progress(report, total)
    star = theory.solve_unconstrained(plan.system, plan.theta, plan.resolution)
    prior = plan.prior_values()
    solved = {each: plan.solve(*each, progress) for each in settings}
    main = solved[lam, b]
    learnings = [main.learning, *plan.learn_variants(main, progress)]
    rows = [_setting_row(plan, star, prior, each) for each in solved.values()]
    gaps = plan.optimism_gaps(main)
    report(total - 1, total)
    found = TheoryStudy(
        lam=lam,
        b=b,
        rule=plan.rule,
        episodes=plan.episodes,
        seeds=plan.seeds,
        delta=plan.delta,
        scale=main.beta / main.printed_beta,
        beta=main.beta,
        printed_beta=main.printed_beta,
        noise_range=float(main.surface.noise_range),
        largest_spread=main.learning.largest_spread,
        value_range=optimistic.value_range(main.problem),
        optimal=float(main.optimal.start[0]),
        unconstrained=float(star.plan.start[0]),
        prior=float(plan.system.initial_chances @ prior),
        initial=plan.system.initial.tolist(),
        unguarded_violation_rate=plan.broken_unguarded(star, lam, b),
        optimism_gap=max(gaps),
        optimism_gap_places=len(gaps),
        grid=_grid_error(plan, lam, b, factors),
        variants=[_learning_row(each, main) for each in learnings],
        settings=rows,
        curves={each.variant: _curves(each, main.optimal) for each in learnings},
    )
    report(total, total)
    return found


class _Progress:
    """Adds up the episodes of one learning after the other."""

    def __init__(self, report: Callable[[int, int], None], total: int) -> None:
        self._report, self._total, self._before = report, total, 0
        report(0, total)

    def __call__(self, episode: int) -> None:
        self._report(self._before + episode, self._total)

    def finished(self, episodes: int) -> None:
        self._before += episodes


class _Solved(NamedTuple):
    """One contract: the problem, its optimum, and what the optimistic learner did."""

    problem: Problem
    surface: optimistic.Surface
    beta: float
    printed_beta: float
    optimal: planning.GridPlan
    learning: Learning


@dataclass(frozen=True)
class _Plan:
    """What all contracts of a study share."""

    example: BacklogMixture
    resolution: Resolution
    rule: Rule
    episodes: int
    seeds: list[int]
    delta: float
    scale: float | None
    lattice: int

    @property
    def system(self) -> MixtureSystem:
        return self.example.system

    @property
    def theta(self) -> Floats:
        return np.asarray(self.example.theta)

    def prepare(self, lam: float, b: float) -> Problem:
        return prepare(self.system, self.example.certificate(lam, b, self.rule), self.resolution)

    def prior_values(self) -> Floats:
        """[I] of the prior: with no slack at all every proposal becomes its action."""
        return np.asarray(planning.plan(self.prepare(0.0, 0.0), self.theta).starts[:, 0])

    def solve(self, lam: float, b: float, progress: _Progress) -> _Solved:
        problem = self.prepare(lam, b)
        surface = optimistic.make_surface(problem, self.lattice)
        beta, printed_beta = _radii(problem, surface, self.episodes, self.delta, self.scale)
        learning = self._learn(problem, surface, beta, "optimistic", progress)
        return _Solved(problem, surface, beta, printed_beta, planning.plan(problem, self.theta), learning)

    def learn_variants(self, main: _Solved, progress: _Progress) -> list[Learning]:
        """Every variant but the optimistic one."""
        radii = dict.fromkeys(get_args(Variant)[1:], main.beta)
        radii["counting"] = optimistic.counting_radius(self.system.dimension, self.delta)
        return [
            self._learn(main.problem, main.surface, beta, variant, progress)
            for variant, beta in radii.items()
        ]

    def _learn(
        self,
        problem: Problem,
        surface: optimistic.Surface,
        beta: float,
        variant: Variant,
        progress: _Progress,
    ) -> Learning:
        learning = optimistic.learn(
            problem,
            self.theta,
            self.episodes,
            self.seeds,
            variant=variant,
            beta=beta,
            surface=surface,
            report=progress,
        )
        progress.finished(self.episodes)
        return learning

    def optimism_gaps(self, main: _Solved) -> list[float]:
        """What a dense search of the confidence set finds above the chosen theta, in some places of two seeds."""
        learning, ks = main.learning, {0, self.episodes // 10, self.episodes // 2, self.episodes - 1}
        return [
            optimistic.optimism_gap(
                main.problem,
                learning.grams[at],
                learning.estimates[at],
                main.beta,
                learning.chosen[at],
                int(learning.firsts[at]),
            )
            for at in itertools.product(range(min(len(self.seeds), 2)), sorted(ks))
        ]

    def broken_unguarded(self, star: theory.Unconstrained, lam: float, b: float) -> float:
        """Probability that pi-star, unguarded, breaks the promise."""
        played = play_every_draw(star.problem, star.plan, self.theta, self.theta)
        contract = self.example.certificate(lam, b, self.rule).contract
        verdict = audit(played.run, played.prior_costs, contract)
        return float(played.chances @ verdict.violations.any(axis=1))


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


def _setting_row(plan: _Plan, star: theory.Unconstrained, prior: Floats, solved: _Solved) -> SettingRow:
    """Both theorems at one (lam, b); `prior` [I] is what the prior is worth from each initial state."""
    problem, surface, _, _, optimal, learning = solved
    assert problem.certificate is not None
    lam, b = (float(each) for each in (problem.certificate.contract.lam, problem.certificate.contract.b))
    certificate = plan.example.certificate(lam, b, plan.rule)
    theta, system, episodes = plan.theta, plan.system, plan.episodes
    cost = theory.promise_cost(star, certificate)
    played = play_every_draw(problem, optimal, theta, theta)
    verdict = audit(played.run, played.prior_costs, certificate.contract)
    sizes = (optimistic.value_range(problem), system.horizon, system.dimension, episodes, plan.delta)
    lost, began = _lost(learning, optimal), learning.firsts
    used_bound = theory.regret_bound(*sizes, beta=learning.beta, form="corrected")
    near = NEAR * np.abs(optimal.starts[began, 0])
    near_of_gain = NEAR_OF_GAIN * (optimal.starts[:, 0] - prior)[began]
    epsilon, reach = 1.0 / (episodes * system.horizon), float(surface.noise_range)
    return SettingRow(
        lam=lam,
        b=b,
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
        printed_regret=_printed_regret(plan, solved, sizes),
        printed_bound=theory.regret_bound(*sizes),
        corrected_bound=theory.regret_bound(*sizes, form="corrected"),
    )


def _lost(learning: Learning, optimal: planning.GridPlan) -> Floats:
    """[S, K] pseudo-regret of each episode."""
    return np.asarray(optimal.starts[learning.firsts, 0] - learning.values)


def settled(lost: Floats, near: Floats) -> list[int]:
    """For each seed, the number of episodes after which none loses more than `near`; both [S, K]."""
    late = lost > near + 1e-9
    return [int(np.flatnonzero(each)[-1]) + 1 if each.any() else 0 for each in late]


def _printed_regret(plan: _Plan, solved: _Solved, sizes: Any) -> float:
    """PReg(K) with the printed beta; the greatest of the seeds, whose initial states are those of `learning`.

    Each of the KH terms of the set's sum is at most the square of the noise's range. While twice that range leaves the
    sum below beta no theta is ever excluded, every episode plans for the best theta of its initial state, and its
    regret is that of this plan. That is so for thousands of episodes; beyond them it is played.
    """
    problem, surface, _, _, optimal, learning = solved
    theta, beta = plan.theta, optimistic.confidence_radius(*sizes)
    if plan.episodes * plan.system.horizon * (2.0 * float(surface.noise_range)) ** 2 > beta:
        played = optimistic.learn(problem, theta, plan.episodes, plan.seeds, beta=beta, surface=surface)
        return float(_lost(played, optimal).sum(axis=1).max())
    best = np.asarray(surface.points)[np.argmax(np.asarray(surface.values), axis=1)]
    earned = np.diagonal(planning.evaluate(problem, planning.plan(problem, best), theta))
    return float((optimal.starts[:, 0] - earned)[learning.firsts].sum(axis=1).max())


def _curves(learning: Learning, optimal: planning.GridPlan) -> dict[str, Floats]:
    best = optimal.starts[learning.firsts, 0]
    return {
        "regret": np.cumsum(best - learning.values, axis=1),
        "gap": (best - learning.greedy_values) / np.abs(best),
    }


def _learning_row(learning: Learning, main: _Solved) -> LearningRow:
    curves = _curves(learning, main.optimal)
    rate, margin = _violations(main.problem, learning)
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


def _grid_error(plan: _Plan, lam: float, b: float, factors: Sequence[int]) -> dict[str, Any]:
    """V_circ and V* on finer grids, and what the plans earn on the continuous system over every draw."""
    system, theta = plan.system, plan.theta
    circ, played, star = [], [], []
    for factor in factors:
        finer = plan.resolution.refined(factor)
        problem = prepare(system, plan.example.certificate(lam, b, plan.rule), finer)
        best = planning.plan(problem, theta)
        circ.append(float(best.start[0]))
        played.append(play_every_draw(problem, best, theta, theta).value)
        star.append(float(planning.plan(prepare(system, None, finer), theta).start[0]))
    return {
        "factors": list(factors),
        "circ": circ,
        "circ_played": played,
        "star": star,
        "circ_error": abs(circ[0] - played[-1]) / abs(played[-1]),
    }
