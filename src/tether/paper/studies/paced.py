"""The authors' RL network at a pace: what a larger safe set is worth to a policy that does not know the guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.assure.limit import hindsight_limit
from tether.certificates import Certificate, LipschitzCertificate, Structured
from tether.core.audit import audit
from tether.core.contract import Contract
from tether.core.drawing import BLACK, BLUE, GREY, ORANGE, RED, new_figure, styled
from tether.core.run import Run
from tether.data.episodes import Episodes
from tether.engines.pieces import Piece
from tether.learn.pace import pace
from tether.paper.studies.networks import load_authors_network
from tether.simulate.rollout import Policy, rollout
from tether.systems.carbon.env import Carbon
from tether.systems.carbon.limit import CarbonProgram
from tether.systems.carbon.reader import load_carbon

NETWORK = "rl"
"""The authors' network that was trained without a guard; it knows neither lam nor b, so it serves for all of them."""
LOOKS = {
    "limit": (BLACK, "^", "hindsight limit"),
    "paced": (BLUE, "o", "structured guard, paced"),
    "tight": (ORANGE, "s", "Lipschitz guard, rule tight"),
    "structured": (RED, "v", "structured guard, as it is"),
    "prior": (GREY, "", "prior"),
}
"""Colour, marker and words of each curve."""


@dataclass(frozen=True)
class Row:
    """The network behind the guards of one contract; rewards are means over all test windows."""

    lam: float
    b: float
    prior: float
    tight: float
    """Behind `LipschitzCertificate(rule="tight")`."""
    structured: float
    """Behind `Structured`, as it is."""
    seeds: list[float]
    """Behind `Structured`, paced on the validation windows: one for each seed of the search."""
    limit: float
    """Hindsight limit of the windows of `shares`, moved to the level of all of them by what the prior earns."""
    shares: dict[str, float]
    """(V - V_prior) / (V_limit - V_prior) of `tight`, `structured` and `paced` (mean over the seeds), on evenly chosen
    test windows."""
    violation_rates: dict[str, float]
    """Share of all test windows with a violation in any round, of the same (paced: worst seed) and `unguarded`."""
    tuned: list[tuple[float, float]]
    """For each seed the mean reward on the validation windows as it is, and paced."""
    weights: list[list[float]]
    """For each seed those of the pace."""

    @property
    def paced(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.seeds))

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds."""
        return float(np.std(self.seeds))

    @property
    def above_tight(self) -> bool:
        """Whether the larger safe set earns more, with every seed."""
        return min(self.seeds) > self.tight


@dataclass(frozen=True)
class Study:
    """What is played."""

    paper: Path
    """Folder with `networks_b2.npz`."""
    data: Path
    """Folder with the authors' carbon data."""
    solved: Path
    """Folder that keeps the hindsight limits."""
    windows: int
    """Test windows whose hindsight limit is found."""
    seeds: list[int]
    """Of the search."""
    processes: int | None = None
    """How many find limits at a time."""

    def pieces(self, grid: list[tuple[float, float]]) -> list[Piece]:
        """One for each contract."""
        return [Piece(f"lam{lam:g}-b{b:g}", self._piece(lam, b)) for lam, b in grid]

    def _piece(self, lam: float, b: float) -> Callable[[Callable[[int, int, str], None]], Any]:
        return lambda report: asdict(self.row(lam, b, lambda done, total: report(done, total, "tuning")))

    def row(self, lam: float, b: float, report: Callable[[int, int], None]) -> Row:
        """Tune on the validation windows, judge on the test windows."""
        env, network = Carbon(), load_authors_network(self.paper / "networks_b2.npz", NETWORK)
        test = load_carbon(self.data, "test")
        contract = env.contract(lam, b)
        structured = Structured(contract, env.structure)
        validation = load_carbon(self.data, "val")
        paces = [pace(network, env, validation, structured, seed=seed, report=report) for seed in self.seeds]

        def played(policy: Policy, certificate: Certificate | None) -> Run:
            return rollout(env, policy, test, certificate, record="outcomes")

        prior = played(env.prior, None)
        runs = {
            "tight": [played(network, LipschitzCertificate(contract, env.sensitivity, "tight"))],
            "structured": [played(network, structured)],
            "paced": [played(paced, structured) for paced in paces],
            "unguarded": [played(network, None)],
        }
        limit, shares = self._shares(env, test, contract, prior, runs)
        return Row(
            lam,
            b,
            prior=float(prior.returns.mean()),
            tight=float(runs["tight"][0].returns.mean()),
            structured=float(runs["structured"][0].returns.mean()),
            seeds=[float(run.returns.mean()) for run in runs["paced"]],
            limit=limit,
            shares=shares,
            violation_rates={
                name: max(audit(run, prior, contract).violation_rate for run in those)
                for name, those in runs.items()
            },
            tuned=[paced.earned for paced in paces],
            weights=[paced.weights.tolist() for paced in paces],
        )

    def _shares(
        self, env: Carbon, test: Episodes, contract: Contract, prior: Run, runs: dict[str, list[Run]]
    ) -> tuple[float, dict[str, float]]:
        """The limit of evenly chosen windows, and what each run has of the way there."""
        chosen = np.linspace(0, len(test) - 1, min(self.windows, len(test))).round().astype(int)
        found = hindsight_limit(
            env,
            test[chosen],
            contract,
            prior.costs[chosen],
            program=CarbonProgram,
            processes=self.processes,
            cache=self.solved,
        )
        shares = {
            name: float(np.mean([found.share(run.returns[chosen], prior.returns[chosen]) for run in those]))
            for name, those in runs.items()
            if name != "unguarded"
        }
        level = prior.returns.mean() - prior.returns[chosen].mean()
        return float(found.upper.mean() + level), shares


def paced_table(rows: list[Row]) -> Table:
    """The comparison for people."""
    above, seeds = sum(row.above_tight for row in rows), len(rows[0].seeds)
    table = Table(
        title="The authors' RL network on their test windows: reward (share of the limit)",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.caption = (
        f"paced is above tight in {above} of {len(rows)} settings, with each of {seeds} seeds of the search (± "
        f"standard deviation over them); tuned on the validation windows; the prior earns {rows[0].prior:.1f}; "
        "viol.: share of windows that break the promise, unguarded | paced"
    )
    for name in ("lam", "b", "tight", "structured", "paced", "limit", "viol."):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        spread = {"paced": f" ± {row.spread:.1f}"}
        earned = (
            f"{getattr(row, name):.1f}{spread.get(name, '')} ({row.shares[name]:.2f})"
            for name in ("tight", "structured", "paced")
        )
        rates = f"{row.violation_rates['unguarded']:.0%} | {row.violation_rates['paced']:.0%}"
        table.add_row(f"{row.lam:g}", f"{row.b:g}", *earned, f"{row.limit:.1f}", rates)
    return table


@styled
def paced_figure(rows: list[Row]) -> Figure:
    """Reward against lam, a panel for each b."""
    bs = sorted({row.b for row in rows})
    figure, axes = new_figure(4.4 * len(bs), 3.6, columns=len(bs), sharey=True)
    for axis, b in zip(axes[0], bs, strict=True):
        shown = sorted((row for row in rows if row.b == b), key=lambda row: row.lam)
        for name, (color, marker, label) in LOOKS.items():
            axis.plot(
                [row.lam for row in shown],
                [getattr(row, name) for row in shown],
                marker=marker,
                color=color,
                linestyle="--" if name in ("limit", "prior") else "-",
                markersize=4,
                label=label,
            )
        axis.set(xlabel="lam", title=f"b = {b:g}")
    axes[0, 0].set_ylabel("mean reward of a test window")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=3, loc="outside lower center")
    figure.suptitle("The authors' RL network behind larger and smaller safe sets")
    return figure
