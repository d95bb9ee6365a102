"""The authors' own networks, played through our guard on their data, beside the numbers that they published."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.audit import audit
from tether.certificates import LipschitzCertificate
from tether.data import load_carbon
from tether.envs import Carbon
from tether.learn.networks import load_authors_network
from tether.learn.rollout import rollout

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
