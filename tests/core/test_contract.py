from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether import Contract

SLACK = st.floats(0.0, 1e6)


@given(lam=SLACK, b=SLACK, floor=SLACK, prior=st.floats(0.0, 1e9), rounds=st.integers(1, 1000))
def test_bound_and_earned_slack_are_the_formulas_of_the_promise(lam, b, floor, prior, rounds):
    contract = Contract(lam=lam, b=b, horizon=1000, cost_floor=floor)
    assert contract.bound(prior, rounds) == pytest.approx(prior + lam * prior + b * rounds, rel=1e-14)
    # A subnormal number has no relative round-off: the smallest one of them is the unit.
    assert contract.earned == pytest.approx(b + lam * floor, rel=1e-14, abs=1e-320)
    # A prior that pays the floor in every round leaves what every round earns, whatever happens.
    spare = contract.bound(floor * rounds, rounds) - floor * rounds
    assert spare == pytest.approx(contract.earned * rounds, rel=1e-9, abs=1e-9 * floor * rounds + 1e-318)


def test_the_strictest_contract_allows_what_the_prior_costs():
    contract = Contract(lam=0.0, b=0.0, horizon=1)
    assert (contract.cost_floor, contract.earned, contract.bound(3.0, 1)) == (0.0, 0.0, 3.0)


def test_a_contract_cannot_be_changed_and_can_be_a_key():
    contract = Contract(lam=0.5, b=2.0, horizon=3)
    assert {contract: 1}[Contract(lam=0.5, b=2.0, horizon=3)] == 1
    with pytest.raises(FrozenInstanceError):
        contract.lam = 9.0


def test_the_bound_is_the_prior_scaled_plus_what_the_rounds_earn():
    contract = Contract(lam=0.5, b=2.0, horizon=3, cost_floor=1.0)
    assert contract.bound(10.0, 3) == 21.0
    np.testing.assert_array_equal(contract.bound(np.array([1.0, 2.0]), np.array([1, 2])), [3.5, 7.0])
    assert contract.earned == 2.5


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lam": -1.0}, ValueError, "lam must be at least 0, got -1.0"),
        ({"b": math.nan}, ValueError, "b must be finite, got nan"),
        ({"b": math.inf}, ValueError, "b must be finite, got inf"),
        ({"lam": "2"}, TypeError, "lam must be a number, got '2'"),
        ({"lam": True}, TypeError, "lam must be a number, got True"),
        ({"horizon": 0}, ValueError, "horizon must be at least 1, got 0"),
        ({"horizon": 2.5}, TypeError, "horizon must be a whole number, got 2.5"),
        ({"cost_floor": -0.1}, ValueError, "cost_floor must be at least 0, got -0.1"),
    ],
)
def test_an_impossible_contract_is_refused_with_the_offending_value(change, error, message):
    with pytest.raises(error, match=message):
        Contract(**{"lam": 1.0, "b": 1.0, "horizon": 24, "cost_floor": 1.0} | change)


def test_numpy_numbers_are_numbers():
    contract = Contract(lam=np.float32(0.5), b=np.int64(2), horizon=np.int32(3))
    assert (contract.lam, contract.b, contract.horizon) == (0.5, 2.0, 3)
    assert type(contract.horizon) is int
