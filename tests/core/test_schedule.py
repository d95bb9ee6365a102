"""Schedules lam_h and b_h, no last round, and contracts with a probability."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether import Contract, periodic
from tether.core import schedule
from tether.core.audit import binomial_tail
from tether.core.fleet_ops import FLEET
from tether.core.ops import FLOATS, NUMPY
from tether.core.sensitivity import EstimatedSensitivity

RATES = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=7)


def by_hand(values, repeats, count):
    """The numbers of the first rounds."""
    return [values[h % len(values)] if repeats else values[min(h, len(values) - 1)] for h in range(count)]


@given(values=RATES, repeats=st.booleans(), closed=st.integers(0, 6), ahead=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_a_schedule_is_its_numbers_their_sums_and_their_smallest(values, repeats, closed, ahead):
    horizon = math.inf if repeats else len(values)
    made = schedule.rate("b", periodic(values) if repeats else values, horizon)
    closed = closed if repeats else min(closed, len(values) - 1)
    numbers = by_hand(values, repeats, closed + 40)
    for ops in (FLOATS, NUMPY):
        assert schedule.at(made, float(closed), ops) == numbers[closed]
        assert schedule.until(made, float(closed), ops) == pytest.approx(sum(numbers[:closed]), rel=1e-12)
        smallest = min(values) if repeats else min(values[closed:])
        assert schedule.least_from(made, float(closed), ops) == smallest
    assert schedule.ahead(made, float(closed), ahead, NUMPY).tolist() == numbers[closed : closed + ahead]
    rows = schedule.ahead(made, np.array([0.0, float(closed)]), ahead, FLEET)
    assert rows.tolist() == [numbers[:ahead], numbers[closed : closed + ahead]]


def test_a_number_is_the_same_in_every_round():
    for rounds in (0.0, 5.0):
        assert (schedule.at(2.0, rounds, FLOATS), schedule.least_from(2.0, rounds, FLOATS)) == (2.0, 2.0)
        assert schedule.until(2.0, rounds, FLOATS) == 2.0 * rounds
    assert schedule.ahead(2.0, 0.0, 3, NUMPY) == 2.0


@given(costs=st.lists(st.floats(0.0, 9.0), min_size=4, max_size=4), lams=RATES, bs=RATES)
@settings(max_examples=50, deadline=None)
def test_the_bounds_are_the_promise_round_by_round(costs, lams, bs):
    contract = Contract(periodic(lams), periodic(bs), math.inf)
    lam, b = by_hand(lams, True, 4), by_hand(bs, True, 4)
    expected = [sum((1.0 + lam[i]) * costs[i] + b[i] for i in range(h + 1)) for h in range(4)]
    np.testing.assert_allclose(contract.bounds([costs])[0], expected, rtol=1e-12)
    verdict = tether.audit([costs], [costs], contract)
    np.testing.assert_allclose(verdict.bounds[0], expected, rtol=1e-12)
    assert verdict.holds
    assert Contract(3.0, 2.0, 4).bounds([costs])[0, -1] == pytest.approx(4.0 * sum(costs) + 8.0, rel=1e-12)


def test_an_audit_finds_what_one_round_of_a_schedule_does_not_allow():
    contract = Contract(0.0, [1.0, 0.0, 0.0], 3)
    assert tether.audit([[2.0, 1.0, 1.0]], [[1.0, 1.0, 1.0]], contract).holds
    broken = tether.audit([[1.0, 2.5, 1.0]], [[1.0, 1.0, 1.0]], contract)
    assert broken.first_breach == (0, 2)
    assert "b_i from 0 to 1" in str(broken)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lam": [1.0, 2.0]}, ValueError, "lam must be a number or one for each of 3 rounds, got 2 numbers"),
        ({"b": [0.0, -1.0, 0.0]}, ValueError, r"b\[1\] must be at least 0, got -1.0"),
        ({"b": []}, ValueError, "b must have at least one number"),
        ({"b": [1.0, 1.0, 1.0], "horizon": math.inf}, ValueError, r"or tether.periodic\(\[...\]\)"),
        ({"horizon": -math.inf}, TypeError, "horizon must be a whole number"),
        ({"confidence": 0.9}, ValueError, "rests_on must say"),
        ({"rests_on": "luck"}, ValueError, "rests_on must say"),
        ({"confidence": 1.01, "rests_on": "luck"}, ValueError, "confidence must be at most 1, got 1.01"),
        ({"confidence": 0.9, "rests_on": 3}, ValueError, "rests_on must say"),
        ({"lam": "2"}, TypeError, "lam must be a number, got '2'"),
        ({"confidence": 0.0, "rests_on": "luck"}, ValueError, "confidence must be greater than 0"),
    ],
)
def test_an_impossible_schedule_or_probability_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        Contract(**{"lam": 1.0, "b": 1.0, "horizon": 3} | change)


@pytest.mark.parametrize(
    "contract",
    [
        Contract(1.0, 2.0, 3, 0.5),
        Contract([0.0, 1.0, 2.0], 2.0, 3),
        Contract(periodic([0.0, 1.0]), periodic([1.0]), math.inf, 1.0),
        Contract(1.0, 2.0, 3, confidence=0.99, rests_on="noise within 3"),
    ],
)
def test_a_contract_comes_back_from_json_and_is_a_key(contract):
    again = Contract.from_dict(json.loads(json.dumps(contract.to_dict(), allow_nan=False)))
    assert again == contract
    assert hash(again) == hash(contract)
    assert again != Contract(9.0, 2.0, 3)


def test_a_certain_contract_says_nothing_of_a_probability():
    assert set(Contract(1.0, 2.0, 3).to_dict()) == {"lam", "b", "horizon", "cost_floor"}
    assert str(Contract(1.0, 2.0, 3)) == "J_h <= (1 + 1) J_h(prior) + 2 h"
    assert type(Contract(1.0, 2.0, 3, confidence=1).confidence) is float


def test_a_schedule_is_fixed_and_tells_what_it_is():
    listed = Contract(np.array([1.0, 2.0]), 0.0, 2).lam
    assert (repr(listed), repr(periodic([1.0, 2.0]))) == ("[1.0, 2.0]", "periodic([1.0, 2.0])")
    assert listed != periodic([1.0, 2.0])
    assert (listed == 3) is False
    with pytest.raises(FrozenInstanceError):
        listed.repeats = True
    with pytest.raises(FrozenInstanceError):
        tether.cut_noise(0.1, 5, scale=1.0).low = 0.0


def test_a_contract_tells_what_each_round_earns():
    contract = Contract([1.0, 2.0, 4.0], [0.1, 0.2, 0.4], 3, 0.5)
    assert contract.earned == pytest.approx(0.6)
    assert contract.earned_at(2.0, FLOATS) == pytest.approx(2.4)
    assert (contract.b_at(1.0, FLOATS), contract.least_lam(1.0, FLOATS)) == (0.2, 2.0)
    ahead = contract.earned_ahead(np.array([0.0, 1.0]), 2, FLEET)
    np.testing.assert_allclose(ahead, [[0.6, 1.8], [1.2, 3.6]])
    np.testing.assert_allclose(contract.earned_ahead(0.0, 3, NUMPY), [0.6, 1.8, 4.2])


def test_bounds_are_those_of_the_last_axis_and_of_the_closed_form():
    for contract in (Contract(0.1, 0.3, 3), Contract([0.1] * 3, 0.3, 3)):
        costs = np.random.default_rng(0).uniform(size=(2, 4, 3))
        np.testing.assert_allclose(contract.bounds(costs)[1, 2], contract.bounds(costs[1, 2]), rtol=1e-15)
        np.testing.assert_allclose(contract.bounds(costs)[..., 0], 1.1 * costs[..., 0] + 0.3)
    closed = Contract(0.1, 0.3, 3)
    assert np.array_equal(closed.bounds(costs), closed.bound(np.cumsum(costs, axis=-1), np.arange(1, 4)))


def test_a_bound_from_a_sum_needs_one_lam():
    with pytest.raises(ValueError, match="use bounds"):
        Contract([1.0, 2.0], 0.0, 2).bound(1.0, 1)
    assert Contract(1.0, [1.0, 2.0], 2).bound(1.0, 2) == 5.0
    with pytest.raises(ValueError, match="at most 2 rounds, got 3"):
        Contract(1.0, 1.0, 2).bounds([[1.0, 1.0, 1.0]])


def test_a_contract_can_only_be_raised():
    contract = Contract(1.0, [1.0, 2.0, 3.0], 3)
    assert contract.raised(lam=1.5) == Contract(1.5, [1.0, 2.0, 3.0], 3)
    assert contract.raised(b=2.0) == Contract(1.0, [2.0, 2.0, 3.0], 3)
    assert contract.raised(lam=[1.0, 0.0, 2.0]) == Contract([1.0, 1.0, 2.0], [1.0, 2.0, 3.0], 3)
    assert contract.raised() == contract
    assert contract.raised(lam=1.0, b=[1.0, 2.0, 3.0]) == contract
    assert Contract(periodic([1.0, 2.0]), 0.0, 3).raised(lam=1.5) == Contract([1.5, 2.0, 1.5], 0.0, 3)
    for change in ({"lam": 0.5}, {"b": 0.5}):
        with pytest.raises(ValueError, match="can only be raised"):
            contract.raised(**change)
    going_on = Contract(periodic([1.0, 2.0]), 0.0, math.inf).raised(lam=periodic([0.0, 0.0, 3.0]))
    assert going_on.lam == periodic([1.0, 2.0, 3.0, 2.0, 1.0, 3.0])


def test_what_a_promise_rests_on_adds_up_and_is_said_everywhere():
    noise = tether.cut_noise(0.01, 24, 2, scale=0.5)
    contract = noise.signed(Contract(1.0, 1.0, 24))
    bounds = EstimatedSensitivity(2.0, 1.0, tether.geometric(0.5), confidence=0.99, rows=500)
    both = bounds.signed(contract)
    assert both.confidence == pytest.approx(1.0 - 0.01 - 0.03)
    assert not both.certain
    for part in ("Gaussian noise", "48 draws", "500 rows", "probability 0.96"):
        assert part in str(both)
    assert both.to_dict()["confidence"] == both.confidence
    assert Contract(1.0, 1.0, 24).resting_on("nothing", 1.0).certain
    for left in (0.01, 0.04):
        with pytest.raises(ValueError, match="nothing is left"):
            both.resting_on("a coin", left)
    half = Contract(1.0, 1.0, 24).resting_on("a coin", 0.5)
    assert half.rests_on == "a coin"
    with pytest.raises(ValueError, match="nothing is left"):
        half.resting_on("a coin", 0.5)
    saved = tether.LipschitzCertificate(both, bounds).to_dict()
    assert saved["contract"]["rests_on"] == both.rests_on


def test_a_noise_is_cut_where_a_whole_episode_rarely_goes():
    cut = tether.cut_noise(0.1, 20, 3, scale=2.0, mean=1.0)
    draws = np.random.default_rng(0).normal(1.0, 2.0, size=(20_000, 60))
    failed = np.mean(np.any((draws < cut.low) | (draws > cut.high), axis=1))
    assert 0.08 < failed <= 0.1
    uniform = tether.cut_noise(0.1, 5, quantile=lambda p: p)
    assert (uniform.low, uniform.high) == pytest.approx((0.01, 0.99))
    assert tether.cut_noise(0.97, 5, quantile=lambda _: 2.0).high == 2.0
    with pytest.raises(TypeError, match="mean must be a number"):
        tether.cut_noise(0.1, 5, scale=1.0, mean="0")
    with pytest.raises(ValueError, match="delta must be greater than 0"):
        tether.cut_noise(0.0, 5, scale=1.0)
    ends = (
        {"quantile": lambda p: -math.inf if p < 0.5 else 1.0},
        {"quantile": lambda p: math.inf if p > 0.5 else 1.0},
        {"quantile": lambda p: -p},
    )
    for wrong in (
        {},
        {"scale": 1.0, "quantile": float},
        {"scale": 0.0},
        {"quantile": lambda _: math.nan},
        *ends,
    ):
        with pytest.raises(ValueError, match=r"scale|quantile"):
            tether.cut_noise(0.1, 5, **wrong)
    with pytest.raises(ValueError, match="delta must be below 1"):
        tether.cut_noise(1.0, 5, scale=1.0)


@given(count=st.integers(1, 60), least=st.integers(0, 60), share=st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_the_binomial_tail_is_the_sum_of_its_terms(count, least, share):
    terms = [math.comb(count, k) * share**k * (1.0 - share) ** (count - k) for k in range(count + 1)]
    assert binomial_tail(least, count, share) == pytest.approx(sum(terms[least:]), rel=1e-9, abs=1e-12)


def test_an_audit_of_a_probable_promise_compares_with_what_it_allows():
    contract = Contract(0.0, 0.0, 1, confidence=0.9, rests_on="luck")
    prior = np.ones((1000, 1))
    for broken, consistent in ((0, True), (100, True), (160, False)):
        costs = prior.copy()
        costs[:broken] = 2.0
        verdict = tether.audit(costs, prior, contract)
        assert verdict.consistent is consistent
        assert verdict.holds is (broken == 0)
        assert ("MORE than it allows" in str(verdict)) is not consistent
    certain = tether.audit(costs, prior, Contract(0.0, 0.0, 1))
    assert not certain.consistent


def test_an_audit_takes_any_number_of_rounds_where_there_is_no_last_one():
    contract = Contract(0.0, 1.0, math.inf)
    verdict = tether.audit([[2.0, 2.0, 2.0]], [[1.0, 1.0, 1.0]], contract, uncertified_from=[math.inf])
    assert verdict.holds
    assert verdict.certified.all()
    with pytest.raises(ValueError, match="got shape"):
        tether.audit(np.ones((1, 0)), np.ones((1, 0)), contract)


def test_what_needs_one_lam_one_b_and_an_end_says_so():
    for contract in (Contract(1.0, 1.0, math.inf), Contract([1.0, 2.0], 1.0, 2)):
        with pytest.raises(ValueError, match=r"tether\.train needs one lam, one b and a last round"):
            contract.require_constant("tether.train")
    Contract(1.0, 1.0, 2).require_constant("tether.train")
