"""The bounds of the paper's two systems against what their documentation defines them to be, worked out on grids."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tether.certificates.structure import Round
from tether.core.ops import FLOATS, NUMPY
from tether.systems.carbon import CarbonStructure
from tether.systems.inference import InferenceStructure

CARBON = {
    "the paper's": CarbonStructure(0.8, 0.2, 0.1, 6.0, 15.0),
    "drops much": CarbonStructure(0.8, 0.2, 0.5, 6.0, 15.0),
    "drops nothing": CarbonStructure(0.9, 0.3, 0.0, 5.0, 15.0),
    "steady": CarbonStructure(0.9, 0.0, 0.2, 5.0, 15.0),
}
CASES = 150
TINY = 1e-14


def carbon_cases(structure, seed=0):
    """(gaps, what is seen, lam, action) of many rounds that the cap does not touch."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 4.0, CASES) * rng.choice([0.0, 1.0], CASES, p=[0.1, 0.9])
    mu = rng.uniform(0.0, structure.demand_max, CASES) * rng.choice([0.0, 1.0], CASES, p=[0.1, 0.9])
    above = np.minimum(rng.choice([0.0, 0.5, 3.0], CASES) * rng.exponential(size=CASES), x)
    below = rng.choice([0.0, 0.5, 3.0], CASES) * rng.exponential(size=CASES)
    lam = rng.choice([0.0, 0.5, 3.0], CASES)
    action = (x + mu) / structure.efficiency * rng.uniform(0.5, 1.4, CASES)
    return (above, below), (x, mu), lam, action


def now_of(structure, case, high=math.inf):
    gaps, seen, lam, _ = case
    return Round(gaps, seen, None, lam, 1.0, structure.low, high)


def phi(backlog):
    return backlog * backlog + backlog + 1.0


def draws(structure, case):
    """[P, C] noise m and drop rates n2: the edges of what can be drawn, the inside, and where the order turns."""
    (above, below), (x, mu), *_ = case
    eta, nu, d = structure.efficiency, structure.efficiency_noise_max, structure.drop_rate_max
    along, across = np.linspace(-nu, nu, 121), np.linspace(0.0, d, 61)
    inside = np.stack(np.meshgrid(along[::12], across[::6]), axis=-1).reshape(-1, 2)
    turn = np.linspace(0.0, min(nu, d * eta), 61)
    pairs = [(along, 0.0 * along), (along, 0.0 * along + d), (0.0 * across + nu, across), (turn, turn / eta)]
    points = np.concatenate([inside, *(np.stack(pair, axis=-1) for pair in pairs)])
    m, n2 = (np.broadcast_to(points[:, i : i + 1], (len(points), CASES)) for i in range(2))
    special = []
    for level in (x - above, x + below):
        some = np.maximum(level + mu, 1e-300)
        special.append((np.minimum(d * eta * level / some, nu), np.full(CASES, d)))
        end = nu / eta * (level + mu) / np.maximum(level, 1e-300)
        special.append((np.full(CASES, nu), np.minimum(end, d)))
    return tuple(np.concatenate([each, [pair[i] for pair in special]]) for i, each in enumerate((m, n2)))


def outcomes(structure, case):
    """[P, C] the own next backlog, and for each of three possible places of the prior's the prior's."""
    (above, below), (x, mu), _, action = case
    m, n2 = draws(structure, case)
    eta = structure.efficiency
    own = (x + mu) - (eta - m) * action - n2 * x
    priors = [m / eta * (level + mu) - n2 * level for level in (x - above, x, x + below)]
    return tuple(np.clip(each, 0.0, structure.backlog_max) for each in (own, *priors))


@pytest.mark.parametrize("name", CARBON)
def test_carbon_the_excess_of_a_round_is_the_largest_that_can_be_drawn(name):
    structure = CARBON[name]
    case = carbon_cases(structure)
    own, *priors = outcomes(structure, case)
    lam = case[2]
    worst = np.max([np.max(phi(own) - (1.0 + lam) * phi(prior), axis=0) for prior in priors], axis=0)
    bounds = structure.bounds(now_of(structure, case), case[3], 1, NUMPY)
    assert np.all(bounds.totals[0] >= worst - 1e-12)
    np.testing.assert_allclose(bounds.totals[0], worst, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(bounds.ceiling, phi(np.max(own, axis=0)), rtol=1e-12)


@pytest.mark.parametrize("name", CARBON)
def test_carbon_what_is_taken_says_how_far_below_the_prior_a_round_can_end(name):
    structure = CARBON[name]
    case = carbon_cases(structure, seed=1)
    (above, below), (x, mu), _, action = case
    step = structure.bounds(now_of(structure, case), action, 1, NUMPY).step
    less = (x + mu) / structure.efficiency - action
    for given, expected in zip(step, (x, mu, action, less, above, below), strict=False):
        np.testing.assert_allclose(given, expected, rtol=1e-12, atol=1e-12)
    own, *priors = outcomes(structure, case)
    lowest = np.max([np.max(prior - own, axis=0) for prior in priors], axis=0)
    assert np.all(step[6] >= lowest - 1e-12)
    eta, nu, d = structure.efficiency, structure.efficiency_noise_max, structure.drop_rate_max
    corners = [
        -((m / eta - n2) * apart + (eta - m) * less)
        for m in (0.0, nu)
        for n2 in (0.0, d)
        for apart in (above, -below)
    ]
    most = np.minimum(np.maximum(np.max(corners, axis=0), 0.0), nu / eta * (x + mu + below))
    np.testing.assert_allclose(step[6], most, rtol=1e-12, atol=1e-12)


def carbon_total(structure, n, reach, gap):
    """What n + 1 rounds can cost more than the prior from a backlog of `reach` and a gap of `gap` on."""
    rho = max(structure.efficiency_noise_max / structure.efficiency, structure.drop_rate_max)
    total, demands = 0.0, 0.0
    for k in range(n + 1):
        level = rho**k * reach + structure.demand_max * demands
        total = total + phi(level) - phi(level - rho**k * gap)
        demands += rho ** (k + 1)
    return total


@pytest.mark.parametrize("name", CARBON)
def test_carbon_with_the_prior_as_backup_later_rounds_are_added_up_as_documented(name):
    structure = CARBON[name]
    case = carbon_cases(structure, seed=2)
    (above, below), (x, mu), lam, action = case
    eta, nu, d = structure.efficiency, structure.efficiency_noise_max, structure.drop_rate_max
    rho = max(nu / eta, d)
    bounds = structure.bounds(now_of(structure, case, high=20.0), action, 0, NUMPY)
    under, less = bounds.step[6], bounds.step[3]
    flip = min(nu, d * eta)
    assert len(bounds.totals) == 3
    m = np.linspace(0.0, nu, 301)[:, None]
    reach, gap = (x + mu) - (eta - m) * action, m / eta * above + (eta - m) * less
    reach_b = np.maximum(np.maximum(eta * less, flip / eta * mu + (eta - flip) * less), 0.0)
    gap_b = np.minimum(np.maximum(d * below + np.maximum(eta * less, (eta - flip) * less), 0.0), reach_b)
    gap_b = np.where(below > 0.0, gap_b, 0.0)
    hidden = d / rho * under
    raised = np.maximum(np.maximum(reach[-1], 0.0), hidden - structure.demand_max)

    def largest(n):
        first = np.max(
            np.where(gap >= 0.0, carbon_total(structure, n, reach, np.maximum(gap, 0.0)), 0.0), axis=0
        )
        return np.maximum(np.maximum(first, carbon_total(structure, n, reach_b, gap_b)), 0.0)

    start = largest(0)
    for i, (n, total) in enumerate(zip((1, 60), bounds.totals[1:], strict=True)):
        later = carbon_total(structure, n, raised, hidden) - carbon_total(structure, 0, raised, hidden)
        expected = np.maximum(largest(n), start + later) - (i + 2) * lam
        np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CARBON)
def test_carbon_a_cost_that_was_seen_leaves_the_largest_gap_that_it_allows(name):
    structure = CARBON[name]
    case = carbon_cases(structure, seed=3)
    (above, below), (x, mu), _, action = case
    rng = np.random.default_rng(4)
    eta, nu, d = structure.efficiency, structure.efficiency_noise_max, structure.drop_rate_max
    left = (x + mu) - (eta - rng.uniform(-nu, nu, CASES)) * action - rng.uniform(0.0, d, CASES) * x
    seen = left > 0.01
    step = structure.bounds(now_of(structure, case), action, 1, NUMPY).step
    floor, (gap, under) = structure.close(step, phi(np.maximum(left, 0.0)), TINY, NUMPY)
    np.testing.assert_array_equal(under, step[6])
    np.testing.assert_allclose(floor, phi(np.maximum(left, 0.0) - gap), rtol=1e-9)
    np.testing.assert_allclose(gap[left <= 0.0], 0.0, atol=1e-9)
    # Noise and drops that give this backlog are on a segment.
    m = np.linspace(-nu, nu, 4001)[:, None]
    n2 = ((x + mu) - (eta - m) * action - left) / np.maximum(x, 1e-9)
    possible = (n2 >= 0.0) & (n2 <= d)
    kappa, less = m / eta - n2, step[3]
    apart = np.maximum(kappa * above, -kappa * below) + (eta - m) * less
    largest = np.max(np.where(possible, apart, -np.inf), axis=0)
    helped = left < eta * less
    expected = np.where(helped, left, np.clip(largest, 0.0, left))
    told = seen & (x > 0.05) & (nu > 0.0) & (d > 0.0) & (action > 0.05)
    np.testing.assert_allclose(gap[told], expected[told], rtol=5e-3, atol=5e-3)


def test_carbon_at_the_cap_any_noise_may_have_been_hidden():
    structure = CARBON["the paper's"]
    now = Round((14.0, 1.0), (14.0, 6.0), None, 0.5, 1.0, 0.0, math.inf)
    bounds = structure.bounds(now, 8.0, 1, FLOATS)
    assert bounds.ceiling == phi(15.0)
    assert bounds.totals[0] == phi(15.0) - 1.5
    _, (gap, _) = structure.close(bounds.step, phi(15.0), TINY, FLOATS)
    # m is at least (15 - 0.8 * 17) / 8 = 0.175; at m = 0.2 the own backlog is above the prior's by most.
    assert gap == pytest.approx(0.25 * 14.0 + 0.6 * 17.0, rel=1e-9)
    _, (gap, _) = structure.close(bounds.step, phi(14.9), TINY, FLOATS)
    m = (14.9 - 0.8 * 17.0) / 8.0
    assert gap == pytest.approx(m / 0.8 * 14.0 + (0.8 - m) * 17.0, rel=1e-2)


def test_carbon_reads_admits_and_agrees_with_what_its_plant_is():
    structure = CARBON["the paper's"]
    assert (structure.low, structure.high, structure.scale) == (0.0, math.inf, 43.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        structure.efficiency = 1.0
    assert structure.start(0.0) == (0.0, 0.0)
    assert structure.read([4.0, 3.0, 2.0, 1.0]) == (1.0, 4.0)
    for seen, possible in (
        ((0.0, 0.0), True),
        ((15.0, 6.0), True),
        ((-0.1, 3.0), False),
        ((15.1, 3.0), False),
        ((3.0, -0.1), False),
        ((3.0, 6.1), False),
        ((math.nan, 3.0), False),
        ((3.0, math.nan), False),
    ):
        assert structure.admits(seen, FLOATS) is possible
    off = 64.0 * 1e-6 * (1.0 + 3.0 + 5.0) / 0.8
    for action, own in (
        (10.0, True),
        (10.0 + 0.99 * off, True),
        (10.0 - 0.99 * off, True),
        (10.0 + 1.01 * off, False),
    ):
        assert structure.agrees((3.0, 5.0), action, 1e-6, FLOATS) is own
    assert structure.agrees((3.0, 5.0), 10.0 - 1.01 * off, 1e-6, FLOATS) is False
    assert structure.gaps_between((3.0, 0.0), (1.0, 0.0), FLOATS) == (2.0, 0.0)
    assert structure.gaps_between((1.0, 0.0), (3.0, 0.0), FLOATS) == (0.0, 2.0)
    assert structure.refine((5.0, 1.0), (3.0, 0.0), 0.0, FLOATS) == (3.0, 1.0)
    assert structure.refine((1.0, 5.0), (12.0, 0.0), 0.0, FLOATS) == (1.0, 3.0)
    assert structure.gap_features((1.0, 2.0), FLOATS) == structure.gaps_from_features(1.0, 2.0) == (1.0, 2.0)
    now = Round((0.0, 0.0), (3.0, 3.0), 7.5, 0.0, 1.0, 0.0, math.inf)
    assert structure.backup(1, now, FLOATS) == pytest.approx(10.0, rel=1e-9)
    assert 0.6 * structure.backup(1, now, FLOATS) >= 6.0
    assert structure.backup(1, now._replace(high=9.0), FLOATS) == 9.0
    for high, safe in ((12.0 * (1.0 + 1e-9), True), (12.0 * (1.0 - 1e-9), False)):  # 1.2 + 6 need 7.2 / 0.6
        bounds = structure.bounds(now._replace(high=high), 8.0, 1, FLOATS)
        assert math.isfinite(bounds.totals[0]) is safe
    for changes in (
        {"efficiency": 0.0},
        {"demand_max": 0.0},
        {"backlog_max": 0.0},
        {"efficiency_noise_max": -0.1},
    ):
        with pytest.raises(ValueError, match=next(iter(changes))):
            dataclasses.replace(structure, **changes)
    with pytest.raises(ValueError, match="gaps must shrink"):
        dataclasses.replace(structure, drop_rate_max=1.0)


INFERENCE = {
    "plain": InferenceStructure(6.0, 5.0, 4.0, 1.0, 0.7, 0.8, 0.9),
    "lossy": InferenceStructure(8.0, 6.0, 3.0, 0.5, 0.4, 0.3, 0.6),
}


def inference_cases(structure, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, structure.capacity, CASES) * rng.choice([0.0, 0.3, 1.0], CASES)
    mu = rng.uniform(0.0, structure.demand_max, CASES)
    renewables = rng.choice([0.0, 1.0, 4.0], CASES) * rng.uniform(size=CASES)
    gap = np.minimum(rng.choice([0.0, 0.5, 2.0], CASES) * rng.exponential(size=CASES), structure.capacity - x)
    lam = rng.choice([0.0, 0.5, 3.0], CASES)
    return (gap,), (x, mu, renewables), lam, rng.uniform(0.0, structure.action_max, CASES)


@pytest.mark.parametrize("name", INFERENCE)
def test_inference_the_excess_of_a_round_is_the_largest_that_can_be_drawn(name):
    structure = INFERENCE[name]
    case = inference_cases(structure)
    (gap,), (x, mu, renewables), lam, action = case
    rates = np.linspace(structure.discharge_rate_min, 1.0, 61)[:, None, None]
    charged = np.linspace(structure.charge_rate_min, 1.0, 61)[:, None] * renewables
    worst = -np.inf
    for level in (x, x + gap):
        prior = np.minimum(mu, level + structure.charge_rate * renewables + structure.slack)
        short = np.maximum(rates * action - x - charged, 0.0)
        prior_short = np.maximum(rates * prior - level - charged, 0.0)
        worst = np.maximum(worst, np.max(short**2 - (1.0 + lam) * prior_short**2, axis=(0, 1)))
    now = Round((gap,), (x, mu, renewables), None, lam, 0.0, 0.5, structure.high)
    bounds = structure.bounds(now, action, 0, NUMPY)
    assert np.all(bounds.totals[0] >= worst - 1e-12)
    np.testing.assert_allclose(bounds.totals[0], worst, rtol=1e-2, atol=2e-3)
    most = np.maximum(action - x - structure.charge_rate_min * renewables, 0.0)
    np.testing.assert_allclose(bounds.ceiling, most**2, rtol=1e-12)
    # What is missing afterwards, at most, and what the prior as backup makes of it.
    prior = np.minimum(mu, x + gap + structure.charge_rate * renewables + structure.slack)
    missing = np.max(np.maximum(gap + rates[:, 0] * (action - prior), 0.0), axis=0)
    np.testing.assert_allclose(bounds.step[0], missing, rtol=1e-12, atol=1e-12)
    for given, expected in zip(bounds.step[1:], (gap, x, renewables, action, action - prior), strict=True):
        np.testing.assert_allclose(given, expected, atol=1e-12)
    estimate = 1.0 - structure.charge_rate_min / structure.charge_rate
    price = 2.0 * (structure.slack + estimate * (structure.demand_max - structure.slack))
    np.testing.assert_allclose(bounds.totals[1], bounds.totals[0] + price * missing, rtol=1e-12)
    assert len(structure.bounds(now, action, 1, NUMPY).totals) == 1


@pytest.mark.parametrize("name", INFERENCE)
def test_inference_a_shortfall_that_was_seen_uses_a_gap_up(name):
    structure = INFERENCE[name]
    case = inference_cases(structure, seed=1)
    (gap,), (x, mu, renewables), lam, action = case
    rng = np.random.default_rng(2)
    now = Round((gap,), (x, mu, renewables), None, lam, 0.0, 0.0, structure.high)
    step = structure.bounds(now, action, 1, NUMPY).step
    rate = rng.uniform(structure.discharge_rate_min, 1.0, CASES)
    short = np.maximum(
        rate * action - x - rng.uniform(structure.charge_rate_min, 1.0, CASES) * renewables, 0.0
    )
    floor, (left,) = structure.close(step, short**2, TINY, NUMPY)
    more = step[5]
    least = np.clip(
        (x + short + structure.charge_rate_min * renewables) / action, structure.discharge_rate_min, 1.0
    )
    largest = np.clip((x + short + renewables) / action, structure.discharge_rate_min, 1.0)
    told = np.maximum(gap + np.maximum(least * more, largest * more), 0.0)
    budget = np.where(short > 0.0, np.minimum(step[0], told), step[0])
    np.testing.assert_allclose(floor, np.maximum(short - budget, 0.0) ** 2, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(left, np.maximum(budget - short, 0.0), rtol=1e-6, atol=1e-9)


def test_inference_reads_admits_and_agrees_with_what_its_plant_is():
    structure = INFERENCE["plain"]
    assert (structure.low, structure.high, structure.scale) == (0.0, 6.0, 36.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        structure.slack = 0.0
    assert structure.start(0.5) == (0.5,)
    assert structure.read([4.0, 3.0, 2.0, 1.0]) == (1.0, 4.0, 3.0)
    for seen, possible in (
        ((0.0, 0.0, 0.0), True),
        ((4.0, 5.0, 99.0), True),
        ((-0.1, 1.0, 1.0), False),
        ((4.1, 1.0, 1.0), False),
        ((1.0, -0.1, 1.0), False),
        ((1.0, 5.1, 1.0), False),
        ((1.0, 1.0, -0.1), False),
        ((1.0, 1.0, math.inf), False),
        ((1.0, 1.0, math.nan), False),
        ((math.nan, 1.0, 1.0), False),
        ((1.0, math.nan, 1.0), False),
    ):
        assert structure.admits(seen, FLOATS) is possible
    # It has 1 and the slack of 1, and expects 0.9 of the 2 that come: 3.8 of a demand of 5, all of one of 3.
    for mu, action in ((5.0, 3.8), (3.0, 3.0)):
        off = 64.0 * 1e-6 * (1.0 + 1.0 + mu + 2.0)
        for share, own in ((0.0, True), (0.99, True), (-0.99, True), (1.01, False), (-1.01, False)):
            assert structure.agrees((1.0, mu, 2.0), action + share * off, 1e-6, FLOATS) is own
    assert structure.gaps_between((1.0,), (3.0,), FLOATS) == (2.0,)
    assert structure.gaps_between((3.0,), (1.0,), FLOATS) == (0.0,)
    assert structure.refine((3.0,), (2.5,), 0.0, FLOATS) == (1.5,)
    assert structure.refine((1.0,), (2.5,), 0.0, FLOATS) == (1.0,)
    assert structure.plans(0.0, 6.0) == structure.plans(-1.0, 6.0) == (1,)
    assert structure.plans(0.5, 6.0) == (0,)
    assert structure.backup(1, Round((), (3.0,), 1.0, 0.0, 0.0, 0.0, 6.0), FLOATS) == 0.0
    assert structure.gap_features((2.0,), FLOATS) == (0.0, 2.0)
    assert structure.gaps_from_features(1.0, 2.0) == (2.0,)
    for changes in (
        {"action_max": 0.0},
        {"demand_max": 0.0},
        {"capacity": 0.0},
        {"slack": -0.1},
        {"discharge_rate_min": -0.1},
        {"discharge_rate_min": 1.1},
        {"charge_rate_min": -0.1},
        {"charge_rate": 0.7},
    ):
        with pytest.raises(ValueError, match=next(iter(changes))):
            dataclasses.replace(structure, **changes)
    assert dataclasses.replace(structure, discharge_rate_min=1.0, slack=0.0).slack == 0.0
    with pytest.raises(ValueError, match="charge_rate must be"):
        dataclasses.replace(structure, charge_rate_min=0.0, charge_rate=0.0)
    generous = dataclasses.replace(structure, slack=9.0)
    bounds = generous.bounds(Round((1.0,), (1.0, 5.0, 0.0), None, 0.0, 0.0, 0.5, 6.0), 5.0, 0, FLOATS)
    assert bounds.totals[1] - bounds.totals[0] == pytest.approx(
        2.0 * 5.0 * bounds.step[0]
    )  # at most the demand
