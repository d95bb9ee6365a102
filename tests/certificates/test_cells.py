"""Boxes cut into cells."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")

from tether.certificates.cells import cut


@pytest.mark.parametrize("size", [1, 3, 70])  # an array of NumPy's has at most 64 axes
def test_cells_cover_a_box_of_any_size(size):
    low, high = np.zeros(size), np.arange(1.0, size + 1.0)
    cells = cut(low, high, 16, np.ones(size))
    assert np.asarray(cells.low).shape == (16, size)
    np.testing.assert_allclose(np.sum(np.prod((cells.high - cells.low) / high, axis=1)), 1.0)
