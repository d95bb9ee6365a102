"""What is written as text comes back bit for bit, or is refused."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.journal import text


def bits(number):
    return struct.pack("<d", number)


@given(st.floats())
def test_a_float_comes_back_bit_for_bit(number):
    again = text.loads(text.dumps([number]))[0]
    assert type(again) is float
    assert math.isnan(number) or bits(again) == bits(number)
    assert math.isnan(again) == math.isnan(number)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int8", "int64", "uint32", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,)])
def test_an_array_comes_back_with_its_type_and_shape(kind, shape):
    array = np.random.default_rng(0).normal(size=shape).astype(kind)
    again = text.loads(text.dumps({"a": array}))["a"]
    assert (again.dtype, again.shape) == (array.dtype, shape)
    assert again.tobytes() == array.tobytes()


def test_a_scalar_of_numpy_comes_back_as_one():
    again = text.loads(text.dumps(np.float32(0.1)))
    assert type(again) is np.float32
    assert again == np.float32(0.1)


def test_what_numpy_can_make_numbers_of_is_written_as_these():
    class Reading:
        def __array__(self, dtype=None, copy=None):
            return np.array([1.5, 2.5], np.float32)

    class Tensor:
        def detach(self):
            return self

        def cpu(self):
            return self

        def numpy(self):
            return np.array([3.5])

    assert text.loads(text.dumps(Reading())).tolist() == [1.5, 2.5]
    assert text.loads(text.dumps([Tensor()]))[0].tolist() == [3.5]


@pytest.mark.parametrize("value", [object(), {1.0}, b"bytes", 1j, np.array(["text"]), np.array([object()])])
def test_what_cannot_be_brought_back_is_refused(value):
    kind = type(value).__name__
    with pytest.raises(TypeError, match=f"^{kind} cannot be written down"):
        text.dumps([value])


@pytest.mark.parametrize("value", [{1: 2.0}, {"a": [{"~": 1.0}]}, ({None: 1},)])
def test_mappings_that_would_come_back_otherwise_are_refused(value):
    with pytest.raises(ValueError, match="keys of a mapping must be text"):
        text.dumps(value)


def test_text_with_a_brace_is_no_mapping():
    assert text.loads(text.dumps(["{", {"b": "~"}])) == ["{", {"b": "~"}]


def test_what_is_tagged_but_no_array_is_refused():
    with pytest.raises(ValueError, match="expected a tagged array"):
        text.loads('{"~":"<f4"}')
