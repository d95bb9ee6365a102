"""Several costs in compiled programs: rollouts decide as the guard, audits and training count every promise."""

from __future__ import annotations

import numpy as np
import pytest

import tether
from adversary import TwoCosts, draw_two, hostile_policy
from tether.core.decision import AssumptionBreach
from tether.simulate.eager import eager
from tether.simulate.rollout import check_costs

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ENV = TwoCosts(gains=(0.8,) * 4, actions=1, states=1)
EPISODES = draw_two(ENV, 64, np.random.default_rng(0), policies=("worst corner", "bang-bang", "random"))
POLICY = hostile_policy(ENV)


def several(first=(0.5, 1.0), second=(0.2, 3.0), floor=1.0):
    contracts = [ENV.contract(*first, 4), tether.Contract(*second, 4, floor)]
    bounds = [ENV.sensitivity, ENV.second_sensitivity]
    made = [tether.LipschitzCertificate(*each) for each in zip(contracts, bounds, strict=True)]
    return tether.Several(dict(zip(ENV.cost_names, made, strict=True)))


@pytest.mark.slow
def test_a_compiled_rollout_decides_as_the_guard():
    certificate = several()
    run = tether.rollout(ENV, POLICY, EPISODES, certificate)
    assert run.costs.shape == (64, 4, 2)
    assert run.uncertified_from.shape == (64, 2)
    guard = tether.Guard(certificate, ENV.prior, resolution=0.0)
    names = [*ENV.cost_names, None]
    for i in range(5):
        turns = list(eager(ENV, EPISODES[i], lambda seen: POLICY(seen, None), guard))
        assert np.allclose([turn.action for turn in turns], run.actions[i], rtol=1e-12, atol=1e-12)
        assert [turn.decision.binding for turn in turns] == [names[place] for place in run.bindings[i]]
        assert np.allclose([turn.cost for turn in turns], run.costs[i])
    # A floor that costs fall below is a breach of the second contract: the first stays certified, by the prior.
    breached = tether.rollout(ENV, POLICY, EPISODES, several(floor=1.5))
    prior = tether.rollout(ENV, ENV.prior, EPISODES)
    verdict = tether.audit(breached, prior, certificate.contracts)
    assert verdict["first"].holds
    assert np.all(breached.uncertified_from[:, 0] == 5)
    low = np.any(breached.costs[..., 1] < 1.5, axis=1)
    assert np.array_equal(breached.uncertified_from[:, 1] < 5, low)
    after = np.arange(4) >= breached.uncertified_from[:, 1:]
    assert np.array_equal(breached.actions[after], breached.prior_actions[after])
    for i in np.flatnonzero(low)[:2]:
        guard = tether.Guard(several(floor=1.5), ENV.prior, resolution=0.0)
        with pytest.warns(AssumptionBreach):
            list(eager(ENV, EPISODES[int(i)], lambda seen: POLICY(seen, None), guard))
        assert guard.breach.contracts == ("second",)
        assert guard.uncertified_from == breached.uncertified_from[i, 1]


@pytest.mark.slow
def test_training_plays_inside_all_contracts():
    certificate = several()
    recipe = tether.Recipe(passes=2, batch=16, width=4)
    training = tether.train("acrl", ENV, EPISODES, certificate, seeds=[0], recipe=recipe)
    assert training.settings == [(0.5, 1.0)]
    assert np.all(training.history.violations == 0.0)
    (score,) = tether.evaluate(training, ENV, EPISODES, certificate)
    assert score.violation_rate == 0.0
    assert score.worst_margin >= 0.0
    assert score.cost == pytest.approx(
        tether.rollout(ENV, training.policy(0.5, 1.0, 0), EPISODES, certificate)
        .costs[..., 0]
        .sum(axis=1)
        .mean()
    )


@pytest.mark.parametrize("options", [{"lams": [1.0]}, {"mode": "online"}, {"method": "crl"}])
def test_what_cannot_be_trained_for_several_contracts_is_refused(options):
    options = {"method": "acrl", **options}
    with pytest.raises(ValueError, match="several contracts are trained for as they are"):
        tether.train(options.pop("method"), ENV, EPISODES, several(), **options)


def test_a_certificate_must_have_a_contract_for_each_cost_in_their_order():
    certificate = several()
    check_costs(ENV, None)
    check_costs(ENV, certificate)
    check_costs(ENV, tether.Several(certificate.certificates))  # without names the order counts
    swapped = tether.Several(certificate.certificates, ENV.cost_names[::-1])
    for wrong in (swapped, certificate.certificates[0], tether.Several(certificate.certificates[:1])):
        with pytest.raises(ValueError, match="TwoCosts has the costs first, second, in this order"):
            tether.rollout(ENV, POLICY, EPISODES, wrong)


def test_audits_of_several_contracts_name_the_one_that_is_broken():
    contracts = {"a": tether.Contract(0.0, 1.0, 2), "b": tether.Contract(1.0, 0.0, 2)}
    prior = np.ones((3, 2, 2))
    costs = prior.copy()
    costs[1, 1, 1] = 4.0
    verdict = tether.audit(costs, prior, contracts, uncertified_from=[[3, 3], [3, 2], [3, 3]])
    assert (verdict.holds, verdict["a"].holds, len(verdict), list(verdict)) == (False, True, 2, ["a", "b"])
    assert verdict.violation_rate == pytest.approx(1.0 / 3.0)
    assert verdict.first_breach == ("b", 1, 2)
    assert verdict.worst_margin == -1.0
    assert verdict["b"].uncertified_from.tolist() == [3, 2, 3]
    assert "All 2 promises: BROKEN in 33.33% of the episodes" in str(verdict)
    kept = tether.audit(prior, prior, contracts, uncertified_from=[3, 3, 3])
    assert (kept.holds, kept.first_breach) == (True, None)
    assert kept["b"].uncertified_from.tolist() == [3, 3, 3]
    for wrong in (prior[..., 0], prior[..., :1]):
        with pytest.raises(ValueError, match=r"prior must hold costs \[N, H, 2\] for a, b"):
            tether.audit(prior, wrong, contracts)
    with pytest.raises(ValueError, match="must hold costs"):
        tether.audit(prior, prior, contracts["a"])
