"""What strangers hand over becomes plain numbers of our own, or is refused; nothing is kept by reference."""

from __future__ import annotations

import json
import math
import threading
from typing import NamedTuple

import numpy as np
import pytest

from tether.core import convert


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")

    def __float__(self):
        raise RuntimeError("no number")

    def __repr__(self):
        raise RuntimeError("no text")


class Tensor:
    """As torch has them: NumPy cannot read it, and it cannot be copied before it is detached."""

    def __init__(self, numbers):
        self.numbers = numbers

    def detach(self):
        return Detached(self.numbers)

    def __deepcopy__(self, memo):
        raise RuntimeError("only leaves can be copied")


class Detached(list):
    def tolist(self):
        return list(self)


class Pair(NamedTuple):
    one: object
    other: object


def kind(value):
    """An id for what has no text."""
    return type(value).__name__


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2.0), np.array(2.0), np.array([2.0]), np.array([[2]])])
def test_a_cost_is_any_single_number(value):
    number = convert.as_number(value)
    assert (type(number), number) == (float, 2.0)


@pytest.mark.parametrize(
    "value",
    ["2", b"2", np.array("2"), np.array(b"2"), None, [2.0], np.array([2.0, 2.0]), 10**400, Hostile()],
    ids=kind,
)
def test_a_cost_that_is_no_single_number_is_not_a_number(value):
    assert math.isnan(convert.as_number(value))


@pytest.mark.parametrize(
    "value", [[1, 2], (True, 2.0), np.array([1, 2]), np.array([1, 2], object), Tensor([1.0, 2.0])]
)
def test_numbers_of_any_type_become_an_array_of_float64(value):
    array = convert.as_array(value)
    assert array.dtype == np.float64
    np.testing.assert_array_equal(array, [1.0, 2.0])
    assert not np.shares_memory(array, np.asarray(value))
    given = np.array([1.0, 2.0])
    assert not np.shares_memory(convert.as_array(given), given)


@pytest.mark.parametrize("value", ["12", ["1", "2"], np.array(["2000-01-01"], "datetime64[D]"), [1.0 + 1.0j]])
def test_text_dates_and_complex_numbers_are_no_numbers(value):
    with pytest.raises(TypeError, match="expected numbers, got"):
        convert.as_array(value)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize(
    "value", [9, 9.0, True, np.float32(9.0), [9.0], [[9.0]], np.array([9.0]), Tensor([9.0])]
)
def test_an_action_of_one_number_is_a_float_whatever_array_it_comes_in(value, shape):
    action = convert.as_action(value, shape)
    assert (type(action), action) == (float, 1.0 if value is True else 9.0)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, [-math.inf], None, "9", [], [9.0, 9.0], 10**400, Hostile(), np.nan],
    ids=kind,
)
def test_what_is_not_one_finite_number_is_no_action_of_one(value):
    assert convert.as_action(value, ()) is None
    assert convert.as_action(value, (1,)) is None


def test_an_action_of_several_numbers_is_a_finite_vector_of_that_length():
    np.testing.assert_array_equal(convert.as_action([1, 2], (2,)), [1.0, 2.0])
    for value in (1.0, [1.0], [[1.0, 2.0]], [1.0, 2.0, 3.0], [1.0, math.nan], [math.inf] * 2, ["1", "2"]):
        assert convert.as_action(value, (2,)) is None
    given = np.array([1.0, 2.0])
    assert not np.shares_memory(convert.as_action(given, (2,)), given)


def test_a_copy_shares_nothing_and_what_cannot_be_copied_is_its_text():
    given = [[1.0], {"x": 2.0}]
    copied = convert.copied(given)
    assert copied == given
    assert copied[0] is not given[0]
    assert convert.copied(Tensor([1.0])) == [1.0]
    lock = threading.Lock()
    assert convert.copied(lock) == repr(lock)
    assert convert.text(Hostile()) == "<Hostile>"


def test_a_monitor_is_shown_plain_numbers_and_nothing_that_its_owner_may_change():
    array, inner = np.array([1.0, 2.0]), [3.0]
    given = {
        "a": array,
        "b": [np.float32(0.5), inner],
        "c": Pair(np.array([4]), {5.0}),
        "d": 6.0,
        "e": Hostile(),
    }
    plain = convert.plain_numbers(given)
    expected = {"a": [1.0, 2.0], "b": [0.5, [3.0]], "c": Pair([4], {5.0}), "d": 6.0, "e": "<Hostile>"}
    array[:], inner[0] = 9.0, 9.0
    assert plain == expected
    assert type(plain["a"]) is list
    assert type(plain["b"][0]) is float
    assert type(plain["c"]) is Pair
    assert convert.plain_numbers((array, 1.0)) == ([9.0, 9.0], 1.0)
    assert convert.plain_numbers(array) == [9.0, 9.0]


def test_what_a_certificate_took_is_kept_as_floats_truth_values_and_arrays_of_our_own():
    array = np.array([1.0, 2.0])
    given = (np.float32(0.5), Pair(np.bool_(True), False), array, 3, (np.array(4.0), 5.0))
    kept = convert.plain_tuple(given)
    array[:] = 9.0
    assert type(kept[1]) is Pair
    assert kept[1].one is True
    assert kept[1].other is False
    np.testing.assert_array_equal(kept[2], [1.0, 2.0])
    assert kept[4] == (4.0, 5.0)
    for number in (kept[0], kept[3], *kept[4]):
        assert type(number) is float
    with pytest.raises(ValueError, match="could not convert"):
        convert.plain_tuple(("text",))
    lists = convert.plain_lists((0.5, Pair(True, None), kept[2], np.float64(3.0), ()))
    assert lists == [0.5, [True, None], [1.0, 2.0], 3.0, []]
    assert type(lists[3]) is float
    assert convert.plain_lists(None) is None


@pytest.mark.parametrize(
    ("given", "names", "message"),
    [
        ({}, (), "makes no use of what is revealed"),
        (["noise"], ("noise",), "revealed must give noise, got"),
        ({}, ("noise",), "revealed must give noise, got {}"),
        ({"noise": 1.0, "luck": 1.0}, ("noise",), "revealed must give noise, got"),
        ({"noise": "loud"}, ("noise",), "revealed must be numbers"),
        ({"noise": Hostile()}, ("noise",), "revealed must be numbers"),
    ],
    ids=kind,
)
def test_what_is_revealed_is_numbers_by_the_names_that_are_used(given, names, message):
    with pytest.raises(ValueError, match=message):
        convert.revealed_arrays(given, names)
    array = np.array([1.0, 2.0])
    revealed = convert.revealed_arrays({"one": array, "other": 3}, ("other", "one"))
    array[:] = 9.0
    np.testing.assert_array_equal(revealed["one"], [1.0, 2.0])
    assert (revealed["other"].shape, float(revealed["other"])) == ((), 3.0)


def test_what_goes_through_json_comes_back_as_nested_tuples():
    value = {"a": (1, 2.5, None), "b": [True, "text", (math.inf, -math.inf)], "c": {"d": ()}}
    sent = json.dumps(convert.to_json(value), allow_nan=False)
    back = {"a": (1, 2.5, None), "b": (True, "text", (math.inf, -math.inf)), "c": {"d": ()}}
    assert convert.from_json(json.loads(sent)) == back
    assert math.isnan(convert.from_json(convert.to_json(math.nan)))
    assert convert.to_json(math.nan) == "nan"
    assert convert.to_json([{1.0}, Hostile()]) == ["{1.0}", "<Hostile>"]
    assert convert.from_json(np.array([[1.0, math.inf]])) == ((1.0, math.inf),)
    assert convert.from_json(np.float32(0.5)) == 0.5
    assert convert.from_json((1.0, [2.0], {3.0})) == (1.0, (2.0,), {3.0})
