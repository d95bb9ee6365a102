"""Plants with few digits: the promise compares with the prior on the same plant, and a wrong guard is found there."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tether
from structures import guarded_costs, hostile_draws, prior_costs
from tether.assure.attack import certify, coarse_plants, loosened, rounded_apart
from tether.assure.coarse import trusted
from tether.assure.scenarios import SCENARIOS, SPENT, affordable, plant, tolerating
from tether.certificates import Structured
from tether.systems import registry

HALF = 2.0**-10
CARBON = registry.find("carbon")
PLANT = coarse_plants(CARBON)["float16"]
NOTHING_TO_SPARE = PLANT.contract(0.0, 0.01)
"""Where fifty million episodes found bounds that the prior itself does not keep, compared with exact actuators."""


@pytest.fixture(scope="module")
def played():
    """Hostile episodes, and what the prior costs in them on the plant with few digits."""
    episodes = hostile_draws(PLANT, 3_000, np.random.default_rng(0))
    return episodes, prior_costs(PLANT, episodes)


def guarded(episodes, certificate):
    costs, breached = guarded_costs(PLANT, certificate, episodes)
    assert not np.any(breached)
    return costs


def test_a_guard_that_may_not_deviate_costs_what_the_prior_costs_to_the_last_bit(played):
    episodes, prior = played
    assert np.array_equal(guarded(episodes, certify(PLANT, "structured", NOTHING_TO_SPARE, None, 1.0)), prior)


def test_with_exact_actuators_to_compare_with_the_prior_itself_would_break_the_promise(played):
    episodes, prior = played
    exact = prior_costs(PLANT.exact, episodes)
    for costs, other in ((prior, exact), (exact, prior)):  # now it costs more, now less
        assert tether.audit(costs, other, PLANT.contract(0.0, 0.0)).violation_rate > 0.2
    assert tether.audit(prior, prior, PLANT.contract(0.0, 0.0)).holds


@pytest.mark.parametrize(("wrong", "share"), [("floor", 0.05), ("resolution", 0.01), ("action", 0.5)])
def test_a_guard_that_is_wrong_is_found_at_float16(played, wrong, share):
    """A floor that is 5 % too good, a guard that takes the plant for exact, and one that plays 5 % less than it may."""
    episodes, prior = played
    # The reserve for all of float16 is more than 5 %; with a tenth of it the guard keeps the promise as well.
    enough = Structured(NOTHING_TO_SPARE, PLANT.structure, resolution=0.1 * HALF)
    assert tether.audit(guarded(episodes, enough), prior, NOTHING_TO_SPARE).holds
    if wrong == "floor":
        guard = dataclasses.replace(enough, system=loosened(PLANT.structure, "floor"))
    else:
        kind = Less if wrong == "action" else Structured
        guard = kind(NOTHING_TO_SPARE, PLANT.structure, resolution=0.0 if wrong == "resolution" else HALF)
    costs, breached = guarded_costs(PLANT, guard, episodes)
    verdict = tether.audit(costs[~breached], prior[~breached], NOTHING_TO_SPARE)
    assert verdict.violation_rate > share


class Less(Structured):
    """Plays 5 % less than what it has checked."""

    def choose(self, *given):
        choice = super().choose(*given)
        return choice._replace(action=choice.action / 1.05)


def test_what_lipschitz_constants_must_tolerate_is_what_sensors_and_actuators_do_on_both_plants():
    largest = (15.0 + PLANT.demand_max) / 0.8
    assert PLANT.action_range()[1] == largest
    plants = coarse_plants(CARBON)
    # An actuator is off by half a unit of the action, the prior by half a unit of all that it sees; on both plants.
    assert rounded_apart(CARBON, plants["float16"]) == pytest.approx(2.0 * (0.5 + 0.5) * HALF * largest)
    assert rounded_apart(CARBON, plants["mixed types"]) == pytest.approx(2.0 * 0.5 * HALF * largest)
    assert rounded_apart(CARBON, plants["float32"]) == pytest.approx(2.0 * 2.0**-23 * largest)
    assert rounded_apart(CARBON, PLANT.exact) == 0.0


def test_a_contract_that_cannot_pay_for_the_actuator_is_refused_and_the_attack_takes_one_that_can():
    off = rounded_apart(CARBON, PLANT)
    with pytest.raises(ValueError, match="not even the prior keeps the promise: raise b or lam"):
        tolerating(certify(PLANT, "lipschitz", NOTHING_TO_SPARE, None, 1.0), off)
    contract = affordable(PLANT, NOTHING_TO_SPARE, off)
    made = tolerating(certify(PLANT, "lipschitz", contract, None, 1.0), off)
    toll = float(made.total(made.start())) * off
    assert made.tolerance == off
    assert toll <= SPENT * contract.earned <= 1.1 * toll
    assert affordable(PLANT, contract, off) is contract
    both = affordable(PLANT, PLANT.contract(2.0, 0.01), off)
    assert toll <= SPENT * both.earned <= 1.1 * toll


def test_only_an_actuator_that_nobody_knows_is_judged_by_what_the_prior_decides():
    sloppy = plant(PLANT.exact, SCENARIOS["tolerance"], PLANT.contract(2.0, 2.0))
    assert trusted(PLANT) is PLANT
    assert trusted(PLANT.exact) is PLANT.exact
    assert type(trusted(sloppy)) is type(PLANT.exact)
    assert trusted(sloppy).context == sloppy.context
