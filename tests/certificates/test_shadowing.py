"""Certificates that replay the prior: the gap is known, and nothing breaks when nothing is revealed."""

from __future__ import annotations

import functools
import json
import math

import numpy as np
import pytest

import tether
from structures import hostile_draws
from tether.assure.attack import Hostile, scripted_plant
from tether.certificates import Shadowing, Structured
from tether.certificates.share import CLOSE
from tether.systems import registry
from tether.systems.cooling.synthetic import synthetic_cooling

SYSTEMS = ("carbon", "inference")
SCRIPTED = {name: scripted_plant(registry.find(name).env()) for name in (*SYSTEMS, "cooling")}
CONTRACTS = ((0.0, 2.0), (2.0, 0.3), (10.0, 6.0), (0.0, 0.01))


def shadowing(env, lam, b):
    return Shadowing(env.contract(lam, b), env.structure, env)


@functools.cache
def attack(name):
    """The same episodes for each test, so that one program serves them."""
    return hostile_draws(SCRIPTED[name], 4_000, np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_no_hostile_policy_breaks_the_promise_with_the_prior_known(name):
    env = SCRIPTED[name]
    episodes = attack(name)
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    for lam, b in CONTRACTS:
        run = tether.rollout(env, Hostile(env), episodes, shadowing(env, lam, b))
        assert not np.any(run.breached)
        verdict = tether.audit(run, prior, env.contract(lam, b))
        assert verdict.holds, f"lam={lam}, b={b}: {verdict}"
        assert np.min(verdict.margins / verdict.bounds) < 1e-6


def play(env, episodes, i, guard, reveals):
    """Episode i through the guard and by the prior; yields (decision, own cost, prior's cost)."""
    state = follower = env.initial()
    for h in range(episodes.horizon):
        drawn = {name: episodes[name][i, h] for name in env.drawn_names}
        seen = env.observation(state, drawn)
        decision = guard.act(seen, Hostile(env)(seen))
        state, _, cost = env.step(state, drawn, decision.action)
        follower, _, prior_cost = env.step(follower, drawn, env.prior(env.observation(follower, drawn)))
        hidden = {name: drawn[name] for name in env.hidden}
        guard.observe(cost, hidden if reveals(h) else None)
        if reveals(h) and guard._state.shadow.known:
            np.testing.assert_allclose(guard._state.shadow.state[0], follower[0], atol=1e-9)
        yield decision, cost, prior_cost


@pytest.mark.slow
@pytest.mark.parametrize("name", ["carbon", "inference", "cooling"])
def test_the_prior_is_replayed_exactly_and_as_in_the_rollout(name):
    env = SCRIPTED[name]
    episodes = attack(name)
    certificate = shadowing(env, 0.5, 0.5)
    run = tether.rollout(env, Hostile(env), episodes, certificate) if name in SYSTEMS else None
    for i in range(6):
        guard = tether.Guard(certificate, env.prior, env.low, env.high, env.norm, resolution=0.0)
        spent = 0.0
        for h, (decision, cost, prior_cost) in enumerate(play(env, episodes, i, guard, lambda h: True)):
            spent += cost - 1.5 * prior_cost
            assert guard._state.account == pytest.approx(spent, abs=1e-9)
            assert guard._state.shadow.known
            if run is not None:
                # The online search ends at this share of the way; a compiled one has no such end.
                assert decision.action == pytest.approx(run.actions[i, h], rel=10.0 * CLOSE, abs=10.0 * CLOSE)


@pytest.mark.parametrize("name", ["carbon", "inference", "cooling"])
def test_where_nothing_is_revealed_the_structure_takes_over_and_the_promise_holds(name):
    env, rng = SCRIPTED[name], np.random.default_rng(2)
    episodes = hostile_draws(env, 12, rng)
    for i, (lam, b) in enumerate(CONTRACTS * 3):
        guard = tether.Guard(shadowing(env, lam, b), env.prior, env.low, env.high, env.norm)
        silent = rng.integers(8)
        costs, bounds = 0.0, 0.0
        for decision, cost, prior_cost in play(env, episodes, i, guard, lambda h, silent=silent: h != silent):
            costs, bounds = costs + cost, bounds + (1.0 + lam) * prior_cost + b
            assert costs <= bounds * (1.0 + 1e-12)
            assert guard._state.shadow.known == (decision.round <= silent)
        assert guard.breach is None


def test_without_anything_revealed_it_decides_as_the_structure_does():
    env = SCRIPTED["carbon"]
    episodes = hostile_draws(env, 2, np.random.default_rng(3))
    contract = env.contract(0.5, 0.5)
    guards = [
        tether.Guard(each, env.prior, env.low)
        for each in (Shadowing(contract, env.structure, env), Structured(contract, env.structure))
    ]
    silent, plain = (
        [turn[0].action for turn in play(env, episodes, 0, each, lambda h: False)] for each in guards
    )
    np.testing.assert_allclose(silent, plain, atol=1e-12)


@pytest.mark.parametrize(
    "revealed",
    [
        {"efficiency_noise": math.nan, "drop_rate": 0.0},
        {"efficiency_noise": 0.1, "drop_rate": 0.2},  # more than can be dropped
        {"efficiency_noise": 0.0, "drop_rate": 0.0},  # not what the cost says
    ],
)
def test_what_cannot_have_happened_is_not_used(revealed):
    env = tether.envs.Carbon()
    guard = tether.Guard(shadowing(env, 2.0, 2.0), env.prior, low=0.0)
    action = guard.act([4.0, 3.0, 0.0, 0.0], 3.8).action
    left = 4.0 - 0.9 * action
    guard.observe(left**2 + left + 1.0, revealed)
    assert not guard._state.shadow.known
    assert guard.breach is None


def test_what_is_revealed_is_checked_and_a_saved_guard_goes_on():
    env = tether.envs.Cooling()
    episodes = synthetic_cooling(0, 1)
    certificate = shadowing(env, 0.5, 0.5)
    guard = tether.Guard(certificate, env.prior, env.low, env.high, env.norm)
    state, decisions = env.initial(), []
    for h in range(3):
        drawn = {name: episodes[name][0, h] for name in env.series}
        observation = env.observe(state, drawn)
        decisions.append(guard.act(observation, np.zeros(2)))
        saved = json.loads(json.dumps(guard.state_dict()))
        copy = tether.Guard.from_state_dict(saved, env.prior, certificate)
        state, _, cost = env.step(state, drawn, decisions[-1].action)
        for wrong in ({}, {"effectiveness": "no"}, [0.9]):
            with pytest.raises(ValueError, match="revealed must"):
                guard.observe(cost, wrong)
        for each in (guard, copy):
            each.observe(cost, {"effectiveness": drawn["effectiveness"].tolist()})
        assert json.dumps(copy.state_dict()) == json.dumps(guard.state_dict())
        assert guard._state.shadow.known
    with pytest.raises(ValueError, match="must be given as it is"):
        tether.Guard.from_state_dict(saved, env.prior)
    plain = tether.Guard(Structured(env.contract(1.0, 1.0), env.structure), env.prior, env.low, env.high)
    plain.act(observation, np.zeros(2))
    with pytest.raises(ValueError, match="makes no use of what is revealed"):
        plain.observe(cost, {"effectiveness": [0.9, 0.9]})


def test_an_environment_that_hides_nothing_is_refused():
    env = tether.envs.Carbon()
    with pytest.raises(TypeError, match=r"env must be a tether\.envs\.Env"):
        Shadowing(env.contract(1.0, 1.0), env.structure, env.structure)
