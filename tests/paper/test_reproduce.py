"""`tether reproduce`, as a user runs it, at the smallest scale at which everything happens."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import tanks
from commands import exit_code, run
from tether.learn.plant import draw_test
from tether.learn.trial import recipe_of
from tether.paper import evaluation as paper
from tether.paper import figures
from tether.paper.identity import EVALUATION, digest_of_code, identity, imported_modules
from tether.paper.results import read_results
from tether.systems import registry

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
        *("figures", "pieces", "report.html", "results.json", "run.json"),
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
    limit = results["limit"]
    assert (limit["lam"], limit["b"], limit["episodes"]) == (2.0, 2.0, 60)
    assert limit["prior"] < limit["attained"] <= limit["upper"]
    shares = {(row["method"], row["rule"]): row["share"] for row in limit["shares"] if row["seed"] == 0}
    assert shares["rl+acd", "paper"] < shares["rl+acd", "tight"] < 1.0
    assert "First figure" in shown.err
    assert (out / "figures" / "guard.png").exists()
    for track in results["tracks"]:
        assert len(track["action"]) == 24
        if track["method"] == "rl+acd":
            assert track["rule"] == "tight"
            for low, action, high in zip(track["low"], track["action"], track["high"], strict=True):
                assert low - 1e-3 <= action <= high + 1e-3
            assert all(cost <= bound for cost, bound in zip(track["cost"], track["bound"], strict=True))
    assert json.loads((out / "run.json").read_text())["command"] == results["provenance"]["command"]


CARBON, INFERENCE = registry.find("carbon"), registry.find("inference")


def test_evaluations_are_the_paper_s_grid_and_a_small_one():
    full = paper.evaluation_of(CARBON, "full")
    assert (full.lams, full.bs, full.seeds) == ((0.0, 2.0, 4.0, 6.0, 8.0, 10.0), (2.0, 6.0), (0, 1, 2, 3, 4))
    assert (full.explored, full.train_episodes, full.passes) == (4000, 2136, 60)
    assert full.modes == ("offline", "online")
    assert paper.evaluation_of(CARBON, "full", recipe="paper").passes == 30
    assert full.methods == ("prior", "random+acd", "rl", "rl+acd", "crl", "acrl")
    inference = paper.evaluation_of(INFERENCE, "full", recipe="paper")
    assert (inference.lams, inference.bs, inference.explored) == ((5.0, 7.0), (6.0,), 2160)
    assert (inference.train_episodes, inference.passes) == (2160, 60)
    quick = paper.evaluation_of(CARBON, "quick", seeds=(3,), lams=None)
    assert (quick.lams, quick.bs, quick.seeds) == ((0.0, 2.0, 6.0), (2.0,), (3,))
    assert (quick.explored, quick.train_episodes, quick.passes) == (300, 480, 25)
    assert paper.evaluation_of(CARBON, "quick", rules=("paper",)).trained_rules == ("paper",)
    assert (quick.rules, quick.trained_rules) == (
        ("paper", "released", "tight", "structured"),
        ("tight", "structured"),
    )
    assert quick.explorers == ("prior", "random+acd", "rl", "acrl")
    assert paper.evaluation_of(CARBON, "quick", methods=("crl",)).explorers == full.methods == full.explorers
    with pytest.raises(ValueError, match="tanks has no structure, which the rule 'structured' needs"):
        paper.evaluation_of(registry.find("tanks:system"), "quick", rules=("structured",))
    cooling = registry.find("cooling")
    assert paper.evaluation_of(cooling, "full").lams == cooling.defaults.lams


def test_the_paper_s_recipe_has_its_rates_and_its_episodes_by_augmentation():
    ours, theirs = (recipe_of(name, CARBON.defaults) for name in ("tether", "paper"))
    assert (theirs.learning_rate, theirs.schedule) == (1e-3, "constant")
    assert (theirs.batch, theirs.episodes, theirs.width) == (50, 4000, 40)
    assert (ours.learning_rate, ours.schedule) == (3e-3, "cosine")
    inference = recipe_of("paper", INFERENCE.defaults, steps=1)
    assert (inference.learning_rate, inference.width) == (1e-4, 50)
    assert (inference.episodes, inference.steps) == (2160, 1)
    closer = recipe_of("closer", CARBON.defaults, passes=3)
    assert closer.learning_rate > ours.learning_rate
    assert closer.width > ours.width
    assert closer.warmup > ours.warmup == 0.0
    with pytest.raises(ValueError, match="recipe must be one of"):
        recipe_of("authors", CARBON.defaults)
    with pytest.raises(ValueError, match="recipe must be one of"):
        paper.evaluation_of(CARBON, "full", recipe="closer")

    wanted = paper.evaluation_of(CARBON, "full", recipe="paper", train_episodes=50, explored=80)
    train = paper.load_data(wanted, CARBON, None).train
    assert len(train) == 80  # so that 80 episodes are explored without playing one twice
    assert len(np.unique(train["demand"], axis=0)) == 80
    assert len(paper.load_data(replace(wanted, recipe="tether"), CARBON, None).train) == 50
    online = [
        piece.name for piece in paper.pieces(wanted, None, None, None, None) if "online-acrl" in piece.name
    ]
    assert online == [f"online-acrl-{rule}" for rule in ("paper", "released", "tight", "structured")]


@pytest.mark.needs_data
def test_real_data_of_both_systems_is_read(shared):
    carbon = paper.load_data(paper.evaluation_of(CARBON, "quick"), CARBON, shared / "data" / "carbon")
    assert (len(carbon.train), len(carbon.test)) == (2136, 1416)
    wanted, folder = paper.evaluation_of(INFERENCE, "quick"), shared / "data" / "inference"
    inference = paper.load_data(wanted, INFERENCE, folder)
    assert len(inference.train) + len(inference.test) == 456 - 2 * 23
    inference.env.check(inference.train)
    described = identity(wanted, inference, "", folder, None)["data"]
    assert described["source"] == "authors"
    assert described["origin"] == "demand of BLOOM's GPUs (real), renewables and battery rates generated"
    assert inference.train["demand"].mean() == pytest.approx(3.5, abs=0.1)


def test_the_code_of_a_run_is_what_its_evaluation_imports_and_nothing_else(tmp_path, monkeypatch):
    found = imported_modules([EVALUATION, "tether.systems.carbon.env"])
    for module in ("tether.core.fleet", "tether.paper.report", "tether.paper.figures", "tether.cli.main"):
        assert module not in found
    for module in (
        "tether.paper.evaluation",
        "tether.learn.train",
        "tether.core.projection",
        "tether.assure.hostile",
    ):
        assert module in found
    package = tmp_path / "tank_package"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tank_package import hints\nfrom . import water\n"
    )
    (package / "water.py").write_text(
        "def flow():\n    from tank_package.pipe import width\n    return width\n"
    )
    for name in ("pipe", "hints", "unused"):
        (package / f"{name}.py").write_text("width = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert set(imported_modules(["tank_package"])) == {
        f"tank_package{part}" for part in ("", ".water", ".pipe")
    }
    before = digest_of_code(["tank_package"])
    for name, changes in (("unused", False), ("hints", False), ("pipe", True)):
        (package / f"{name}.py").write_text("width = 2\n")
        assert (digest_of_code(["tank_package"]) != before) == changes


def test_a_system_of_one_s_own_is_evaluated_and_reported_by_where_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "paper_figures", lambda _results: {})  # test_report draws them
    code, out, err = run(
        monkeypatch, capsys, "reproduce", "tanks:system", "--methods", "random+acd", "--rules", "tight", "--seeds", 1,
        "--episodes", 30, "--passes", 2, "--modes", "offline", "--out", tmp_path / "tanks",
    )  # fmt: skip
    assert code == 0, err
    assert "tanks, learned offline" in out
    results = read_results(tmp_path / "tanks" / "results.json")
    assert (results["system"], results["title"]) == ("tanks", "Two tanks")
    assert (results["grid"]["lams"], results["grid"]["bs"], results["training"]["width"]) == (
        [0.0, 1.0],
        [0.5],
        4,
    )
    guarded = [row for row in results["scores"] if row["method"] == "random+acd"]
    assert {row["violation_rate"] for row in guarded} == {0.0}
    assert results["boards"] == [
        {"label": "water, m, action 1", "action": 0, "series": ["inflow_1"]},
        {"label": "water, m, action 2", "action": 1, "series": ["inflow_2"]},
        {"label": "price", "action": None, "series": ["price"]},
    ]
    test = draw_test(tanks.system, 30, 0)
    assert results["episodes"][0]["inflow_2"] == pytest.approx(test["inflow"][0, :, 1], rel=1e-4)
    for track in (each for each in results["tracks"] if each["method"] == "random+acd"):
        played, low, high = (np.array(track[name]) for name in ("action", "low", "high"))
        assert played.shape == low.shape == (6, 2)
        assert np.all((low - 1e-3 <= played) & (played <= high + 1e-3))
        assert np.all((low >= 0.0) & (high <= 4.0))
    code, out, err = run(monkeypatch, capsys, "report", tmp_path)
    assert code == 0, err
    assert "Two tanks" in (tmp_path / "report.html").read_text()
