"""What late and missing costs cost: the reward of a greedy learner behind the guard, against how late costs come."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.assure.hostile import Greedy
from tether.certificates import Certificate, LipschitzCertificate, Structured
from tether.core import drawing
from tether.core.audit import audit
from tether.core.contract import Contract
from tether.simulate.rollout import rollout
from tether.systems.base import Env
from tether.systems.system import System

UNGUARDED, PRIOR = "unguarded", "prior"


@dataclass(frozen=True)
class Row:
    """A guard whose costs come so late, or one of the two policies that it stands between."""

    guard: str
    """`lipschitz`, `structured`, or without one: `unguarded` and `prior`."""
    delay: int
    """Rounds that are closed before a cost is known."""
    missing: float
    """Share of the rounds whose cost never comes."""
    rewards: list[float]
    """Mean return of each seed."""
    gains: list[float]
    """The same above the prior's on the same episodes."""
    episodes: int
    """In all."""
    violations: int
    """Episodes in which the promise was broken."""

    @property
    def reward(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.rewards))

    @property
    def gain(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.gains))


def certificates(env: Env, contract: Contract) -> dict[str, Certificate]:
    """What is known of the system, as far as it has been derived."""
    made: dict[str, Certificate] = {"lipschitz": LipschitzCertificate(contract, env.sensitivity)}
    with contextlib.suppress(NotImplementedError):
        made["structured"] = Structured(contract, env.structure)
    return made


def late_rows(
    system: System,
    contract: Contract,
    delays: Sequence[int],
    shares: Sequence[float],
    seeds: Sequence[int],
    episodes: int,
    report: Callable[[int], None] = lambda _done: None,
) -> Iterator[Row]:
    """Play every combination, and the prior and the learner without a guard."""
    env = system.env()
    drawn = {seed: system.draw(seed, episodes, contract.horizon) for seed in seeds}
    priors = {seed: rollout(env, env.prior, each, record="outcomes") for seed, each in drawn.items()}
    greedy, done = Greedy(env), 0

    def row(guard: str, delay: int, missing: float, policy: Any, certificate: Certificate | None) -> Row:
        rewards, gains, violations = [], [], 0
        for seed, each in drawn.items():
            late: Any = {} if certificate is None else {"delay": delay, "missing": missing}
            run = rollout(env, policy, each, certificate, seed=seed, record="outcomes", **late)
            rewards.append(float(run.returns.mean()))
            gains.append(float(np.mean(run.returns - priors[seed].returns)))
            violations += int(np.sum(np.any(audit(run, priors[seed], contract).violations, axis=1)))
        return Row(guard, delay, missing, rewards, gains, episodes * len(seeds), violations)

    yield row(PRIOR, 0, 0.0, env.prior, None)
    yield row(UNGUARDED, 0, 0.0, greedy, None)
    for name, certificate in certificates(env, contract).items():
        for delay in delays:
            for missing in shares:
                yield row(name, delay, missing, greedy, certificate)
                done += 1
                report(done)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The part `late` of `results.json`."""
    return [{**asdict(each), "reward": each.reward, "gain": each.gain} for each in rows]


def table(title: str, rows: Sequence[Row]) -> Table:
    """Reward and violations of every row."""
    made = Table(title=title, box=SIMPLE_HEAD)
    made.padding = (0, 1, 0, 0)
    made.caption = "gain: return above the prior's on the same episodes, mean, least and most of the seeds"
    for name in ("guard", "delay", "missing", "return", "gain", "least", "most", "viol."):
        made.add_column(name, justify="left" if name == "guard" else "right", no_wrap=True)
    for each in rows:
        numbers = (each.reward, each.gain, min(each.gains), max(each.gains))
        shown = (f"{value:.2f}" for value in numbers)
        made.add_row(each.guard, f"{each.delay}", f"{each.missing:.0%}", *shown, f"{each.violations}")
    return made


@drawing.styled
def late_figure(title: str, rows: Sequence[Row]) -> Figure:
    """Return above the prior's against delay, a curve for each share of missing costs, a panel for each certificate."""
    names = list(dict.fromkeys(each.guard for each in rows if each.guard not in (PRIOR, UNGUARDED)))
    shares = sorted({each.missing for each in rows if each.guard in names})
    colors = (drawing.BLUE, drawing.GREEN, drawing.ORANGE, drawing.RED, drawing.PURPLE, drawing.SKY)
    figure, axes = drawing.new_figure(3.2 * len(names) + 0.6, 2.8, columns=len(names), sharey=True)
    for axis, name in zip(axes[0], names, strict=True):
        for share, color in zip(shares, colors, strict=False):
            found = [each for each in rows if each.guard == name and each.missing == share]
            places = np.arange(len(found))
            label = f"{share:.0%} missing"
            axis.plot(places, [each.gain for each in found], "o-", color=color, label=label, ms=3, lw=1.2)
            axis.vlines(
                places,
                [min(each.gains) for each in found],
                [max(each.gains) for each in found],
                color,
                lw=0.6,
            )
            axis.set_xticks(places, [str(each.delay) for each in found])
        axis.axhline(0.0, color=drawing.GREY, ls="--", lw=1.0, label="prior")
        broken = sum(each.violations for each in rows if each.guard == name)
        axis.set_title(f"{name}: {broken} violations")
        axis.set_xlabel("rounds until a cost is known")
    axes[0][0].set_ylabel("return above the prior's")
    axes[0][0].legend(fontsize=7)
    figure.suptitle(title)
    return figure
