"""`tether reproduce`, as a user runs it, at the smallest scale at which everything happens."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from commands import exit_code
from tether.paper import evaluation as paper
from tether.paper import figures
from tether.paper.learners import recipe_of
from tether.paper.results import read_results

TINY = (
    *(
        "reproduce",
        "carbon",
        "--methods",
        "prior,rl,rl+acd",
        "--rules",
        "paper,tight",
        "--lams",
        "0,2",
        "--bs",
        "2",
    ),
    *("--seeds", "2", "--episodes", "90", "--passes", "3", "--modes", "offline"),
)


def test_a_run_that_is_killed_and_resumed_gives_the_same_bytes_as_one_that_was_not(
    tmp_path, monkeypatch, capsys
):
    real = paper.train

    def kill(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(figures, "paper_figures", lambda _results: {})  # test_report draws them
    out = tmp_path / "killed"
    monkeypatch.setattr(paper, "train", kill)
    assert exit_code(monkeypatch, *TINY, "--out", out) == 130
    assert "with --resume goes on" in capsys.readouterr().err
    assert [file.name for file in (out / "pieces").iterdir()] == ["guard.json"]

    monkeypatch.setattr(paper, "train", real)
    assert exit_code(monkeypatch, *TINY, "--out", out) == 2
    assert "add --resume to go on" in capsys.readouterr().err
    assert exit_code(monkeypatch, *TINY, "--seed", 1, "--resume", "--out", out) == 2
    assert "holds another run (data, seeds differ)" in capsys.readouterr().err

    guard = (out / "pieces" / "guard.json").stat().st_mtime_ns
    assert exit_code(monkeypatch, *TINY, "--resume", "--out", out) == 0
    shown = capsys.readouterr()
    assert (out / "pieces" / "guard.json").stat().st_mtime_ns == guard
    assert "guard                        found" in shown.err
    for word in ("rl+acd", "tight", "viol.", "report.html"):
        assert word in shown.out

    assert exit_code(monkeypatch, *TINY, "--out", tmp_path / "whole") == 0
    assert (out / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()
    assert sorted(file.name for file in out.iterdir() if not file.name.startswith(".")) == [
        *("pieces", "report.html", "results.json", "run.json"),
    ]

    results = read_results(out / "results.json")
    assert results["provenance"]["command"] == " ".join(("tether", *TINY))
    assert results["grid"]["seeds"] == [0, 1]
    guarded = [row for row in results["scores"] if row["method"] == "rl+acd"]
    assert len(guarded) == 2 * 2 * 2  # rules, settings, seeds
    assert {row["violation_rate"] for row in guarded} == {0.0}
    rows = {(row["learner"], row["guard"]): row for row in results["guard"]["rows"]}
    assert len(rows) == 7
    for learner in ("random", "greedy"):
        assert min(rows[learner, "none"]["violation_rates"]) > 0.5
        for rule in ("paper", "tight"):
            assert max(rows[learner, rule]["violation_rates"]) == 0.0
            assert rows[learner, rule]["worst_margin"] >= 0.0
    assert rows["greedy", "tight"]["rewards"] > rows["greedy", "paper"]["rewards"]
    for track in results["tracks"]:
        assert len(track["action"]) == 24
        if track["method"] == "rl+acd":
            assert track["rule"] == "tight"
            for low, action, high in zip(track["low"], track["action"], track["high"], strict=True):
                assert low - 1e-3 <= action <= high + 1e-3
            assert all(cost <= bound for cost, bound in zip(track["cost"], track["bound"], strict=True))
    assert json.loads((out / "run.json").read_text())["command"] == results["provenance"]["command"]


def test_plans_are_the_paper_s_grid_and_a_small_one():
    full = paper.plan_for("carbon", "full")
    assert (full.lams, full.bs, full.seeds) == ((0.0, 2.0, 4.0, 6.0, 8.0, 10.0), (2.0, 6.0), (0, 1, 2, 3, 4))
    assert (full.explored, full.modes) == (4000, ("offline", "online"))
    assert full.methods == ("prior", "random+acd", "rl", "rl+acd", "crl", "acrl")
    inference = paper.plan_for("inference", "full")
    assert (inference.lams, inference.bs, inference.explored) == ((5.0, 7.0), (6.0,), 2160)
    quick = paper.plan_for("carbon", "quick", seeds=(3,), lams=None)
    assert set(quick.lams) < set(full.lams)
    assert quick.seeds == (3,)
    assert paper.plan_for("carbon", "quick", rules=("paper",)).trained_rules == ("paper",)
    with pytest.raises(ValueError, match="system must be one of"):
        paper.plan_for("cooling", "quick")


def test_the_paper_s_recipe_has_its_rates_and_its_episodes_by_augmentation():
    ours, theirs = (recipe_of(name, "carbon") for name in ("tether", "paper"))
    assert (theirs.learning_rate, theirs.schedule, theirs.batch, theirs.episodes) == (
        1e-3,
        "constant",
        50,
        4000,
    )
    assert (ours.learning_rate, ours.schedule) == (3e-3, "cosine")
    inference = recipe_of("paper", "inference", steps=1)
    assert (inference.learning_rate, inference.width, inference.episodes, inference.steps) == (
        1e-4,
        50,
        2160,
        1,
    )
    with pytest.raises(ValueError, match="recipe must be one of"):
        recipe_of("authors", "carbon")

    plan = paper.plan_for("carbon", "full", recipe="paper", train_episodes=50, explored=80)
    train = paper.load_data(plan, None).train
    assert len(train) == 80  # so that 80 episodes are explored without playing one twice
    assert len(np.unique(train["demand"], axis=0)) == 80
    assert len(paper.load_data(replace(plan, recipe="tether"), None).train) == 50
    online = [
        piece.name for piece in paper.pieces(plan, None, None, None, None) if "online-acrl" in piece.name
    ]
    assert online == ["online-acrl-paper", "online-acrl-released", "online-acrl-tight"]


@pytest.mark.needs_data
def test_real_data_of_both_systems_is_read(shared):
    carbon = paper.load_data(paper.plan_for("carbon", "quick"), shared / "data" / "carbon")
    assert (len(carbon.train), len(carbon.test)) == (2136, 1416)
    inference = paper.load_data(paper.plan_for("inference", "quick"), shared / "data" / "inference")
    assert len(inference.train) + len(inference.test) == 456 - 2 * 23
    inference.env.check(inference.train)
    plan, folder = paper.plan_for("inference", "quick"), shared / "data" / "inference"
    assert paper.identity(plan, inference, "", folder, None)["data"]["origin"] == (
        "demand of BLOOM's GPUs (real), renewables and battery rates generated"
    )
    assert inference.train["demand"].mean() == pytest.approx(3.5, abs=0.1)
