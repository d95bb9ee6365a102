"""The actions of a guard: bounds, shapes, and what a prior may answer."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from tether import GuardMisuse, PriorFailed, Reason
from tether.core.actions import Actions, Answer, bound_from_json, bound_to_json, equal
from tether.core.ops import FLOAT32, FLOAT64
from tether.core.turn import Turn


def test_the_shape_of_an_action_is_that_of_vector_bounds_or_else_that_of_the_priors_first():
    for low, high, shape in (
        (None, None, None),
        (0.0, 1.0, None),
        ([0.0], None, (1,)),
        (0.0, [1.0, 2.0], (2,)),
        ([0.0, 0.0], 1.0, (2,)),
        ([0.0], [1.0, 2.0], (2,)),
    ):
        assert Actions(low, high).shape == shape
    for said, shape in ((0.5, ()), ([0.5], (1,)), ([0.5, 0.5], (2,))):
        actions = Actions(None, None)
        actions.ask(lambda seen, said=said: said, None)
        assert actions.shape == shape
        assert actions.usable([0.5, 0.5] if shape == (2,) else 0.5) is not None
    assert Actions(None, None).usable(0.5) == 0.5
    assert Actions(None, None).usable([0.5, 0.5]) is None


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([0.0, 2.0], [1.0, 1.0], "low must not exceed high"),
        ([math.nan, 0.0], None, "low must be a number or a vector of numbers"),
        (None, [[1.0, 2.0]], "high must be a number or a vector of numbers"),
        ([math.inf, 0.0], None, "low must be"),
        (None, -math.inf, "high must be"),
    ],
)
def test_bounds_between_which_nothing_lies_are_refused(low, high, message):
    with pytest.raises(ValueError, match=message):
        Actions(low, high)


def test_bounds_are_numbers_where_one_says_it_and_copies():
    low = np.array([0.0, -math.inf])
    actions = Actions(low, [3])
    low[:] = 9.0
    np.testing.assert_array_equal(actions.low, [0.0, -math.inf])
    assert (type(actions.high), actions.high) == (float, 3.0)
    assert (Actions(None, None).low, Actions(None, None).high) == (-math.inf, math.inf)
    assert Actions(1.0, 1.0).inside(1.0)


def test_an_action_at_a_bound_is_inside_and_one_beyond_any_of_them_is_not():
    number, vector = Actions(-1.0, 1.0), Actions([-1.0, -2.0], [1.0, 2.0])
    for action, inside in ((-1.0, True), (1.0, True), (-1.1, False), (1.1, False)):
        assert number.inside(action) is inside
    for action, inside in (
        ([-1.0, -2.0], True),
        ([1.0, 2.0], True),
        ([-1.1, 0.0], False),
        ([0.0, 2.1], False),
        ([0.0, -2.1], False),
        ([1.1, 2.1], False),
    ):
        assert vector.inside(np.array(action)) is inside
    assert Actions(-1.0, [1.0, 2.0]).inside(np.array([1.0, 2.0]))


def test_an_action_is_given_back_in_the_priors_shape_and_as_a_copy():
    assert type(Actions(None, None).given(0.5)) is float
    assert Actions(None, None).given(0.5) == 0.5
    single = Actions([0.0], None).given(0.5)
    assert isinstance(single, np.ndarray)
    np.testing.assert_array_equal(single, [0.5])
    vector = np.array([0.5, 0.5])
    given = Actions([0.0, 0.0], None).given(vector)
    given[:] = 9.0
    np.testing.assert_array_equal(vector, [0.5, 0.5])


@pytest.mark.parametrize(
    ("action", "wish", "breached", "reason"),
    [
        (0.5, 0.5, True, Reason.BREACH),
        (0.5, None, True, Reason.BREACH),
        (0.5, None, False, Reason.INVALID_PROPOSAL),
        (0.5, 0.5, False, Reason.SAFE),
        (0.5, 0.75, False, Reason.TOO_FAR),
        (0.5, 1.5, False, Reason.OUT_OF_BOUNDS),
    ],
)
def test_the_reason_says_what_was_wrong_with_the_proposal(action, wish, breached, reason):
    assert Actions(-1.0, 1.0).reason(action, wish, breached) is reason
    pair = None if wish is None else np.array([wish, 0.0])
    assert Actions([-1.0, -1.0], 1.0).reason(np.array([action, 0.0]), pair, breached) is reason


def test_two_actions_are_equal_if_all_their_numbers_are_and_nothing_equals_no_action():
    assert equal(0.5, 0.5)
    assert not equal(0.5, 0.6)
    assert equal(np.array([0.5, 0.6]), np.array([0.5, 0.6]))
    assert not equal(np.array([0.5, 0.6]), np.array([0.5, 0.7]))
    assert not equal(0.5, None)
    assert not equal(np.array([0.5, 0.6]), None)


@pytest.mark.parametrize(
    ("said", "epsilon"), [(0.5, FLOAT64), (np.float32(0.5), FLOAT32), (np.array([0.5], np.float16), 2.0**-10)]
)
def test_a_priors_answer_comes_with_the_round_off_of_its_type(said, epsilon):
    assert Actions(None, None).ask(lambda seen: said, None) == Answer(0.5, epsilon)


def test_a_prior_is_asked_about_the_observation_and_failing_to_answer_is_a_complaint():
    actions = Actions(None, None)
    assert actions.ask(lambda seen: 2.0 * seen, 0.25) == Answer(0.5, FLOAT64)
    error = ValueError("no sensor")

    def failing(seen):
        raise error

    answer = actions.ask(failing, None)
    assert answer == Answer(None, 0.0, "the prior raised ValueError('no sensor')", error)
    with pytest.raises(
        PriorFailed, match=r"round 3: the prior raised .* no action is known to be safe"
    ) as raised:
        answer.required(3)
    assert raised.value.__cause__ is error
    assert Answer(0.0, FLOAT64).required(3) == 0.0


@pytest.mark.parametrize(
    "said", [np.zeros((2, 2)), np.zeros((1, 1)), np.zeros(0), math.nan, "x", None, [0.1, math.nan]]
)
def test_a_prior_that_says_no_finite_number_or_vector_gives_no_action(said):
    actions = Actions(None, None)
    answer = actions.ask(lambda seen: said, None)
    assert answer[:2] == (None, 0.0)
    assert answer.complaint.endswith("expected a finite number or vector")
    assert actions.shape is None


def test_once_the_shape_is_known_another_is_no_answer():
    actions = Actions([0.0, 0.0], None)
    for said in (0.5, [0.5], [0.5, 0.5, 0.5]):
        answer = actions.ask(lambda seen, said=said: said, None)
        assert answer.action is None
        assert answer.complaint.endswith("expected a finite action of shape (2,)")


def test_a_prior_out_of_bounds_is_moved_to_the_nearest_bound_and_complained_about():
    number = Actions(-1.0, 1.0).ask(lambda seen: np.float32(7.0), None)
    assert (type(number.action), number.action, number.epsilon) == (float, 1.0, FLOAT32)
    assert "outside the bounds -1.0 to 1.0" in number.complaint
    vector = Actions(-1.0, [1.0, 2.0]).ask(lambda seen: [-7.0, 1.5], None)
    np.testing.assert_array_equal(vector.action, [-1.0, 1.5])
    assert vector.complaint is not None


def test_bounds_go_through_json_where_none_is_infinity():
    for bound, sent in ((1.5, 1.5), (-math.inf, None), (np.array([0.5, -math.inf]), [0.5, None])):
        assert bound_to_json(bound) == sent
        np.testing.assert_array_equal(bound_from_json(sent, -math.inf), bound)
    assert bound_from_json([None], math.inf) == [math.inf]


def test_a_turn_that_was_refused_keeps_nobody_else_waiting():
    turn, reached = Turn(), []

    def enter():
        with turn:
            reached.append(True)

    with turn:
        with pytest.raises(GuardMisuse, match="called by its own prior"):
            enter()
        other = threading.Thread(target=enter, daemon=True)
        other.start()
        other.join(0.01)
        assert reached == []  # it waits for its turn
    other.join(1.0)
    assert reached == [True]
    enter()
