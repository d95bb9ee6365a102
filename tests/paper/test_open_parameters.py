"""The search over what the paper leaves open of its second system."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tether
from tether.assure.hostile import Greedy
from tether.paper.studies.open_parameters import PRINTED_REGRET, Trained, draw_setting, evidence, screen

DRAWN = tether.data.synthetic_inference(seed=0, n=60)


def test_screening_plays_what_the_rollout_plays():
    setting = draw_setting(np.random.default_rng(1))
    env, episodes = setting.env, setting.episodes(DRAWN)
    found = screen(setting, DRAWN)
    prior = tether.rollout(env, env.prior, episodes)
    greedy = tether.rollout(env, Greedy(env), episodes)
    assert found.prior_cost == pytest.approx(prior.total_costs.mean(), rel=1e-9)
    assert found.greedy_cost == pytest.approx(greedy.total_costs.mean(), rel=0.05)
    assert found.prior_regret == pytest.approx(greedy.returns.mean() - prior.returns.mean(), rel=0.05)
    assert found.bound == pytest.approx(6.0 * found.prior_cost + 144.0)


def test_a_setting_passes_only_near_the_printed_regret_and_where_crl_must_give_something_up():
    found = replace(screen(draw_setting(np.random.default_rng(1)), DRAWN), prior_regret=PRINTED_REGRET)
    assert replace(found, greedy_cost=1.2 * found.bound).passes
    assert not replace(found, greedy_cost=found.bound).passes
    assert not replace(found, greedy_cost=1.2 * found.bound, prior_regret=40.0).passes


def test_a_claim_that_does_not_hold_is_named():
    setting = draw_setting(np.random.default_rng(0))
    trained = Trained(setting, "structured", [51.0], [1.0], [9.0], [8.0], [3.0], 0.0)
    assert all(trained.claims().values())
    for change, claim in (
        ({"crl": [-1.0]}, "CRL above RL"),
        ({"acrl_freer": [9.0]}, "lam 7 below 5"),
        ({"acrl": [0.5]}, "CRL below ACRL"),
        ({"violation_rate": 0.1}, "no violation"),
    ):
        assert not replace(trained, **change).claims()[claim]


def test_the_search_says_in_how_many_trainings_a_claim_holds():
    setting = draw_setting(np.random.default_rng(0))
    trained = Trained(setting, "structured", [51.0], [1.0], [9.0], [8.0], [3.0], 0.0)
    flat = replace(trained, certificate="lipschitz", acrl_freer=[9.0])
    found = {row["on"]: row["text"] for row in evidence(100, [screen(setting, DRAWN)], [flat, trained])}
    assert (
        "Of 100 random values of the open parameters 1 pass a screening; of 2 trainings" in found["inference"]
    )
    assert "all of the paper's claims hold in 1" in found["inference"]
    counts = "0 of 1 with the lipschitz certificate, 1 of 1 with the structured certificate"
    assert counts in found["inference lam"]
    assert evidence(100, [], []) == []
