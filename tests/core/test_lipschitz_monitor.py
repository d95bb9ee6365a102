from __future__ import annotations

import pytest

from tether import LipschitzMonitor, Ranges


def played(monitor, memory, observation, action, cost, after):
    """A round and the observation after it: memory, what was said of the cost, and of the next state."""
    memory, by_cost = monitor.paid(memory, observation, action, cost)
    memory, by_state = monitor.arrived(memory, after)
    return memory, by_cost, by_state


COST = ("the cost, by those of rounds before,", -13.0, 27.0)
STATE = ("the distance to the next state of a round before", 0.0, 20.0)


@pytest.mark.parametrize(
    ("cost", "after", "expected"),
    [
        (27.05, 30.07, []),
        (27.06, 30.07, [(*COST, 27.06, 0)]),
        (27.05, 30.09, [(*STATE, 30.09 - 10.0, 1)]),
        (-13.04, -10.05, []),
        (-13.05, -10.05, [(*COST, -13.05, 0)]),
        (-13.04, -10.07, [(*STATE, 10.07 + 10.0, 1)]),
    ],
)
def test_round_off_is_a_share_of_all_numbers_that_a_comparison_uses(cost, after, expected):
    """The rounds are 9 + 1 apart, so 20 either way; and a thousandth of 2 (1 + 10 + 4), the state and what is seen."""
    monitor = LipschitzMonitor(cost_lipschitz=2.0, state_lipschitz=2.0, tolerance=1e-3)
    memory, *first = played(monitor, monitor.start(), [1.0], 3.0, 7.0, [10.0])
    _, *second = played(monitor, memory, [10.0], 4, cost, [after])
    assert [each for each in first + second if each is not None] == expected


@pytest.mark.parametrize(("cost", "contradicted"), [(0.0975, False), (0.1025, True)])
def test_numbers_that_are_nothing_leave_the_round_off_of_one(cost, contradicted):
    monitor = LipschitzMonitor(cost_lipschitz=100.0, tolerance=1e-3)
    memory, *_ = played(monitor, monitor.start(), [0.0], 0.0, 0.0, [0.0])
    assert (monitor.paid(memory, [0.0], 0.0, cost)[1] is not None) is contradicted


def test_every_remembered_round_counts_and_the_first_that_contradicts_is_named():
    monitor = LipschitzMonitor(cost_lipschitz=1.0, state_lipschitz=1.0)
    memory = monitor.start()
    for at, cost in ((0.0, 5.0), (4.0, 5.0)):
        memory, by_cost, by_state = played(monitor, memory, [at], 0.0, cost, [at])
        assert by_cost is by_state is None
    again, by_cost = monitor.paid(memory, [1.0], 0.0, 6.5)
    assert (by_cost.low, by_cost.high) == (4.0, 6.0)  # by the first: 5 -/+ 1; by the second: 5 -/+ 3
    assert monitor.arrived(again, [9.0])[1][1:] == (0.0, 1.0, 9.0, 1)
    assert monitor.paid(memory, [3.0], 0.0, 6.5)[1].high == 6.0  # by the second


def test_only_the_last_four_rounds_are_remembered_and_nothing_is_said_of_states_without_a_constant():
    monitor = LipschitzMonitor(cost_lipschitz=1.0, state=lambda observation: 1 / 0)
    memory = monitor.start()
    for number in range(7):
        memory, by_cost, by_state = played(monitor, memory, [float(number)], 0.0, 0.0, [1e9])
        assert by_cost is by_state is None
    assert [inputs for inputs, *_ in memory[0]] == [(3.0,), (4.0,), (5.0,), (6.0,)]
    strict = LipschitzMonitor(cost_lipschitz=1.0, state_lipschitz=0.0)  # no noise unless it is claimed
    memory, *_ = played(strict, strict.start(), [0.0], 0.0, 0.0, [0.0])
    assert played(strict, memory, [0.0], 0.0, 0.0, [0.01])[2].high == 0.0


@pytest.mark.parametrize(("norm", "distance"), [("l1", 7.0 + 2.0), ("l2", 5.0 + 2.0), ("linf", 4.0 + 2.0)])
def test_a_distance_is_that_of_the_inputs_and_that_of_the_actions_in_the_norm(norm, distance):
    monitor = LipschitzMonitor(1.0, norm=norm, inputs=lambda observation: observation[1:], cost_noise=0.5)
    memory, *_ = played(monitor, monitor.start(), [0.0, 1.0, -1.0], [-1.0], 0.0, [])
    found = monitor.paid(memory, [99.0, -2.0, 3.0], [1.0], 100.0)[1]
    assert (found.low, found.high) == (-distance - 0.5, distance + 0.5)
    for wrong in ([0.0, 1.0], [0.0, 1.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match=r"zip\(\)|dimension"):
            monitor.paid(memory, wrong, [1.0], 0.0)
    alone = LipschitzMonitor(1.0, norm=norm, inputs=lambda observation: ())
    memory, *_ = played(alone, alone.start(), [5.0], [0.0], 1.0, [6.0])
    assert alone.paid(memory, [7.0], [2.0], 9.0)[1].high == 3.0


def test_next_states_are_compared_by_the_part_of_the_observation_that_is_the_state():
    monitor = LipschitzMonitor(
        1.0, state_lipschitz=0.0, inputs=lambda seen: seen[:1], state=lambda seen: seen[:1]
    )
    memory, *_ = played(monitor, monitor.start(), [0.0, 7.0], 0.0, 0.0, [1.0, 7.0])
    assert played(monitor, memory, [0.0, 8.0], 0.0, 0.0, [1.0, 99.0])[2] is None
    assert played(monitor, memory, [0.0, 8.0], 0.0, 0.0, [2.0, 7.0])[2].seen == 1.0


def test_a_cost_below_its_range_is_contradicted_as_one_above_it_is():
    monitor = Ranges(claims=lambda observation, action, cost: ((2.0, 3.0, 1.0), ()))
    for cost, contradicted in ((1.9, True), (2.0, False), (3.0, False), (3.1, True)):
        _, found = monitor.paid(monitor.start(), [0.0], 0.0, cost)
        assert (found is not None) is contradicted
        assert found is None or found[1:] == (2.0, 3.0, cost, 0)


def test_a_millionth_of_the_numbers_is_round_off_unless_another_share_is_given():
    assert Ranges().tolerance == LipschitzMonitor(1.0).tolerance == 1e-6
