"""What `tether reproduce theory` found, as tables for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.certificates import Rule
from tether.exact.optimistic import Variant

NEAR = 0.01
"""Share of V_circ that a policy may be below it to be called near."""
NEAR_OF_GAIN = 0.05
"""The same as a share of what can be gained over the prior, V_circ - V_prior."""


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
    combined_regrets: list[float]
    """Regret(K) of each seed: to pi-star, what the promise costs and what learning costs."""
    combined_bounds: list[float]
    """Theorem 5.1 over the initial states of each seed's episodes, plus `used_bound`."""
    feature_range: float
    """L: by how much V(s') differs between transition functions, at most, where plans lead that keep the promise."""
    eluder: tuple[float, float]
    """d_Q of what is met there: a sequence of independent features, and the bound for features of range L."""
    settled: list[int]
    """Episode of each seed from which on all are near pi-circ (`NEAR`); K if none is."""
    settled_of_gain: list[int]
    """The same for `NEAR_OF_GAIN`."""
    slopes: list[float]
    """Log-log slope of each seed's cumulative pseudo-regret over the last decade of k."""
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
        both = zip(self.combined_regrets, self.combined_bounds, strict=True)
        combined = all(regret <= bound for regret, bound in both)
        return first and printed and combined and max(self.learning_regrets) <= self.used_bound


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
    """E[V_circ(x_1)] on the grid."""
    unconstrained: float
    """E[V*(x_1)] on the grid."""
    prior: float
    """E[V(x_1)] of the prior, on the grid."""
    initial: list[float]
    """The initial states x_1, all equally likely."""
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
        return [
            self._learning_table(),
            self._settings_table(),
            self._combined_table(),
            self._freedom_table(),
            self._summary_table(),
        ]

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
                f"{np.mean(row.regrets):.1f}/{max(row.regrets):.1f}",
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

    def _combined_table(self) -> Table:
        table = _table(
            f"Regret({self.episodes}) to pi-star, of the promise and of learning; mean/worst of the seeds",
            ("lam", "b", "promise", "learning", "Regret(K)", "Thm 5.1 + 5.2", "hold"),
        )
        for row in self.settings:
            table.add_row(
                f"{row.lam:g}",
                f"{row.b:g}",
                f"{abs(np.mean(row.combined_regrets) - np.mean(row.learning_regrets)):.0f}",
                _mean_and_worst(row.learning_regrets),
                _mean_and_worst(row.combined_regrets),
                f"{min(row.combined_bounds):.4g}",
                "[green]yes" if row.holds else "[red]no",
            )
        return table

    def _freedom_table(self) -> Table:
        table = _table(
            "What lam and b do to learning; mean ± standard deviation of the seeds",
            ("lam", "b", "L", "d_Q", "PReg(K)", f"to {NEAR:.0%}", f"to {NEAR_OF_GAIN:.0%} of gain", "slope"),
        )
        table.caption = (
            f"episodes until all are within {NEAR:.0%} of V_circ, or {NEAR_OF_GAIN:.0%} of V_circ - V_prior"
        )
        for row in self.settings:
            numbers = (row.learning_regrets, row.settled, row.settled_of_gain)
            table.add_row(
                f"{row.lam:g}",
                f"{row.b:g}",
                f"{row.feature_range:.2f}",
                f"{row.eluder[0]:.0f} to {row.eluder[1]:.0f}",
                *(f"{np.mean(each):.0f} ± {np.std(each):.0f}" for each in numbers),
                f"{np.mean(row.slopes):.2f} ± {np.std(row.slopes):.2f}",
            )
        return table

    @property
    def convergence(self) -> dict[str, str]:
        """In how many seeds the least freedom is near pi-circ before the most freedom is."""
        counts = {}
        for rows, name in zip(self.lines(), ("lam", "b"), strict=True):
            ends = " before ".join(f"{getattr(row, name):g}" for row in (rows[0], rows[-1]))
            for field, near in (
                ("settled", f"{NEAR:.0%}"),
                ("settled_of_gain", f"{NEAR_OF_GAIN:.0%} of gain"),
            ):
                least, most = (np.array(getattr(row, field)) for row in (rows[0], rows[-1]))
                counts[f"{name} = {ends} within {near}"] = f"{np.sum(least < most)} of {len(least)} seeds"
        return counts

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
            ("x_1, equally likely", ", ".join(f"{each:g}" for each in self.initial)),
            ("V of the prior", f"{self.prior:.4f}"),
            (f"V_circ, grid times {grid['factors']}", finer),
            ("  played on the continuous system", played),
            (f"V*, grid times {grid['factors']}", star),
            ("grid error of V_circ", f"{grid['circ_error']:.2%}"),
            ("pi-star unguarded breaks the promise", f"{self.unguarded_violation_rate:.1%} of the time"),
            ("optimism gap, largest found", f"{self.optimism_gap:.2g} in {self.optimism_gap_places} places"),
            *self.convergence.items(),
            *((name, "[green]met" if met else "[red]missed") for name, met in self.met.items()),
        ]
        for name, value in rows:
            table.add_row(name, value)
        return table

    def evidence(self) -> list[dict[str, Any]]:
        """What this says about the paper's explanations (see `tether.paper.results.find_results`)."""
        parts, grows, before = [], [], []
        for rows, name in zip(self.lines(), ("lam", "b"), strict=True):
            least, most = rows[0], rows[-1]
            grows.append(most.eluder[0] > least.eluder[0])
            wins = int(np.sum(np.array(least.settled) < np.array(most.settled)))
            before.append(2 * wins > len(least.settled))
            parts.append(
                f"from {name} = {getattr(least, name):g} to {getattr(most, name):g} d_Q grows from at least "
                f"{least.eluder[0]:.0f} to {most.eluder[0]:.0f} (its bound from {least.eluder[1]:.0f} to "
                f"{most.eluder[1]:.0f}), and the tighter is within {NEAR:.0%} of its optimum first in {wins} of "
                f"{len(least.settled)} seeds ({np.mean(least.settled):.0f} ± {np.std(least.settled):.0f} and "
                f"{np.mean(most.settled):.0f} ± {np.std(most.settled):.0f} episodes)"
            )
        falls = [np.diff([row.regret for row in rows]) for rows in self.lines()]
        ends = [(rows[0].regret, rows[-1].regret) for rows in self.lines()]
        within = sum(row.regret <= row.promise_bound + 1e-9 for row in self.settings)
        theorem = (
            f"exact algorithm: V* - V_circ falls from {ends[0][0]:.2f} to {abs(ends[0][1]):.2f} along lam and from "
            f"{ends[1][0]:.2f} to {abs(ends[1][1]):.2f} along b, within the bound at {within} of {len(self.settings)} "
            "settings (`tether reproduce theory`)"
        )
        return [
            {
                "on": "eluder",
                "text": f"exact algorithm: {'; '.join(parts)} (`tether reproduce theory`)",
                "holds": all(grows) and all(before),
            },
            {
                "on": "theorem 5.1",
                "text": theorem,
                "holds": within == len(self.settings) and all(bool(np.all(steps <= 1e-9)) for steps in falls),
            },
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything for machines; of the curves the mean over the seeds."""
        content = asdict(self)
        content["curves"] = {
            name: {key: np.mean(values, axis=0) for key, values in curves.items()}
            for name, curves in self.curves.items()
        }
        content["settings"] = [asdict(row) | {"holds": row.holds} for row in self.settings]
        return content | {"met": self.met, "convergence": self.convergence}


def _mean_and_worst(values: Sequence[float]) -> str:
    return f"{np.mean(values):.0f}/{max(values):.0f}"


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, name in enumerate(columns):
        table.add_column(name, no_wrap=True, justify="left" if i == 0 else "right")
    return table
