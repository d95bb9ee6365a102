from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether.envs import Carbon
from tether.systems.carbon.env import CarbonState

ENV = Carbon()


def in_plain_python(episode, actions):
    """The equations of the paper's appendix, one number at a time."""
    x, before, rewards, costs = 0.0, None, [], []
    for mu, c, n1, n2, a in zip(*episode, actions, strict=True):
        x = min(15.0, max(0.0, (1 - n2) * x + mu - (0.8 + n1) * a))
        reward = -(max(a - c, 0.0) ** 2) + 16.0 * math.sqrt((0.8 + n1) * a)
        rewards.append(reward - (0.0 if before is None else 0.1 * (a - before) ** 2))
        costs.append(x * x + x + 1.0)
        before = a
    return rewards, costs


@pytest.mark.parametrize(
    "effort", [0.1, 0.5, 1.5]
)  # so little that the backlog is full; so much that it is empty
def test_rewards_and_costs_are_those_of_the_equations(effort):
    episodes = tether.data.synthetic_carbon(seed=3, n=20)
    run = tether.rollout(ENV, lambda observation, key: effort * observation[0], episodes)
    for i in range(20):
        drawn = [episodes[name][i] for name in ENV.series]
        rewards, costs = in_plain_python(drawn, run.actions[i])
        np.testing.assert_allclose(run.rewards[i], rewards, rtol=1e-12)
        np.testing.assert_allclose(run.costs[i], costs, rtol=1e-12)


def test_the_prior_clears_everything_when_nothing_is_random():
    calm = tether.data.Episodes(
        {
            "demand": [[3.0] * 24],
            "renewables": [[2.0] * 24],
            "efficiency_noise": [[0.0] * 24],
            "drop_rate": [[0.0] * 24],
        }
    )
    run = tether.rollout(ENV, ENV.prior, calm)
    np.testing.assert_allclose(run.costs, 1.0, atol=1e-12)
    np.testing.assert_allclose(run.actions, 3.75)


@settings(max_examples=300, deadline=None)
@given(
    backlogs=st.tuples(st.floats(0.0, 15.0), st.floats(0.0, 15.0)),
    action=st.floats(0.0, 30.0),
    demand=st.lists(st.floats(0.0, 6.0), min_size=3, max_size=3),
    noise=st.lists(st.one_of(st.floats(-0.2, 0.2), st.sampled_from([-0.2, 0.2])), min_size=3, max_size=3),
    drop=st.lists(st.one_of(st.floats(0.0, 0.1), st.sampled_from([0.0, 0.1])), min_size=3, max_size=3),
)
def test_the_sensitivity_bounds_what_a_deviation_does(backlogs, action, demand, noise, drop):
    bounds, rho = ENV.sensitivity, ENV.sensitivity.perturbation.rho

    def drawn(h):
        return {"demand": demand[h], "renewables": 1.0, "efficiency_noise": noise[h], "drop_rate": drop[h]}

    def prior(state, h):
        return ENV.prior(ENV.observe(state, drawn(h)))

    start = CarbonState(backlogs[0], 0.0, 1.0)
    usual = ENV.step(start, drawn(0), prior(start, 0))
    other = ENV.step(start, drawn(0), action)
    deviation = abs(action - prior(start, 0))
    assert abs(other.cost - usual.cost) <= bounds.immediate * deviation * (1 + 1e-12)
    for h, weight in ((1, 1.0), (2, rho)):
        usual = ENV.step(usual.state, drawn(h), prior(usual.state, h))
        other = ENV.step(other.state, drawn(h), prior(other.state, h))
        assert abs(other.cost - usual.cost) <= bounds.carried * weight * deviation * (1 + 1e-12) + 1e-12

    first, second = (
        ENV.step(s, drawn(0), prior(s, 0)).state for s in (CarbonState(x, 0.0, 1.0) for x in backlogs)
    )
    assert abs(first.backlog - second.backlog) <= rho * abs(backlogs[0] - backlogs[1]) + 1e-12


def test_the_constants_follow_from_the_parameters():
    assert ENV.sensitivity == tether.Sensitivity(31.0, 2.875, tether.geometric(0.25))
    assert Carbon(drop_rate_max=0.5).sensitivity.perturbation.rho == 0.5
    assert Carbon(backlog_max=5.0).sensitivity.immediate == 11.0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "demand",
            6.5,
            r"demand must be between 0 and 6 for the constants of Carbon to hold; at .* \(0, 1\) it is 6.5",
        ),
        ("drop_rate", -0.1, r"drop_rate must be between 0 and 0\.1"),
        ("efficiency_noise", 0.3, "efficiency_noise must be between -0.2 and 0.2"),
        ("renewables", -1.0, "renewables must be between 0 and inf"),
    ],
)
def test_episodes_beyond_the_assumptions_are_refused(name, value, message):
    series = {each: np.zeros((1, 24)) for each in ENV.series}
    series[name][0, 1] = value
    with pytest.raises(ValueError, match=message):
        ENV.check(tether.data.Episodes(series))


def test_missing_series_are_named():
    with pytest.raises(ValueError, match=r"Carbon needs the series .*; efficiency_noise, drop_rate missing"):
        ENV.check(tether.data.Episodes({"demand": np.ones((1, 24)), "renewables": np.ones((1, 24))}))
    with pytest.raises(TypeError, match=r"episodes must be tether\.data\.Episodes, got dict"):
        ENV.check({})


@pytest.mark.parametrize(
    "change", [{"efficiency": 0.0}, {"efficiency_noise_max": 0.9}, {"drop_rate_max": 1.5}]
)
def test_an_impossible_system_is_refused(change):
    with pytest.raises(ValueError, match="must"):
        Carbon(**change)


def test_context_is_appended_to_the_observation_and_leaves_the_prior_alone():
    plain = tether.data.synthetic_carbon(seed=0, n=5)
    forecast = np.arange(5 * 24 * 3.0).reshape(5, 24, 3)
    extra = {"clock_sin": np.full((5, 24), 0.25), "demand_forecast": forecast}
    episodes = tether.data.Episodes({name: plain[name] for name in plain.names} | extra)
    env = Carbon(context=("clock_sin", "demand_forecast"))
    run = tether.rollout(env, env.prior, episodes)
    assert run.observations.shape == (5, 24, 8)
    np.testing.assert_array_equal(run.observations[..., 4], 0.25)
    np.testing.assert_array_equal(run.observations[..., 5:], forecast)
    np.testing.assert_allclose(run.costs, tether.rollout(ENV, ENV.prior, plain).costs, rtol=1e-12)
    with pytest.raises(ValueError, match="clock_sin, demand_forecast missing"):
        tether.rollout(env, env.prior, plain)
