"""Numbers beyond what is computed with, exceptions and rubbish lead to the prior, and are reported."""

from __future__ import annotations

import dataclasses
import math
import threading
import warnings

import numpy as np
import pytest

import tether
from adversary import HostileSystem, draw, hostile_policy
from online import play
from tether import AssumptionBreach, Guard, GuardMisuse, PriorFailed, Reason
from tether.certificates import Shadowing, Structured
from tether.core.ops import FLOATS, NUMPY
from tether.envs import Carbon
from tether.systems.carbon import CarbonStructure

RULES = ("paper", "released", "tight")
PERTURBATIONS = {"geometric": tether.geometric(0.5), "table": tether.table([1.0, 0.8, 0.5, 0.2])}
CARBON = Carbon()
OBSERVATION = [4.0, 3.0, 0.0, 0.0]
"""Demand 4, no backlog: the prior spends 5."""


def lipschitz(rule="tight", p="geometric", horizon=5, **contract):
    promise = tether.Contract(**{"lam": 0.5, "b": 1.0, "cost_floor": 1.0} | contract, horizon=horizon)
    return tether.LipschitzCertificate(promise, tether.Sensitivity(2.0, 1.0, PERTURBATIONS[p]), rule)


def certificates():
    """By name, (certificate, prior, observation) of each kind."""
    contract, cooling = CARBON.contract(2.0, 2.0), tether.envs.Cooling()
    kinds = {
        f"{rule}, {p}": (lipschitz(rule, p), lambda seen: 5.0, None) for rule in RULES for p in PERTURBATIONS
    }
    kinds["structured"] = Structured(contract, CARBON.structure), CARBON.prior, OBSERVATION
    kinds["shadowing"] = Shadowing(contract, CARBON.structure, CARBON), CARBON.prior, OBSERVATION
    seen = np.array([1.0, 1.0, 30.0, 0.2, 24.0, 24.0])
    kinds["cooling"] = Structured(cooling.contract(2.0, 2.0), cooling.structure), cooling.prior, seen
    return kinds


CERTIFICATES = certificates()


def guard_of(kind, **options):
    certificate, prior, observation = CERTIFICATES[kind]
    low, high = (0.0, tether.envs.Cooling().high) if kind == "cooling" else (-math.inf, math.inf)
    return Guard(certificate, prior, low, high, **options), observation


def only_the_prior_plays(guard, observation, rounds=3):
    for _ in range(rounds):
        for proposal in (0.0, 1e6, -1e308, math.nan):
            prior, reached = guard.reach(observation, np.full(np.shape(guard.prior(observation)), proposal))
            np.testing.assert_array_equal(prior, reached)
        decision = guard.act(observation, np.full(np.shape(prior), 3.0))
        np.testing.assert_array_equal(decision.action, decision.prior_action)
        np.testing.assert_array_equal(decision.action, guard.prior(observation))
        assert decision.reason is Reason.BREACH
        assert (decision.deviation, decision.radius, decision.backup) == (0.0, 0.0, "prior")
        assert math.isnan(decision.margin)
        guard.observe(1.5)


@pytest.mark.parametrize("cost", [1.7e308, 1e308, 1e155, 1e101])
@pytest.mark.parametrize("kind", CERTIFICATES)
def test_a_cost_too_large_to_compute_with_is_a_breach_and_only_the_prior_is_played(kind, cost):
    guard, observation = guard_of(kind)
    guard.act(observation, 0.5 * np.asarray(guard.prior(observation)))
    with pytest.warns(AssumptionBreach, match=r"round 1: the cost was 1.*e\+"):
        guard.observe(cost)
    assert (guard.breach.round, guard.breach.seen, guard.uncertified_from) == (1, cost, 1)
    only_the_prior_plays(guard, observation)


@pytest.mark.parametrize("p", PERTURBATIONS)
@pytest.mark.parametrize("rule", RULES)
def test_costs_that_add_up_to_too_much_are_a_breach(rule, p):
    guard = Guard(lipschitz(rule, p), lambda seen: 5.0)
    for _ in range(2):
        guard.act(None, 5.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionBreach)
            guard.observe(3e99)  # below the limit of 1e100, but not 2.5 of it
    assert guard.breach.round == 2
    assert "can compute with" in guard.breach.detail
    only_the_prior_plays(guard, None, 2)


@pytest.mark.parametrize(("demand", "b"), [(0.5, 2.0), (1.0, 4.0)])
@pytest.mark.parametrize("proposal", [1e308, 1.7e308, 1e155])
def test_a_proposal_that_overflows_a_bound_does_not_break_the_promise(demand, b, proposal):
    """Where gaps fade slowly a backlog that was cleared far too well comes back on top of the largest demands."""
    env = Carbon(efficiency_noise_max=0.64, drop_rate_max=0.8, demand_max=6.0, backlog_max=200.0)
    drawn = {
        "demand": [demand] + 11 * [6.0],
        "renewables": 12 * [0.0],
        "efficiency_noise": [-0.64, -0.16] + 10 * [-0.64],
        "drop_rate": [0.0, 0.8] + 10 * [0.0],
    }
    episodes = tether.data.Episodes({name: np.array([values]) for name, values in drawn.items()})
    contract = env.contract(0.0, b, 12)
    for certificate in (Structured(contract, env.structure), Shadowing(contract, env.structure, env)):
        guard = Guard(certificate, env.prior, env.low, env.high)
        played = play(env, episodes, 0, guard, lambda seen, h: proposal if h == 0 else env.prior(seen))
        assert played.excess(contract) < 0.0
        assert guard.breach is None


@pytest.mark.parametrize("kind", CERTIFICATES)
def test_a_proposal_farther_away_than_numbers_reach_becomes_a_safe_action(kind):
    guard, observation = guard_of(kind)
    prior = np.asarray(guard.prior(observation))
    far = Guard(guard.certificate, lambda seen: np.where(prior == prior, -1e308, prior), -1.7e308, 1.7e308)
    if kind.startswith(RULES):
        assert far.act(observation, 1.7e308).action == -1e308  # their distance is infinite
    decision = guard.act(observation, np.full(prior.shape, 1.7e308))
    assert np.all(np.isfinite(decision.action))
    assert guard.breach is None
    assert decision.reason is not Reason.BREACH


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("p", PERTURBATIONS)
@pytest.mark.parametrize("resolution", [0.02, 0.5, 2.0, 1e300])
def test_round_off_as_large_as_the_sums_leaves_no_freedom(rule, p, resolution):
    guard = Guard(lipschitz(rule, p), lambda seen: 5.0, resolution=resolution)
    for _ in range(5):
        decision = guard.act(None, 1e3)
        assert (decision.action, decision.radius) == (5.0, 0.0)
        guard.observe(50.0)
    assert guard.breach is None


@pytest.mark.parametrize("rule", RULES)
def test_a_horizon_over_which_single_precision_says_nothing_leaves_no_freedom(rule):
    long = tether.LipschitzCertificate(
        tether.Contract(0.5, 1.0, 10**7, 1.0), tether.Sensitivity(2.0, 1.0, tether.geometric(0.5)), rule
    )
    assert Guard(long, lambda seen: 5.0).act(None, 1e3).action == 5.0
    assert Guard(long, lambda seen: 5.0, resolution=0.0).act(None, 1e3).action > 5.1


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("p", PERTURBATIONS)
def test_in_every_kind_of_arithmetic_an_overflow_leaves_a_radius_of_zero(rule, p):
    import jax.numpy as jnp

    from tether.core.ops import jax_ops

    zeros = {FLOATS: 0.0, NUMPY: np.float64(0.0), jax_ops(): jnp.zeros(())}
    if p == "table":
        del zeros[FLOATS]
    with np.errstate(all="ignore"):
        for ops, zero in zeros.items():
            # A cost that is accepted, but not (1 + lam) of it.
            cost = 0.9 * ops.limit(zero)
            certificate = lipschitz(rule, p, lam=1e300 if cost > 1e50 else 1e30, cost_floor=0.0)
            state = certificate.start(ops, zero)
            assert float(certificate.radius(state, ops)) > 0.0
            state = certificate.close(state, 0.0 * zero, zero + cost, ops)
            assert bool(state.breached)
            assert math.isinf(state.surplus)
            for _ in range(3):
                assert float(certificate.radius(state, ops)) == 0.0
                state = certificate.close(state, 0.0 * zero, zero + 2.0, ops)
                assert bool(state.breached)


@dataclasses.dataclass(frozen=True)
class Exploding(HostileSystem):
    """A system whose cost is too large to compute with in one round, and the prior's as well."""

    def step(self, state, drawn, action):
        after = super().step(state, drawn, action)
        return after._replace(cost=after.cost + 1e308 * (drawn["gain"][0] > 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_in_a_compiled_rollout_too_only_the_prior_is_played_after_an_overflow(rule):
    env = Exploding(gains=(0.4, 0.4, 0.6, 0.4, 0.4, 0.4))
    episodes = draw(env, 32, np.random.default_rng(0), policies=("worst corner", "random"))
    certificate = tether.LipschitzCertificate(env.contract(0.5, 1.0, 6), env.sensitivity, rule)
    run = tether.rollout(env, hostile_policy(env), episodes, certificate)
    np.testing.assert_array_equal(run.uncertified_from, 3)
    assert np.max(run.deviations[:, :3]) > 0.1
    np.testing.assert_array_equal(run.actions[:, 3:], run.prior_actions[:, 3:])
    assert np.all(np.isfinite(run.actions))
    assert np.all(run.radii[:, 3:] == 0.0)


def test_constants_beyond_what_is_computed_with_are_refused():
    for numbers, contract in (
        ((1e101, 1.0, tether.geometric(0.5)), {}),
        ((1.0, 1e90, tether.geometric(3.0)), {"horizon": 40}),
        ((1.0, 1.0, tether.table([1.0, 1e150, 1.0, 1.0])), {}),
        ((1.0, 1.0, tether.geometric(0.5)), {"b": 1e101}),
    ):
        with pytest.raises(ValueError, match=r"beyond the 1e\+100 that is computed with"):
            tether.LipschitzCertificate(
                tether.Contract(**{"lam": 0.5, "b": 1.0, "horizon": 5} | contract),
                tether.Sensitivity(*numbers),
            )


FAILURES = ("read", "admits", "refine", "agrees", "plans", "bounds", "close")


@pytest.mark.parametrize("error", [ZeroDivisionError, RecursionError, StopIteration, MemoryError])
@pytest.mark.parametrize("part", FAILURES)
def test_an_exception_in_a_structure_is_a_breach_and_the_prior_goes_on(part, error):
    calls = []

    def fails(self, *arguments):
        calls.append(part)
        if len(calls) > 4:
            raise error("in " + part)
        return getattr(CarbonStructure, part)(self, *arguments)

    kind = dataclasses.dataclass(frozen=True)(type("Failing", (CarbonStructure,), {part: fails}))
    structure = kind(**dataclasses.asdict(CARBON.structure))
    guard = Guard(Structured(CARBON.contract(2.0, 2.0), structure), CARBON.prior, low=0.0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        decisions = []
        for _ in range(24):
            decisions.append(guard.act(OBSERVATION, 4.5))
            guard.observe(1.2)
    assert [str(each.message) for each in seen] == [str(seen[0].message)]  # said once
    assert f"in {part}" in guard.breach.detail
    first = guard.breach.round
    assert first <= 6
    for decision in decisions[first:]:
        assert (decision.action, decision.reason) == (5.0, Reason.BREACH)
    assert all(decision.action == 4.5 for decision in decisions[: first - 1])


def test_an_interrupt_leaves_the_round_open_and_counts_nothing_twice(monkeypatch):
    guard = Guard(lipschitz(), lambda seen: 5.0)
    guard.act(None, 5.1)
    update = tether.LipschitzCertificate.update

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(tether.LipschitzCertificate, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        guard.observe(2.0)
    monkeypatch.setattr(tether.LipschitzCertificate, "update", update)
    with pytest.raises(GuardMisuse, match="round 1 already has an action"):
        guard.act(None, 5.1)
    guard.observe(2.0)
    assert guard.round == 2
    assert guard._state.magnitude == pytest.approx(1.5 + 2.5 * 2.0 + 1.5 + 0.1 * 3.875 + 2.0 * 5.0)


def test_where_breaches_are_errors_the_prior_is_played_at_the_second_call():
    guard = Guard(lipschitz(), lambda seen: 7.0, high=6.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionBreach)
        with pytest.raises(AssumptionBreach, match="outside the bounds"):
            guard.act(None, 5.0)
        for _ in range(5):
            assert guard.act(None, 5.0).action == 6.0
            guard.observe(2.0)
    guard = Guard(lipschitz(), lambda seen: 5.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionBreach)
        guard.act(None, 5.0)
        with pytest.raises(AssumptionBreach, match="the cost was nan"):
            guard.observe(math.nan)
        assert (guard.round, guard.breach.round) == (2, 1)
        assert guard.act(None, 5.1).action == 5.0
        guard.observe(2.0)


def test_two_threads_get_one_decision_and_one_refusal():
    inside, go_on = threading.Event(), threading.Event()

    def slow(seen):
        inside.set()
        assert go_on.wait(10.0)
        return 5.0

    guard = Guard(lipschitz(), slow)
    results = []

    def act():
        try:
            results.append(guard.act(None, 5.1))
        except GuardMisuse as error:
            results.append(error)

    threads = [threading.Thread(target=act) for _ in range(2)]
    threads[0].start()
    assert inside.wait(10.0)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10.0)
    assert sorted(type(each).__name__ for each in results) == ["Decision", "GuardMisuse"]
    assert guard.counts.total() == 1
    assert guard.round == 1


def test_a_guard_is_not_saved_in_the_middle_of_a_call(monkeypatch):
    inside, go_on, saved = threading.Event(), threading.Event(), []
    update = tether.LipschitzCertificate.update

    def slow(*arguments):
        inside.set()
        assert go_on.wait(10.0)
        return update(*arguments)

    monkeypatch.setattr(tether.LipschitzCertificate, "update", slow)
    guard = Guard(lipschitz(), lambda seen: 5.0)
    guard.act(None, 5.1)
    threads = [
        threading.Thread(target=lambda: guard.observe(2.0)),
        threading.Thread(target=lambda: saved.append(guard.state_dict())),
    ]
    threads[0].start()
    assert inside.wait(10.0)
    threads[1].start()
    threads[1].join(0.05)
    assert saved == []
    go_on.set()
    for thread in threads:
        thread.join(10.0)
    assert (saved[0]["state"]["rounds"], saved[0]["taken"]) == (1.0, None)


@pytest.mark.parametrize(
    "call",
    [
        lambda guard: guard.act(None, 5.0),
        lambda guard: guard.observe(1.0),
        lambda guard: guard.reset(),
        lambda guard: guard.reach(None, 5.0),
    ],
)
def test_a_prior_that_calls_its_guard_back_changes_nothing(call):
    guard = Guard(lipschitz(), lambda seen: call(guard) or 5.0)
    with (
        pytest.warns(AssumptionBreach, match="called by its own prior"),
        pytest.raises(PriorFailed, match="called by its own prior"),
    ):
        guard.act(None, 5.1)
    assert guard.round == 1
    guard.prior = lambda seen: 5.0
    guard.reset()
    assert guard.act(None, 5.1).reason is Reason.SAFE


def test_a_prior_may_ask_its_guard_which_round_it_is():
    guard = Guard(lipschitz(), lambda seen: 4.0 + guard.round + 0.0 * guard.features(seen)[0])
    assert guard.act(None, 5.1).prior_action == 5.0
    guard.observe(1.0)
    assert guard.act(None, 5.1).prior_action == 6.0
