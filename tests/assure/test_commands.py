"""`tether verify` and `tether sensitivity`, as a user runs them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tether
from commands import run
from tether.assure import wrong_constants

LITTLE = ("--samples", 512, "--generations", 10)


def test_help_teaches(monkeypatch, capsys):
    for command in ("verify", "sensitivity"):
        code, out, _ = run(monkeypatch, capsys, command, "--help")
        assert code == 0
        assert "--out" in out
        assert "--seed" in out


def test_constants_that_stand_end_with_0_and_smaller_ones_with_1_and_a_file_that_replays(
    tmp_path, monkeypatch, capsys
):
    claims = ("--claims", "p(1)")
    code, out, err = run(monkeypatch, capsys, "verify", "carbon", *claims, *LITTLE, "--out", tmp_path)
    assert code == 0, err
    assert "stands" in out
    assert "backlog 0 to 15" in out
    smaller = ("verify", "carbon", "--scale", 0.9, *claims, *LITTLE, "--out", tmp_path)
    code, out, err = run(monkeypatch, capsys, *smaller)
    assert code == 1, err
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["findings"][0]["verdict"] == "refuted"
    assert results["findings"][0]["claimed"] == pytest.approx(0.225)
    path = tmp_path / "counterexample-p(1).json"
    code, out, err = run(monkeypatch, capsys, "verify", "--replay", path)
    assert code == 1, err
    assert "Refuted" in out
    saved = json.loads(path.read_text())
    saved["bounds"]["perturbation"]["rho"] = 0.25
    path.write_text(json.dumps(saved))
    code, out, err = run(monkeypatch, capsys, "verify", "--replay", path)
    assert code == 0, err
    assert "Not refuted" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify",),
        ("verify", "nothing"),
        ("verify", "carbon", "--region", "backlog"),
        ("verify", "carbon", "--region", "nothing=0:1"),
        ("verify", "carbon", "--scale", "0"),
        ("verify", "carbon", "--claims", "q"),
        ("verify", "--replay", "pyproject.toml"),
        ("sensitivity", "nothing"),
        ("sensitivity", "carbon", "--b", "-1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text("{}")
    monkeypatch.chdir(tmp_path)
    code, _, err = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("tether: error: ")


def test_wrong_constants_break_the_promise_where_they_are_tight_and_right_or_larger_ones_never():
    env = tether.envs.Cooling()
    some = {name: each for name, each in wrong_constants.learners(env).items() if name in ("idle", "random")}
    contract = env.contract(0.0, 2.0, horizon=6)
    study = wrong_constants.Study(env, contract, 32, scales=(0.5, 1.0, 2.0), policies=some)
    results = study.assemble([study.part(0, draws) for draws in wrong_constants.DRAWS])
    for draws in wrong_constants.DRAWS:
        for constant in ("immediate", "carried", "rho", "together"):
            for scale in (1.0, 2.0):
                assert wrong_constants.worst_rate(results, draws, constant, scale) == 0.0
        assert wrong_constants.worst_rate(results, draws, "together", 0.5) > 0.0
        assert wrong_constants.worst_rate(results, draws, "cost floor", 0.5) == 0.0
    assert wrong_constants.worst_rate(results, "hostile", "immediate", 0.5) > 0.0
    right, double = (
        np.mean(
            [row["rewards"] for row in results["rows"] if _is(row, "everyday", "idle", "together", scale)]
        )
        for scale in (1.0, 2.0)
    )
    assert right > double
    assert [each.row_count for each in wrong_constants.study_tables(results)] == [5, 5]
    assert len(wrong_constants.study_figure(results, "hostile").axes) == 10


def _is(row, *values):
    return (row["draws"], row["learner"], row["constant"], row["scale"]) == values


STRUCTURED = (
    "--certificate", "structured", "--rounds", 1, "--samples", 512, "--steps", 0, "--generations", 0
)  # fmt: skip


def test_the_bounds_of_a_structure_are_searched_in_the_region_and_in_episodes(tmp_path, monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "verify", "carbon", *STRUCTURED, "--out", tmp_path)
    assert code == 0, err
    assert "REFUTED" not in out.upper()
    findings = json.loads((tmp_path / "results.json").read_text())["findings"]
    assert {"gap 0", "gap 1", "floor", "ceiling", "now (clear)", "later (prior)", "promise"} <= {
        each["claim"] for each in findings
    }


@pytest.mark.parametrize(("system", "count"), [("carbon", 4), ("inference", 3), ("cooling", 5)])
def test_every_bound_loosened_by_five_percent_is_found(system, count, tmp_path, monkeypatch, capsys):
    options = (*STRUCTURED, "--loosen", "all", "--out", tmp_path)
    code, out, err = run(monkeypatch, capsys, "verify", system, *options)
    assert code == 0, out + err
    assert out.count("loosened by 5 %: found, ") == count
    files = sorted(tmp_path.glob("counterexample-*.json"))
    assert len(files) >= count
    for path in files[:: len(files) // 3]:
        code, out, err = run(monkeypatch, capsys, "verify", "--replay", path)
        assert code == 1, err
        assert "Refuted" in out
        saved = json.loads(path.read_text())
        saved["bounds"]["structured"] = None  # the true structure
        path.write_text(json.dumps(saved))
        code, out, err = run(monkeypatch, capsys, "verify", "--replay", path)
        assert code == 0, err
        assert "Not refuted" in out


def test_a_bound_that_is_loosened_and_not_found_ends_with_1(tmp_path, monkeypatch, capsys):
    options = (*STRUCTURED, "--loosen", "below", "--claims", "ceiling", "--out", tmp_path)
    code, out, err = run(monkeypatch, capsys, "verify", "carbon", *options)
    assert code == 1, err
    assert "below loosened by 5 %: NOT found" in out
    for wrong in (("--loosen", "now"), ("--certificate", "structured", "--loosen", "later"), ("--lam", "1")):
        code, _, err = run(monkeypatch, capsys, "verify", "carbon", *wrong, "--out", tmp_path)
        assert code == 2, err
