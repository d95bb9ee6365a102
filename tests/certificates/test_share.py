"""The search for the largest safe share of the way to a proposal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.certificates.share import CLOSE, SEARCH, Bracket, _left, largest_share
from tether.core.ops import FLOATS, NUMPY


@settings(max_examples=200, deadline=None)
@given(
    root=st.floats(1e-4, 2.0),
    steep=st.floats(0.01, 100.0),
    power=st.sampled_from([0.5, 1.0, 2.0, 6.0]),
    kind=st.sampled_from(["floats", "numpy"]),
)
def test_the_search_finds_most_of_the_way_and_never_goes_too_far(root, steep, power, kind):
    """An excess with a kink of any size at its root, concave, linear or convex."""

    def excess(_, share):
        away = (share / root) ** power - 1.0
        return NUMPY.where(away > 0.0, steep * away, away)

    if kind == "floats":
        share = largest_share(lambda _, t: float(excess(None, t)), None, 1.0, FLOATS)
    else:
        share = largest_share(excess, None, np.ones(1), NUMPY)[0]
    assert excess(None, share) <= 0.0
    assert share >= 0.7 * min(root, 1.0)


def test_an_excess_that_is_not_a_number_is_not_safe():
    assert largest_share(lambda _, share: math.nan, None, 1.0, FLOATS) == 0.0
    assert largest_share(lambda _, share: math.inf * (share > 0.0), None, 1.0, FLOATS) == 0.0
    assert largest_share(lambda _, share: -math.inf, None, 1.0, FLOATS) == 1.0


def documented(excess, farthest):
    """(share found, shares tried): the search in plain words, for floats."""
    tried = [1.0]
    if excess(1.0) <= 0.0:
        return 1.0, tried
    low, high, below, above = 0.0, farthest, -1e-30, bounded(excess(1.0))
    if farthest > 0.0:
        tried.append(0.0)
        if excess(0.0) <= 0.0:
            below = -bounded(-excess(0.0))
    given_up, widths, halved = None, [farthest, farthest], False
    while min(high - low, left((low, below), (high, above), given_up)) > 1e-5 * high and len(tried) < 16:
        blind = above >= 1e30 or below >= -1e-30
        fallen = given_up is not None and high < given_up[0] <= 16.0 * high and 4.0 * above <= given_up[1]
        alike = high <= 16.0 * low or fallen
        late = len(tried) >= 4 or (len(tried) == 3 and not alike)
        slow = late and not halved and high - low > 0.3 * widths[-2]
        halved = blind or slow
        if halved:
            if high <= 16.0 * low:
                share = 0.5 * (low + high)
            else:
                share = math.sqrt(low) * math.sqrt(high) if low > 0.0 else high / 32.0
        else:
            share = crossing((low, below), (high, above), given_up)
        tried.append(share)
        widths.append(high - low)
        value = excess(share)
        if value <= 0.0:
            given_up = low, below
            low, below = share, -bounded(-value)
        else:
            given_up = high, above
            high, above = share, bounded(value)
    return low, tried


def crossing(low, high, third):
    """Where the parabola through two points, and a third if there is one, crosses zero, and a little beyond."""
    (a, below), (b, above) = low, high
    points = [(0.0, below / (above - below)), (1.0, above / (above - below))]
    bend = 0.0
    if third is not None:
        place, value = (third[0] - a) / (b - a), min(max(third[1] / (above - below), -1e6), 1e6)
        bend = ((value - points[0][1]) / place - 1.0) / (place - 1.0)
    slope = 1.0 - bend
    root = math.sqrt(slope**2 - 4.0 * bend * points[0][1])
    at = (root - slope) / (2.0 * bend) if slope < 0.0 else -2.0 * points[0][1] / (slope + root)
    at = at**0.75 if third is None and at > 1.0 / 16.0 else at
    ends = third is not None and b - a <= 0.05 * b
    share = a + at * (b - a) + (-4e-6 if ends or at > 0.45 else 4e-6) * b
    return min(max(share, a + 2.5e-6 * b), b - 2.5e-6 * b)


def left(low, high, third):
    """How far above `low` the zero is at most, if the excess is convex or concave there."""
    (a, below), (b, above) = low, high
    if third is None or b - a > 0.05 * b or below >= -1e-30 or max(above, abs(third[1])) >= 1e30:
        return math.inf
    end, value = low if third[0] < a else high
    if not (third[1] - value) * (third[0] - end) > 0.0:
        return math.inf
    chord = -below * (b - a) / (above - below)
    return max(chord, end - a - value * (third[0] - end) / (third[1] - value))


def bounded(size):
    """What an excess of this size is computed with; what is not a number counts as large."""
    return min(max(size, 1e-30), 1e30) if size < math.inf else 1e30


EXCESSES = [
    *(
        lambda t, root=root, power=power, steep=steep: steep * ((t / root) ** power - 1.0)
        for root in (1e-7, 1e-3, 0.0413, 0.29, 0.7, 0.999, 1.0, 1.5)
        for power in (0.3, 1.0, 5.0)
        for steep in (1.0, 1e-40, 1e40)
    ),
    *(lambda t, root=root: (t - root) * (50.0 if t > root else 1.0) for root in (0.01, 0.2, 0.9)),
    *(lambda t, root=root: (t - root) * (0.02 if t > root else 1.0) for root in (0.01, 0.2, 0.9)),
    *(lambda t, root=root: math.nan if t > root else -1.0 for root in (1e-6, 0.1, 0.8)),
    *(lambda t, root=root: math.inf if t > root else -math.inf for root in (1e-6, 0.1, 0.8)),
    *(
        lambda t, root=root, power=power: (t / root) ** power - 1.0
        for root in (0.09, 0.2, 0.37, 0.62, 0.93)
        for power in (0.5, 0.8, 1.3, 2.0, 3.0)
    ),
    *(
        lambda t, root=root, kink=kink: max((t / root) ** 2 - 1.0, kink * (t - root), 3.0 * (t - 0.5) - 0.3)
        for root in (0.15, 0.4, 0.58)
        for kink in (0.1, 2.0, 40.0)
    ),
    *(lambda t, root=root: math.atan(9.0 * (t - root)) for root in (0.15, 0.4, 0.77)),
    *(lambda t, root=root: (t - root) * abs(t - root) for root in (0.15, 0.4, 0.77)),
    lambda t: math.nan,
    lambda t: 0.0 if t <= 0.5 else 1.0,
    lambda t: 0.0,
    lambda t: 1.0 if t < 0.2 or t > 0.6 else -1.0,  # the start is not safe
    lambda t: math.nan if t < 0.2 or t > 0.6 else -2.0,
    lambda t: 1.0,
]
FARTHEST = [1.0, 0.3, 1e-4, 0.0]


@pytest.mark.parametrize("farthest", FARTHEST)
def test_the_search_tries_what_its_documentation_says(farthest):
    assert (SEARCH, CLOSE) == (16, 1e-5)
    for excess in EXCESSES:
        tried = []

        def watched(_, share, excess=excess, tried=tried):
            tried.append(share)
            return excess(share)

        expected, order = documented(excess, farthest)
        assert largest_share(watched, None, farthest, FLOATS) == pytest.approx(expected, rel=1e-12, abs=0.0)
        assert tried == pytest.approx(order, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("farthest", FARTHEST)
def test_what_was_worked_out_before_is_not_worked_out_again(farthest):
    for excess in EXCESSES:
        expected, order = documented(excess, farthest)
        if excess(1.0) <= 0.0 or len(order) < 3:
            continue
        tried = []

        def watched(_, share, excess=excess, tried=tried):
            tried.append(share)
            return excess(share)

        found = largest_share(watched, None, farthest, FLOATS, SEARCH, (excess(0.0), excess(1.0)))
        assert found == pytest.approx(expected, rel=1e-12, abs=0.0)
        assert tried == pytest.approx(order[2:], rel=1e-12, abs=0.0)


@pytest.mark.parametrize("farthest", FARTHEST)
def test_many_searches_at_once_find_what_each_finds_alone(farthest):
    def all_at_once(_, shares):
        return np.array([excess(float(share)) for excess, share in zip(EXCESSES, shares, strict=True)])

    found = largest_share(all_at_once, None, np.full(len(EXCESSES), farthest), NUMPY)
    alone = [documented(excess, farthest)[0] for excess in EXCESSES]
    np.testing.assert_allclose(found, alone, rtol=1e-12, atol=0.0)


class Recorded:
    """Floats, and what was said of the boundary."""

    def __getattr__(self, name):
        return getattr(FLOATS, name)

    def fixed(self, inputs):
        return ("fixed", inputs)

    def at_boundary(self, excess, inputs, share, inside):
        self.said = inputs, inside
        return share


@pytest.mark.parametrize(("root", "inside"), [(2.0, False), (0.5, True), (0.98, True), (-1.0, False)])
def test_only_a_share_between_the_ends_has_the_slope_of_the_boundary(root, inside):
    """And the search itself is left out of the derivative."""
    ops, seen = Recorded(), set()

    def excess(inputs, share):
        seen.add(inputs)
        return share - root

    largest_share(excess, "inputs", 1.0, ops)
    assert ops.said == ("inputs", inside)
    assert seen == {("fixed", "inputs")}


@pytest.mark.parametrize("farthest", [1.0, 1e-56, 1e-296])
def test_the_way_to_an_astronomically_far_proposal_is_searched_as_well(farthest):
    edge = farthest / 300.0

    def excess(_, share):
        away = share / edge - 1.0
        return 50.0 * away if away > 0.0 else away

    share = largest_share(excess, None, farthest, FLOATS)
    assert 0.7 * edge < share <= edge


def test_what_is_known_of_both_ends_is_not_worked_out_again():
    for excess in (each for each in EXCESSES if not each(1.0) <= 0.0):
        tried = []

        def watched(_, share, excess=excess, tried=tried):
            tried.append(share)
            return excess(share)

        share, order = documented(excess, 1.0)
        known = excess(0.0), excess(1.0)
        found = largest_share(watched, None, 1.0, FLOATS, SEARCH, known)
        assert found == pytest.approx(share, rel=1e-12, abs=0.0)
        assert tried == pytest.approx(order[2:], rel=1e-12, abs=0.0)


def a_bracket(low, high, third):
    """Between two points (share, excess), with the one before them."""
    return Bracket(low[0], high[0], low[1], high[1], *third, width=1.0, halved=False, step=5.0)


def test_what_is_left_of_the_way_is_at_most_what_a_line_on_either_side_says():
    for power in (0.4, 0.7, 1.0, 1.6, 4.0):

        def at(share, power=power):
            return share, 2.0 * (share**power - 0.5**power)

        for low, high, third in (
            (0.49, 0.51, 0.3),
            (0.49, 0.51, 0.9),
            (0.4999, 0.52, 0.45),
            (0.3, 0.501, 0.7),
        ):
            points = at(low), at(high), at(third)
            left = _left(a_bracket(*points), FLOATS)
            assert left >= (0.5 - low) * (1.0 - 1e-9)
            chord = (0.0 - points[0][1]) * (high - low) / (points[1][1] - points[0][1])
            end = points[0] if third < low else points[1]
            slope = (points[2][1] - end[1]) / (third - end[0])
            assert left == pytest.approx(max(chord, end[0] - end[1] / slope - low), rel=1e-9)


def test_nothing_is_known_of_what_is_left_where_an_excess_says_nothing_of_its_size():
    known = (0.49, -0.1), (0.51, 0.1), (0.3, -1.1)
    assert 0.0 < _left(a_bracket(*known), FLOATS) < 0.02
    for i, excess in ((0, -1e-30), (1, 1e30), (2, -1e30), (2, -0.1), (2, 0.2)):
        odd = [point if i != j else (point[0], excess) for j, point in enumerate(known)]
        assert _left(a_bracket(*odd), FLOATS) == math.inf
    outside = known[0], known[1], (0.51, 0.1)
    assert _left(a_bracket(*outside), FLOATS) == math.inf
    assert _left(a_bracket(known[0], known[1], (0.9, 1e30)), FLOATS) == math.inf


def test_where_the_excess_bends_one_way_the_search_ends_as_near_to_the_edge_as_it_says():
    ends = 0
    for root in (0.05, 0.2, 0.5, 0.9):
        for power in (0.5, 0.8, 1.0, 1.5, 2.0, 3.0):
            for kink in (1.0, 3.0):  # an excess that bends up may have one
                tried = []

                def excess(_, t, root=root, power=power, kink=kink if power >= 1.0 else 1.0, tried=tried):
                    tried.append(t)
                    away = (t / root) ** power - 1.0
                    return kink * away if t > root else away

                share = largest_share(excess, None, 1.0, FLOATS)
                assert share <= root
                assert share >= root * (1.0 - 1.1e-5) or len(tried) == SEARCH
                ends += min(t for t in tried if t > root) > share * (1.0 + 1e-5)
    assert ends > 5  # before an unsafe share was so near
