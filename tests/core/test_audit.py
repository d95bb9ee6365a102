from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import tether
from structures import hostile_draws, prior_costs
from tether import Contract, audit
from tether.assure.attack import plants
from tether.core.audit import UNITS, tie_share
from tether.learn.learner import judge
from tether.systems import registry

CONTRACT = Contract(lam=1.0, b=0.5, horizon=3)
PRIOR = [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]


def test_the_promise_is_checked_in_every_round_not_just_at_the_end():
    verdict = audit([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0]], PRIOR, CONTRACT)
    assert not verdict.holds
    assert verdict.violation_rate == 0.5
    assert verdict.first_breach == (1, 1)
    assert verdict.worst_margin == -0.5
    np.testing.assert_array_equal(verdict.violations, [[False] * 3, [True, False, False]])


def test_a_kept_promise_says_so():
    verdict = audit(PRIOR, PRIOR, CONTRACT)
    assert verdict.holds
    assert verdict.first_breach is None
    assert verdict.violation_rate == 0.0
    assert "KEPT in every round" in str(verdict)
    np.testing.assert_array_equal(verdict.cumulative_costs, np.cumsum(PRIOR, axis=1))
    np.testing.assert_array_equal(verdict.bounds, 2.0 * np.cumsum(PRIOR, axis=1) + [0.5, 1.0, 1.5])


def test_the_text_names_the_first_breach():
    text = str(audit([[9.0, 0.0, 0.0]], PRIOR[:1], CONTRACT))
    assert "BROKEN" in text
    assert "1 of 1 (100.00%)" in text
    assert "episode 0, round 1" in text


def test_a_bound_that_is_met_exactly_is_kept():
    assert audit([[2.5, 2.5, 2.5]], PRIOR[:1], CONTRACT).holds


def test_a_tie_up_to_round_off_is_kept_and_a_little_more_is_not():
    assert audit([[2.5 * (1 + 1e-15), 2.5, 2.5]], PRIOR[:1], CONTRACT).holds
    assert not audit([[2.5 * (1 + 1e-13), 2.5, 2.5]], PRIOR[:1], CONTRACT).holds
    rounded = np.array([[2.5 * (1 + 1e-6), 2.5, 2.5]], dtype=np.float32)
    assert audit(rounded, PRIOR[:1], CONTRACT).holds


def test_a_small_cost_ties_up_to_the_round_off_of_large_ones_before_it():
    """A shortfall of 0.01 from energies of 6 is off by 1e-15, its square by 2e-17: more than its own last digit."""
    contract = Contract(lam=0.0, b=0.0, horizon=2)
    small = (0.01 + 4e-15) ** 2
    assert audit([[36.0, small]], [[36.0, 1e-4]], contract).holds
    assert not audit([[0.0, small]], [[0.0, 1e-4]], contract).holds
    assert not audit([[36.0, 1e-4 + 1e-12]], [[36.0, 1e-4]], contract).holds
    assert audit([[0.0, small]], [[0.0, 1e-4]], Contract(0.0, 1e-12, 2)).holds  # what `b` is for
    huge = [[1e30, 1e30], [1.0, 1.0]]  # what the policy costs excuses nothing
    assert np.all(np.any(audit(huge, [[0.5, 0.5], [0.5, 0.5]], contract).violations, axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["standard", "slow to forget"])
def test_two_programs_that_compute_the_same_costs_tie(name):
    env = plants(registry.find("carbon"))[name]
    episodes = hostile_draws(env, 2_000, np.random.default_rng(0))
    compiled, plain = tether.rollout(env, env.prior, episodes, record="outcomes"), prior_costs(env, episodes)
    for run, prior in ((compiled, plain), (plain, compiled)):
        assert audit(run, prior, Contract(0.0, 0.0, episodes.horizon)).holds


def test_an_expensive_episode_hides_nothing_in_another():
    prior = np.array([[1.0, 1.0], [1e4, 1.0]], dtype=np.float32)
    run = np.array([[1.07, 1.0], [1e4, 1.0]], dtype=np.float32)
    verdict = audit(run, prior, Contract(0.0, 0.0, 2))
    np.testing.assert_array_equal(verdict.violations, [[True, True], [False, False]])


def test_an_expensive_last_round_hides_nothing_in_the_rounds_before():
    prior, run = (np.array([[first, 1.0, 1e5]], dtype=np.float32) for first in (1.0, 1.3))
    verdict = audit(run, prior, Contract(0.0, 0.0, 3))
    assert verdict.violations[0, :2].all()
    assert not verdict.violations[0, 2]  # 0.3 of 1e5 is 2.5 units of float32: too little to tell


def test_ties_are_64_units_of_round_off_of_the_bound_by_the_coarser_type():
    prior = [[1.0, 0.0, 2.0]]
    for run_type, prior_type, share in (
        ("float64", "float64", 1.4210854715202004e-14),
        ("float64", "float32", 7.62939453125e-06),
        ("float32", "float64", 7.62939453125e-06),
        ("float32", "int64", 7.62939453125e-06),
        ("longdouble", "longdouble", 1.4210854715202004e-14),
        ("int64", "float64", 1.4210854715202004e-14),
        ("int64", "uint8", 4.440892098500626e-16),
    ):
        verdict = audit(np.array(prior, run_type), np.array(prior, prior_type), CONTRACT)
        np.testing.assert_array_equal(verdict.ties, share * verdict.bounds)
    assert tie_share(np.float64) == UNITS * 2.0**-52


def test_where_no_cost_is_negative_a_tie_is_that_share_of_the_very_bound():
    """1e16 + 1 is 1e16 in float64, but the bound forgets no small cost after a large one."""
    prior = [[1e16, 1.0, 1.0, 0.0]]
    verdict = audit(prior, prior, Contract(lam=1.0, b=0.5, horizon=4))
    np.testing.assert_array_equal(verdict.ties, tie_share(float) * verdict.bounds)


def test_a_tie_is_never_negative_and_a_prior_that_earns_has_that_of_its_costs_sizes():
    verdict = audit([[-1.0, -1.9]], [[1.0, -4.0]], Contract(0.0, 0.0, 2))
    np.testing.assert_array_equal(verdict.ties, [[tie_share(float), 5.0 * tie_share(float)]])
    np.testing.assert_array_equal(verdict.violations, [[False, True]])
    assert audit([[1.0, -4.0]], [[1.0, -4.0]], Contract(0.0, 0.0, 2)).holds


def test_small_costs_after_a_large_one_are_not_forgotten():
    """1e16 + 1 is 1e16 in float64: a plain sum never sees the thousand rounds that follow."""
    rounds = np.zeros((1, 1001))
    rounds[:, 0] = 1e16
    verdict = audit(np.where(rounds > 0.0, rounds, 1.0), rounds, Contract(0.0, 0.0, 1001))
    assert verdict.cumulative_costs[0, -1] == 1e16 + 1000.0
    assert verdict.worst_margin == -1000.0
    assert verdict.first_breach == (0, 144)  # 64 units of 1e16 are 142.1
    around = [[1.0, 1e16, 1.0]]
    sums = audit(around, around, Contract(0.0, 0.0, 3)).cumulative_costs
    np.testing.assert_array_equal(sums, [[1.0, 1e16, 1e16 + 2.0]])


def test_sums_over_many_orders_of_magnitude_are_exact_but_for_the_last_digit():
    rng = np.random.default_rng(0)
    costs = 10.0 ** rng.uniform(-15.0, 15.0, size=(4100, 60))  # more episodes than are added up at a time
    sums = audit(costs, costs, Contract(0.0, 0.0, 60)).cumulative_costs
    for i in (0, 500, 4095, 4096, 4099):
        exact = [math.fsum(costs[i, : h + 1]) for h in range(60)]
        np.testing.assert_array_max_ulp(sums[i], np.array(exact), maxulp=1)


def test_a_bound_or_a_tie_that_is_not_a_number_is_a_violation():
    numbers, nothing = np.ones((1, 3)), np.full((1, 3), math.nan)
    assert not np.any(tether.Audit(CONTRACT, numbers, numbers, numbers).violations)
    assert np.all(tether.Audit(CONTRACT, numbers, nothing, numbers).violations)
    assert np.all(tether.Audit(CONTRACT, numbers, numbers, nothing).violations)


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (1, 1)])
def test_the_audit_leaves_the_costs_as_they_are(shape):
    run, prior = np.ones(shape), np.ones(shape)
    audit(run, prior, Contract(1.0, 1.0, shape[1]))
    assert np.all(run == 1.0)
    assert np.all(prior == 1.0)


def test_whole_numbers_and_mixed_types_are_audited_as_they_came():
    contract = Contract(0.0, 0.0, 2)
    cents = [[10**15, 1]]
    assert audit(cents, cents, contract).holds
    assert audit([[10**15 + 1, 0]], cents, contract).first_breach == (0, 1)  # 1e-15 of the bound
    assert audit(np.array([[200, 100]], np.uint8), [[200.0, 100.0]], contract).holds
    assert audit([[17]], [[10]], Contract(0.7, 0.0, 1)).holds  # 1.7 as a float64 is below 1.7
    assert audit([[1, 2.5]], np.array([[1.0, 2.5]], np.float32), contract).holds
    assert audit(((1, 2), (3, 4)), jnp.array([[1.0, 2.0], [3.0, 4.0]]), contract).holds


@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_whole_numbers_whose_sums_float64_cannot_hold_are_refused(kind):
    large, small = np.array([[2**53 - 3, 1]], kind), np.array([[2**52, 2**52]], kind)
    assert audit(large, large, Contract(0.0, 0.0, 2)).holds
    message = r"run adds up to 2\*\*53 or more in episode 0, round 2, .* a larger unit of cost"
    with pytest.raises(ValueError, match=message):
        audit(small, large, Contract(0.0, 0.0, 2))
    with pytest.raises(ValueError, match=r"prior adds up .* episode 0, round 1"):
        audit(large, np.array([[2**53 + 1, 0]], kind), Contract(0.0, 0.0, 2))
    with pytest.raises(ValueError, match="run adds up"):
        audit(np.full((1, 2), np.iinfo(kind).max, kind), large, Contract(0.0, 0.0, 2))
    if kind == "int64":
        with pytest.raises(ValueError, match="run adds up"):
            audit(-small, large, Contract(0.0, 0.0, 2))


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf])
def test_a_cost_that_is_not_finite_is_a_violation_from_its_round_on(cost):
    verdict = audit([[0.0, cost, 0.0], [1.0, 0.0, 0.0]], PRIOR, CONTRACT)
    np.testing.assert_array_equal(verdict.violations, [[False, True, True], [False] * 3])
    assert verdict.worst_margin == -math.inf
    assert "BROKEN" in str(verdict)


def test_finite_costs_whose_sum_overflows_are_a_violation():
    assert audit([[1.7e308, 1.7e308, 0.0]], PRIOR[:1], CONTRACT).first_breach == (0, 1)
    verdict = audit([[1.7e308, 1.7e308, 0.0]], [[1.7e308, 0.0, 0.0]], Contract(0.0, 0.0, 3))
    assert verdict.first_breach == (0, 2)


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_prior_without_a_finite_cost_is_an_error_that_names_the_place(cost, kind):
    prior = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, cost]], kind)
    with pytest.raises(ValueError, match=rf"prior must hold finite costs, got {cost} in episode 1, round 3"):
        audit(np.zeros((2, 3)), prior, CONTRACT)


@pytest.mark.parametrize(
    ("prior", "contract", "at"),
    [
        ([[1.0, 1e308]], Contract(1.0, 0.0, 2), 2),
        ([[1e308, 1e308]], Contract(0.0, 0.0, 2), 2),
        ([[1e10, 0.0]], Contract(1e308, 0.0, 2), 1),
        ([[0.0, 0.0]], Contract(0.0, 1e308, 2), 2),
        ([[1e308, -1e308]], Contract(0.0, 0.0, 2), 2),
    ],
)
def test_a_bound_beyond_float64_is_an_error_and_not_kept(prior, contract, at):
    with pytest.raises(
        ValueError, match=rf"beyond the range of float64 in episode 0, round {at}: use a larger"
    ):
        audit([[1.0, 1.0]], prior, contract)


@pytest.mark.parametrize(
    "costs",
    [
        np.ones((2, 3), np.float16),
        np.ones((2, 3), jnp.bfloat16),
        np.ones((2, 3), bool),
        np.ones((2, 3), complex),
        np.ones((2, 3), object),
        [[2**70, 1, 1], [1, 1, 1]],
        [["1", "1", "1"]] * 2,
        None,
    ],
    ids=["float16", "bfloat16", "bool", "complex128", "object", "huge", "text", "nothing"],
)
def test_costs_of_a_type_that_cannot_be_audited_are_refused(costs):
    for run, prior, name in ((costs, PRIOR, "run"), (PRIOR, costs, "prior")):
        with pytest.raises(TypeError, match=rf"{name} must hold .* float32 or float64, got .* as the plant"):
            audit(run, prior, CONTRACT)


def test_a_tie_is_called_a_tie_and_a_violation_is_not():
    contract = Contract(0.0, 0.0, 1)
    tie, broken = audit([[1.0 + 1e-15]], [[1.0]], contract), audit([[1.0 + 1e-13]], [[1.0]], contract)
    assert tie.holds
    assert tie.worst_margin == 1.0 - (1.0 + 1e-15)
    assert "(bound minus cost, cost units; negative by round-off only, a tie)" in str(tie)
    assert "(bound minus cost, cost units)" in str(broken)
    assert "(bound minus cost, cost units)" in str(audit([[1.0]], [[1.0]], contract))


@pytest.mark.slow
def test_training_judges_costs_that_are_not_finite_as_the_audit_does():
    prior = jnp.cumsum(jnp.ones((3, 4), jnp.float32), axis=0)
    runs = jnp.array(
        [[0.0] * 3, [2.5 * (1.0 + 1e-6), 2.5, 2.5], [2.5 * (1.0 + 1e-4), 0.0, 0.0], [0.0, jnp.nan, 0.0]],
        jnp.float32,
    ).T
    rate, margin = judge(CONTRACT, jnp.cumsum(runs, axis=0), prior)
    assert (rate, margin) == (0.5, -jnp.inf)


def test_runs_and_plain_costs_are_audited_alike():
    run = tether.Run(rewards=np.zeros((2, 3)), costs=np.array(PRIOR))
    assert audit(run, run, CONTRACT).holds
    np.testing.assert_array_equal(run.total_costs, [3.0, 1.0])
    assert len(run) == 2


@pytest.mark.parametrize(
    ("run", "prior", "message"),
    [
        ([[1.0, 1.0]], PRIOR, r"run must hold costs \[N, 3\] with N >= 1, got shape \(1, 2\)"),
        (PRIOR, [[1.0, 1.0, 1.0]], r"same episodes, got costs \(2, 3\) and \(1, 3\)"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "N >= 1"),
        ([1.0, 1.0, 1.0], PRIOR, r"got shape \(3,\)"),
        ([[1.0, 1.0, 1.0], [1.0]], PRIOR, "the same number of rounds in each episode"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(run, prior, message):
    with pytest.raises(ValueError, match=message):
        audit(run, prior, CONTRACT)


def test_the_audit_tells_from_which_round_on_nothing_is_certified():
    contract = Contract(lam=0.0, b=1.0, horizon=3)
    costs, prior = [[1.0, 9.0, 1.0], [9.0, 1.0, 1.0], [1.0, 1.0, 1.0]], [[1.0] * 3] * 3
    verdict = audit(costs, prior, contract, uncertified_from=[2, 3, 4])
    np.testing.assert_array_equal(verdict.certified, [[True, False, False], [True, True, False], [True] * 3])
    assert "not from round 2 to 3 on in 2 of 3 episodes" in str(verdict)
    assert "violations before that in 1" in str(verdict)
    assert "not from round 1 on in 1 of 3 episodes" in str(
        audit(costs, prior, contract, uncertified_from=[1, 4, 4])
    )
    assert "not from round 3 on in 2 of 3" in str(audit(costs, prior, contract, uncertified_from=[4, 3, 3]))
    assert "certified               in every round" in str(
        audit(costs, prior, contract, uncertified_from=[4, 4, 4])
    )
    for wrong in ([1, 2], [0, 1, 2], [1.5, 1.0, 1.0]):
        with pytest.raises(ValueError, match="uncertified_from must hold a round"):
            audit(costs, prior, contract, uncertified_from=wrong)


def test_a_run_tells_from_which_round_on_it_was_not_certified_unless_somebody_knows_better():
    costs = np.ones((2, 3))
    run = tether.Run(rewards=costs, costs=costs, uncertified_from=np.array([2, 4]))
    assert "not from round 2 on in 1 of 2" in str(audit(run, costs, CONTRACT))
    assert "not from round 3 on in 2 of 2" in str(audit(run, costs, CONTRACT, uncertified_from=[3, 3]))
    plain = audit(costs, costs, CONTRACT)
    assert "certified" not in str(plain)
    np.testing.assert_array_equal(plain.certified, [[False] * 3] * 2)  # nobody told


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_figure_is_saved(tmp_path, suffix):
    audit(PRIOR, PRIOR, CONTRACT).figure(tmp_path / f"audit.{suffix}")
    assert (tmp_path / f"audit.{suffix}").stat().st_size > 1000
    assert [file.name for file in tmp_path.iterdir()] == [f"audit.{suffix}"]


def test_a_figure_is_returned_whether_it_is_saved_or_not():
    assert len(audit(PRIOR, PRIOR, CONTRACT).figure().axes) > 0


def test_a_figure_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"saved as .png, .svg or .pdf"):
        audit(PRIOR, PRIOR, CONTRACT).figure(tmp_path / "audit.xls")
    assert list(tmp_path.iterdir()) == []


FINITE = st.just(0.0) | st.floats(1e-200, 1e9)  # so that no tie is subnormal, where units end
NUMBERS = st.floats(width=32, allow_subnormal=False)


@st.composite
def audited(draw):
    """Costs [N, 4] of a policy, anything, and of a prior, finite, in two types, and a contract."""
    shape = (draw(st.integers(1, 4)), 4)
    kinds = [draw(st.sampled_from(["float64", "float32"])) for _ in range(2)]
    prior = draw(arrays.arrays(float, shape, elements=FINITE)).astype(kinds[1])
    near = prior * draw(arrays.arrays(float, shape, elements=st.floats(0.99, 1.01)))
    run = draw(st.one_of(st.just(near), arrays.arrays(float, shape, elements=NUMBERS))).astype(kinds[0])
    lam, b = draw(st.sampled_from([0.0, 0.5, 2.0])), draw(st.sampled_from([0.0, 2.0**-20, 1.0]))
    return run, prior, Contract(lam, b, 4)


@settings(deadline=None)
@given(audited(), st.randoms(use_true_random=False))
def test_the_order_of_the_episodes_and_other_episodes_change_no_verdict(given_costs, random):
    run, prior, contract = given_costs
    verdict = audit(run, prior, contract)
    order = random.sample(range(len(run)), len(run))
    np.testing.assert_array_equal(
        audit(run[order], prior[order], contract).violations, verdict.violations[order]
    )
    dear = np.full((1, 4), 1e30, prior.dtype)
    more = audit(
        np.concatenate([run, (1e3 * dear).astype(run.dtype)]), np.concatenate([prior, dear]), contract
    )
    np.testing.assert_array_equal(more.violations[:-1], verdict.violations)
    np.testing.assert_array_equal(more.ties[:-1], verdict.ties)


@settings(deadline=None)
@given(audited(), st.integers(1, 4), st.floats(0.0, 2.0**99, width=32), NUMBERS)
def test_what_later_rounds_cost_changes_no_verdict_before(given_costs, after, prior_cost, cost):
    run, prior, contract = given_costs
    verdict = audit(run, prior, contract)
    run, prior = run.copy(), prior.copy()
    run[:, after:], prior[:, after:] = cost, prior_cost
    later = audit(run, prior, contract)
    np.testing.assert_array_equal(later.violations[:, :after], verdict.violations[:, :after])
    np.testing.assert_array_equal(later.ties[:, :after], verdict.ties[:, :after])


@settings(deadline=None)
@given(audited(), st.integers(-60, 60))
def test_the_unit_of_cost_changes_no_verdict(given_costs, power):
    run, prior, contract = (*(each.astype(float) for each in given_costs[:2]), given_costs[2])
    scale = 2.0**power
    scaled = audit(scale * run, scale * prior, Contract(contract.lam, scale * contract.b, 4))
    verdict = audit(run, prior, contract)
    np.testing.assert_array_equal(scaled.violations, verdict.violations)
    np.testing.assert_array_equal(scaled.ties, scale * verdict.ties)


@settings(deadline=None)
@given(audited(), st.floats(-200.0, 200.0), st.integers(0, 3))
def test_what_is_above_the_tie_is_found_and_what_is_below_it_is_not_reported(given_costs, units, at):
    """Judged in exact arithmetic, at costs that are `units` units of round-off above the bound in round `at`."""
    _, prior, contract = given_costs
    unit = Fraction(float(np.finfo(prior.dtype).eps))
    run = np.zeros_like(prior)
    bounds = audit(run, prior, contract).bounds
    run[:, at] = bounds[:, at] * (1.0 + units * float(unit))
    own = Fraction(3, 2**52)  # what the audit's own arithmetic may add
    found = audit(run, prior, contract).violations
    for i, h in np.ndindex(run.shape):
        total, trusted = (sum(map(Fraction, map(float, costs[i, : h + 1]))) for costs in (run, prior))
        bound = (1 + Fraction(contract.lam)) * trusted + (h + 1) * Fraction(contract.b)
        excess, tie = total - bound, 64 * unit * bound
        assert found[i, h] or excess <= tie + own * bound
        assert not found[i, h] or excess > tie - own * bound
