"""Vessim's microgrid behind the guard."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

import tether
from tether.certificates.structure import Round
from tether.core.ops import FLOATS, NUMPY
from tether_plants.microgrid.live import live
from tether_plants.microgrid.structure import CAPACITY, HOURS, POWER, Reserve, band, moved, risk
from tether_plants.plant import Learned, find
from tether_plants.study import play

PLANT = find("microgrid")
DAYS = range(6)
DRAIN = Learned(lambda _env, _seen: np.array([-POWER]))
"""Sells whatever there is."""


@pytest.fixture(scope="module")
def prior():
    return play(PLANT, DAYS, None)


def test_vessim_does_what_the_model_says():
    for check in PLANT.checks(2):
        assert check.holds, check


def test_the_bounds_hold_whatever_the_sun_does():
    structure, random, (low, high), tightest = Reserve(), np.random.default_rng(0), band(), np.inf
    for _ in range(300):
        hour, lam = int(random.integers(0, HOURS)), float(random.choice([0.0, 0.5]))
        own, prior, wish = *random.uniform(0.0, CAPACITY, 2), random.uniform(-POWER, POWER)
        power = random.uniform(low[hour], high[hour])
        now = Round((float(prior),), (float(own), float(power), float(hour)), 0.0, lam, 1.0, -POWER, POWER)
        totals = structure.bounds(now, float(wish), 0, FLOATS).totals
        total = 0.0
        for n in range(HOURS - hour):
            p = (
                power
                if n == 0
                else random.choice([low[hour + n], random.uniform(low[hour + n], high[hour + n])])
            )
            own, prior = moved(own, wish if n == 0 else p, NUMPY), moved(prior, p, NUMPY)
            total += risk(own, NUMPY) - (1.0 + lam) * risk(prior, NUMPY)
            assert total <= totals[n] + 1e-9
            tightest = min(tightest, totals[n] - total)
    assert tightest < 1e-9


@pytest.mark.parametrize("name", ["lipschitz", "shadowed"])
def test_a_seller_behind_the_guard_keeps_the_promise_that_it_breaks_alone(prior, name):
    alone = play(PLANT, DAYS, DRAIN)
    assert tether.audit(alone.costs, prior.costs, PLANT.contract).violation_rate == 1.0
    guarded = play(PLANT, DAYS, DRAIN, PLANT.certificates[name](PLANT.contract))
    assert tether.audit(guarded.costs, prior.costs, PLANT.contract).violation_rate == 0.0
    assert (guarded.uncertified_from == HOURS + 1).all()
    assert guarded.rewards.sum() > prior.rewards.sum()


@dataclass(frozen=True)
class Forgetful(Reserve):
    """Forgets later hours."""

    def bounds(self, now, action, plan, ops):
        found = super().bounds(now, action, plan, ops)
        return found._replace(totals=found.totals[:1])


def test_a_structure_that_forgets_later_hours_breaks_the_promise(prior):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tether.AssumptionBreach)
        played = play(PLANT, DAYS, DRAIN, tether.Structured(PLANT.contract, Forgetful()))
    assert tether.audit(played.costs, prior.costs, PLANT.contract).violation_rate > 0.0


def test_a_guard_that_allows_five_percent_more_is_found(prior):
    loose = replace(PLANT.contract, lam=1.05 * PLANT.contract.lam, b=1.05 * PLANT.contract.b)
    played = play(PLANT, DAYS, DRAIN, PLANT.certificates["shadowed"](loose))
    assert tether.audit(played.costs, prior.costs, PLANT.contract).violation_rate > 0.0


def test_vessim_asks_the_service_and_the_promise_outlives_it():
    verdict, reasons = live(0, kill=18)
    assert verdict.violation_rate == 0.0
    assert set(reasons[1:18]) <= {"safe", "too far"}
    assert reasons[18:] == ["no answer"] * 6
