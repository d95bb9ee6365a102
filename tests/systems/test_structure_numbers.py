"""The bounds of the paper's two systems against what their documentation defines them to be, worked out on grids."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tether.certificates.structure import Round
from tether.core.ops import FLOATS, NUMPY
from tether.systems.carbon import CarbonStructure
from tether.systems.carbon.structure import _excess_at, _excess_inside, _largest_product
from tether.systems.inference import InferenceStructure
from tether.systems.inference.structure import _largest_square_excess, _root

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


WIDE = CARBON | {
    "both alike": CarbonStructure(0.8, 0.2, 0.25, 6.0, 15.0),
    "drops and shakes": CarbonStructure(1.0, 0.8, 0.7, 0.5, 15.0),
    "drops more than it shakes": CarbonStructure(1.0, 0.6, 0.8, 0.5, 9.0),
    "shakes only": CarbonStructure(0.7, 0.5, 0.0, 3.0, 15.0),
    "neither": CarbonStructure(0.9, 0.0, 0.0, 5.0, 15.0),
    "much work": CarbonStructure(2.0, 1.2, 0.8, 9.0, 40.0),
}


def wide_cases(structure, seed):
    """As `carbon_cases`, with zeros everywhere, gaps up to all that is possible, any action, and the cap."""
    rng = np.random.default_rng(seed)

    def some(*scales):
        return rng.choice([0.0, *scales], CASES) * rng.uniform(size=CASES)

    x = some(0.01, 1.0, 4.0, structure.backlog_max)
    mu = some(0.01, 1.0, structure.demand_max, structure.demand_max)
    above = x * np.minimum(some(0.1, 1.0, 2.0), 1.0)
    below = (structure.backlog_max - x) * np.minimum(some(0.1, 1.0, 2.0), 1.0)
    action = (x + mu) / structure.efficiency * rng.choice([0.0, 0.9, 1.0, 1.1, 3.0], CASES)
    action = action * rng.choice([1.0, 0.5], CASES) ** rng.uniform(size=CASES)
    return (above, below), (x, mu), rng.choice([0.0, 0.05, 0.5, 3.0], CASES), action


def places(structure, case):
    """Noise m and drop rates n2, [P, C] each, on all lines where the documentation looks for the largest excess."""
    (above, below), (x, mu), *_ = case
    eta, nu, d = structure.efficiency, structure.efficiency_noise_max, structure.drop_rate_max
    zero, t = np.zeros(CASES), np.linspace(0.0, 1.0, 401)[:, None]
    flip = min(nu, d * eta)
    ends = [
        ((0.0, 0.0), (nu, 0.0)),
        ((0.0, d), (nu, d)),
        ((nu, 0.0), (nu, d)),
        ((0.0, 0.0), (flip, flip / eta)),
    ]
    for level in (x - above, x + below):
        # Where the prior's backlog becomes 0: (m/eta) (level + mu) = n2 level; its ends are ends of other edges' parts.
        leaves = np.where(
            level + mu > 0.0, d * eta * level / np.where(level + mu > 0.0, level + mu, 1.0), 0.0
        )
        leaves = np.minimum(leaves, nu)
        ends += [((zero, d), (leaves, d)), ((leaves, d), (nu, d))]
        stop = np.where(level > 0.0, nu / eta * (level + mu) / np.where(level > 0.0, level, 1.0), d)
        stop = np.minimum(stop, d)
        ends += [((nu, zero), (nu, stop)), ((nu, stop), (nu, d))]
    return tuple(np.concatenate([zero + a[i] + t * (b[i] - a[i]) for a, b in ends]) for i in range(2))


@pytest.mark.parametrize("name", WIDE)
def test_carbon_the_excess_is_the_largest_at_the_cap_and_at_zero_too(name):
    structure = WIDE[name]
    case = wide_cases(structure, seed=5)
    (above, below), (x, mu), lam, action = case
    eta, cap = structure.efficiency, structure.backlog_max
    m, n2 = places(structure, case)
    own = np.maximum((x + mu) - (eta - m) * action - n2 * x, 0.0)
    worst = -lam
    for level in (x - above, x + below):
        prior = np.maximum(m / eta * (level + mu) - n2 * level, 0.0)
        worst = np.maximum(worst, np.max(phi(own) - (1.0 + lam) * phi(prior), axis=0))
    worst = np.minimum(worst, phi(cap) - (1.0 + lam))
    with np.errstate(all="raise", under="ignore"):
        bounds = structure.bounds(now_of(structure, case), action, 1, NUMPY)
    assert np.all(bounds.totals[0] >= worst - 1e-9)
    np.testing.assert_allclose(bounds.totals[0], worst, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(bounds.ceiling, phi(np.minimum(np.max(own, axis=0), cap)), rtol=1e-12)
    # The ends of what is drawn: corners of the box, and of the prior's place.
    less = (x + mu) / eta - action
    corners = [
        -((m / eta - n2) * apart + (eta - m) * less)
        for m in (0.0, structure.efficiency_noise_max)
        for n2 in (0.0, structure.drop_rate_max)
        for apart in (above, -below)
    ]
    most = np.minimum(np.max(corners, axis=0), structure.efficiency_noise_max / eta * (x + mu + below))
    np.testing.assert_allclose(bounds.step[6], np.maximum(most, 0.0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", WIDE)
def test_carbon_with_the_prior_as_backup_all_rounds_are_added_up_wherever_it_starts(name):
    structure = WIDE[name]
    case = wide_cases(structure, seed=6)
    (above, below), (x, mu), lam, action = case
    eta, nu, d = structure.efficiency, structure.efficiency_noise_max, structure.drop_rate_max
    less, rho = (x + mu) / eta - action, max(nu / eta, d)
    bounds = structure.bounds(now_of(structure, case, high=20.0), action, 0, NUMPY)
    m = np.linspace(0.0, nu, 401)[:, None]
    reach, gap = (x + mu) - (eta - m) * action, m / eta * above + (eta - m) * less
    turned = np.linspace(0.0, min(nu, d * eta), 11)[:, None]
    reach_b = np.maximum(np.max(turned / eta * mu + (eta - turned) * less, axis=0), 0.0)
    gap_b = np.maximum(np.max(d * below + (eta - turned) * less, axis=0), 0.0)
    gap_b = np.where(below > 0.0, np.minimum(gap_b, reach_b), 0.0)
    hidden = (d / rho if rho > 0.0 else 0.0) * bounds.step[6]
    raised = np.maximum(np.maximum((x + mu) - (eta - nu) * action, 0.0), hidden - structure.demand_max)

    def largest(n):
        first = np.where(gap >= 0.0, carbon_total(structure, n, reach, gap), 0.0)
        return np.maximum(np.maximum(np.max(first, axis=0), carbon_total(structure, n, reach_b, gap_b)), 0.0)

    for i, (n, total) in enumerate(zip((1, 120), bounds.totals[1:], strict=True)):
        later = carbon_total(structure, n, raised, hidden) - carbon_total(structure, 0, raised, hidden)
        expected = np.maximum(largest(n), largest(0) + later) - (i + 2) * lam
        np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-4)


def test_carbon_more_rounds_may_be_counted_one_by_one():
    class Longer(CarbonStructure):
        terms = 4

    structure = Longer(0.8, 0.2, 0.5, 6.0, 15.0)
    for n, (alpha, beta) in enumerate(structure._sums()[:4]):
        for reach, gap in ((3.0, 1.0), (2.0, 0.5)):
            assert gap * ((2.0 * reach - gap) * alpha + beta) == pytest.approx(
                carbon_total(structure, n, reach, gap)
            )


def test_carbon_reserves_are_on_the_safe_side():
    structure = CARBON["the paper's"]
    now = Round((0.0, 0.0), (3.0, 3.0), 7.5, 0.0, 1.0, 0.0, 12.0 * (1.0 + 5e-13))
    assert structure.bounds(now, 8.0, 1, FLOATS).totals[0] == math.inf
    # What a cost tells is widened: with drops smaller by 2 off / x the gap is larger by 2 off, as e+ = x.
    epsilon = 1e-4
    off = 64.0 * epsilon * (1.0 + 10.0 + 1.0 + 1.0 + 1.8)
    step = (10.0, 1.0, 16.0, 11.0 / 0.8 - 16.0, 10.0, 0.0, 0.0)
    _, (gap, _) = structure.close(step, phi(1.0), epsilon, FLOATS)
    assert gap == pytest.approx((0.25 - 0.04) * 10.0 - 0.6 * 2.25 + 2.0 * off, rel=1e-9)
    # Without a backlog any drop rate may have been drawn.
    noisy = CarbonStructure(4.0, 3.0, 0.9, 6.0, 15.0)
    _, (gap, _) = noisy.close((0.0, 0.5, 0.125, 0.0, 0.0, 0.1, 0.0), phi(0.125), TINY, FLOATS)
    assert gap == pytest.approx((0.9 - 0.25) * 0.1, rel=1e-9)
    # An efficiency noise of 1 is a number like any other.
    even = CarbonStructure(2.0, 1.0, 0.1, 6.0, 15.0)
    assert even.close((1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0), phi(0.5), TINY, FLOATS)[1][0] == 0.0


def test_carbon_an_end_without_a_backlog_counts():
    assert _excess_at(-3.0, 0.0, 0.0, FLOATS) == 0.0
    assert _excess_inside((-3.0, 0.0), (-13.0, 11.0), 0.0, FLOATS) < 0.0


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


def lines(seed):
    """[N] ends (own, prior) and (own, prior) of lines, lam; along with them 2001 places on each."""
    rng = np.random.default_rng(seed)
    ends = rng.normal(size=(4, 300)) * rng.choice([0.0, 0.3, 1.0, 4.0], (4, 300))
    ends[:, :20] = 0.0
    ends[2:, 20:40] = ends[:2, 20:40]  # a point
    return ends, rng.choice([0.0, 0.5, 3.0], 300), np.linspace(0.0, 1.0, 2001)[:, None]


@pytest.mark.parametrize("seed", range(4))
def test_inference_the_largest_excess_on_a_line_is_that_of_all_its_points(seed):
    (own, prior, own_1, prior_1), lam, t = lines(seed)
    z, z_prior = (np.maximum(a + t * (b - a), 0.0) for a, b in ((own, own_1), (prior, prior_1)))
    expected = np.max(z**2 - (1.0 + lam) * z_prior**2, axis=0)
    with np.errstate(all="raise"):
        found = _largest_square_excess((own, prior), (own_1, prior_1), lam, NUMPY)
    assert np.all(found >= expected - 1e-12)
    np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("seed", range(4))
def test_carbon_the_largest_excess_on_a_line_is_that_of_all_its_points(seed):
    (own, prior, own_1, prior_1), lam, t = lines(seed)
    own, prior, own_1, prior_1 = abs(own), abs(prior), abs(own_1), abs(prior_1)
    y, y_prior = own + t * (own_1 - own), prior + t * (prior_1 - prior)
    expected = np.max(phi(y) - (1.0 + lam) * phi(y_prior), axis=0)
    with np.errstate(all="raise"):
        ends = (_excess_at(*point, lam, NUMPY) for point in ((own, prior), (own_1, prior_1)))
        found = np.maximum(np.maximum(*ends), _excess_inside((own, prior), (own_1, prior_1), lam, NUMPY))
    assert np.all(found >= expected - 1e-12)
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_carbon_on_floats_the_ends_and_the_inside_of_a_line_are_all_of_it():
    rng = np.random.default_rng(0)
    first, rise = rng.uniform(0.0, 1.0, (2, 400)), rng.uniform(0.0, 3.0, (2, 400))
    rows = np.stack([*first, *(first + rise), rng.choice([0.0, 0.5], 400)], axis=-1).tolist()
    inside = 0
    for a, b, a_1, b_1, each in rows:
        ends = max(_excess_at(*point, each, FLOATS) for point in ((a, b), (a_1, b_1)))
        found = _excess_inside((a, b), (a_1, b_1), each, FLOATS)
        compiled = _excess_inside((a, b), (a_1, b_1), each, NUMPY)
        assert max(ends, found) == max(ends, compiled)
        assert found in (compiled, -math.inf)
        inside += found > ends
    assert inside > 10


@pytest.mark.parametrize("seed", range(4))
def test_carbon_the_largest_product_on_a_line_is_that_of_all_its_points_and_not_negative(seed):
    (first, second, first_1, second_1), _, t = lines(seed)
    second, second_1 = abs(second) + 0.1, abs(second_1) + 0.1
    products = np.maximum(first + t * (first_1 - first), 0.0) * (second + t * (second_1 - second))
    with np.errstate(all="raise"):
        found = _largest_product(first, first_1, second, second_1, NUMPY)
    assert np.all(found >= np.max(products, axis=0) - 1e-12)
    np.testing.assert_allclose(found, np.max(products, axis=0), atol=2e-4)


def test_a_system_says_which_of_its_backups_allow_all_that_the_others_do():
    carbon, inference = CARBON["the paper's"], INFERENCE["plain"]
    assert (carbon.plans(0.0, math.inf), carbon.plans(0.0, 9.0)) == ((1,), (0, 1))
    assert (inference.plans(0.0, 9.0), inference.plans(1.0, 9.0)) == ((1,), (0,))


@pytest.mark.parametrize("more", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize("action", [0.0, 1e-3, 6.0, 9.0])
@pytest.mark.parametrize("budget", [0.5, 30.0])
def test_inference_what_a_shortfall_tells_is_rounded_outward_by_64_units_of_all_in_it(more, action, budget):
    s, epsilon, (gap, x, renewables) = INFERENCE["plain"], 2.0**-12, (4.0, 1.0, 1.5)
    short = 3.0 * (1.0 - 8.0 * epsilon)
    off = 64.0 * epsilon * (1.0 + x + short + renewables + action)
    spent = max(action, 0.5 * off)
    least = (x + short + s.charge_rate_min * renewables - off) / spent
    largest = (x + short + renewables + off) / spent
    rates = [min(max(each, s.discharge_rate_min), 1.0) for each in (least, largest)]
    told = max(gap + max(rates[0] * more, rates[1] * more), 0.0)
    left = min(budget, told)
    floor, (after,) = s.close((budget, gap, x, renewables, action, more), 9.0, epsilon, FLOATS)
    assert floor == pytest.approx(max(short - left, 0.0) ** 2, rel=1e-12)
    assert after == pytest.approx(max(left - short, 0.0), rel=1e-12)
    _, (kept,) = s.close((budget, gap, x, renewables, action, more), 0.0, epsilon, FLOATS)
    assert kept == budget  # without a shortfall nothing is told


def widened(s, step, left, epsilon):
    """The gap after a backlog that was seen, in words of one round: both ends of the segment, rounded outward."""
    x, mu, action, less, above, below, _ = step
    eta, nu, d = s.efficiency, s.efficiency_noise_max, s.drop_rate_max
    off = 64.0 * epsilon * (1.0 + x + mu + left + abs(eta * less))
    tiny = 64.0 * epsilon / (1.0 + nu)
    if left - off - eta * less < 0.0:
        return left
    first, last = (
        min(max((left - off + dropped - eta * less) / max(action, tiny), 0.0), nu) for dropped in (0.0, d * x)
    )
    points = [(first, 0.0), (nu if left >= s.backlog_max - off else first, 0.0)]
    for sign in (-2.0, 2.0):
        n2 = (eta * less + last * action - left + sign * off) / max(x, tiny)
        points.append((last, min(max(n2, 0.0), d)))
    apart = [max((m / eta - n2) * above, (n2 - m / eta) * below) + (eta - m) * less for m, n2 in points]
    return min(max(0.0, *apart), left)


@pytest.mark.parametrize("name", CARBON)
@pytest.mark.parametrize("epsilon", [1e-6, 2.0**-12])
def test_carbon_what_a_backlog_tells_is_rounded_outward_by_64_units_of_all_in_it(name, epsilon):
    s, rng = CARBON[name], np.random.default_rng(5)
    for _ in range(150):
        x, mu, action = rng.choice([0.0, 1e-6, 1e-3, 1.0], 3) * rng.uniform(0.5, 8.0, 3)
        less = rng.choice([-1.0, 0.0, 1.0]) * rng.uniform(0.0, 3.0)
        left = rng.choice([0.0, s.efficiency * less, 2.0, s.backlog_max]) + rng.choice([0.0, 0.3])
        left = max(left + rng.choice([-0.01, 0.0, 0.01]), 0.0)
        step = (x, mu, action, less, *rng.uniform(0.0, 4.0, 2), 0.7)
        floor, (gap, under) = s.close(step, phi(left), epsilon, FLOATS)
        assert gap == pytest.approx(widened(s, step, left, epsilon), rel=1e-9, abs=1e-9)
        assert floor == pytest.approx(phi(left - gap), rel=1e-9)
        assert under == 0.7
    assert s.close((1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 0.7), 0.9, epsilon, FLOATS) == (
        1.0,
        (0.0, 0.7),
    )  # the floor is 1


def test_where_there_is_nothing_the_round_off_of_one_is_allowed_for_and_its_very_end_too():
    unit, s = 64.0 * 2.0**-20, CarbonStructure(1.0, 0.2, 0.1, 6.0, 15.0)
    for off, own in ((unit, True), (1.01 * unit, False), (0.99 * unit, True)):
        assert s.agrees((0.0, 0.0), off, 2.0**-20, FLOATS) is own
        assert INFERENCE["plain"].agrees((0.0, 0.0, 0.0), off, 2.0**-20, FLOATS) is own


def test_inference_a_shortfall_no_larger_than_its_round_off_tells_nothing():
    """With numbers that are exact in floating point: the shortfall, and 64 units of all in it, are 15."""
    s, epsilon = INFERENCE["plain"], 2.0**-7
    step = (20.0, 0.0, 1.0, 3.0, 10.0, 0.0)
    assert s.close(step, 256.0, epsilon, FLOATS) == (0.0, (5.0,))
    less = (20.0, 0.0, 1.0, 3.0, 9.9, 0.0)
    assert s.close(less, 256.0, epsilon, FLOATS) == (225.0, (0.0,))


def test_constants_up_to_their_limits_are_accepted():
    assert dataclasses.replace(CARBON["the paper's"], drop_rate_max=0.97)._rho == 0.97
    small = dataclasses.replace(INFERENCE["plain"], action_max=0.5, demand_max=0.5, capacity=0.5)
    assert small.high == 0.5
    assert dataclasses.replace(small, discharge_rate_min=1.0).discharge_rate_min == 1.0
    with pytest.raises(ValueError, match="at most 1"):
        dataclasses.replace(small, discharge_rate_min=1.02)
    nothing = Round((0.0, 0.0), (0.0, 0.0, 0.0), 0.0, 0.0, 1.0, 0.0, 6.0)
    assert INFERENCE["plain"].backup(1, nothing, FLOATS) == 0.0
    assert INFERENCE["plain"].gap_features((0.0,), FLOATS) == (0.0, 0.0)


def test_no_root_is_taken_of_what_is_not_positive_for_the_sake_of_derivatives():
    asked = []

    class Asked:
        def __getattr__(self, name):
            return getattr(FLOATS, name)

        def sqrt(self, value):
            asked.append(value)
            return math.sqrt(value)

    assert [_root(value, Asked()) for value in (0.0, -1.0, 4.0)] == [0.0, 0.0, 2.0]
    assert min(asked) > 0.0
