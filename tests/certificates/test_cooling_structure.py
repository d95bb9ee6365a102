"""The structured certificate of the vector system, and structures whose gaps are arrays."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import tether
from structures import EPSILON, corners
from tether.certificates import CarbonStructure, Structured, falsify
from tether.certificates.falsify import ROUNDS, Situation
from tether.envs.cooling import CoolingState
from tether.experiments.attack import BOUNDS, Loosened, attack, hostile, hostile_episodes, systems

SYSTEMS = systems("cooling")
ENV = SYSTEMS["as it is"]
GAPS = {"above": "step 0", "below": "step 1"}


def draw_cooling(env, structure, rng, count):
    """Days that are hot, cold or usual throughout, or change; rooms that are off by any amount."""
    kinds = rng.integers(4, size=(1, count, 1))
    load, heat = rng.choice([0.0, 3.0, 20.0], size=(2, ROUNDS, count, 2))
    outside = rng.choice([-10.0, 24.0, 60.0], size=(ROUNDS, count))
    load = np.where(kinds == 0, 20.0, np.where(kinds == 1, 0.0, np.where(kinds == 2, heat[:1], load)))
    outside = np.where(kinds[..., 0] == 0, 60.0, np.where(kinds[..., 0] == 1, -10.0, outside))
    series = {
        "heat_load": load,
        "outside": outside,
        "price": np.zeros((ROUNDS, count)),
        "effectiveness": corners(rng, (ROUNDS, count, 2), env.effectiveness_min, 1.0, weights=(0.4, 0.4)),
        "script": np.zeros((ROUNDS, count)),
    }
    sizes = rng.choice([0.1, 1.0, 20.0], size=(2, count, 1)) * rng.choice([0.0, 1.0, 1.0], size=(2, count, 1))
    x = env.setpoint + sizes[0] * rng.normal(size=(count, 2))
    apart = sizes[1] * rng.normal(size=(count, 2))
    wider = rng.choice([0.0, 0.0, 0.3], size=(4, count)) * rng.exponential(size=(4, count))
    gaps = tuple(sign * apart[:, i] + wider[2 * i + (sign < 0)] for i in (0, 1) for sign in (1, -1))
    own, prior = CoolingState(x), CoolingState(x - apart)
    wished = env.prior(env.observe(own, {name: values[0] for name, values in series.items()}))
    action = wished + rng.choice([0.0, 0.1, 1.0, 8.0], size=(count, 1)) * rng.normal(size=(count, 2))
    return Situation(own, prior, gaps, series, np.clip(action, 0.0, env.action_max))


@pytest.mark.parametrize("name", SYSTEMS)
def test_random_search_finds_no_counterexample_to_any_bound(name):
    env = SYSTEMS[name]
    broken = falsify(env, env.structure, count=100_000, seed=0, draw=draw_cooling)
    assert all(worst <= 1e-9 for worst in broken.values()), broken


@pytest.mark.parametrize("bound", BOUNDS["cooling"])
def test_the_search_finds_a_counterexample_to_any_bound_loosened_by_five_percent(bound):
    broken = falsify(ENV, Loosened(ENV.structure, bound), count=50_000, seed=1, draw=draw_cooling)
    assert broken[GAPS.get(bound, bound)] > 0.01


def test_no_hostile_policy_breaks_the_promise_and_unguarded_ones_do():
    for lam, b in ((0.0, 1.0), (0.5, 0.1), (0.0, 0.0)):
        contract = ENV.contract(lam, b)
        found = attack("cooling", ENV, Structured(contract, ENV.structure), 4_000, 0, batch=2_000)
        assert found.violations == found.breaches == 0, found
        assert found.unguarded > 0.3


def online(env, episodes, i, guard):
    """Play episode i through the online guard; yields (decision, observation, state before) of each round."""
    state = env.initial()
    for h in range(episodes.horizon):
        drawn = {name: episodes[name][i, h] for name in env.drawn_names}
        observation = env.observation(state, drawn)
        before = guard._state
        decision = guard.act(observation, hostile(observation, None))
        state, _, cost = env.step(state, drawn, decision.action)
        guard.observe(cost)
        yield decision, observation, before


def test_the_online_guard_and_the_compiled_rollout_decide_alike_and_the_prior_stays_safe():
    episodes = hostile_episodes(ENV, 2_000, np.random.default_rng(2))
    contract = ENV.contract(0.0, 1.0)
    certificate, structure = Structured(contract, ENV.structure), ENV.structure
    run = tether.rollout(ENV, hostile, episodes, certificate)
    assert np.max(run.deviations) > 0.1
    for i in range(8):
        guard = tether.Guard(certificate, ENV.prior, ENV.low, ENV.high, ENV.norm)
        for decision, observation, before in online(ENV, episodes, i, guard):
            h = decision.round
            np.testing.assert_allclose(decision.action, run.actions[i, h - 1], rtol=0.0, atol=1e-9)
            seen = structure.read([float(entry) for entry in observation])
            gaps = structure.refine(before.gaps, seen, EPSILON, np)
            prior = decision.prior_action
            totals = structure.exposure(gaps, seen, prior, prior, np).totals
            for n, total in enumerate(totals[: contract.horizon - h + 1]):
                allowed = before.surplus + (n + 1) * contract.earned + (h - 1) * contract.b
                assert total <= allowed + 1e-8 * (1.0 + before.magnitude)


def test_the_next_temperatures_tell_what_a_unit_did():
    """While both units run, the gap is known: at its two ends it differs by round-off only."""
    env = tether.envs.Cooling()
    episodes = tether.data.synthetic_cooling(0, 1)
    guard = tether.Guard(
        Structured(env.contract(0.5, 0.5), env.structure), env.prior, 0.0, env.high, env.norm
    )
    state, widths, sizes = env.initial(), [], []
    for h in range(24):
        drawn = {name: episodes[name][0, h] for name in env.series}
        observation = env.observe(state, drawn)
        gaps = env.structure.refine(guard._state.gaps, env.structure.read(observation), EPSILON, np)
        widths.append(max(gaps[0] + gaps[1], gaps[2] + gaps[3]))
        sizes.append(max(abs(gap) for gap in gaps))
        decision = guard.act(observation, 0.9 * env.prior(observation))
        assert np.all(decision.action > 0.1)
        state, _, cost = env.step(state, drawn, decision.action)
        guard.observe(cost)
    assert max(sizes) > 0.01
    assert max(widths) < 1e-9


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

    def refine(self, gaps, seen, epsilon, xp):
        return (np.stack(super().refine(tuple(gaps[0]), seen, epsilon, xp)),)

    def exposure(self, gaps, seen, prior, action, xp):
        exposure = super().exposure(tuple(gaps[0]), seen, prior, action, xp)
        return exposure._replace(step=(np.stack(exposure.step),))

    def close(self, step, cost, epsilon, xp):
        floor, gaps = super().close(tuple(step[0]), cost, epsilon, xp)
        return floor, (np.stack(gaps),)

    def felt(self, gaps, xp):
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
