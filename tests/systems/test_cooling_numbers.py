"""The bounds of the two rooms against what their documentation defines them to be, worked out on grids."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tether.certificates import Round
from tether.core.ops import FLOATS, NUMPY
from tether.systems.cooling import CoolingStructure

S = CoolingStructure(
    action_max=8.0,
    setpoint=24.0,
    band=1.0,
    discomfort=(2.0, 3.0),
    wall=0.1,
    leak=0.05,
    heating=0.5,
    gain=0.6,
    effectiveness_min=0.8,
)
STAY = 0.85
CASES = 200
TINY = 1e-15
V = np.linspace(0.8, 1.0, 201)[:, None]


def cases(seed=0):
    """(u_1, l_1, u_2, l_2), (x_1, x_2, q_1, q_2, T), lam and both actions of many rounds."""
    rng = np.random.default_rng(seed)
    x = 24.0 + rng.choice([0.5, 2.0, 5.0], (2, CASES)) * rng.normal(size=(2, CASES))
    gaps = rng.choice([0.0, 0.3, 1.5], (4, CASES)) * rng.uniform(-0.2, 1.0, (4, CASES))
    gaps[1::2] = np.maximum(gaps[1::2], -gaps[::2])  # what is above by at least 0.1 is not below
    load, outside = rng.choice([0.0, 3.0, 9.0], (2, CASES)), rng.choice([-10.0, 24.0, 40.0], CASES)
    action = rng.uniform(0.0, 8.0, (2, CASES)) * rng.choice([0.0, 0.5, 1.0], (2, CASES))
    return tuple(gaps), (*x, *load, outside), rng.choice([0.0, 0.5, 3.0], CASES), action


def thermostat(x, load, outside):
    entering = load + 0.05 / 0.5 * (outside - 24.0)
    return np.clip(entering / 0.9 + 0.6 * (x - 24.0), 0.0, 8.0)


def after(i, x, seen, action):
    """[V, C] the temperature that a room of these two has next, for each effectiveness."""
    uncooled = STAY * x[i] + 0.1 * x[1 - i] + 0.05 * seen[4] + 0.5 * seen[2 + i]
    return uncooled - 0.5 * V * action


def room(i, case):
    """[V, C] the own next temperature, and the least and the largest that the prior's can be."""
    gaps, seen, _, action = case
    x = seen[:2]
    cold, hot = ([x[k] + sign * gaps[2 * k + side] for k in (0, 1)] for side, sign in ((0, -1.0), (1, 1.0)))
    ends = [after(i, each, seen, thermostat(each[i], seen[2 + i], seen[4])) for each in (cold, hot)]
    return after(i, x, seen, action[i]), *ends


def discomfort(x):
    return np.maximum(np.abs(x - 24.0) - 1.0, 0.0)


def least_discomfort(low, high):
    return np.maximum(np.maximum(low - 24.0, 24.0 - high) - 1.0, 0.0)


def bounds_of(case):
    gaps, seen, lam, action = case
    return S.bounds(Round(gaps, seen, None, lam, 1.0, 0.0, 8.0), list(action), 0, NUMPY)


def test_the_excess_of_a_round_is_the_largest_that_the_documentation_allows():
    case = cases()
    lam = case[2]
    bounds = bounds_of(case)
    expected, difference, ceiling, floor = -lam, 0.0, 1.0, 1.0
    for i, weight in enumerate(S.discomfort):
        own, low, high = room(i, case)
        mine, its = discomfort(own), least_discomfort(low, high)
        expected = expected + weight * np.max(mine - (1.0 + lam) * its, axis=0)
        difference = difference + weight * np.max(mine - its, axis=0)
        ceiling = ceiling + weight * np.max(mine, axis=0)
        floor = floor + weight * least_discomfort(low[-1], high[0])
    assert np.all(bounds.totals[0] >= expected - 1e-10)
    np.testing.assert_allclose(bounds.totals[0], expected, atol=0.04)
    assert np.mean(bounds.totals[0] - expected) < 2e-3
    np.testing.assert_allclose(bounds.ceiling, ceiling, rtol=1e-12)
    np.testing.assert_allclose(bounds.step[0], floor, rtol=1e-12)
    np.testing.assert_allclose(bounds.step[1], difference, atol=0.01)
    for given, put in zip(bounds.step[2:], (*case[0], *case[1], *case[3]), strict=True):
        np.testing.assert_array_equal(given, put)


def test_later_rounds_fade_through_the_wall_and_to_the_outside():
    case = cases(1)
    lam = case[2]
    bounds = bounds_of(case)
    above, below = np.zeros((2, CASES)), np.zeros((2, CASES))
    for i in (0, 1):
        own, low, high = room(i, case)
        above[i], below[i] = (np.maximum(np.max(each, axis=0), 0.0) for each in (own - low, high - own))
    shrink, weights = np.array([[STAY, 0.1], [0.1, STAY]]), np.array(S.discomfort)
    assert len(bounds.totals) == 9
    total = bounds.totals[0]
    for n in range(1, 9):
        power = np.linalg.matrix_power(shrink, n)
        larger = np.maximum(power @ above, power @ below)
        weight = weights if n < 8 else weights @ np.linalg.inv(np.eye(2) - shrink)
        total = total + weight @ larger - lam
        np.testing.assert_allclose(bounds.totals[n], total, rtol=1e-10, atol=1e-10)


def test_where_a_unit_ran_the_next_temperature_tells_the_gap_and_where_it_did_not_the_larger_end_counts():
    case = cases(2)
    _, seen, _, action = case
    rng = np.random.default_rng(3)
    effects = rng.integers(0, 201, (2, CASES))
    step = bounds_of(case).step
    rooms = [room(i, case) for i in (0, 1)]
    next_seen = [own[effects[i], np.arange(CASES)] for i, (own, *_) in enumerate(rooms)]
    refined = S.refine(step[2:], (*next_seen, *seen[2:]), TINY, NUMPY)
    for i, (own, low, high) in enumerate(rooms):
        for k, gap in enumerate((own - low, high - own)):
            known = gap[effects[i], np.arange(CASES)]
            unknown = np.max(gap, axis=0)
            expected = np.where(action[i] > 0.0, known, unknown)
            ran = (action[i] > 1e-3) | (action[i] == 0.0)
            np.testing.assert_allclose(refined[2 * i + k][ran], expected[ran], atol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-7])
def test_64_units_of_round_off_of_everything_in_a_temperature_are_allowed_for(epsilon):
    """The seen temperature is off by nearly as much, and what is left is a bound with an eighth of it to spare."""
    case = cases(4)
    gaps, seen, _, action = case
    effects = np.random.default_rng(5).integers(0, 201, (2, CASES))
    step = bounds_of(case).step
    rooms = [room(i, case) for i in (0, 1)]
    truth = [own[effects[i], np.arange(CASES)] for i, (own, *_) in enumerate(rooms)]
    off = []
    for i in (0, 1):
        x, other, load, outside = seen[i], seen[1 - i], seen[2 + i], seen[4]
        size = 25.0 + STAY * abs(x) + 0.1 * abs(other) + 0.05 * abs(outside) + 0.5 * load + 0.5 * action[i]
        left = sum(abs(STAY * gaps[2 * i + k] + 0.1 * gaps[2 * (1 - i) + k]) for k in (0, 1))
        off.append(64.0 * epsilon * (size + abs(truth[i] - 24.0) + left))
    for sign in (-1.0, 1.0):
        # Where a unit did not run every effectiveness must be covered, and three quarters of it are allowed for.
        noisy = [truth[i] + sign * np.where(action[i] > 0.01, 0.99, 0.745) * off[i] for i in (0, 1)]
        refined = S.refine(step[2:], (*noisy, *seen[2:]), epsilon, NUMPY)
        for i, (own, low, high) in enumerate(rooms):
            for k, gap in enumerate((own - low, high - own)):
                known = gap[effects[i], np.arange(CASES)]
                assert np.all(refined[2 * i + k] >= known + 0.124 * off[i])


def test_a_cost_that_was_seen_tells_what_the_prior_paid_at_least():
    step = (3.0, 1.5, *range(11))
    for cost, floor in ((4.0, 3.0), (9.0, 9.0 - 1.5 - 64e-6 * 10.5)):
        assert S.close(step, cost, 1e-6, FLOATS) == (pytest.approx(floor, rel=1e-12), tuple(range(11)))
    better = (3.0, -1.5, *range(11))
    assert S.close(better, 9.0, 1e-6, FLOATS)[0] == pytest.approx(9.0 + 1.5 - 64e-6 * 10.5, rel=1e-12)


def test_the_rooms_are_read_and_start_without_a_gap():
    assert S.read([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (5.0, 6.0, 1.0, 2.0, 3.0)
    assert S.start(0.0) == (0.0, 0.0, 0.0, 0.0, 24.0, 24.0, 0.0, 0.0, 24.0, 0.0, 0.0)
    # At the setpoint, without a load and a unit that runs, nothing moves.
    refined = S.refine(S.start(0.0), (24.0, 24.0, 3.0, 3.0, 30.0), TINY, FLOATS)
    assert refined == pytest.approx((0.0,) * 4, abs=1e-11)
    assert (S.low, S.high, S.entries, S.scalar) == (0.0, 8.0, 2, True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        S.gain = 0.0
    assert S.scale == pytest.approx(5.0 * (24.0 + 4.0) / 0.05)
    below_zero = dataclasses.replace(S, setpoint=-24.0)
    assert below_zero.scale == S.scale
    assert S.gaps_between((25.0, 22.0), (24.0, 24.0), FLOATS) == (1.0, -1.0, -2.0, 2.0)
    assert S.gap_features((1.0, -1.0, 3.0, -0.5), FLOATS) == (3.0, 0.0)
    assert S.gap_features((-1.0, 2.0, -0.5, 1.0), FLOATS) == (0.0, 2.0)
    assert dataclasses.replace(S, discomfort=[2.0, 3.0]) == S
    assert dataclasses.replace(S, wall=0.25, leak=0.25, gain=1.0).gain == 1.0  # hotter rooms just stay hotter
    with pytest.raises(ValueError, match="hotter must stay hotter"):
        dataclasses.replace(S, gain=1.8)


def test_what_is_a_hundred_times_the_usual_size_is_not_covered_and_no_load_is_negative():
    usual = 100.0 * (1.0 + 24.0 + 0.5 * 8.0)
    rooms = 2.0 * 25.0 + 0.95 * (24.0 + 20.0)
    far, load = (usual - rooms) / (2.0 * 0.05), (usual - rooms) / 0.5
    hot = (usual - 2.0 * 25.0) / 0.95
    for share, possible in ((1.0 - 1e-9, True), (1.0 + 1e-9, False)):
        for sign in (-1.0, 1.0):
            assert S.admits((24.0, 20.0, 0.0, 0.0, sign * share * far), FLOATS) is possible
            assert S.admits((sign * share * hot, 0.0, 0.0, 0.0, 0.0), FLOATS) is possible
            assert S.admits((0.0, sign * share * hot, 0.0, 0.0, 0.0), FLOATS) is possible
        assert S.admits((24.0, 20.0, share * load, 0.0, 0.0), FLOATS) is possible
        assert S.admits((24.0, 20.0, 0.0, share * load, 0.0), FLOATS) is possible
    for seen in (
        (24.0, 24.0, -0.1, 1.0, 24.0),
        (24.0, 24.0, 1.0, -0.1, 24.0),
        (math.nan, 24.0, 1.0, 1.0, 24.0),
    ):
        assert S.admits(seen, FLOATS) is False
    assert S.admits((24.0, 24.0, 0.0, 0.0, 24.0), FLOATS) is True
    cold = dataclasses.replace(S, setpoint=-24.0)
    assert cold.admits((24.0, 20.0, 0.0, 0.0, (1.0 - 1e-9) * far), FLOATS) is True


def test_both_thermostats_must_be_the_ones_that_the_bounds_are_about():
    seen = (25.0, 23.0, 3.0, 4.0, 30.0)
    own = [float(thermostat(seen[i], seen[2 + i], seen[4])) for i in (0, 1)]
    size = 1.0 + 24.0 + sum(seen)
    off = 64.0 * 1e-6 * size * (1.0 + 0.5 * 0.6) / 0.5
    assert S.agrees(seen, own, 1e-6, FLOATS) is True
    for first, second, same in (
        (0.99, 0.0, True),
        (0.0, -0.99, True),
        (1.01, 0.0, False),
        (-1.01, 0.0, False),
        (0.0, 1.01, False),
        (0.5, -0.49, True),
        (0.5, -0.51, False),
    ):
        assert S.agrees(seen, [own[0] + first * off, own[1] + second * off], 1e-6, FLOATS) is same
    for seen, expected in (
        ((10.0, 40.0, 0.0, 9.0, 24.0), [0.0, 8.0]),
        ((40.0, 10.0, 9.0, 0.0, 24.0), [8.0, 0.0]),
    ):
        assert S.agrees(seen, expected, 1e-9, FLOATS) is True  # off, and at its limit
