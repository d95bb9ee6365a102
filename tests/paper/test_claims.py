from __future__ import annotations

import pytest

from made_results import made_results
from tether.paper.studies.claims import MARKS, claims_markdown, claims_table, write_claims

PRINTED = {
    "lambda": [0, 2, 6],
    "b": 2,
    "acrl_mean_reward": [1.0, 2.0, 3.0],
    "rl_acd_mean_reward": [1.0, 2.0, 3.0],
    "paper_text": {
        "opt_qos_mean_cost": 27.92,
        "opt_qos_worst_cost": 50.0,
        "rl_mean_cost": 2000.0,
        "rl_worst_cost": 5000.0,
        "crl_violation_rate": {"lambda_2": 0.25, "lambda_6": 0.5},
        "random_acd_regret_range": [1.0, 2.0],
        "carbon_b_regret_inference": 3.0,
    },
}


@pytest.fixture
def carbon():
    return made_results(source="authors", paper=PRINTED)


def judged(*studies):
    return {(row["system"], row["claim"]): row for row in claims_table(studies)}


def change(results, field, value, **wanted):
    """Set a score of all rows that are so."""
    for row in results["scores"]:
        if all(row[key] == its for key, its in wanted.items()):
            row[field] = value(row)


def test_every_row_has_evidence_and_a_verdict(carbon):
    rows = claims_table([carbon, made_results("inference", paper=PRINTED)])
    assert len(rows) >= 25
    for row in rows:
        assert row["authors"] or row["embedded"], row
        assert row["verdict"] in ("reproduced", "differs", "not reproducible")
        assert row["paper"]
        assert row["why"] or row["verdict"] != "not reproducible"


def test_a_printed_number_is_reproduced_within_two_per_cent(carbon):
    rows = judged(carbon)
    assert rows["carbon", "mean cost of OPT-QoS"]["verdict"] == "reproduced"  # 27.8 and 27.92
    worst = rows["carbon", "worst cost of OPT-QoS"]
    assert worst["verdict"] == "differs"  # 34.4 and 50
    assert "-31% off" in worst["why"]
    assert worst["paper"] == "50.0"
    assert rows["carbon", "mean cost of RL"]["verdict"] == "not reproducible"


def test_an_order_is_judged_in_every_setting(carbon):
    change(carbon, "regret", lambda row: 20.0 - row["lam"] - row["b"], method="acrl")
    change(carbon, "regret", lambda row: 21.0 - row["lam"] - row["b"], method="rl+acd")
    rows = judged(carbon)
    for claim in (
        "ACRL's regret falls with lam",
        "ACRL's regret falls with b",
        "ACRL always improves on RL+ACD",
    ):
        assert rows["carbon", claim]["verdict"] == "reproduced", claim
    assert rows["carbon", "ACRL always improves on RL+ACD"]["authors"].startswith("below in 6 of 6 settings")
    change(carbon, "regret", lambda row: 0.0, method="rl+acd", lam=2.0, b=6.0)
    row = judged(carbon)["carbon", "ACRL always improves on RL+ACD"]
    assert row["verdict"] == "differs"
    assert "(2, 6)" in row["why"]


def test_what_holds_on_one_data_only_says_so(carbon):
    embedded = made_results()
    for results in (carbon, embedded):
        change(results, "cost", lambda row: 1.0, method="crl")
    claim = ("carbon", "CRL keeps its bound on the average cost")
    assert judged(carbon, embedded)[claim]["verdict"] == "reproduced"
    change(embedded, "cost", lambda row: 1e6, method="crl", lam=2.0)
    row = judged(carbon, embedded)[claim]
    assert (row["verdict"], row["why"][:22]) == ("differs", "only on embedded data.")


def test_a_violation_of_a_guarded_method_is_never_reproduced(carbon):
    assert judged(carbon)["carbon", "ACD methods never violate on test"]["verdict"] == "reproduced"
    change(carbon, "violation_rate", lambda row: 0.5, method="acrl", seed=0)
    assert judged(carbon)["carbon", "ACD methods never violate on test"]["verdict"] == "differs"


def test_what_was_printed_of_the_authors_windows_is_judged_on_them_alone(carbon):
    change(carbon, "violation_rate", lambda row: 0.25, method="crl", lam=2.0, b=2.0)
    claim = ("carbon", "CRL's violation rate, lam = 2, b = 2")
    row = judged(carbon, made_results())[claim]
    assert row["verdict"] == "reproduced"
    assert row["embedded"]  # shown beside
    assert claim not in judged(made_results(paper=PRINTED))


def test_without_the_printed_numbers_only_readings_are_left():
    rows = judged(made_results())
    assert ("carbon", "mean cost of RL") not in rows
    assert ("carbon", "ACRL's regret falls with lam") in rows


def test_the_table_is_renewed_between_the_marks_of_a_document(carbon, tmp_path):
    document = tmp_path / "page.md"
    document.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    count = write_claims(document, [carbon])
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{MARKS[1]}\nafter\n")
    assert "old" not in text
    assert claims_markdown(claims_table([carbon])) in text
    assert f"{count} claims" in text
    document.write_text("nothing")
    with pytest.raises(ValueError, match="has no place for the table"):
        write_claims(document, [carbon])
