"""The authors' networks, played through our guard on the authors' data, give the authors' numbers."""

from __future__ import annotations

import pytest

import tether
from tether.paper.studies.choices import play_months, play_random, play_scaled, train_budgets
from tether.paper.studies.networks import load_authors_network
from tether.paper.studies.published import play_idle, play_published, play_rl

pytestmark = pytest.mark.needs_data


@pytest.fixture(scope="module")
def episodes(shared):
    return tether.data.load_carbon(shared / "data" / "carbon", split="test")


@pytest.fixture(scope="module")
def env():
    return tether.envs.Carbon()


@pytest.fixture(scope="module")
def prior(env, episodes):
    return tether.rollout(env, env.prior, episodes)


def test_the_prior_costs_what_was_measured(prior):
    assert prior.total_costs.mean() == pytest.approx(27.816, abs=0.001)
    assert prior.total_costs.max() == pytest.approx(34.356, abs=0.001)
    assert prior.returns.mean() == pytest.approx(495.747, abs=0.001)


def test_the_published_rl_network_earns_more_and_breaks_the_promise(shared, env, episodes, prior):
    run = tether.rollout(env, load_authors_network(shared / "paper" / "networks_b2.npz", "rl"), episodes)
    assert run.returns.mean() == pytest.approx(568.890, abs=0.001)
    assert run.total_costs.mean() == pytest.approx(1468.3, abs=0.1)
    assert run.total_costs.max() == pytest.approx(4502.8, abs=0.1)
    assert tether.audit(run, prior, env.contract(lam=10.0, b=2.0)).violation_rate > 0.5


def test_rule_released_gives_every_published_number(shared):
    rows = play_published(shared / "paper", shared / "data" / "carbon")
    assert len(rows) == 36  # two methods, six lam, three quantities
    for row in rows:
        assert row.here == pytest.approx(row.published, abs=0.01), row
        assert row.violation_rate == 0.0


def test_rl_costs_more_in_months_of_higher_demand(shared):
    whole, first, second = play_rl(shared / "paper", shared / "data" / "carbon")
    assert (whole.cost, whole.worst_cost) == pytest.approx((1468.3, 4502.8), abs=0.1)
    assert (whole.windows, first.windows, second.windows) == ("all", "first half", "second half")
    assert first.cost > 3.0 * second.cost
    assert first.demand > second.demand + 0.5


def test_neither_the_months_nor_a_window_that_was_released_explains_the_printed_cost_of_rl(shared):
    months = play_months(shared / "paper", shared / "data" / "carbon")
    assert months.prior == 27.92
    assert 1400.0 < months.least < months.largest < 1800.0 < 2070.14
    assert months.worst_cost == pytest.approx(4502.8, abs=0.1)  # 5015.62 is printed


def test_the_reward_of_the_authors_networks_hardly_depends_on_their_cost(shared):
    rows = play_scaled(shared / "paper", shared / "data" / "carbon", factors=(1.0, 0.96, 0.9))
    rl, acrl = ([row for row in rows if row.network == name] for name in ("rl", "acrl"))
    assert (rl[0].mean_reward, rl[0].mean_cost) == pytest.approx((568.890, 1468.3), abs=0.1)
    assert rl[2].mean_cost > 2000.0
    assert rl[2].mean_reward > 564.0
    assert acrl[0].mean_reward == pytest.approx(531.0365, abs=0.01)
    assert acrl[1].mean_reward > acrl[0].mean_reward
    assert acrl[1].mean_cost > 1.15 * acrl[0].mean_cost


def test_a_random_network_is_timid_or_far_worse_than_printed(shared):
    idle, loud = play_random(shared / "paper", shared / "data" / "carbon", scales=(0.1, 1.0), seeds=(0,))
    assert idle.proposal < 1.0 < loud.proposal
    assert 55.0 < idle.least < idle.largest < 64.0
    assert loud.largest > 100.0


def test_crl_violates_more_with_a_larger_budget(shared):
    rows = train_budgets(shared / "data" / "carbon", budgets=(0.0, 16.0), seeds=(0,), passes=1)
    assert [(row.lam, row.budget) for row in rows] == [(2.0, 0.0), (2.0, 16.0), (6.0, 0.0), (6.0, 16.0)]
    assert rows[0].violation_rates[0] < rows[1].violation_rates[0]
    assert rows[0].bound == pytest.approx(3.0 * 27.816 + 48.0, abs=0.01)


def test_the_printed_regret_of_a_random_network_is_near_that_of_one_that_proposes_nothing(shared):
    least, largest = play_idle(shared / "paper", shared / "data" / "carbon")
    assert 57.0 < least < 61.0 < 64.51 < largest < 70.0


def test_a_network_that_is_not_there_is_named(shared, tmp_path):
    with pytest.raises(ValueError, match="has no network 'sac'; it holds acrl_lambda0_b2"):
        load_authors_network(shared / "paper" / "networks_b2.npz", "sac")
    with pytest.raises(FileNotFoundError, match="expected the authors' networks"):
        load_authors_network(tmp_path / "none.npz", "rl")
