"""Certificates without a last round and with schedules: against the sums written out, and for long."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether import Contract, LipschitzCertificate, Sensitivity, Structured, geometric, periodic, table
from tether.certificates.structure import Bounds
from tether.core.certificate import Box, Outcome
from tether.core.ops import FLOATS, NUMPY

BOUNDS = Sensitivity(3.0, 1.5, geometric(0.5))
RULES = ("tight", "released", "paper")
SIZES = st.floats(0.0, 3.0)


def brute_radius(certificate, deviations, costs, rounds_ahead):
    """The largest d of (*), every sum written out; `costs` are those of the closed rounds."""
    contract, bounds = certificate.contract, certificate.bounds
    p, h = bounds.perturbation, len(costs)
    lam = [float(contract.lam_at(float(i), NUMPY)) for i in range(h + rounds_ahead)]
    b = [float(contract.b_at(float(i), NUMPY)) for i in range(h + rounds_ahead)]

    def weight(j, i):
        return bounds.immediate if i == j else bounds.carried * p.scale * p.rho ** (i - 1 - j)

    moved = [sum(weight(j, i) * deviations[j] for j in range(i + 1)) for i in range(h)]
    surplus = sum(
        (1.0 + lam[i]) * max(contract.cost_floor, costs[i] - moved[i]) - costs[i] + b[i] for i in range(h)
    )
    least, slack, own = math.inf, surplus, 0.0
    for i in range(h, h + rounds_ahead):
        slack += lam[i] * contract.cost_floor + b[i] - sum(weight(j, i) * deviations[j] for j in range(h))
        own += weight(h, i)
        least = min(least, slack / own)
    return max(least, 0.0)


@given(
    lams=st.lists(SIZES, min_size=1, max_size=3),
    bs=st.lists(SIZES, min_size=1, max_size=3),
    floor=st.sampled_from([0.0, 1.0]),
    shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5),
    paid=st.lists(st.floats(0.0, 4.0), min_size=5, max_size=5),
    horizon=st.sampled_from([6, math.inf]),
)
@settings(max_examples=80, deadline=None)
def test_the_tight_radius_is_that_of_all_rounds_to_come(lams, bs, floor, shares, paid, horizon):
    whole = [(each * 6)[:6] for each in (lams, bs)]
    rates = (periodic(lams), periodic(bs)) if math.isinf(horizon) else whole
    certificate = LipschitzCertificate(Contract(*rates, horizon, floor), BOUNDS)
    state, deviations, costs = certificate.start(FLOATS), [], []
    for share, cost in zip(shares, paid, strict=False):
        radius = certificate.radius(state, FLOATS)
        ahead = 60 if math.isinf(horizon) else 6 - len(costs)
        expected = brute_radius(certificate, deviations, costs, ahead)
        assert radius <= expected + 1e-12
        assert radius == pytest.approx(expected, rel=1e-6, abs=1e-6)
        deviations.append(share * radius)
        costs.append(floor + cost)
        state = certificate.close(state, deviations[-1], costs[-1], FLOATS)


@pytest.mark.parametrize("rule", RULES)
def test_a_schedule_of_one_number_is_that_number(rule):
    plain = LipschitzCertificate(Contract(0.5, 0.2, 8, 1.0), BOUNDS, rule)
    listed = LipschitzCertificate(Contract([0.5] * 8, [0.2] * 8, 8, 1.0), BOUNDS, rule)
    fixed = replace(plain, bounds=replace(BOUNDS, perturbation=table([0.5**n for n in range(8)])))
    first, second, third = (each.start(NUMPY) for each in (plain, listed, fixed))
    listed_table = replace(listed, bounds=fixed.bounds)
    fourth = listed_table.start(NUMPY)
    for share, cost in ((0.5, 1.0), (1.0, 3.0), (0.2, 1.0), (1.0, 1.5), (0.0, 2.0)):
        radii = [
            float(each.radius(state, NUMPY))
            for each, state in ((plain, first), (listed, second), (fixed, third), (listed_table, fourth))
        ]
        assert radii == pytest.approx([radii[0]] * 4, rel=1e-7)
        first, second, third, fourth = (
            each.close(state, share * radii[0], cost)
            for each, state in ((plain, first), (listed, second), (fixed, third), (listed_table, fourth))
        )
        margins = [float(plain.margin(first, 0.0)), float(listed.margin(second, 0.0))]
        assert margins[0] == pytest.approx(margins[1], rel=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_a_far_horizon_is_almost_none(rule):
    far = LipschitzCertificate(Contract(0.5, 0.2, 10_000, 1.0), BOUNDS, rule)
    none = LipschitzCertificate(Contract(0.5, 0.2, math.inf, 1.0), BOUNDS, rule)
    one, other = far.start(FLOATS), none.start(FLOATS)
    for share, cost in ((0.5, 1.0), (1.0, 3.0), (0.2, 1.0), (1.0, 1.5), (0.0, 2.0)):
        radius = none.radius(other, FLOATS)
        assert radius == pytest.approx(far.radius(one, FLOATS), rel=1e-6)
        one, other = (
            each.close(state, share * radius, cost, FLOATS) for each, state in ((far, one), (none, other))
        )
    assert none.margin(other, 0.1) <= far.margin(one, 0.1) + 1e-9
    assert none.margin(other, 0.0) - none.margin(other, 0.1) >= 0.1 * BOUNDS.immediate - 1e-9


@given(
    rule=st.sampled_from(RULES),
    shares=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=12),
    epsilon=st.sampled_from([0.0, 1e-7, 1e-3]),
    size=st.sampled_from([1e-6, 1.0, 1e9]),
)
@settings(max_examples=80, deadline=None)
def test_what_is_remembered_without_an_end_is_never_more_than_what_is_left_of_the_promise(
    rule, shares, epsilon, size
):
    """The exact slack of worst plants in fractions: each cost is what the deviations can do at worst."""
    from fractions import Fraction

    certificate = LipschitzCertificate(Contract(0.3, 0.1 * size, math.inf, size), BOUNDS, rule)
    state, memory, left = certificate.start(FLOATS), Fraction(0), Fraction(0)
    for share in shares:
        radius = certificate.radius(state, FLOATS, epsilon)
        deviation = share * radius
        exact = Fraction(BOUNDS.carried) * memory + Fraction(BOUNDS.immediate) * Fraction(deviation)
        cost = float(Fraction(size) + exact)
        left += Fraction(size) * Fraction(1.3) + Fraction(0.1 * size) - Fraction(cost)
        memory = Fraction(0.5) * memory + Fraction(deviation)
        state = certificate.close(state, deviation, cost, FLOATS, epsilon)
        assert left >= 0
        slack = state.surplus if rule == "tight" else state.allowance - certificate.contract.earned
        assert slack <= left
        assert certificate.margin(state, 0.0, FLOATS) <= left + Fraction(certificate.contract.earned)


def test_what_is_saved_keeps_its_size_and_the_freedom_its_own():
    certificate = LipschitzCertificate(Contract(0.5, 0.1, math.inf, 1.0), BOUNDS)
    state, radii = certificate.start(FLOATS), []
    for _ in range(20_000):
        radii.append(certificate.radius(state, FLOATS))
        state = certificate.close(state, radii[-1], 1.0 + 2.0 * BOUNDS.immediate * radii[-1] / 3.0, FLOATS)
    assert np.mean(radii[-1000:]) == pytest.approx(np.mean(radii[1000:2000]), rel=1e-3)
    assert state.magnitude < 100.0
    # However much was saved, a sum of bounded size: each round loses 4 eps of it.
    rich = certificate.close(state._replace(surplus=1e20), 0.0, 1.0, FLOATS)
    assert rich.surplus < 1e20
    assert not rich.breached


def test_a_round_pays_for_the_round_off_of_what_is_kept():
    large, leak = 2.0**60, 1024.0  # 4 eps of it
    endless = Contract(0.0, periodic([1.0, 2.0, 4.0]), math.inf)
    paper, released = (LipschitzCertificate(endless, BOUNDS, rule) for rule in ("paper", "released"))
    poor = paper.start(FLOATS)._replace(surplus=-large)
    assert paper._settle(poor, False, 0.0, 0.0, 0.0, 4096.0, FLOATS)[0] == -large - leak - 4096.0
    rich = released.start(FLOATS)._replace(allowance=large)
    assert released._settle(rich, False, 0.0, 0.0, 0.0, 0.0, FLOATS)[1] == large - leak
    # What was overdrawn is forgotten, and the coming round earns its own.
    empty = released.start(FLOATS)._replace(allowance=0.0)
    assert released._settle(empty, False, -9.0, 3.0, 5.0, 0.0, FLOATS)[:2] == (0.0, 2.0)


@pytest.mark.parametrize("rule", RULES)
def test_a_round_keeps_its_share_of_all_that_was_added_up(rule):
    certificate = LipschitzCertificate(Contract(0.5, 2.0, math.inf, 1.0), BOUNDS, rule)
    state = certificate.start(FLOATS)._replace(surplus=8.0, allowance=8.0, memory=0.5)
    after = certificate.close(state, 0.25, 3.0, FLOATS, epsilon=1e-3)
    assert replace(certificate, resolution=1e-3).close(state, 0.25, 3.0, FLOATS) == after
    unit, total = 1e-3 * (4.0 * 16.0 + 2.0), 3.0 + 1.5 * 2.0
    reserve = unit * (state.magnitude + 2.5 * 3.0 + 2.0 + total * 0.25)
    floor, later = 3.0 - (1.5 * 0.5 + 3.0 * 0.25), 1.5 * 2.0 * (0.5 * 0.5 + 0.25)
    gained = 1.5 * floor - 3.0 - reserve + (0.0 if rule == "paper" else 2.0)
    assert after.surplus == pytest.approx(8.0 + gained, rel=1e-12)
    assert after.magnitude == pytest.approx(2.5 + later, rel=1e-12)
    if rule != "tight":
        best = max(8.0 - total * 0.25 - reserve, after.surplus - later - reserve)
        assert after.allowance == pytest.approx(2.5 + best, rel=1e-12)
    assert not after.breached
    for huge in ({"allowance": 1e101}, {"surplus": 1e101}, {"memory": 1e101}):
        if rule != "tight" or "allowance" not in huge:
            assert certificate.close(state._replace(**huge), 0.0, 1.0, FLOATS).breached


def test_a_bad_stretch_leaves_no_debt():
    certificate = LipschitzCertificate(Contract(0.0, 1e-3, math.inf, 0.0), BOUNDS)
    state = certificate.start(FLOATS)
    for _ in range(1000):  # reserve for costs of 1e6 in float32 is more than what is earned
        state = certificate.close(state, 0.0, 1e6, FLOATS, 1.2e-7)
    assert state.surplus == 0.0
    for _ in range(10):
        state = certificate.close(state, 0.0, 1.0, FLOATS, 1.2e-7)
    assert certificate.radius(state, FLOATS, 1.2e-7) > 0.0


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (geometric(1.0), "needs a prior that forgets, rho < 1"),
        (geometric(1.5), "needs a prior that forgets, rho < 1"),
        (table([1.0] * 100), "and a table ends"),
    ],
)
def test_without_an_end_a_prior_must_forget(p, message):
    with pytest.raises(ValueError, match=message):
        LipschitzCertificate(Contract(1.0, 1.0, math.inf), Sensitivity(1.0, 1.0, p))


def test_a_schedule_looks_at_rounds_one_by_one_and_says_if_they_are_too_many():
    slow = Sensitivity(1.0, 1.0, geometric(1.0 - 1e-6))
    with pytest.raises(ValueError, match="more than 1000000"):
        LipschitzCertificate(Contract(1.0, periodic([1.0, 2.0]), math.inf), slow)
    constant = LipschitzCertificate(Contract(1.0, 1.0, math.inf), slow)
    assert constant.radius(constant.start()) > 0.0


CARBON = tether.envs.Carbon()


def _structured(contract):
    return Structured(contract, CARBON.structure)


def test_a_structure_without_an_end_allows_what_a_far_one_does_and_no_more():
    far = _structured(CARBON.contract(2.0, 2.0, horizon=1000))
    none = _structured(replace(far.contract, horizon=math.inf))
    guards = [tether.Guard(each, CARBON.prior, low=0.0, resolution=0.0) for each in (far, none)]
    for cost in (3.0, 1.5, 4.0, 1.0):
        first, second = (guard.act([4.0, 3.0, 0.0, 0.0], 0.0) for guard in guards)
        assert second.action == pytest.approx(first.action, rel=1e-5)
        for guard in guards:
            guard.observe(cost)
    features = guards[1].features([4.0, 3.0, 0.0, 0.0])
    assert all(math.isfinite(each) for each in features)
    assert features[-1] == 0.0
    saved = json.loads(json.dumps(guards[1].state_dict(), allow_nan=False))
    again = tether.Guard.from_state_dict(saved, CARBON.prior)
    wish = ([4.0, 3.0, 0.0, 0.0], 0.0)
    assert again.act(*wish).action == guards[1].act(*wish).action
    saved["state"]["account"] = 0.5
    with pytest.raises(ValueError, match=r"account must be at most 0, the b so far, got 0\.5"):
        tether.Guard.from_state_dict(saved, CARBON.prior)
    with pytest.raises(ValueError, match="a plan needs one lam"):
        none.resume((1.0, 0.0, 0.0, 0.0))


def test_a_structures_account_without_an_end_keeps_its_size():
    certificate = _structured(Contract(0.5, 0.1, math.inf, 1.0))
    guard = tether.Guard(certificate, CARBON.prior, low=0.0)
    deviations = []
    for _ in range(600):
        decision = guard.act([4.0, 3.0, 0.0, 0.0], 0.0)
        deviations.append(decision.deviation)
        left = max(4.0 - 0.6 * decision.action, 0.0)
        guard.observe(left * left + left + 1.0)
    assert guard.breach is None
    assert np.mean(deviations[-100:]) == pytest.approx(np.mean(deviations[100:200]), rel=0.05)
    assert guard.state_dict()["state"]["magnitude"] < 1000.0


def test_a_structure_counts_each_round_with_its_own_lam_and_the_future_with_the_smallest():
    steady, falling = (
        _structured(Contract(lam, 0.1, 4, 1.0)) for lam in ([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0])
    )
    constant = _structured(Contract(1.0, 0.1, 4, 1.0))
    wish = ([4.0, 3.0, 0.0, 0.0], 0.0)
    actions = [
        tether.Guard(each, CARBON.prior, low=0.0).act(*wish).action for each in (constant, steady, falling)
    ]
    assert actions[0] == actions[1] < actions[2]
    state = falling.start(FLOATS)
    for lam in (1.0, 1.0, 1.0, 0.0):
        opened = falling.open(state, wish[0], FLOATS)
        prior = float(CARBON.prior(np.array(wish[0])))
        box = Box(0.0, math.inf, "l2")
        choice = falling.choose(opened, prior, prior, box, FLOATS)
        after = falling.update(state, choice.taken, Outcome(1.0), FLOATS)
        assert after.account - state.account == pytest.approx(-lam, abs=1e-12)
        state = after


@given(
    bs=st.lists(SIZES, min_size=6, max_size=6),
    closed=st.integers(0, 5),
    totals=st.lists(SIZES, min_size=1, max_size=4),
)
@settings(max_examples=40, deadline=None)
def test_a_structure_adds_up_the_b_of_the_rounds_to_come(bs, closed, totals):
    bounds = Bounds(tuple(totals), 1.0, ())
    for contract in (Contract(0.0, bs, 6, 1.0), Contract(0.0, periodic(bs), math.inf, 1.0)):
        certificate = _structured(contract)
        state = certificate.start(FLOATS)._replace(rounds=float(closed))
        opened = certificate.open(state, [4.0, 3.0, 0.0, 0.0], FLOATS)
        ends = range(min(len(totals), int(min(6 - closed, 9)) if not contract.continuing else 9))
        past = 0.0 if contract.continuing else sum(bs[:closed])
        ahead = (bs * 3)[closed:]
        expected = max(totals[n] - past - sum(ahead[: n + 1]) for n in ends)
        excess = certificate._excess(opened, bounds, FLOATS, certificate._unit_round_off(opened.epsilon))
        assert excess == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert excess >= expected
