"""SustainGym's BuildingEnv behind the guard."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

import tether
from tether.certificates import Shadowing
from tether.certificates.structure import Round
from tether.core.ops import NUMPY
from tether_plants.building import model
from tether_plants.building.adapter import TARGET
from tether_plants.building.adapter import prior as rule
from tether_plants.building.certificates import shadowed
from tether_plants.building.checks import constants
from tether_plants.building.linear import LinearStructure
from tether_plants.plant import Learned, find
from tether_plants.study import play

PLANT = find("building")
OFF = PLANT.learners["off"](PLANT, 0, None)
DAYS = (3, 100, 190)


@pytest.fixture(scope="module")
def prior():
    return play(PLANT, DAYS, None)


def test_the_original_environment_keeps_what_is_assumed_of_it():
    for check in PLANT.checks(2):
        assert check.holds, check


def test_a_wrong_model_is_found_out(monkeypatch):
    A, *rest = model.plant_of()
    monkeypatch.setattr(model, "plant_of", lambda: (1.001 * A, *rest))
    assert not all(check.holds for check in PLANT.checks(1))


def test_a_constant_that_is_too_small_is_refuted_on_the_original_environment():
    claimed = model.lipschitz_constants()
    found = constants(replace(claimed, immediate=0.8 * claimed.immediate))
    refuted = [check.what for check in found if not check.holds]
    assert len(refuted) == 1
    assert "immediate" in refuted[0]


def test_the_bounds_hold_whatever_the_weather_does():
    structure, rng = model.structure_of(), np.random.default_rng(0)
    A, B, *_ = model.plant_of()
    low, high = (np.array(end) for end in structure.disturbance)
    tightest = np.inf
    for _ in range(200):
        own = TARGET + rng.uniform(-4.0, 4.0, 6)
        gap = rng.uniform(-2.0, 2.0, 6)
        wish = rng.uniform(-1.0, 1.0, 6)
        now = Round((gap,), (own,), structure._prior(own, NUMPY), 2.0, 0.0, -1.0, 1.0)
        bounds = structure.bounds(now, wish, 0, NUMPY)
        states, total = [own, own - gap], 0.0
        for n in range(20):
            weather = rng.choice([low, high, rng.uniform(low, high)])
            actions = [structure._prior(each, NUMPY) for each in states]
            if n == 0:
                actions[0] = wish
            states = [A @ x + B @ a + weather for x, a in zip(states, actions, strict=True)]
            own_cost, prior_cost = (0.999 * np.linalg.norm(x - TARGET) for x in states)
            total += own_cost - 3.0 * prior_cost
            bound = bounds.totals[min(n, len(bounds.totals) - 1)]
            assert total <= bound + 1e-9
            tightest = min(tightest, bound - (total + 2.0 * prior_cost))
    assert tightest < 0.5


def test_a_plant_that_the_prior_cannot_keep_is_refused():
    structure = model.structure_of()
    with pytest.raises(ValueError, match="the prior may leave"):
        replace(structure, disturbance=tuple(tuple(5.0 * np.array(end)) for end in structure.disturbance))


@pytest.mark.parametrize("name", ["lipschitz", "shadowed"])
def test_the_promise_holds_where_the_same_policy_breaks_it_without_a_guard(prior, name):
    contract = PLANT.contract
    assert tether.audit(play(PLANT, DAYS, OFF).costs, prior.costs, contract).violation_rate == 1.0
    guarded = play(PLANT, DAYS, OFF, PLANT.certificates[name](contract))
    assert tether.audit(guarded.costs, prior.costs, contract).violation_rate == 0.0
    assert np.all(guarded.uncertified_from == contract.horizon + 1)
    assert guarded.rewards.sum() > prior.rewards.sum()


def test_replaying_the_prior_saves_a_quarter_of_the_energy_and_constants_do_not(prior):
    saved = {}
    for name in ("lipschitz", "shadowed"):
        guarded = play(PLANT, DAYS, OFF, PLANT.certificates[name](PLANT.contract))
        saved[name] = 1.0 - guarded.rewards.sum() / prior.rewards.sum()
    assert saved["shadowed"] > 0.25 > saved["lipschitz"]


def test_a_guard_that_is_loosened_by_5_percent_is_found(prior):
    contract = PLANT.contract
    loose = tether.Contract(lam=contract.lam, b=1.05 * contract.b, horizon=contract.horizon, cost_floor=0.0)
    guarded = play(PLANT, DAYS, OFF, shadowed(loose))
    assert tether.audit(guarded.costs, prior.costs, contract).violation_rate > 0.0


def test_episodes_side_by_side_are_what_the_online_guard_plays():
    certificate = shadowed(PLANT.contract)
    together = play(PLANT, DAYS[:1], OFF, certificate)
    online = play(PLANT, DAYS[:1], OFF, certificate, online=True)
    np.testing.assert_allclose(together.actions, online.actions, atol=1e-5)
    np.testing.assert_allclose(together.costs, online.costs, atol=1e-4)


def test_a_bound_that_forgets_later_rounds_breaks_the_promise(prior):
    class Hasty(LinearStructure):
        def bounds(self, now, action, plan, ops):
            found = super().bounds(now, action, plan, ops)
            return found._replace(totals=found.totals[:1])

    known = model.structure_of()
    hasty = Hasty(**{each.name: getattr(known, each.name) for each in fields(known)})
    tight = tether.Contract(lam=0.0, b=0.2, horizon=288, cost_floor=0.0)

    def save_and_strike(observations, features):
        strikes = features[:, 3:] % 60.0 < 4.0  # rounds left
        return np.where(strikes, 0.0, rule(observations))

    strike = Learned(OFF.propose, save_and_strike)
    guarded = play(PLANT, DAYS, strike, Shadowing(tight, hasty, model.Office()))
    assert tether.audit(guarded.costs, prior.costs, tight).violation_rate > 0.0
    honest = play(PLANT, DAYS, strike, shadowed(tight))
    assert tether.audit(honest.costs, prior.costs, tight).violation_rate == 0.0


def test_days_to_learn_on_and_days_to_test_on_are_different_ones():
    train, test = PLANT.episodes(1, 200)
    assert len(test) == 200
    assert not set(train) & set(test)
    with pytest.raises(ValueError, match="205 days"):
        PLANT.episodes(0, 206)
