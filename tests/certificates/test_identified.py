"""Rewards tell the carbon system's disturbances: what is concluded from them is true, and is worth something."""

from dataclasses import replace

import numpy as np
import pytest

import tether
from structures import hostile_draws
from tether.assure.attack import plants
from tether.assure.breeding import scripted
from tether.certificates import Box, Outcome, Shadowing, Structured
from tether.core.ops import NUMPY
from tether.systems import registry
from tether.systems.certified import certificate_of

PLANTS = plants(registry.find("carbon"))
CONTRACTS = ((0.0, 0.01), (2.0, 2.0), (10.0, 6.0))


def played(env, certificate, episodes, told=lambda reward: reward):
    """What hostile scripts lead to behind the guard, [N] each: worst falsehood of a gap, of the account, worst excess.

    And the mean width of what is known of the prior's backlog.
    """
    count, horizon = episodes["demand"].shape
    script = np.where(np.abs(episodes["script"]) >= 1e20, 10.0, episodes["script"])
    zero = np.zeros(count)
    own = prior = type(env.initial())(*(zero + number for number in env.initial()))
    memory, box = certificate.start(NUMPY, zero), Box(env.low, env.high, env.norm)
    lam, b = certificate.contract.lam, certificate.contract.b
    false, short, worst, widths = zero - np.inf, zero - np.inf, zero - np.inf, []
    spent = trusted = zero
    for h in range(horizon):
        drawn = {name: episodes[name][:, h] for name in env.series}
        observation = env.observe(own, drawn)
        trust = env.prior(np.moveaxis(observation, 0, -1))
        opened = certificate.open(memory, observation, NUMPY)
        apart = own.backlog - prior.backlog
        false = np.maximum(false, np.maximum(apart - opened.gaps[0], -apart - opened.gaps[1]))
        widths.append(np.mean(opened.gaps[0] + opened.gaps[1]))
        choice = certificate.choose(
            opened, scripted(trust, script[:, h], *env.action_range()), trust, box, NUMPY
        )
        own, reward, cost = env.step(own, drawn, choice.action)
        prior, _, paid = env.step(prior, drawn, env.prior(np.moveaxis(env.observe(prior, drawn), 0, -1)))
        memory = certificate.update(memory, choice.taken, Outcome(cost, reward=told(reward)), NUMPY)
        spent, trusted = spent + cost, trusted + paid
        short = np.maximum(short, spent - (1.0 + lam) * trusted - memory.account)
        worst = np.maximum(worst, spent - (1.0 + lam) * trusted - (h + 1) * b)
    assert not memory.breached.any()
    return false, short, worst, float(np.mean(widths))


def draws(env, count=1500, seed=0):
    rng = np.random.default_rng(seed)
    episodes = hostile_draws(env, count, rng)
    series = {name: episodes[name] for name in episodes.names}
    # Half of them with renewables, so that carbon is counted in some rounds and in others not.
    series["renewables"] = rng.uniform(0.0, 8.0, episodes["demand"].shape) * rng.integers(0, 2, (count, 1))
    return type(episodes)(series)


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize(("lam", "b"), CONTRACTS)
def test_what_rewards_tell_is_true_and_hostile_scripts_break_nothing(name, lam, b):
    env = PLANTS[name]
    certificate = Structured(env.contract(lam, b), env.identifying)
    false, short, worst, _ = played(env, certificate, draws(env))
    size = 1.0 + env.structure.scale
    assert false.max() <= 1e-9 * size
    assert short.max() <= 1e-9 * size
    assert worst.max() <= 0.0


def test_the_same_scripts_find_it_if_five_per_cent_more_is_concluded_from_a_reward():
    env = PLANTS["standard"]
    boastful = replace(env.identifying, revenue_weight=1.05 * env.revenue_weight)
    for lam, b in CONTRACTS:
        false, _, _, _ = played(env, Structured(env.contract(lam, b), boastful), draws(env))
        assert false.max() > 1e-3


@pytest.mark.parametrize("told", [lambda r: r + 1e6, lambda r: r * np.nan, lambda r: -1e9 + 0.0 * r])
def test_a_reward_that_no_draw_explains_tells_nothing(told):
    env = PLANTS["standard"]
    contract, episodes = env.contract(2.0, 2.0), draws(env, 300)
    with_rewards = played(env, Structured(contract, env.identifying), episodes, told)
    without = played(env, Structured(contract, env.structure), episodes)
    for first, second in zip(with_rewards, without, strict=True):
        assert np.array_equal(first, second)


def test_rewards_tell_nearly_as_much_of_the_prior_as_if_every_draw_were_revealed():
    env, lam, b = tether.envs.Carbon(), 2.0, 2.0
    episodes, contract = tether.data.synthetic_carbon(seed=0, n=200), env.contract(lam, b)
    lazy = lambda observation, key: 0.5 * observation[0]  # noqa: E731
    widths = {}
    for kind in ("structured", "identified", "shadowing"):
        run = tether.rollout(env, lazy, episodes, certificate_of(kind, env, contract))
        assert tether.audit(run, tether.rollout(env, env.prior, episodes), contract).violation_rate == 0.0
        widths[kind] = np.mean(run.deviations)
    assert widths["structured"] < widths["identified"] <= widths["shadowing"] * (1.0 + 1e-3)
    gained = widths["identified"] - widths["structured"]
    assert gained > 0.5 * (widths["shadowing"] - widths["structured"])


def test_the_online_guard_uses_the_reward_it_is_told_and_is_saved_with_it():
    env = tether.envs.Carbon()
    episode = tether.data.synthetic_carbon(seed=3, n=1)
    contract = env.contract(2.0, 2.0)
    certificate = Structured(contract, env.identifying)
    guard = tether.Guard(certificate, env.prior, low=0.0)
    state, costs = env.initial(), []
    for h in range(contract.horizon):
        drawn = {name: episode[name][0, h] for name in env.series}
        decision = guard.act(env.observe(state, drawn), proposal=1.0)
        state, reward, cost = env.step(state, drawn, decision.action)
        guard.observe(cost, reward=reward)
        costs.append(float(cost))
        if h == 11:
            guard = tether.Guard.from_state_dict(guard.state_dict(), env.prior)
    run = tether.rollout(env, lambda _seen, _key: 1.0, episode, certificate)
    assert np.allclose(
        costs, run.costs[0], rtol=5e-3
    )  # online the edge of the safe set is found more exactly
    blind = tether.rollout(env, lambda _seen, _key: 1.0, episode, Structured(contract, env.structure))
    assert not np.allclose(costs, blind.costs[0], rtol=2e-2)


def test_how_exact_rewards_are_is_told_by_their_type():
    """All else is exact: what a rounded reward tells of the draw is off by as much as the reward is."""
    env = tether.envs.Carbon()
    episodes = tether.data.synthetic_carbon(seed=5, n=10)
    certificate = Structured(env.contract(2.0, 2.0), env.identifying)
    guard = tether.Guard(certificate, env.prior, low=0.0, resolution=0.0)
    for i in range(len(episodes)):
        own = prior = env.initial()
        for h in range(episodes.horizon):
            drawn = {name: float(episodes[name][i, h]) for name in env.series}
            decision = guard.act(env.observe(own, drawn), 0.6 * drawn["demand"])
            own, reward, cost = env.step(own, drawn, decision.action)
            prior, _, _ = env.step(prior, drawn, env.prior(env.observe(prior, drawn)))
            guard.observe(float(cost), reward=np.float32(reward))
            (above, below), apart = guard._state.gaps, own.backlog - prior.backlog
            assert -below - 1e-12 <= apart <= above + 1e-12
        guard.reset()


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.1])
def test_a_plant_that_ran_before_may_count_switching_in_the_first_round(noise):
    """Nothing was spent in the hour before: that does not tell that there was none."""
    env = tether.envs.Carbon()
    guard = tether.Guard(Structured(env.contract(2.0, 2.0), env.identifying), env.prior, low=0.0)
    own = prior = env.initial()._replace(rounds=5.0)
    excess = 0.0
    for h in range(6):
        drawn = {"demand": 4.0, "renewables": 8.0, "efficiency_noise": 0.0, "drop_rate": 0.0}
        if h == 0:
            drawn["efficiency_noise"] = -noise
        seen = env.observe(own, drawn)
        decision = guard.act(seen, 1.35 * env.prior(seen) if h == 0 else 0.0)
        own, reward, cost = env.step(own, drawn, decision.action)
        prior, _, paid = env.step(prior, drawn, env.prior(env.observe(prior, drawn)))
        guard.observe(float(cost), reward=float(reward))
        excess += cost - 3.0 * paid
        assert excess <= guard._state.account + 1e-9
        assert excess <= 2.0 * (h + 1)


def test_shadowing_may_be_asked_of_a_structure_that_identifies():
    env, contract = tether.envs.Carbon(), tether.envs.Carbon().contract(2.0, 2.0)
    episodes = tether.data.synthetic_carbon(seed=1, n=20)
    lazy = lambda observation, key: 0.5 * observation[0]  # noqa: E731
    runs = [
        tether.rollout(env, lazy, episodes, Shadowing(contract, structure, env=env))
        for structure in (env.structure, env.identifying)
    ]
    assert np.allclose(runs[0].costs, runs[1].costs)


def test_a_system_of_which_rewards_tell_nothing_says_so():
    env = tether.envs.Cooling()
    with pytest.raises(NotImplementedError, match="what rewards tell of Cooling is not known"):
        certificate_of("identified", env, env.contract(2.0, 2.0))
