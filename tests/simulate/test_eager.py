"""The loop that is not compiled: the same episodes as the compiled one, through the same guard."""

from __future__ import annotations

import numpy as np
import pytest

import tether
from tether.simulate.eager import Many, eager

SYSTEMS = {
    "carbon": (tether.envs.Carbon(), tether.data.synthetic_carbon(0, 2)),
    "cooling": (tether.envs.Cooling(), tether.data.synthetic_cooling(0, 2)),
}


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("guarded", [False, True])
def test_it_plays_what_the_rollout_plays(name, guarded):
    env, episodes = SYSTEMS[name]
    certificate = tether.LipschitzCertificate(env.contract(0.5, 0.5), env.sensitivity) if guarded else None
    guard = None
    if certificate is not None:
        guard = tether.Guard(certificate, env.prior, env.low, env.high, env.norm, resolution=0.0)

    def less(observation, key=None):
        return 0.5 * env.prior(observation)

    run = tether.rollout(env, less, episodes, certificate)
    for i in range(len(episodes)):
        turns = list(eager(env, episodes[i], less, guard))
        assert [turn.round for turn in turns] == list(range(1, 25))
        np.testing.assert_allclose([turn.action for turn in turns], run.actions[i], atol=1e-9)
        np.testing.assert_allclose([turn.cost for turn in turns], run.costs[i], atol=1e-9)
        np.testing.assert_allclose([turn.observation for turn in turns], run.observations[i], atol=1e-9)
        assert all((turn.decision is None) is (guard is None) for turn in turns)


def test_what_a_meter_charges_is_what_the_guard_is_told():
    env, episodes = SYSTEMS["carbon"]
    guard = tether.Guard(tether.LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity), env.prior, 0.0)
    charged = eager(env, episodes[0], env.prior, guard, charge=lambda h, cost: 0.0 if h == 3 else cost)
    with pytest.warns(tether.AssumptionBreach):
        turns = list(charged)
    assert turns[2].cost == 0.0 < turns[2].step.cost
    assert guard.breach.round == 3


def test_only_one_episode_is_played_at_a_time():
    env, episodes = SYSTEMS["carbon"]
    with pytest.raises(ValueError, match=r"got 2; take episodes\[i\]"):
        next(eager(env, episodes, env.prior))


@pytest.mark.parametrize("name", SYSTEMS)
def test_many_rounds_at_once_are_each_what_a_single_one_is(name):
    env, episodes = SYSTEMS[name]
    many, drawn = Many(env), {name: episodes[name][:, 0] for name in env.series}
    state = many.initial(2)
    observations, actions = many.look(state, drawn)
    steps = many.step(state, drawn, actions)
    for i in range(2):
        now = {name: values[i] for name, values in drawn.items()}
        seen = env.observation(env.initial(), now)
        single = env.step(env.initial(), now, env.prior(seen))
        np.testing.assert_allclose(observations[i], seen)
        assert steps.cost[i] == pytest.approx(float(single.cost))
        np.testing.assert_allclose(steps.state[0][i], single.state[0])
