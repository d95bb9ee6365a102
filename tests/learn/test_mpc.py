"""The planning policy: its plans keep what the guard will ask for, earn more than the prior, and are safe behind it."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from tether.core.ops import FLOAT64, FLOATS
from tether.learn.mpc import PlanningPolicy, _Problem
from tether.learn.policy import with_features

pytestmark = pytest.mark.usefixtures("compiled_quickly")

HORIZON = 24
CONTEXT = ("demand_forecast", "renewables_forecast")
CARBON, INFERENCE = tether.envs.Carbon(context=CONTEXT), tether.envs.Inference(context=CONTEXT)
# All tests, and docs/train.md, share one compiled rollout: 4 episodes and 4 updates, of plans for mean disturbances.
EPISODES = tether.data.add_forecast(tether.data.synthetic_carbon(0, 4), "demand", "renewables")


def structured(env, lam, b, horizon=HORIZON):
    return tether.Structured(env.contract(lam, b, horizon), env.structure)


def planned(lam, b, episodes=EPISODES):
    certificate = structured(CARBON, lam, b)
    return certificate, PlanningPolicy(CARBON, certificate, episodes, updates=4)


def test_the_gaps_of_rooms_are_those_of_the_features():
    structure = tether.envs.Cooling().structure
    seen = structure.read([3.0, 2.0, 30.0, 0.2, 25.0, 23.0])
    gaps = structure.refine(structure.gaps_from_features(0.7, 0.2), seen, FLOAT64, FLOATS)
    assert structure.gap_features(gaps, FLOATS) == pytest.approx((0.7, 0.2))


@pytest.mark.parametrize("env", [CARBON, INFERENCE])
def test_a_state_resumed_from_its_features_has_these_features(env):
    certificate = structured(env, 2.0, 2.0)
    guard = tether.Guard(certificate, env.prior, env.low, env.high)
    observation = np.array([4.0, 1.0, 0.0, 0.3])
    guard.act(observation, 2.0 * env.prior(observation) if env is INFERENCE else 1.0)
    guard.observe(2.0 if env is CARBON else 0.0)
    features = guard.features(observation)
    assert features[1] + features[2] > 0.0
    opened = certificate.open(certificate.resume(features), observation)
    assert certificate.features(opened) == pytest.approx(features, abs=1e-6)


def test_the_plan_beats_the_prior_keeps_the_promise_and_is_the_same_online():
    certificate, policy = planned(2.0, 2.0)
    prior = tether.rollout(CARBON, CARBON.prior, EPISODES)
    run = tether.rollout(CARBON, policy, EPISODES, certificate)
    assert tether.audit(run, prior, certificate.contract).violation_rate == 0.0
    assert np.all(run.returns > prior.returns + 10.0)
    guard = tether.Guard(certificate, CARBON.prior, CARBON.low, resolution=0.0)
    for observation, action, cost in zip(run.observations[0], run.actions[0], run.costs[0], strict=True):
        assert guard.act(observation, policy.propose(guard, observation)).action == pytest.approx(
            action, abs=1e-6
        )
        guard.observe(cost)


def test_without_disturbances_the_guard_has_next_to_nothing_to_correct():
    quiet = tether.data.Episodes(
        {name: EPISODES[name] * (name not in CARBON.hidden) for name in EPISODES.names}
    )
    certificate, policy = planned(0.0, 1.0, quiet)
    run = tether.rollout(CARBON, policy, quiet, certificate)
    assert np.mean(np.abs(run.actions - run.proposals)) < 0.02
    assert np.min(run.margins) < 0.5  # though the constraint is what limits the plan


def test_a_plan_that_would_violate_is_held_back_by_the_guard():
    """It plans for a looser contract than it is played with."""
    loose, policy = planned(10.0, 6.0)
    strict = structured(CARBON, 0.0, 0.5)
    prior = tether.rollout(CARBON, CARBON.prior, EPISODES)
    free = tether.rollout(CARBON, policy, EPISODES, loose)
    held = tether.rollout(CARBON, policy, EPISODES, strict)
    assert tether.audit(free, prior, strict.contract).violation_rate == 1.0
    assert tether.audit(held, prior, strict.contract).violation_rate == 0.0


def test_a_plan_for_inference_earns_more_than_the_prior_and_leaves_what_the_certificate_asks():
    episodes = tether.data.add_forecast(tether.data.synthetic_inference(0, 4), "demand", "renewables")
    certificate = structured(INFERENCE, 5.0, 6.0)
    policy = PlanningPolicy(INFERENCE, certificate, episodes)
    run = tether.rollout(INFERENCE, INFERENCE.prior, episodes)
    guard = tether.Guard(certificate, INFERENCE.prior, INFERENCE.low, INFERENCE.high)
    with jax.enable_x64(True):
        seen = jnp.asarray(with_features(guard, run.observations[0, 0]))
        plan = jax.tree.map(np.asarray, eqx.filter_jit(PlanningPolicy.plan)(policy, seen))
    assert np.min(plan.left) > -0.02
    assert plan.reward > run.returns[0] + 1.0


def test_a_plan_for_vectors_earns_more_than_the_prior_and_keeps_the_promise():
    series = ("heat_load", "outside", "price")
    env = tether.envs.Cooling(context=tuple(f"{name}_forecast" for name in series))
    episodes = tether.data.add_forecast(tether.data.synthetic_cooling(0, 2, 12), *series)
    certificate = structured(env, 0.5, 0.5, horizon=12)
    prior = tether.rollout(env, env.prior, episodes)
    run = tether.rollout(env, PlanningPolicy(env, certificate, episodes, updates=4), episodes, certificate)
    assert tether.audit(run, prior, certificate.contract).violation_rate == 0.0
    assert np.all(run.returns > 0.9 * prior.returns)  # what electricity costs, which is negative


def test_beyond_the_end_nothing_is_earned():
    certificate = structured(CARBON, 2.0, 2.0)
    guard = tether.Guard(certificate, CARBON.prior, CARBON.low)
    seen = with_features(guard, tether.rollout(CARBON, CARBON.prior, EPISODES).observations[0, 0])
    last_round = np.append(seen[:-1], 1.0)

    @eqx.filter_jit
    def foresee(policy, observation):
        return _Problem(policy, observation).foresee(jnp.full(HORIZON, -0.1))

    policy = PlanningPolicy(CARBON, certificate, EPISODES)
    assert foresee(policy, jnp.asarray(last_round))[0] < 40.0 < foresee(policy, jnp.asarray(seen))[0]


def test_what_cannot_be_planned_is_refused():
    env, episodes = CARBON, EPISODES[:2]
    certificate = structured(env, 2.0, 2.0)
    with pytest.raises(ValueError, match="add demand_forecast, renewables_forecast to the context of Carbon"):
        PlanningPolicy(dataclasses.replace(env, context=()), certificate, episodes)
    with pytest.raises(
        ValueError, match="add heat_load_forecast, outside_forecast, price_forecast to the context"
    ):
        PlanningPolicy(tether.envs.Cooling(), certificate, episodes)
    lipschitz = tether.LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity)
    with pytest.raises(TypeError, match=r"needs a tether\.Structured certificate"):
        PlanningPolicy(env, lipschitz, episodes)
    with pytest.raises(ValueError, match="horizon of 30 rounds, got 24"):
        PlanningPolicy(env, structured(env, 2.0, 2.0, 30), episodes)
    uneven = dataclasses.replace(env, context=(*CONTEXT, "clock_sin"))
    with pytest.raises(ValueError, match="the same number of leads"):
        PlanningPolicy(uneven, certificate, episodes).plan(jnp.zeros(4 + 23 + 22 + 1 + 4))
