"""Every command, end to end, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tether
from commands import run

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_the_command_is_installed_and_has_a_version():
    done = subprocess.run(
        [Path(sys.executable).parent / "tether", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == f"tether {tether.__version__}"


@pytest.mark.parametrize(
    "command",
    [
        *((), ("reproduce",), ("bench",), ("data",)),
        *(("reproduce", "carbon"), ("reproduce", "inference"), ("reproduce", "published"), ("train",)),
        *(("bench", "guard"), ("bench", "train"), ("bench", "data"), ("data", "calibration")),
        *(("estimate",), ("reproduce", "estimate"), ("bench", "estimate"), ("bench", "monitor")),
    ],
)
def test_help_teaches(command, monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, *command, "--help")
    assert code == 0
    assert "Usage" in out
    if len(command) == 2:
        assert "--out" in out
        assert "--seed" in out


def test_train_shows_a_table_leaves_policies_and_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    grid = (
        "--lams",
        "2",
        "--bs",
        "2",
        "--seeds",
        2,
        "--episodes",
        100,
        "--rule",
        "released",
        "--out",
        tmp_path,
    )
    code, out, err = run(
        monkeypatch, capsys, "train", "carbon", "--methods", "prior,acrl", "--passes", 2, *grid
    )
    assert code == 0, err
    assert "acrl" in out
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["scores"]["acrl"]) == 2
    assert results["violations_in_training"]["acrl"] == [0.0]
    assert tether.load_policy(tmp_path / "acrl-lam2-b2-seed1.npz").uses_memory
    before = (tmp_path / "acrl.offline.checkpoint.npz").stat().st_mtime_ns
    code, _, err = run(monkeypatch, capsys, "train", "carbon", "--methods", "acrl", "--passes", 2, *grid)
    assert code == 0, err
    assert (tmp_path / "acrl.offline.checkpoint.npz").stat().st_mtime_ns == before
    again = json.loads((tmp_path / "results.json").read_text())
    assert again["scores"]["acrl"] == results["scores"]["acrl"]


def test_the_recipe_closer_trains_on_four_copies_unless_others_are_asked_for(tmp_path, monkeypatch, capsys):
    asked = (
        "train",
        "carbon",
        "--methods",
        "prior",
        "--episodes",
        30,
        "--recipe",
        "closer",
        "--out",
        tmp_path,
    )
    for further, copies, width in (((), 4, 64), (("--copies", 2, "--width", 8), 2, 8)):
        code, _, err = run(monkeypatch, capsys, *asked, *further)
        assert code == 0, err
        results = json.loads((tmp_path / "results.json").read_text())
        assert (results["recipe"], results["copies"], results["width"]) == ("closer", copies, width)
        assert results["rate"] == 8e-3
        assert 0.0 < results["warmup"] < 0.2


def test_train_online_shows_regret_and_leaves_every_explored_episode(tmp_path, monkeypatch, capsys):
    code, out, err = run(
        monkeypatch, capsys, "train", "carbon", "--mode", "online", "--methods", "acrl,random+acd,rl", "--explore", 100,
        "--lams", "2", "--seeds", 1, "--episodes", 60, "--tensorboard", "--out", tmp_path,
    )  # fmt: skip
    assert code == 0, err
    assert "while exploring" in out
    results = json.loads((tmp_path / "results.json").read_text())
    explored = {each["method"]: each for each in results["exploration"]}
    assert list(explored) == ["rl", "acrl", "random+acd"]  # rl first: regret is measured against it
    assert explored["acrl"]["violation_rate"] == explored["random+acd"]["violation_rate"] == [0.0]
    assert explored["rl"]["violation_rate"][0] > 0.3
    assert explored["random+acd"]["regret_late"][0] > explored["rl"]["regret_late"][0]
    with np.load(tmp_path / "acrl.exploration.npz") as stored:
        assert stored["rewards"].shape == (100, 1, 1)
        assert stored["settings"].tolist() == [[2.0, 2.0]]
    events = b"".join(file.read_bytes() for file in (tmp_path / "tensorboard" / "acrl").iterdir())
    assert b"acrl/rewards/lam2-b2" in events


def test_attack_keeps_the_promise_and_breaks_it_where_a_bound_is_loosened(tmp_path, monkeypatch, capsys):
    from tether.assure import attack
    from tether.systems import registry

    name, standard = next(iter(attack.plants(registry.find("inference")).items()))
    coarse = attack.coarse(standard, "float16", "float16", "float16")
    monkeypatch.setattr(attack, "plants", lambda system: {name: standard})
    monkeypatch.setattr(attack, "coarse_plants", lambda system: {"float16": coarse})
    monkeypatch.setattr("tether.certificates.share.SEARCH", 5)
    small = (
        "attack",
        "inference",
        "--lams",
        "0",
        "--bs",
        "0.01",
        "--episodes",
        400,
        "--batch",
        200,
        "--out",
        tmp_path,
    )
    code, out, err = run(monkeypatch, capsys, *small)
    assert code == 0, err
    assert "kept in every round" in out
    assert "False alarms of the guard (an assumption breach that was none): 0" in out
    attacks = json.loads((tmp_path / "results.json").read_text())["attacks"]
    assert [found["system"] for found in attacks] == [name, "float16"]
    for found in attacks:
        assert found["episodes"] == 200
        assert found["violations"] == found["breaches"] == 0
        assert found["unguarded"] > 0.3
    code, out, err = run(monkeypatch, capsys, *small, "--loosen", "floor")
    assert code == 0, err
    assert "floor loosened by 0.05: found" in out
    (found,) = json.loads((tmp_path / "results.json").read_text())["attacks"]
    assert found["loosened"] == "floor"
    assert found["worst_margin"] < 0.0
    monkeypatch.setattr(attack, "loosened", lambda exact, bound, factor: exact)
    code, out, _ = run(monkeypatch, capsys, *small, "--loosen", "floor", "--factor", "1.04")
    assert code == 1
    assert "NOT found" in out


@pytest.mark.needs_data
def test_reproduce_published_shows_every_number_beside_the_authors(tmp_path, shared, monkeypatch, capsys):
    folders = ("--paper", shared / "paper", "--data", shared / "data" / "carbon", "--out", tmp_path)
    code, out, err = run(monkeypatch, capsys, "reproduce", "published", "--no-budgets", *folders)
    assert code == 0, err
    assert "531.0365" in out
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["rows"]) == 36
    earned = {
        (row["choice"], row["value"].split(",")[0], row["policy"]): row["mean_reward"]
        for row in results["choices"]
    }
    assert earned["carried", "2.875", "rl_acd"] == pytest.approx(511.12, abs=0.01)
    assert earned["carried", "69.75", "rl_acd"] == pytest.approx(501.38, abs=0.01)
    assert earned["largest backlog", "15", "acrl"] == earned["largest backlog", "none", "acrl"]
    assert earned["revenue weight", "16", "rl"] == pytest.approx(568.890, abs=0.001)
    assert "69.75, formula" in out
    assert [row["on"] for row in results["evidence"]][:2] == ["rl cost", "rl worst cost"]
    assert "The released test months do not explain it" in results["evidence"][0]["text"]


@pytest.mark.needs_data
def test_data_calibration_shows_real_beside_synthetic(tmp_path, shared, monkeypatch, capsys):
    data = shared / "data" / "carbon"
    code, out, err = run(
        monkeypatch, capsys, "data", "calibration", "--data", data, "--out", tmp_path, "--seeds", 2
    )
    assert code == 0, err
    assert "prior worst cost" in out
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["real"]["prior mean cost"] == pytest.approx(27.816, abs=0.001)
    assert len(results["synthetic"]) == 2
    assert (tmp_path / "calibration.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "carbon", "--lams", "-1"), "lam must be at least 0, got -1.0"),
        (("reproduce", "carbon", "--bs", "nan"), "b must be finite"),
        (("attack", "coal"), "system must be one of carbon, cooling, inference"),
        (
            ("attack", "inference", "--loosen", "above"),
            "--loosen must be one of 'now', 'floor', 'below'",
        ),
        (
            ("attack", "carbon", "--certificate", "lipschitz", "--loosen", "now"),
            "--loosen is for --certificate str",
        ),
        (("attack", "carbon", "--factor", "1"), "--factor must be greater than 1"),
        (("reproduce", "carbon", "--lams", "2,2"), "lams must be at least one and all different"),
        (("reproduce", "carbon", "--methods", "sac"), "method must be one of"),
        (("reproduce", "carbon", "--rules", "loose"), "rule must be one of"),
        (("reproduce", "carbon", "--data", "/nowhere"), "/nowhere is not a folder"),
        (("reproduce", "inference", "--data", "/nowhere"), "/nowhere is not a folder"),
        (("reproduce", "inference", "--data", "."), "bloom_gpu_power_10min.csv"),
        (("reproduce", "carbon", "--paper", "/nowhere"), "published.json not found"),
        (("reproduce", "carbon", "--seeds", "0"), "Invalid value for '--seeds'"),
        (("report", "/nowhere"), "/nowhere is not a folder"),
        (("report", "."), "no results.json of a system in ."),
        (("reproduce", "published", "--paper", "/nowhere", "--data", "."), "published.json not found"),
        (("train", "coal"), "got 'coal'"),
        (("train", "carbon", "--methods", "sac"), "--methods must be one of"),
        (("train", "carbon", "--mode", "both"), "--mode must be one of"),
        (("train", "carbon", "--recipe", "fast"), "--recipe must be one of"),
        (("train", "carbon", "--lams", "1;2"), "--lams must be numbers separated by commas, got '1;2'"),
        (("train", "carbon", "--optimism", "-1"), "Invalid value for '--optimism'"),
        (("train", "cooling", "--data", "."), "--data for cooling must be an episode file (.npz)"),
        (("reproduce", "coal"), "No such command 'coal'"),
        (
            ("attack", "carbon", "--scenarios", "tolerance"),
            "--scenarios with --certificate structured must be one of",
        ),
        (
            ("bench", "late", "carbon", "--missing", "1.5"),
            "--missing must be shares between 0 and 1, got 1.5",
        ),
        (("bench", "late", "carbon", "--delays", "0.5"), "--delays must be a whole number, got 0.5"),
        (("bench", "guard", "--repetitions", "x"), "Invalid value for '--repetitions'"),
        (("attack", "carbon", "--engine", "spark"), "--engine must be one of 'local', 'ray', got 'spark'"),
        (("verify", "carbon", "--address", "auto"), "--address and --workers are for --engine ray"),
        (("bench", "scale", "--most", "rounds=3"), "--most is name=number, of episodes, horizon, settings"),
        (("bench", "engines", "--pieces", "1"), "--seconds and --pieces must list as many"),
        (("estimate", "minari:nobody/knows-v0"), "no Minari data set 'nobody/knows-v0' on this machine"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert message in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err


def test_a_file_in_the_way_is_not_overwritten(tmp_path, monkeypatch, capsys):
    (tmp_path / "taken").write_text("mine")
    code, _, err = run(monkeypatch, capsys, "reproduce", "carbon", "--out", tmp_path / "taken")
    assert code == 2
    assert "is a file; --out must be a folder" in err
    assert (tmp_path / "taken").read_text() == "mine"


def test_with_debugging_a_mistake_shows_where(monkeypatch, capsys):
    monkeypatch.setenv("TETHER_DEBUG", "1")
    with pytest.raises(ValueError, match="lam must be"):
        run(monkeypatch, capsys, "reproduce", "carbon", "--lams", "-1")


def test_bench_guard_measures_everything_that_is_promised(tmp_path, monkeypatch, capsys):
    from tether.bench import speed as bench

    monkeypatch.setattr(bench, "MANY", 3)
    monkeypatch.setattr(bench, "EPISODES", 200)
    monkeypatch.setattr(bench, "STRUCTURED_EPISODES", 50)
    first = next(iter(bench.having("structure").items()))
    monkeypatch.setattr(bench, "having", lambda part: dict([first]))  # all of them are measured alike
    code, out, err = run(
        monkeypatch, capsys, "bench", "guard", "--repetitions", 3, "--compiled", "none", "--out", tmp_path
    )
    assert code == 0, err
    measured = {
        each["what"]: each for each in json.loads((tmp_path / "results.json").read_text())["measurements"]
    }
    for what in (
        "cvxpy / guard",
        "H = 10,000 / H = 24",
        "rounds a second, rule tight",
        "import tether",
    ):
        assert measured[what]["value"] > 0.0
        assert f"{measured[what]['value']:.4g}" in out  # numbers are not cut, words may wrap
    assert measured["JAX loaded by it (0: no)"]["value"] == 0.0


def test_bench_train_measures_both_sides(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setattr("tether.bench.speed.UPDATES", 1)
    from tether.bench import speed as bench

    def one_policy(*given, **grid):
        """Of a grid one setting and seed: one program serves all lines, and what is printed is a ratio all the same."""
        return train(*given, **(grid | {"lams": [2.0], "bs": [2.0], "seeds": grid["seeds"][:1]}))

    train, having = bench.train, bench.having
    monkeypatch.setattr(bench, "train", one_policy)
    # The structure that compiles fastest; it is as good as the others to see that what it takes is printed and judged.
    monkeypatch.setattr(bench, "having", lambda part: {"inference": having(part)["inference"]})
    monkeypatch.setattr(bench, "COMPILING", 0.5)
    code, out, err = run(
        monkeypatch, capsys, "bench", "train", "--repetitions", 3, "--episodes", 50, "--out", tmp_path
    )
    assert code == 0, err
    measured = {
        each["what"]: each for each in json.loads((tmp_path / "results.json").read_text())["measurements"]
    }
    for what in ("ratio, 1 setting, 5 seeds", "ratio, 12 settings, 5 seeds"):
        assert measured[what]["value"] > 1.0
        assert f"{measured[what]['value']:.4g}" in out  # numbers are not cut, words may wrap
    structured = measured["compiling, structured, inference"]
    assert (structured["target"], structured["met"]) == ("<= 0.5", False)
    assert 0.5 < structured["value"] < 300.0
