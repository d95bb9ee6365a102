"""What a learner is told of the edge of a compiled safe set."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tether.certificates.boundary import apart_from_gradients, with_slope

STATES = np.array([0.0, -1.0]), np.array([4.0, 1.0])
ENDLESS = np.array([0.0]), np.array([np.inf])


def excess(point, given):
    """Rises by 0.5 and -0.25 a unit of the state and by 2 a unit of the action."""
    x, a = point
    return 0.5 * x[0] - 0.25 * x[1] + 2.0 * jnp.sum(a) - 3.0 + 0.0 * given


def edge(x, start, wish, slack):
    """The share at which the excess is the slack."""
    level = 0.5 * x[0] - 0.25 * x[1] - 3.0
    share = jax.lax.stop_gradient((slack - level - 2.0 * start) / (2.0 * (wish - start)))
    share = jnp.clip(share, 0.0, 1.0)
    return with_slope(share, excess, (x, start, wish), slack, jnp.asarray(1.0), (STATES, ENDLESS))


def exact(x, start, wish, slack):
    level = 0.5 * x[0] - 0.25 * x[1] - 3.0
    return (slack - level - 2.0 * start) / (2.0 * (wish - start))


@pytest.mark.parametrize("wish", [3.0, -2.5])
def test_the_share_moves_as_the_boundary_does(wish):
    sign = np.sign(wish)
    # Towards a smaller action the excess falls: there is no edge, and no derivative.
    with jax.enable_x64(True):
        given = [jnp.asarray(each) for each in ([1.0, 0.5], 0.25, wish, -1.25)]
        found = jax.jacfwd(edge, argnums=(0, 1, 2, 3))(*given)
        wanted = jax.jacfwd(exact, argnums=(0, 1, 2, 3))(*given)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, np.asarray(other) * (sign > 0.0), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("slack", [100.0, -100.0])
def test_at_the_ends_of_the_way_nothing_moves(slack):
    given = jnp.array([1.0, 0.5]), jnp.asarray(0.25), jnp.asarray(3.0), jnp.asarray(slack)
    for each in jax.grad(edge, argnums=(0, 1, 2, 3))(*given):
        np.testing.assert_array_equal(each, 0.0)


def test_a_bound_that_is_nowhere_finite_gives_no_gradient():
    def unknown(x):
        return with_slope(
            jnp.asarray(0.5),
            lambda point, _: jnp.inf * (1.0 + jnp.sum(point[1])),
            (x, jnp.asarray(0.0), jnp.asarray(1.0)),
            jnp.asarray(1.0),
            None,
            (STATES, ENDLESS),
        )

    np.testing.assert_array_equal(jax.grad(unknown)(jnp.array([1.0, 0.0])), 0.0)


def test_what_is_apart_from_gradients_is_the_same_number_without_one():
    def of(x):
        found, flag = apart_from_gradients(lambda x, more: (x * x + more[0], x > more[1]), x, (2.0, 1.0))
        return jnp.where(flag, found, 0.0)

    value, slope = jax.value_and_grad(of)(3.0)
    assert (float(value), float(slope)) == (11.0, 0.0)
