"""A fleet decides as so many guards do, digit for digit, and deals with each plant on its own."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether import (
    AssumptionBreach,
    Contract,
    Fleet,
    Guard,
    GuardMisuse,
    LipschitzCertificate,
    PriorFailed,
    Reason,
    Sensitivity,
    Structured,
    geometric,
    periodic,
    table,
)
from tether.core import rows
from tether.core.fleet_ops import FLEET
from tether.core.ops import FLOATS
from tether.systems import registry

N = 12
PLAIN = Contract(2.0, 2.0, 8, 1.0)
CASES = {
    "tight": (LipschitzCertificate(PLAIN, Sensitivity(31.0, 2.875, geometric(0.25))), None, "l2"),
    "released": (LipschitzCertificate(PLAIN, Sensitivity(3.0, 1.0, geometric(0.9)), "released"), None, "l2"),
    "paper, growing": (
        LipschitzCertificate(PLAIN, Sensitivity(3.0, 1.0, geometric(1.1)), "paper"),
        None,
        "l2",
    ),
    "table": (LipschitzCertificate(PLAIN, Sensitivity(3.0, 1.0, table([1.0, 0.5] * 4))), 1, "l2"),
    "vector": (LipschitzCertificate(PLAIN, Sensitivity(3.0, 1.0, geometric(0.5))), 3, "l2"),
    "vector, l1": (LipschitzCertificate(PLAIN, Sensitivity(3.0, 1.0, geometric(0.5))), 2, "l1"),
    "no end": (
        LipschitzCertificate(Contract(0.5, 0.5, math.inf, 1.0), Sensitivity(3.0, 1.0, geometric(0.5))),
        None,
        "linf",
    ),
    "schedule": (
        LipschitzCertificate(
            Contract([2.0, 0.0] * 4, periodic([1.0, 0.0, 5.0]), 8, 1.0), Sensitivity(3.0, 1.0, geometric(0.5))
        ),
        None,
        "l2",
    ),
}


def prior_of(k):
    return lambda seen: 0.5 * np.asarray(seen)[..., 0] if k is None else 0.5 * np.asarray(seen)[..., :k]


def same(decided, i, single):
    together = (decided.deviations[i], decided.radii[i], decided.margins[i])
    alone = (single.deviation, single.radius, single.margin)
    return (
        np.array_equal(decided.actions[i], single.action)
        and np.array_equal(decided.prior_actions[i], single.prior_action)
        and np.array_equal(together, alone, equal_nan=True)
        and decided.reasons[i] == single.reason
        and decided.intervened[i] == single.intervened
        and decided.backups[i] == single.backup
        and decided.rounds[i] == single.round
    )


@pytest.mark.parametrize("name", CASES)
def test_a_fleet_decides_as_single_guards_do(name):
    certificate, k, norm = CASES[name]
    rng, prior = np.random.default_rng(0), prior_of(k)
    fleet = Fleet(certificate, prior, N, -2.0, 2.0, norm)
    guards = [Guard(certificate, prior, -2.0, 2.0, norm) for _ in range(N)]
    shape = (N,) if k is None else (N, k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionBreach)
        for _ in range(30):
            seen = rng.normal(size=(N, 3))
            wishes = prior(seen) + rng.normal(size=shape) * np.exp(rng.normal(-1.0, 2.0, size=shape))
            wishes[rng.random(N) < 0.1] = rng.choice([math.nan, math.inf])
            costs = 1.0 + rng.exponential(size=N)
            costs[rng.random(N) < 0.02] = 0.5
            decided = fleet.act(seen, wishes)
            for i, guard in enumerate(guards):
                assert same(decided, i, guard.act(seen[i], wishes[i]))
                guard.observe(costs[i])
            fleet.observe(costs)
            assert fleet.breached.tolist() == [guard.breach is not None for guard in guards]
            assert fleet.uncertified_from.tolist() == [guard.uncertified_from for guard in guards]
            over = fleet.over | (rng.random(N) < 0.1)
            fleet.reset(over)
            for i in np.flatnonzero(over):
                guards[i].reset()
            assert fleet.rounds.tolist() == [guard.round for guard in guards]
    total = sum((guard.counts for guard in guards), start=type(fleet.counts)())
    assert fleet.counts == total


@pytest.mark.parametrize("name", ["carbon", "cooling", "inference"])
def test_a_fleet_with_a_structure_decides_as_single_guards_do(name):
    env = registry.find(name).env()
    certificate = Structured(env.contract(2.0, 2.0), env.structure)
    episodes = registry.find(name).draw(0, 6)
    made = env.low, env.high, env.norm

    def prior(seen):
        return np.array([env.prior(each) for each in seen])

    fleet = Fleet(certificate, prior, 6, *made)
    guards = [Guard(certificate, env.prior, *made) for _ in range(6)]
    low, high = env.action_range()
    rng, states = np.random.default_rng(0), [env.initial() for _ in range(6)]
    for h in range(4):
        drawn = [{each: episodes[each][i, h] for each in env.series} for i in range(6)]
        seen = np.array([env.observation(*pair) for pair in zip(states, drawn, strict=True)])
        wishes = rng.uniform(low, high, size=(6, *env.action_shape))
        wishes[h] = math.nan
        decided = fleet.act(seen, wishes)
        for i, guard in enumerate(guards):
            assert same(decided, i, guard.act(seen[i], wishes[i]))
        steps = [env.step(*each) for each in zip(states, drawn, decided.actions, strict=True)]
        states = [step.state for step in steps]
        fleet.observe([float(step.cost) for step in steps])
        for guard, step in zip(guards, steps, strict=True):
            guard.observe(float(step.cost))
    assert not fleet.breached.any()


def small(n=3, **options):
    certificate = CASES["tight"][0]
    return Fleet(certificate, prior_of(None), n, **options)


SEEN = np.ones((3, 1))


def test_plants_may_act_and_end_their_rounds_at_different_times():
    fleet = small()
    first = np.array([True, False, True])
    fleet.act(SEEN, [0.5, 9.0, 0.5], where=first)
    with pytest.raises(GuardMisuse, match="plants 0, 2 already have an action"):
        fleet.act(SEEN, [0.5, 0.5, 0.5])
    with pytest.raises(GuardMisuse, match="plant 1 have no action yet"):
        fleet.observe([1.0, 1.0, 1.0])
    fleet.act(SEEN, [9.0, 0.6, 9.0], where=~first)
    fleet.observe([1.0, math.nan, 1.0], where=first)
    assert fleet.rounds.tolist() == [2, 1, 2]
    fleet.observe([math.nan, 1.0, math.nan], where=~first)
    assert fleet.rounds.tolist() == [2, 2, 2]
    assert not fleet.breached.any()
    guard = Guard(CASES["tight"][0], prior_of(None))
    guard.act([1.0], 0.6)
    guard.observe(1.0)
    assert fleet.act(SEEN, [9.0, 9.0, 9.0]).radii[1] == guard.act([1.0], 9.0).radius


def test_a_plant_whose_cost_is_impossible_plays_the_prior_and_the_others_go_on():
    fleet = small()
    for _ in range(2):
        fleet.act(SEEN, [0.52, 0.52, 0.52])
        if fleet.rounds[0] == 1:
            fleet.observe([1.0, 1.0, 1.0])
    with pytest.warns(AssumptionBreach, match="plant 1: the cost was not a finite number of at least 1"):
        fleet.observe([1.0, 0.2, 1.0])
    assert fleet.breaches[1].round == 2
    assert fleet.breaches[1].seen == 0.2
    decided = fleet.act(SEEN, [0.52, 0.52, 0.52])
    assert decided.reasons.tolist() == ["safe", "breach", "safe"]
    assert math.isnan(decided.margins[1])
    assert fleet.uncertified_from.tolist() == [9.0, 2.0, 9.0]
    fleet.observe([1.0, math.nan, 1.0])  # a breach is told of once
    fleet.reset(fleet.breached)
    assert fleet.breaches == {}
    assert fleet.rounds.tolist() == [4, 1, 4]


def test_a_prior_that_fails_at_a_plant_stops_the_call_and_names_it():
    certificate = CASES["tight"][0]
    fleet = Fleet(certificate, lambda seen: seen[:, 0], 3, 0.0, 2.0)
    with (
        pytest.warns(AssumptionBreach, match="plant 2: the prior returned no finite action"),
        pytest.raises(PriorFailed, match=r"for plant 2; .*where="),
    ):
        fleet.act(np.array([[1.0], [1.0], [math.nan]]), [1.0, 1.0, 1.0])
    assert fleet.rounds.tolist() == [1, 1, 1]
    well = np.array([True, True, False])
    assert fleet.act(np.array([[1.0], [1.0], [math.nan]]), [1.0] * 3, where=well).actions[0] == 1.0
    fleet.observe([1.0] * 3, where=well)
    fleet.reset()
    with pytest.warns(
        AssumptionBreach, match=r"plant 0: the prior's action was outside the bounds 0\.0 to 2\.0"
    ):
        decided = fleet.act(np.array([[5.0], [1.0], [1.0]]), [1.0] * 3)
    assert decided.actions.tolist() == [2.0, 1.0, 1.0]
    assert decided.reasons[0] == "breach"


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (lambda _: 1 / 0, "the prior raised ZeroDivisionError"),
        (lambda _: np.ones(2), r"shape \(2,\), expected \(3,\)"),
        (lambda _: np.ones((3, 1, 1)), r"shape \(3, 1, 1\)"),
    ],
)
def test_a_prior_that_gives_no_actions_is_told_so(prior, message):
    with pytest.raises(PriorFailed, match=message):
        Fleet(CASES["tight"][0], prior, 3).act(SEEN, [0.0] * 3)


def test_proposals_of_the_wrong_shape_lead_to_the_prior_everywhere():
    for rubbish in (None, [1.0], "left", np.ones((3, 2))):
        fleet = small()
        decided = fleet.act(SEEN, rubbish)
        assert decided.reasons.tolist() == ["invalid proposal"] * 3
        assert decided.actions.tolist() == [0.5] * 3
        assert fleet.counts == {Reason.INVALID_PROPOSAL: 3}


def test_costs_and_masks_of_the_wrong_shape_change_nothing():
    fleet = small()
    fleet.act(SEEN, [0.5] * 3)
    for costs in ([1.0], "much", [[1.0] * 3]):
        with pytest.raises(ValueError, match="costs must be 3 numbers"):
            fleet.observe(costs)
    with pytest.raises(ValueError, match="where must be 3 truth values"):
        fleet.observe([1.0] * 3, where=[0, 1, 2])
    fleet.observe([1.0] * 3)
    assert fleet.rounds.tolist() == [2, 2, 2]


def test_an_episode_that_is_over_must_be_reset():
    fleet = Fleet(
        LipschitzCertificate(Contract(1.0, 1.0, 1), Sensitivity(1.0, 0.0, geometric(0.0))), prior_of(None), 3
    )
    fleet.act(SEEN, [0.5] * 3)
    fleet.observe([1.0] * 3)
    assert fleet.over.all()
    with pytest.raises(GuardMisuse, match=r"plants 0, 1, 2 are at the end .* reset\(fleet.over\)"):
        fleet.act(SEEN, [0.5] * 3)


def test_a_certificate_that_raises_is_a_breach_of_all():
    class Broken(LipschitzCertificate):
        def choose(self, *given):
            raise RuntimeError("no")

        def update(self, *given):
            raise RuntimeError("never")

    fleet = Fleet(Broken(PLAIN, Sensitivity(1.0, 1.0, geometric(0.5))), prior_of(None), 3)
    with pytest.warns(AssumptionBreach, match=r"plants 0, 1, 2: the certificate raised RuntimeError\('no'\)"):
        decided = fleet.act(SEEN, [9.0] * 3)
    assert decided.actions.tolist() == [0.5] * 3
    fleet.observe([1.0] * 3)
    assert fleet.breached.all()


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("name", ["tight", "table", "vector", "no end", "structured"])
def test_a_saved_fleet_goes_on(name, opened):
    carbon = tether.envs.Carbon()
    certificate, k, norm = CASES.get(
        name, (Structured(carbon.contract(2.0, 2.0), carbon.structure), None, "l2")
    )
    prior = carbon.prior if name == "structured" else prior_of(k)
    seen = np.tile([4.0, 3.0, 0.0, 0.0], (3, 1))
    wishes = prior(seen) * 0.98
    fleet = Fleet(certificate, prior, 3, norm=norm)
    for _ in range(2):
        fleet.act(seen, wishes)
        fleet.observe([1.2] * 3)
    fleet.reset([False, True, False])
    fleet.act(seen, wishes)
    with pytest.warns(AssumptionBreach):
        fleet.observe([1.2, 1.3, 0.0])
    fleet.raise_contract(b=3.0)
    if opened:
        fleet.act(seen, wishes, where=[True, False, False])
    saved = json.loads(json.dumps(fleet.state_dict(), allow_nan=False))
    again = Fleet.from_state_dict(saved, prior)
    assert again.state_dict() == fleet.state_dict()
    for each in (fleet, again):
        if opened:
            each.observe([1.1] * 3, where=[True, False, False])
    mine, its = (each.act(seen, wishes * 0.5) for each in (fleet, again))
    np.testing.assert_array_equal(mine.actions, its.actions)
    np.testing.assert_array_equal(mine.margins, its.margins)
    assert [again.contract(i) for i in range(3)] == [fleet.contract(i) for i in range(3)]
    assert again.breaches == fleet.breaches
    assert again.counts == fleet.counts


def test_a_raised_fleet_promises_each_plant_what_a_guard_would():
    certificate = CASES["tight"][0]
    fleet, guard = small(), Guard(certificate, prior_of(None))
    for each, told in ((fleet, (SEEN, [0.51] * 3)), (guard, ([1.0], 0.51))):
        each.act(*told)
        each.observe([1.0] * 3 if each is fleet else 1.0)
    fleet.reset([False, True, False])
    for each in (fleet, guard):
        each.raise_contract(lam=3.0)
    assert fleet.contract(0) == guard.contract
    assert fleet.contract(1) == certificate.contract.raised(lam=3.0)
    assert fleet.act(SEEN, [9.0] * 3).radii[0] == guard.act([1.0], 9.0).radius
    with pytest.raises(GuardMisuse, match="open round"):
        fleet.raise_contract(lam=4.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "expected a fleet state of version 1, got 7"),
        ({"kind": "guard"}, "expected a fleet state"),
        ({"plants": [{}] * 3}, "incomplete or damaged"),
        ({"breaches": {"0": {"round": 1, "detail": ""}}}, "if and only if"),
        ({"contracts": [[[0, 1, 1], PLAIN.to_dict()]]}, "contracts must be finite numbers"),
        ({"epsilon": 0.0}, "epsilon must be at least"),
    ],
)
def test_a_damaged_fleet_is_refused(change, message):
    fleet = small()
    fleet.act(SEEN, [0.5] * 3)
    saved = json.loads(json.dumps(fleet.state_dict())) | change
    with pytest.raises(ValueError, match=message):
        Fleet.from_state_dict(saved, prior_of(None))


def test_what_cannot_be_a_fleet_is_refused():
    carbon = tether.envs.Carbon()
    shadowing = tether.certificates.Shadowing(carbon.contract(2.0, 2.0), carbon.structure, carbon)
    with pytest.raises(TypeError, match=r"use one tether\.Guard for each plant"):
        Fleet(shadowing, carbon.prior, 3)
    with pytest.raises(TypeError, match="prior must be callable"):
        Fleet(CASES["tight"][0], 3.0, 3)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        Fleet(CASES["tight"][0], carbon.prior, 0)
    other = small()
    with pytest.raises(ValueError, match="saved with another certificate"):
        Fleet.from_state_dict(other.state_dict(), prior_of(None), CASES["released"][0])


@given(
    counts=st.lists(st.integers(-2, 9000), min_size=1, max_size=5),
    unit=st.floats(-3.0, 0.01),
    endless=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_exponentials_are_those_of_plain_floats(counts, unit, endless):
    numbers = np.array([*map(float, counts), *([math.inf] if endless and unit < 0.0 else [])])
    expected = [FLOATS.expm1(each * unit) for each in numbers.tolist()]
    assert FLEET.expm1_multiple(numbers, unit).tolist() == expected
    same = np.full(3, numbers[-1])
    assert FLEET.expm1_multiple(same, unit).tolist() == [expected[-1]] * 3
    small = np.clip(numbers * unit, -5.0, 5.0)
    for name in ("exp", "log1p", "sin", "tanh"):
        values = getattr(FLEET, name)(small)
        assert np.array_equal(
            values, [getattr(FLOATS, name)(each) for each in small.tolist()], equal_nan=True
        )


def test_there_is_one_set_of_operations():
    assert pickle.loads(pickle.dumps(FLEET)) is FLEET
    assert FLEET.cases == 1


def test_rows_are_taken_apart_and_put_together():
    one = (1.0, (True, np.array([1.0, 2.0])))
    many = rows.repeated(one, 2)
    assert many[1][1].tolist() == [[1.0, 2.0], [1.0, 2.0]]
    again = rows.stacked([rows.row(many, 0), rows.row(many, 1)])
    assert all(np.array_equal(a, b) for a, b in ((again[0], many[0]), (again[1][1], many[1][1])))
    mixed = rows.either(np.array([True, False]), rows.filled((5.0, many[1]), 2), many)
    assert mixed[0].tolist() == [5.0, 1.0]
    assert rows.either(np.array([True]), 1.0, None) == 1.0
    assert rows.stacked_or_none([None, None]) is None
    assert rows.stacked_or_none([None, (1.0,), (2.0,)])[0].tolist() == [1.0, 1.0, 2.0]
    assert [each.shape for each in rows.filled((5.0, np.ones(2)), 2)] == [(2,), (2,)]
    with pytest.raises(ValueError, match="zip"):
        rows.stacked([(1.0,), (1.0, 2.0)])


def test_the_coarsest_round_off_of_the_plants_counts_for_all():
    Round = namedtuple("Round", ["cost", "epsilon"])
    together = rows.stacked([Round(1.0, 1e-7), Round(2.0, 1e-3)])
    assert together.epsilon == 1e-3
    assert together.cost.tolist() == [1.0, 2.0]
