from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether.learn.model import EnsembleModel, NoiseModel, model_of
from tether.simulate.rollout import play
from tether.systems.base import Step

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SYSTEMS = {
    "carbon": (tether.envs.Carbon(), tether.data.synthetic_carbon(seed=0, n=200)),
    "inference": (tether.envs.Inference(), tether.data.synthetic_inference(seed=0, n=200)),
}


def played(env, data, policy=None):
    """Series and transitions [H, N], in float64."""
    drawn = {name: jnp.asarray(np.swapaxes(data[name], 0, 1)) for name in env.drawn_names}
    return drawn, play(env, policy or env.prior, drawn, None, jnp.uint32(0), "transitions")


@pytest.fixture(scope="module", params=sorted(SYSTEMS))
def fitted(request):
    env, data = SYSTEMS[request.param]
    with jax.enable_x64(True):
        drawn, seen = played(env, data)
        model = NoiseModel(env, optimism=1.0, failure=0.05)
        fit = model.learn(model.start(), model.digest(drawn, seen), None)
        means = np.array([float(jnp.mean(drawn[name])) for name in env.hidden])
        deviations = np.array([float(jnp.std(drawn[name])) for name in env.hidden])
        return model, jax.tree.map(np.asarray, fit), means, deviations


@given(
    action=st.floats(0.0, 6.0),
    before=st.floats(0.0, 6.0),
    demand=st.floats(0.0, 6.0),
    renewables=st.floats(0.0, 5.0),
    shares=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
    rounds=st.sampled_from([0.0, 3.0]),
    system=st.sampled_from(sorted(SYSTEMS)),
)
@settings(max_examples=300)
def test_the_equations_of_a_round_hold_for_what_was_drawn(
    action, before, demand, renewables, shares, rounds, system
):
    env = SYSTEMS[system][0]
    state = type(env.initial())(before, 1.0, rounds)
    limits = env.limits()
    hidden = {
        name: limits[name][0] + share * (limits[name][1] - limits[name][0])
        for name, share in zip(env.hidden, shares, strict=True)
    }
    seen = {"demand": np.float64(demand), "renewables": np.float64(renewables)}
    step = env.step(state, seen | {name: np.float64(value) for name, value in hidden.items()}, action)
    told = env.evidence(state, seen, np.float64(action), Step(*step))
    values = np.array(list(hidden.values()))
    np.testing.assert_allclose(told.features @ values, told.targets, rtol=1e-9, atol=1e-9)
    assert told.features.shape == (len(told.targets), len(env.hidden))


def test_mean_and_spread_of_the_disturbances_are_found(fitted):
    model, fit, means, deviations = fitted
    with jax.enable_x64(True):
        found_means, found_deviations = model.estimate(fit)
    # What is revealed depends a little on what was drawn: a battery is full more often when it charges well.
    np.testing.assert_allclose(found_means, means, atol=0.015)
    np.testing.assert_allclose(found_deviations, deviations, rtol=0.3)


def test_the_confidence_set_holds_the_truth_and_shrinks(fitted):
    model, fit, means, _ = fitted
    with jax.enable_x64(True):
        belief = model.believe(fit)
        assert np.all(abs(means - belief.means) <= belief.widths)
        early = model.believe(jax.tree.map(lambda leaf: leaf / 100.0, fit)._replace(largest=fit.largest))
        assert np.all(belief.widths < early.widths)
        assert belief.widths[0] < 0.2 * early.widths[0]


def test_optimism_goes_as_far_as_the_confidence_set_and_the_limits_allow(fitted):
    model, fit, _, _ = fitted
    limits = [model.env.limits()[name] for name in model.env.hidden]
    with jax.enable_x64(True):
        belief = model.believe(fit)
        up, down = (np.asarray(model.optimistic(belief, jnp.asarray([sign, 0.0]))) for sign in (3.0, -3.0))
        assert up[0] == pytest.approx(min(float(belief.means[0] + belief.widths[0]), limits[0][1]))
        assert down[0] == pytest.approx(max(float(belief.means[0] - belief.widths[0]), limits[0][0]))
        assert up[1] == pytest.approx(float(belief.means[1]))
        far = np.asarray(model.optimistic(belief._replace(widths=9.0), jnp.asarray([1.0, -2.0])))
        np.testing.assert_allclose(far, [limits[0][1], limits[1][0]])
        blind = NoiseModel(model.env, optimism=0.0, failure=0.05)
        np.testing.assert_allclose(blind.optimistic(blind.believe(fit), jnp.ones(2)), belief.means)


def test_imagined_disturbances_are_distributed_as_fitted_and_within_limits(fitted):
    model, fit, means, deviations = fitted
    fit = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), fit)
    belief = model.believe(fit)
    seen = {"demand": jnp.ones((24, 2000)), "renewables": jnp.ones((24, 2000))}
    system, drawn = model.imagine(belief, belief.means, seen, jax.random.key(0), 0)
    assert system is model.env
    for i, name in enumerate(model.env.hidden):
        low, high = model.env.limits()[name]
        assert low - 1e-6 <= float(drawn[name].min()) <= float(drawn[name].max()) <= high + 1e-6
        assert float(drawn[name].mean()) == pytest.approx(means[i], abs=0.02)
        assert float(drawn[name].std()) == pytest.approx(deviations[i], rel=0.3)


def test_a_system_without_equations_gets_an_ensemble_that_learns_to_predict_it():
    env, data = tether.envs.Cooling(), tether.data.synthetic_cooling(seed=0, n=50)

    def wavering(observation, key):
        return env.prior(observation) + jax.random.normal(key, (2,))

    drawn, seen = played(env, data, wavering)
    found = model_of(env, drawn, seen, capacity=2 * 1200, optimism=1.0, failure=0.05)
    assert isinstance(found, EnsembleModel)
    model = EnsembleModel(env, found.inputs, found.outputs, found.capacity, members=2)
    news = model.digest(drawn, seen)
    learn = eqx.filter_jit(model.learn)
    fit = model.start()
    for i in range(2):
        fit = learn(fit, news, jax.random.key(i))
    assert int(fit.count) == 2 * 1200
    visible = {name: drawn[name] for name in env.visible}
    truth = seen["next_states"].temperature
    for member in range(model.candidates):
        system, imagined = model.imagine(model.believe(fit), jnp.zeros(0), visible, jax.random.key(1), member)
        silent = imagined | {"imagined": jnp.zeros_like(imagined["imagined"])}
        steps = jax.vmap(jax.vmap(system.step))(seen["states"], silent, seen["actions"])
        error = np.asarray(steps.state.temperature - truth).std(axis=(0, 1))
        assert np.all(error < 0.35 * np.asarray(truth).std(axis=(0, 1)))
        assert np.corrcoef(np.ravel(steps.cost), np.ravel(seen["costs"]))[0, 1] > 0.9
        assert float(steps.cost.min()) >= env.cost_floor


def test_a_system_that_hides_nothing_is_imagined_as_it_is():
    class Open(tether.envs.Carbon):
        hidden: ClassVar[dict] = {}

    model = model_of(Open(), {}, {}, 10, 1.0, 0.05)
    seen = {"demand": jnp.ones((3, 2))}
    belief = model.believe(model.learn(model.start(), model.digest(seen, {}), None))
    assert model.imagine(belief, model.optimistic(belief, jnp.zeros(0)), seen, None, 0) == (Open(), seen)
