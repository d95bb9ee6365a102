from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether import Sensitivity, geometric, table
from tether.ops import NUMPY
from tether.sensitivity import perturbation_from_dict

RHO = st.one_of(
    st.floats(0.0, 1.5), st.sampled_from([0.0, 1.0, 0.25, 1.0 - 1e-9, 1.0 + 1e-9, 1.0 - 1e-15, 1e-320])
)


@given(rho=RHO, scale=st.floats(1.0, 5.0), rounds=st.integers(0, 60))
def test_geometric_sums_are_the_sums_of_their_terms(rho, scale, rounds):
    expected = scale * math.fsum(rho**n for n in range(rounds))
    assert geometric(rho, scale).reach(rounds, NUMPY) == pytest.approx(expected, rel=1e-11)


@given(
    rho=RHO,
    scale=st.floats(1.0, 3.0),
    deviations=st.lists(st.floats(0.0, 10.0), min_size=1, max_size=30),
    ahead=st.integers(1, 30),
)
def test_the_memory_of_fixed_size_is_the_sum_over_the_whole_past(rho, scale, deviations, ahead):
    p = geometric(rho, scale)
    memory = p.empty(100, NUMPY, 0.0)
    for deviation in deviations:
        memory = p.remember(memory, deviation, NUMPY)
    past = len(deviations)
    now = [scale * rho ** (past - 1 - j + t) * d for t in range(ahead) for j, d in enumerate(deviations)]
    assert p.felt(memory) == pytest.approx(math.fsum(now[:past]), rel=1e-11)
    assert p.felt_over(memory, ahead, NUMPY) == pytest.approx(math.fsum(now), rel=1e-10)


@given(
    values=st.lists(st.floats(0.0, 3.0), min_size=30, max_size=40),
    deviations=st.lists(st.floats(0.0, 10.0), min_size=1, max_size=10),
    ahead=st.integers(1, 20),
)
def test_a_table_remembers_the_same_sums_for_any_p(values, deviations, ahead):
    p = table([1.0, *values])
    memory = p.empty(31, NUMPY, 0.0)
    for deviation in deviations:
        memory = p.remember(memory, deviation, NUMPY)
    past = len(deviations)
    now = [
        math.fsum(p.values[past - 1 - j + t] * d for j, d in enumerate(deviations)) for t in range(ahead)
    ]  # fmt: skip
    assert p.felt(memory) == pytest.approx(now[0], rel=1e-12)
    assert p.felt_over(memory, ahead, NUMPY) == pytest.approx(math.fsum(now), rel=1e-12)
    assert p.reach(ahead, NUMPY) == pytest.approx(math.fsum(p.values[:ahead]), rel=1e-12)


def test_lipschitz_constants_give_the_two_numbers_of_the_paper():
    bounds = Sensitivity.from_lipschitz(L_c=2.0, L_f=3.0, L_pi=0.5, p=geometric(0.9))
    assert (bounds.immediate, bounds.carried) == (2.0, 9.0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: geometric(-0.1), ValueError, "rho must be at least 0, got -0.1"),
        (lambda: geometric(0.5, 0.9), ValueError, r"scale must be at least 1 because p\(0\) = 1, got 0.9"),
        (lambda: geometric("fast"), TypeError, "rho must be a number, got 'fast'"),
        (lambda: table([]), ValueError, "non-empty list"),
        (lambda: table([[1.0]]), ValueError, r"got shape \(1, 1\)"),
        (lambda: table([0.5, 1.0]), ValueError, r"p\(0\) must be at least 1"),
        (lambda: table([1.0, math.nan]), ValueError, r"p\(1\) must be finite and at least 0, got nan"),
        (lambda: table([1.0, -2.0]), ValueError, r"p\(1\) must be finite and at least 0, got -2.0"),
        (lambda: Sensitivity(0.0, 1.0, geometric(0.5)), ValueError, "immediate must be greater than 0"),
        (lambda: Sensitivity(1.0, -1.0, geometric(0.5)), ValueError, "carried must be at least 0"),
        (lambda: Sensitivity(1.0, 1.0, 0.5), TypeError, r"tether.geometric\(rho\) or tether.table"),
        (
            lambda: Sensitivity.from_lipschitz(1.0, -1.0, 0.0, geometric(1.0)),
            ValueError,
            "L_f must be at least 0",
        ),
        (lambda: perturbation_from_dict({"kind": "magic"}), ValueError, "got 'magic'"),
    ],
)
def test_impossible_knowledge_is_refused_with_the_offending_value(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_equal_tables_are_equal_and_hash_alike():
    assert table([1.0, 0.5]) == table([1.0, 0.5])
    assert hash(table([1.0, 0.5])) == hash(table([1.0, 0.5]))
    assert table([1.0, 0.5]) != table([1.0, 0.6])
