"""The search for the largest safe share of the way to a proposal."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.certificates.share import largest_share
from tether.ops import FLOATS, NUMPY


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
