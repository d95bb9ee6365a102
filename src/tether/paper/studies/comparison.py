"""The paper's printed numbers beside ours, on the authors' data and on embedded data, and why they differ.

The paper's numbers are not in the project: they come from the `paper` part of results that were made with `--paper`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Results = dict[str, Any]
Entry = dict[str, Any]
"""`value`, a number or two for a range, and its `text`."""

_PRIOR = (
    "The prior learns nothing, so only the data differ. The windows that the authors released are not quite those of "
    "the printed numbers; the embedded data are generated to the same statistics."
)
_RL = (
    "RL's reward hardly depends on this cost, so that networks of nearly the same reward cost much more or less: see "
    "the spread over the seeds. The authors' own RL network is below; what is printed is not of it, and other months "
    "do not explain it (`tether reproduce published`)."
)
_CRL = (
    "CRL only bounds the average cost; the table above says whether it keeps it. How many episodes lie above their "
    "own bound follows its B, which the paper leaves open; ours is H b (`tether reproduce published` trains others)."
)
_RANDOM = (
    "Distance of an untrained network behind the guard from our RL policy. Ours starts at the prior's mean action "
    "(the authors' ReLU output starts near 0), and our RL policy is another reference."
)
_LEARNED = (
    "Our network, optimiser and guard memory, trained from scratch: the same method, not the same weights. The "
    "authors' weights behind our guard give the authors' numbers (rows below)."
)
_CARBON_B = (
    "No comparison: the paper leaves open the battery, the prior's slack and two weights of the reward, C_d and C_i. "
    "These two were chosen so that this regret is about the printed one (tether.envs.Inference)."
)


def compare(studies: Sequence[Results]) -> list[dict[str, Any]]:
    """Rows of the table paper | here on the authors' data | here on embedded data.

    Args:
        studies: Contents of `results.json`, of any systems and data. Of two of the same kind the first counts.

    Returns:
        For each quantity `system`, `quantity`, `paper`, `authors`, `embedded` (an `Entry` or None) and `why`.
    """
    rows = []
    for system in dict.fromkeys(study["system"] for study in studies):
        mine = [study for study in studies if study["system"] == system]
        here: dict[str, Results] = {}
        for study in mine:
            here.setdefault(study["data"]["source"], study)
        printed = next((study["paper"] for study in mine if study["paper"]), None)
        quantities = {"carbon": _carbon(printed, mine), "inference": _inference(printed)}
        for quantity, paper, ours, why in quantities.get(system, ()):
            made = {
                source: ours(here[source]) if source in here else None for source in ("authors", "embedded")
            }
            if any(made.values()):
                rows.append({"system": system, "quantity": quantity, "paper": paper, **made, "why": why})
    return rows + _networks(studies)


def averages(results: Results) -> list[dict[str, Any]]:
    """CRL's expected-cost constraint E[J_H] <= (1 + lam) E[J_H(prior)] + H b, on the test episodes.

    Returns:
        For each mode and setting `mode`, `lam`, `b`, the mean `costs` of the seeds, the `bound`, for how many seeds it
        is kept (`kept`), and the `verdict`: "met" if their mean keeps it, else "missed".
    """
    rows = []
    for mode in results["grid"]["modes"]:
        for bound in results["bounds"]:
            wanted = (mode, "crl", bound["lam"], bound["b"])
            costs = [
                row["cost"]
                for row in results["scores"]
                if (row["mode"], row["method"], row["lam"], row["b"]) == wanted
            ]
            if costs:
                met = float(np.mean(costs)) <= bound["cost"]
                rows.append(
                    {
                        "mode": mode,
                        "lam": bound["lam"],
                        "b": bound["b"],
                        "costs": costs,
                        "bound": bound["cost"],
                        "kept": sum(cost <= bound["cost"] for cost in costs),
                        "verdict": "met" if met else "missed",
                    }
                )
    return rows


_Row = tuple[str, Entry | None, Callable[[Results], Entry | None], str]


def _carbon(printed: Results | None, studies: Sequence[Results]) -> list[_Row]:
    text = printed["paper_text"] if printed else {}
    rows: list[_Row] = [
        (
            "OPT-QoS (prior), mean cost",
            _one(text.get("opt_qos_mean_cost")),
            lambda r: _one(r["prior"]["cost"]),
            _PRIOR,
        ),
        (
            "OPT-QoS (prior), worst cost",
            _one(text.get("opt_qos_worst_cost")),
            lambda r: _one(r["prior"]["worst_cost"]),
            _PRIOR,
        ),
        ("RL, mean cost", _one(text.get("rl_mean_cost")), lambda r: _seeds(r, "cost", "rl"), _RL),
        ("RL, worst cost", _one(text.get("rl_worst_cost")), lambda r: _seeds(r, "worst_cost", "rl"), _RL),
    ]
    for lam in (2.0, 6.0):
        known = text.get("crl_violation_rate", {}).get(f"lambda_{lam:g}")
        rows.append(
            (
                f"CRL, violation rate, lam = {lam:g}, b = 2",
                _one(known, _percent),
                lambda r, lam=lam: _seeds(r, "violation_rate", "crl", lam=lam, b=2.0, form=_percent),  # type: ignore[misc]
                _CRL,
            )
        )
    known = text.get("random_acd_regret_range")
    rows.append(
        (
            "Random+ACD, regret, least to largest over lam and b",
            None if known is None else {"text": f"{known[0]:.2f} to {known[1]:.2f}", "value": known},
            _random_range,
            _RANDOM,
        )
    )
    lams = (
        printed["lambda"] if printed else sorted({lam for study in studies for lam in study["grid"]["lams"]})
    )
    for method, key, name in (("acrl", "acrl", "ACRL"), ("rl+acd", "rl_acd", "RL+ACD")):
        for field, words in (("reward", "mean reward"), ("cost", "mean cost"), ("worst_cost", "worst cost")):
            for i, lam in enumerate(lams):
                column = (
                    printed[f"{key}_{'' if field == 'worst_cost' else 'mean_'}{field}"] if printed else None
                )
                rows.append(
                    (
                        f"{name}, {words}, lam = {lam:g}, b = 2",
                        None if column is None else _one(column[i]),
                        lambda r, method=method, field=field, lam=lam: _seeds(  # type: ignore[misc]
                            r, field, method, lam=float(lam), b=2.0
                        ),
                        _LEARNED,
                    )
                )
    return rows


def _inference(printed: Results | None) -> list[_Row]:
    known = printed["paper_text"].get("carbon_b_regret_inference") if printed else None
    return [("Carbon-B (prior), regret", _one(known), lambda r: _seeds(r, "regret", "prior"), _CARBON_B)]


def _rl_network(studies: Sequence[Results]) -> list[dict[str, Any]]:
    """The authors' RL network, which has no guard, beside what the paper prints of RL."""
    study = next((study for study in studies if study.get("rl_network")), None)
    if study is None:
        return []
    found = {row["windows"]: row for row in study["rl_network"]}
    parts = ", ".join(
        f"on the {name} of the months {found[name]['cost']:.0f}" for name in ("first half", "second half")
    )
    why = (
        f"The authors' own network, without a guard, on the windows that they released. It costs {parts}. So what the "
        "paper prints is not of this network on these windows; which others it is of, the paper does not say."
    )
    return [
        {
            "system": "carbon",
            "quantity": f"Authors' RL network, {words}",
            "paper": _one(study["paper"]["paper_text"][f"rl_{key}"]),
            "authors": _one(found["all"][field]),
            "embedded": None,
            "why": why,
        }
        for field, key, words in (
            ("cost", "mean_cost", "mean cost"),
            ("worst_cost", "worst_cost", "worst cost"),
        )
    ]


def _networks(studies: Sequence[Results]) -> list[dict[str, Any]]:
    """The authors' networks behind our guard, summed up."""
    rows = _rl_network(studies)
    published = next((study["published"] for study in studies if study.get("published")), None)
    if not published:
        return rows
    words = {"mean_reward": "mean reward", "mean_cost": "mean cost", "worst_cost": "worst cost"}
    for row in published:
        gap = abs(row["here"] - row["published"])
        rows.append(
            {
                "system": "carbon",
                "quantity": f"Authors' {'ACRL' if row['method'] == 'acrl' else 'RL+ACD'} network, "
                f"{words[row['quantity']]}, lam = {row['lam']:g}, b = 2",
                "paper": _one(row["published"]),
                "authors": _one(row["here"]),
                "embedded": None,
                "why": f"The authors' weights behind our guard, rule released: the same up to round-off ({gap:.1e}).",
            }
        )
    return rows


def _seeds(
    results: Results, field: str, method: str, form: Callable[[float], str] | None = None, **wanted: float
) -> Entry | None:
    """Mean and spread over the seeds of one method's test score; guarded ones with the authors' rule if it is there."""
    rules = [rule for rule in ("released", "tight", "paper", None) if _rows(results, method, rule, wanted)]
    if not rules:
        return None
    rows = _rows(results, method, rules[0], wanted)
    setting = (rows[0]["lam"], rows[0]["b"])
    values = [row[field] for row in rows if (row["lam"], row["b"]) == setting and row[field] is not None]
    if not values:
        return None
    form = form or _number
    spread = f" ± {form(float(np.std(values)))}" if len(values) > 1 else ""
    how = f" ({rows[0]['mode']}{f', rule {rules[0]}' if rules[0] else ''})"
    return {"text": f"{form(float(np.mean(values)))}{spread}{how}", "value": float(np.mean(values))}


def _rows(results: Results, method: str, rule: str | None, wanted: dict[str, float]) -> list[dict[str, Any]]:
    """Scores of a method, of the first mode of the run that has it."""
    for mode in results["grid"]["modes"]:
        rows = [
            row
            for row in results["scores"]
            if (row["mode"], row["method"], row["rule"]) == (mode, method, rule)
            and all(row[key] == value for key, value in wanted.items())
        ]
        if rows:
            return rows
    return []


def _random_range(results: Results) -> Entry | None:
    means = [
        entry["value"]
        for bound in results["bounds"]
        if (entry := _seeds(results, "regret", "random+acd", lam=bound["lam"], b=bound["b"])) is not None
    ]
    if not means:
        return None
    return {"text": f"{min(means):.2f} to {max(means):.2f}", "value": [min(means), max(means)]}


def _one(value: float | None, form: Callable[[float], str] | None = None) -> Entry | None:
    return None if value is None else {"text": (form or _number)(value), "value": value}


def _number(value: float) -> str:
    return f"{value:.2f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"
