"""Structured certificates: every bound searched for counterexamples, the promise attacked, one code on both sides."""

from __future__ import annotations

import dataclasses
import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from structures import BOUNDS, SYSTEMS, corners, counterexamples, loosened
from tether.certificates import Structured
from tether.envs.base import namespace

TIES = 1e-9
"""What round-off may do to a bound; the certificate's own reserve is larger."""
LOOSE = [(name, bound) for name, bounds in BOUNDS.items() for bound in bounds]


@pytest.mark.parametrize("name", SYSTEMS)
def test_random_search_finds_no_counterexample_to_any_bound(name):
    env = SYSTEMS[name]
    broken = counterexamples(env, env.structure, np.random.default_rng(0))
    assert all(worst <= TIES for worst in broken.values()), broken


@pytest.mark.parametrize(("name", "bound"), LOOSE)
def test_the_search_finds_a_counterexample_to_any_bound_loosened_by_five_percent(name, bound):
    env = SYSTEMS[name]
    broken = counterexamples(env, loosened(env.structure, bound), np.random.default_rng(1), 50_000)
    assert broken[bound] > 0.01


# Episodes with a script: how the proposal differs from the prior's action, as a share of it.
SCRIPTED = {name: dataclasses.replace(SYSTEMS[name], context=("script",)) for name in ("carbon", "inference")}


def hostile(observation, key):
    """What the script says; absurd values become NaN and infinity."""
    xp, script = namespace(observation), observation[4]
    script = xp.where(script > 1e29, math.inf, xp.where(script < -1e29, math.nan, script))
    demand, other = observation[0], observation[3]
    return script * (demand + other + 1.0)


def episodes_for(env, count, rng, horizon=24):
    """Noise at its worst corners and the scripts of hostile policies."""
    shape = (count, horizon)
    series = {}
    for name, (low, high) in env.limits().items():
        worst = {"efficiency_noise": (0.7, 0.1), "discharge_rate": (0.1, 0.7), "charge_rate": (0.7, 0.1)}
        series[name] = corners(rng, shape, low, min(high, 6.0), worst.get(name, (0.4, 0.4)))
    rounds = np.arange(horizon)
    strike = rng.integers(horizon, size=(count, 1))
    # Too little work is what hurts the carbon system, too much the inference system.
    bad, good = (0.0, 10.0) if isinstance(env, tether.envs.Carbon) else (10.0, 0.0)
    follow = np.full(shape, 1.0)
    kinds = np.stack(
        [
            np.full(shape, bad),
            np.where(rounds < strike, good, bad) + 0.0 * follow,
            np.where(rounds == strike, bad, 1.1),
            np.where(rounds % 2 == strike % 2, bad, good),
            rng.exponential(size=shape),
            rng.choice([bad, good, 1e30, -1e30, 1e20], size=shape),
        ]
    )
    series["script"] = kinds[rng.integers(len(kinds), size=count), np.arange(count)]
    if "charge_rate" in series:
        set_traps(env, series, rng)
    return tether.data.Episodes(series)


def set_traps(env, series, rng):
    """In a third of the episodes: spend unseen what the battery would have kept, where it is missed most.

    In one round the prior would keep just so much; in the next its own shortfall is the largest possible.
    """
    count, horizon = series["demand"].shape
    trapped = np.flatnonzero(rng.uniform(size=count) < 1.0 / 3.0)[:, None]
    kept = np.exp(rng.uniform(np.log(1e-3), np.log(0.3), size=trapped.shape))
    due = (env.demand_max - math.sqrt(env.carbon_slack)) / env.structure.charge_rate
    first, second = np.arange(0, horizon, 2)[None, :], np.arange(1, horizon, 2)[None, :]
    series["demand"][trapped, first], series["demand"][trapped, second] = 3.0, env.demand_max
    series["renewables"][trapped, first] = (3.0 + kept) / env.charge_rate_min
    series["renewables"][trapped, second] = due
    series["charge_rate"][trapped, np.arange(horizon)[None, :]] = env.charge_rate_min
    series["discharge_rate"][trapped, np.arange(horizon)[None, :]] = 1.0
    series["script"][trapped, first], series["script"][trapped, second] = 10.0, -1e30


CONTRACTS = ((0.0, 2.0), (2.0, 0.3), (10.0, 6.0), (0.0, 0.01), (0.0, 0.0))


@functools.cache
def attack(name):
    """Many hostile episodes; the same ones for each test, so that one program serves them."""
    return episodes_for(SCRIPTED[name], 40_000, np.random.default_rng(2))


@pytest.mark.parametrize("name", SCRIPTED)
def test_no_hostile_policy_breaks_the_promise_and_unguarded_ones_do(name):
    env = SCRIPTED[name]
    episodes = attack(name)
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    unguarded = tether.rollout(env, hostile, episodes, record="outcomes")
    for lam, b in CONTRACTS:
        contract = env.contract(lam, b)
        assert tether.audit(unguarded, prior, contract).violation_rate > 0.3
        run = tether.rollout(env, hostile, episodes, Structured(contract, env.structure))
        assert not np.any(run.breached)
        if contract.earned == 0.0:
            assert (
                np.max(run.deviations) < 1e-12
            )  # the prior itself: costs are those of another program, up to round-off
            continue
        verdict = tether.audit(run, prior, contract)
        assert verdict.holds, f"lam={lam}, b={b}: {verdict}"
        assert np.min(verdict.margins / verdict.bounds) < 1e-6  # nothing is kept by being timid


# A gap below enters the carbon system's costs only through the tenth of it that can turn around: 5 % of that has not
# broken the promise in any episode found so far. The search above does find it.
ATTACKED = [pair for pair in LOOSE if pair != ("carbon", "below")]


@pytest.mark.parametrize(("name", "bound"), ATTACKED)
def test_any_bound_loosened_by_five_percent_breaks_the_promise(name, bound, monkeypatch):
    monkeypatch.setattr(
        "tether.certificates.structured.SEARCH", 4
    )  # near enough to the edge, and quicker to compile
    env = SCRIPTED[name]
    episodes = episodes_for(env, 10_000, np.random.default_rng(3))
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    contract = env.contract(0.0, 0.01)
    certificate = Structured(contract, loosened(env.structure, bound))
    verdict = tether.audit(tether.rollout(env, hostile, episodes, certificate), prior, contract)
    assert verdict.violation_rate > 0.001


def online(env, episodes, i, guard):
    """Play episode i through the online guard; yields (decision, what the certificate knew, cost) of each round."""
    state = env.initial()
    for h in range(episodes.horizon):
        drawn = {name: episodes[name][i, h] for name in env.drawn_names}
        observation = env.observation(state, drawn)
        before = guard._state
        decision = guard.act(observation, float(hostile(observation, None)))
        state, _, cost = env.step(state, drawn, decision.action)
        guard.observe(cost)
        yield decision, observation, before, cost


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_online_guard_and_the_compiled_rollout_decide_alike(name):
    env = SCRIPTED[name]
    episodes = attack(name)
    certificate = Structured(env.contract(0.5, 1.0), env.structure)
    run = tether.rollout(env, hostile, episodes, certificate)
    for i in range(12):
        guard = tether.Guard(certificate, env.prior, env.low, env.high)
        rounds = list(online(env, episodes, i, guard))
        played = np.array([decision.action for decision, *_ in rounds])
        assert np.max(np.abs(played - run.actions[i])) < 1e-9
        assert np.max(np.abs([decision.margin for decision, *_ in rounds] - run.margins[i])) < 1e-7
    assert np.max(run.deviations) > 0.1


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_prior_stays_safe_whatever_was_played(name):
    """The lemma of recursive feasibility, with its inequality written out."""
    env = SCRIPTED[name]
    episodes = episodes_for(env, 40, np.random.default_rng(5))
    for i, (lam, b) in enumerate(CONTRACTS * 8):
        contract = env.contract(lam, b)
        guard = tether.Guard(Structured(contract, env.structure), env.prior, env.low, env.high)
        for decision, observation, before, _ in online(env, episodes, i, guard):
            seen = env.structure.read([float(entry) for entry in observation])
            gaps = env.structure.refine(before.gaps, seen, np)
            prior = decision.prior_action
            totals = env.structure.exposure(gaps, seen, prior, prior, np).totals
            h = decision.round
            for n, total in enumerate(totals[: contract.horizon - h + 1]):
                allowed = before.surplus + (n + 1) * contract.earned + (h - 1) * b
                assert total <= allowed + 1e-8 * (1.0 + before.magnitude)


@pytest.mark.parametrize(
    ("name", "wish", "seen"),
    [("carbon", 0.5, (4.0, 2.0, 0.0, 1.0)), ("inference", 6.0, (5.0, 1.0, 0.0, 2.0))],
)
def test_at_the_boundary_the_gradient_is_that_of_the_boundary(name, wish, seen, monkeypatch):
    monkeypatch.setattr("tether.certificates.structured.SEARCH", 5)
    env = SYSTEMS[name]
    certificate = Structured(env.contract(0.5, 0.5), env.structure)

    def action(demand, other, surplus, wish):
        observation = jnp.stack([demand, jnp.asarray(seen[1]), jnp.asarray(0.0), other])
        state = certificate.start(jnp, jnp.asarray(0.0))._replace(surplus=surplus)
        opened = certificate.open(state, observation, jnp)
        prior = env.prior(observation)
        return certificate.choose(opened, wish, prior, env.low, env.high, "l2", jnp).action

    with jax.enable_x64(True):
        at = [jnp.asarray(number) for number in (seen[0], seen[3], 0.3, wish)]
        compiled = jax.jit(jax.value_and_grad(action, argnums=(0, 1, 2, 3)))
        played, slopes = compiled(*at)
        assert played != wish
        for i, slope in enumerate(slopes):
            nudge = [each + 1e-5 * (j == i) for j, each in enumerate(at)]
            back = [each - 1e-5 * (j == i) for j, each in enumerate(at)]
            measured = (compiled(*nudge)[0] - compiled(*back)[0]) / 2e-5
            assert float(slope) == pytest.approx(float(measured), abs=2e-3)
    assert abs(float(slopes[2])) > 0.05  # more slack, more freedom
    assert abs(float(slopes[3])) < 1e-4  # at the boundary the proposal itself does not matter


def carbon_guard():
    env = SYSTEMS["carbon"]
    return tether.Guard(Structured(env.contract(2.0, 2.0), env.structure), env.prior, low=0.0)


def test_a_saved_guard_goes_on_with_identical_decisions_in_the_middle_of_a_round_too():
    guard = carbon_guard()
    guard.act([4.0, 2.0, 0.0, 0.0], 0.0)
    guard.observe(3.0)
    guard.act([3.0, 2.0, 0.0, 1.0], 0.0)
    copy = tether.Guard.from_state_dict(json.loads(json.dumps(guard.state_dict())), SYSTEMS["carbon"].prior)
    for each in (guard, copy):
        each.observe(2.0)
    decision = guard.act([3.0, 2.0, 0.0, 0.6], 0.0)
    assert copy.act([3.0, 2.0, 0.0, 0.6], 0.0) == decision
    assert guard.features([3.0, 2.0, 0.0, 0.6]) == copy.features([3.0, 2.0, 0.0, 0.6])
    assert decision.intervened


def test_what_the_structure_rules_out_is_a_breach_and_leaves_the_prior():
    guard = carbon_guard()
    guard.act([4.0, 2.0, 0.0, 0.0], 0.0)
    with pytest.warns(tether.AssumptionBreach, match="more than the certificate knows to be possible"):
        guard.observe(500.0)
    assert guard.act([4.0, 2.0, 0.0, 15.0], 0.0).reason == tether.Reason.BREACH
    for strange in ([7.0, 2.0, 0.0, 0.0], [4.0, 2.0, 0.0, -1.0], [4.0, 2.0, 0.0, 16.0]):
        guard = carbon_guard()
        with pytest.warns(tether.AssumptionBreach, match="not one that the certificate covers"):
            decision = guard.act(strange, 0.0)
        assert decision.action == decision.prior_action
        assert guard.breach is not None


def test_a_structure_is_checked_and_described():
    env = SYSTEMS["carbon"]
    with pytest.raises(TypeError, match=r"system must be a tether\.certificates\.Structure"):
        Structured(env.contract(1.0, 1.0), env.sensitivity)
    with pytest.raises(ValueError, match="gaps must shrink"):
        _ = dataclasses.replace(env, efficiency=0.5, efficiency_noise_max=0.5).structure
    for system in SYSTEMS.values():
        certificate = Structured(system.contract(1.0, 1.0), system.structure)
        assert tether.certificates.certificate_from_dict(certificate.to_dict()) == certificate


@pytest.mark.parametrize("name", ["carbon", "inference"])
def test_training_through_the_certificate_has_finite_gradients(name, monkeypatch):
    from tether.learn.rollout import play

    monkeypatch.setattr("tether.certificates.structured.SEARCH", 2)
    env = SYSTEMS[name]
    episodes = getattr(tether.data, f"synthetic_{name}")(0, 50)
    drawn = {key: jnp.asarray(np.swapaxes(episodes[key], 0, 1)) for key in env.drawn_names}
    certificate = Structured(env.contract(0.5, 0.5), env.structure)

    def reward(share):
        policy = jax.tree_util.Partial(lambda share, seen, key: share * (seen[0] + seen[3]), share)
        return jnp.mean(play(env, policy, drawn, certificate, jnp.uint32(0), "outcomes")["rewards"])

    slope = jax.jit(jax.grad(reward))
    assert all(np.isfinite(slope(share)) for share in (0.3, 1.0, 3.0))
