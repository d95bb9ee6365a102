"""What `tether bench learners` makes of learners, without training any at length."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import tether
from tether.bench import learners
from tether.bench.learners import Point
from tether.bench.speed import Measurement
from tether.cli.app import app

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_advantages_are_those_of_a_plain_loop():
    from tether.bench import ppo

    draw = np.random.default_rng(0)
    rewards, values = draw.normal(size=(2, 5, 3))
    batch = ppo.Batch(None, None, None, values, rewards)
    expected, later = np.zeros((6, 3)), np.concatenate([values, np.zeros((1, 3))])
    for h in reversed(range(5)):
        surprise = rewards[h] + ppo.DISCOUNT * later[h + 1] - values[h]
        expected[h] = surprise + ppo.DISCOUNT * ppo.TRACE * expected[h + 1]
    np.testing.assert_allclose(ppo._advantages(batch), expected[:5], rtol=1e-5)


def test_an_iteration_of_ppo_learns_and_leaves_scales_and_bounds_alone():
    import jax

    from tether.bench.ppo import Ppo, fresh

    env, data = tether.envs.Carbon(), tether.data.synthetic_carbon(seed=0, n=16)
    certificate = tether.LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity)
    seen = np.random.default_rng(0).normal(size=(4, 24, len(env.observation_names)))
    before = fresh(env, certificate, seen, 0, 12.0)
    ppo = Ppo(env, certificate, 100.0, 8)
    after, _ = ppo.iterate(before, ppo.start(before), data, tuple(env.drawn_names), jax.random.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    for old, new in zip(
        before.actor.weights + before.critic.weights, after.actor.weights + after.critic.weights, strict=True
    ):
        assert np.abs(np.asarray(old) - np.asarray(new)).max() > 0.0
    for name in ("mean", "scale", "units", "low", "high"):
        np.testing.assert_array_equal(getattr(after.actor, name), getattr(before.actor, name))


def test_the_first_time_that_our_gain_is_nearly_reached_counts_and_none_is_not_made_up():
    quick = [Point(100, 1.0, 10.0), Point(200, 2.0, 19.0), Point(300, 3.0, 20.0)]
    slow = [Point(100, 1.0, 10.0), Point(200, 4.0, 12.0)]
    found = {each.what: each for each in learners._measured("PPO", [quick, slow], 10.0, 19.0, 10.0)}
    assert found["seeds that reach 95% of our gain, PPO"].value == 1.0
    assert found["episodes until then, PPO"].value == 200.0
    assert found["seconds until then, PPO"].value == 2.0
    assert found["gain over the prior of ours, PPO"].lowest == pytest.approx(0.2)
    never = {each.what for each in learners._measured("PPO", [slow], 10.0, 19.0, 10.0)}
    assert "episodes until then, PPO" not in never


def test_the_command_shows_what_was_measured_and_writes_every_way(tmp_path, monkeypatch):
    def measured(system, seeds, passes, most, every, report):
        report(f"{system.name} {seeds} {passes} {most} {every}")
        return [Measurement("reward, ours", 536.0, 535.0, 537.0, "")], {"prior": 511.0, "ways": {"ours": []}}

    monkeypatch.setattr(learners, "bench_learners", measured)
    given = ["bench", "learners", "--seeds", "2", "--passes", "3", "--episodes", "100", "--every", "50"]
    answer = CliRunner().invoke(app, [*given, "--out", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    assert "carbon 2 3 100 50" in answer.output
    assert "reward, ours" in answer.output
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["prior"] == 511.0
    assert written["measurements"][0]["value"] == 536.0
