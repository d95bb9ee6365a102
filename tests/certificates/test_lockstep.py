"""Loops of episodes that run side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tether.certificates.lockstep import loop


def sums(turns, first=0.0, most=5):
    """1, 1 + 2, 1 + 2 + 3, ... above the first."""

    def body(total, turn):
        return total + turn, total + turn

    found = loop(turns, most, body, first)
    return jnp.stack(found) if found else jnp.zeros(0)


@pytest.mark.parametrize("turns", [0.0, 1.0, 3.0, 5.0, 9.0])
def test_turns_that_are_needed_are_made_and_the_others_promise_nothing(turns):
    needed = min(int(turns), 5)
    found = np.asarray(jax.jit(sums)(jnp.asarray(turns)))
    np.testing.assert_array_equal(found, [*np.cumsum(np.arange(1, needed + 1)), *[np.inf] * (5 - needed)])


def test_side_by_side_all_make_as_many_turns_as_the_one_that_needs_most():
    turns, firsts = jnp.asarray([[1.0, 2.0], [0.0, 3.0]]), jnp.asarray([[0.0, 10.0], [20.0, 30.0]])
    found = np.asarray(jax.vmap(jax.vmap(sums))(turns, firsts))
    expected = np.asarray([1.0, 3.0, 6.0, np.inf, np.inf]) + np.asarray(firsts)[..., None]
    np.testing.assert_array_equal(found, expected)


def test_it_is_one_loop_without_choices_between_episodes():
    program = str(jax.make_jaxpr(jax.vmap(sums))(jnp.ones(3), jnp.zeros(3)))
    assert "while" in program
    assert "select_n" not in program.split("while")[1].split("reduce")[0]


def test_what_is_not_a_number_promises_nothing_and_no_turns_give_nothing():
    assert np.all(np.isinf(sums(jnp.asarray(np.nan))))
    assert sums(jnp.asarray(3.0), most=0).shape == (0,)
