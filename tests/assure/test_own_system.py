"""A system that no package installs: every command and class that tries, bounds or plans takes it."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

import tether
from commands import run
from tank import Tank, TankStructure, draw, system
from tether.assure.hostile import Greedy, Uniform, guard_study
from tether.assure.limit import hindsight_limit
from tether.assure.safe_sets import safe_sets
from tether.certificates import Shadowing, Structured
from tether.learn.mpc import PlanningPolicy
from tether.simulate.eager import eager

ENV = Tank()
NAME = "tank:system"


def test_the_attack_is_one_and_a_loosened_bound_breaks_the_promise(tmp_path, monkeypatch, capsys):
    few = ("--lams", 0, "--bs", 0.01, "--episodes", 800, "--batch", 400, "--out", tmp_path)
    code, out, err = run(monkeypatch, capsys, "attack", NAME, "--precision", "float32", *few)
    assert code == 0, out + err
    (found,) = json.loads((tmp_path / "results.json").read_text())["attacks"]
    assert found["violations"] == 0
    assert found["unguarded"] > 0.5
    code, out, err = run(monkeypatch, capsys, "attack", NAME, "--loosen", "floor", *few)
    assert code == 0, out + err
    assert "floor loosened by 0.05: found" in out
    code, _, err = run(monkeypatch, capsys, "attack", NAME, "--loosen", "above", *few)
    assert code == 2
    assert "'now', 'later', 'floor', 'apart', 'all'" in err


def test_the_constants_are_searched_and_too_small_ones_refuted(tmp_path, monkeypatch, capsys):
    little = ("--samples", 256, "--generations", 5, "--claims", "p(1)", "--out", tmp_path)
    assert run(monkeypatch, capsys, "verify", NAME, *little)[0] == 0
    code, _, err = run(monkeypatch, capsys, "verify", NAME, "--rho", 0.4, *little)
    assert code == 1, err
    code, out, _ = run(monkeypatch, capsys, "verify", "--replay", tmp_path / "counterexample-p(1).json")
    assert code == 1
    assert "Refuted" in out


def test_the_limit_of_a_system_without_a_program_says_that_it_is_not_proven(tmp_path, monkeypatch, capsys):
    options = ("--lams", 0.5, "--bs", 0.5, "--episodes", 2, "--processes", 1, "--out", tmp_path)
    code, out, err = run(monkeypatch, capsys, "limit", NAME, *options)
    assert code == 0, out + err
    assert "NOT a proven upper bound" in " ".join(out.split())
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["proven"] is False
    rows = {row["policy"]: row["reward"] for row in results["rows"]}
    assert rows["prior"] < rows["attained"] == rows["limit"]


def test_wrong_constants_are_played_with(tmp_path, monkeypatch, capsys):
    options = ("--b", 0.2, "--episodes", 4, "--seeds", 1, "--out", tmp_path)
    code, out, err = run(monkeypatch, capsys, "sensitivity", NAME, *options)
    assert code == 0, out + err
    results = json.loads((tmp_path / "results.json").read_text())
    assert "greedy" in results["learners"]


@pytest.mark.parametrize("command", ["attack", "verify", "sensitivity", "limit"])
def test_what_is_not_a_system_is_one_line(command, tmp_path, monkeypatch, capsys):
    for name in ("tank:draw", "tank:nothing", "nowhere:system"):
        code, _, err = run(monkeypatch, capsys, command, name, "--out", tmp_path)
        assert code == 2
        assert len(err.strip().splitlines()) == 1


def test_the_greedy_learner_takes_the_best_of_each_round_whatever_the_shape_of_an_action():
    with jax.enable_x64(True):
        assert float(Greedy(ENV)(np.array([0.5, 2.0]))) == pytest.approx(0.0, abs=1e-9)
        cooling = tether.envs.Cooling()
        free = np.array([3.0, 2.0, 30.0, 0.2, 25.0, 23.0])
        np.testing.assert_allclose(Greedy(cooling)(free), 0.0, atol=1e-9)

        @dataclasses.dataclass(frozen=True)
        class Coupled(tether.envs.Cooling):
            """Whose reward is largest where 2 (a_1 - 2) = a_2 and 2 (a_2 - 3) = a_1."""

            def step(self, state, drawn, action):
                step = super().step(state, drawn, action)
                one, two = action[..., 0], action[..., 1]
                return step._replace(reward=-((one - 2.0) ** 2) - (two - 3.0) ** 2 + one * two)

        np.testing.assert_allclose(Greedy(Coupled())(free), [14.0 / 3.0, 16.0 / 3.0], rtol=0.02)
    study = guard_study(ENV, ENV.contract(0.2, 0.1), lambda seed: draw(seed, 20), [0], rules=["tight"])
    rates = {(row["learner"], row["guard"]): row["violation_rates"][0] for row in study["rows"]}
    assert rates["greedy", "none"] > 0.5
    assert rates["greedy", "tight"] == rates["random", "tight"] == 0.0
    low, high = Uniform.of(ENV).ends
    assert (low, high) == (0.0, 3.0)


def test_safe_sets_of_vectors_have_an_entry_for_each_of_the_action():
    env = tether.envs.Cooling()
    contract = env.contract(0.5, 0.5)
    pictures = [
        safe_sets(env, tether.data.synthetic_cooling(0, 1), each)
        for each in (
            tether.LipschitzCertificate(contract, env.sensitivity),
            Structured(contract, env.structure),
        )
    ]
    from tether.paper.figures import safe_sets_figure

    for each in pictures:
        assert each.low.shape == each.high.shape == each.played.shape == (24, 2)
        assert np.all(each.low <= each.prior + 1e-9)
        assert np.all(each.prior <= each.high + 1e-9)
    assert np.sum(pictures[1].high - pictures[1].low) > np.sum(pictures[0].high - pictures[0].low)
    assert len(safe_sets_figure(pictures, "cooling").axes) == 4


def test_shadowing_replays_the_prior_and_says_what_an_observation_must_show():
    certificate = Shadowing(ENV.contract(0.5, 0.2), ENV.structure, ENV)
    guard = tether.Guard(certificate, ENV.prior, ENV.low, ENV.high)
    episode = draw(0, 1)
    prior = [turn.cost for turn in eager(ENV, episode, ENV.prior)]
    costs = []
    for turn in eager(ENV, episode, lambda observation: 0.0, guard, reveal=True):
        costs.append(turn.cost)
        assert guard._state.shadow.known
    assert tether.audit([costs], [prior], certificate.contract).holds

    @dataclasses.dataclass(frozen=True)
    class Blind(Tank):
        observation_names = ("flow", "level")

    with pytest.raises(ValueError, match=r"needs inflow, which the observation .* of Blind does not name"):
        Shadowing(ENV.contract(0.5, 0.2), ENV.structure, Blind())
    with pytest.raises(ValueError, match="a plan needs to see"):
        PlanningPolicy(Blind(), Structured(ENV.contract(0.5, 0.2), ENV.structure), draw(0, 2))


def test_a_plan_for_any_system_earns_more_than_the_prior_and_keeps_the_promise():
    env = Tank(context=("inflow_forecast",))
    episodes = tether.data.add_forecast(draw(0, 4), "inflow")
    certificate = Structured(env.contract(0.5, 0.3), env.structure)
    policy = PlanningPolicy(env, certificate, episodes, updates=6)
    assert policy.rate == pytest.approx(0.15)  # a twentieth of the actions' range
    prior = tether.rollout(env, env.prior, episodes)
    planned = tether.rollout(env, policy, episodes, certificate)
    assert tether.audit(planned, prior, certificate.contract).violation_rate == 0.0
    assert np.all(planned.returns > prior.returns + 0.5)

    class Untold(TankStructure):
        def gaps_from_features(self, above, below):
            return super(TankStructure, self).gaps_from_features(above, below)

    with pytest.raises(ValueError, match=r"write Untold\.gaps_from_features"):
        PlanningPolicy(env, Structured(env.contract(0.5, 0.3), Untold()), episodes)


def test_without_a_finite_range_of_actions_the_error_says_where_to_write_one():
    @dataclasses.dataclass(frozen=True)
    class Open(Tank):
        high = np.inf

    with pytest.raises(ValueError, match=r'for "action" in Open\.search_ranges'):
        Open().action_range()
    prior = tether.rollout(ENV, ENV.prior, draw(0, 2))
    found = hindsight_limit(ENV, draw(0, 2), ENV.contract(0.2, 0.1), prior.costs, processes=1)
    assert not found.proven
    assert np.all(found.attained >= prior.returns)
    assert system.program is None
