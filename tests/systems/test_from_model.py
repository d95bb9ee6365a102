"""A system that is nothing but a model: every part of tether takes it like one that was written by hand."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from tether.certificates.functions import TwoPrecisions
from tether.systems import from_model
from tether.systems.certified import certificate_of

HIGH = np.array([4.0, 2.0])


def outflow(x, z, a, w):
    return jnp.clip(x + z[0] - jnp.minimum(a, HIGH) + w, 0.0, 10.0)


TANKS = tether.Model(
    step=outflow,
    cost=lambda x, z, a, w: 1.0 + jnp.sum(abs(outflow(x, z, a, w) - 5.0)),
    prior=lambda x, z: jnp.clip(x + z[0] - 5.0, 0.0, HIGH),
    reward=lambda x, z, a, w: z[1] * jnp.sum(a) + 0.0 * w[0],
    state=(np.zeros(2), np.full(2, 10.0)),
    action=(np.zeros(2), HIGH),
    context=([0.0, 1.0], [2.0, 3.0]),
    draws=(np.full(2, -0.2), np.zeros(2)),
)


@pytest.fixture(scope="module")
def tanks():
    return from_model("two_small_tanks", "Tanks", TANKS, horizon=6, cost_floor=1.0)


def test_an_environment_has_the_names_shapes_and_ranges_of_its_model(tanks):
    env = tanks.env()
    assert tanks.env_name == "TwoSmallTanks"
    assert env.series == ("context", "draws")
    assert env.visible == ("context",)
    assert env.observation_names == ("state_1", "state_2", "context_1", "context_2")
    assert env.action_shape == (2,)
    assert np.array_equal(env.initial().state, [5.0, 5.0])
    assert env.contract(1.0, 2.0, 6).cost_floor == 1.0
    assert env.search_ranges()["state"] is TANKS.state
    assert tanks.draw(0, 3)["draws"].shape == (3, 6, 2)
    assert tanks.draw(0, 3, 4).horizon == 4
    assert np.array_equal(tanks.draw(7, 3)["context"], tanks.draw(7, 3)["context"])


@pytest.mark.slow
def test_a_round_in_numpy_is_the_one_that_is_compiled(tanks):
    env, episodes = tanks.env(), tanks.draw(0, 4)
    run = tether.rollout(env, env.prior, episodes)
    state, total = env.initial(), 0.0
    for h in range(6):
        drawn = {name: episodes[name][2, h] for name in env.series}
        observation = env.observation(state, drawn)
        state, reward, cost = env.step(state, drawn, env.prior(observation))
        assert np.asarray(state.state).dtype == np.float64
        assert cost == pytest.approx(run.costs[2, h], abs=1e-12)
        total += reward
    assert total == pytest.approx(run.returns[2], abs=1e-9)
    many = env.prior(run.observations)
    assert many.shape == (4, 6, 2)
    assert np.allclose(many, run.prior_actions)
    assert np.allclose(jax.jit(env.prior)(jnp.asarray(run.observations)), many, atol=1e-5)
    # In the other precision, after this one.
    coarse = tether.rollout(env, env.prior, episodes, precision="float32")
    assert np.allclose(coarse.costs, run.costs, atol=1e-4)


def test_arrays_of_numpy_that_a_model_uses_are_met_in_one_precision_each():
    gain = np.eye(2)

    halves, ones = np.array([0.5, 0.5]), np.ones(2)

    def half(x, *, by=halves):
        return by * x

    def used(x, more=ones):
        return jnp.minimum(gain @ half(x), HIGH) + more

    function = jax.jit(TwoPrecisions(used))
    for wide in (True, False, True):
        with jax.enable_x64(wide):
            found = function(np.array([2.0, 8.0], dtype="float64" if wide else "float32"))
            assert found.dtype == ("float64" if wide else "float32")
            assert np.array_equal(found, [2.0, 3.0])


def test_two_models_are_never_taken_for_the_same(tanks):
    other = from_model("two_small_tanks", "Tanks", replace(TANKS, prior=lambda x, z: 0.5 * HIGH), horizon=6)
    assert repr(tanks.env()) == repr(tanks.env())
    assert repr(tanks.env()) != repr(other.env())
    started = from_model("two_small_tanks", "Tanks", replace(TANKS, initial=np.array([1.0, 2.0])))
    assert repr(tanks.env()) != repr(started.env())
    assert tanks.env() == tanks.env()
    assert tanks.env() != other.env()


def test_a_context_follows_its_profile_and_stays_in_its_ranges():
    usual = np.stack([np.linspace(0.0, 2.0, 6), np.full(6, 2.0)], axis=1)
    low, high = usual - np.array([0.0, 1.0]), usual + np.array([0.1, 0.0])
    model = replace(TANKS, band=(low, high))
    drawn = from_model("t", "T", model, horizon=6).draw(0, 500)["context"]
    assert np.all((drawn >= low) & (drawn <= high) & (drawn <= [2.0, 3.0]))
    profiled = from_model("t", "T", TANKS, horizon=6, profile=lambda h: usual[h], noise=0.1).draw(0, 500)
    assert np.all(abs(profiled["context"] - usual) <= 0.2)
    assert np.ptp(profiled["context"][:, 3, 0]) > 0.3
    assert np.all((profiled["context"] >= [0.0, 1.0]) & (profiled["context"] <= [2.0, 3.0]))


def test_episodes_outside_the_band_are_refused_and_hostile_ones_are_moved_into_it():
    usual = np.stack([np.linspace(0.5, 1.5, 4), np.full(4, 2.0)], axis=1)
    banded = replace(TANKS, band=(usual - 0.2, usual + 0.2))
    system = from_model("t", "T", banded, horizon=4)
    env, episodes = system.env(), system.draw(0, 3)
    env.check(episodes)
    moved = {name: episodes[name].copy() for name in episodes.names}
    moved["context"][1, 2, 0] = 0.2
    with pytest.raises(
        ValueError, match=r"inside the band .* \(1, 2, 0\) it is 0.2, expected 0.966667 to 1.36667"
    ):
        env.check(tether.data.Episodes(moved))
    with pytest.raises(ValueError, match="band of the model is for 4 rounds, got episodes of 5"):
        system.draw(0, 3, 5)
    wild = {"context": np.random.default_rng(0).choice([0.0, 2.0], (50, 4, 2)) + np.array([0.0, 1.0])}
    system.traps(env, wild, np.random.default_rng(0))
    assert np.allclose(np.sort(np.unique(wild["context"][:, 0, 0])), [0.3, 0.7])
    assert np.all(abs(wild["context"] - usual) <= 0.2 + 1e-12)


def test_what_a_model_lacks_to_be_simulated_is_named():
    with pytest.raises(ValueError, match="needs a reward"):
        from_model("t", "T", replace(TANKS, reward=None))
    with pytest.raises(ValueError, match="initial must be a state"):
        from_model("t", "T", replace(TANKS, initial=11.0))
    with pytest.raises(ValueError, match="initial must be a state"):
        from_model("t", "T", replace(TANKS, initial=np.array([1.0, 11.0])))
    with pytest.raises(ValueError, match="nothing is drawn"):
        from_model("t", "T", replace(TANKS, context=(np.zeros(0),) * 2, draws=(np.zeros(0),) * 2))
    with pytest.raises(ValueError, match=r"profile must give \(24, 2\)"):
        from_model("t", "T", TANKS, profile=lambda h: h)
    with pytest.raises(ValueError, match="prior must play actions in the range"):
        from_model("t", "T", replace(TANKS, prior=lambda x, z: x + z[0] - 5.0))
    with pytest.raises(ValueError, match=r"prior must give an action of shape \(2,\)"):
        from_model("t", "T", replace(TANKS, prior=lambda x, z: 0.0 * z[0]))
    with pytest.raises(TypeError, match="model must be a tether"):
        from_model("t", "T", lambda x: x)
    with pytest.raises(NotImplementedError, match="--certificate compiled"):
        _ = from_model("t", "T", TANKS).env().sensitivity


def test_an_episode_that_leaves_a_range_of_vectors_is_refused_with_its_place(tanks):
    episodes = tanks.draw(0, 3)
    outside = {name: episodes[name].copy() for name in episodes.names}
    outside["draws"][2, 1, 1] = 0.5
    with pytest.raises(ValueError, match=r"draws must be between -0.2 and 0 .* \(2, 1, 1\) it is 0.5"):
        tanks.env().check(tether.data.Episodes(outside))


def test_a_certificate_is_found_by_its_name_or_refused():
    env = tether.envs.Carbon()
    contract = env.contract(1.0, 1.0)
    assert type(certificate_of("lipschitz", env, contract, "paper")).__name__ == "LipschitzCertificate"
    assert certificate_of("lipschitz", env, contract, "paper").rule == "paper"
    assert certificate_of("structured", env, contract, resolution=1e-3).resolution == 1e-3
    assert certificate_of("shadowing", env, contract).env == env
    with pytest.raises(ValueError, match="certificate must be one of"):
        certificate_of("guessed", env, contract)


def test_a_model_of_an_environment_ignores_what_is_only_shown():
    env = replace(tether.envs.Carbon(), context=("clock_sin",))
    assert env.model().sizes == tether.envs.Carbon().model().sizes


@pytest.mark.slow
def test_gymnasium_takes_it(tanks):
    from tether.adapters.episode_env import EpisodeEnv

    bounds = tanks.observation_bounds(tanks.env(), None)
    plant = EpisodeEnv(tanks.env(), tanks.draw, draws=5, observation_bounds=bounds)
    assert plant.observation_space.high.tolist() == [10.0, 10.0, 2.0, 3.0]
    observation, _ = plant.reset(seed=0)
    assert plant.observation_space.contains(observation)
    _, reward, _, _, info = plant.step(plant.prior(observation))
    assert np.isfinite(reward)
    assert info["cost"] >= 1.0
