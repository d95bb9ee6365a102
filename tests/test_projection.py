from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether import project
from tether.ops import jax_ops
from tether.projection import NORMS, length, nearest_safe

ORDER = {"l1": 1, "l2": 2, "linf": np.inf}


@st.composite
def problems(draw):
    n = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    center = rng.normal(size=n) * draw(st.sampled_from([0.0, 1.0, 1e6]))
    low = np.where(
        rng.random(n) < 0.3, -np.inf, center - rng.exponential(size=n) * rng.integers(0, 2, size=n)
    )
    high = np.where(
        rng.random(n) < 0.3, np.inf, center + rng.exponential(size=n) * rng.integers(0, 2, size=n)
    )
    proposal = center + draw(st.sampled_from([0.0, 1e-3, 1.0, 1e4, 1e12])) * rng.normal(
        size=n
    ) * rng.integers(0, 2, n)
    return proposal, center, draw(st.sampled_from([0.0, 1e-8, 0.3, 2.0, 1e3])), low, high


@settings(max_examples=400, deadline=None)
@given(problem=problems(), norm=st.sampled_from(NORMS))
def test_the_projection_is_in_the_set_in_floating_point(problem, norm):
    proposal, center, radius, low, high = problem
    action = project(proposal, center, radius, low, high, norm)
    assert np.linalg.norm(action - center, ORDER[norm]) <= radius
    assert np.all((low <= action) & (action <= high))


@settings(max_examples=400, deadline=None)
@given(problem=problems(), norm=st.sampled_from(NORMS), seed=st.integers(0, 2**32 - 1))
def test_no_point_of_the_set_is_nearer_to_the_proposal(problem, norm, seed):
    """The variational inequality (proposal - a) . (z - a) <= 0 for z in the set, on many z."""
    proposal, center, radius, low, high = problem
    action = project(proposal, center, radius, low, high, norm)
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(200, len(center))) * rng.integers(0, 2, size=(200, len(center)))
    steps[0] = 0.0
    steps /= np.maximum(np.linalg.norm(steps, ORDER[norm], axis=1, keepdims=True), 1e-300)
    inside = np.clip(center + steps * radius * rng.random((200, 1)) ** 0.2, low, high)
    gain = (inside - action) @ (proposal - action)
    rounded_inward = 1e-6 * radius + 1e-14 * np.sum(np.abs(center))
    assert np.max(gain) <= np.linalg.norm(proposal - center) * rounded_inward


@pytest.mark.parametrize("norm", NORMS)
def test_the_projection_is_that_of_a_convex_solver(norm):
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    for _ in range(25):
        n = int(rng.integers(1, 5))
        center, radius = rng.normal(size=n), rng.exponential()
        low, high = (
            center - rng.exponential(size=n),
            center + rng.exponential(size=n) * rng.integers(0, 3, size=n),
        )
        proposal = center + 3.0 * rng.normal(size=n)
        action = cp.Variable(n)
        order = "inf" if norm == "linf" else ORDER[norm]
        constraints = [cp.norm(action - center, order) <= radius, action >= low, action <= high]
        cp.Problem(cp.Minimize(cp.sum_squares(action - proposal)), constraints).solve(solver=cp.CLARABEL)
        found = project(proposal, center, radius, low, high, norm)
        np.testing.assert_allclose(found, action.value, atol=2e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_a_batch_is_projected_row_by_row_and_jax_agrees(norm):
    rng = np.random.default_rng(1)
    proposal, center = 5.0 * rng.normal(size=(50, 3)), rng.normal(size=(50, 3))
    radius = rng.exponential(size=50)
    together = project(proposal, center, radius, center - 0.5, center + 2.0, norm)
    for row in range(50):
        alone = project(proposal[row], center[row], radius[row], center[row] - 0.5, center[row] + 2.0, norm)
        np.testing.assert_allclose(together[row], alone, rtol=1e-12)
    with jax.enable_x64(True):
        compiled = jax.jit(lambda *numbers: project(*numbers, norm=norm, ops=jax_ops()))
        np.testing.assert_allclose(
            compiled(proposal, center, radius, center - 0.5, center + 2.0), together, rtol=1e-11, atol=1e-12
        )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("proposal", [[0.0, 0.0], [0.1, 0.0], [3.0, 4.0], [9.0, -9.0]])
def test_gradients_through_the_projection_are_finite(norm, proposal):
    with jax.enable_x64(True):
        slope = jax.grad(
            lambda r, y: jnp.sum(project(y, jnp.zeros(2), r, -2.0, math.inf, norm, jax_ops())), (0, 1)
        )
        for gradient in slope(jnp.asarray(1.0), jnp.asarray(proposal)):
            assert np.all(np.isfinite(gradient))


def test_scalars_are_clipped_to_the_interval():
    assert project(5.0, 1.0, 2.0) == pytest.approx(3.0)
    assert project(5.0, 1.0, 2.0, high=2.5) == 2.5
    assert project(-5.0, 1.0, 2.0, low=0.0) == 0.0
    assert project(1.5, 1.0, 2.0) == 1.5
    assert project(5.0, 1.0, 0.0) == 1.0
    assert project(5.0, 1.0, math.inf) == 5.0


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="norm must be one of 'l1', 'l2', 'linf', got 'l3'"):
        project(np.ones(2), np.zeros(2), 1.0, norm="l3")


def test_the_length_of_tiny_and_huge_vectors_is_not_lost():
    assert length(np.array([3e-200, 4e-200]), "l2") == pytest.approx(5e-200)
    assert length(np.array([3e200, 4e200]), "l2") == pytest.approx(5e200)
    assert length(np.zeros(3), "l2") == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_proposal_that_is_not_finite_becomes_the_prior(bad):
    action, deviation = nearest_safe(np.array([bad, 0.0]), np.ones(2), 1.0, -math.inf, math.inf, "l2")
    np.testing.assert_array_equal(action, np.ones(2))
    assert deviation == 0.0
