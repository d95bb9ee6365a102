"""Algorithm 2 and both theorems on the small carbon system: what is proved beside what is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether import theory
from tether.audit import audit
from tether.certificates import Rule
from tether.experiments import figures
from tether.learn import optimistic, planning
from tether.learn.carbon_mixture import CarbonMixture
from tether.learn.optimistic import Learning, Variant
from tether.learn.planning import Floats, Problem, Resolution

COLORS: dict[str, str] = {
    "optimistic": figures.BLUE,
    "certainty-equivalent": figures.GREEN,
    "random": figures.ORANGE,
}


@dataclass(frozen=True)
class LearningRow:
    """One variant of the learner over all seeds."""

    variant: Variant
    slope: float
    """Log-log slope of the mean cumulative pseudo-regret over the last decade of k."""
    slopes: list[float]
    """The same of each seed."""
    regrets: list[float]
    """PReg(K) of each seed, reward units."""
    final_gaps: list[float]
    """(V_circ - V) / V_circ of the last episode's greedy policy, of each seed."""
    coverage: float
    """Share of (seed, k) in which the true theta is in the confidence set."""
    violation_rate: float
    """Share of the episodes in which the promise was broken in any round."""
    worst_margin: float
    """Smallest distance below the bound, cost units."""


@dataclass(frozen=True)
class SettingRow:
    """Both theorems at one (lam, b)."""

    lam: float
    b: float
    regret: float
    """V* - V_circ at the initial state, of both policies on the continuous system over every draw."""
    grid_regret: float
    """The same on the grid."""
    projected: float
    """V* - V_perp: of the policy that the proof of Theorem 5.1 plays."""
    promise_bound: float
    """Theorem 5.1."""
    eta: float
    gains: list[float]
    """E[DeltaG_h] of each round."""
    totals: list[float]
    """Gamma_{h,h}."""
    lipschitz: list[float]
    """L_{Q,h}."""
    learning_regrets: list[float]
    """PReg(K) of each seed with the scaled confidence set."""
    coverage: float
    violation_rate: float
    every_draw_violation_rate: float
    """Of pi-circ over every draw."""
    used_bound: float
    """Theorem 5.2, corrected, at the beta that was used: it holds while the true theta is covered."""
    printed_regret: float
    """PReg(K) with the printed beta."""
    printed_bound: float
    """Theorem 5.2 as printed."""
    corrected_bound: float
    """Theorem 5.2 corrected, with the beta that it asks for."""

    @property
    def holds(self) -> bool:
        """Whether every bound is at least what was measured."""
        first = max(self.regret, self.grid_regret, self.projected) <= self.promise_bound + 1e-9
        printed = self.printed_regret <= min(self.printed_bound, self.corrected_bound)
        return first and printed and max(self.learning_regrets) <= self.used_bound


@dataclass(frozen=True)
class TheoryStudy:
    """Everything that `tether reproduce theory` shows."""

    lam: float
    b: float
    rule: Rule
    episodes: int
    seeds: list[int]
    delta: float
    scale: float
    """beta used / beta printed."""
    beta: float
    printed_beta: float
    noise_range: float
    """Range of the regression's noise, computed before any play; beta is made of it."""
    largest_spread: float
    """Range of it that was met in play."""
    value_range: float
    """Vbar."""
    optimal: float
    """V_circ on the grid."""
    unconstrained: float
    """V* on the grid."""
    unguarded_violation_rate: float
    """Probability that pi-star, unguarded, breaks the promise; over every draw."""
    optimism_gap: float
    """Most that a dense search of the confidence set found above the chosen theta, reward units."""
    optimism_gap_places: int
    """Number of (seed, k) in which it was looked for."""
    grid: dict[str, Any]
    """Values of pi-circ and pi-star on finer grids and on the continuous system."""
    variants: list[LearningRow]
    settings: list[SettingRow]
    curves: dict[str, Any]
    """By variant: cumulative pseudo-regret and relative gap, [S, K] each."""

    @property
    def violation_rates(self) -> list[float]:
        """Of every learner at every setting, and of pi-circ over every draw."""
        played = [row.violation_rate for row in self.variants]
        return [
            *played,
            *(row.violation_rate for row in self.settings),
            *(row.every_draw_violation_rate for row in self.settings),
        ]

    @property
    def met(self) -> dict[str, bool]:
        """The targets of the issue."""
        main = self.variants[0]
        falls = [[row.regret for row in rows] for rows in self.lines() if len(rows) > 1]
        return {
            "slope below 0.75": max(main.slope, *main.slopes) < 0.75,
            "last policy within 1 % of pi-circ, every seed": max(main.final_gaps) < 0.01,
            "zero violations": not any(self.violation_rates),
            "unguarded, the promise is broken": self.unguarded_violation_rate > 0.0,
            "true theta covered in 1 - delta": min(row.coverage for row in self.settings) >= 1.0 - self.delta,
            "both bounds hold at every (lam, b)": all(row.holds for row in self.settings),
            # A line of one setting falls nowhere.
            "regret to pi-star falls to zero": bool(falls) and all(line[-1] < 1e-6 for line in falls),
        }

    def lines(self) -> tuple[list[SettingRow], list[SettingRow]]:
        """The settings along lam (b fixed) and along b (lam fixed)."""
        along_lam = sorted((row for row in self.settings if row.b == self.b), key=lambda row: row.lam)
        along_b = sorted((row for row in self.settings if row.lam == self.lam), key=lambda row: row.b)
        return along_lam, along_b

    def tables(self) -> list[Table]:
        """Everything for people."""
        return [self._learning_table(), self._settings_table(), self._summary_table()]

    def _learning_table(self) -> Table:
        table = _table(
            f"Algorithm 2 at lam = {self.lam:g}, b = {self.b:g}, rule {self.rule}: K = {self.episodes}, "
            f"{len(self.seeds)} seeds; mean/worst",
            ("learner", "slope", "PReg(K)", "last gap, %", "covered", "broken"),
        )
        for row in self.variants:
            table.add_row(
                row.variant,
                f"{row.slope:.2f}/{max(row.slopes):.2f}",
                f"{np.mean(row.regrets):.4g}/{max(row.regrets):.4g}",
                f"{100.0 * np.mean(row.final_gaps):.2f}/{100.0 * max(row.final_gaps):.2f}",
                f"{row.coverage:.1%}",
                f"{row.violation_rate:.1%}",
            )
        return table

    def _settings_table(self) -> Table:
        table = _table(
            "Both theorems at every (lam, b): regret to pi-star of pi-circ and pi-perp; "
            "PReg(K) with beta as used and as printed",
            ("lam", "b", "circ", "perp", "Thm 5.1", "PReg", "Thm 5.2", "printed", "Thm 5.2", "hold"),
        )
        for row in self.settings:
            table.add_row(
                f"{row.lam:g}",
                f"{row.b:g}",
                f"{row.regret:.4f}",
                f"{row.projected:.4f}",
                f"{row.promise_bound:.4g}",
                f"{np.mean(row.learning_regrets):.1f}",
                f"{row.used_bound:.3g}",
                f"{row.printed_regret:.0f}",
                f"{row.printed_bound:.3g}",
                "[green]yes" if row.holds else "[red]no",
            )
        return table

    def _summary_table(self) -> Table:
        table = _table("Numbers behind it", ("what", "value"))
        grid = self.grid
        finer = ", ".join(f"{value:.4f}" for value in grid["circ"])
        star = ", ".join(f"{value:.4f}" for value in grid["star"])
        played = ", ".join(f"{value:.4f}" for value in grid["circ_played"])
        rows = [
            ("beta used / printed (scale)", f"{self.beta:.4g} / {self.printed_beta:.4g} ({self.scale:.2e})"),
            ("range of the noise: foreseen, met", f"{self.noise_range:.3f}, {self.largest_spread:.3f}"),
            ("Vbar", f"{self.value_range:.1f}"),
            (f"V_circ, grid times {grid['factors']}", finer),
            ("  played on the continuous system", played),
            (f"V*, grid times {grid['factors']}", star),
            ("grid error of V_circ", f"{grid['circ_error']:.2%}"),
            ("pi-star unguarded breaks the promise", f"{self.unguarded_violation_rate:.1%} of the time"),
            ("optimism gap, largest found", f"{self.optimism_gap:.2g} in {self.optimism_gap_places} places"),
            *((name, "[green]met" if met else "[red]missed") for name, met in self.met.items()),
        ]
        for name, value in rows:
            table.add_row(name, value)
        return table

    def as_json(self) -> dict[str, Any]:
        """Everything for machines; of the curves the mean over the seeds."""
        content = asdict(self)
        content["curves"] = {
            name: {key: np.mean(values, axis=0) for key, values in curves.items()}
            for name, curves in self.curves.items()
        }
        content["settings"] = [asdict(row) | {"holds": row.holds} for row in self.settings]
        return content | {"met": self.met}


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, name in enumerate(columns):
        table.add_column(name, no_wrap=True, justify="left" if i == 0 else "right")
    return table


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
        rows.append(_setting_row(star, example, problem, surface, optimal, learning, seeds, delta))
        if (each_lam, each_b) == (lam, b):
            main = (problem, surface, beta, printed_beta, optimal, learning)
    problem, surface, beta, printed_beta, optimal, learning = main
    learnings = [learning]
    for variant in get_args(Variant)[1:]:
        learnings.append(
            optimistic.learn(
                problem,
                theta,
                episodes,
                seeds,
                variant=variant,
                beta=beta,
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
            problem, learning.grams[at], learning.estimates[at], beta, learning.chosen[at]
        )
        for at in places
    ]
    report(total - 1, total)
    unguarded = planning.play_every_draw(star.problem, star.plan, theta, theta)
    verdict = audit(unguarded.run, unguarded.prior_costs, example.certificate(lam, b, rule).contract)
    broken = float(unguarded.chances @ verdict.violations.any(axis=1))
    grid = _grid_error(example, lam, b, rule, resolution, factors)
    report(total, total)
    value = float(optimal.start[0])
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
        optimal=value,
        unconstrained=float(star.plan.start[0]),
        unguarded_violation_rate=broken,
        optimism_gap=max(gaps),
        optimism_gap_places=len(gaps),
        grid=grid,
        variants=[_learning_row(each, problem, value) for each in learnings],
        settings=rows,
        curves={each.variant: _curves(each, value) for each in learnings},
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
    example: CarbonMixture,
    problem: Problem,
    surface: optimistic.Surface,
    optimal: planning.Plan,
    learning: Learning,
    seeds: Sequence[int],
    delta: float,
) -> SettingRow:
    assert problem.certificate is not None
    contract = problem.certificate.contract
    certificate = example.certificate(float(contract.lam), float(contract.b), problem.certificate.rule)
    theta, system = example.theta, problem.system
    cost = theory.promise_cost(star, certificate)
    played = planning.play_every_draw(problem, optimal, theta, theta)
    verdict = audit(played.run, played.prior_costs, certificate.contract)
    vbar = optimistic.value_range(problem)
    sizes = (vbar, system.horizon, system.dimension, learning.values.shape[1], delta)
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
        learning_regrets=np.sum(optimal.start[0] - learning.values, axis=1).tolist(),
        coverage=float(np.mean(learning.covered)),
        violation_rate=_violations(problem, learning)[0],
        every_draw_violation_rate=verdict.violation_rate,
        used_bound=theory.regret_bound(*sizes, beta=learning.beta, form="corrected"),
        printed_regret=_printed_regret(problem, surface, float(optimal.start[0]), theta, seeds, sizes),
        printed_bound=theory.regret_bound(*sizes),
        corrected_bound=theory.regret_bound(*sizes, form="corrected"),
    )


def _printed_regret(
    problem: Problem,
    surface: optimistic.Surface,
    value: float,
    theta: Floats,
    seeds: Sequence[int],
    sizes: Any,
) -> float:
    """PReg(K) with the printed beta; the greatest of the seeds.

    Each of the KH terms of the set's sum is at most the square of the noise's range. While twice that range leaves the
    sum below beta no theta is ever excluded, every episode plans for the same theta, and the regret is K times that of
    one episode. That is so for thousands of episodes; beyond them it is played.
    """
    _, horizon, _, episodes, _ = sizes
    beta = optimistic.confidence_radius(*sizes)
    if episodes * horizon * (2.0 * float(surface.noise_range)) ** 2 > beta:
        learning = optimistic.learn(problem, theta, episodes, seeds, beta=beta, surface=surface)
        return float(np.sum(value - learning.values, axis=1).max())
    best = np.asarray(surface.points)[int(np.argmax(np.asarray(surface.values)))]
    return float(episodes * (value - planning.evaluate(problem, planning.plan(problem, best), theta)[0]))


def _curves(learning: Learning, optimal: float) -> dict[str, Floats]:
    return {
        "regret": np.cumsum(optimal - learning.values, axis=1),
        "gap": (optimal - learning.greedy_values) / abs(optimal),
    }


def _learning_row(learning: Learning, problem: Problem, optimal: float) -> LearningRow:
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


@figures.styled
def learning_figure(study: TheoryStudy) -> Figure:
    """Cumulative pseudo-regret with Theorem 5.2's bounds, and the gap to pi-circ, over the episodes."""
    figure, axes = figures.new_figure(9.5, 4.0, columns=2)
    left, right = axes[0]
    k = np.arange(1, study.episodes + 1)
    for name, curves in study.curves.items():
        for axis, key, factor in ((left, "regret", 1.0), (right, "gap", 100.0)):
            values = np.maximum(factor * curves[key], 1e-3)
            if key == "regret" or name == "optimistic":
                band = (values.min(axis=0), values.max(axis=0))
                axis.fill_between(k, *band, color=COLORS[name], alpha=0.15, linewidth=0)
            axis.plot(k, values.mean(axis=0), color=COLORS[name], label=name if key == "regret" else None)
    (row,) = (each for each in study.settings if (each.lam, each.b) == (study.lam, study.b))
    left.axhline(row.used_bound, color=figures.RED, label="Theorem 5.2 at the beta used, k = K")
    left.axhline(row.printed_bound, color=figures.RED, linestyle="--", label="Theorem 5.2 as printed, k = K")
    left.set_ylabel("cumulative pseudo-regret, reward units")
    left.set_title("What learning costs: mean, and all seeds", loc="left")
    right.axhline(1.0, color=figures.GREY, linestyle=":", label="1 %")
    right.set_ylabel("greedy policy below pi-circ, %")
    right.set_title("Each episode's greedy policy: mean, and all optimistic seeds", loc="left")
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("episode k")
    figure.legend(loc="outside lower center", fontsize=8, ncols=3)
    figure.suptitle(
        f"Algorithm 2, small carbon system, lam = {study.lam:g}, b = {study.b:g}, {len(study.seeds)} seeds",
        x=0.01,
        ha="left",
    )
    return figure


@figures.styled
def bounds_figure(study: TheoryStudy) -> Figure:
    """Both theorems: bound and measurement along lam and along b."""
    figure, axes = figures.new_figure(9.5, 6.6, columns=2, rows=2)
    for column, (rows, name) in enumerate(zip(study.lines(), ("lam", "b"), strict=True)):
        at = [getattr(row, name) for row in rows]
        fixed = f"b = {study.b:g}" if name == "lam" else f"lam = {study.lam:g}"
        top, bottom = axes[0, column], axes[1, column]
        top.plot(at, [row.promise_bound for row in rows], "-", color=figures.RED, label="Theorem 5.1")
        top.plot(at, [row.projected for row in rows], "--", color=figures.GREY, label="pi-perp of its proof")
        top.plot(
            at, [max(row.regret, 0.0) for row in rows], "o-", color=figures.BLUE, label="measured, pi-circ"
        )
        top.set_yscale("symlog", linthresh=0.01)
        top.set_ylim(bottom=-0.001)
        top.set_title(f"What the promise costs: V* - V, {fixed}", loc="left")
        printed = [row.printed_bound for row in rows]
        bottom.plot(at, printed, "--", color=figures.RED, label="Theorem 5.2 as printed")
        bottom.plot(
            at, [row.used_bound for row in rows], "-", color=figures.RED, label="Theorem 5.2 at the beta used"
        )
        bottom.plot(
            at,
            [row.printed_regret for row in rows],
            "s--",
            color=figures.ORANGE,
            label="measured, printed beta",
        )
        measured = np.array([row.learning_regrets for row in rows])
        bottom.fill_between(
            at, measured.min(axis=1), measured.max(axis=1), color=figures.BLUE, alpha=0.2, linewidth=0
        )
        bottom.plot(
            at, measured.mean(axis=1), "o-", color=figures.BLUE, label="measured, beta used (all seeds)"
        )
        bottom.set_yscale("log")
        bottom.set_ylim(bottom=0.1)
        bottom.set_title(f"What learning costs: PReg({study.episodes}), {fixed}", loc="left")
        for axis in (top, bottom):
            axis.set_xlabel(name)
            axis.set_ylabel("reward units")
    handles = [*axes[0, 0].get_legend_handles_labels()[0], *axes[1, 0].get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", fontsize=8, ncols=3)
    return figure
