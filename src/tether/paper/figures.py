"""The paper's figures, from results.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.lines
import matplotlib.ticker
import numpy as np
from matplotlib.figure import Figure

from tether.core.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    new_figure,
    styled,
)
from tether.learn.methods import method_of

if TYPE_CHECKING:
    from tether.assure.safe_sets import SafeSets

COLORS = {"prior": GREY, "random+acd": GREEN, "rl": RED, "rl+acd": SKY, "crl": PURPLE, "acrl": BLUE}
"""Of each method."""


@styled
def safe_sets_figure(pictures: list[SafeSets], title: str) -> Figure:
    """The safe sets of several certificates side by side; a row for each entry of the action."""
    entries = int(np.prod(pictures[0].played.shape[1:]))
    figure, axes = new_figure(
        4.2 * len(pictures),
        0.6 + 2.8 * entries,
        columns=len(pictures),
        rows=entries,
        sharey="row",
        sharex=True,
    )
    for column, each in enumerate(pictures):
        rounds = np.arange(1, len(each.played) + 1)
        low, high, prior, wish, played = (
            np.reshape(values, (len(rounds), entries)).T for values in each[1:6]
        )
        for i in range(entries):
            axis = axes[i, column]
            axis.fill_between(
                rounds, low[i], high[i], step="mid", color=GREEN, alpha=0.25, label="safe", lw=0
            )
            axis.step(rounds, prior[i], where="mid", color=GREY, linestyle="--", label="prior")
            axis.plot(rounds, wish[i], "x", color=RED, markersize=4, label="proposed")
            axis.plot(rounds, played[i], "o", color=BLUE, markersize=3.5, label="played")
            axis.set(xlim=(0.5, len(rounds) + 0.5))
        axes[0, column].set_title(each.name)
        axes[-1, column].set_xlabel("round")
    # What is safe may reach far above all that anybody plays.
    shown = [np.reshape(values, (-1, entries)) for each in pictures for values in each[3:6]]
    for i in range(entries):
        top = 1.2 * max(float(values[:, i].max()) for values in shown)
        axes[i, 0].set_ylim(top=min(top, axes[i, 0].get_ylim()[1]))
        axes[i, 0].set_ylabel("action" if entries == 1 else f"action, entry {i + 1}")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=4, loc="outside lower center")
    figure.suptitle(title)
    return figure


def paper_figures(results: dict[str, Any]) -> dict[str, Figure]:
    """Every figure of the paper that `results` (the content of a results.json) has the numbers for, by name."""
    made = {
        "guard": guard_figure(results),
        "regret-episodes": _regret_episodes(results),
        "regret-lam": _against_lam(results, "regret", "regret after learning, on test episodes"),
        "violations-lam": _against_lam(results, "violation_rate", "test episodes that break the promise"),
        "costs": _costs(results),
        "rules": _rules(results),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


@styled
def guard_figure(results: dict[str, Any]) -> Figure:
    """What the guard does to a greedy and a random learner: cost against its bound, over the rounds."""
    study = results["guard"]
    curves = {(each["learner"], each["guard"]): each for each in study["curves"]}
    figure, axes = new_figure(9.0, 4.3, columns=2)
    left, right = axes[0]
    rule = study["curves"][-1]["guard"]
    rounds = np.arange(1, len(study["bound"]["median"]) + 1)
    for spread, color, label in (
        (study["bound"], BLACK, "the bound"),
        (curves["greedy", "none"]["cost"], ORANGE, "greedy, unguarded"),
        (curves["greedy", rule]["cost"], BLUE, f"greedy, guarded ({rule})"),
        (curves["prior", "none"]["cost"], GREY, "prior"),
    ):
        left.fill_between(rounds, spread["low"], spread["high"], color=color, alpha=0.2, linewidth=0)
        left.plot(rounds, spread["median"], color=color, label=label)
    left.set_ylabel("cumulative cost J_h")
    left.set_title("Median and middle 90 % of the episodes", loc="left")
    styles = (
        ("greedy", "none", ORANGE, "-"),
        ("random", "none", ORANGE, "--"),
        ("greedy", rule, BLUE, "-"),
        ("random", rule, BLUE, "--"),
    )
    for learner, guard, color, line in styles:
        label = f"{learner}, {'unguarded' if guard == 'none' else 'guarded'}"
        right.plot(rounds, curves[learner, guard]["worst_share"], line, color=color, label=label)
    right.axhline(1.0, color=BLACK, linewidth=1.2, label="the bound")
    right.set_ylabel("largest J_h / its bound")
    right.set_title("The worst episode of each round", loc="left")
    free = (
        min(curves["prior", "none"]["cost"]["low"]) <= 0.0
    )  # rounds can cost nothing, which no logarithm shows
    for axis, scale in ((left, "linear" if free else "log"), (right, "log")):
        axis.set_yscale(scale)
        axis.set_xlabel("round h")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)
    learners = f"lam = {study['lam']:g}, b = {study['b']:g}; learners that learn nothing, guard with certificate {rule}"
    _name(figure, results, "hostile learners", learners)
    return figure


@styled
def _regret_episodes(results: dict[str, Any]) -> Figure | None:
    """Regret in the first episodes of exploration, for the smallest and the largest freedom of the grid."""
    rows = [row for row in results["exploration"] if "regret" in row]
    if not rows:
        return None
    grid = results["grid"]
    shown = list(
        dict.fromkeys([(results["guard"]["lam"], grid["bs"][0]), (grid["lams"][-1], grid["bs"][-1])])
    )
    figure, axes = new_figure(max(6.6, 1.3 + 3.9 * len(shown)), 3.2, columns=len(shown), sharey=True)
    for axis, (lam, b) in zip(axes[0], shown, strict=True):
        for method in grid["methods"]:
            mine = [
                row["regret"]
                for row in rows
                if (row["method"], row["lam"], row["b"]) == (method, lam, b)
                and row["rule"] in (None, _main_rule(results))
            ]
            if mine:
                episodes = results["training"]["block"] * np.arange(1, len(mine[0]) + 1)
                _draw_seeds(axis, episodes, np.array(mine).T, method)
        axis.set_title(f"lam = {lam:g}, b = {b:g}", loc="left")
        axis.set_xlabel("episode")
    axes[0, 0].set_ylabel(f"regret, mean of {results['training']['block']} episodes")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    _name(figure, results, "regret while exploring", _how(results, "online"))
    return figure


@styled
def _against_lam(results: dict[str, Any], field: str, label: str) -> Figure | None:
    """A score against lam, a panel for each b; the band is the range over the seeds."""
    grid = results["grid"]
    figure, axes = new_figure(
        max(6.6, 1.3 + 3.9 * len(grid["bs"])), 3.2, columns=len(grid["bs"]), sharey=True
    )
    drawn, lowest, main = False, 0.0, _main_rule(results)
    for axis, b in zip(axes[0], grid["bs"], strict=True):
        for method in grid["methods"]:
            if field == "regret" and method == "rl":
                continue
            for rule in _family(results, method):
                found = [
                    (lam, _values(results, field, method, lam, b, rule=rule or None)) for lam in grid["lams"]
                ]
                points = [(lam, values) for lam, values in found if values]
                if points:
                    drawn, lowest = True, min(lowest, *(min(values) for _, values in points))
                    lams, values = zip(*points, strict=True)
                    _draw_seeds(axis, lams, values, method, "o", rule, "-" if rule in ("", main) else ":")
        axis.set_title(f"b = {b:g}", loc="left")
        axis.set_xlabel("lam")
        axis.set_xticks(grid["lams"])
    axes[0, 0].set_ylabel(label)
    if lowest >= 0.0:
        axes[0, 0].set_ylim(bottom=0.0)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    _name(figure, results, label, _how(results, _after(results)))
    return figure if drawn else None


@styled
def _costs(results: dict[str, Any]) -> Figure:
    """Worst and average cost beside their bounds, for two lam at the first b."""
    grid = results["grid"]
    b = grid["bs"][0]
    positive = [lam for lam in grid["lams"] if lam > 0.0] or grid["lams"]
    lams = list(dict.fromkeys([positive[0], 6.0 if 6.0 in positive else positive[-1]]))
    figure, axes = new_figure(9.0, 3.6, columns=2)
    for axis, field, title in zip(
        axes[0], ("worst_cost", "cost"), ("worst cost", "average cost"), strict=True
    ):
        for j, lam in enumerate(lams):
            bound = next(row[field] for row in results["bounds"] if (row["lam"], row["b"]) == (lam, b))
            axis.axvline(
                bound, color=BLACK, linestyle=("--", ":")[j], linewidth=1.2, label=f"bound, lam = {lam:g}"
            )
            for place, method in enumerate(grid["methods"]):
                values = _values(results, field, method, lam, b)
                if values:
                    at = place + (j - 0.5 * (len(lams) - 1)) * 0.3
                    axis.plot(
                        [min(values), max(values)],
                        [at, at],
                        color=COLORS[method],
                        alpha=0.35,
                        linewidth=5,
                    )
                    axis.plot(np.mean(values), at, ("o", "s")[j], color=COLORS[method])
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.set_yticks(range(len(grid["methods"])), [method_of(method).title for method in grid["methods"]])
        axis.invert_yaxis()
        axis.set_xlabel(f"{title} of an episode")
    handles = [
        *axes[0, 0].get_legend_handles_labels()[0],
        *(
            mpl.lines.Line2D([], [], color=GREY, marker=("o", "s")[j], linestyle="", label=f"lam = {lam:g}")
            for j, lam in enumerate(lams)
        ),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    _name(figure, results, f"costs on test episodes, b = {b:g}", _how(results, _after(results)))
    return figure


@styled
def _rules(results: dict[str, Any]) -> Figure | None:
    """The reward of each guarded method under each certificate of the guard."""
    grid = results["grid"]
    methods = [method for method in grid["methods"] if method_of(method).guarded]
    if not methods or len(grid["rules"]) < 2:
        return None
    figure, axes = new_figure(3.2 * len(methods), 3.2, columns=len(methods))
    looks = dict(zip(grid["rules"], ((RED, "s"), (PURPLE, "^"), (SKY, "v"), (BLUE, "o")), strict=False))
    for axis, method in zip(axes[0], methods, strict=True):
        for rule, (color, marker) in looks.items():
            found = [
                (lam, _values(results, "reward", method, lam, grid["bs"][0], grid["modes"][0], rule))
                for lam in grid["lams"]
            ]
            points = [(lam, values) for lam, values in found if values]
            if points:
                lams = [lam for lam, _ in points]
                axis.fill_between(
                    lams,
                    [min(v) for _, v in points],
                    [max(v) for _, v in points],
                    color=color,
                    alpha=0.2,
                    linewidth=0,
                )
                axis.plot(
                    lams, [np.mean(v) for _, v in points], f"{marker}-", color=color, label=rule, markersize=4
                )
        axis.set_title(method_of(method).title, loc="left")
        axis.set_xlabel("lam")
    axes[0, 0].set_ylabel("mean reward of an episode")
    handles = {line.get_label(): line for axis in axes[0] for line in axis.lines}
    figure.legend(handles=handles.values(), loc="outside lower center", ncols=len(handles), fontsize=8)
    mode = grid["modes"][0]
    _name(
        figure,
        results,
        f"the certificates of the guard, b = {grid['bs'][0]:g}",
        _how(results, mode, "each certificate"),
    )
    return figure


def _family(results: dict[str, Any], method: str) -> list[str]:
    """The certificates with which a method has scores in the figures' mode, the main one last; `""` if there is one."""
    rows = [
        row["rule"]
        for row in results["scores"]
        if (row["mode"], row["method"]) == (_after(results), method) and row["rule"] is not None
    ]
    found = [rule for rule in dict.fromkeys(rows) if rule != _main_rule(results)]
    return [*found, _main_rule(results)] if found and method_of(method).sees_memory else [""]


def _draw_seeds(
    axis: Any, x: Any, values: Any, method: str, marker: str = "", rule: str = "", line: str = "-"
) -> None:
    """The mean of values [points, seeds] and the band of their range; a `rule` is named beside the method."""
    named, color = method_of(method), COLORS[method]
    label = f"{named.title}, {rule}" if rule else named.title
    axis.fill_between(
        x, [min(each) for each in values], [max(each) for each in values], color=color, alpha=0.2, linewidth=0
    )
    line = f"{marker}{'--' if named.plays_prior else line}"
    axis.plot(x, [np.mean(each) for each in values], line, color=color, label=label, markersize=4)


def _values(
    results: dict[str, Any],
    field: str,
    method: str,
    lam: float,
    b: float,
    mode: str | None = None,
    rule: str | None = None,
) -> list[float]:
    """A score of each seed, after exploration unless a mode is named; guarded under `rule`, or the run's main one."""
    rules = (rule,) if rule is not None else (None, _main_rule(results))
    wanted = (mode or _after(results), method, lam, b)
    return [
        row[field]
        for row in results["scores"]
        if (row["mode"], row["method"], row["lam"], row["b"]) == wanted
        and row["rule"] in rules
        and row[field] is not None
    ]


def _after(results: dict[str, Any]) -> str:
    """The mode of the paper's figures: after exploration, if the run has it."""
    modes: list[str] = results["grid"]["modes"]
    return "online" if "online" in modes else modes[0]


def _main_rule(results: dict[str, Any]) -> str:
    rules: list[str] = results["grid"]["trained_rules"]
    return rules[-1]


def _how(results: dict[str, Any], mode: str, rule: str | None = None) -> str:
    """How the learners of a figure came to be, in words."""
    training = results["training"]
    length = (
        f"{training['explored']} episodes explored" if mode == "online" else f"{training['passes']} passes"
    )
    named = rule or f"certificate {_main_rule(results)}"
    seeds = len(results["grid"]["seeds"])
    return f"learned {mode} ({length}), recipe {training['recipe']}, guard with {named}, {seeds} seeds"


def _name(figure: Figure, results: dict[str, Any], what: str, how: str) -> None:
    """The title of a figure of a run: system and what is shown; below it data, and how it came to be."""
    figure.suptitle(f"{results['title']}: {what}\n{results['data']['origin']}, {how}", x=0.01, ha="left")
