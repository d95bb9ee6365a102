from __future__ import annotations

import math

import numpy as np
import pytest

import tether
from tether import Contract, audit

CONTRACT = Contract(lam=1.0, b=0.5, horizon=3)
PRIOR = [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]


def test_the_promise_is_checked_in_every_round_not_just_at_the_end():
    verdict = audit([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0]], PRIOR, CONTRACT)
    assert not verdict.holds
    assert verdict.violation_rate == 0.5
    assert verdict.first_breach == (1, 1)
    assert verdict.worst_margin == -0.5
    np.testing.assert_array_equal(verdict.violations, [[False] * 3, [True, False, False]])


def test_a_kept_promise_says_so():
    verdict = audit(PRIOR, PRIOR, CONTRACT)
    assert verdict.holds
    assert verdict.first_breach is None
    assert verdict.violation_rate == 0.0
    assert "KEPT in every round" in str(verdict)
    np.testing.assert_array_equal(verdict.cumulative_costs, np.cumsum(PRIOR, axis=1))
    np.testing.assert_array_equal(verdict.bounds, 2.0 * np.cumsum(PRIOR, axis=1) + [0.5, 1.0, 1.5])


def test_the_text_names_the_first_breach():
    text = str(audit([[9.0, 0.0, 0.0]], PRIOR[:1], CONTRACT))
    assert "BROKEN" in text
    assert "1 of 1 (100.00%)" in text
    assert "episode 0, round 1" in text


def test_a_bound_that_is_met_exactly_is_kept():
    assert audit([[2.5, 2.5, 2.5]], PRIOR[:1], CONTRACT).holds


def test_a_tie_up_to_round_off_is_kept_and_a_little_more_is_not():
    assert audit([[2.5 * (1 + 1e-15), 2.5, 2.5]], PRIOR[:1], CONTRACT).holds
    assert not audit([[2.5 * (1 + 1e-13), 2.5, 2.5]], PRIOR[:1], CONTRACT).holds
    rounded = np.array([[2.5 * (1 + 1e-6), 2.5, 2.5]], dtype=np.float32)
    assert audit(rounded, PRIOR[:1], CONTRACT).holds


def test_a_small_cost_ties_up_to_the_round_off_of_large_ones():
    """A shortfall of 0.01 from energies of 6 is off by 1e-15, its square by 2e-17: more than its own last digit."""
    contract = Contract(lam=0.0, b=0.0, horizon=2)
    small = (0.01 + 4e-15) ** 2
    assert audit([[small, 36.0]], [[1e-4, 36.0]], contract).holds
    assert not audit([[small, 0.0]], [[1e-4, 0.0]], contract).holds
    assert not audit([[1e-4 + 1e-12, 36.0]], [[1e-4, 36.0]], contract).holds
    huge = [[1e30, 1e30], [1.0, 1.0]]  # what one episode costs excuses nothing in another
    assert np.all(np.any(audit(huge, [[0.5, 0.5], [0.5, 0.5]], contract).violations, axis=1))


def test_a_cost_that_is_not_a_number_is_a_violation():
    verdict = audit([[0.0, math.nan, 0.0]], PRIOR[:1], CONTRACT)
    assert verdict.first_breach == (0, 2)
    assert math.isnan(verdict.worst_margin)


def test_runs_and_plain_costs_are_audited_alike():
    run = tether.Run(rewards=np.zeros((2, 3)), costs=np.array(PRIOR))
    assert audit(run, run, CONTRACT).holds
    np.testing.assert_array_equal(run.total_costs, [3.0, 1.0])
    assert len(run) == 2


@pytest.mark.parametrize(
    ("run", "prior", "message"),
    [
        ([[1.0, 1.0]], PRIOR, r"run must hold costs \[N, 3\] with N >= 1, got shape \(1, 2\)"),
        (PRIOR, [[1.0, 1.0, 1.0]], r"same episodes, got costs \(2, 3\) and \(1, 3\)"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "N >= 1"),
        ([1.0, 1.0, 1.0], PRIOR, r"got shape \(3,\)"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(run, prior, message):
    with pytest.raises(ValueError, match=message):
        audit(run, prior, CONTRACT)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_figure_is_saved(tmp_path, suffix):
    audit(PRIOR, PRIOR, CONTRACT).figure(tmp_path / f"audit.{suffix}")
    assert (tmp_path / f"audit.{suffix}").stat().st_size > 1000
    assert [file.name for file in tmp_path.iterdir()] == [f"audit.{suffix}"]


def test_a_figure_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"saved as .png, .svg or .pdf"):
        audit(PRIOR, PRIOR, CONTRACT).figure(tmp_path / "audit.xls")
    assert list(tmp_path.iterdir()) == []
