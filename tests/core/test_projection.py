from __future__ import annotations

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether import project
from tether.core import projection
from tether.core.ops import FLOATS, NUMPY, jax_ops
from tether.core.projection import NORMS, _shrink_l2, length, nearest_safe

ORDER = {"l1": 1, "l2": 2, "linf": np.inf}


SEED = st.integers(0, 2**32 - 1)


def problems(rng, cases, entries=None):
    """[cases, n] proposals, centres, lower and upper bounds, and [cases] radii; n entries, or any few."""
    n = entries or int(rng.integers(1, 7))
    shape = cases, n
    center = rng.normal(size=shape) * rng.choice([0.0, 1.0, 1e6], (cases, 1))
    low, high = (
        np.where(
            rng.random(shape) < 0.3,
            side * math.inf,
            center + side * rng.exponential(size=shape) * rng.integers(0, 2, size=shape),
        )
        for side in (-1.0, 1.0)
    )
    far = rng.choice([0.0, 1e-3, 1.0, 1e4, 1e12], (cases, 1))
    proposal = center + far * rng.normal(size=shape) * rng.integers(0, 2, size=shape)
    return proposal, center, rng.choice([0.0, 1e-8, 0.3, 2.0, 1e3], cases), low, high


def lengths(steps, norm):
    return np.linalg.norm(steps.astype(float), ORDER[norm], axis=-1)


@settings(deadline=None)
@given(seed=SEED, norm=st.sampled_from(NORMS), precision=st.sampled_from(["float64", "float32"]))
def test_the_projection_is_in_the_set_in_floating_point(seed, norm, precision):
    rng = np.random.default_rng(seed)
    numbers = problems(rng, 100, entries=rng.choice([None, 40]))
    proposal, center, radius, low, high = (each.astype(precision) for each in numbers)
    action = project(proposal, center, radius, low, high, norm)
    assert np.all(lengths(action.astype(float) - center, norm) <= radius)
    assert np.all((low <= action) & (action <= high))


@settings(deadline=None)
@given(seed=SEED, norm=st.sampled_from(NORMS))
def test_the_projection_is_in_the_set_when_the_entries_differ_by_many_magnitudes(seed, norm):
    rng = np.random.default_rng(seed)
    asked, room = 10.0 ** rng.uniform(-8.0, 14.0, (50, 4)), 10.0 ** rng.uniform(-8.0, 4.0, (50, 4))
    radius = lengths(np.minimum(asked, room), norm) * rng.choice([0.9, 0.5, 1e-3, 1e-8], 50)
    action = project(asked * rng.choice([-1.0, 1.0], (50, 4)), np.zeros((50, 4)), radius, -room, room, norm)
    assert np.all(lengths(action, norm) <= radius)
    assert np.all(abs(action) <= room)


@settings(deadline=None)
@given(seed=SEED, norm=st.sampled_from(NORMS))
def test_no_point_of_the_set_is_nearer_to_the_proposal(seed, norm):
    """The variational inequality (proposal - a) . (z - a) <= 0 for z in the set, on many z."""
    rng = np.random.default_rng(seed)
    proposal, center, radius, low, high = problems(rng, 30)
    action = project(proposal, center, radius, low, high, norm)
    steps = rng.normal(size=(200, *center.shape)) * rng.integers(0, 2, size=(200, *center.shape))
    steps[0] = 0.0
    steps /= np.maximum(lengths(steps, norm)[..., None], 1e-300)
    inside = np.clip(center + steps * (radius * rng.random((200, 30)) ** 0.2)[..., None], low, high)
    gain = np.sum((inside - action) * (proposal - action), axis=-1)
    rounded_inward = 1e-6 * radius + 1e-14 * np.sum(np.abs(center), axis=-1)
    assert np.all(np.max(gain, axis=0) <= lengths(proposal - center, "l2") * rounded_inward)


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


def batch():
    """[50, 3] proposals and centres, and [50] radii."""
    rng = np.random.default_rng(1)
    return 5.0 * rng.normal(size=(50, 3)), rng.normal(size=(50, 3)), rng.exponential(size=50)


@pytest.mark.parametrize("norm", NORMS)
def test_a_batch_is_projected_row_by_row(norm):
    proposal, center, radius = batch()
    together = project(proposal, center, radius, center - 0.5, center + 2.0, norm)
    for row in range(50):
        alone = project(proposal[row], center[row], radius[row], center[row] - 0.5, center[row] + 2.0, norm)
        np.testing.assert_allclose(together[row], alone, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_jax_projects_as_numpy_does(norm):
    proposal, center, radius = batch()
    expected = project(proposal, center, radius, center - 0.5, center + 2.0, norm)
    with jax.enable_x64(True):
        compiled = jax.jit(lambda *numbers: project(*numbers, norm=norm, ops=jax_ops()))
        np.testing.assert_allclose(
            compiled(proposal, center, radius, center - 0.5, center + 2.0), expected, rtol=1e-11, atol=1e-12
        )


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_gradients_through_the_projection_are_finite(norm):
    """At the centre, inside, at the edge and far outside of balls of every size, the empty and the infinite one too."""
    proposals = np.array(
        [[0.0, 0.0], [0.1, 0.0], [3.0, 4.0], [9.0, -9.0], [0.5, 0.5], [1.0, 0.0], [1e9, 0.0]]
    )
    radii = np.array([0.0, 0.25, 1.0, math.inf])
    with jax.enable_x64(True):
        radius, proposal = np.repeat(radii, len(proposals)), np.tile(proposals, (len(radii), 1))
        slopes = jax.jit(
            jax.grad(
                lambda r, y: jnp.sum(project(y, jnp.zeros_like(y), r, -2.0, math.inf, norm, jax_ops())),
                (0, 1),
            )
        )
        for gradient in slopes(radius, proposal):
            assert np.all(np.isfinite(gradient))


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_the_gradient_of_a_length_is_finite_where_there_is_none(norm):
    with jax.enable_x64(True):
        gradient = jax.grad(lambda vector: length(vector, norm, jax_ops()))(jnp.zeros(2))
        assert np.all(np.isfinite(gradient))


def test_scalars_are_clipped_to_the_interval():
    assert project(5.0, 1.0, 2.0) == pytest.approx(3.0)
    assert project(5.0, 1.0, 2.0, high=2.5) == 2.5
    assert project(-5.0, 1.0, 2.0, low=0.0) == 0.0
    assert project(1.5, 1.0, 2.0) == 1.5
    assert project(5.0, 1.0, 0.0) == 1.0
    assert project(5.0, 1.0, math.inf) == 5.0


@pytest.mark.parametrize("norm", NORMS)
def test_a_number_stays_a_number(norm):
    assert type(length(-3.0, norm)) is float
    assert length(-3.0, norm) == 3.0
    assert np.ndim(project(5.0, 1.0, 2.0, norm=norm)) == 0
    action, deviation = nearest_safe(5.0, 1.0, 2.0, -math.inf, 2.5, norm)
    assert np.ndim(action) == np.ndim(deviation) == 0
    assert (action, deviation) == (2.5, 1.5)
    assert nearest_safe(5.0, 1.0, 2.0, -math.inf, 2.5, norm, FLOATS) == (2.5, 1.5)


@settings(deadline=None)
@given(seed=SEED, step=st.sampled_from([1e-3, 1.0, 1e6]))
def test_the_interval_of_a_scalar_is_left_by_nothing(seed, step):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        center, radius, proposal = rng.normal() * 1e6, rng.exponential(), rng.normal() * step
        action = project(center + proposal, center, radius)
        assert abs(action - center) <= radius
        assert action == pytest.approx(center + min(max(proposal, -radius), radius), abs=1e-8)


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="norm must be one of 'l1', 'l2', 'linf', got 'l3'"):
        project(np.ones(2), np.zeros(2), 1.0, norm="l3")


@settings(deadline=None)
@given(seed=SEED, norm=st.sampled_from(NORMS), power=st.integers(-600, 600))
def test_a_length_is_the_norm_of_the_last_axis_at_every_magnitude(seed, norm, power):
    vectors = np.random.default_rng(seed).normal(size=(2, 5, 3))
    plain = length(vectors, norm)
    np.testing.assert_allclose(plain, np.linalg.norm(vectors, ORDER[norm], axis=-1), rtol=1e-14)
    # A power of two changes no digit, and nothing may overflow or vanish on the way.
    np.testing.assert_array_equal(length(vectors * 2.0**power, norm), plain * 2.0**power)
    np.testing.assert_array_equal(length(vectors, norm, FLOATS), plain)
    assert length(np.zeros(3), norm) == 0.0


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [1e-100, 1e-3, 1.0, 1e100])
def test_a_proposal_of_any_magnitude_is_projected(norm, size):
    unit = project(np.array([3.0, -4.0]), np.zeros(2), 1.0, norm=norm)
    found = project(size * np.array([3.0, -4.0]), np.zeros(2), size, norm=norm)
    np.testing.assert_allclose(found / size, unit, rtol=1e-12)
    far = project(1e200 * np.array([3.0, -4.0]), np.zeros(2), size, norm=norm)
    assert size * (1.0 - 1e-12) <= length(far, norm) <= size


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_proposal_that_is_not_finite_becomes_the_prior(bad):
    action, deviation = nearest_safe(np.array([bad, 0.0]), np.ones(2), 1.0, -math.inf, math.inf, "l2")
    np.testing.assert_array_equal(action, np.ones(2))
    assert deviation == 0.0
    assert nearest_safe(bad, 1.0, 1.0, -math.inf, math.inf, "l2") == (1.0, 0.0)


def test_a_proposal_so_far_away_that_its_distance_overflows_becomes_the_prior():
    with np.errstate(over="ignore"):
        action, deviation = nearest_safe(
            np.array([1e308, 0.0]), np.array([-1e308, 0.0]), 1.0, -math.inf, math.inf, "l2"
        )
    np.testing.assert_array_equal(action, [-1e308, 0.0])
    assert deviation == 0.0


@pytest.mark.parametrize("norm", NORMS)
def test_only_the_rows_of_a_batch_that_are_not_finite_become_the_prior(norm):
    rng = np.random.default_rng(0)
    proposal, prior, radius = 5.0 * rng.normal(size=(6, 3)), rng.normal(size=(6, 3)), rng.exponential(size=6)
    whole = project(proposal, prior, radius, -4.0, 4.0, norm)
    proposal[1, 2], proposal[4, 0] = math.nan, math.inf
    action, deviation = nearest_safe(proposal, prior, radius, -4.0, 4.0, norm)
    np.testing.assert_array_equal(action[[1, 4]], prior[[1, 4]])
    np.testing.assert_array_equal(action[[0, 2, 3, 5]], whole[[0, 2, 3, 5]])
    np.testing.assert_array_equal(deviation, length(action - prior, norm))
    assert np.all(deviation <= radius)


def step_of(asked, room, radius, norm):
    """The nearest z to `asked` with 0 <= z <= room and length(z) <= radius, from its multiplier, which is bisected."""

    def at(multiplier):
        less = asked - multiplier if norm == "l1" else asked / (1.0 + multiplier)
        return np.minimum(np.maximum(less, 0.0), room)

    low, high = 0.0, 64.0
    if lengths(at(0.0), norm) <= radius:
        return at(0.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if lengths(at(middle), norm) > radius else (low, middle)
    return at(high)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("entries", [1, 2, 3, 6])
def test_the_projection_is_that_of_a_bisection(norm, entries):
    rng = np.random.default_rng(entries)
    for _ in range(40):
        signs, center = rng.choice([-1.0, 1.0], entries), rng.integers(-3, 4, entries).astype(float)
        asked, room = rng.choice([0.0, 0.5, 1.0, 1.0, 3.0], (2, entries)) * rng.choice(
            [1.0, 0.3], (2, entries)
        )
        room = np.where(rng.random(entries) < 0.2, math.inf, room)
        other = rng.exponential(size=entries)
        low, high = center - np.where(signs > 0, other, room), center + np.where(signs > 0, room, other)
        # At asked = 0 the step counts as one upward.
        radius = rng.choice([0.25, 0.5, 1.0, 1.5, 2.0, 4.0])
        with np.errstate(all="raise"):
            found = project(center + signs * asked, center, radius, low, high, norm)
        np.testing.assert_allclose(found, center + signs * step_of(asked, room, radius, norm), atol=1e-12)


@pytest.mark.parametrize(("norm", "size"), [("l1", 7.0), ("l2", 5.0), ("linf", 4.0)])
def test_the_ball_is_rounded_inward_by_8_units_and_one_for_each_entry(norm, size, monkeypatch):
    monkeypatch.setattr(projection, "round_off", lambda _: 2.0**-10)
    inward = 10.0 * 2.0**-10
    allowed = 2.0 * (1.0 - inward) - inward * size
    center = np.array([3.0, -4.0])
    for proposal in ([90.0, 99.0], [-99.0, 90.0], [3.0, 5.0]):
        found = project(np.array(proposal), center, 2.0, norm=norm)
        assert lengths(found - center, norm) == pytest.approx(allowed, rel=1e-12)
    np.testing.assert_array_equal(project(np.array([90.0, 90.0]), center, 0.01, norm=norm), center)
    inward = 8.0 * 2.0**-10
    for center in (-3.0, 3.0):
        allowed = 2.0 * (1.0 - inward) - inward * 3.0
        assert project(99.0, center, 2.0, norm=norm) == pytest.approx(center + allowed, rel=1e-12)
        assert project(-99.0, center, 2.0, norm=norm) == pytest.approx(center - allowed, rel=1e-12)
        assert project(99.0, center, 0.01, norm=norm) == center


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("radius", [0.0, 0.25, 1.0, 1e3, math.inf])
def test_nothing_is_divided_by_zero_and_no_infinity_subtracted_from_another(norm, radius):
    """For the sake of derivatives, which would not be finite: inside and outside, without a step, and without a box."""
    with np.errstate(all="raise"):
        for proposal in ([0.0, 0.0], [0.1, 0.0], [3.0, 4.0], [9.0, -9.0], [1.0, 0.0]):
            for low, high in ((-2.0, math.inf), (-math.inf, math.inf), (0.0, 0.0)):
                found = project(np.array(proposal), np.zeros(2), radius, low, high, norm)
                assert np.all((low <= found) & (found <= high))
                assert lengths(found, norm) <= radius
        assert length(np.zeros(2), norm) == 0.0


class Careful:
    """NumPy, but a root of 0, whose derivative is infinite, is an error."""

    def __getattr__(self, name):
        return getattr(NUMPY, name)

    def sqrt(self, value):
        assert np.all(value > 0.0)
        return np.sqrt(value)


def test_no_root_is_taken_of_0_and_what_is_not_asked_for_is_not_divided_by():
    for vector in (np.zeros(2), np.array([[0.0, 0.0], [3.0, -4.0]])):
        np.testing.assert_array_equal(length(vector, "l2", Careful()), length(vector, "l2"))
    with np.errstate(all="raise"):
        for asked, room, expected in (
            ([3.0, 3.0], [0.5, math.inf], [math.sqrt(0.125)] * 2),  # the box alone could take all
            ([3.0, 0.0], [0.2, 5.0], [0.2, 0.0]),  # less is asked for than is allowed
        ):
            found = _shrink_l2(np.array(asked), np.array(room), np.array([0.5]), Careful())
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_an_entry_that_is_not_asked_for_takes_nothing_of_the_ball():
    high = np.array([0.05, 0.1, math.inf])
    found = project(np.array([0.0, 3.0, 3.0]), np.zeros(3), 1.0, 0.0, high)
    np.testing.assert_allclose(found, [0.0, 0.1, math.sqrt(0.99)], rtol=1e-12)


def test_a_far_proposal_loses_no_digit_of_a_small_box():
    high = np.array([0.3, 0.7, 5.0])
    found = project(np.array([1e14, 1e14, 1.0]), np.zeros(3), 0.8, 0.0, high, "l1")
    np.testing.assert_allclose(found, [0.3, 0.5, 0.0], rtol=1e-12)


def test_a_length_is_computed_with_what_is_given():
    assert length(np.ones(2), "l1", SimpleNamespace(sum=lambda size, axis: (size.shape, axis))) == ((2,), -1)
