"""The planning policy: its plans keep what the guard will ask for, earn more than the prior, and are safe behind it."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import commands
import tether
from tether.learn.mpc import PlanningPolicy
from tether.policy import with_features

HORIZON = 5
CONTEXT = ("demand_forecast", "renewables_forecast")
SYSTEMS = {
    "carbon": (tether.envs.Carbon(context=CONTEXT), tether.data.synthetic_carbon),
    "inference": (tether.envs.Inference(context=CONTEXT), tether.data.synthetic_inference),
}


def drawn(name, count, seed=0, horizon=HORIZON, first=8, **fixed):
    """Rounds from the morning on, where an inference prior has something to gain."""
    draw = SYSTEMS[name][1](seed, count)
    series = {each: draw[each][:, first : first + horizon] for each in draw.names}
    series |= {each: np.full_like(series[each], value) for each, value in fixed.items()}
    return tether.data.add_forecast(tether.data.Episodes(series), "demand", "renewables")


def structured(env, lam, b, horizon=HORIZON):
    return tether.Structured(env.contract(lam, b, horizon), env.structure)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_state_resumed_from_its_features_has_these_features(name):
    env, _ = SYSTEMS[name]
    certificate = structured(env, 2.0, 2.0)
    guard = tether.Guard(certificate, env.prior, env.low, env.high)
    observation = np.array([4.0, 1.0, 0.0, 0.3])
    guard.act(observation, 2.0 * env.prior(observation) if name == "inference" else 1.0)
    guard.observe(2.0)
    features = guard.features(observation)
    assert features[1] + features[2] > 0.0
    opened = certificate.open(certificate.resume(features), observation)
    assert certificate.features(opened) == pytest.approx(features, abs=1e-6)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_plan_beats_the_prior_and_never_breaks_the_promise(name):
    env, _ = SYSTEMS[name]
    episodes = drawn(name, 12)
    certificate = structured(env, 2.0, 1.0)
    prior = tether.rollout(env, env.prior, episodes)
    run = tether.rollout(env, PlanningPolicy(env, certificate, episodes), episodes, certificate)
    assert tether.audit(run, prior, certificate.contract).violation_rate == 0.0
    assert run.returns.mean() > prior.returns.mean() + 1.0


def test_without_disturbances_the_plan_is_what_happens():
    """What the plan expects to earn is earned, and the guard has nothing to correct."""
    env = tether.envs.Carbon(efficiency_noise_max=0.0, drop_rate_max=0.0, context=CONTEXT)
    episodes = drawn("carbon", 6, efficiency_noise=0.0, drop_rate=0.0)
    certificate = structured(env, 2.0, 2.0)
    policy = PlanningPolicy(env, certificate, episodes)
    run = tether.rollout(env, policy, episodes, certificate)
    guard = tether.Guard(certificate, env.prior, env.low)
    with jax.enable_x64(True):
        seen = jnp.asarray(np.stack([with_features(guard, each[0]) for each in run.observations]))
        plans = jax.jit(jax.vmap(policy.plan))(seen)
    assert np.min(plans.left) > -0.05
    assert np.min(plans.left) < 0.05  # the constraint is what limits the plan
    assert np.asarray(plans.reward) == pytest.approx(run.returns, rel=0.01)
    assert np.max(np.abs(run.actions - run.proposals)) < 0.05


def test_a_plan_that_would_violate_is_held_back_by_the_guard():
    """It plans for a looser contract than it is played with; the features are those of the tight one."""
    env, _ = SYSTEMS["carbon"]
    episodes = drawn("carbon", 12)
    strict, loose = structured(env, 0.0, 0.5), structured(env, 10.0, 6.0)
    policy = PlanningPolicy(env, loose, episodes)
    prior = tether.rollout(env, env.prior, episodes)
    free = tether.rollout(env, policy, episodes, loose)
    held = tether.rollout(env, policy, episodes, strict)
    assert tether.audit(free, prior, strict.contract).violation_rate > 0.5
    assert tether.audit(held, prior, strict.contract).violation_rate == 0.0


def test_online_it_proposes_what_it_does_in_a_rollout():
    env, _ = SYSTEMS["carbon"]
    episodes = drawn("carbon", 12)
    certificate = structured(env, 2.0, 1.0)
    policy = PlanningPolicy(env, certificate, episodes)
    run = tether.rollout(env, policy, episodes, certificate)
    guard = tether.Guard(certificate, env.prior, env.low)
    for h in range(HORIZON):
        observation = run.observations[0, h]
        decision = guard.act(observation, policy.propose(guard, observation))
        assert decision.action == pytest.approx(run.actions[0, h], abs=1e-6)
        guard.observe(run.costs[0, h])


def test_scenarios_and_caution_leave_more_in_hand():
    env, _ = SYSTEMS["carbon"]
    episodes = drawn("carbon", 12)
    certificate = structured(env, 2.0, 1.0)
    guard = tether.Guard(certificate, env.prior, env.low)
    observation = tether.rollout(env, env.prior, episodes).observations[0, 0]
    actions = [
        PlanningPolicy(env, certificate, episodes, scenarios=3, caution=caution).propose(guard, observation)
        for caution in (0.0, 2.0)
    ]
    assert np.all(np.isfinite(actions))
    assert actions[0] != actions[1]


def test_what_cannot_be_planned_is_refused():
    env, _ = SYSTEMS["carbon"]
    episodes = drawn("carbon", 2)
    certificate = structured(env, 2.0, 2.0)
    with pytest.raises(ValueError, match="add demand_forecast, renewables_forecast to the context of Carbon"):
        PlanningPolicy(dataclasses.replace(env, context=()), certificate, episodes)
    with pytest.raises(ValueError, match="does not name temperatures"):
        PlanningPolicy(tether.envs.Cooling(), certificate, episodes)
    lipschitz = tether.LipschitzCertificate(env.contract(2.0, 2.0, HORIZON), env.sensitivity)
    with pytest.raises(TypeError, match=r"needs a tether\.Structured certificate"):
        PlanningPolicy(env, lipschitz, episodes)
    with pytest.raises(ValueError, match="at most the 2 episodes, got 3"):
        PlanningPolicy(env, certificate, episodes, scenarios=3)
    with pytest.raises(ValueError, match="horizon of 5 rounds, got 4"):
        PlanningPolicy(env, certificate, drawn("carbon", 2, horizon=4))
    uneven = dataclasses.replace(env, context=(*CONTEXT, "clock_sin"))
    with pytest.raises(ValueError, match="the same number of leads"):
        PlanningPolicy(uneven, certificate, episodes).plan(jnp.zeros(4 + 4 + 3 + 1 + 4))


def test_the_command_plays_every_episode_once_through_the_guard(tmp_path, monkeypatch, capsys):
    """With the prior's action in the place of the plan, the row says what the prior's does."""
    pytest.importorskip("cvxpy")
    monkeypatch.setattr(PlanningPolicy, "__call__", lambda policy, seen, key: policy.env.prior(seen))
    monkeypatch.setattr("tether.experiments.limit_cli.PLANNED_AT_ONCE", 2)
    options = ["--lams", "2", "--episodes", "3", "--processes", "1", "--out", tmp_path]
    code, out, _ = commands.run(monkeypatch, capsys, "limit", "carbon", "--plan", *options)
    assert code == 0, out
    rows = {row["policy"]: row for row in json.loads((tmp_path / "results.json").read_text())["rows"]}
    assert rows["mpc structured forecast"]["reward"] == pytest.approx(rows["prior"]["reward"])
    assert rows["mpc structured forecast"]["violations"] == 0.0
