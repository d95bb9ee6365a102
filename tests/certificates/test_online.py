"""Programs of the online guard: NumPy values in and out, laid out in short vectors."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.certificates.online import SHORT, Programs, layout_of, packed, unpacked


class Pair(NamedTuple):
    number: object
    array: object


def test_numbers_flags_and_arrays_come_back_as_they_were():
    long = np.arange(SHORT + 6.0).reshape(2, -1)
    value = Pair((1.5, True, False), (np.asarray([[True, False]]), long, -2.0, np.ones(SHORT)))
    found = Programs().run(lambda each: each, "same", (value,))
    assert found.number == (1.5, True, False)
    assert type(found.number[1]) is bool
    for mine, other in zip(found.array, value.array, strict=True):
        np.testing.assert_array_equal(mine, other)
        assert np.asarray(mine).dtype == np.asarray(other).dtype


def test_a_program_is_known_by_its_key_and_by_what_it_is_given():
    programs = Programs()
    assert programs.run(lambda x: x + 1.0, "one", (1.0,)) == 2.0
    assert programs.run(lambda x: x + 2.0, "two", (1.0,)) == 3.0
    assert programs.run(lambda x: x + 5.0, "one", (2.0,)) == 3.0  # the first one, again
    np.testing.assert_array_equal(programs.run(lambda x: x + 1.0, "one", (np.ones(2),)), [2.0, 2.0])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=SHORT + 20), min_size=1, max_size=8))
def test_vectors_are_short_and_hold_every_number_in_order(sizes):
    values = [np.arange(size) + 100.0 * place for place, size in enumerate(sizes)]
    layout = layout_of(values)
    assert sum(layout.lengths) == sum(sizes)
    assert len(layout.parts) == len(layout.lengths)
    assert all(length <= max(SHORT, *sizes) for length in layout.lengths)
    assert all(
        count == 1 for count, length in zip(layout.parts, layout.lengths, strict=True) if length > SHORT
    )
    with jax.enable_x64(True):
        vectors = packed([jnp.asarray(each) for each in values])
        assert [each.size for each in vectors] == layout.lengths
        for mine, other in zip(unpacked(vectors, layout), values, strict=True):
            np.testing.assert_array_equal(mine, other)
