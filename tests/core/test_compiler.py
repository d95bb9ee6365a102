"""What XLA is told."""

import jax
import jax.numpy as jnp
import numpy as np

from tether.core.compiler import compiler_options, computed_once


def several_uses(values):
    """Of one value."""
    value = computed_once(jnp.abs(values * values - 0.3))
    return value[::-1] + 1.0, value[:, None] * value, jnp.max(value)


def test_barriers_are_still_there_when_xla_fuses_and_change_no_number():
    given = np.linspace(-1.0, 1.0, 8, dtype=np.float32)
    dropped = jax.jit(several_uses).lower(given).compile()
    for long in (False, True):
        kept = jax.jit(several_uses, compiler_options=compiler_options(long)).lower(given).compile()
        assert "opt-barrier" in kept.as_text()
        assert "opt-barrier" not in dropped.as_text()
        for mine, other in zip(kept(given), dropped(given), strict=True):
            np.testing.assert_array_equal(mine, other)


def test_what_is_one_object_stays_one_and_what_is_known_stays_known():
    known = np.ones(2)
    value = jnp.ones(2)
    first, second, same = computed_once((value, value, known))
    assert first is second
    assert same is known
