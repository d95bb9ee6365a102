"""A certificate of one's own is as good as ours: in the guard, in the compiled rollout and around Gymnasium."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tether
import tether.adapters.episode_env  # registers tether/Carbon-v0
from adversary import HostileSystem, draw, hostile_policy
from online import play
from tether import AssumptionBreach, Guard, Reason
from tether.adapters.guarded import Guarded
from tether.certificates import Choice, Structured, StructuredState
from tether.core.ops import FLOATS, Ops
from tether.core.projection import nearest_safe
from tether.core.sensitivity import EstimatedSensitivity

# Nothing is carried from round to round: a deviation costs at most three times its size, and at once.
ENV = HostileSystem(gains=(0.5,) * 8, action_gain=0.0)
CONTRACT = ENV.contract(0.5, 1.0, 8)


class PotState(NamedTuple):
    rounds: Any
    spent: Any
    breached: Any


class PotTaken(NamedTuple):
    cost: Any


class Methods:
    """A pot into which every round pays what it earns; what a deviation can cost at most is taken out of it."""

    feature_names: ClassVar[tuple[str, ...]] = ("left",)
    backup_names: ClassVar[tuple[str, ...]] = ("prior",)
    revealed_names: ClassVar[tuple[str, ...]] = ()
    online_ops: ClassVar[Ops] = FLOATS

    def start(self, ops, zero):
        return PotState(zero, zero, zero > 0.0)

    def open(self, state, observation, ops, epsilon=0.0):
        left = (state.rounds + 1.0) * self.contract.earned * (1.0 - 1e-4) - state.spent
        return state, ops.where(state.breached, 0.0 * left, ops.maximum(left, 0.0))

    def choose(self, opened, proposal, prior, box, ops):
        state, left = opened
        action, deviation = nearest_safe(proposal, prior, left / self.slope, *box, ops)
        cost = self.slope * deviation
        return Choice(
            action, deviation, left / self.slope, left - cost, 0.0 * cost, PotTaken(cost), state.breached
        )

    def backup_action(self, opened, prior, box, ops):
        return prior

    def update(self, state, taken, outcome, ops):
        fine = outcome.cost >= self.contract.cost_floor - 1e-6
        return PotState(
            state.rounds + 1.0,
            state.spent + taken.cost,
            ops.logical_or(state.breached, ops.logical_not(fine)),
        )

    def features(self, opened, ops):
        return (opened[1],)

    def feature_units(self):
        return (self.contract.earned,)

    def to_dict(self):
        return {"kind": "pot", "slope": self.slope, "contract": dataclasses.asdict(self.contract)}

    def restore(self, state, taken):
        return PotState(**state), None if taken is None else PotTaken(*taken)


@dataclasses.dataclass(frozen=True)
class Pot(Methods):
    contract: tether.Contract
    slope: float


class PlainPot(Methods):
    def __init__(self, contract, slope):
        self.contract, self.slope = contract, slope


@dataclasses.dataclass(frozen=True)
class Timid(Structured):
    """A structured certificate that goes half of the way only; a subclass with a field of its own."""

    share: float = 0.5

    def choose(self, opened, proposal, prior, box, ops):
        return super().choose(opened, prior + self.share * (proposal - prior), prior, box, ops)


class Renamed(Structured):
    """A subclass that adds nothing."""


@pytest.fixture(scope="module")
def attack():
    episodes = draw(ENV, 300, np.random.default_rng(0))
    return episodes, tether.rollout(ENV, ENV.prior, episodes), hostile_policy(ENV)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Pot, PlainPot])
def test_it_keeps_the_promise_online_and_compiled_and_decides_alike(kind, attack):
    episodes, prior, policy = attack
    certificate = kind(CONTRACT, ENV.cost_slope)
    run = tether.rollout(ENV, policy, episodes, certificate)
    assert not run.breached.any()
    assert tether.audit(run, prior, CONTRACT).holds
    assert tether.audit(tether.rollout(ENV, policy, episodes), prior, CONTRACT).violation_rate > 0.5
    for i in range(20):
        guard = Guard(certificate, ENV.prior, ENV.low, ENV.high, ENV.norm)
        played = play(ENV, episodes, i, guard, lambda seen, h: policy(seen, None))
        np.testing.assert_allclose(
            [each.action for each in played.decisions], run.actions[i], rtol=1e-9, atol=1e-9
        )
        assert played.excess(CONTRACT) < 0.0
        assert guard.breach is None


def test_a_guard_of_its_own_is_saved_and_goes_on():
    certificate = Pot(CONTRACT, ENV.cost_slope)
    guard = Guard(certificate, lambda seen: 0.0)
    guard.act(None, 0.1)
    saved = json.loads(json.dumps(guard.state_dict(), allow_nan=False))
    again = Guard.from_state_dict(saved, guard.prior, certificate)
    for each in (guard, again):
        each.observe(1.2)
    assert guard.act(None, 9.0) == again.act(None, 9.0)
    assert guard.features(None)[0] == pytest.approx(2.0 * CONTRACT.earned - 0.3, rel=1e-3)
    with pytest.raises(ValueError, match="must be given as it is"):
        Guard.from_state_dict(saved, guard.prior)


class Wheel(gymnasium.Env):
    """A plant without a memory: what is played costs its size."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = spaces.Box(-9.0, 9.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        self.left = 8
        return np.zeros(1), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(1), float(action[0]), self.left == 0, False, {"cost": 1.0 + abs(float(action[0]))}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Pot, PlainPot])
def test_it_guards_a_gymnasium_environment(kind):
    env = Guarded(Wheel(), kind(CONTRACT, 1.0), lambda seen: np.zeros(1), append_memory=True)
    observation, _ = env.reset(seed=0)
    paid = 0.0
    for h in range(1, 9):
        assert observation in env.observation_space
        observation, *_, info = env.step([9.0])
        paid += info["cost"]
        assert paid <= CONTRACT.bound(1.0 * h, h)
        assert info["tether"]["breach"] is None
    assert paid == pytest.approx(CONTRACT.bound(8.0, 8), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Timid, Renamed])
def test_a_subclass_of_ours_plays_everywhere(kind):
    env = tether.envs.Carbon()
    episodes = tether.data.synthetic_carbon(seed=0, n=8)
    certificate = kind(env.contract(1.0, 1.0), env.structure)
    prior = tether.rollout(env, env.prior, episodes)
    run = tether.rollout(env, idle, episodes, certificate)
    assert tether.audit(run, prior, certificate.contract).holds
    assert np.max(run.deviations) > 0.1
    guard = Guard(certificate, env.prior, env.low, env.high, resolution=0.0)
    played = play(env, episodes, 0, guard, lambda seen, h: 0.0)
    np.testing.assert_allclose([each.action for each in played.decisions], run.actions[0], rtol=1e-4)
    wrapped = Guarded(gymnasium.make("tether/Carbon-v0", episodes=episodes), certificate, env.prior)
    wrapped.reset(options={"episode": 0})
    *_, info = wrapped.step([0.0])
    assert info["tether"]["action"][0] == pytest.approx(run.actions[0, 0], rel=1e-3)
    again = Guard.from_state_dict(guard.state_dict(), env.prior, certificate)
    assert isinstance(again._state, StructuredState)


def idle(observation, key):
    return 0.0


@pytest.mark.slow
def test_estimated_constants_play_as_proved_ones_do():
    env = tether.envs.Carbon()
    episodes = tether.data.synthetic_carbon(seed=0, n=8)
    proved = env.sensitivity
    estimated = EstimatedSensitivity(
        proved.immediate, proved.carried, proved.perturbation, safety=1.5, rows=99
    )
    runs = [
        tether.rollout(env, idle, episodes, tether.LipschitzCertificate(env.contract(1.0, 1.0), bounds))
        for bounds in (proved, estimated)
    ]
    np.testing.assert_array_equal(runs[0].actions, runs[1].actions)
    assert np.max(runs[1].deviations) > 0.0


def changed(**methods):
    """A pot of which some methods do something else."""
    return type("Changed", (PlainPot,), methods)(CONTRACT, 1.0)


def choosing(**fields):
    def choose(self, *arguments):
        return Methods.choose(self, *arguments)._replace(**fields)

    return changed(choose=choose)


def raising(self, *arguments):
    raise ArithmeticError("on purpose")


OPENING = {
    "open raises": changed(open=raising),
    "choose raises": changed(choose=raising),
    "no choice": changed(choose=lambda self, *arguments: None),
    "no action": choosing(action=None),
    "an action that is not finite": choosing(action=math.nan),
    "an action outside the bounds": choosing(action=17.0),
    "an action of another shape": choosing(action=[0.0, 0.0]),
    "a deviation that is no number": choosing(deviation="far"),
    "a margin of several numbers": choosing(margin=np.zeros(3)),
    "a backup that there is not": choosing(backup=1.0),
    "a backup that is not a number": choosing(backup=math.nan),
    "nothing taken": choosing(taken=None),
    "text taken": choosing(taken=("text",)),
    "a breach at once": choosing(breached=np.bool_(True)),
}
CLOSING = {
    "update raises": changed(update=raising),
    "no state": changed(update=lambda self, *arguments: None),
    "a state of another kind": changed(update=lambda self, *arguments: (1.0, 0.0, False)),
    "a round that is not counted": changed(update=lambda self, state, *rest: state),
    "a round that is counted twice": changed(update=lambda self, state, *rest: state._replace(rounds=2.0)),
    "a round that is not a number": changed(
        update=lambda self, state, *rest: state._replace(rounds=math.nan)
    ),
    "a breach later": changed(
        update=lambda self, state, *rest: state._replace(rounds=state.rounds + 1.0, breached=True)
    ),
}


@pytest.mark.parametrize("what", OPENING | CLOSING)
def test_whatever_it_does_wrong_is_a_breach_and_the_prior_plays_to_the_end(what):
    guard = Guard((OPENING | CLOSING)[what], lambda seen: 0.125, low=-9.0, high=9.0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        decisions = []
        for _ in range(8):
            decisions.append(guard.act(None, 0.25))
            guard.observe(1.5)
    assert [each.category for each in seen] == [AssumptionBreach]
    assert (guard.breach.round, guard.round) == (1, 9)
    late = decisions[1:] if what in CLOSING else decisions
    assert {each.action for each in late} == {0.125}
    assert {each.reason for each in late} == {Reason.BREACH}
    guard.reset()
    assert guard.breach is None


def test_a_state_that_cannot_say_it_was_breached_is_refused_at_once():
    with pytest.raises(TypeError, match=r"a certificate's state must have breached, _replace, _asdict"):
        Guard(changed(start=lambda self, ops, zero: type("State", (), {"rounds": 0.0})()), lambda seen: 0.0)
    lacking = type("Lacking", (), {"contract": CONTRACT, "start": lambda self, ops, zero: None})()
    with pytest.raises(TypeError, match=r"certificate must have feature_names, .*, restore as tether"):
        Guard(lacking, lambda seen: 0.0)


def test_features_that_cannot_be_told_are_zeros():
    assert Guard(changed(features=raising), lambda seen: 0.0).features(None) == (0.0,)
    assert Guard(changed(open=raising), lambda seen: 0.0).features(None) == (0.0,)


def test_a_structure_of_arrays_with_actions_of_one_number_is_computed_with_arrays():
    """Its gaps are arrays, so that plain floats will not do although the action is one."""

    @dataclasses.dataclass(frozen=True)
    class Cells(tether.certificates.Structure):
        kind: ClassVar[str] = "cells"
        scalar: ClassVar[bool] = False

        def start(self, zero):
            return (np.zeros(3) + zero,)

        def read(self, observation):
            return (np.asarray(observation, dtype=float),)

        def admits(self, seen, ops):
            return ops.all(ops.isfinite(seen[0]))

        def gaps_between(self, seen, prior_seen, ops):
            return (seen[0] - prior_seen[0],)

        def bounds(self, now, action, plan, ops):
            most = ops.max(ops.maximum(now.gaps[0], abs(action - now.prior)))
            return tether.certificates.Bounds((most - now.lam * now.cost_floor,), most + 9.0, (now.gaps[0],))

        def close(self, step, cost, epsilon, ops):
            return 0.0 * cost, (ops.maximum(step[0], 0.0),)

    guard = Guard(Structured(tether.Contract(1.0, 1.0, 4, 1.0), Cells()), lambda seen: 0.5)
    for _ in range(4):
        decision = guard.act(np.zeros(3), 9.0)
        assert decision.reason is Reason.TOO_FAR
        assert 1.5 < decision.action < 9.0
        guard.observe(1.0)
    assert guard.breach is None
