"""The authors' own networks, played through our guard on their data, beside the numbers that they published."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.certificates import LipschitzCertificate
from tether.core.audit import audit
from tether.engines.pieces import Piece
from tether.paper.studies.networks import load_authors_network
from tether.simulate.rollout import rollout
from tether.systems.carbon.env import Carbon
from tether.systems.carbon.reader import load_carbon

SYSTEM = "carbon"
"""The system whose trained networks and data the authors released."""
TOLERANCE = 0.01
"""Largest difference that counts as the same number."""


@dataclass(frozen=True)
class Row:
    """One published number and ours."""

    method: str
    """`acrl`, or `rl_acd` for the RL network behind the guard."""
    lam: float
    quantity: str
    """`mean_reward`, `mean_cost` or `worst_cost`."""
    published: float
    here: float
    violation_rate: float
    """Share of the test windows with a violation in any round."""

    @property
    def agrees(self) -> bool:
        """Whether the two are the same number."""
        return abs(self.here - self.published) <= TOLERANCE


def read_published(paper: Path) -> dict[str, Any]:
    """The authors' published numbers, from `published.json` in the folder `paper`."""
    file = paper / "published.json"
    if not file.is_file():
        raise FileNotFoundError(
            f"{file} not found; --paper must be the folder with the authors' numbers and networks"
        )
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not readable JSON: {error}") from error
    return content


def published_pieces(system: str, paper: Path | None, data: Path | None) -> list[Piece]:
    """What an evaluation computes of the authors' networks: nothing, but for their system and with their data.

    Args:
        system: Its name.
        paper: Folder with `published.json` and `networks_b2.npz`, if given.
        data: Folder with the authors' carbon data, if given.
    """
    if system != SYSTEM or paper is None or data is None or not data.is_dir():
        return []

    def compute(report: Callable[[int, int, str], None]) -> dict[str, Any]:
        rows = play_published(paper, data, lambda done, total: report(done, total, ""))
        return {
            "published": [asdict(row) for row in rows],
            "rl_network": [asdict(row) for row in play_rl(paper, data)],
            "idle_regret": list(play_idle(paper, data)),
        }

    return [Piece("published", compute)]


def play_published(
    paper: Path, data: Path, report: Callable[[int, int], None] = lambda _done, _total: None
) -> list[Row]:
    """Play every published network on the authors' test windows with rule `released` and their constants.

    Args:
        paper: Folder with `published.json` and `networks_b2.npz`.
        data: Folder with the authors' carbon data.
        report: Called with (pieces done, pieces in all).
    """
    published = read_published(paper)
    env = Carbon()
    episodes = load_carbon(data, "test")
    prior = rollout(env, env.prior, episodes, record="outcomes")
    rows = []
    settings = [(method, i) for method in ("acrl", "rl_acd") for i in range(len(published["lambda"]))]
    for done, (method, i) in enumerate(settings, start=1):
        lam = float(published["lambda"][i])
        name = "rl" if method == "rl_acd" else f"acrl_lambda{lam:g}_b{published['b']}"
        contract = env.contract(lam, float(published["b"]))
        certificate = LipschitzCertificate(contract, env.sensitivity, "released")
        network = load_authors_network(paper / "networks_b2.npz", name)
        run = rollout(env, network, episodes, certificate, record="outcomes")
        rate = audit(run, prior, contract).violation_rate
        here = {
            "mean_reward": float(run.returns.mean()),
            "mean_cost": float(run.total_costs.mean()),
            "worst_cost": float(run.total_costs.max()),
        }
        rows += [Row(method, lam, each, published[f"{method}_{each}"][i], here[each], rate) for each in here]
        report(done, len(settings))
    return rows


@dataclass(frozen=True)
class Unguarded:
    """The authors' RL network without a guard, on some of their test windows."""

    windows: str
    """`all`, or the `first half` or `second half` of them in the order of time."""
    reward: float
    """Mean episode reward."""
    cost: float
    """Mean episode cost."""
    worst_cost: float
    demand: float
    """Mean of the windows' demand, energy units an hour."""
    violation_rate: float
    """Share of the windows that break (lam, b) = (2, b of the networks) in any round."""


def play_rl(paper: Path, data: Path) -> list[Unguarded]:
    """Play the authors' RL network as the paper does, without a guard: what it costs depends on the months.

    Args:
        paper: Folder with `published.json` and `networks_b2.npz`.
        data: Folder with the authors' carbon data.
    """
    env = Carbon()
    contract = env.contract(2.0, float(read_published(paper)["b"]))
    network = load_authors_network(paper / "networks_b2.npz", "rl")
    windows = load_carbon(data, "test")
    half = len(windows) // 2
    rows = []
    for name, part in (("all", windows), ("first half", windows[:half]), ("second half", windows[half:])):
        run = rollout(env, network, part, record="outcomes")
        rows.append(
            Unguarded(
                name,
                float(run.returns.mean()),
                float(run.total_costs.mean()),
                float(run.total_costs.max()),
                float(part["demand"].mean()),
                audit(run, rollout(env, env.prior, part, record="outcomes"), contract).violation_rate,
            )
        )
    return rows


def play_idle(paper: Path, data: Path, bs: Sequence[float] = (2.0, 6.0)) -> tuple[float, float]:
    """Least and largest regret, over the published lam and over b, of a network that proposes 0 in every round.

    A ReLU output starts there if its initial weights are unlucky. Behind the guard with rule `released`; the regret is
    that against the authors' RL network, on their test windows.

    Args:
        paper: Folder with `published.json` and `networks_b2.npz`.
        data: Folder with the authors' carbon data.
        bs: Slacks a round, cost units.
    """
    env, windows = Carbon(), load_carbon(data, "test")
    network = load_authors_network(paper / "networks_b2.npz", "rl")
    best = float(rollout(env, network, windows, record="outcomes").returns.mean())
    regrets = []
    for b in bs:
        for lam in read_published(paper)["lambda"]:
            certificate = LipschitzCertificate(env.contract(float(lam), b), env.sensitivity, "released")
            run = rollout(env, _idle, windows, certificate, record="outcomes")
            regrets.append(best - float(run.returns.mean()))
    return min(regrets), max(regrets)


def _idle(observation: Any, key: Any) -> Any:  # noqa: ARG001
    return 0.0 * Carbon().shown(observation)[1]["demand"]


def rl_table(rows: list[Unguarded], printed: dict[str, Any]) -> Table:
    """What the paper prints of RL's cost, and what the authors' RL network costs on their windows.

    Args:
        rows: What `play_rl` gave.
        printed: The part `paper_text` of `published.json`.
    """
    table = Table(
        title="The authors' RL network without a guard, on their test windows",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.caption = (
        f"the paper prints {printed['rl_mean_cost']:g} / {printed['rl_worst_cost']:g} (mean / worst cost); "
        "viol.: share that breaks lam = 2, b = 2"
    )
    table.add_column("windows", no_wrap=True)
    for name in ("demand", "mean reward", "mean cost", "worst cost", "viol."):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        numbers = (row.demand, row.reward, row.cost, row.worst_cost)
        table.add_row(row.windows, *(f"{number:.2f}" for number in numbers), f"{row.violation_rate:.1%}")
    return table


def published_table(rows: list[Row]) -> Table:
    """The comparison for people: published and here, for each quantity."""
    agree = sum(row.agrees for row in rows)
    largest = max(abs(row.here - row.published) for row in rows)
    table = Table(
        title="The authors' networks behind our guard: published | here",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.caption = f"{agree} of {len(rows)} agree within {TOLERANCE:g}; largest difference {largest:.5f}"
    table.add_column("method", no_wrap=True)
    for name in ("lam", "mean reward", "mean cost", "worst cost", "viol."):
        table.add_column(name, justify="right", no_wrap=True)
    for first in range(0, len(rows), 3):
        three = rows[first : first + 3]
        pairs = (f"{row.published:.4f}|{row.here:.4f}" for row in three)
        table.add_row(three[0].method, f"{three[0].lam:g}", *pairs, f"{three[0].violation_rate:.0%}")
    return table
