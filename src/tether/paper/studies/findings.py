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
"""Relative difference within which a printed number counts as reproduced ..."""
NEAR_OF_GAIN = 0.05
"""... and a reward: the difference as a share of the gain over the prior, of which 2 % of the reward may be most."""
SMALL = 0.005
"""Differences of regret below this share of the prior's regret count as none: the seeds' noise is of that size."""
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


def _curves(results: Results, method: str, lam: float, b: float) -> Any:
    """Regret of each block of the first 500 explored episodes, [seeds, blocks]; None without any."""
    rows = [
        row["regret"]
        for row in results["exploration"]
        if (row["method"], row["lam"], row["b"]) == (method, lam, b)
        and row["rule"] in (None, _rule(results))
        and "regret" in row
    ]
    return np.array(rows) if rows else None


def _settings(results: Results) -> list[tuple[float, float]]:
    return [(lam, b) for b in results["grid"]["bs"] for lam in results["grid"]["lams"]]


def _least(results: Results, field: str) -> float:
    """What a difference has to exceed to count as one."""
    if field != "regret":
        return 0.0
    of_prior = [
        value for setting in _settings(results) for value in scores_of(results, field, "prior", *setting)
    ]
    return SMALL * float(np.mean(of_prior)) if of_prior else 0.0


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
        return Finding(form(values), abs(off) <= NEAR, f"Ours is {off:+.0%} off.")

    return judge


def ordered(
    field: str, better: str, worse: str, words: str, settings: Callable[[Results], Any] = _settings
) -> Judge:
    """Whether the mean of `better` is below that of `worse` in every setting, regrets by more than `SMALL`."""

    def judge(results: Results) -> Finding | None:
        gaps, pairs = {}, []
        for lam, b in settings(results):
            mine, its = (scores_of(results, field, method, lam, b) for method in (better, worse))
            if mine and its:
                gaps[lam, b] = float(np.mean(its) - np.mean(mine))
                pairs += [one > other for one, other in zip(its, mine, strict=True)]
        if not gaps:
            return None
        least = _least(results, field)
        count = sum(gap > least for gap in gaps.values())
        form = ".1%" if field == "violation_rate" else ".2f"
        lowest, highest = min(gaps.values()), max(gaps.values())
        text = (
            f"{words} in {count} of {len(gaps)} settings (by {lowest:{form}} to {highest:{form}}; seed by seed in "
            f"{sum(pairs)} of {len(pairs)})"
        )
        against = [f"({lam:g}, {b:g})" for (lam, b), gap in gaps.items() if gap <= least]
        return Finding(text, count == len(gaps), f"not at (lam, b) = {', '.join(against)}")

    return judge


def falls(field: str, method: str, along: str) -> Judge:
    """Whether a mean score falls with every step along `lam` or `b`, regrets by more than `SMALL`."""

    def judge(results: Results) -> Finding | None:
        grid = results["grid"]
        places = grid["lams"] if along == "lam" else grid["bs"]
        others = grid["bs"] if along == "lam" else grid["lams"]
        steps, of_seeds = [], []
        for other in others:
            pairs = [(place, other) if along == "lam" else (other, place) for place in places]
            found = [scores_of(results, field, method, *pair) for pair in pairs]
            if all(found):
                steps += np.diff([np.mean(values) for values in found]).tolist()
                of_seeds += (np.diff(np.array(found), axis=0) < 0.0).ravel().tolist()
        if not steps:
            return None
        least = _least(results, field)
        count = sum(step < -least for step in steps)
        form = ".1%" if field == "violation_rate" else ".2f"
        text = (
            f"falls in {count} of {len(steps)} steps of {along} (by {-max(steps):{form}} to {-min(steps):{form}}; seed "
            f"by seed in {sum(of_seeds)} of {len(of_seeds)})"
        )
        less = f" by more than {least:.2f}" if least else ""
        return Finding(
            text, count == len(steps), f"{len(steps) - count} of {len(steps)} steps do not fall{less}."
        )

    return judge


def lam_frees(method: str) -> Judge:
    """Whether a method's regret falls with lam; if not, how much the bound on a whole episode grows with lam."""
    falling = falls("regret", method, "lam")

    def judge(results: Results) -> Finding | None:
        finding = falling(results)
        if finding is None:
            return None
        grown = [row for row in results["bounds"] if row["b"] == results["grid"]["bs"][0]]
        first, last = grown[0], grown[-1]
        why = (
            f"{finding.why} The prior costs {results['prior']['cost']:.1f} an episode, so that from "
            f"lam = {first['lam']:g} to {last['lam']:g} the bound on the average grows from "
            f"{first['cost']:.1f} to {last['cost']:.1f} only."
        )
        return finding._replace(why=why)

    return judge


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
    lower = ends["rl"] - ends[lowest] > _least(results, "regret")
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


def explained(on: str, source: str) -> Judge:
    """What another study of the project found about an explanation that the paper gives.

    Args:
        on: Name of its `evidence` (see `tether.paper.results.find_results`).
        source: The data under which it is shown.
    """

    def judge(results: Results) -> Finding | None:
        found = results.get("evidence", {}).get(on)
        if found is None or results["data"]["source"] != source:
            return None
        return Finding(found["text"], bool(found["holds"]))

    return judge


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


def hostile_kept(results: Results) -> Finding | None:
    """Learners that learn nothing, behind each rule of the guard and without one."""
    rows = [row for row in results["guard"]["rows"] if row["learner"] != "prior"]
    kept = [rate for row in rows if row["guard"] != "none" for rate in row["violation_rates"]]
    free = [rate for row in rows if row["guard"] == "none" for rate in row["violation_rates"]]
    if not kept or not free:
        return None
    episodes = round(sum(kept) * results["guard"]["episodes"])
    text = (
        f"{episodes} of {len(kept) * results['guard']['episodes']:,} episodes of random and greedy proposals; "
        f"unguarded {min(free):.0%} to {max(free):.0%}"
    )
    return Finding(text, not any(kept))


def trained_aware(results: Results) -> Finding | None:
    """The authors' ACRL and RL networks behind the same guard: same inputs, same guard, another training."""
    reward = {
        (row["method"], row["lam"]): row["here"]
        for row in results.get("published", [])
        if row["quantity"] == "mean_reward"
    }
    gains = [value - reward["rl_acd", lam] for (method, lam), value in reward.items() if method == "acrl"]
    if not gains:
        return None
    text = (
        f"the authors' networks, which see the same and are guarded alike, differ in training only: {min(gains):+.2f} "
        f"to {max(gains):+.2f} in reward over {len(gains)} lam"
    )
    return Finding(text, min(gains) > 0.0)


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
    kept, seeds = sum(row["kept"] for row in rows), sum(len(row["costs"]) for row in rows)
    text = (
        f"met in {len(met)} of {len(rows)} settings ({min(shares):.2f} to {max(shares):.2f} of the bound), by {kept} "
        f"of {seeds} seeds"
    )
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


def ours_beside(method: str, key: str, field: str = "reward") -> Judge:
    """Our own training beside a column of the authors' evaluation, at b = 2: offline, with their rule if there is."""

    def judge(results: Results) -> Finding | None:
        if not results["paper"]:
            return None
        gaps, shares, spreads = [], [], []
        for lam, theirs in zip(results["paper"]["lambda"], results["paper"][key], strict=True):
            rules = [("released",), (_rule(results),)]
            for rule in rules:
                values = [
                    row[field]
                    for row in results["scores"]
                    if (row["mode"], row["method"], row["lam"], row["b"])
                    == ("offline", method, float(lam), 2.0)
                    and row["rule"] in rule
                ]
                if values:
                    gaps.append(float(np.mean(values)) - theirs)
                    gain = theirs - results["prior"]["reward"] if field == "reward" else theirs
                    shares.append(gaps[-1] / gain)
                    spreads.append(float(np.std(values)))
                    break
        if not gaps:
            return None
        text = (
            f"{field.replace('_', ' ')} {min(gaps):+.2f} to {max(gaps):+.2f} from theirs ({min(shares):+.1%} to "
            f"{max(shares):+.1%}{' of the gain over the prior' if field == 'reward' else ''}), over {len(gaps)} lam; "
            f"± {max(spreads):.2f} over the seeds at most"
        )
        return Finding(text, max(map(abs, shares)) <= (NEAR_OF_GAIN if field == "reward" else NEAR))

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
        theirs = next(row[field] for row in results["rl_network"] if row["windows"] == "all")
        return finding._replace(ours=f"{finding.ours}; the authors' own network {theirs:.1f}")

    return judge


def random_range(results: Results) -> Finding | None:
    """Least and largest mean regret of Random+ACD over the settings."""
    found = [
        values
        for lam, b in _settings(results)
        if (values := scores_of(results, "regret", "random+acd", lam, b))
    ]
    means = [float(np.mean(values)) for values in found]
    if not means or not results["paper"]:
        return None
    low, high = results["paper"]["paper_text"]["random_acd_regret_range"]
    off = max(abs(min(means) / low - 1.0), abs(max(means) / high - 1.0))
    idle = results.get("idle_regret")
    why = (
        f"one that proposes 0, as a dead ReLU output does, has {idle[0]:.1f} to {idle[1]:.1f}."
        if idle
        else ""
    )
    widest = max(float(np.std(values)) for values in found)
    text = f"{min(means):.1f} to {max(means):.1f}, ± {widest:.1f} over the seeds at most"
    return Finding(text, off <= NEAR, why)


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
    holds = float(np.mean(mine)) > _least(results, "regret")
    return Finding(f"CRL {spread(mine, '.2f')} (lam = {lam:g})", holds, why)


def crl_rises(results: Results) -> Finding | None:
    """CRL's violation rate at lam = 2 and at lam = 6, b = 2."""
    rates = [scores_of(results, "violation_rate", "crl", lam, 2.0) for lam in (2.0, 6.0)]
    if not all(rates):
        return None
    text = f"{percents(rates[0])}, then {percents(rates[1])}"
    return Finding(text, bool(np.mean(rates[1]) > np.mean(rates[0])))


def prior_regret(results: Results) -> Finding | None:
    """The prior's regret at the smaller lam."""
    values = scores_of(results, "regret", "prior", *ends(results)[0])
    return Finding(spread(values), True) if values else None
