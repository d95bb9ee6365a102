"""What no policy can earn that does not foresee: above the best one where that is known, below hindsight."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tether
from tether.assure.limit import hindsight_limit
from tether.data.episodes import Episodes
from tether.systems import registry
from tether.systems.carbon.unforeseen import Unforeseen, normal
from tether.systems.program import replay

NOISE = 0.2
ENV = tether.envs.Carbon(efficiency_noise_max=NOISE, drop_rate_max=1e-9)
DEMAND, RENEWABLES = np.array([4.0, 4.0]), np.array([1.0, 5.0])


def every_draw():
    """Each of the four draws of two rounds with n1 = -0.2 or 0.2, all equally likely."""
    noise = np.array(list(itertools.product((-NOISE, NOISE), repeat=2)))
    same = [np.tile(each, (4, 1)) for each in (DEMAND, RENEWABLES)]
    series = dict(zip(("demand", "renewables", "efficiency_noise"), (*same, noise), strict=True))
    return Episodes({**series, "drop_rate": np.zeros((4, 2))})


def outcome(first, second, noise, contract):
    """(reward, whether the promise is kept) of two actions, grids of any shape, for one draw of both rounds."""
    own, trusted = [ENV.initial()] * 2
    reward, kept, spent, paid = 0.0, True, 0.0, 0.0
    for h, action in enumerate((first, second)):
        drawn = {
            "demand": np.asarray(DEMAND[h]),
            "renewables": np.asarray(RENEWABLES[h]),
            "efficiency_noise": np.asarray(noise[h]),
            "drop_rate": np.asarray(0.0),
        }
        own, earned, cost = ENV.step(own, drawn, action)
        trusted, _, trusted_cost = ENV.step(trusted, drawn, ENV.prior(ENV.observe(trusted, drawn)))
        reward, spent, paid = reward + earned, spent + cost, paid + trusted_cost
        kept = kept & (spent <= contract.lam * paid + paid + (h + 1) * contract.b + 1e-12)
    return reward, kept


def best_policy(contract, grid):
    """What the best policy earns that knows n1 of the first round in the second, and no other: by enumeration.

    n1 is -0.2 or 0.2, but it may be anything between, so the promise must be kept for that too. (After a first round
    that has kept it something always keeps it in the second: enough energy for the worst draw.)
    """
    between = (-NOISE, -0.5 * NOISE, 0.0, 0.5 * NOISE, NOISE)
    first, second = grid[:, None], grid[None, :]
    total, feasible = 0.0, True
    for seen in (-NOISE, NOISE):
        ends = [outcome(first, second, (seen, other), contract)[0] for other in (-NOISE, NOISE)]
        kept = [outcome(first, second, (seen, other), contract)[1] for other in between]
        # With enough energy in the second round only the first can break it.
        kept += [outcome(first, 1e3, (other, 0.0), contract)[1] for other in between]
        value = np.where(
            np.logical_and.reduce(np.broadcast_arrays(*kept)), 0.5 * (ends[0] + ends[1]), -np.inf
        )
        total = total + 0.5 * value.max(axis=1)
        feasible = feasible & np.isfinite(value.max(axis=1))
    return float(np.max(np.where(feasible, total, -np.inf)))


@pytest.mark.parametrize(("lam", "b"), [(0.0, 2.0), (1.0, 1.0), (0.5, 0.2)])
@pytest.mark.parametrize("priced", [False, True])
def test_the_bound_is_above_the_best_policy_and_below_hindsight(lam, b, priced):
    contract, episodes = ENV.contract(lam, b, horizon=2), every_draw()
    prior = tether.rollout(ENV, ENV.prior, episodes)
    two = ((-NOISE, 0.5), (NOISE, 0.5))
    bound, limit = (
        hindsight_limit(ENV, episodes, contract, prior.costs, processes=1, program=program).upper.mean()
        for program in (Unforeseen(lam, b, priced, two), None)
    )
    best = best_policy(contract, np.linspace(0.0, 9.0, 1801))
    assert best > prior.returns.mean()
    assert best <= bound + 1e-4  # the mean over all draws is the expectation
    assert bound <= limit - 0.02 * (limit - prior.returns.mean())


def test_in_each_episode_nobody_who_is_guarded_earns_more_than_the_bound():
    env, contract = tether.envs.Carbon(), tether.envs.Carbon().contract(2.0, 2.0)
    episodes = tether.data.synthetic_carbon(seed=0, n=12)
    prior = tether.rollout(env, env.prior, episodes)
    bound = hindsight_limit(
        env, episodes, contract, prior.costs, processes=1, program=Unforeseen(2.0, 2.0, priced=False)
    )
    limit = hindsight_limit(env, episodes, contract, prior.costs, processes=1)
    guard = tether.Structured(contract, env.structure)
    greedy = tether.rollout(env, lambda seen, _key: 0.7 * seen[0] + 0.3 * seen[1], episodes, guard)
    assert np.all(greedy.returns <= bound.upper + 1e-3)
    assert np.all(bound.upper <= limit.upper + 1e-3)
    assert np.any(bound.upper < limit.upper - 1e-2)
    assert np.all(np.isnan(bound.attained))


def test_the_noise_is_that_of_the_system_cut_at_its_ends():
    values, shares = np.array(normal(0.2)).T
    assert shares.sum() == pytest.approx(1.0)
    assert values.min() == -0.2
    assert values.max() == 0.2
    drawn = tether.data.synthetic_carbon(seed=0, n=4000)["efficiency_noise"]
    assert shares @ values == pytest.approx(0.0, abs=1e-12)
    assert shares @ values**2 == pytest.approx(np.mean(drawn**2), rel=0.02)


def test_prices_count_where_the_cap_is_in_reach_too(monkeypatch):
    """What they take has mean 0 over all draws only: in each, nobody earns more than the bound and what they take."""
    env = tether.envs.Carbon(backlog_max=2.0, demand_max=2.0)
    made = Unforeseen(4.0, 0.0, True, ((-NOISE, 0.5), (NOISE, 0.5)))(env, 2)
    # Any prices, and any actions that they are compared with, as long as they do not depend on the draws.
    prices, usual = np.array([50.0, 0.0]), np.array([0.1, 0.1])
    monkeypatch.setattr(made, "_nominal", lambda _drawn: (prices, usual, np.zeros(2)))
    reached = []
    for noise in (-NOISE, NOISE):
        series = zip(env.series, ((2.0, 0.0), (1.0, 1.0), (noise, 0.0), (0.05, 0.05)), strict=True)
        drawn = {name: np.array(each) for name, each in series}
        paid = replay(env, drawn, np.array([2.0 / env.efficiency, 1.0]))[0]  # what the prior pays, or less
        bounds = 5.0 * np.cumsum(paid)
        reached.append(made._cap_is_reachable(drawn["demand"], np.full(2, 0.95), bounds))
        bound, _ = made.solve(drawn, bounds)
        for first in np.linspace(0.5, 4.0, 15):
            actions = np.array([first, 2.0])
            costs, rewards = replay(env, drawn, actions)
            assert np.all(np.cumsum(costs) <= bounds)  # the promise is kept in either draw
            roots = np.sqrt(env.efficiency + drawn["efficiency_noise"]) - made.mean_root
            taken = env.revenue_weight * roots @ (np.sqrt(actions) - np.sqrt(usual))
            taken += (prices * drawn["efficiency_noise"]) @ (actions - usual)
            assert np.sum(rewards) - taken <= bound + 1e-4
    assert reached == [True, False]


@pytest.mark.parametrize("name", ["carbon", "inference", "cooling"])
def test_an_episode_of_one_round_has_bounds_too(name):
    system = registry.find(name)
    env, episodes = system.env(), system.draw(0, 2, 1)
    contract = env.contract(1.0, 1.0, horizon=1)
    prior = tether.rollout(env, env.prior, episodes)
    limit, bound = (
        hindsight_limit(env, episodes, contract, prior.costs, processes=1, program=program).upper
        for program in (system.program, system.unforeseen(1.0, 1.0, priced=False))
    )
    assert np.all(prior.returns <= bound + 1e-4)
    assert np.all(bound <= limit + 1e-4)
