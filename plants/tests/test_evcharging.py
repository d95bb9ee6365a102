"""SustainGym's car park behind the guard."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

import tether
from tether.certificates.structure import Round
from tether.core.compiler import compiler_options
from tether.core.ops import NUMPY, jax_ops
from tether_plants.evcharging.adapter import Garage
from tether_plants.evcharging.model import Stays
from tether_plants.evcharging.structure import AMPERE, CHARGERS, FULL, HOURS, Shadowed, flow, pilots
from tether_plants.plant import Learned, find
from tether_plants.study import play

PLANT = find("evcharging")
DAY = (5,)
NEVER = Learned(lambda _env, _seen: np.zeros(CHARGERS))
"""Charges nobody."""


@pytest.fixture(scope="module")
def prior():
    return play(PLANT, DAY, None)


def test_a_battery_follows_the_flow_exactly():
    Garage()  # imports what warns
    from acnportal.acnsim import Linear2StageBattery

    random = np.random.default_rng(0)
    for missing, signal in zip(random.uniform(0.0, 40.0, 300), random.integers(0, 5, 300) * 8.0, strict=True):
        battery = Linear2StageBattery(100, 100 - missing, 100)
        battery.charge(signal, 208, 5)
        assert 100 - battery._current_charge == pytest.approx(
            float(flow(missing, AMPERE * signal, HOURS)), abs=1e-9
        )


def test_many_rounds_of_the_flow_are_one_long_one():
    missing = np.linspace(0.0, 20.0, 41)
    after = missing
    for _ in range(7):
        after = flow(after, FULL, HOURS)
    np.testing.assert_allclose(flow(missing, FULL, 7 * HOURS), after, atol=1e-12)


def test_a_signal_is_one_that_the_charger_takes_and_never_below_what_was_decided():
    action = np.random.default_rng(0).uniform(0.0, 32.0, 1000)
    eights, fine = pilots(action, False), pilots(action, True)
    assert set(eights) <= {0.0, 8.0, 16.0, 24.0, 32.0}
    assert set(fine) <= {0.0, *range(6, 33)}
    assert min((eights - action).min(), (fine - action).min()) > -1e-4


def test_the_bounds_hold_whoever_leaves_early_and_are_reached():
    structure, random, tightest = Shadowed((False,) * CHARGERS), np.random.default_rng(0), np.inf
    for _ in range(100):
        prior = random.uniform(0.0, 10.0, CHARGERS) * (random.uniform(size=CHARGERS) < 0.2)
        own = prior + random.uniform(0.0, 2.0, CHARGERS) * (prior > 0.0)
        left = random.integers(1, 12, CHARGERS).astype(float)
        now = Round((prior,), (own, left, 0.0 * own), None, 0.2, 0.0, 0.0, 32.0)
        wish = random.uniform(0.0, 32.0, CHARGERS)
        totals = structure.bounds(now, wish, 0, NUMPY).totals
        power, total, there = AMPERE * pilots(wish, False), 0.0, np.ones(CHARGERS)
        stays = random.uniform(size=CHARGERS) < random.choice([0.5, 1.0])
        for n in range(12):
            own, prior = flow(own, power, HOURS), flow(prior, FULL, HOURS)
            power, due = FULL, there * (left == n + 1)
            total += float(np.sum(due * (own - 1.2 * prior)))
            there = there * np.where(stays, 1.0, 0.0)
            assert total <= totals[min(n, len(totals) - 1)] + 1e-9
        tightest = min(tightest, totals[-1] - total)
    assert tightest < 1e-9


def test_the_compiled_bounds_of_a_stay_are_true_and_those_of_the_flow():
    random, fine = np.random.default_rng(0), (False,) * CHARGERS
    exact, compiled = Shadowed(fine), Stays(fine)

    def both(own, prior, left, power):
        now = Round((prior,), (own, left, 0.0 * own), None, 0.2, 0.0, 0.0, 32.0)
        return [each.excesses(now, power, jax_ops()) for each in (exact, compiled)]

    with jax.enable_x64(True):
        run = jax.jit(both, compiler_options=compiler_options(True))
        for _ in range(20):
            prior = random.uniform(0.0, 40.0, CHARGERS) * random.integers(0, 2, CHARGERS)
            own = prior + random.uniform(0.0, 3.0, CHARGERS)
            left = random.integers(-3, 120, CHARGERS).astype(float)
            known, bound = run(own, prior, left, AMPERE * 8.0 * random.integers(0, 5, CHARGERS))
            assert np.all(bound >= known)
            np.testing.assert_allclose(bound, known, atol=1e-9)


def test_nobody_is_charged_and_the_promise_is_kept(prior):
    alone = play(PLANT, DAY, NEVER)
    assert tether.audit(alone.costs, prior.costs, PLANT.contract).violation_rate == 1.0
    guarded = play(PLANT, DAY, NEVER, PLANT.certificates["shadowed"](PLANT.contract))
    verdict = tether.audit(guarded.costs, prior.costs, PLANT.contract)
    assert verdict.violation_rate == 0.0
    assert guarded.uncertified_from.tolist() == [289]
    assert guarded.costs.sum() > prior.costs.sum()  # and what is allowed is used


def test_compiled_bounds_of_stays_keep_the_promise_and_five_percent_more_do_not(prior):
    nobody = replace(NEVER, rows=lambda observations, _features: np.zeros((len(observations), CHARGERS)))
    rates = []
    for more in (1.0, 1.05):
        known = replace(PLANT.contract, b=more * PLANT.contract.b, lam=more * PLANT.contract.lam)
        played = play(PLANT, DAY, nobody, PLANT.certificates["compiled"](known))
        assert played.uncertified_from.tolist() == [289]
        rates.append(tether.audit(played.costs, prior.costs, PLANT.contract).violation_rate)
    assert rates == [0.0, 1.0]


@dataclass(frozen=True)
class Forgetful(Shadowed):
    """Forgets what comes due later."""

    def bounds(self, now, action, plan, ops):
        found = super().bounds(now, action, plan, ops)
        return found._replace(totals=found.totals[:1])


def test_a_structure_that_forgets_later_rounds_breaks_the_promise(prior):
    known = tether.Structured(PLANT.contract, Forgetful(tuple(Garage().fine.tolist())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tether.AssumptionBreach)
        played = play(PLANT, DAY, NEVER, known)
    assert tether.audit(played.costs, prior.costs, PLANT.contract).violation_rate == 1.0


def test_a_guard_that_allows_five_percent_more_is_found(prior):
    loose = replace(PLANT.contract, b=1.05 * PLANT.contract.b, lam=1.05 * PLANT.contract.lam)
    played = play(PLANT, DAY, NEVER, PLANT.certificates["shadowed"](loose))
    assert tether.audit(played.costs, prior.costs, PLANT.contract).violation_rate == 1.0


def test_the_original_keeps_what_is_assumed_of_it():
    for check in PLANT.checks(1):
        assert check.holds, check
