"""Many worlds in which everything fails, one seed after the other, and what came of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from tether.core.audit import audit
from tether.serve.faults import CONTRACTS, ROUNDS, Finding, World
from tether.serve.sabotage import SABOTAGES

COUNTS = ("crashes", "power_losses", "cut", "damaged", "refused", "rounds", "alone", "gaps", "operations")
"""What is added up over worlds."""


@dataclass(frozen=True)
class Verdict:
    """What came of a campaign. Nothing may be in `wrong`, and no episode may break its promise."""

    worlds: int
    counts: dict[str, int]
    episodes: int
    violations: int
    """Episodes that broke the promise."""
    worst_margin: float
    """The least distance from the bound, cost units."""
    unguarded: float
    """Share of the episodes in which the learner alone breaks it, on the same draws."""
    looser: float
    """Share of the episodes that break a promise with a b that is 5 % less: how near to the bound they come."""
    wrong: list[tuple[int, str]]
    """(seed, what must not happen and did)."""

    @property
    def holds(self) -> bool:
        """Whether all is as it must be, in a campaign that shows something."""
        return not self.wrong and self.violations == 0 and self.unguarded > 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def campaign(
    crashes: int, seed: int, sabotage: str | None = None, report: Callable[[int], None] = lambda _: None
) -> Verdict:
    """Let worlds fail until there were so many crashes.

    Args:
        crashes: At least so many; a single world, with `seed` alone, if it is 1.
        seed: Of the first world; the next ones have the next numbers.
        sabotage: What is broken on purpose, one of `SABOTAGES`; None for nothing.
        report: Told how many crashes there were so far.
    """
    found: list[Finding] = []
    done = 0
    with contextlib.nullcontext() if sabotage is None else SABOTAGES[sabotage]():
        while not found or (done < crashes and crashes > 1):
            found.append(World(seed + len(found)).run())
            done += found[-1].crashes
            report(done)
    return judge(found)


def judge(findings: Iterable[Finding]) -> Verdict:
    """Audit every episode, and add up."""
    found = list(findings)
    counts = {name: sum(getattr(each, name) for each in found) for name in COUNTS}
    wrong = [(each.seed, what) for each in found for what in each.wrong]
    violations, broken_alone, broken_less, total, margin = 0, 0, 0, 0, float("inf")
    for plant, contract in CONTRACTS.items():
        played = [each for finding in found for each in finding.episodes if each.plant == plant]
        if not played:
            continue
        promise = replace(contract, horizon=ROUNDS)
        of_prior = [each.prior for each in played]
        guarded = audit([each.costs for each in played], of_prior, promise)
        alone = audit([each.unguarded for each in played], of_prior, promise)
        less = audit([each.costs for each in played], of_prior, replace(promise, b=0.95 * promise.b))
        total += len(played)
        violations += round(guarded.violation_rate * len(played))
        broken_alone += round(alone.violation_rate * len(played))
        broken_less += round(less.violation_rate * len(played))
        margin = min(margin, guarded.worst_margin)
    share = max(total, 1)
    return Verdict(
        len(found), counts, total, violations, margin, broken_alone / share, broken_less / share, wrong
    )
