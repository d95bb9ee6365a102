"""What people would write instead of a guard does what its description says."""

from __future__ import annotations

import numpy as np
import pytest

import tether
from tether.learn.plant import Plant
from tether.learn.policy import NetworkPolicy
from tether.paper.studies.alternatives import Ledger, Study
from tether.simulate.rollout import rollout
from tether.systems import registry

ENV = tether.envs.Carbon()
EPISODES = tether.data.synthetic_carbon(seed=0, n=6)
IDLE = NetworkPolicy.fresh(np.zeros(4), np.ones(4), low=0.0, high=np.inf, center=1e-3, width=2, seed=0)


def study(lam=2.0, b=2.0):
    plant = Plant(registry.find("carbon"), ENV, EPISODES, EPISODES, None)
    return Study(plant, ENV.contract(lam, b), [0], 1, 2)


@pytest.mark.slow
def test_a_blend_is_the_prior_at_weight_0_and_the_learner_at_weight_1():
    made, learner = study(), rollout(ENV, IDLE, EPISODES)
    assert made._play("blend", IDLE, 0.0, EPISODES).costs == pytest.approx(made.prior.costs)
    assert made._play("blend", IDLE, 1.0, EPISODES).costs == pytest.approx(learner.costs)


@pytest.mark.slow
def test_a_shield_plays_the_learner_until_the_bound_is_near_and_then_the_prior():
    learner = rollout(ENV, IDLE, EPISODES)
    never = study(b=1e6)._play("shield", IDLE, 1.0, EPISODES)
    assert never.costs == pytest.approx(learner.costs)
    soon = study(lam=0.0, b=0.0)._play("shield", IDLE, 1.0, EPISODES)
    assert soon.costs[:, 0] == pytest.approx(learner.costs[:, 0])
    assert soon.total_costs.mean() < learner.total_costs.mean()


@pytest.mark.slow
def test_a_filter_leaves_the_learner_alone_where_the_worst_fits_and_else_plays_the_prior():
    learner = rollout(ENV, IDLE, EPISODES)
    free, tied = (study(lam=0.0, b=b)._play("filter", IDLE, 1.0, EPISODES) for b in (1e6, 0.0))
    assert free.costs == pytest.approx(learner.costs)
    assert tied.total_costs == pytest.approx(study().prior.total_costs, rel=0.3)


@pytest.mark.slow
def test_a_ledger_lets_everything_through_and_says_what_was_spent():
    ledger = Ledger(ENV.contract(2.0, 2.0), ENV.sensitivity, "tight")
    free, watched = rollout(ENV, IDLE, EPISODES), rollout(ENV, IDLE, EPISODES, ledger)
    assert watched.actions == pytest.approx(free.actions)
    assert np.all(watched.radii[:, -1] <= 0.0)  # far beyond what is safe, and known to be
