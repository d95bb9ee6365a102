"""What was saved of a guard is taken back only if it can have been saved."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tether import Reason
from tether.core import saved
from tether.core.decision import Breach


def accepted(check, *arguments, **options):
    try:
        check(*arguments, **options)
    except ValueError as error:
        if "must be" not in str(error):
            raise
        return False
    return True


def test_lists_become_arrays_and_single_numbers_stay_what_they_are():
    array = saved.numbers([1, 2])
    assert (type(array), array.dtype) == (np.ndarray, np.float64)
    np.testing.assert_array_equal(array, [1.0, 2.0])
    assert saved.numbers(1.5) == 1.5
    assert type(saved.numbers(1.5)) is float


@pytest.mark.parametrize(
    ("rounds", "possible"),
    [(0, True), (0.0, True), (3.0, True), (5, True), (5.0, True), (6, False), (-1, False), (2.5, False)]
    + [(value, False) for value in (True, False, "3", None, math.nan, math.inf, [1.0])],
)
def test_rounds_are_a_whole_number_up_to_the_horizon(rounds, possible):
    assert accepted(saved.require_rounds, rounds, 5) is possible


@pytest.mark.parametrize(
    ("value", "options", "possible"),
    [
        (1.5, {}, True),
        (-1e300, {}, True),
        (3, {}, True),
        (True, {}, False),
        ("3", {}, False),
        (None, {}, False),
        (math.nan, {}, False),
        (math.inf, {}, False),
        ([1.5], {}, False),
        (1.0, {"minimum": 1.0, "maximum": 1.0}, True),
        (0.9, {"minimum": 1.0}, False),
        (1.1, {"maximum": 1.0}, False),
        ([1.0, 2.0], {"shape": (2,), "minimum": 1.0, "maximum": 2.0}, True),
        ([1.0, 2.1], {"shape": (2,), "maximum": 2.0}, False),
        ([0.9, 2.0], {"shape": (2,), "minimum": 1.0}, False),
        ([1.0, math.inf], {"shape": (2,)}, False),
        ([1.0, math.nan], {"shape": (2,)}, False),
        ([1.0], {"shape": (2,)}, False),
        (1.0, {"shape": (2,)}, False),
        (["1", "2"], {"shape": (2,)}, False),
        ([1.0, [2.0]], {"shape": (2,)}, False),
        (10**400, {}, False),
    ],
)
def test_numbers_are_finite_of_that_shape_and_between_those_limits(value, options, possible):
    assert accepted(saved.require_numbers, "it", value, **options) is possible


def test_lists_have_the_length_flags_are_truth_values_and_choices_are_among_those_there_are():
    for value, possible in (([1, 2], True), ([1], False), ([1, 2, 3], False), ((1, 2), False), ("12", False)):
        assert accepted(saved.require_length, "it", value, 2) is possible
    for value, possible in ((True, True), (False, True), (1, False), (0.0, False), (None, False)):
        assert accepted(saved.require_flag, "it", value) is possible
    for value, possible in (
        *((each, True) for each in (0, 0.0, 1, 1.0)),
        *((each, False) for each in (2, -1, 0.5, True, False, "1", None, math.nan, [1])),
    ):
        assert accepted(saved.require_choice, "it", value, 2) is possible


def test_a_shape_is_none_a_numbers_or_a_vectors_and_the_one_that_bounds_have():
    for given, known, expected in (
        (None, None, None),
        ([], None, ()),
        ([1], None, (1,)),
        ([3], None, (3,)),
        ([3], (3,), (3,)),
    ):
        assert saved.shape(given, known) == expected
    for given, known in (
        ([0], None),
        ([-1], None),
        ([1.0], None),
        ([True], None),
        ([2, 2], None),
        ([2, 2, 2], None),
        ([2], (3,)),
        ([], (3,)),
        (None, (3,)),
    ):
        assert not accepted(saved.shape, given, known)


def test_a_breach_is_there_if_the_state_says_so_and_in_no_later_round():
    assert saved.breach(None, False, 3) is None
    for at in (1, 3):
        given = {"round": at, "detail": "why", "claimed": [1.0, "inf"], "seen": None}
        assert saved.breach(given, True, 3) == Breach(at, "why", (1.0, math.inf), None)
    for given, breached in ((None, True), ({"round": 1, "detail": "why"}, False)):
        assert not accepted(saved.breach, given, breached, 3)
    for at in (0, -1, 4):
        assert not accepted(saved.breach, {"round": at, "detail": "why"}, True, 3)
    with pytest.raises(TypeError, match="the breach's round must be a whole number"):
        saved.breach({"round": 1.5, "detail": "why"}, True, 3)


def test_counts_are_of_reasons_that_there_are():
    assert saved.counts({"safe": 2, "too far": 0}) == {Reason.SAFE: 2, Reason.TOO_FAR: 0}
    with pytest.raises(ValueError, match="counts must be at least 0"):
        saved.counts({"safe": -1})
    with pytest.raises(ValueError, match="luck"):
        saved.counts({"luck": 1})
