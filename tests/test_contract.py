from __future__ import annotations

import math

import numpy as np
import pytest

from tether import Contract


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
