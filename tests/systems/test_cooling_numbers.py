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


def test_features_are_the_larger_gap_of_both_rooms_and_gaps_come_back_from_them():
    for gaps, expected in (
        ((0.3, 0.1, 0.2, 0.4), (0.3, 0.4)),
        ((0.2, 0.4, 0.3, 0.1), (0.3, 0.4)),
        ((-0.2, -0.4, -0.3, -0.1), (0.0, 0.0)),
    ):
        assert S.gap_features(gaps, FLOATS) == expected
    above, below = 0.3 / 0.95, 0.4 / 0.95  # a leak of 0.05 leaves 0.95 of a gap
    assert S.gaps_from_features(0.3, 0.4) == pytest.approx(
        (above, below, above, below, 24.0 - below, 24.0 - below, 0.0, 0.0, 24.0, 0.0, 0.0)
    )
    leaky = dataclasses.replace(S, leak=1.0, wall=0.0, heating=0.0)
    assert leaky.gaps_from_features(1.0, 0.0)[0] == pytest.approx(1e12)


def size_of(s, i, seen):
    """What the round-off of a next temperature is proportional to: the sizes of all that it is the sum of, and 1."""
    parts = (s.setpoint, (1.0 - s.wall - s.leak) * seen[i], s.wall * seen[1 - i], s.leak * seen[4])
    return 1.0 + math.fsum(abs(each) for each in (*parts, s.heating * seen[2 + i]))


@pytest.mark.parametrize("setpoint", [24.0, -24.0])
def test_the_size_of_a_temperature_is_that_of_all_it_is_the_sum_of_whatever_their_signs(setpoint):
    s, rng = dataclasses.replace(S, setpoint=setpoint), np.random.default_rng(6)
    for _ in range(50):
        seen = tuple(rng.normal(size=5) * rng.choice([0.0, 1.0, 30.0], 5))
        for i in (0, 1):
            assert s._size(i, seen) == pytest.approx(size_of(s, i, seen), rel=1e-12)


@pytest.mark.parametrize("epsilon", [2.0**-40, 2.0**-16, 2.0**-12, 2.0**-9])
@pytest.mark.parametrize("setpoint", [24.0, -24.0])
def test_the_effectiveness_is_known_up_to_64_units_of_round_off_to_both_sides(epsilon, setpoint):
    """The gaps at every effectiveness that round-off leaves possible, an eighth of it more."""
    s, rng = dataclasses.replace(S, setpoint=setpoint), np.random.default_rng(7)
    for _ in range(100):
        gaps = tuple(rng.uniform(-1.0, 1.5, 4))
        seen = (
            *(setpoint + rng.normal(size=2) * 3.0),
            *rng.choice([0.0, 3.0], 2),
            setpoint + rng.normal() * 9,
        )
        actions = tuple(rng.choice([0.0, 1e-5, 1e-3, 0.1, 1.0, 8.0], 2))
        following = []
        for i in (0, 1):
            warm = STAY * seen[i] + 0.1 * seen[1 - i] + 0.05 * seen[4] + 0.5 * seen[2 + i]
            noise = 64.0 * epsilon * size_of(s, i, seen) * rng.uniform(-1.3, 1.3)
            following.append(warm - 0.5 * actions[i] * rng.uniform(0.75, 1.05) + noise)
        refined = s.refine((*gaps, *seen, *actions), (*following, *seen[2:]), epsilon, FLOATS)
        for i in (0, 1):
            warm = STAY * seen[i] + 0.1 * seen[1 - i] + 0.05 * seen[4] + 0.5 * seen[2 + i]
            left = [STAY * gaps[2 * i + k] + 0.1 * gaps[2 * (1 - i) + k] for k in (0, 1)]
            cooled, departure = 0.5 * actions[i], following[i] - setpoint
            off = (
                64.0 * epsilon * (size_of(s, i, seen) + abs(departure) + abs(left[0]) + abs(left[1]) + cooled)
            )
            entering = seen[2 + i] + 0.1 * (seen[4] - setpoint)
            needed = entering / 0.9 + 0.6 * (seen[i] - setpoint)
            asked = [0.5 * min(max(needed + 0.6 * gap, 0.0), 8.0) for gap in (-gaps[2 * i], gaps[2 * i + 1])]
            # Cooled by v * cooled, and seen cooled by warm - following, give or take `off`.
            rates = [(warm - following[i] + side) / max(cooled, off / 4.0) for side in (-off, off)]
            rates = [min(max(rate, 0.8), 1.0) for rate in rates]
            for k, slope in enumerate((asked[0] - cooled, cooled - asked[1])):
                expected = left[k] + max(rate * slope for rate in rates) + off / 8.0
                assert refined[2 * i + k] == pytest.approx(expected, rel=1e-9, abs=1e-9 * off)


def test_thermostats_may_be_off_by_exactly_the_round_off_of_everything_that_was_seen():
    """With numbers that are exact in floating point, so that the very end is one too; negative ones count as well."""
    s = CoolingStructure(8.0, -16.0, 1.0, (2.0, 3.0), 0.25, 0.25, 0.5, 0.5, 1.0)
    seen = (-15.0, -17.0, 3.0, 4.0, -14.0)
    own = [3.0 + 0.5 * 2.0 + 0.5, 4.0 + 0.5 * 2.0 - 0.5]
    off = 64.0 * 2.0**-20 * (1.0 + 16.0 + 15.0 + 17.0 + 3.0 + 4.0 + 14.0) * (1.0 + 0.5 * 0.5) / 0.5
    for share, same in ((0.0, True), (1.0, True), (1.0001, False)):
        for sign in (-1.0, 1.0):
            assert s.agrees(seen, [own[0] + sign * share * off, own[1]], 2.0**-20, FLOATS) is same
            assert s.agrees(seen, [own[0], own[1] + sign * share * off], 2.0**-20, FLOATS) is same
            assert (
                s.agrees(seen, [own[0] + share * off / 2, own[1] - share * off / 2], 2.0**-20, FLOATS) is same
            )


def test_the_very_end_of_what_is_covered_is():
    s = CoolingStructure(8.0, 24.0, 1.0, (2.0, 3.0), 0.25, 0.25, 0.5, 0.5, 0.8)
    usual = 100.0 * (1.0 + 24.0 + 4.0)
    far = (usual - 2.0 * 25.0) / (2.0 * 0.25)
    for more, possible in ((0.0, True), (1.0, False)):
        assert s.admits((0.0, 0.0, 0.0, 0.0, far + more), FLOATS) is possible
        assert s.admits((0.0, 0.0, 0.0, 0.0, -far - more), FLOATS) is possible
    for seen in (
        (24.0, 24.0, -0.1, -0.1, 24.0),
        (24.0, 24.0, -0.1, 0.0, 24.0),
        (24.0, 24.0, 0.0, -0.1, 24.0),
    ):
        assert s.admits(seen, FLOATS) is False


def test_the_gaps_between_two_pairs_of_rooms_are_signed_and_those_of_each_room():
    for seen, other, gaps in (
        ((25.0, 22.0), (24.0, 24.0), (1.0, -1.0, -2.0, 2.0)),
        ((20.0, 31.0), (23.0, 26.0), (-3.0, 3.0, 5.0, -5.0)),
    ):
        assert S.gaps_between((*seen, 1.0, 2.0, 3.0), (*other, 4.0, 5.0, 6.0), FLOATS) == gaps


@pytest.mark.parametrize(
    ("room", "worst", "difference"),
    [
        # 3 - 0.25 v - 1 of discomfort, and from v = 0.9 on none of the prior's, which is 1.45 - 0.5 v - 1 before.
        ((3.0, 1.55, 0.0, 0.5, 0.5), 1.775, 1.775),
        # 2 + 0.25 v - 1 of discomfort, and up to v = 0.9 none of the prior's, which is 0.55 + 0.5 v - 1 after.
        ((-2.0, 0.0, 1.45, 0.0, 0.5), 1.225, 1.225),
    ],
)
def test_the_worst_effectiveness_may_be_the_one_where_the_discomfort_of_the_prior_begins(
    room, worst, difference
):
    found = S._worst(room, 0.5, 1.0, FLOATS)
    assert found[:2] == pytest.approx((worst, difference), rel=1e-12)


def test_features_of_0_give_gaps_of_0():
    below = 0.4 / 0.95
    assert S.gaps_from_features(0.0, 0.4)[:4] == pytest.approx((0.0, below, 0.0, below))
