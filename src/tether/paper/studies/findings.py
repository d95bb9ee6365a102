"""What results say about a claim of the paper: numbers with their spread, and whether it holds.

Scores are those after exploration if the results have them, as in the paper's figures, and of the main rule of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tether.learn.methods import method_of
from tether.paper.studies.comparison import averages

Results = dict[str, Any]
Judge = Callable[[Results], "Finding | None"]
"""What results say; None if they have nothing on it."""
NEAR = 0.02
"""Relative difference within which a printed number counts as reproduced."""
AFTER = 200
"""Episodes after which the paper's Figure 1(a) orders its curves."""


class Finding(NamedTuple):
    """What results say about a claim."""

    ours: str
    """Numbers, with their spread over the seeds."""
    holds: bool
    why: str = ""
    """What in these results explains a difference."""


def _mode(results: Results) -> str:
    """After exploration, as in the paper, if the results have it."""
    modes: list[str] = results["grid"]["modes"]
    return "online" if "online" in modes else modes[0]


def _rule(results: Results) -> str:
    rules: list[str] = results["grid"]["trained_rules"]
    return rules[-1]


def scores_of(results: Results, field: str, method: str, lam: float, b: float) -> list[float]:
    """A test score of each seed."""
    return [
        row[field]
        for row in results["scores"]
        if (row["mode"], row["method"], row["lam"], row["b"]) == (_mode(results), method, lam, b)
        and row["rule"] in (None, _rule(results))
        and row[field] is not None
    ]


def _curve(results: Results, method: str, lam: float, b: float) -> Any:
    """Regret of each block of the first 500 explored episodes, mean over the seeds, [blocks]; None without any."""
    rows = [
        row["regret"]
        for row in results["exploration"]
        if (row["method"], row["lam"], row["b"]) == (method, lam, b)
        and row["rule"] in (None, _rule(results))
        and "regret" in row
    ]
    return np.mean(rows, axis=0) if rows else None


def _settings(results: Results) -> list[tuple[float, float]]:
    return [(lam, b) for b in results["grid"]["bs"] for lam in results["grid"]["lams"]]


def ends(results: Results) -> tuple[tuple[float, float], tuple[float, float]]:
    """The smallest freedom that the figures show, and the largest."""
    grid = results["grid"]
    return (results["guard"]["lam"], grid["bs"][0]), (grid["lams"][-1], grid["bs"][-1])


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """Mean and standard deviation over the seeds."""
    beside = f" ± {np.std(values):{form}}" if len(values) > 1 else ""
    return f"{np.mean(values):{form}}{beside}"


def percents(values: Sequence[float]) -> str:
    """The same of shares."""
    return f"{np.mean(values):.1%} ± {np.std(values):.1%}"


def printed_number(
    read: Callable[[Results], list[float]],
    key: Callable[[Results], float],
    form: Callable[..., str] = spread,
) -> Judge:
    """Whether the mean over the seeds is the printed number, within `NEAR`."""

    def judge(results: Results) -> Finding | None:
        values = read(results)
        if not values or not results["paper"]:
            return None
        off = float(np.mean(values)) / key(results["paper"]) - 1.0
        return Finding(form(values), abs(off) <= NEAR, f"ours is {off:+.0%} off")

    return judge


def ordered(
    field: str, better: str, worse: str, words: str, settings: Callable[[Results], Any] = _settings
) -> Judge:
    """Whether the mean of `better` is below that of `worse` in every setting."""

    def judge(results: Results) -> Finding | None:
        gaps = {}
        for lam, b in settings(results):
            mine, its = (scores_of(results, field, method, lam, b) for method in (better, worse))
            if mine and its:
                gaps[lam, b] = float(np.mean(its) - np.mean(mine))
        if not gaps:
            return None
        count = sum(gap > 0.0 for gap in gaps.values())
        form = ".1%" if field == "violation_rate" else ".1f"
        lowest, highest = min(gaps.values()), max(gaps.values())
        text = f"{words} in {count} of {len(gaps)} settings (by {lowest:{form}} to {highest:{form}})"
        against = [f"({lam:g}, {b:g})" for (lam, b), gap in gaps.items() if gap <= 0.0]
        return Finding(text, count == len(gaps), f"not at (lam, b) = {', '.join(against)}")

    return judge


def falls(field: str, method: str, along: str) -> Judge:
    """Whether a mean score falls with every step along `lam` or `b`."""

    def judge(results: Results) -> Finding | None:
        grid = results["grid"]
        places = grid["lams"] if along == "lam" else grid["bs"]
        others = grid["bs"] if along == "lam" else grid["lams"]
        steps = []
        for other in others:
            pairs = [(place, other) if along == "lam" else (other, place) for place in places]
            found = [scores_of(results, field, method, *pair) for pair in pairs]
            if all(found):
                steps += np.diff([np.mean(values) for values in found]).tolist()
        if not steps:
            return None
        count = sum(step < 0.0 for step in steps)
        form = ".1%" if field == "violation_rate" else ".2f"
        text = f"falls in {count} of {len(steps)} steps of {along} (by {-max(steps):{form}} to {-min(steps):{form}})"
        return Finding(text, count == len(steps), f"{len(steps) - count} of {len(steps)} steps do not fall")

    return judge


def exploring(
    judged: Callable[[dict[str, Any], Results], tuple[str, bool, str]],
    methods: Sequence[str],
    setting: int = 0,
) -> Judge:
    """A judgement of the curves of the first 500 episodes, at the smallest (0) or the largest (1) freedom."""

    def judge(results: Results) -> Finding | None:
        lam, b = ends(results)[setting]
        curves = {method: _curve(results, method, lam, b) for method in methods}
        if any(curve is None or len(curve) < 2 for curve in curves.values()):
            return None
        text, holds, why = judged(curves, results)
        return Finding(f"{text} (lam = {lam:g}, b = {b:g})", holds, why)

    return judge


def prior_highest(curves: dict[str, Any], results: Results) -> tuple[str, bool, str]:
    """The prior has the highest mean regret of the first 500 episodes."""
    del results
    means = {method: float(np.mean(curve)) for method, curve in curves.items()}
    text = ", ".join(f"{method} {mean:.1f}" for method, mean in means.items())
    above = [method for method, mean in means.items() if mean > means["prior"]]
    return text, not above, f"{', '.join(above)} starts from random weights and loses more at first"


def rl_ends_lowest(curves: dict[str, Any], results: Results) -> tuple[str, bool, str]:
    """RL's regret falls, and is the lowest at the end."""
    del results
    ends = {method: float(np.mean(curve[-4:])) for method, curve in curves.items()}
    first = float(curves["rl"][0])
    text = f"rl {first:.1f} to {ends['rl']:.1f}; at the end " + ", ".join(
        f"{method} {end:.1f}" for method, end in ends.items() if method != "rl"
    )
    lowest = min(ends, key=lambda method: ends[method])
    return text, ends["rl"] < first and lowest == "rl", f"{lowest} is lowest in the last 100 of 500 episodes"


def all_fall(curves: dict[str, Any], results: Results) -> tuple[str, bool, str]:
    """Every learner's regret falls over the first 500 episodes."""
    del results
    ends = {method: (float(curve[0]), float(np.mean(curve[-4:]))) for method, curve in curves.items()}
    text = ", ".join(f"{method} {first:.1f} to {last:.1f}" for method, (first, last) in ends.items())
    rising = [method for method, (first, last) in ends.items() if last >= first]
    return text, not rising, f"not of {', '.join(rising)}"


def freer_is_lower(results: Results) -> Finding | None:
    """ACRL's regret after `AFTER` episodes, at the smallest and at the largest freedom."""
    tight, free = (_curve(results, "acrl", *setting) for setting in ends(results))
    start = AFTER // results["training"]["block"]
    if tight is None or free is None or len(tight) <= start:
        return None
    less, more = float(np.mean(tight[start:])), float(np.mean(free[start:]))
    (lam, b), (freer, wider) = ends(results)
    text = f"{less:.1f} at ({lam:g}, {b:g}), {more:.1f} at ({freer:g}, {wider:g})"
    return Finding(text, more < less)


def tighter_is_faster(results: Results) -> Finding | None:
    """Episodes until nine tenths of what an ACRL curve falls in 500 episodes are gone."""
    needed = []
    for setting in ends(results):
        curve = _curve(results, "acrl", *setting)
        if curve is None or len(curve) < 8:
            return None
        first, last = float(curve[0]), float(np.mean(curve[-4:]))
        reached = np.flatnonzero(curve <= last + 0.1 * (first - last))
        needed.append(
            int(results["training"]["block"] * (1 + (reached[0] if len(reached) else len(curve) - 1)))
        )
    (lam, b), (freer, wider) = ends(results)
    text = f"{needed[0]} episodes for 9/10 of the fall at ({lam:g}, {b:g}), {needed[1]} at ({freer:g}, {wider:g})"
    return Finding(text, needed[0] < needed[1], "it needs as many episodes, or more")


def never(part: str) -> Judge:
    """No violation of any guarded method."""

    def judge(results: Results) -> Finding | None:
        rows = [row for row in results[part] if method_of(row["method"]).guarded]
        if not rows:
            return None
        sizes = [row.get("episodes", results["data"]["test_episodes"]) for row in rows]
        broken = round(sum(row["violation_rate"] * size for row, size in zip(rows, sizes, strict=True)))
        holds = all(row["violation_rate"] == 0.0 for row in rows)
        return Finding(f"{broken} of {sum(sizes):,} episodes", holds)

    return judge


def within_bound(methods: Sequence[str], kept: bool, field: str) -> Judge:
    """Whether the cost of each method is within the bound at b = 2 (the first b), lam = 2 and 6 (or what there is)."""

    def judge(results: Results) -> Finding | None:
        shares = []
        for bound in results["bounds"]:
            if bound["b"] != results["grid"]["bs"][0] or bound["lam"] not in (2.0, 5.0, 6.0, 7.0):
                continue
            for method in methods:
                values = scores_of(results, field, method, bound["lam"], bound["b"])
                shares += [value / bound[field] for value in values]
        if not shares:
            return None
        holds = max(shares) <= 1.0 if kept else min(shares) > 1.0
        return Finding(f"{min(shares):.2f} to {max(shares):.2f} of the bound, over the seeds", holds)

    return judge


def average_kept(results: Results) -> Finding | None:
    """CRL's own constraint on test."""
    rows = [row for row in averages(results) if row["mode"] == _mode(results)]
    if not rows:
        return None
    met = [row for row in rows if row["verdict"] == "met"]
    shares = [float(np.mean(row["costs"])) / row["bound"] for row in rows]
    text = f"met in {len(met)} of {len(rows)} settings ({min(shares):.2f} to {max(shares):.2f} of the bound)"
    missed = [f"({row['lam']:g}, {row['b']:g})" for row in rows if row["verdict"] == "missed"]
    return Finding(text, not missed, f"missed at (lam, b) = {', '.join(missed)}")


def authors_networks(method: str) -> Judge:
    """The authors' networks behind our guard."""

    def judge(results: Results) -> Finding | None:
        rows = [row for row in results.get("published", []) if row["method"] == method]
        if not rows:
            return None
        largest = max(abs(row["here"] - row["published"]) for row in rows)
        return Finding(f"{len(rows)} numbers, largest difference {largest:.5f}", largest <= 0.01)

    return judge


def ours_beside(method: str, key: str) -> Judge:
    """Our own training beside the rewards of the authors' evaluation, at b = 2."""

    def judge(results: Results) -> Finding | None:
        if not results["paper"]:
            return None
        gaps = []
        for lam, theirs in zip(results["paper"]["lambda"], results["paper"][key], strict=True):
            rules = [("released",), (_rule(results),)]
            for rule in rules:
                values = [
                    row["reward"]
                    for row in results["scores"]
                    if (row["mode"], row["method"], row["lam"], row["b"])
                    == ("offline", method, float(lam), 2.0)
                    and row["rule"] in rule
                ]
                if values:
                    gaps.append(float(np.mean(values)) - theirs)
                    break
        if not gaps:
            return None
        text = f"reward {min(gaps):+.1f} to {max(gaps):+.1f} from theirs, over {len(gaps)} lam"
        holds = max(abs(gap) for gap in gaps) <= NEAR * min(results["paper"][key])
        return Finding(text, holds)

    return judge


def rl_cost(field: str, key: str) -> Judge:
    """RL's printed cost, with what the authors' own network costs."""
    near = printed_number(
        lambda results: scores_of(results, field, "rl", *ends(results)[0]),
        lambda printed: printed["paper_text"][key],
    )

    def judge(results: Results) -> Finding | None:
        finding = near(results)
        if finding is None or not results.get("rl_network"):
            return finding
        theirs = {row["windows"]: row[field] for row in results["rl_network"]}
        return finding._replace(
            ours=f"{finding.ours}; the authors' network {theirs['all']:.1f} (first half of the months "
            f"{theirs['first half']:.0f}, second {theirs['second half']:.0f})"
        )

    return judge


def random_range(results: Results) -> Finding | None:
    """Least and largest mean regret of Random+ACD over the settings."""
    means = [
        float(np.mean(values))
        for lam, b in _settings(results)
        if (values := scores_of(results, "regret", "random+acd", lam, b))
    ]
    if not means or not results["paper"]:
        return None
    low, high = results["paper"]["paper_text"]["random_acd_regret_range"]
    off = max(abs(min(means) / low - 1.0), abs(max(means) / high - 1.0))
    idle = results.get("idle_regret")
    why = (
        f"one that proposes 0, as a dead ReLU output does, has {idle[0]:.1f} to {idle[1]:.1f}" if idle else ""
    )
    return Finding(f"{min(means):.1f} to {max(means):.1f}", off <= NEAR, why)


def crl_above_rl(results: Results) -> Finding | None:
    """CRL's regret above RL's at the smaller lam; if it is not, whether RL already keeps CRL's bound."""
    lam, b = ends(results)[0]
    mine, costs = scores_of(results, "regret", "crl", lam, b), scores_of(results, "cost", "rl", lam, b)
    if not mine or not costs:
        return None
    bound = next(row["cost"] for row in results["bounds"] if (row["lam"], row["b"]) == (lam, b))
    why = f"RL's average cost is {np.mean(costs):.0f}, CRL's bound {bound:.0f}: RL keeps it by itself"
    if np.mean(costs) > bound:
        why = f"RL's average cost is {np.mean(costs):.0f}, above CRL's bound {bound:.0f}"
    return Finding(f"CRL {spread(mine)} (lam = {lam:g})", float(np.mean(mine)) > 0.0, why)


def prior_regret(results: Results) -> Finding | None:
    """The prior's regret at the smaller lam."""
    values = scores_of(results, "regret", "prior", *ends(results)[0])
    return Finding(spread(values), True) if values else None
