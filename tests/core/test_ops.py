"""One set of operations, three implementations: they agree on every number, ordinary or not."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import numpy as np
import pytest

from tether.core.jax_ops import online_jax_ops
from tether.core.ops import FLOAT32, FLOAT64, FLOATS, NUMPY, coarsest, jax_ops, namespace, quietly, round_off

STRANGE = (math.nan, math.inf, -math.inf, 1e308, -1e308)
ORDINARY = (-2.0, -1.02, -1.0, -0.97, -0.5, 0.0, 0.25, 1.0, 2.5, 709.0, 711.0)
UNARY = ("abs", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "floor", "isfinite")


def same(first, second):
    """Equal to the last digits, or both not a number."""
    return first == pytest.approx(second, rel=1e-14, abs=0.0, nan_ok=True)


@pytest.mark.parametrize("name", UNARY)
def test_plain_floats_give_what_numpy_gives_and_never_raise(name):
    for value in (*ORDINARY, *STRANGE):
        with quietly(NUMPY):
            expected = getattr(NUMPY, name)(value)
        assert same(getattr(FLOATS, name)(value), expected), value


def test_the_larger_and_the_smaller_hand_a_nan_on_whichever_side_it_is_on():
    for first, second in itertools.product((*ORDINARY, *STRANGE), repeat=2):
        for name in ("maximum", "minimum"):
            expected = getattr(NUMPY, name)(first, second)
            assert same(getattr(FLOATS, name)(first, second), expected), (name, first, second)
        assert same(FLOATS.mod(first, 24.0), np.nan if math.isinf(first) else np.mod(first, 24.0))


def test_a_number_is_cut_to_a_range_and_nan_to_none():
    for value, low, high in itertools.product((-1.0, 0.0, 0.5, 1.0, 2.0, math.nan, math.inf), repeat=3):
        if not low > high:
            assert same(FLOATS.clip(value, low, high), NUMPY.clip(value, low, high)), (value, low, high)


def test_the_largest_of_several_is_nan_if_one_is_wherever_it_stands():
    for values in itertools.permutations((1.0, 2.5, -3.0, math.nan)):
        assert math.isnan(FLOATS.largest(values))
        assert math.isnan(NUMPY.largest(values))
    for values in ((1.0, 2.5, -3.0), (2.5, 1.0), (2.5,), (-math.inf, math.inf, 0.0), (-math.inf, -1.0)):
        assert FLOATS.largest(values) == NUMPY.largest(values) == max(values)
    assert FLOATS.largest((0.0, math.inf, -math.inf)) == math.inf


def test_truth_values_are_joined_as_everywhere():
    assert (FLOATS.where(True, 1.0, 2.0), FLOATS.where(False, 1.0, 2.0)) == (1.0, 2.0)
    for first, second in itertools.product((True, False), repeat=2):
        assert FLOATS.logical_and(first, second) is bool(NUMPY.logical_and(first, second))
        assert FLOATS.logical_or(first, second) is bool(NUMPY.logical_or(first, second))
        assert FLOATS.logical_not(first) is bool(NUMPY.logical_not(first))


def test_on_floats_a_loop_ends_when_nothing_is_left_to_do_and_on_arrays_it_goes_on():
    assert FLOATS.loop(5, lambda n: n + 1, 0, lambda n: n >= 3) == 3
    assert FLOATS.loop(5, lambda n: n + 1, 0, lambda n: n >= 9) == 5
    assert FLOATS.loop(5, lambda n: n + 1, 0, lambda n: True) == 1
    assert NUMPY.loop(5, lambda n: n + 1, 0, lambda n: n >= 3) == 5
    assert FLOATS.loop(0, lambda n: n + 1, 0, lambda n: True) == 0


def test_without_derivatives_a_boundary_and_constants_are_what_they_are():
    for ops in (FLOATS, NUMPY):
        assert ops.at_boundary(lambda inputs, share: 1.0, 2.0, 0.25, True) == 0.25
        assert ops.fixed((1.0, 2.0)) == (1.0, 2.0)


def test_with_derivatives_a_boundary_moves_as_its_equation_says_and_constants_do_not():
    """Where share^2 slope = room, the share is sqrt(room / slope)."""
    jax = pytest.importorskip("jax")
    ops = jax_ops()

    def excess(inputs, share):
        return share * share * inputs[0] - inputs[1]

    def moved(share, inputs, inside=True, excess=excess):
        """How the share changes with the slope."""
        found = jax.jvp(
            lambda inputs: ops.at_boundary(excess, inputs, share, inside), (inputs,), ((1.0, 0.0),)
        )
        assert float(found[0]) == np.float32(share)
        return float(found[1])

    assert float(ops.at_boundary(excess, (2.0, 0.5), 0.5, True)) == 0.5  # without a derivative
    for share, slope in ((0.5, 2.0), (0.01, 3.0)):
        assert moved(share, (slope, slope * share**2)) == pytest.approx(-0.5 * share / slope, rel=2e-3)
    assert moved(0.5, (2.0, 0.5), inside=False) == 0.0
    assert moved(0.0, (2.0, 0.0)) == 0.0
    for flat in (lambda inputs, share: inputs[0], lambda inputs, share: inputs[0] - share):
        assert moved(0.5, (2.0, 0.5), excess=flat) == 0.0
    assert float(jax.grad(lambda value: value * ops.fixed(value))(3.0)) == 3.0
    assert int(ops.loop(5, lambda n: n + 1, 0, lambda n: n >= 3)) == 5
    online = online_jax_ops()  # one episode at a time: ends when it has found, and looks before it begins
    assert pickle.loads(pickle.dumps(online)) is online
    assert [int(online.loop(5, lambda n: n + 1, 0, lambda n, at=at: n >= at)) for at in (0, 3, 9)] == [
        0,
        3,
        5,
    ]


def test_what_is_computed_with_ends_at_1e100_and_in_single_precision_at_1e15():
    assert (FLOATS.epsilon(0.5), FLOATS.limit(0.5)) == (FLOAT64, 1e100)
    for value, epsilon, limit in (
        (0.5, FLOAT64, 1e100),
        (np.zeros(2), FLOAT64, 1e100),
        (np.float32(0.5), FLOAT32, 1e15),
    ):
        assert (NUMPY.epsilon(value), NUMPY.limit(value)) == (epsilon, limit)


def test_overflow_is_no_warning_where_a_certificate_deals_with_it():
    with np.errstate(all="raise"):
        with quietly(NUMPY):
            assert np.float64(1e308) * 10.0 == math.inf
        before = np.geterr()
        with quietly(FLOATS):
            assert np.geterr() == before  # plain floats do not warn, and the guard has no time to lose
        assert np.geterr() == before


def test_there_is_one_of_each_however_it_is_copied():
    for ops in (FLOATS, NUMPY, jax_ops()):
        assert copy.deepcopy(ops) is ops
        assert pickle.loads(pickle.dumps(ops)) is ops


class Kind:
    """A number type as torch has it; NumPy knows nothing of it."""

    def __init__(self, itemsize=None, is_floating_point=True):
        self.is_floating_point = is_floating_point
        if itemsize is not None:
            self.itemsize = itemsize


class Numbers:
    def __init__(self, *kind):
        self.dtype = Kind(*kind)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, FLOAT64),
        (7, FLOAT64),
        (np.ones(2, np.int16), FLOAT64),
        (np.ones(2, np.uint8), FLOAT64),
        (np.ones(2, bool), FLOAT64),
        (np.ones(2, np.float64), FLOAT64),
        (np.ones(2, np.float32), FLOAT32),
        (np.float16(0.5), 2.0**-10),
        (Numbers(1), 0.25),
        (Numbers(2), 2.0**-7),
        (Numbers(4), FLOAT32),
        (Numbers(8), FLOAT64),
        (Numbers(), FLOAT32),
        (Numbers(2, False), FLOAT64),
    ],
)
def test_round_off_is_that_of_the_type_and_of_an_unknown_one_the_coarsest_of_its_size(value, expected):
    assert round_off(value) == coarsest(value) == expected


def test_the_coarsest_part_of_what_is_nested_counts():
    half, single = np.float16(0.5), np.zeros(2, np.float32)
    for value, expected in (
        ([], FLOAT64),
        ([0.5, single], FLOAT32),
        ((0.5, [single, half]), 2.0**-10),
        ({"a": 0.5, "b": {"c": half}}, 2.0**-10),
        (np.array([0.5, half, None], object), 2.0**-10),
        (np.array([[0.5, 0.25], [np.float32(1.0), 1]], object), FLOAT32),
        (None, FLOAT64),
        ("text", FLOAT64),
        ({}, FLOAT64),
    ):
        assert coarsest(value) == expected


def test_a_namespace_is_that_of_the_array_and_numpy_for_plain_numbers():
    class Elsewhere:
        def __array_namespace__(self):
            return "elsewhere"

    assert namespace(Elsewhere()) == "elsewhere"
    assert namespace(1.0) is namespace([1.0]) is np
