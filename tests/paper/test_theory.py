"""What `tether reproduce theory` runs, on a small instance, and the command around it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from commands import run
from small_mixture import EXAMPLE, GRID
from tether.paper.studies import theory as experiment


def test_the_study_checks_both_theorems_and_the_command_shows_and_writes_it(tmp_path, monkeypatch, capsys):
    real = experiment.theory_study

    def small(*arguments, **options):
        return real(
            *arguments, **(options | {"example": EXAMPLE, "resolution": GRID, "factors": (1,), "lattice": 30})
        )

    monkeypatch.setattr(experiment, "theory_study", small)
    code, out, err = run(
        monkeypatch, capsys, "reproduce", "theory", "--out", tmp_path, "--episodes", 60, "--seeds", 2,
        "--lam", 0.3, "--b", 0.2, "--lams", "9", "--bs", "9",
    )  # fmt: skip
    assert code == 0, err
    for word in (
        "optimistic",
        "certainty-equivalent",
        "random",
        "Thm 5.1",
        "optimism gap",
        "grid error",
        "Vbar",
    ):
        assert word in out
    results = json.loads((tmp_path / "results.json").read_text())
    assert [row["variant"] for row in results["variants"]] == [
        "optimistic", "certainty-equivalent", "counting", "random",
    ]  # fmt: skip
    assert [row["on"] for row in results["evidence"]] == ["eluder", "theorem 5.1"]
    assert "of 2 seeds" in results["evidence"][0]["text"]
    assert results["evidence"][1]["holds"]
    settings = {(row["lam"], row["b"]): row for row in results["settings"]}
    assert set(settings) == {(0.3, 0.2), (9.0, 0.2), (0.3, 9.0)}
    assert all(row["holds"] for row in settings.values())
    assert settings[0.3, 0.2]["regret"] > 0.05
    assert settings[9.0, 0.2]["regret"] == pytest.approx(0.0, abs=1e-9)
    assert results["unguarded_violation_rate"] > 0.0
    for name in ("zero violations", "both bounds hold at every (lam, b)", "regret to pi-star falls to zero"):
        assert results["met"][name]
    for row in settings.values():
        assert (np.array(row["combined_bounds"]) > row["combined_regrets"]).all()
        assert (np.array(row["combined_regrets"]) >= row["learning_regrets"]).all()
        assert 0 < row["eluder"][0] <= row["eluder"][1]
        assert max(row["settled"]) <= 60
    tight, loose = settings[0.3, 0.2], settings[9.0, 0.2]
    assert tight["feature_range"] < loose["feature_range"]
    assert np.mean(tight["combined_regrets"]) > 60 * 0.05
    assert results["initial"] == [0.5, 1.5]
    assert len(results["convergence"]) == 4
    assert results["scale"] == pytest.approx(results["beta"] / results["printed_beta"])
    assert len(results["curves"]["optimistic"]["regret"]) == 60
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "bounds.png", "bounds.svg", "learning.png", "learning.svg", "results.json",
    ]  # fmt: skip


def test_a_seed_has_settled_when_no_later_episode_is_far():
    lost = np.array([[3.0, 0.0, 2.0, 0.5], [0.1, 0.1, 0.1, 0.1], [0.0, 0.0, 0.0, 2.0]])
    assert experiment.settled(lost, np.full(lost.shape, 1.0)) == [3, 0, 4]


def test_the_slope_of_a_power_law_is_its_power():
    assert experiment.log_log_slope(3.0 * np.arange(1, 501) ** 0.6) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--lam", "-1"), "--lam must be at least 0, got -1.0"),
        (("--lams", "1;2"), "--lams must be numbers separated by commas"),
        (("--bs", "0,-2"), "--bs must be at least 0, got -2.0"),
        (("--scale", "0"), "--scale must be greater than 0"),
        (("--delta", "1.5"), "--delta must be between 0 and 1, got 1.5"),
        (("--rule", "loose"), "rule must be one of 'paper', 'released', 'tight'"),
        (("--episodes", "5"), "Invalid value for '--episodes'"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "reproduce", "theory", "--out", tmp_path, *arguments)
    assert code == 2
    assert message in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [("reproduce", "theory"), ("bench", "exact")])
def test_help_teaches(command, monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, *command, "--help")
    assert code == 0
    assert "--out" in out
    assert "--seed" in out
