"""What the curves of an exploration say about a claim of the paper: regret over the episodes played."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tether.paper.studies.findings import Finding, Judge, Results, ends, least_difference, main_rule, spread

AFTER = 200
"""Episodes after which the paper's Figure 1(a) orders its curves."""


def _curves(results: Results, method: str, lam: float, b: float) -> Any:
    """Regret of each block of the first 500 explored episodes, [seeds, blocks]; None without any."""
    rows = [
        row["regret"]
        for row in results["exploration"]
        if (row["method"], row["lam"], row["b"]) == (method, lam, b)
        and row["rule"] in (None, main_rule(results))
        and "regret" in row
    ]
    return np.array(rows) if rows else None


def exploring(
    judged: Callable[[dict[str, Any], Results], tuple[str, bool, str]],
    methods: Sequence[str],
    setting: int = 0,
) -> Judge:
    """A judgement of the curves [seeds, blocks] of the first 500 episodes, at the least (0) or the most (1) freedom."""

    def judge(results: Results) -> Finding | None:
        lam, b = ends(results)[setting]
        curves = {method: _curves(results, method, lam, b) for method in methods}
        if any(curve is None or curve.shape[1] < 2 for curve in curves.values()):
            return None
        text, holds, why = judged(curves, results)
        return Finding(f"{text} (lam = {lam:g}, b = {b:g})", holds, why)

    return judge


def _last(curves: Any) -> list[float]:
    """Mean regret of the last 100 of the 500 episodes, for each seed."""
    means: list[float] = np.mean(curves[:, -4:], axis=1).tolist()
    return means


def prior_highest(curves: dict[str, Any], results: Results) -> tuple[str, bool, str]:
    """The prior has the highest regret in every block once the learners were updated."""
    training = results["training"]
    first = -(-training["batch"] // training["block"])
    means = {method: np.mean(each, axis=0) for method, each in curves.items()}
    text = ", ".join(f"{method} {spread(np.mean(each, axis=1).tolist())}" for method, each in curves.items())
    above = [method for method, mean in means.items() if np.any(mean[first:] > means["prior"][first:])]
    early = [method for method, mean in means.items() if np.any(mean[:first] > means["prior"][:first])]
    text += f"; in every block after the first update ({training['batch']} episodes)"
    if early:
        text += (
            f", before it {', '.join(early)} with random weights {'is' if len(early) == 1 else 'are'} higher"
        )
    return text, not above, f"{', '.join(above)} is above it in some block after the first update"


def rl_ends_lowest(curves: dict[str, Any], results: Results) -> tuple[str, bool, str]:
    """RL's regret falls, and none is lower at the end (by more than `SMALL`)."""
    ends = {method: float(np.mean(_last(each))) for method, each in curves.items()}
    first = curves["rl"][:, 0].tolist()
    text = f"rl {spread(first)} to {spread(_last(curves['rl']))}; at the end " + ", ".join(
        f"{method} {spread(_last(each))}" for method, each in curves.items() if method != "rl"
    )
    lowest = min(ends, key=lambda method: ends[method])
    lower = ends["rl"] - ends[lowest] > least_difference(results, "regret")
    holds = ends["rl"] < float(np.mean(first)) and not lower
    return text, holds, f"{lowest} is lowest in the last 100 of 500 episodes"


def all_fall(curves: dict[str, Any], results: Results) -> tuple[str, bool, str]:
    """Every learner's regret falls over the first 500 episodes."""
    del results
    text = ", ".join(
        f"{method} {spread(each[:, 0].tolist())} to {spread(_last(each))}" for method, each in curves.items()
    )
    rising = [method for method, each in curves.items() if np.mean(_last(each)) >= np.mean(each[:, 0])]
    return text, not rising, f"not of {', '.join(rising)}"


def freer_is_lower(results: Results) -> Finding | None:
    """ACRL's regret after `AFTER` episodes, at the smallest and at the largest freedom."""
    tight, free = (_curves(results, "acrl", *setting) for setting in ends(results))
    start = AFTER // results["training"]["block"]
    if tight is None or free is None or tight.shape[1] <= start:
        return None
    less, more = (np.mean(each[:, start:], axis=1).tolist() for each in (tight, free))
    (lam, b), (freer, wider) = ends(results)
    text = f"{spread(less)} at ({lam:g}, {b:g}), {spread(more)} at ({freer:g}, {wider:g})"
    return Finding(text, bool(np.mean(more) < np.mean(less)))


def tighter_is_faster(results: Results) -> Finding | None:
    """Episodes until nine tenths of what an ACRL curve falls in 500 episodes are gone, seed by seed."""
    needed = []
    for setting in ends(results):
        curves = _curves(results, "acrl", *setting)
        if curves is None or curves.shape[1] < 8:
            return None
        needed.append([_settled(curve, results["training"]["block"]) for curve in curves])
    tight, free = np.array(needed)
    (lam, b), (freer, wider) = ends(results)
    text = (
        f"9/10 of the fall in {spread(tight, '.0f')} episodes at ({lam:g}, {b:g}), {spread(free, '.0f')} at "
        f"({freer:g}, {wider:g}); fewer in {np.sum(tight < free)} of {len(tight)} seeds, more in "
        f"{np.sum(tight > free)}"
    )
    holds = bool(np.mean(tight) < np.mean(free)) and not np.any(tight > free)
    return Finding(text, holds, "some seeds need as many episodes, or more")


def _settled(curve: Any, block: int) -> int:
    first, last = float(curve[0]), float(np.mean(curve[-4:]))
    reached = np.flatnonzero(curve <= last + 0.1 * (first - last))
    return int(block * (1 + (reached[0] if len(reached) else len(curve) - 1)))
