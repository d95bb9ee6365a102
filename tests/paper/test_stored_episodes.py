"""Episodes of one's own, from the files to the limit, through every command that takes episodes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import numpy as np
import pytest

import tether
from commands import exit_code, run
from tether import data
from tether.assure import wrong_constants
from tether.learn.plant import load_plant, shown
from tether.systems import registry

pytestmark = pytest.mark.usefixtures("compiled_quickly")

HOURS = 24 * 20
GRID = ("--lams", 2, "--bs", 2, "--seeds", 1)


def sources(folder):
    """Twenty days of demand and renewables, in the layouts of BLOOM and CAISO."""
    times = [datetime(2022, 4, 1) + timedelta(hours=hour) for hour in range(HOURS)]
    rows = [f"{time.isoformat()},{60 + 25 * np.sin(time.hour / 4.0) + time.day:.2f}" for time in times]
    (folder / "demand.csv").write_text("time,requests\n" + "\n".join(rows) + "\n")
    sun = [f"{time.isoformat()},{max(0.0, 500 * np.sin((time.hour - 6) / 3.8)):.1f},90" for time in times]
    (folder / "supply.csv").write_text("Time,Solar,Wind\n" + "\n".join(sun) + "\n")
    return (
        "carbon",
        "--series",
        f"demand={folder / 'demand.csv'}",
        "--series",
        f"renewables={folder / 'supply.csv'}",
        "--sources",
        "solar,wind",
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The episode file that `tether data build` makes, with sets to train and to test on."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        code = exit_code(
            patch, "data", "build", *sources(folder), "--align", "hour-of-year", "--split", "0.6,0.2,0.2",
            "--forecast", 0.1, "--out", folder / "carbon.npz",
        )  # fmt: skip
    assert code == 0
    return folder / "carbon.npz"


def test_what_is_built_is_trained_on_and_measured_against_its_limit(built, tmp_path, monkeypatch, capsys):
    train = ("train", "carbon", "--data", built, "--methods", "prior,acrl", "--passes", 2, *GRID)
    code, _, err = run(monkeypatch, capsys, *train, "--out", tmp_path / "trained")
    assert code == 0, err
    scores = json.loads((tmp_path / "trained" / "results.json").read_text())["scores"]
    assert scores["acrl"][0]["violation_rate"] == 0.0
    # The prior's cost is that on the file's test set, and on no other.
    test = data.load_episodes(built, "test")
    env = tether.envs.Carbon()
    own = tether.rollout(env, env.prior, test, record="outcomes")
    assert scores["prior"][0]["cost"] == pytest.approx(own.total_costs.mean())
    pytest.importorskip("cvxpy")
    limit = ("limit", "carbon", "--data", built, "--lams", 2, "--bs", 2, "--episodes", 3, "--processes", 1)
    code, out, err = run(
        monkeypatch, capsys, *limit, "--policies", tmp_path / "trained", "--out", tmp_path / "limit"
    )
    assert code == 0, err
    assert "acrl tight" in out
    rows = {
        row["policy"]: row for row in json.loads((tmp_path / "limit" / "results.json").read_text())["rows"]
    }
    assert rows["prior"]["reward"] < rows["acrl tight"]["reward"] < rows["attained"]["reward"]
    assert rows["attained"]["reward"] <= rows["limit"]["reward"] + 1e-6


def test_the_evaluation_of_the_paper_runs_on_it_too(built, tmp_path, monkeypatch, capsys):
    code, out, err = run(
        monkeypatch, capsys, "reproduce", "carbon", "--data", built, "--out", tmp_path, "--methods", "prior",
        "--rules", "tight", "--modes", "offline", *GRID,
    )  # fmt: skip
    assert code == 0, err
    assert "report.html" in out
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["data"]["source"], results["data"]["origin"]) == ("file", "own data")
    assert results["data"]["test_episodes"] == len(data.load_episodes(built, "test"))
    assert results["published"] == []


def test_sensitivity_and_calibration_take_a_file_with_a_single_set(tmp_path, monkeypatch, capsys):
    file = tmp_path / "single.npz"
    data.save_episodes(file, data.synthetic_carbon(seed=3, n=60))
    small = ("--data", file, "--seeds", 1, "--out", tmp_path / "out")
    code, out, err = run(monkeypatch, capsys, "data", "calibration", *small)
    assert code == 0, err
    assert "within 5 %" in out
    given = []
    monkeypatch.setattr(
        wrong_constants.Study, "assemble", lambda study, _: given.append(study.everyday) or {}
    )
    monkeypatch.setattr(wrong_constants, "study_tables", lambda _: [])
    monkeypatch.setattr(wrong_constants, "DRAWS", ())
    code, _, err = run(monkeypatch, capsys, "sensitivity", "carbon", "--episodes", 8, *small)
    assert code == 0, err
    assert [len(each) for each in given] == [60]


def test_each_seed_draws_its_everyday_episodes_from_the_stored_ones():
    env, stored = tether.envs.Carbon(), data.synthetic_carbon(seed=3, n=60)
    first, again, other = (
        wrong_constants._draw(env, "everyday", seed, 8, 24, stored)["demand"] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    whole = {row.tobytes() for row in stored["demand"]}
    assert len(whole & {row.tobytes() for row in first}) == 8


def test_other_systems_take_their_own_episodes(tmp_path):
    stored = {"train": data.synthetic_inference(0, 6), "test": data.synthetic_inference(1, 4)}
    data.save_episodes(tmp_path / "battery.npz", stored)
    system = load_plant(registry.find("inference"), tmp_path / "battery.npz", 99, 0)
    assert (len(system.train), len(system.test)) == (6, 4)
    assert system.validation is not None
    np.testing.assert_array_equal(
        system.validation["demand"], system.train["demand"]
    )  # it has no set of its own
    with pytest.raises(ValueError, match="Carbon needs the series demand, renewables, efficiency_noise"):
        load_plant(registry.find("carbon"), tmp_path / "battery.npz", 99, 0)


def test_crl_is_validated_on_the_set_val_and_not_on_the_test_set(built):
    system = load_plant(registry.find("carbon"), built, 1, 0)
    assert system.validation is not None
    np.testing.assert_array_equal(system.validation["demand"], data.load_episodes(built, "val")["demand"])
    np.testing.assert_array_equal(system.test["demand"], data.load_episodes(built, "test")["demand"])


def test_one_set_cannot_be_trained_on_and_tested_on(tmp_path, monkeypatch, capsys):
    data.save_episodes(tmp_path / "single.npz", data.synthetic_carbon(seed=3, n=10))
    code, _, err = run(
        monkeypatch, capsys, "train", "carbon", "--data", tmp_path / "single.npz", "--out", tmp_path / "out"
    )
    assert code == 2
    said = " ".join(err.split())
    assert "must hold the sets 'train' and 'test', it holds one set without a name" in said
    assert "--split" in said
    code, _, err = run(monkeypatch, capsys, "train", "carbon", "--data", tmp_path / "none.npz")
    assert code == 2
    assert "none.npz not found" in " ".join(err.split())


def test_forecasts_that_the_file_brings_are_not_replaced_by_perfect_ones(built):
    system = load_plant(registry.find("carbon"), built, 1, 0, inputs=("forecast",))
    stored = data.load_episodes(built, "test")["demand_forecast"]
    np.testing.assert_array_equal(system.test["demand_forecast"], stored)
    assert not np.allclose(stored[:, 0, 0], system.test["demand"][:, 1])
    assert system.env.context == ("demand_forecast", "renewables_forecast")
    _, (perfect,) = shown(tether.envs.Carbon(), ("forecast",), data.synthetic_carbon(seed=0, n=2))
    np.testing.assert_array_equal(perfect["demand_forecast"][:, 0, 0], perfect["demand"][:, 1])


def test_windows_that_do_not_slide_by_an_hour_cannot_be_calibrated_against(tmp_path, monkeypatch, capsys):
    data.save_episodes(tmp_path / "days.npz", data.synthetic_carbon(seed=3, n=60)[::24])
    code, _, err = run(
        monkeypatch, capsys, "data", "calibration", "--data", tmp_path / "days.npz", "--out", tmp_path / "out"
    )
    assert code == 2
    assert "the windows must slide by one hour" in " ".join(err.split())
