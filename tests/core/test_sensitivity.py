from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether import EstimatedSensitivity, Sensitivity, geometric, table
from tether.core.ops import NUMPY
from tether.core.sensitivity import Geometric, perturbation_from_dict, sensitivity_from_dict

RHO = st.one_of(
    st.floats(0.0, 1.5), st.sampled_from([0.0, 1.0, 0.25, 1.0 - 1e-9, 1.0 + 1e-9, 1.0 - 1e-15, 1e-320])
)


@given(rho=RHO, scale=st.floats(1.0, 5.0), rounds=st.integers(0, 60))
def test_geometric_sums_are_the_sums_of_their_terms(rho, scale, rounds):
    expected = scale * math.fsum(rho**n for n in range(rounds))
    assert geometric(rho, scale).sum_over(rounds, NUMPY) == pytest.approx(expected, rel=1e-11)


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
    assert p.carried_deviation(memory) == pytest.approx(math.fsum(now[:past]), rel=1e-11)
    assert p.carried_deviation_over(memory, ahead, NUMPY) == pytest.approx(math.fsum(now), rel=1e-10)


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
    assert p.carried_deviation(memory) == pytest.approx(now[0], rel=1e-12)
    assert p.carried_deviation_over(memory, ahead, NUMPY) == pytest.approx(math.fsum(now), rel=1e-12)
    assert p.sum_over(ahead, NUMPY) == pytest.approx(math.fsum(p.values[:ahead]), rel=1e-12)


SEED = st.integers(0, 2**32 - 1)


def accounts(rng, past):
    """Accounts in which the prior is safe, some of them with nothing to spare.

    Args:
        rng: Where they come from.
        past: [N, rounds] what past deviations amount to in each round.

    Returns:
        [N] base, slope, immediate, carried.
    """
    cases, rounds = past.shape
    immediate, carried = rng.uniform(0.1, 40.0, cases), rng.choice([0.0, 1e-3, 0.5, 30.0], cases)
    turn = past[np.arange(cases), rng.integers(rounds, size=cases)]  # what is left falls until that round
    slope = np.choose(
        rng.integers(4, size=cases), [0.0 * turn, rng.exponential(size=cases), carried * turn, 1e-3]
    )
    owed = carried[:, None] * np.cumsum(past, axis=1) - slope[:, None] * np.arange(1, rounds + 1)
    spare = rng.choice([0.0, 1e-3, 1.0, 50.0], cases) * rng.exponential(size=cases)
    return np.maximum(np.max(owed, axis=1), 0.0) + spare, slope, immediate, carried


def smallest(account, past, lasts):
    """[N] the smallest ratio by looking at every round, and how much of it may be round-off.

    Args:
        account: See `accounts`.
        past: [N, rounds] what past deviations amount to in each round.
        lasts: [rounds] p(0), p(1), ...
    """
    base, slope, immediate, carried = (each[:, None] for each in account)
    rounds = np.arange(1, past.shape[1] + 1)
    numerators = base + rounds * slope - carried * np.cumsum(past, axis=1)
    denominators = immediate + carried * np.append(0.0, np.cumsum(lasts)[:-1])
    sizes = base + rounds * slope + carried * np.cumsum(past, axis=1)
    return np.min(numerators / denominators, axis=1), 1e-11 * np.max(sizes / immediate, axis=1)


@settings(deadline=None)
@given(rho=RHO | st.sampled_from([0.6, 0.9, 0.96, 0.99, 0.999]), scale=st.floats(1.0, 3.0), seed=SEED)
def test_the_least_ratio_is_that_of_looking_at_every_round(rho, scale, seed):
    rng = np.random.default_rng(seed)
    remaining = int(rng.integers(1, rng.choice([8, 60, 900]))) if rho <= 1.0 else int(rng.integers(1, 60))
    terms = scale * np.power(rho, np.arange(remaining))
    memory = rng.choice([0.0, 1e-3, 0.1, 5.0], 100)
    account = accounts(rng, memory[:, None] * terms)
    horizon = remaining + int(rng.choice([0, 1, 40]))
    found = geometric(rho, scale).least_ratio(*account, memory, float(remaining), horizon, NUMPY)
    expected, room = smallest(account, memory[:, None] * terms, terms)
    assert np.all(np.abs(found - expected) <= room + 1e-9 * np.abs(expected))
    unit = 2.0 ** int(rng.integers(-600, 600))  # of costs: a power of two changes no digit
    in_unit = (each * unit for each in account)
    again = geometric(rho, scale).least_ratio(*in_unit, memory, float(remaining), horizon, NUMPY)
    np.testing.assert_array_equal(again, found)


@settings(deadline=None)
@given(values=st.lists(st.floats(0.0, 3.0), min_size=20, max_size=20), past=st.integers(0, 12), seed=SEED)
def test_the_least_ratio_of_a_table_is_that_of_looking_at_every_round(values, past, seed):
    rng = np.random.default_rng(seed)
    p, horizon = table([1.0, *values]), int(rng.integers(past + 1, 23))
    memory = p.empty(horizon, NUMPY, 0.0)
    for deviation in rng.exponential(size=past):
        memory = p.remember(memory, deviation, NUMPY)
    remaining = horizon - past
    carried = np.tile(memory[:remaining], (10, 1))
    account = accounts(rng, carried)
    found = [p.least_ratio(*each, memory, remaining, horizon, NUMPY) for each in zip(*account, strict=True)]
    expected, room = smallest(account, carried, p.values[:remaining])
    assert np.all(np.abs(found - expected) <= room)


@pytest.mark.parametrize(
    ("p", "longest"),
    [(geometric(math.e), 700), (geometric(math.e, math.e**2), 698), (table([1.0, 0.5, 0.2]), 4)],
)
def test_a_horizon_beyond_what_is_known_or_can_be_computed_is_refused(p, longest):
    p.check_horizon(1)
    p.check_horizon(longest)
    with pytest.raises(ValueError, match=f"a horizon of {longest + 1}"):
        p.check_horizon(longest + 1)


def test_only_a_perturbation_that_grows_or_a_table_adds_round_off():
    assert geometric(math.e).round_off_growth(5) == 5.0
    assert geometric(0.5).round_off_growth(5) == 0.0
    assert table([1.0]).round_off_growth(5) == 5.0


@pytest.mark.parametrize("p", [geometric(0.5, 2.0), geometric(0.0), table([1.0, 1.5, 0.2])])
def test_a_perturbation_comes_back_from_what_describes_it(p):
    again = perturbation_from_dict(json.loads(json.dumps(p.to_dict())))
    assert again == p
    assert again.sum_over(3, NUMPY) == p.sum_over(3, NUMPY)
    assert Sensitivity(1.0, 2.0, again) == Sensitivity(1.0, 2.0, p)


@pytest.mark.parametrize("p", [geometric(0.5, 2.0), table([1.0, 1.5, 0.2])])
def test_estimates_come_back_as_estimates_and_bounds_as_bounds(p):
    estimated = EstimatedSensitivity(3.0, 2.0, p)
    assert (estimated.confidence, estimated.safety, estimated.rows) == (0.95, 1.0, 0)
    for known, proved in (
        (Sensitivity(3.0, 2.0, p), True),
        (estimated, False),
        (EstimatedSensitivity(3.0, 2.0, p, confidence=0.9, safety=1.5, rows=480), False),
    ):
        description = json.loads(json.dumps(known.to_dict()))
        again = sensitivity_from_dict(description)
        assert (type(again), again, again.proved) == (type(known), known, proved)
        assert description["proved"] is proved  # and reading it leaves it as it was


def test_a_table_holds_its_values_a_closing_zero_and_their_sums():
    p = table([1.0, 1.5, 0.2])
    assert p.values.tolist() == [1.0, 1.5, 0.2, 0.0]
    assert p.sums.tolist() == pytest.approx([0.0, 1.0, 2.5, 2.7])


@pytest.mark.parametrize(
    "known",
    [
        geometric(0.5),
        table([1.0]),
        Sensitivity(1.0, 2.0, geometric(0.5)),
        EstimatedSensitivity(1.0, 2.0, geometric(0.5)),
    ],
)
def test_what_is_known_cannot_be_changed_and_can_be_a_key(known):
    assert {known: 1}[known] == 1
    for name in vars(known):
        with pytest.raises(FrozenInstanceError):
            setattr(known, name, 0.0)


def test_lipschitz_constants_give_the_two_numbers_of_the_paper():
    bounds = Sensitivity.from_lipschitz(L_c=2.0, L_f=3.0, L_pi=0.5, p=geometric(0.9))
    assert (bounds.immediate, bounds.carried) == (2.0, 9.0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: geometric(-0.1), ValueError, "rho must be at least 0, got -0.1"),
        (lambda: geometric(0.5, 0.9), ValueError, r"scale must be at least 1 because p\(0\) = 1, got 0.9"),
        (lambda: geometric("fast"), TypeError, "rho must be a number, got 'fast'"),
        (lambda: geometric(0.5, math.nan), ValueError, "scale must be finite, got nan"),
        (lambda: geometric(0.5, math.nextafter(1.0, 0.0)), ValueError, "scale must be at least 1"),
        (lambda: table([]), ValueError, "non-empty list"),
        (lambda: table([[1.0]]), ValueError, r"got shape \(1, 1\)"),
        (lambda: table([0.5, 1.0]), ValueError, r"p\(0\) must be at least 1"),
        (lambda: table([math.nextafter(1.0, 0.0)]), ValueError, r"p\(0\) must be at least 1"),
        (lambda: table([1.0, math.inf]), ValueError, r"p\(1\) must be finite and at least 0, got inf"),
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
        (
            lambda: Sensitivity.from_lipschitz(0.0, 1.0, 0.0, geometric(1.0)),
            ValueError,
            "L_c must be greater than 0",
        ),
        (
            lambda: Sensitivity.from_lipschitz(1.0, 1.0, -1.0, geometric(1.0)),
            ValueError,
            "L_pi must be at least 0",
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
    assert table([1.0, 0.5]) != [1.0, 0.5]
    assert Geometric(0.5) == geometric(0.5) == geometric(0.5, 1.0)
