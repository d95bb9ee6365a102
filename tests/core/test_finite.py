"""Finite sets of actions: their names, their values, how far they are apart, and products of masks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.core.finite import MOST, FiniteActions, Labels, product_inside
from tether.core.projection import length

STEPS = FiniteActions([0.0, 2.5, 4.0])
GRID = FiniteActions.grid([0.0, 1.0], [0.0, 5.0, 7.0])


def test_an_action_is_named_by_its_number_and_has_a_value():
    assert (STEPS.n, STEPS.shape, STEPS.values, STEPS.points) == (3, (), (0.0, 2.5, 4.0), (0.0, 2.5, 4.0))
    assert [STEPS.number_of(value) for value in (2.5, 4.0, 3.0)] == [1, 2, None]
    assert STEPS.label(2) == 2


@pytest.mark.parametrize("label", [1, 1.0, np.int64(1), np.array(1), np.array([1]), True])
def test_a_whole_number_of_any_type_is_a_name(label):
    assert STEPS.number(label) == 1


@pytest.mark.parametrize("label", [-1, 3, 0.5, float("nan"), None, "off", [0, 1], {}])
def test_anything_else_is_none(label):
    assert STEPS.number(label) is None


def test_several_switches_are_named_by_the_step_of_each():
    assert (GRID.n, GRID.steps, GRID.shape) == (6, (2, 3), (2,))
    for number in range(GRID.n):
        assert GRID.number(GRID.label(number)) == number
    assert GRID.value_array[GRID.number([1, 2])].tolist() == [1.0, 7.0]
    assert GRID.number_of([1.0, 5.0]) == 4
    for label in (3, [2, 0], [0, 3], [0], [0, 0.5], [0, -1]):
        assert GRID.number(label) is None


@given(st.lists(st.lists(st.floats(0.0, 9.0), min_size=4, max_size=4), min_size=4, max_size=4))
@settings(max_examples=50, deadline=None)
def test_distances_are_never_counted_as_less(rows):
    matrix = np.array(rows)
    np.fill_diagonal(matrix, 0.0)
    actions = FiniteActions.with_distances([0, 1, 2, 3], matrix)
    points = actions.point_array
    apart = np.array([[length(here - there, actions.norm) for there in points] for here in points])
    assert np.all(apart >= np.maximum(matrix, matrix.T))
    hops = np.min(matrix[:, :, None] + matrix[None, :, :], axis=1)
    if np.array_equal(matrix, matrix.T) and np.all(matrix <= hops):
        assert np.allclose(apart, matrix)


def test_distances_that_are_a_metric_are_counted_as_they_are():
    matrix = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 4.0], [5.0, 4.0, 0.0]])
    points = FiniteActions.with_distances([7, 8, 9], matrix).point_array
    assert [[length(a - b, "linf") for b in points] for a in points] == matrix.tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FiniteActions([]), "finite numbers"),
        (lambda: FiniteActions([0.0, np.inf]), "finite numbers"),
        (lambda: FiniteActions(["on", "off"]), "values must be numbers"),
        (lambda: FiniteActions([[[0.0]]]), "finite numbers"),
        (lambda: FiniteActions([1.0, 1.0]), "a value of its own"),
        (lambda: FiniteActions(range(MOST + 1)), f"1 to {MOST} actions, got {MOST + 1}"),
        (lambda: FiniteActions([0.0, 1.0], points=[0.0]), "a point for each of 2 actions, got 1"),
        (lambda: FiniteActions([0.0, 1.0], norm="l7"), "norm must be one of"),
        (lambda: FiniteActions.grid(), "the levels of each switch"),
        (lambda: FiniteActions.grid([[0.0]]), "the levels of each switch"),
        (lambda: FiniteActions.grid(range(65), range(64)), f"at most {MOST} combinations, got 4160"),
        (lambda: FiniteActions.with_distances([0, 1], [[0.0, 1.0]]), r"\[2, 2\]"),
        (lambda: FiniteActions.with_distances([0, 1], [[0.0, -1.0], [1.0, 0.0]]), "at least 0"),
        (lambda: FiniteActions.with_distances([0, 1], [[0.0, np.nan], [1.0, 0.0]]), "at least 0"),
        (lambda: FiniteActions.with_distances([0, 1], [[0.0, 1.0], [1.0, 0.5]]), "to itself must be 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("actions", [STEPS, GRID, FiniteActions.with_distances([3, 4], [[0, 2], [2, 0]])])
def test_a_set_comes_back_from_its_description(actions):
    assert FiniteActions.from_dict(actions.to_dict()) == actions
    assert hash(FiniteActions.from_dict(actions.to_dict())) == hash(actions)


def test_labels_of_a_guard_turn_names_into_values_and_back():
    labels = Labels(STEPS)
    assert (labels.usable(1), labels.usable(7), labels.given(2.5)) == (2.5, None, 1)
    assert (labels.inside(4.0), labels.inside(1.0)) == (True, False)
    assert labels.ask(lambda seen: 2, None).action == 4.0
    assert (
        labels.ask(lambda seen: 9, None).complaint == "the prior returned 9, expected an action from 0 to 2"
    )
    assert "ZeroDivisionError" in labels.ask(lambda seen: 1 // 0, None).complaint
    grid = Labels(GRID)
    assert grid.usable([1, 1]).tolist() == [1.0, 5.0]
    assert grid.given(np.array([1.0, 5.0])).tolist() == [1, 1]
    assert "from 0 to [1, 2]" in grid.ask(lambda seen: 9, None).complaint


def test_what_a_guard_was_given_cannot_change_the_set():
    labels = Labels(GRID)
    labels.usable([1, 1])[0] = 99.0
    assert labels.usable([1, 1]).tolist() == [1.0, 5.0]


@given(st.data(), st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)))
@settings(max_examples=80, deadline=None)
def test_every_combination_of_the_masks_is_safe_and_nothing_can_be_added(data, shape):
    size = math.prod(shape)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(shape)
    first = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    mask[first] = True
    masks = product_inside(mask, first)
    assert all(each[at] for each, at in zip(masks, first, strict=True))
    assert np.all(mask[np.ix_(*masks)])
    for i, each in enumerate(masks):
        for step in np.flatnonzero(~each):
            wider = [other.copy() for other in masks]
            wider[i][step] = True
            assert not np.all(mask[np.ix_(*wider)])
