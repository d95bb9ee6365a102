from __future__ import annotations

import json
import re

import numpy as np
from rich.table import Table

from made_results import made_results
from tether.paper.figures import paper_figures
from tether.paper.report import render, section_of, write_report
from tether.paper.results import write_results
from tether.paper.studies.comparison import averages, compare

PRINTED = {
    "lambda": [0, 2],
    "b": 2,
    **{
        f"{method}_{field}": [1.0, 2.0]
        for method in ("acrl", "rl_acd")
        for field in ("mean_reward", "mean_cost", "worst_cost")
    },
    "paper_text": {
        "opt_qos_mean_cost": 1.5,
        "crl_violation_rate": {"lambda_2": 0.25, "lambda_6": 0.5},
        "random_acd_regret_range": [1.0, 2.0],
        "carbon_b_regret_inference": 3.0,
    },
}


def test_the_page_needs_nothing_but_itself_and_holds_the_results():
    results = made_results()
    results["provenance"]["command"] = "tether </script><b>"
    page = render([results])
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//|@import|url\(", page)
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(held.group(1))["results"] == [results]


def test_a_report_has_a_page_and_every_figure_twice(tmp_path):
    write_results(tmp_path / "carbon" / "results.json", made_results())
    assert write_report(tmp_path) == tmp_path / "report.html"
    names = ["costs", "guard", "regret-episodes", "regret-lam", "rules", "violations-lam"]
    files = sorted((tmp_path / "carbon" / "figures").iterdir())
    assert [file.name for file in files] == [
        f"{name}{suffix}" for name in names for suffix in (".png", ".svg")
    ]


def test_each_figure_says_what_it_is_of():
    results = made_results("inference")
    for name, figure in paper_figures(results).items():
        title = figure.get_suptitle()
        assert "embedded data" in title, name
        if name == "guard":  # nothing was learned for it
            continue
        mode = "offline" if name == "rules" else "online"  # the paper's figures are of what was explored
        assert f"learned {mode}" in title, name
        assert "recipe tether" in title, name
        assert ("each certificate" if name == "rules" else "certificate tight") in title, name


def test_figures_without_numbers_are_left_out():
    results = made_results("inference")
    results["exploration"] = []
    results["grid"] |= {"methods": ["prior", "acrl"], "rules": ["tight"]}
    assert set(paper_figures(results)) == {"guard", "regret-lam", "violations-lam", "costs"}


def test_the_comparison_has_a_column_for_the_paper_and_for_each_data():
    authors, embedded = made_results(source="authors", paper=PRINTED), made_results()
    rows = {
        row["quantity"]: row for row in compare([embedded, authors, made_results("inference", paper=PRINTED)])
    }
    crl = rows["CRL, violation rate, lam = 2, b = 2"]
    assert crl["paper"] == {"text": "25.0%", "value": 0.25}
    for column, results in (("authors", authors), ("embedded", embedded)):
        values = [
            row["violation_rate"]
            for row in results["scores"]
            if (row["mode"], row["method"], row["lam"], row["b"]) == ("offline", "crl", 2.0, 2.0)
        ]
        assert crl[column]["value"] == np.mean(values)
    assert rows["ACRL, mean reward, lam = 2, b = 2"]["embedded"]["text"].endswith("(offline, rule released)")
    assert rows["Carbon-B (prior), regret"]["paper"]["value"] == 3.0
    assert rows["Carbon-B (prior), regret"]["authors"] is None
    assert all(row["why"] for row in rows.values())


def test_the_average_of_crl_is_met_or_missed_against_its_bound():
    results = made_results()
    rows = averages(results)
    assert len(rows) == 2 * 6  # modes, settings
    assert {row["verdict"] for row in rows} == {"met"}
    for row in results["scores"]:
        if (row["mode"], row["method"], row["lam"], row["b"]) == ("online", "crl", 2.0, 6.0):
            row["cost"] = 1000.0 * (row["seed"] + 1)
    missed = [row for row in averages(results) if row["verdict"] == "missed"]
    assert [(row["mode"], row["lam"], row["b"], row["kept"]) for row in missed] == [("online", 2.0, 6.0, 0)]
    assert missed[0]["costs"] == [1000.0, 2000.0]
    assert '"verdict": "missed"' in render([results])


def test_without_the_paper_its_column_is_empty():
    rows = compare([made_results()])
    assert len(rows) > 10
    assert all(row["paper"] is None and row["authors"] is None for row in rows)


def test_a_table_of_the_terminal_becomes_a_section_of_the_page():
    table = Table("lam", "[b]bound", title="Theory", caption="both")
    table.add_row("0", "[green]12.5")
    expected = {"title": "Theory", "text": "both", "columns": ["lam", "bound"], "rows": [["0", "12.5"]]}
    assert section_of(table) == expected
