"""Tails, on laws whose end is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.estimation.extremes import fit_tail


@pytest.mark.parametrize(
    ("draw", "end"),
    [
        (lambda random: random.uniform(0.0, 1.0, 4000), 1.0),
        (lambda random: random.beta(1.0, 2.0, 4000), 1.0),
        (lambda random: np.sin(random.uniform(-1.5, 1.5, 4000)), np.sin(1.5)),
    ],
    ids=["uniform", "falling", "rising"],
)
def test_the_limit_covers_a_known_end_and_is_near_it(draw, end):
    random = np.random.default_rng(0)
    tails = [fit_tail(draw(random), times=1000.0, confidence=0.95) for _ in range(10)]
    assert sum(tail.upper >= end * (1.0 - 1e-3) for tail in tails) >= 8
    assert np.median([tail.upper for tail in tails]) <= 1.1 * end
    assert all(tail.seen <= tail.level <= tail.upper for tail in tails)


def test_a_longer_operation_and_a_higher_confidence_go_further():
    values = np.random.default_rng(1).normal(size=5000)
    base = fit_tail(values, times=10.0, confidence=0.9)
    assert fit_tail(values, times=1000.0, confidence=0.9).upper > base.upper
    assert fit_tail(values, times=10.0, confidence=0.99).upper > base.upper


@settings(max_examples=8, deadline=None)
@given(factor=st.floats(0.01, 100.0), shift=st.floats(-50.0, 50.0))
def test_the_unit_of_the_values_does_not_matter(factor, shift):
    values = np.random.default_rng(2).beta(2.0, 3.0, 1500)
    plain, other = fit_tail(values), fit_tail(factor * values + shift)
    assert other.upper == pytest.approx(factor * plain.upper + shift, rel=1e-6, abs=1e-6 * factor)


def test_a_bound_that_is_reached_is_not_extrapolated():
    values = np.minimum(np.random.default_rng(3).uniform(0.0, 2.0, 2000), 1.0)
    assert fit_tail(values).upper == 1.0
    assert fit_tail(np.ones(500)).upper == 1.0


def test_exceedances_in_successive_rounds_are_one():
    values = np.repeat(np.random.default_rng(4).uniform(size=2000), 5)
    alone, together = fit_tail(values), fit_tail(values, order=np.arange(values.size))
    assert together.peaks < 0.3 * alone.peaks


def test_a_confidence_that_is_none_is_refused():
    with pytest.raises(ValueError, match="confidence must be between"):
        fit_tail(np.arange(100.0), confidence=1.0)
