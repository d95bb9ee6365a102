from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from tether.simulate import rollout as module

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ENV = tether.envs.Carbon()
EPISODES = tether.data.synthetic_carbon(seed=0, n=64)


def certificate(rule="tight", lam=2.0, b=2.0, horizon=24, bounds=None):
    return tether.LipschitzCertificate(ENV.contract(lam, b, horizon), bounds or ENV.sensitivity, rule)


def idle(observation, key):
    return 0.0


def noisy(observation, key):
    return ENV.prior(observation) + jax.random.normal(key)


def play_online(episodes, i, propose, rule_certificate):
    """One episode in plain NumPy, round by round, through the online guard."""
    guard = tether.Guard(rule_certificate, ENV.prior, low=ENV.low, high=ENV.high, resolution=0.0)
    state, decisions = ENV.initial(), []
    for h in range(episodes.horizon):
        drawn = {name: episodes[name][i, h] for name in ENV.series}
        observation = ENV.observe(state, drawn)
        decision = guard.act(observation, propose(observation))
        state, _, cost = ENV.step(state, drawn, decision.action)
        guard.observe(cost)
        decisions.append(decision)
    return decisions


@pytest.mark.parametrize("rule", ["paper", "released", "tight"])
@pytest.mark.parametrize("tabled", [False, True])
def test_the_online_guard_and_the_compiled_rollout_decide_alike(rule, tabled):
    bounds = ENV.sensitivity
    if tabled:
        p = tether.table([0.25**n for n in range(24)])
        bounds = tether.Sensitivity(bounds.immediate, bounds.carried, p)
    each = certificate(rule, bounds=bounds)

    def greenest(observation, key=None):
        return observation[1] + 1.0

    run = tether.rollout(ENV, greenest, EPISODES, each)
    for i in range(8):
        decisions = play_online(EPISODES, i, greenest, each)
        for name, field in (
            ("actions", "action"),
            ("prior_actions", "prior_action"),
            ("radii", "radius"),
            ("margins", "margin"),
            ("deviations", "deviation"),
        ):
            online = [getattr(decision, field) for decision in decisions]
            np.testing.assert_allclose(getattr(run, name)[i], online, rtol=1e-9, atol=1e-9)
        assert [d.intervened for d in decisions] == list(run.actions[i] != run.proposals[i])


def test_everything_is_recorded_with_its_shape():
    run = tether.rollout(ENV, idle, EPISODES, certificate())
    for name in (
        "rewards",
        "costs",
        "actions",
        "proposals",
        "prior_actions",
        "deviations",
        "radii",
        "margins",
    ):
        assert getattr(run, name).shape == (64, 24), name
    assert run.observations.shape == (64, 24, 4)
    assert run.breached.shape == (64,)
    assert not run.breached.any()
    assert np.all(run.deviations <= run.radii)
    assert np.all(run.margins >= 0.0)


def test_outcomes_alone_are_the_same_outcomes():
    everything = tether.rollout(ENV, idle, EPISODES, certificate())
    outcomes = tether.rollout(ENV, idle, EPISODES, certificate(), record="outcomes")
    np.testing.assert_allclose(everything.costs, outcomes.costs, rtol=1e-12)
    np.testing.assert_allclose(everything.rewards, outcomes.rewards, rtol=1e-12)
    assert outcomes.actions is None


def test_unguarded_actions_are_clipped_to_the_box_only():
    run = tether.rollout(ENV, lambda observation, key: -1.0, EPISODES)
    assert np.all(run.actions == 0.0)
    assert np.all(run.proposals == -1.0)
    assert np.all(np.isinf(run.radii))
    assert np.all(np.isnan(run.margins))
    assert run.breached is None


def test_the_seed_decides_what_a_random_policy_does():
    first, again, other = (tether.rollout(ENV, noisy, EPISODES, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.actions, again.actions)
    assert not np.array_equal(first.actions, other.actions)
    assert len(np.unique(first.proposals - first.prior_actions)) > 1000  # a new key each round and episode


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_proposals_that_are_not_finite_become_the_priors_action(value):
    run = tether.rollout(ENV, lambda observation, key: value, EPISODES, certificate())
    prior = tether.rollout(ENV, ENV.prior, EPISODES)
    np.testing.assert_allclose(run.costs, prior.costs, rtol=1e-12)


def test_a_wrong_floor_is_noticed_and_the_prior_takes_over():
    claimed = tether.LipschitzCertificate(tether.Contract(2.0, 2.0, 24, cost_floor=1.5), ENV.sensitivity)
    run = tether.rollout(ENV, idle, EPISODES, claimed)
    np.testing.assert_array_equal(run.breached, np.any(run.costs < 1.5, axis=1))
    assert np.mean(run.breached) > 0.5
    first = np.argmax(run.costs < 1.5, axis=1)
    np.testing.assert_array_equal(run.uncertified_from, np.where(run.breached, first + 1, 25))
    prior = tether.rollout(ENV, ENV.prior, EPISODES)
    np.testing.assert_array_equal(
        tether.audit(run, prior, claimed.contract).certified, np.minimum.accumulate(run.costs >= 1.5, axis=1)
    )
    for i in np.flatnonzero(run.breached):
        assert np.all(run.radii[i, first[i] + 1 :] == 0.0)
        np.testing.assert_array_equal(run.actions[i, first[i] + 1 :], run.prior_actions[i, first[i] + 1 :])
        assert np.all(np.isnan(run.margins[i, first[i] + 1 :]))


def test_global_precision_is_left_alone():
    assert tether.rollout(ENV, idle, EPISODES).costs.dtype == np.float64
    assert tether.rollout(ENV, idle, EPISODES, precision="float32").costs.dtype == np.float32
    assert jnp.zeros(()).dtype == jnp.float32


def test_other_numbers_of_a_dataclass_compile_nothing_new():
    """As of a policy that was loaded: nobody has made its class known to JAX before."""
    traces = []

    @dataclasses.dataclass(frozen=True)
    class Part:
        tree_numbers: ClassVar[tuple[str, ...]] = ("part",)
        part: np.ndarray

        def __call__(self, observation, key):
            traces.append(1)
            return self.part * observation[0]

    rewards = [tether.rollout(ENV, Part(np.array(0.5)), EPISODES).returns]
    first = len(traces)
    rewards.append(tether.rollout(ENV, Part(np.array(0.6)), EPISODES).returns)
    assert first == len(traces) > 0
    assert not np.allclose(*rewards)


def test_other_weights_and_other_contracts_compile_nothing_new():
    policy = eqx.nn.MLP(4, 1, 8, 1, key=jax.random.key(0))
    other = jax.tree.map(lambda leaf: 2.0 * leaf if eqx.is_array(leaf) else leaf, policy)
    traces = []

    class Counted(eqx.Module):
        network: eqx.nn.MLP

        def __call__(self, observation, key):
            traces.append(1)
            return self.network(observation)

    for network, lam in ((policy, 0.0), (other, 2.0), (policy, 5.0)):
        tether.rollout(ENV, Counted(network), EPISODES, certificate(lam=lam))
    first = len(traces)
    tether.rollout(ENV, Counted(other), EPISODES, certificate(lam=7.0, b=1.0))
    assert first == len(traces) > 0


def test_gradients_flow_through_the_guarded_rollout():
    each = certificate()

    def total_reward(shift):
        drawn = {name: jnp.asarray(EPISODES[name].T) for name in ENV.series}
        played = module.play(ENV, lambda o, key: ENV.prior(o) - shift, drawn, each, 0, "outcomes")
        return jnp.sum(played["rewards"])

    with jax.enable_x64(True):
        slope, step = float(jax.grad(total_reward)(0.01)), 1e-5
        difference = float(total_reward(0.01 + step) - total_reward(0.01 - step)) / (2.0 * step)
    assert slope == pytest.approx(difference, rel=1e-3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tether.rollout(ENV, 3.0, EPISODES), TypeError, "policy must be callable"),
        (
            lambda: tether.rollout(ENV, lambda o, k: o, EPISODES),
            ValueError,
            r"has shape \(\), the policy returned \(4,\)",
        ),
        (
            lambda: tether.rollout(ENV, idle, EPISODES, certificate(horizon=12)),
            ValueError,
            "the certificate is for a horizon of 12 rounds, the episodes have 24",
        ),
        (
            lambda: tether.rollout(ENV, idle, EPISODES, precision="half"),
            ValueError,
            "precision must be one of",
        ),
        (lambda: tether.rollout(ENV, idle, EPISODES, record="some"), ValueError, "record must be one of"),
    ],
)
def test_a_rollout_that_makes_no_sense_is_refused_before_any_work(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.slow
def test_without_a_last_round_and_with_schedules_the_rollout_decides_as_the_online_guard_does():
    env = tether.envs.Carbon()
    episodes = tether.data.synthetic_carbon(seed=0, n=2)
    contract = tether.Contract(tether.periodic([1.0, 2.0]), tether.periodic([0.0, 1.0, 2.0]), math.inf, 1.0)
    certificate = tether.LipschitzCertificate(contract, env.sensitivity)
    run = tether.rollout(
        env, lambda observation, _key: 0.3 * observation[3], episodes, certificate=certificate
    )
    assert tether.audit(run, tether.rollout(env, env.prior, episodes), contract).holds
    guard = tether.Guard(certificate, env.prior, env.low, env.high, env.norm, resolution=0.0)
    for h in range(24):
        seen = run.observations[0, h]
        decision = guard.act(seen, 0.3 * seen[3])
        guard.observe(run.costs[0, h])
        assert decision.action == pytest.approx(float(run.actions[0, h]), rel=1e-12)


def test_a_proposal_beyond_the_edge_is_told_where_less_would_be_better_and_only_there():
    """Its own derivative is 0 there: a learner that proposes too much in every round would do so for ever."""
    drawn = {name: jnp.asarray(EPISODES[name].T) for name in ENV.series}

    def slope(sign, way):
        """Of the sum of the actions, or its opposite, by what is proposed above or below the prior's in each round."""

        def total(more):
            policy = lambda o, key: ENV.prior(o) + way * more  # noqa: E731
            played = module.play(ENV, policy, drawn, certificate(), 0, "all")
            # Of the first round alone: what it leaves behind is told by the guard's own derivative.
            return sign * jnp.sum(played["actions"][0])

        return float(jax.grad(total)(5.0))

    count = len(EPISODES)
    # Where more of it is wanted nothing is told; where less is, the proposal is told so in every episode.
    assert slope(-1.0, 1.0) == pytest.approx(0.0, abs=1e-5)
    assert slope(1.0, 1.0) == pytest.approx(count, rel=1e-5)
    assert slope(1.0, -1.0) == pytest.approx(0.0, abs=1e-5)
    assert slope(-1.0, -1.0) == pytest.approx(count, rel=1e-5)
