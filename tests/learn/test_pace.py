"""A pace changes what is proposed and nothing else: it earns more, and no pace whatsoever breaks the promise."""

from __future__ import annotations

import dataclasses
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from adversary import HostileSystem, draw, hostile_policy
from tether import NetworkPolicy, PacedPolicy, Reason, load_policy
from tether.learn.paced import UNPACED
from tether.learn.search import Found
from tether.simulate.eager import eager

ENV = tether.envs.Carbon()
CERTIFICATE = tether.LipschitzCertificate(ENV.contract(2.0, 2.0), ENV.sensitivity)
OBSERVATION = np.array([4.0, 3.0, 0.0, 0.5])


def greedy(observation, key):
    """Works off a third of the demand."""
    return 0.3 * observation[0]


def paced(policy=greedy, seed=0, size=1.0, **changes):
    rng = np.random.default_rng(seed)
    made = PacedPolicy(
        policy, size * rng.normal(size=1 + 3 + 4), np.array([4.0, 1.0, 2.0]), np.ones(4), 2.0 * np.ones(4), ()
    )
    return dataclasses.replace(made, **changes)


def guard():
    return tether.Guard(CERTIFICATE, ENV.prior, low=0.0)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), size=st.sampled_from([0.1, 1.0, 100.0]))
def test_numpy_and_jax_have_the_same_share_between_0_and_1(seed, size):
    policy = paced(seed=seed, size=size)
    seen = np.random.default_rng(seed).normal(size=7, scale=10.0)
    share = float(policy.share(seen))
    with jax.enable_x64(True):
        assert share == pytest.approx(float(policy.share(jnp.asarray(seen))), rel=1e-9, abs=1e-12)
    assert 0.0 <= share <= 1.0


def test_the_share_is_that_of_the_way_from_the_prior_to_the_wish():
    prior, wish = float(ENV.prior(OBSERVATION)), 0.3 * OBSERVATION[0]
    for w_0, share in ((-UNPACED, 0.0), (0.0, 0.5), (math.log(3.0), 0.75), (UNPACED, 1.0)):
        policy = paced(weights=np.array([w_0, *np.zeros(7)]))
        assert policy.propose(guard(), OBSERVATION) == pytest.approx(prior + share * (wish - prior))
        assert policy(
            np.array([*OBSERVATION, 1.0, 1.0, 1.0]), None, lambda _: (prior, None)
        ) == pytest.approx(prior + share * (wish - prior))


def test_each_weight_belongs_to_its_feature_or_entry():
    policy = paced(weights=np.zeros(8))
    seen = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    inputs = [*(np.log1p(seen[4:] / policy.units) - 1.0), *((seen[:4] - 1.0) / 2.0)]
    for i, value in enumerate(inputs):
        weights = np.zeros(8)
        weights[1 + i] = 1.0
        share = dataclasses.replace(policy, weights=weights).share(seen)
        assert share == pytest.approx(1.0 / (1.0 + math.exp(-value)))
    assert policy.share(-seen) == policy.share(-seen)  # a feature below 0 is a number, too
    assert np.isfinite(dataclasses.replace(policy, weights=np.ones(8)).share(-seen))


@pytest.mark.parametrize("wish", [math.nan, math.inf, None, "full power", [1.0, 2.0], {"power": 1.0}])
def test_what_is_no_action_is_still_told_to_the_guard(wish):
    decision_of = guard()
    proposal = paced(lambda observation, key: wish).propose(decision_of, OBSERVATION)
    decision = decision_of.act(OBSERVATION, proposal)
    assert decision.reason == Reason.INVALID_PROPOSAL
    assert decision.action == decision.prior_action


def test_a_pace_that_is_not_a_number_leaves_the_prior():
    decision_of = guard()
    policy = paced(weights=np.full(8, math.nan))
    decision = decision_of.act(OBSERVATION, policy.propose(decision_of, OBSERVATION))
    assert decision.reason == Reason.INVALID_PROPOSAL


def test_an_answer_in_brackets_is_taken_for_a_number():
    policy = paced(lambda observation, key: np.array([2.0]))
    assert isinstance(policy.propose(guard(), OBSERVATION), float)


def test_a_paced_policy_without_a_guard_is_refused():
    with pytest.raises(ValueError, match=r"propose\(guard, observation\)"):
        paced()(np.zeros(7))
    with pytest.raises(ValueError, match="reads the guard's memory"):
        tether.rollout(ENV, paced(), tether.data.synthetic_carbon(0, 2))


def test_an_action_of_another_size_is_refused_where_it_is_compiled():
    with pytest.raises(ValueError, match=r"shape \(\), the policy returned \(2,\)"):
        paced(lambda observation, key: observation[:2])(np.zeros(7), None, lambda wish: (wish, wish))


def test_a_paced_network_is_saved_and_loaded_whole(tmp_path):
    network = NetworkPolicy.fresh(
        np.zeros(4), np.ones(4), low=0.0, high=math.inf, center=4.0, width=8, seed=0
    )
    policy = paced(network, earned=(1.0, 2.0))
    policy.save(tmp_path / "paced.npz")
    again = load_policy(tmp_path / "paced.npz")
    assert again.propose(guard(), OBSERVATION) == policy.propose(guard(), OBSERVATION)
    assert again.earned == (1.0, 2.0)
    with pytest.raises(ValueError, match="holds its own policy"):
        load_policy(tmp_path / "paced.npz", greedy)


def test_the_pace_of_any_other_policy_is_saved_alone(tmp_path):
    file = tmp_path / "pace.npz"
    paced().save(file)
    assert load_policy(file, greedy).propose(guard(), OBSERVATION) == paced().propose(guard(), OBSERVATION)
    with pytest.raises(ValueError, match=r"load_policy\(path, policy\)"):
        load_policy(file)
    with np.load(file) as stored:
        np.savez(file, **{name: stored[name] for name in stored.files if name != "pace_units"})
    with pytest.raises(ValueError, match="not a policy saved by"):
        load_policy(file, greedy)


@pytest.fixture(scope="module")
def tuned():
    """Tuned on some days, with what it then earns on others, beside the policy as it is."""
    days = tether.data.synthetic_carbon(seed=0, n=60)
    policy = tether.pace(greedy, ENV, days[:30], CERTIFICATE, generations=12, candidates=8)
    return policy, days[30:]


@pytest.mark.slow
def test_a_pace_earns_more_on_other_days_and_plays_online_as_it_does_compiled(tuned):
    policy, days = tuned
    before = tether.rollout(ENV, greedy, days, CERTIFICATE, record="outcomes")
    run = tether.rollout(ENV, policy, days, CERTIFICATE)
    assert policy.earned[1] > policy.earned[0] + 1.0
    assert run.returns.mean() > before.returns.mean() + 1.0
    online = tether.Guard(CERTIFICATE, ENV.prior, low=0.0, resolution=0.0)
    for i in range(3):
        turns = eager(ENV, days[i : i + 1], lambda seen: policy.propose(online, seen), online)
        np.testing.assert_allclose([turn.action for turn in turns], run.actions[i], rtol=1e-6)


@pytest.mark.slow
def test_a_search_that_found_nothing_good_leaves_the_policy_as_it_is(tuned, monkeypatch):
    _, days = tuned
    backwards = Found(np.array([-UNPACED, *np.zeros(7)]), 0.0)
    monkeypatch.setattr("tether.learn.pace.maximise", lambda *_, **__: backwards)

    def spoilt(*arguments, **options):
        run = tether.rollout(*arguments, **options)
        return dataclasses.replace(run, rewards=run.rewards - isinstance(arguments[1], PacedPolicy) * 1e3)

    monkeypatch.setattr("tether.learn.pace.rollout", spoilt)
    again = tether.pace(greedy, ENV, days, CERTIFICATE)
    assert again.share(np.array([*OBSERVATION, 1.0, 1.0, 1.0])) == 1.0
    assert again.earned[0] == again.earned[1]


def test_wrong_requests_are_refused():
    days = tether.data.synthetic_carbon(seed=0, n=2)
    with pytest.raises(ValueError, match="candidates"):
        tether.pace(greedy, ENV, days, CERTIFICATE, candidates=3)
    with pytest.raises(TypeError, match="policy must be callable"):
        tether.pace(3.0, ENV, days, CERTIFICATE)
    short = tether.LipschitzCertificate(ENV.contract(2.0, 2.0, 12), ENV.sensitivity)
    with pytest.raises(ValueError, match="horizon of 12"):
        tether.pace(greedy, ENV, days, short)


@pytest.mark.slow
def test_no_paced_hostile_policy_breaks_the_promise_and_five_percent_given_away_is_found():
    env = HostileSystem(gains=(0.8,) * 12, actions=1)
    contract = env.contract(0.5, 1.0, 12)
    episodes = draw(env, 4_000, np.random.default_rng(0))
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    unguarded = tether.rollout(env, hostile_policy(env), episodes, record="outcomes")
    assert tether.audit(unguarded, prior, contract).violation_rate > 0.5
    rng, policy, broken = np.random.default_rng(1), hostile_policy(env), []
    count = env.states * 2 + 2 * env.actions
    for size in (0.0, 0.3, 30.0, math.nan):
        weights = size * rng.normal(size=1 + 3 + count)
        weights[0] += UNPACED if size == 0.0 else 0.0
        attacker = PacedPolicy(policy, weights, np.ones(3), np.zeros(count), np.ones(count), (1,))
        for factor in (1.0, 1.05):
            bounds = env.sensitivity
            given_away = dataclasses.replace(bounds, immediate=bounds.immediate / factor)
            certificate = tether.LipschitzCertificate(contract, given_away)
            run = tether.rollout(env, attacker, episodes, certificate, record="outcomes")
            verdict = tether.audit(run, prior, contract)
            if factor == 1.0:
                assert verdict.holds
            else:
                broken.append(not verdict.holds)
    assert any(broken)


def test_the_warnings_of_numpy_are_not_shown_for_proposals_that_are_not_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(paced(lambda observation, key: math.nan).propose(guard(), OBSERVATION))
