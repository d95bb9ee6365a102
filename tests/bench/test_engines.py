"""The simulated schedule is that of a greedy driver."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.bench.engines import Costs, schedule

FREE = Costs(start=0.0, first=0.0, hand_out=0.0)
lengths = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=30)


@given(lengths, st.integers(1, 8))
def test_a_schedule_is_between_the_ideal_and_twice_it(pieces, workers):
    made = schedule(pieces, workers, FREE)
    assert made.seconds >= max(made.ideal, max(pieces)) * (1.0 - 1e-9)
    assert made.seconds <= (made.ideal + max(pieces)) * (1.0 + 1e-9)
    assert made.idle == pytest.approx(1.0 - made.efficiency)


@given(lengths, st.integers(1, 8), st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_work_and_what_is_lost_make_up_all_of_the_time(pieces, workers, first, hand_out):
    made = schedule(pieces, workers, Costs(0.0, first, hand_out))
    assert made.efficiency + made.starting + made.waiting + made.idle == pytest.approx(1.0)


def test_the_bottleneck_is_named():
    assert schedule([1.0] * 64, 64, Costs(0.0, 0.0, 1.0)).bottleneck == "the driver"
    assert schedule([1.0] * 64, 64, Costs(0.0, 5.0, 0.0)).bottleneck == "starting workers"
    assert schedule([1.0] * 60, 64, FREE).bottleneck == "too few pieces"
