from __future__ import annotations

import numpy as np
import pytest

import tether
from tether import Recipe, evaluate, train
from tether.learn.train import regrets

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ENV = tether.envs.Carbon()
DATA = tether.data.synthetic_carbon(seed=0, n=150)
TEST = tether.data.synthetic_carbon(seed=1, n=200)
CERTIFICATE = tether.LipschitzCertificate(ENV.contract(2.0, 2.0), ENV.sensitivity)
RECIPE = Recipe(episodes=230, batch=25, steps=30)
GRID = {"lams": [0.0, 10.0], "bs": [2.0], "seeds": [0, 1], "recipe": RECIPE}


def explore(method, **changes):
    return train(method, ENV, DATA, CERTIFICATE, mode="online", **(GRID | changes))


@pytest.fixture(scope="module")
def acrl():
    return explore("acrl")


@pytest.fixture(scope="module")
def rl():
    return explore("rl")


def test_the_promise_holds_in_every_explored_episode_where_rl_breaks_it(acrl, rl):
    assert acrl.exploration.violations.shape == (230, 2, 2)
    assert not acrl.exploration.violations.any()
    assert acrl.exploration.margins.min() > 0.0
    broken = rl.exploration.violations
    assert np.all(broken.mean(axis=0) > 0.3)
    assert np.all(
        broken[:, 0] >= broken[:, 1]
    )  # the same episodes, judged by a stricter and by a laxer contract
    np.testing.assert_array_equal(broken, rl.exploration.margins < 0.0)


def test_what_is_recorded_is_what_the_policy_earned_in_the_true_system(acrl):
    explored = acrl.exploration
    assert explored.played.shape == (230, 2, 2)
    for i in range(2):
        mine = explored.played[:, 0, i]
        assert set(mine[:150]) == set(range(150))  # all of the data once, before any of it again
        np.testing.assert_array_equal(explored.played[:, 1, i], mine)
    assert np.any(explored.played[:, 0, 0] != explored.played[:, 0, 1])
    # The last block of 5 episodes was played by the final policy.
    for setting, (lam, b) in enumerate(acrl.settings):
        certificate = tether.LipschitzCertificate(ENV.contract(lam, b), ENV.sensitivity)
        episodes = DATA[explored.played[225:, setting, 1]]
        run = tether.rollout(ENV, acrl.policy(lam, b, 1), episodes, certificate)
        np.testing.assert_allclose(run.returns, explored.rewards[225:, setting, 1], rtol=1e-6)
        np.testing.assert_allclose(run.total_costs, explored.costs[225:, setting, 1], rtol=1e-6)


def test_regret_falls_and_more_freedom_ends_lower(acrl, rl):
    mine = regrets(acrl, ENV, DATA, rl)
    assert mine.shape == (230, 2, 2)
    assert np.all(mine[-50:].mean(axis=0) < mine[:25].mean(axis=0) - 3.0)
    assert np.all(mine[-50:, 1].mean(axis=0) < mine[-50:, 0].mean(axis=0) - 5.0)
    own = regrets(rl, ENV, DATA, rl)
    assert np.all(own[:25].mean(axis=0) > 10.0)
    np.testing.assert_allclose(own[225:], 0.0, atol=1e-4)  # played by the reference itself


def test_what_was_learned_serves_on_episodes_that_were_not_explored(acrl):
    prior = tether.rollout(ENV, ENV.prior, TEST).returns.mean()
    for score in evaluate(acrl, ENV, TEST, CERTIFICATE):
        assert score.violation_rate == 0.0
        assert score.reward > prior + (25.0 if score.lam else 10.0)


def test_history_tells_of_each_block(acrl):
    assert acrl.history.rewards.shape == (10, 2, 2)
    np.testing.assert_allclose(acrl.history.rewards[0], acrl.exploration.rewards[:25].mean(axis=0))
    np.testing.assert_allclose(acrl.history.margins[-1], acrl.exploration.margins[225:].min(axis=0))


def test_the_prior_explores_too():
    prior = tether.rollout(ENV, ENV.prior, DATA)
    trained = explore("prior")
    assert not trained.exploration.violations.any()
    np.testing.assert_allclose(trained.exploration.rewards, prior.returns[trained.exploration.played])


def test_crl_explores_unguarded_and_its_multiplier_is_reported():
    trained = explore("crl", lams=[0.0], seeds=[0])
    assert trained.exploration.violations.mean() > 0.1
    assert trained.exploration.multipliers[-1].min() > 0.0


def test_exploration_stopped_and_resumed_is_the_same_to_the_last_bit(acrl, tmp_path):
    file = tmp_path / "exploration.npz"

    def stop(done, history):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explore("acrl", checkpoint=file, report=stop)
    blocks = []
    resumed = explore("acrl", checkpoint=file, report=lambda done, history: blocks.append(done))
    assert blocks == [5, 6, 7, 8, 9, 10]
    for mine, its in zip(resumed.exploration, acrl.exploration, strict=True):
        np.testing.assert_array_equal(mine, its)
    np.testing.assert_array_equal(resumed.policies.weights[1], acrl.policies.weights[1])
    with pytest.raises(ValueError, match="is the checkpoint of another training"):
        train("acrl", ENV, DATA, CERTIFICATE, **GRID, checkpoint=file)


@pytest.mark.usefixtures("compiled_well")  # cooling's training fails without
def test_a_system_that_does_not_explain_itself_is_learned_by_an_ensemble():
    env, data = tether.envs.Cooling(), tether.data.synthetic_cooling(seed=0, n=100)
    certificate = tether.LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity)
    recipe = Recipe(episodes=100, steps=40)
    trained = train("acrl", env, data, certificate, mode="online", seeds=[0], recipe=recipe)
    assert not trained.exploration.violations.any()
    prior = tether.rollout(env, env.prior, data).returns.mean()
    assert evaluate(trained, env, data, certificate)[0].reward > prior + 2.0


def test_mistakes_are_told_before_any_work(acrl, rl):
    with pytest.raises(ValueError, match="mode must be one of"):
        train("acrl", ENV, DATA, CERTIFICATE, mode="both")
    with pytest.raises(ValueError, match="at least one block of 25 episodes, got episodes=10"):
        explore("acrl", recipe=Recipe(episodes=10, batch=25))
    with pytest.raises(ValueError, match="failure is a probability below 1"):
        Recipe(failure=1.0)
    with pytest.raises(ValueError, match="this training was offline"):
        regrets(train("prior", ENV, DATA, CERTIFICATE, seeds=[0]), ENV, DATA, rl)
    with pytest.raises(ValueError, match=r"no policies for the seeds \[1\]"):
        regrets(acrl, ENV, DATA, explore("prior", seeds=[0]))
    with pytest.raises(ValueError, match="must play unguarded"):
        regrets(acrl, ENV, DATA, acrl)
