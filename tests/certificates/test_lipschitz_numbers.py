"""The Lipschitz certificate in numbers that can be worked out by hand: reserves, accounts, what is saved."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from tether import Contract, LipschitzCertificate, Sensitivity, geometric, table
from tether.certificates import Box, Outcome
from tether.certificates.lipschitz import LipschitzState, Taken
from tether.core.certificate import accepted_cost
from tether.core.ops import FLOAT32, FLOAT64, FLOATS, NUMPY

RULES = ("paper", "released", "tight")
CONTRACT = Contract(lam=2.0, b=3.0, horizon=4, cost_floor=1.0)
BOUNDS = Sensitivity(10.0, 2.0, geometric(0.5))
LIMIT = FLOATS.limit(0.0)


def certificate(rule="tight", contract=CONTRACT, bounds=BOUNDS, **options):
    return LipschitzCertificate(contract, bounds, rule, **options)


@pytest.mark.parametrize("p", [geometric(0.5), geometric(1.5), table([1.0] * 1000)])
@pytest.mark.parametrize("horizon", [1, 24, 1000])
@pytest.mark.parametrize("epsilon", [0.01, 1e-4, FLOAT32, FLOAT64])
def test_the_unit_of_round_off_is_the_sums_own_or_that_of_a_plant_with_large_states(p, horizon, epsilon):
    made = certificate(
        contract=dataclasses.replace(CONTRACT, horizon=horizon), bounds=Sensitivity(1.0, 0.0, p)
    )
    own = epsilon * (4.0 * (horizon + 16.0) + p.round_off_growth(horizon))
    ops, state = made.online_ops, made.start()
    unit = made._unit(state, epsilon, ops)
    assert unit == pytest.approx(max(own, math.sqrt(epsilon) / 16.0), rel=1e-12)
    assert dataclasses.replace(made, resolution=epsilon)._unit(state, 0.0, ops) == unit
    assert dataclasses.replace(made, resolution=epsilon / 2)._unit(state, epsilon, ops) == unit


@pytest.mark.parametrize("rule", RULES)
def test_the_radius_keeps_the_documented_share_of_all_sums_in_reserve(rule):
    """Without later rounds' effects the formulas are short: slack over the immediate effect, rounded inward twice."""
    epsilon = 2.0**-30
    unit = math.sqrt(epsilon) / 16.0
    made = certificate(rule, bounds=Sensitivity(10.0, 0.0, geometric(0.5)))
    coarse = dataclasses.replace(made, resolution=epsilon)
    earned = 5.0
    expected = earned * (1.0 - 2.0 * unit if rule == "tight" else 1.0 - unit) * (1.0 - unit) / 10.0
    assert made.radius(made.start(), FLOATS, epsilon) == pytest.approx(expected, rel=1e-12)
    assert coarse.radius(coarse.start(), FLOATS) == pytest.approx(expected, rel=1e-12)
    state = LipschitzState(2.0, 7.0, 4.0, 0.0, 20.0, False)
    slack = 4.0 + (2.0 * 3.0 + earned) * (1.0 - unit) if rule == "tight" else 7.0
    expected = (slack - unit * 20.0) * (1.0 - unit) / 10.0
    assert made.radius(state, FLOATS, epsilon) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_a_slack_of_subnormal_size_is_held_back(rule):
    """Sums of such numbers are off by more than their relative round-off: one over the limit is kept in any case."""
    made = certificate(rule, Contract(0.0, 0.0, 1), Sensitivity(10.0, 0.0, geometric(0.5)))
    for slack, left in ((3.0 / LIMIT, 2.0 / LIMIT), (1.0 / LIMIT, 0.0), (5e-324, 0.0)):
        state = LipschitzState(0.0, slack, slack, 0.0, 0.0, False)
        assert made.radius(state, FLOATS) == pytest.approx(left / 10.0, rel=1e-6, abs=0.0)


@pytest.mark.parametrize("rule", RULES)
def test_where_round_off_is_as_large_as_the_sums_nothing_is_left(rule):
    made = certificate(rule)
    state = LipschitzState(1.0, 50.0, 50.0, 0.0, 0.0, False)
    assert made.radius(state, FLOATS, 0.001) > 0.0
    assert made.radius(state, FLOATS, 1.0) == 0.0
    behind = LipschitzState(1.0, -50.0, -50.0, 0.0, 0.0, False)
    for epsilon in (0.0, 1.0):  # two negatives make no plus
        assert made.radius(behind, FLOATS, epsilon) == 0.0


@pytest.mark.parametrize("rule", RULES)
def test_no_radius_is_beyond_what_is_computed_with(rule):
    made = certificate(rule, bounds=Sensitivity(1e-320, 0.0, geometric(0.5)))
    assert made.radius(made.start(FLOATS), FLOATS) == LIMIT


@pytest.mark.parametrize("rule", RULES)
def test_a_round_is_accounted_for_as_documented(rule):
    made = certificate(rule)
    state = LipschitzState(1.0, 7.0, 4.0, 0.25, 20.0, False)
    closed = made.close(state, 0.125, 3.0, FLOATS)
    floor = 3.0 - (2.0 * 0.25 + 10.0 * 0.125)  # 1.25
    total = 10.0 + 2.0 * (1.0 + 0.5)  # two rounds come after it
    later = 2.0 * 0.25 * (1.0 + 0.5)
    surplus = 4.0 + 3.0 * floor - 3.0
    allowance = {
        "tight": 7.0,
        "paper": 5.0 + max(7.0 - total * 0.125, surplus - later),
        "released": 5.0 + max(7.0 - total * 0.125, surplus - later + 2.0 * 3.0),
    }[rule]
    expected = (2.0, allowance, surplus, 0.25, 20.0 + 4.0 * 3.0 + 5.0 + total * 0.125)
    assert closed[:5] == pytest.approx(expected, rel=1e-12)
    assert closed.breached is False
    assert made.close(state, 0.125, 1.5, FLOATS).surplus == pytest.approx(
        4.0 + 3.0 * 1.0 - 1.5
    )  # the contract's floor
    spent = made.close(state._replace(allowance=90.0), 0.125, 3.0, FLOATS)
    assert rule == "tight" or spent.allowance == pytest.approx(95.0 - total * 0.125)
    assert made.total(state) == pytest.approx(total)
    assert made.margin(state, 0.125) == pytest.approx(4.0 + 5.0 + 3.0 - 2.0 * 0.25 - 10.0 * 0.125)


@pytest.mark.parametrize("rule", RULES)
def test_before_the_first_round_there_is_what_one_round_earns(rule):
    for ops in (FLOATS, NUMPY):
        start = certificate(rule).start(ops)
        assert start == (0.0, 0.0 if rule == "tight" else 5.0, 0.0, 0.0, 5.0, False, False, 0.0)
    tabled = certificate(rule, bounds=Sensitivity(10.0, 2.0, table([1.0, 0.5, 0.25]))).start(NUMPY)
    np.testing.assert_array_equal(tabled.memory, np.zeros(4))


def test_a_choice_says_how_far_it_went_and_what_is_left():
    made = certificate()
    box = Box(0.0, 9.0, "l2")
    state = LipschitzState(1.0, 0.0, 4.0, 0.25, 20.0, False)
    opened = made.open(state, None, FLOATS)
    choice = made.choose(opened, 8.0, 2.0, box, FLOATS)
    assert choice.radius == opened.radius == made.radius(state, FLOATS)
    assert choice.deviation == pytest.approx(choice.radius, rel=1e-6)
    assert choice.deviation <= choice.radius
    assert choice.action == pytest.approx(2.0 + choice.deviation)
    assert choice.margin == made.margin(state, choice.deviation)
    assert choice.backup == 0.0
    assert made.choose(opened, 2.0, 2.0, box, FLOATS).backup == 0.0
    assert choice.taken == Taken(choice.deviation, choice.radius, 2.0)
    assert choice.breached is False
    assert made.choose(opened._replace(state=state._replace(breached=True)), 8.0, 2.0, box, FLOATS).breached
    assert made.backup_action(opened, 2.0, box, FLOATS) == 2.0
    allowance, margin, carried = made.features(opened, FLOATS)
    assert allowance == pytest.approx(opened.radius * made.total(state))
    assert (margin, carried) == (made.margin(state, 0.0), 0.25)


def test_features_are_measured_in_what_a_round_earns():
    assert certificate().feature_units() == (5.0, 5.0, pytest.approx(5.0 / (10.0 + 2.0 * 1.75)))
    poor = certificate(contract=Contract(0.0, 0.0, 4, 1.0))
    assert poor.feature_units() == (1.0, 1.0, 1.0)
    little = certificate(contract=Contract(0.0, 0.5, 4, 1.0))
    assert little.feature_units()[:2] == (0.5, 0.5)


def test_what_was_really_applied_counts_in_the_norm_of_the_box_and_more_than_was_safe_is_an_override():
    made = certificate()
    state = made.start(FLOATS)
    prior = np.array([1.0, -3.0])
    taken = Taken(0.01, 0.125, prior)
    decided = made.update(state, taken, Outcome(2.0), NUMPY)
    assert decided == made.close(state._replace(magnitude=5.0 + 10.0 * 3.0), 0.01, 2.0, NUMPY)
    for off, norm, deviation, overridden in (
        (0.0625, None, 0.125, False),  # l1 of (off, -off), the largest of the norms, if nothing is said
        (0.125, None, 0.25, True),
        (0.125, "l1", 0.25, True),
        (0.125, "linf", 0.125, False),
        (0.25, "linf", 0.25, True),
        (0.0625, "l2", 0.0625 * math.sqrt(2.0), False),
    ):
        box = None if norm is None else Box(-9.0, 9.0, norm)
        outcome = Outcome(2.0, applied=prior + np.array([off, -off]), box=box)
        applied = made.update(state, taken, outcome, NUMPY)
        assert applied.memory == pytest.approx(deviation)
        assert (bool(applied.overridden), bool(applied.breached)) == (overridden, False)
        # The same account as if it had been decided.
        assert applied[:6] == pytest.approx(
            made.close(state._replace(magnitude=35.0), applied.memory, 2.0, NUMPY)[:6]
        )
    lost = made.update(state, taken, Outcome(2.0, applied=prior * math.nan), NUMPY)
    assert lost.breached
    again = made.update(state._replace(breached=True), taken, Outcome(2.0, applied=prior), NUMPY)
    assert again.breached


@pytest.mark.parametrize("rule", RULES)
def test_after_an_override_the_prior_plays_until_the_radius_is_positive_again(rule):
    made = certificate(rule, contract=Contract(2.0, 3.0, 40, 1.0))
    state = made.start(FLOATS)
    box = Box(-9.0, 9.0, "l2")
    choice = made.choose(made.open(state, None, FLOATS), 0.1, 0.0, box, FLOATS)
    state = made.update(state, choice.taken, Outcome(31.0, applied=3.0, box=box), FLOATS)
    flags, margins = [], []
    for _ in range(20):
        choice = made.choose(made.open(state, None, FLOATS), 0.05, 0.0, box, FLOATS)
        assert choice.action == (0.0 if choice.overridden else min(0.05, choice.radius))
        assert choice.overridden == choice.taken.overridden == (choice.radius == 0.0)
        flags.append(choice.overridden)
        margins.append(choice.margin)
        state = made.update(state, choice.taken, Outcome(1.0), FLOATS)
        assert state.overridden == choice.overridden
    back = flags.index(False)
    assert 2 <= back < 20
    assert flags == [True] * back + [False] * (20 - back)
    assert margins[0] < 0.0 < margins[back]
    # What is applied while the prior plays does not end it.
    idle = made.update(state, Taken(0.0, 0.0, 0.0, True), Outcome(1.0, applied=0.0, box=box), FLOATS)
    assert idle.overridden


@pytest.mark.parametrize("rule", RULES)
def test_a_round_without_its_cost_counts_as_the_worst_of_all_costs_until_the_cost_comes(rule):
    made = certificate(rule)
    state = made.start(FLOATS)._replace(rounds=1.0, memory=0.125, surplus=4.0, magnitude=20.0)
    taken = Taken(0.0625, 0.125, 2.0)
    moved = 2.0 * 0.125 + 10.0 * 0.0625
    late, owed = made.defer(state, taken, Outcome(math.nan), FLOATS)
    assert owed == (moved, 2.0, 0.0)
    assert late.surplus == 4.0 + 2.0 - moved
    spent = 0.0625 * made.total(state, FLOATS)
    assert late.magnitude == pytest.approx(20.0 + 10.0 * 2.0 + moved + 5.0 + spent)
    worst = made.update(state, taken, Outcome(1.0 + moved), FLOATS)
    assert late[:4] == pytest.approx(worst[:4])  # rounds, allowance, surplus and memory
    for cost in (1.0, 1.5, 1.0 + moved, 4.0):
        in_time = made.update(state, taken, Outcome(cost), FLOATS)
        settled = made.settle(late, owed, Outcome(cost), FLOATS)
        assert settled[:4] == pytest.approx(in_time[:4])
        assert settled.magnitude == pytest.approx(late.magnitude + 4.0 * cost + moved)
        assert settled.breached is False
    for cost in (0.9, math.nan, LIMIT):
        assert made.settle(late, owed, Outcome(cost), FLOATS).breached is True
    assert made.settle(late._replace(breached=True), owed, Outcome(2.0), FLOATS).breached is True
    assert made.restored_owed([moved, 2.0, 0.0]) == owed
    for wrong in ([moved], [-0.1, 2.0, 0.0], [math.nan, 2.0, 0.0], [moved, -2.0, 0.0], [moved, 2.0, [1.0]]):
        with pytest.raises(ValueError, match="owed must be"):
            made.restored_owed(wrong)


def test_the_tolerance_is_paid_for_in_every_round_and_shortens_the_radius():
    off = 0.03125
    made, exact = certificate(tolerance=off), certificate()
    gamma = 10.0 + 2.0 * 1.75
    assert exact.tolerating(off) == made
    assert made.tolerating(off).tolerance == 2.0 * off
    state = LipschitzState(2.0, 0.0, 4.0, 0.25, 0.0, False)
    # (*t) by hand, for the two rounds that are left.
    slack = [
        4.0 + 2.0 * 3.0 + k * 5.0 - (k - 1) * gamma * off - 2.0 * 0.25 * (1.0, 1.5)[k - 1] for k in (1, 2)
    ]
    expected = min(slack[0] / 10.0, slack[1] / 12.0) - off
    assert made.radius(state, FLOATS) == pytest.approx(expected, rel=1e-7)
    assert made.margin(state, 0.5) == exact.margin(state, 0.5 + off)
    start = made.start(FLOATS)
    taken = Taken(0.0625, 0.125, 2.0)
    closed = made.update(start, taken, Outcome(2.0), FLOATS)
    assert closed.memory == 0.0625 + off
    box = Box(-9.0, 9.0, "l2")
    for applied, deviation, overridden in (
        (2.0, 0.0, False),
        (2.0 + 0.125 + off, 0.125 + off, False),
        (2.2, 0.2, True),
    ):
        told = made.update(start, taken, Outcome(2.0, applied=applied, box=box), FLOATS)
        assert (told.memory, told.overridden) == (pytest.approx(deviation), overridden)
    least = Contract(0.0, gamma * off, 4, 1.0)
    assert certificate(contract=least, tolerance=off).radius(start, FLOATS) == 0.0
    with pytest.raises(ValueError, match="not even the prior keeps the promise"):
        certificate(contract=least, tolerance=1.001 * off)
    with pytest.raises(ValueError, match="tolerance must be at least 0"):
        certificate(tolerance=-0.1)
    assert LipschitzCertificate.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_the_round_off_of_a_cost_is_that_of_where_it_comes_from():
    low = 1.0 - 2.0 * FLOAT32
    for made, outcome, breached in (
        (certificate(), Outcome(low), True),
        (certificate(), Outcome(low, epsilon=FLOAT32), False),
        (certificate(resolution=FLOAT32), Outcome(low), False),
    ):
        assert made.update(made.start(FLOATS), Taken(0.0, 0.1, 2.0), outcome, FLOATS).breached is breached


def test_sums_beyond_what_is_computed_with_are_a_breach():
    made = certificate()
    full = made.start(FLOATS)._replace(magnitude=LIMIT)
    assert made.close(full, 0.0, 2.0, FLOATS).breached is False  # 13 more are lost in a number of that size
    assert made.close(full._replace(surplus=-LIMIT), 0.0, 2.0, FLOATS).breached is True
    assert made.close(made.start(FLOATS)._replace(surplus=1.01 * LIMIT), 0.0, 2.0, FLOATS).breached is True
    assert made.close(made.start(FLOATS), 0.0, LIMIT, FLOATS).breached is True
    assert made.close(made.start(FLOATS), 0.0, LIMIT / 8.0, FLOATS).breached is False
    assert made.close(full._replace(magnitude=0.0, breached=True), 0.0, 2.0, FLOATS).breached is True


def test_constants_beyond_what_is_computed_with_are_refused_and_in_float32_a_breach():
    for size, refused in ((LIMIT, False), (1.01 * LIMIT, True)):
        for make in (
            lambda size: certificate(bounds=Sensitivity(size, 0.0, geometric(0.5))),
            lambda size: certificate(contract=Contract(0.0, size, 4, 1.0)),
        ):
            if refused:
                with pytest.raises(ValueError, match="beyond the"):
                    make(size)
            else:
                assert make(size).start(FLOATS).breached is False
    single = np.float32(0.0)
    coarse = NUMPY.limit(single)
    assert coarse < LIMIT
    for size, breached in ((0.5 * coarse, False), (1.5 * coarse, True)):
        assert (
            certificate(bounds=Sensitivity(size, 0.0, geometric(0.5))).start(NUMPY, single).breached
            == breached
        )
        assert certificate(contract=Contract(0.0, size, 4, 1.0)).start(NUMPY, single).breached == breached
    with pytest.raises(ValueError, match="resolution must be at least 0"):
        certificate(resolution=-1e-9)


@pytest.mark.parametrize("floor", [0.7, 1.0, 1000.0])
def test_a_cost_is_accepted_up_to_four_units_of_round_off_below_the_floor(floor):
    contract = Contract(1.0, 1.0, 4, floor)
    for epsilon in (0.0, FLOAT32, 0.01):
        rounding = 4.0 * max(epsilon, FLOAT64)
        assert accepted_cost(contract, floor * (1.0 - rounding), epsilon, FLOATS) == (True, floor)
        assert accepted_cost(contract, floor * (1.0 - 1.04 * rounding - FLOAT64), epsilon, FLOATS) == (
            False,
            floor,
        )
    assert accepted_cost(contract, LIMIT, 0.0, FLOATS) == (True, LIMIT)
    for impossible in (1.01 * LIMIT, math.inf, -math.inf, math.nan):
        assert accepted_cost(contract, impossible, 0.0, FLOATS) == (False, floor)
    assert accepted_cost(contract, 2.0 * floor, 0.0, FLOATS) == (True, 2.0 * floor)
    single = np.float32(floor * (1.0 - 2.0 * FLOAT32))
    assert accepted_cost(contract, single, 0.0, NUMPY)[0]


def saved(made, **changes):
    return {**made.start(made.online_ops)._asdict(), "breached": False, **changes}


@pytest.mark.parametrize("rule", RULES)
def test_a_state_is_restored_if_and_only_if_an_episode_could_have_led_there(rule):
    made = certificate(rule)
    most = 5.0 * 3.0  # what two rounds and the start add at least
    good = saved(made, rounds=2.0, magnitude=most, surplus=0.0)
    edge = 1.0 + 2e-9
    cases = [
        ({}, True),
        ({"rounds": 4.0, "magnitude": 25.0}, True),
        ({"rounds": 5.0, "magnitude": 30.0}, False),
        ({"magnitude": most / edge}, False),
        ({"magnitude": most * (1.0 - 0.5e-9)}, True),
        ({"magnitude": 5.0 * (1.0 - 0.5e-9), "breached": True}, True),
        ({"magnitude": 5.0 / edge, "breached": True}, False),
        ({"breached": 0.0}, False),
        ({"magnitude": LIMIT}, True),
        ({"magnitude": 1.01 * LIMIT}, False),
        ({"surplus": most * (1.0 + 0.5e-9)}, True),
        ({"surplus": -most * (1.0 + 0.5e-9)}, True),
        ({"surplus": most * edge}, False),
        ({"surplus": -most * edge}, False),
        ({"surplus": math.nan}, False),
        ({"allowance": -1e3}, True),
        ({"allowance": most * (1.0 + 0.5e-9)}, rule != "tight"),
        ({"allowance": most * edge}, False),
        ({"allowance": 1e-12}, rule != "tight"),
        ({"memory": 0.0}, True),
        ({"memory": -1e-12}, False),
        ({"memory": [0.0] * 4}, False),
    ]
    for changes, possible in cases:
        state = {**good, **changes}
        if possible:
            assert made.restore(state, None) == (LipschitzState(**state), None), changes
        else:
            with pytest.raises(ValueError, match="must be"):
                made.restore(state, None)


def test_a_memory_that_is_a_table_is_restored_as_an_array_of_the_horizons_length():
    made = certificate(bounds=Sensitivity(10.0, 2.0, table([1.0, 0.5, 0.25])))
    state, _ = made.restore(saved(made, memory=[1.0, 2.0, 3.0, 4.0]), None)
    assert isinstance(state.memory, np.ndarray)
    np.testing.assert_array_equal(state.memory, np.array([1.0, 2.0, 3.0, 4.0]))
    for wrong in (0.0, [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match="memory must be"):
            made.restore(saved(made, memory=wrong), None)


def test_an_open_round_is_restored_if_its_deviation_was_safe():
    made = certificate()
    state = saved(made)
    assert made.restore(state, [0.125, 0.125, 2.0, False])[1] == Taken(0.125, 0.125, 2.0)
    assert made.restore(state, [0.0, 0.0, 2.0, True])[1] == Taken(0.0, 0.0, 2.0, True)
    restored = made.restore(state, [0.1, 0.125, [2.0, 3.0], False])[1]
    np.testing.assert_array_equal(restored.prior, np.array([2.0, 3.0]))
    for wrong in (
        [0.1, 0.125, 2.0],
        [0.13, 0.125, 2.0, False],
        [-1e-12, 0.125, 2.0, False],
        [-1.0, -1e-12, 2.0, False],
        [-1.0, -1.0, 2.0, False],
        [math.nan, 0.125, 2.0, False],
        [0.1, math.inf, 2.0, False],
        [0.1, 0.125, math.nan, False],
        [0.1, 0.125, [[2.0]], False],
        [0.1, 0.125, 2.0, 0],
    ):
        with pytest.raises(ValueError, match="must be"):
            made.restore(state, wrong)


def test_a_description_has_all_that_tells_one_certificate_from_another():
    made = certificate("paper", resolution=1e-7)
    assert made.to_dict() == {
        "tolerance": 0.0,
        "kind": "lipschitz",
        "rule": "paper",
        "contract": {"lam": 2.0, "b": 3.0, "horizon": 4, "cost_floor": 1.0},
        "bounds": BOUNDS.to_dict(),
        "resolution": 1e-7,
    }
    assert LipschitzCertificate.from_dict(made.to_dict()) == made
    assert (made.backup_names, made.revealed_names) == (("prior",), ())
    assert len(made.feature_names) == 3


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda c, s: LipschitzCertificate(c, s, rule="loose"),
            ValueError,
            "rule must be one of 'paper'.*'loose'",
        ),
        (lambda c, s: LipschitzCertificate(s, s), TypeError, "contract must be a tether.Contract"),
        (lambda c, s: LipschitzCertificate(c, c), TypeError, "bounds must be a tether.Sensitivity"),
        (
            lambda c, s: LipschitzCertificate(c, Sensitivity(1.0, 1.0, table([1.0, 0.5]))),
            ValueError,
            r"a horizon of 24 needs p\(0\) to p\(22\), 23 values, but the table has 2",
        ),
        (
            lambda c, s: LipschitzCertificate(
                dataclasses.replace(c, horizon=10_000), Sensitivity(1.0, 1.0, geometric(2.0))
            ),
            ValueError,
            "beyond floating point",
        ),
    ],
)
def test_a_certificate_that_makes_no_sense_is_refused(make, error, message):
    contract, bounds = Contract(1.0, 1.0, 24), Sensitivity(1.0, 1.0, geometric(0.5))
    with pytest.raises(error, match=message):
        make(contract, bounds)


def test_a_certificate_does_not_change_and_its_resolution_is_named():
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate().rule = "paper"
    with pytest.raises(TypeError, match="positional"):
        LipschitzCertificate(CONTRACT, BOUNDS, "tight", 1e-7)


def test_all_that_the_first_rounds_deviation_can_cost_must_be_computable():
    with pytest.raises(ValueError, match="Gamma is"):
        certificate(bounds=Sensitivity(1.0, LIMIT / 1.6, geometric(0.5)))  # 1.75 of it; from round 2 on 1.5


@pytest.mark.parametrize("rule", RULES)
def test_the_round_off_of_the_computation_itself_is_always_in_reserve(rule):
    made = certificate(rule)
    assert made._unit(made.start(), 0.0, FLOATS) == pytest.approx(math.sqrt(FLOAT64) / 16.0)
    assert made.radius(made.start(), FLOATS) == made.radius(made.start(), FLOATS, FLOAT64)
    state = LipschitzState(1.0, 50.0, 50.0, 0.0, 0.0, False)
    assert made.radius(state, FLOATS) > 0.0
    assert made.radius(state._replace(breached=True), FLOATS) == 0.0


def test_in_the_last_round_nothing_comes_later():
    made = certificate(contract=Contract(0.0, 0.0, 4, 1.0))
    state = LipschitzState(3.0, 0.0, 4.0, 0.0, 0.0, False)
    assert made.radius(state, FLOATS) == pytest.approx(4.0 / 10.0)
    assert made.radius(state._replace(rounds=2.0), FLOATS) == pytest.approx(4.0 / 12.0)


def test_the_paper_counts_no_b_of_past_rounds_and_a_cost_below_the_floor_is_a_breach():
    state = LipschitzState(1.0, 0.0, 4.0, 0.25, 20.0, False)
    closed = certificate("paper").close(state, 0.125, 3.0, FLOATS)
    assert closed.allowance == pytest.approx(5.0 + closed.surplus - 2.0 * 0.25 * 1.5)
    assert certificate().close(state, 0.125, 0.9, FLOATS).breached is True
