from __future__ import annotations

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.learn.shares import LEAST, Shares


@hypothesis.settings(deadline=None)
@given(st.integers(1, 13), st.integers(1, 7))
def test_what_is_cut_and_joined_is_the_whole_again(settings, seeds):
    grid = np.arange(settings * seeds).reshape(settings, seeds)
    rows, columns = np.arange(settings) * seeds, np.arange(seeds)
    shares = Shares(settings, seeds)

    def of_share(share):
        assert share.of(grid).size >= min(LEAST, grid.size)
        np.testing.assert_array_equal(
            share.of_settings(rows)[:, None] + share.of_seeds(columns)[None], share.of(grid)
        )
        return {"whole": share.of(grid)}

    for _ in range(2):
        np.testing.assert_array_equal(shares.map(of_share)["whole"], grid)


def test_the_first_share_is_done_before_the_others_begin_and_an_error_comes_through():
    shares, order = Shares(24, 1), []

    def of_share(share):
        assert not order or order[0] == 0
        order.append(share.settings.start)
        return np.zeros((6, 1))

    shares.map(of_share)
    assert order[0] == 0
    assert sorted(order) == [0, 6, 12, 18]

    def broken(share):
        raise FloatingPointError("no")

    with pytest.raises(FloatingPointError, match="no"):
        shares.map(broken)
