"""The search finds the top of hills that it cannot differentiate, and says what it found."""

from __future__ import annotations

import numpy as np
import pytest

from tether.learn.search import maximise

TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
PEAK = np.array([1.0, -2.0, 0.5, 0.0, 3.0])


def hill(points):
    """A narrow ridge across the axes, with its top at PEAK."""
    return -np.sum(((points - PEAK) @ TURN * [1.0, 3.0, 10.0, 1.0, 0.3]) ** 2, axis=1)


def search(score, generations=150, size=5, first=None, seed=0):
    start, first = np.zeros(size), np.zeros((10, size)) if first is None else first
    return maximise(score, start, first=first, step=0.5, candidates=10, generations=generations, seed=seed)


def test_it_climbs_a_ridge_that_lies_across_the_axes():
    found = search(hill)
    assert np.allclose(found.point, PEAK, atol=1e-3)
    alone = hill(found.point[None])[0]  # in a batch, matrix products may end in another digit
    assert found.value == pytest.approx(alone, rel=1e-12)


def test_only_the_order_of_the_values_counts():
    plain, squeezed = search(hill, 30), search(lambda points: np.tanh(hill(points) / 1e3), 30)
    assert np.array_equal(plain.point, squeezed.point)


def test_the_same_seed_finds_the_same():
    assert np.array_equal(search(hill, 5).point, search(hill, 5).point)
    assert not np.array_equal(search(hill, 5).point, search(hill, 5, seed=1).point)


def test_what_is_not_a_number_is_never_the_best():
    def holed(points):
        return np.where(points[:, 0] > 0.9, np.nan, hill(points))

    found = search(holed)
    assert found.point[0] <= 0.9
    assert np.isfinite(found.value)


def test_it_begins_at_the_best_of_the_first_points():
    first = np.zeros((10, 5))
    first[4] = PEAK
    assert np.array_equal(search(hill, 0, first=first).point, PEAK)


def test_nothing_but_rubbish_is_told():
    assert search(lambda points: np.full(len(points), np.nan), 2).value == -np.inf


def test_progress_is_reported():
    seen = []
    maximise(
        hill, PEAK, first=PEAK[None], step=0.1, candidates=4, generations=3, seed=0,
        report=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("size", [1, 2])
def test_few_numbers_are_enough(size):
    found = search(lambda points: -np.sum((points - 2.0) ** 2, axis=1), 60, size)
    assert np.allclose(found.point, 2.0, atol=1e-3)
