"""What training gave, as tables for people: over all settings, with the spread over the seeds."""

from __future__ import annotations

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.learn.trial import EARLY, Explored, Result


def results_table(
    system: str, results: list[Result], published: dict[tuple[str, float, float], float]
) -> Table:
    """Methods by settings, mean and spread over the seeds.

    Args:
        system: Its name.
        results: What was trained.
        published: The authors' mean rewards by (method, lam, b), shown beside ours.
    """
    table = Table(title=f"{system}: test episodes, mean ± standard deviation over the seeds", box=SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    table.caption = (
        "viol.: share of the test episodes with a violation in any round; training: of those in training"
    )
    table.add_column("method", no_wrap=True)
    names = [
        "lam",
        "b",
        "reward",
        *(["published"] if published else []),
        "mean cost",
        "viol.",
        "training",
    ]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for training, scores in results:
        seen = training.history.violations
        for lam, b in training.settings:
            mine = [score for score in scores if (score.lam, score.b) == (lam, b)]
            rewards, costs = [score.reward for score in mine], [score.cost for score in mine]
            rate = float(np.mean([score.violation_rate for score in mine]))
            # Offline `rl+acd` is trained in the data, unguarded; it has played nowhere yet.
            borrowed = training.method.learned_by("offline") != training.method
            played = len(seen) and (training.exploration is not None or not borrowed)
            during = f"{seen[:, training.settings.index((lam, b))].mean():.1%}" if played else "-"
            known = published.get((training.method.name, lam, b))
            table.add_row(
                training.method.name,
                f"{lam:g}",
                f"{b:g}",
                f"{np.mean(rewards):.2f}±{np.std(rewards):.2f}",
                *(["-" if known is None else f"{known:.2f}"] if published else []),
                f"{np.mean(costs):.1f}",
                f"[{'red' if rate > 0.0 else 'green'}]{rate:.1%}",
                during,
            )
        table.add_section()
    return table


def exploration_table(system: str, explored: list[Explored]) -> Table:
    """Regret and violations while exploring, mean and spread over the seeds."""
    table = Table(
        title=f"{system}: while exploring, mean ± standard deviation over the seeds", box=SIMPLE_HEAD
    )
    table.padding = (0, 1, 0, 0)
    table.caption = "regret: reward of rl after all episodes, on the same episodes, minus the reward earned"
    table.add_column("method", no_wrap=True)
    for name in ("lam", "b", "regret, first 50", f"first {EARLY}", f"last {EARLY}", "viol.", "margin"):
        table.add_column(name, justify="right", no_wrap=True)
    for i, each in enumerate(explored):
        if i and explored[i - 1].method != each.method:
            table.add_section()
        rate = float(np.mean(each.violation_rate))
        parts = (each.regret_first, each.regret_early, each.regret_late)
        table.add_row(
            each.method,
            f"{each.lam:g}",
            f"{each.b:g}",
            *("-" if part is None else f"{np.mean(part):.2f}±{np.std(part):.2f}" for part in parts),
            f"[{'red' if rate > 0.0 else 'green'}]{rate:.1%}",
            f"{each.worst_margin:.1f}",
        )
    return table
