"""The cooling system: a vector action through its formulas, its constants, the guard and the audit."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from tether.systems.cooling.env import Cooling, CoolingState
from tether.systems.cooling.synthetic import synthetic_cooling

RULES = ("paper", "released", "tight")
CONTRACTS = ((0.0, 0.5), (0.5, 0.0), (0.2, 0.5), (0.0, 0.0))
ENVS = {
    "default": Cooling(),
    "uneven": Cooling(discomfort=(0.5, 3.0), wall=0.5, leak=0.1, heating=0.8),
    "overshooting": Cooling(gain=3.2, wall=0.1),
}
SAMPLES = 100_000
EPISODES = 1440  # the same number everywhere, so that little is compiled


def draw(rng, shape, hottest=60.0):
    """Rooms from idle to overloaded, a day from frost to heat, units at the ends of their effectiveness."""
    return {
        "heat_load": rng.choice([0.0, 3.0, 20.0], size=(*shape, 2)),
        "outside": rng.choice([-10.0, 24.0, hottest], size=shape),
        "price": rng.choice([0.0, 1.0], size=shape),
        "effectiveness": rng.choice([0.8, 1.0], size=(*shape, 2)),
    }


def temperatures_of(rng, count):
    return 24.0 + rng.normal(size=(count, 2)) * rng.choice([0.1, 1.0, 20.0], size=(count, 1))


def near(rng, values):
    """Values nearby, often by the same amount in both rooms."""
    away = rng.normal(size=values.shape) * rng.choice([1e-3, 0.1, 5.0], size=(len(values), 1))
    return values + np.where(rng.random((len(values), 1)) < 0.5, away[:, :1], away)


def largest(difference):
    return np.max(np.abs(difference), axis=-1)


def reached(change, size):
    some = size > 1e-6
    return np.max(np.abs(change)[some] / size[some])


def under_prior(env, temperatures, drawn):
    state = CoolingState(temperatures)
    after = env.step(state, drawn, env.prior(env.observe(state, drawn)))
    return after.state.temperature, after.cost


@pytest.mark.parametrize("name", ENVS)
def test_no_action_changes_the_cost_by_more_than_immediate_and_some_reach_it(name):
    env, rng = ENVS[name], np.random.default_rng(0)
    drawn, state = draw(rng, (SAMPLES,)), CoolingState(temperatures_of(rng, SAMPLES))
    action = rng.choice([0.0, 3.0, env.action_max], size=(SAMPLES, 2))
    other = np.clip(near(rng, action), env.low, env.high)
    one, two = env.step(state, drawn, action), env.step(state, drawn, other)
    size = largest(action - other)
    assert np.all(np.abs(one.cost - two.cost) <= env.sensitivity.immediate * size + 1e-9)
    assert reached(one.cost - two.cost, size) > 0.999 * env.sensitivity.immediate
    gap = largest(one.state.temperature - two.state.temperature)
    assert np.all(gap <= env.heating * size + 1e-9)


@pytest.mark.parametrize("name", ENVS)
def test_under_the_prior_gaps_shrink_by_rho_and_some_by_no_more(name):
    env, rng = ENVS[name], np.random.default_rng(1)
    drawn, temperatures = draw(rng, (SAMPLES,)), temperatures_of(rng, SAMPLES)
    other = near(rng, temperatures)
    # Where the thermostat overshoots, rooms that are off in opposite directions push each other.
    other = np.where(rng.random((SAMPLES, 1)) < 0.3, temperatures + np.array([1e-3, -1e-3]), other)
    (next_one, cost), (next_two, other_cost) = (
        under_prior(env, value, drawn) for value in (temperatures, other)
    )
    gap, rho = largest(temperatures - other), env.sensitivity.perturbation.rho
    assert np.all(largest(next_one - next_two) <= rho * gap + 1e-9)
    assert reached(largest(next_one - next_two), gap) > 0.999 * rho
    # A unit of action leaves a gap of `heating`, so that `carried` is per unit of that.
    change = env.heating * (cost - other_cost)
    assert np.all(np.abs(change) <= env.sensitivity.carried * gap + 1e-9)
    assert reached(change, gap) > 0.99 * env.sensitivity.carried


def test_rho_is_the_norm_of_the_closed_loop():
    assert ENVS["default"].sensitivity.perturbation.rho == pytest.approx(
        0.8
    )  # leak, at the thermostat's limit
    assert ENVS["overshooting"].sensitivity.perturbation.rho == pytest.approx(2 * 0.1 + 0.2 + 0.5 * 3.2 - 1.0)
    loop = np.array([[1.0 - 0.2 - 0.2 - 0.5 * 0.8, 0.2], [0.2, 1.0 - 0.2 - 0.2 - 0.5 * 0.8]])
    assert np.linalg.norm(loop, np.inf) <= 0.8
    env, start = Cooling(), np.array([24.0, 24.0])
    drawn = {"heat_load": np.full(2, 4.0), "outside": 24.0, "price": 1.0, "effectiveness": np.full(2, 0.8)}
    columns = [
        under_prior(env, start + step, drawn)[0] - under_prior(env, start, drawn)[0] for step in np.eye(2)
    ]
    np.testing.assert_allclose(np.stack(columns, axis=1), loop, atol=1e-12)


KINDS = ("idle", "flood", "corner", "seesaw", "contrary")


class Hostile(eqx.Module):
    """One compiled policy for all kinds."""

    kind: Any

    def __call__(self, observation, key):
        most = 1e6
        hot = observation[4:] > 24.0
        options = [
            jnp.zeros(2),
            jnp.full(2, most),
            jnp.where(jax.random.bernoulli(key, shape=(2,)), 0.0, most),
            jnp.where(observation[4] > observation[5], jnp.array([0.0, most]), jnp.array([most, 0.0])),
            jnp.where(hot, 0.0, most),
        ]
        return jnp.stack([jnp.asarray(option, observation.dtype) for option in options])[self.kind]


def test_no_hostile_policy_breaks_the_promise_at_the_corners_of_the_noise():
    env = Cooling()
    episodes = tether.data.Episodes(draw(np.random.default_rng(2), (EPISODES, 24), hottest=40.0))
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    for index, kind in enumerate(KINDS):
        policy = Hostile(jnp.asarray(index))
        unguarded = tether.rollout(env, policy, episodes, record="outcomes")
        for lam, b in CONTRACTS:
            contract = env.contract(lam, b)
            assert tether.audit(unguarded, prior, contract).violation_rate > 0.5
            for rule in RULES:
                certificate = tether.LipschitzCertificate(contract, env.sensitivity, rule)
                run = tether.rollout(env, policy, episodes, certificate, record="outcomes")
                assert tether.audit(run, prior, contract).holds, f"{kind}, {rule}, lam={lam}, b={b}"


def loosened(bounds, constant, factor):
    if constant == "rho":
        return dataclasses.replace(bounds, perturbation=tether.geometric(bounds.perturbation.rho / factor))
    return dataclasses.replace(bounds, **{constant: getattr(bounds, constant) / factor})


SIGNAL = 1.0  # a price that tells the attacker to strike

STRIKES = {"early": slice(None), "late": slice(-1, None)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("constant", "strike"), [("immediate", "late"), ("carried", "early"), ("rho", "early")]
)
def test_five_percent_of_a_constant_given_away_breaks_the_promise(constant, strike, rule):
    env, horizon = Cooling(), 8
    price = np.zeros((1, horizon))
    price[:, STRIKES[strike]] = SIGNAL
    # So hot that both units are at their limit: every inequality of the derivation is an equality.
    heat = {"heat_load": np.full((1, horizon, 2), 20.0), "outside": np.full((1, horizon), 60.0)}
    lossless = {"effectiveness": np.ones((1, horizon, 2))}
    episodes = tether.data.Episodes(heat | lossless | {"price": price})
    contract = env.contract(0.0, 0.5, horizon)
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")

    def verdict(bounds):
        certificate = tether.LipschitzCertificate(contract, bounds, rule)
        run = tether.rollout(env, signalled, episodes, certificate, record="outcomes")
        return tether.audit(run, prior, contract)

    kept, broken = verdict(env.sensitivity), verdict(loosened(env.sensitivity, constant, 1.05))
    assert kept.holds
    assert kept.worst_margin < 1e-5
    assert not broken.holds


def signalled(observation, key):
    """No cooling when the signal is given, else the prior."""
    return jnp.where(observation[3] == SIGNAL, 0.0, Cooling().prior(observation))


def wave(observation, key):
    return 4.0 + 3.9 * jnp.sin(jnp.array([3.0, 5.0]) * observation[:2] + observation[4:])


@pytest.mark.parametrize("horizon", [1, 24])
def test_a_slow_loop_gives_the_same_temperatures_rewards_and_costs(horizon):
    env = Cooling(discomfort=(1.0, 2.0))
    episodes = synthetic_cooling(0, 20, horizon)
    run = tether.rollout(env, wave, episodes)
    assert run.actions.shape == (20, horizon, 2)
    for i in range(len(episodes)):
        rooms = [24.0, 24.0]
        for h in range(horizon):
            load, share = (episodes[name][i, h].tolist() for name in ("heat_load", "effectiveness"))
            outside, price = (float(episodes[name][i, h]) for name in ("outside", "price"))
            assert run.observations[i, h] == pytest.approx([*load, outside, price, *rooms], abs=1e-9)
            cost, reward, after = 1.0, 0.0, []
            for this, other in ((0, 1), (1, 0)):
                a = float(run.actions[i, h, this])
                x = rooms[this] + 0.2 * (rooms[other] - rooms[this]) + 0.2 * (outside - rooms[this])
                x += 0.5 * (load[this] - share[this] * a)
                off = abs(x - 24.0) - 0.25
                cost += (1.0, 2.0)[this] * off if off > 0.0 else 0.0
                reward -= price * (a + 0.1 * a**2)
                after.append(x)
            assert run.costs[i, h] == pytest.approx(cost, abs=1e-9)
            assert run.rewards[i, h] == pytest.approx(reward, abs=1e-9)
            rooms = after


def test_the_thermostat_holds_the_setpoint_if_nothing_is_random_and_stays_in_its_box():
    env = Cooling()
    drawn = {
        "heat_load": np.array([2.0, 3.0]),
        "outside": 29.0,
        "price": 0.1,
        "effectiveness": np.full(2, 0.9),
    }
    temperatures, cost = under_prior(env, np.full(2, 24.0), drawn)
    np.testing.assert_allclose(temperatures, 24.0)
    assert cost == 1.0
    seen = [[0.0, 20.0, 0.0, 0.1, 24.0, 24.0], [0.0, 0.0, 24.0, 0.1, 10.0, 90.0]]
    np.testing.assert_allclose(env.prior(seen), [[0.0, 8.0], [0.0, 8.0]])


def test_the_online_guard_plays_what_the_compiled_rollout_plays():
    env, horizon = Cooling(), 24
    episodes = synthetic_cooling(1, 10)
    certificate = tether.LipschitzCertificate(env.contract(0.5, 0.5), env.sensitivity)
    run = tether.rollout(env, lambda observation, key: jnp.zeros(2), episodes, certificate)
    guard = tether.Guard(certificate, env.prior, env.low, env.high, env.norm, resolution=0.0)
    for i in range(len(episodes)):
        guard.reset()
        state = env.initial()
        for h in range(horizon):
            drawn = {name: episodes[name][i, h] for name in env.series}
            decision = guard.act(env.observe(state, drawn), np.zeros(2))
            state, reward, cost = env.step(state, drawn, decision.action)
            guard.observe(cost)
            np.testing.assert_allclose(decision.action, run.actions[i, h], atol=1e-9)
            assert (reward, cost) == pytest.approx((run.rewards[i, h], run.costs[i, h]), abs=1e-9)


def test_the_guard_lets_a_saver_save_and_the_promise_holds():
    env, episodes = Cooling(), synthetic_cooling(0, EPISODES)
    contract = env.contract(0.5, 0.5)
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    saver = Hostile(jnp.asarray(KINDS.index("idle")))
    unguarded = tether.rollout(env, saver, episodes, record="outcomes")
    assert tether.audit(unguarded, prior, contract).violation_rate > 0.5
    for rule in RULES:
        certificate = tether.LipschitzCertificate(contract, env.sensitivity, rule)
        run = tether.rollout(env, saver, episodes, certificate, record="outcomes")
        assert tether.audit(run, prior, contract).holds
        assert np.mean(run.returns) > np.mean(prior.returns) + 3.0


@pytest.mark.parametrize(("name", "value"), [("effectiveness", 0.7), ("heat_load", -1.0), ("price", -0.1)])
def test_episodes_outside_the_range_of_the_constants_are_refused(name, value):
    episodes = synthetic_cooling(0, 3, 5)
    series = {key: episodes[key].copy() for key in episodes.names}
    series[name][1, 2] = value
    with pytest.raises(ValueError, match=f"{name} must be between"):
        tether.rollout(Cooling(), wave, tether.data.Episodes(series))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"leak": 0.0}, "leak must be greater than 0"),
        ({"gain": -1.0}, "gain must be at least 0"),
        ({"wall": 0.9}, "wall \\+ leak must be at most 1"),
        ({"effectiveness_min": 1.5}, "effectiveness_min must be at most 1"),
        ({"discomfort": (1.0,)}, "discomfort must be two numbers"),
        ({"discomfort": (1.0, 0.0)}, "discomfort must be greater than 0"),
        ({"setpoint": np.inf}, "setpoint must be finite"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        Cooling(**parameters)


def test_generated_episodes_slide_by_one_hour_and_repeat_with_their_seed():
    first, again, other = synthetic_cooling(3, 50), synthetic_cooling(3, 50), synthetic_cooling(4, 50)
    Cooling().check(first)
    np.testing.assert_array_equal(first.start_hours, np.arange(50) % 24)
    for name in ("heat_load", "outside", "price"):
        np.testing.assert_array_equal(first[name][1:, :-1], first[name][:-1, 1:])
    for name in first.names:
        np.testing.assert_array_equal(first[name], again[name])
        assert not np.array_equal(first[name], other[name])
    with pytest.raises(ValueError, match="n must be at least 1"):
        synthetic_cooling(0, 0)
