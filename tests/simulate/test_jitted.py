"""Functions and methods that are compiled, alone or as a part of another program."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from tether.simulate import jitted as module
from tether.simulate.jitted import jitted


class Scaled(eqx.Module):
    by: jax.Array

    @jitted
    def times(self, values, more=0.0):
        """Scaled values."""
        return self.by * values + more


@jitted
def doubled(values):
    """Twice."""
    return 2.0 * values


def test_a_method_is_compiled_with_its_object_as_an_argument():
    assert float(Scaled(jnp.asarray(3.0)).times(jnp.asarray(2.0), more=1.0)) == 7.0
    assert float(Scaled(jnp.asarray(4.0)).times(jnp.asarray(2.0))) == 8.0
    assert Scaled.times.__doc__ == "Scaled values."


def test_within_another_program_it_is_a_part_of_that():
    assert float(jax.jit(lambda values: doubled(values) + 1.0)(jnp.asarray(2.0))) == 5.0
    assert float(jax.grad(doubled)(jnp.asarray(2.0))) == 2.0
    scaled = jitted(lambda values: Scaled(values).times(values))
    assert float(scaled(jnp.asarray(3.0))) == 9.0


@pytest.mark.parametrize("long", [False, True])
def test_an_argument_can_say_that_the_program_is_long(monkeypatch, long):
    asked = []
    monkeypatch.setattr(module, "compiler_options", lambda long: asked.append(long) or {})
    certificate = type("Certificate", (), {"long": long})()
    found = jitted(lambda values, certificate: values + 1.0)(jnp.asarray(1.0), certificate=certificate)
    assert float(found) == 2.0
    assert asked == [long]
