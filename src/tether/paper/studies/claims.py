"""Every claim of the paper's evaluation, judged by results: reproduced, differs, or not reproducible, and why.

A claim is a sentence of the paper's evaluation, the reading of one of its figures, or a number that it prints. Printed
numbers are not in the project: they come from the `paper` part of results that were made with `--paper`. A claim for
which the results hold nothing is left out, so that no row is without evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tether.core.files import complete_file
from tether.learn.methods import METHODS
from tether.paper.studies.findings import (
    AFTER,
    Finding,
    Judge,
    Results,
    all_fall,
    authors_networks,
    average_kept,
    crl_above_rl,
    crl_rises,
    ends,
    explained,
    exploring,
    falls,
    freer_is_lower,
    hostile_kept,
    lam_frees,
    never,
    ordered,
    ours_beside,
    percents,
    printed_number,
    prior_highest,
    prior_regret,
    random_range,
    rl_cost,
    rl_ends_lowest,
    scores_of,
    tighter_is_faster,
    trained_aware,
    within_bound,
)

SOURCES = {"authors": "authors' data", "embedded": "embedded data"}
RELEASED = "released evaluation"
MARKS = ("<!-- claims: made by `tether report DIR --claims FILE` -->", "<!-- end of claims -->")
"""Between these lines of a document the table is written."""


@dataclass(frozen=True)
class Claim:
    """One claim, and how results are asked about it."""

    system: str
    where: str
    """Figure or text of the paper."""
    claim: str
    judge: Judge
    paper: Callable[[Results], Any] | str = "yes"
    """What the paper has: its number, from the part `paper` of results, or a word."""
    differs: str = ""
    """Why it would not hold; the finding's own reason follows."""
    missing: str = ""
    """What the paper leaves open, if it cannot be reproduced for that reason."""
    shown_by: str = ""
    """Name of the `evidence` of another study that shows why; it is told if the claim is not reproduced."""


def claims_table(studies: Sequence[Results], evidence: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """A row for each claim that the results say something about.

    Args:
        studies: Contents of `results.json`; of two of the same system and data the first counts.
        evidence: What other studies found about differences and explanations (see `find_results`).

    Returns:
        For each claim `system`, `where`, `claim`, `paper`, `authors` and `embedded` (text or None), `verdict`
        (`reproduced`, `differs` or `not reproducible`) and `why`.
    """
    here: dict[tuple[str, str], Results] = {}
    for study in studies:
        here.setdefault((study["system"], study["data"]["source"]), study)
    printed = next((study["paper"] for study in studies if study["paper"]), None)
    by_name = {each["on"]: each for each in evidence}
    rows = []
    for claim in (*_carbon_regrets(), *_carbon_costs(), *_released(), *_inference()):
        known: dict[str, Finding] = {}
        of_carbon = claim.system == "carbon" and (callable(claim.paper) or claim.where == RELEASED)
        for source in SOURCES:
            results = here.get((claim.system, source))
            asked = None if results is None else results | {"paper": printed, "evidence": by_name}
            finding = None if asked is None else claim.judge(asked)
            if finding is not None:
                known[source] = finding
        # What was printed of the authors' windows is judged on them alone.
        if not known or (callable(claim.paper) and printed is None) or (of_carbon and "authors" not in known):
            continue
        paper = claim.paper(printed) if callable(claim.paper) and printed is not None else claim.paper
        verdict, why = _verdict(claim, {"authors": known["authors"]} if of_carbon else known)
        if verdict != "reproduced" and claim.shown_by in by_name:
            why = f"{why.removesuffix('.')}. {by_name[claim.shown_by]['text']}"
        ours = {source: known[source].ours if source in known else None for source in SOURCES}
        rows.append(
            {
                **{"system": claim.system, "where": claim.where, "claim": claim.claim, "paper": str(paper)},
                **ours,
                **{"verdict": verdict, "why": why},
            }
        )
    return rows


def _verdict(claim: Claim, known: dict[str, Finding]) -> tuple[str, str]:
    """The verdict over all data, and the reason for it."""
    if claim.missing:
        return "not reproducible", claim.missing
    failed = {source: finding for source, finding in known.items() if not finding.holds}
    if not failed:
        return "reproduced", ""
    reasons = "; ".join(dict.fromkeys(finding.why for finding in failed.values() if finding.why))
    text = " ".join(part for part in (claim.differs, reasons) if part)
    if len(failed) < len(known):
        text = f"only on {SOURCES[next(iter(failed))]}. {text}"
    return "differs", text.strip()


def claims_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table as a document's text."""
    lines = [
        "| where | claim | paper | here, authors' data | here, embedded data | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        verdict = f"**{row['verdict']}**" + (f": {row['why']}" if row["why"] else "")
        cells = (
            row["where"],
            row["claim"],
            row["paper"],
            row["authors"] or "-",
            row["embedded"] or "-",
            verdict,
        )
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines)


def write_claims(document: Path, studies: Sequence[Results], evidence: Sequence[dict[str, Any]] = ()) -> int:
    """Write the table between the `MARKS` of a document; returns its number of rows."""
    text = document.read_text(encoding="utf-8")
    before, found, rest = text.partition(MARKS[0])
    _, closed, after = rest.partition(MARKS[1])
    if not found or not closed:
        raise ValueError(
            f"{document} has no place for the table: expected the lines {MARKS[0]!r} and {MARKS[1]!r}"
        )
    rows = claims_table(studies, evidence)
    made = "; ".join(
        dict.fromkeys(f"`{study['provenance']['command']}` (seeds {_seeds(study)})" for study in studies)
    )
    counts = ", ".join(
        f"{sum(row['verdict'] == verdict for row in rows)} {verdict}"
        for verdict in ("reproduced", "differs", "not reproducible")
    )
    table = (
        f"{MARKS[0]}\n\nFrom {made}: {len(rows)} claims, {counts}.\n\n{claims_markdown(rows)}\n\n{MARKS[1]}"
    )
    with complete_file(document) as draft:
        draft.write_text(before + table + after, encoding="utf-8")
    return len(rows)


def _seeds(study: Results) -> str:
    seeds = study["grid"]["seeds"]
    return f"{seeds[0]} to {seeds[-1]}"


_NETWORK = "the RL network and the windows behind the printed number"
_CRL_RATE = "CRL's B and how it is enforced are not in the paper; ours takes B = H b."
_RANDOM = (
    "the paper does not say how its random network is drawn, and ours starts at the prior's mean action;"
)
_OPEN = (
    "C_d, C_i, Q_c, the battery and the scale of the data. Ours were *calibrated to this number*, so that it is no "
    "comparison"
)
_MORE = "our networks earn a little more and use more of what the same guard allows."
_NO_FLOOR = (
    "the cost has no floor (eps = 0), so that under the Lipschitz rules lam multiplies next to nothing:"
)


def _claims_of(system: str) -> Callable[..., Claim]:
    def claim(where: str, words: str, judge: Judge, paper: Any = "yes", **reasons: str) -> Claim:
        return Claim(system, where, words, judge, paper, **reasons)

    return claim


def _text(key: str) -> Callable[[Results], Any]:
    """A number that the paper prints."""
    return lambda printed: printed["paper_text"][key]


def _rate(lam: float) -> Callable[[Results], float]:
    """The printed violation rate of CRL."""
    return lambda printed: float(printed["paper_text"]["crl_violation_rate"][f"lambda_{lam:g}"])


def _rate_text(printed: Results, lam: float) -> str:
    return f"{_rate(lam)(printed):.1%}"


def _of_prior(results: Results, field: str) -> list[float]:
    return [results["prior"][field]]


def _carbon_regrets() -> list[Claim]:
    """Figures 1(a) and 1(b)."""
    claim, online = _claims_of("carbon"), ("prior", "rl", "crl", "acrl")
    return [
        claim("Fig. 1a", "the prior OPT-QoS has the highest regret", exploring(prior_highest, online)),
        claim("Fig. 1a", "RL's regret falls and ends lowest", exploring(rl_ends_lowest, online)),
        claim("Fig. 1a", "the regret of all learners falls", exploring(all_fall, online[1:])),
        claim("Fig. 1a", f"more freedom gives ACRL less regret after {AFTER} episodes", freer_is_lower),
        claim("Fig. 1a", "ACRL with less freedom converges faster", tighter_is_faster),
        claim(
            "Fig. 1a, text",
            "... because its Eluder dimension d_Q is smaller",
            explained("eluder", "embedded"),
            differs="in the exact algorithm, where d_Q can be computed, it is not the reason.",
        ),
        claim("Fig. 1b", "CRL's regret is above RL's", ordered("regret", "rl", "crl", "above")),
        claim("Fig. 1b", "ACRL's regret is above RL's", ordered("regret", "rl", "acrl", "above")),
        claim("Fig. 1b", "ACRL's regret falls with lam", falls("regret", "acrl", "lam")),
        claim("Fig. 1b", "ACRL's regret falls with b", falls("regret", "acrl", "b")),
        claim("Fig. 1b", "RL+ACD's regret falls with lam", falls("regret", "rl+acd", "lam")),
        claim("Fig. 1b", "RL+ACD's regret falls with b", falls("regret", "rl+acd", "b")),
        claim("Fig. 1b", "Random+ACD's regret falls with lam", falls("regret", "random+acd", "lam")),
        claim("Fig. 1b", "Random+ACD's regret falls with b", falls("regret", "random+acd", "b")),
        claim("Fig. 1b, text", "... as Theorem 5.1 has it", explained("theorem 5.1", "embedded")),
        claim("Fig. 1b", "ACRL always improves on RL+ACD", ordered("regret", "acrl", "rl+acd", "below")),
        claim("Fig. 1b, text", "... because it learns behind the guard", trained_aware),
        claim(
            "Fig. 1b, text",
            "regret of Random+ACD, over lam and b",
            random_range,
            lambda printed: "{} to {}".format(*_text("random_acd_regret_range")(printed)),
            differs=_RANDOM,
            shown_by="random network",
        ),
    ]


def _carbon_costs() -> list[Claim]:
    """Figures 1(c) and 2, and the numbers in their text."""
    claim, guarded = _claims_of("carbon"), [method.name for method in METHODS if method.guarded]
    rates = [
        claim(
            "Fig. 2, text",
            f"CRL's violation rate, lam = {lam:g}, b = 2",
            printed_number(
                partial(scores_of, field="violation_rate", method="crl", lam=lam, b=2.0), _rate(lam), percents
            ),
            partial(_rate_text, lam=lam),
            differs=_CRL_RATE,
            shown_by=f"crl budget, lam = {lam:g}",
        )
        for lam in (2.0, 6.0)
    ]
    prior = [
        claim(
            "Fig. 2, caption",
            f"{words} cost of OPT-QoS",
            printed_number(partial(_of_prior, field=field), _text(key)),
            _text(key),
            differs="only the windows matter:",
        )
        for words, field, key in (
            ("mean", "cost", "opt_qos_mean_cost"),
            ("worst", "worst_cost", "opt_qos_worst_cost"),
        )
    ]
    rl = [
        claim(
            f"Fig. 2{place}, text",
            f"{words} cost of RL",
            rl_cost(field, key),
            _text(key),
            missing=_NETWORK,
            shown_by=shown_by,
        )
        for place, words, field, key, shown_by in (
            ("b", "mean", "cost", "rl_mean_cost", "rl cost"),
            ("a", "worst", "worst_cost", "rl_worst_cost", "rl worst cost"),
        )
    ]
    return [
        claim("Fig. 1c", "RL violates more as lam falls", falls("violation_rate", "rl", "lam")),
        claim("Fig. 1c", "RL violates more as b falls", falls("violation_rate", "rl", "b")),
        claim("Fig. 1c", "CRL violates less than RL", ordered("violation_rate", "crl", "rl", "less")),
        claim(
            "Fig. 1c",
            "CRL's violation rate is not zero",
            ordered("violation_rate", "prior", "crl", "above 0"),
        ),
        claim("Fig. 1c", "ACD methods never violate on test", never("scores"), "0"),
        claim("Sec. 4", "ACD methods never violate while learning", never("exploration"), "0"),
        *rates,
        claim(
            "Fig. 2, text",
            "CRL violates more at lam = 6 than at lam = 2",
            crl_rises,
            differs="with B = H b it hardly changes.",
            shown_by="crl budget, lam = 6",
        ),
        *prior,
        *rl,
        claim("Fig. 2a, text", "ACD never violates, whatever network is behind it", hostile_kept, "0"),
        claim("Fig. 2a", "ACD methods keep the worst-case bound", within_bound(guarded, True, "worst_cost")),
        claim("Fig. 2a", "CRL breaks the worst-case bound", within_bound(("crl",), False, "worst_cost")),
        claim("Fig. 2b", "CRL keeps its bound on the average cost", average_kept),
        claim("Fig. 2b", "ACD methods keep the bound on the average", within_bound(guarded, True, "cost")),
    ]


def _released() -> list[Claim]:
    """The numbers of the authors' released evaluation, b = 2."""
    claim, where = _claims_of("carbon"), RELEASED
    return [
        claim(where, "ACRL at b = 2, with the authors' networks", authors_networks("acrl"), "18 numbers"),
        claim(where, "RL+ACD at b = 2, with the authors' network", authors_networks("rl_acd"), "18 numbers"),
        *(
            claim(
                where,
                f"{name}'s {words} at b = 2, trained by us",
                ours_beside(method, f"{key}_{column}", field),
                "6 numbers",
                differs=differs,
                shown_by="acrl cost" if method == "acrl" else "",
            )
            for method, key, name, differs in (
                ("acrl", "acrl", "ACRL", _MORE),
                ("rl+acd", "rl_acd", "RL+ACD", "another RL network behind the same guard."),
            )
            for column, field, words in (
                ("mean_reward", "reward", "mean rewards"),
                ("mean_cost", "cost", "mean costs"),
                ("worst_cost", "worst_cost", "worst costs"),
            )
        ),
    ]


def _inference() -> list[Claim]:
    """Appendix B and its figure."""
    claim, where, learners = _claims_of("inference"), "App. B, Fig. 4", ("rl", "crl", "acrl")
    return [
        claim(
            where,
            "regret of Carbon-B",
            prior_regret,
            _text("carbon_b_regret_inference"),
            missing=_OPEN,
            shown_by="inference",
        ),
        claim(where, "Carbon-B has the highest regret", exploring(prior_highest, ("prior", *learners))),
        claim(where, "the regret of all learners falls", exploring(all_fall, learners)),
        claim(where, "RL's regret falls and ends lowest", exploring(rl_ends_lowest, learners)),
        claim(where, "CRL's regret is above RL's", crl_above_rl, shown_by="inference crl"),
        claim(where, "ACRL's regret is above RL's", ordered("regret", "rl", "acrl", "above")),
        claim(
            where,
            "CRL's regret is below ACRL's at the same lam",
            ordered("regret", "crl", "acrl", "below", lambda results: [ends(results)[0]]),
            shown_by="inference order",
        ),
        claim(
            where,
            "ACRL's regret falls from lam = 5 to 7",
            lam_frees("acrl"),
            differs=_NO_FLOOR,
            shown_by="inference lam",
        ),
        claim("App. B", "ACRL never violates on test", never("scores"), "0"),
        claim("App. B", "ACRL never violates while learning", never("exploration"), "0"),
    ]
