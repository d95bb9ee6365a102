"""Every example runs, and shows what it says it shows."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("system", ["carbon", "inference", "cooling"])
def test_ppo_breaks_the_promise_without_the_guard_only(system, capsys):
    pytest.importorskip(
        "stable_baselines3", reason="stable-baselines3 is not installed; it is the extra [sb3]"
    )
    audits = load("train_ppo_guarded").main(["--steps", "600", "--system", system])
    assert audits["inside the guard"].holds
    assert audits["without the guard"].violation_rate > 0.5
    assert len(audits["inside the guard"].bounds) == 25
    out = capsys.readouterr().out
    assert "KEPT in every round" in out
    assert "BROKEN" in out


@pytest.mark.slow
@pytest.mark.parametrize("switches", [[], ["--pair"]])
def test_learners_of_switches_break_the_promise_without_the_guard_only(switches, capsys):
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed; it is in the extra [sb3]")
    audits = load("train_maskable_ppo").main(["--steps", "480", *switches])
    assert len(audits) == (2 if switches else 3)
    for name, verdict in audits.items():
        assert len(verdict.bounds) >= 20
        assert verdict.holds == ("inside the guard" in name), name
    assert (
        "decisions               {'safe': 480}" in capsys.readouterr().out
    )  # a masked learner needs no guard


def test_a_saved_model_is_guarded(capsys):
    pytest.importorskip(
        "stable_baselines3", reason="stable-baselines3 is not installed; it is the extra [sb3]"
    )
    assert load("guard_a_saved_model").main(["--steps", "240", "--episodes", "5"]).holds
    assert "decisions:" in capsys.readouterr().out


def test_an_environment_of_ones_own_is_guarded(capsys):
    audits = load("guard_your_own_env").main(["--episodes", "40"])
    assert audits["inside the guard"].holds
    assert audits["without the guard"].violation_rate > 0.5
    assert "A policy that never pumps" in capsys.readouterr().out


@pytest.mark.slow
def test_an_algorithm_of_rllib_breaks_the_promise_without_the_guard_only(tmp_path):
    for module in ("ray", "tree", "torch"):
        pytest.importorskip(module, reason="RLlib is not installed: pip install 'ray[rllib]'")
    command = [sys.executable, str(EXAMPLES / "train_rllib_guarded.py"), "--iterations", "1"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, check=True)
    guarded, free = done.stdout.split("without the guard")
    assert "KEPT in every round" in guarded
    assert "BROKEN" in free
