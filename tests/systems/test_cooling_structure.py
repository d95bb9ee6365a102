"""The structured certificate of the vector system, and structures whose gaps are arrays."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import tether
from structures import hostile_draws
from tether.assure.attack import Hostile, attack, plants
from tether.certificates import Box, Round, Structured
from tether.core.ops import FLOAT64, FLOATS, NUMPY
from tether.systems import registry
from tether.systems.carbon import CarbonStructure

SYSTEM = registry.find("cooling")
SYSTEMS = plants(SYSTEM)
ENV = SYSTEMS["standard"]


@pytest.mark.slow
def test_no_hostile_policy_breaks_the_promise_and_unguarded_ones_do():
    for lam, b in ((0.0, 1.0), (0.5, 0.1), (0.0, 0.0)):
        contract = ENV.contract(lam, b)
        found = attack(SYSTEM, "cooling", ENV, Structured(contract, ENV.structure), 4_000, 0, batch=2_000)
        assert found.violations == found.breaches == 0, found
        assert found.unguarded > 0.3


def online(env, episodes, i, guard):
    """Play episode i through the online guard; yields (decision, observation, state before) of each round."""
    state = env.initial()
    for h in range(episodes.horizon):
        drawn = {name: episodes[name][i, h] for name in env.drawn_names}
        observation = env.observation(state, drawn)
        before = guard._state
        decision = guard.act(observation, Hostile(ENV)(observation))
        state, _, cost = env.step(state, drawn, decision.action)
        guard.observe(cost)
        yield decision, observation, before


@pytest.mark.slow
def test_the_online_guard_and_the_compiled_rollout_decide_alike_and_what_is_played_was_checked():
    episodes = hostile_draws(ENV, 2_000, np.random.default_rng(2))
    contract = ENV.contract(0.0, 1.0)
    certificate, box = Structured(contract, ENV.structure), Box(ENV.low, ENV.high, ENV.norm)
    run = tether.rollout(ENV, Hostile(ENV), episodes, certificate)
    assert np.max(run.deviations) > 0.1
    for i in range(8):
        guard = tether.Guard(certificate, ENV.prior, ENV.low, ENV.high, ENV.norm, resolution=0.0)
        for decision, observation, before in online(ENV, episodes, i, guard):
            h = decision.round
            np.testing.assert_allclose(decision.action, run.actions[i, h - 1], rtol=0.0, atol=1e-3)
            assert decision.backup == "prior"
            if np.any(decision.action != decision.prior_action):
                opened = certificate.open(before, observation, FLOATS)
                assert (
                    certificate.weigh(opened, decision.prior_action, decision.action, box, FLOATS)[0] > -1e-6
                )


@pytest.mark.parametrize("lam", [0.0, 2.0])
def test_the_excess_of_a_round_is_the_largest_that_brute_force_finds(lam):
    """Rooms that are off by any amount, both effectivenesses on a grid."""
    env, count = tether.envs.Cooling(), 2_000
    rng = np.random.default_rng(0)
    x = env.setpoint + rng.choice([0.1, 1.0, 10.0], (2, count)) * rng.normal(size=(2, count))
    apart = rng.choice([0.0, 0.1, 2.0], (2, count)) * rng.normal(size=(2, count))
    load, outside = rng.choice([0.0, 3.0, 20.0], (2, count)), rng.choice([-10.0, 24.0, 60.0], count)
    action = rng.uniform(0.0, env.action_max, (2, count)) * rng.choice([0.0, 0.3, 1.0], (2, count))
    gaps = (apart[0], -apart[0], apart[1], -apart[1])
    now = Round(gaps, (*x, *load, outside), None, lam, 1.0, env.low, env.high)
    bounds = env.structure.bounds(now, list(action), 0, NUMPY)
    drawn = {"heat_load": load.T, "outside": outside, "price": 0.0 * outside}
    state, prior = (env.initial()._make((each.T,)) for each in (x, x - apart))
    wish = env.prior(env.observe(prior, {**drawn, "effectiveness": 0.0 * load.T}))
    worst, largest = np.full(count, -np.inf), np.zeros(count)
    for first in np.linspace(env.effectiveness_min, 1.0, 25):
        for second in np.linspace(env.effectiveness_min, 1.0, 25):
            drawn["effectiveness"] = np.broadcast_to([first, second], (count, 2))
            cost = step_cost(env, state, drawn, action.T)
            worst = np.maximum(worst, cost - (1.0 + lam) * step_cost(env, prior, drawn, wish))
            largest = np.maximum(largest, cost)
    assert np.all(bounds.totals[0] >= worst - 1e-10)
    assert np.median(bounds.totals[0] - worst) < 0.02
    np.testing.assert_allclose(bounds.ceiling, largest, atol=1e-10)


def step_cost(env, state, drawn, action):
    """Costs of many rooms at once, [count]; the environment's own formula, a case at a time, would take seconds."""
    stay, x = 1.0 - env.wall - env.leak, state[0]
    after = (
        stay * x
        + env.wall * x[:, ::-1]
        + env.leak * drawn["outside"][:, None]
        + env.heating * (drawn["heat_load"] - drawn["effectiveness"] * action)
    )
    return 1.0 + np.maximum(np.abs(after - env.setpoint) - env.band, 0.0) @ np.array(env.discomfort)


def test_far_weather_and_tiny_actions_do_not_make_the_gaps_seem_known():
    """Load and weather cancel in the temperature, and what is left has the round-off of both: it tells no effect."""
    env = tether.envs.Cooling()
    structure = env.structure
    load = 600.0 / env.heating
    outside = -600.0 / env.leak
    seen = (24.0, 24.0, load, load, outside)
    assert structure.admits(seen, FLOATS)
    off = FLOAT64 * 1200.0  # a unit or two of round-off of the sum
    for noise in (-off, 0.0, off):
        x = (1.0 - env.leak) * 24.0 + noise
        ran, rested = (
            structure.refine(
                (0.1, 0.1, 0.1, 0.1, *seen, action, action), (x, x, 0.0, 0.0, 24.0), FLOAT64, FLOATS
            )
            for action in (1e-13, 0.0)
        )
        assert ran == pytest.approx(rested, abs=1e-9)
    for strange in ((24.0, 24.0, 0.0, 0.0, 1e9), (24.0, 24.0, 1e9, 0.0, 24.0), (24.0, 24.0, -1.0, 0.0, 24.0)):
        assert not structure.admits(strange, FLOATS)
    assert structure.admits((24.0, 24.0, 20.0, 20.0, 60.0), FLOATS)


def test_the_next_temperatures_tell_what_a_unit_did():
    """While both units run, the gap is known: at its two ends it differs by round-off only."""
    env = tether.envs.Cooling()
    episodes = tether.data.synthetic_cooling(0, 1)
    guard = tether.Guard(
        Structured(env.contract(0.5, 0.5), env.structure), env.prior, 0.0, env.high, env.norm, resolution=0.0
    )
    state, widths, sizes = env.initial(), [], []
    for h in range(24):
        drawn = {name: episodes[name][0, h] for name in env.series}
        observation = env.observe(state, drawn)
        gaps = env.structure.refine(guard._state.gaps, env.structure.read(observation), FLOAT64, NUMPY)
        widths.append(max(gaps[0] + gaps[1], gaps[2] + gaps[3]))
        sizes.append(max(abs(gap) for gap in gaps))
        decision = guard.act(observation, 0.9 * env.prior(observation))
        assert np.all(decision.action > 0.1)
        state, _, cost = env.step(state, drawn, decision.action)
        guard.observe(cost)
    assert max(sizes) > 0.01
    assert max(widths) < 1e-7


def test_a_thermostat_that_is_not_the_structures_own_is_a_breach():
    env = tether.envs.Cooling()
    certificate = Structured(env.contract(0.5, 0.5), env.structure)
    guard = tether.Guard(certificate, lambda seen: env.prior(seen) + 0.01, env.low, env.high, env.norm)
    drawn = {
        name: values[0, 0]
        for name, values in ((n, tether.data.synthetic_cooling(0, 1)[n]) for n in env.series)
    }
    with pytest.warns(tether.AssumptionBreach, match="with the prior's action"):
        guard.act(env.observe(env.initial(), drawn), np.zeros(2))


def test_rooms_that_overshoot_have_no_structure():
    with pytest.raises(ValueError, match="a room that is hotter must stay hotter"):
        _ = tether.envs.Cooling(gain=3.2).structure


def carbon_guard():
    env = tether.envs.Carbon()
    return tether.Guard(Structured(env.contract(2.0, 2.0), env.structure), env.prior, low=0.0)


@dataclasses.dataclass(frozen=True)
class Packed(CarbonStructure):
    """The carbon structure with its two gaps in one array."""

    scalar = False

    def start(self, zero):
        return (np.stack(super().start(zero)),)

    def refine(self, gaps, seen, epsilon, ops):
        return (np.stack(super().refine(tuple(gaps[0]), seen, epsilon, ops)),)

    def bounds(self, now, action, plan, ops):
        bounds = super().bounds(now._replace(gaps=tuple(now.gaps[0])), action, plan, ops)
        return bounds._replace(step=(np.stack(bounds.step),))

    def close(self, step, cost, epsilon, ops):
        floor, gaps = super().close(tuple(step[0]), cost, epsilon, ops)
        return floor, (np.stack(gaps),)

    def gap_features(self, gaps, ops):
        return tuple(gaps[0])


def test_gaps_may_be_arrays_and_are_saved_and_restored():
    env, plain = tether.envs.Carbon(), carbon_guard()
    certificate = Structured(env.contract(2.0, 2.0), Packed(**dataclasses.asdict(env.structure)))
    packed = tether.Guard(certificate, env.prior, low=0.0)
    for demand, cost, backlog in ((4.0, 3.0, 0.0), (3.0, 2.0, 1.0), (3.0, 1.5, 0.6)):
        observation = [demand, 2.0, 0.0, backlog]
        assert packed.features(observation) == pytest.approx(plain.features(observation))
        assert packed.act(observation, 0.0).action == pytest.approx(
            plain.act(observation, 0.0).action, abs=1e-9
        )
        saved = json.loads(json.dumps(packed.state_dict()))
        packed = tether.Guard.from_state_dict(saved, env.prior, certificate)
        packed.observe(cost)
        plain.observe(cost)
    with pytest.raises(ValueError, match="saved with another certificate"):
        tether.Guard.from_state_dict(saved, env.prior, Structured(env.contract(2.0, 1.0), env.structure))
