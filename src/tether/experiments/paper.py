"""What is run: the paper's systems, each with learners that nobody would trust, with and without the guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.audit import Audit, audit
from tether.certificates import LipschitzCertificate, Rule
from tether.contract import Contract
from tether.data import Episodes, load_carbon, synthetic_carbon
from tether.envs import Carbon
from tether.experiments import figures
from tether.learn.rollout import Policy, rollout
from tether.run import Run


@dataclass(frozen=True)
class Greedy:
    """Maximises the reward of the round at hand and never thinks of the backlog."""

    env: Carbon
    ceiling: float = 60.0
    """Larger than any maximiser, energy units."""

    def __call__(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """The root of the reward's falling derivative in the action, by bisection."""
        renewables, last_action = observation[1], observation[2]

        def derivative(action: Any) -> Any:
            revenue = 0.5 * self.env.revenue_weight * jnp.sqrt(self.env.efficiency / action)
            carbon = 2.0 * jnp.maximum(action - renewables, 0.0)
            # Before the first round nothing was switched yet: last_action is 0 and costs nothing.
            switching = (
                2.0 * self.env.switching_weight * jnp.where(last_action > 0.0, action - last_action, 0.0)
            )
            return revenue - carbon - switching

        def halve(_: int, bracket: tuple[Any, Any]) -> tuple[Any, Any]:
            low, high = bracket
            middle = 0.5 * (low + high)
            rising = derivative(middle) > 0.0
            return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

        bracket = (jnp.zeros_like(renewables), jnp.full_like(renewables, self.ceiling))
        low, high = jax.lax.fori_loop(0, 40, halve, bracket)
        return 0.5 * (low + high)


@dataclass(frozen=True)
class Uniform:
    """Proposes any energy up to `ceiling` with equal probability: a learner before its first update."""

    ceiling: float = 8.0

    def __call__(self, observation: Any, key: Any) -> Any:
        """A new draw each round."""
        return jax.random.uniform(key, dtype=observation.dtype, maxval=self.ceiling)


@dataclass(frozen=True)
class Row:
    """One way to play, over all seeds."""

    learner: str
    guard: str
    """The certificate's rule, or "none"."""
    rewards: list[float]
    """Mean episode reward, one for each seed."""
    costs: list[float]
    """Mean episode cost, one for each seed."""
    worst_cost: float
    violation_rates: list[float]
    """Share of the episodes with a violation in any round, one for each seed."""
    largest_share: float
    """Largest J_h / bound_h over all seeds, episodes and rounds."""
    worst_margin: float
    """Over all seeds, episodes and rounds, cost units."""


@dataclass(frozen=True)
class GuardStudy:
    """What the guard does to learners that nobody would trust."""

    contract: Contract
    episodes: str
    """Where the episodes came from."""
    seeds: list[int]
    rows: list[Row]
    figure: Figure

    def table(self) -> Table:
        """The rows for people."""
        promise = f"J_h <= (1 + {self.contract.lam:g}) J_h(prior) + {self.contract.b:g} h"
        table = Table(
            title=f"Carbon-aware scheduling: {promise} in every round",
            caption=f"{self.episodes}; mean ± standard deviation over seeds {_span(self.seeds)}; "
            "violations: share of the episodes with any; J/bound: the largest anywhere",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        for name in ("learner", "guard"):
            table.add_column(name, no_wrap=True)
        for name in ("reward", "mean cost", "worst", "violations", "J/bound"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in self.rows:
            broken = max(row.violation_rates) > 0.0
            table.add_row(
                row.learner,
                row.guard,
                _spread(row.rewards),
                _spread(row.costs),
                f"{row.worst_cost:.0f}",
                f"[{'red' if broken else 'green'}]{np.mean(row.violation_rates):.1%}",
                f"{row.largest_share:.3f}",
                end_section=row.guard == get_args(Rule)[-1] or row.learner == "prior",
            )
        return table


def guard_study(
    lam: float,
    b: float,
    seeds: list[int],
    count: int = 1416,
    data: Path | None = None,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> GuardStudy:
    """Play the prior, a random and a greedy learner on the carbon system, with no guard and with each rule.

    Args:
        lam: The contract's relative slack.
        b: The contract's slack a round.
        seeds: Each draws its own episodes and its own random learner. With `data` only the learner differs.
        count: Episodes a seed, for synthetic data.
        data: Folder with the authors' carbon data; its test windows are played. None for synthetic data.
        report: Called with (pieces done, pieces in all) after each piece of work.
    """
    env = Carbon()
    contract = env.contract(lam, b)
    learners: dict[str, Policy] = {"random": Uniform(), "greedy": Greedy(env)}
    guards: list[Rule | None] = [None, *get_args(Rule)]
    played: dict[tuple[str, Rule | None], list[tuple[Run, Audit]]] = {("prior", None): []}
    total = len(seeds) * (1 + len(learners) * len(guards))
    done = 0
    for seed in seeds:
        episodes: Episodes = load_carbon(data, "test") if data else synthetic_carbon(seed, count)
        prior = rollout(env, env.prior, episodes, record="outcomes")
        played["prior", None].append((prior, audit(prior, prior, contract)))
        done += 1
        report(done, total)
        for name, learner in learners.items():
            for rule in guards:
                certificate = None if rule is None else LipschitzCertificate(contract, env.sensitivity, rule)
                run = rollout(env, learner, episodes, certificate, seed=seed, record="outcomes")
                played.setdefault((name, rule), []).append((run, audit(run, prior, contract)))
                done += 1
                report(done, total)
    source = f"authors' test windows ({len(episodes)})" if data else f"{count} synthetic episodes a seed"
    rows = [_row(name, rule, results) for (name, rule), results in played.items()]
    first = {key: results[0][1] for key, results in played.items()}
    return GuardStudy(contract, source, seeds, rows, _figure(first, contract))


def _row(learner: str, rule: Rule | None, results: list[tuple[Run, Audit]]) -> Row:
    runs, audits = zip(*results, strict=True)
    return Row(
        learner=learner,
        guard=rule or ("-" if learner == "prior" else "none"),
        rewards=[float(run.returns.mean()) for run in runs],
        costs=[float(run.total_costs.mean()) for run in runs],
        worst_cost=max(float(run.total_costs.max()) for run in runs),
        violation_rates=[each.violation_rate for each in audits],
        largest_share=max(float(np.max(each.cumulative_costs / each.bounds)) for each in audits),
        worst_margin=min(each.worst_margin for each in audits),
    )


@figures.styled
def _figure(audits: dict[tuple[str, Rule | None], Audit], contract: Contract) -> Figure:
    figure, axes = figures.new_figure(9.0, 3.8, columns=2)
    left, right = axes[0]
    rounds = np.arange(1, contract.horizon + 1)
    prior = audits["prior", None]
    figures.draw_spread(left, prior.bounds, figures.RED, "the bound")
    figures.draw_spread(left, audits["greedy", None].cumulative_costs, figures.ORANGE, "greedy, unguarded")
    figures.draw_spread(
        left, audits["greedy", "tight"].cumulative_costs, figures.BLUE, "greedy, guarded (tight)"
    )
    figures.draw_spread(left, prior.cumulative_costs, figures.GREY, "prior")
    left.set_yscale("log")
    left.set_ylabel("cumulative cost J_h")
    left.set_title("Median and middle 90 % of the episodes", loc="left")

    styles: list[tuple[str, Rule | None, str, str]] = [
        ("greedy", None, figures.ORANGE, "-"),
        ("random", None, figures.ORANGE, "--"),
        ("greedy", "tight", figures.BLUE, "-"),
        ("random", "tight", figures.BLUE, "--"),
    ]
    for learner, rule, color, line in styles:
        each = audits[learner, rule]
        worst = np.max(each.cumulative_costs / each.bounds, axis=0)
        right.plot(rounds, worst, line, color=color, label=f"{learner}, {'guarded' if rule else 'unguarded'}")
    right.axhline(1.0, color=figures.RED, linewidth=1.2, label="the bound")
    right.set_yscale("log")
    right.set_ylabel("largest J_h / its bound")
    right.set_title("The worst episode of each round", loc="left")
    for axis in (left, right):
        axis.set_xlabel("round h")
        axis.legend(loc="best", fontsize=8)
    figure.suptitle(f"Carbon-aware scheduling, lam = {contract.lam:g}, b = {contract.b:g}", x=0.01, ha="left")
    return figure


def _span(seeds: list[int]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values):.1f}"
