"""The Gymnasium form of the systems is the functional one, and obeys Gymnasium's rules."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import types
import warnings

import gymnasium
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import tether
from tether.adapters.episode_env import EpisodeEnv, make_env
from tether.adapters.guarded import Guarded

RULES = ("paper", "released", "tight")
SYSTEMS = ("Carbon", "Inference", "Cooling")


def make(system="Carbon", **options):
    return gymnasium.make(f"tether/{system}-v0", **{"draws": 40} | options)


def wavering(env, xp):
    """A policy that swings over the whole box, the same in every array namespace.

    It depends much on what nature drew and little on the state, so that round-off does not grow from round to round.
    """
    low, high = env.action_space.low, env.action_space.high

    def policy(observation, key=None):
        phase = 3.0 * (observation[0] + observation[1]) + 0.05 * observation[-1] + xp.arange(low.size)
        return (low + (high - low) * (0.5 + 0.5 * xp.sin(phase))).reshape(env.unwrapped.system.action_shape)

    return policy


def play(env, policy, index):
    """One episode: observations, rewards and infos of its rounds."""
    observation, _ = env.reset(options={"episode": index})
    observations, rewards, infos, terminated = [], [], [], False
    while not terminated:
        observations.append(observation)
        observation, reward, terminated, truncated, info = env.step(policy(observation))
        assert not truncated
        rewards.append(reward)
        infos.append(info)
    return np.array(observations), np.array(rewards), infos


def close(first, second):
    np.testing.assert_allclose(np.squeeze(first), np.squeeze(second), rtol=1e-9, atol=1e-9)


@pytest.fixture
def fake_window(monkeypatch):
    """A Matplotlib backend that counts as one with windows but shows nothing."""
    import matplotlib.pyplot as plt
    from matplotlib.backends import backend_agg

    backend = types.ModuleType("fake_window")
    backend.FigureCanvas = type("FigureCanvas", (backend_agg.FigureCanvasAgg,), {})
    backend.pauses = []
    monkeypatch.setitem(sys.modules, "fake_window", backend)
    monkeypatch.setattr(plt, "pause", backend.pauses.append)
    before = mpl.rcParams._get("backend")
    plt.switch_backend("module://fake_window")
    yield backend
    plt.close("all")
    plt.switch_backend("agg")
    mpl.rcParams._set("backend", before)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_environment_passes_gymnasiums_checker_in_every_render_mode(system, fake_window):
    env = make(system, contract=tether.Contract(lam=1.0, b=1.0, horizon=24)).unwrapped
    with warnings.catch_warnings():
        # Actions are energies, not numbers between -1 and 1; for that there is gymnasium.wrappers.RescaleAction.
        warnings.filterwarnings("ignore", message=".*we recommend using a symmetric and normalized space")
        check_env(env)
    assert fake_window.pauses


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_functional_and_the_gymnasium_environment_give_the_same_trajectories(system):
    env = make(system)
    plain = env.unwrapped
    run = tether.rollout(plain.system, wavering(env, jnp), plain.episodes)
    for index in (0, 7, 39):
        observations, rewards, infos = play(env, wavering(env, np), index)
        close(observations, run.observations[index])
        close(rewards, run.rewards[index])
        close([info["cost"] for info in infos], run.costs[index])
        close([info["prior_action"] for info in infos], run.prior_actions[index])
        assert [info["round"] for info in infos] == list(range(1, 25))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_online_guard_and_the_compiled_rollout_decide_alike(system, rule):
    env = make(system)
    plain = env.unwrapped
    contract = plain.system.contract(lam=1.0, b=1.5)
    certificate = tether.LipschitzCertificate(contract, plain.system.sensitivity, rule)
    run = tether.rollout(plain.system, wavering(env, jnp), plain.episodes, certificate)
    env = Guarded(env, certificate, plain.system.prior, norm=plain.system.norm, resolution=0.0)
    replaced = 0
    for index in (0, 7, 39):
        observations, rewards, infos = play(env, wavering(env, np), index)
        decisions = [info["tether"] for info in infos]
        close(observations, run.observations[index])
        close(rewards, run.rewards[index])
        for name, values in (
            ("action", run.actions),
            ("prior_action", run.prior_actions),
            ("radius", run.radii),
            ("deviation", run.deviations),
            ("margin", run.margins),
        ):
            close([decision[name] for decision in decisions], values[index])
        moved = (run.actions != run.proposals)[index].reshape(24, -1).any(axis=1)
        assert [decision["intervened"] for decision in decisions] == moved.tolist()
        replaced += moved.sum()
    assert replaced > 24


def test_the_bound_in_info_is_the_audits():
    system = tether.envs.Carbon()
    contract = system.contract(lam=0.5, b=0.25)
    env = make(contract=contract)
    _, _, infos = play(env, wavering(env, np), 11)
    drawn = env.unwrapped.episodes[11]
    verdict = tether.audit(
        [[info["cost"] for info in infos]], tether.rollout(system, system.prior, drawn), contract
    )
    close([info["bound"] for info in infos], verdict.bounds)
    close([info["cumulative_cost"] for info in infos], verdict.cumulative_costs)


def test_the_seed_decides_the_draw_and_info_names_it():
    first, second = make(), make()
    seen = [first.reset(seed=5)[1]["episode_index"]] + [first.reset()[1]["episode_index"] for _ in range(20)]
    again = [second.reset(seed=5)[1]["episode_index"]] + [
        second.reset()[1]["episode_index"] for _ in range(20)
    ]
    assert seen == again
    assert len(set(seen)) > 5
    observation, _ = second.reset(options={"episode": seen[0]})
    assert np.array_equal(first.reset(seed=5)[0], observation)


def test_the_same_actions_give_the_same_episode():
    env = make()
    first, second = (play(env, wavering(env, np), 3) for _ in range(2))
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])


def test_the_given_episodes_are_used_and_other_data_makes_the_same_spaces():
    episodes = tether.data.synthetic_carbon(seed=9, n=5, horizon=6)
    env = make(episodes=episodes)
    assert env.unwrapped.episodes is episodes
    assert len(play(env, wavering(env, np), 4)[1]) == 6
    assert env.observation_space == make().observation_space


def test_actions_outside_the_box_are_clipped_as_in_the_rollout():
    env = make().unwrapped
    env.reset(options={"episode": 0})
    _, low_reward, *_ = env.step([-5.0])
    env.reset(options={"episode": 0})
    assert env.step([0.0])[1] == low_reward
    with pytest.raises(ValueError, match="finite, got"):
        env.step([np.nan])
    with pytest.raises(ValueError, match=r"shape \(1,\), got \(2,\)"):
        env.step([1.0, 2.0])


def test_stepping_without_an_episode_asks_for_a_reset():
    env = make().unwrapped
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step([1.0])
    play(env, env.prior, 0)
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step([1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsiode": 3}, "only option of reset is 'episode', got 'epsiode'"),
        ({"episode": 40}, "below 40, got 40"),
    ],
)
def test_a_wrong_reset_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        make().reset(options=options)


def test_wrong_arguments_are_named():
    system = tether.envs.Carbon()
    with pytest.raises(TypeError, match=r"tether\.envs\.Env"):
        EpisodeEnv("carbon", tether.data.synthetic_carbon)
    with pytest.raises(ValueError, match="horizon of 12 rounds, the episodes have 24"):
        make_env("carbon", contract=system.contract(1.0, 1.0, horizon=12), draws=3)
    with pytest.raises(ValueError, match="action_high must be above"):
        make_env("carbon", action_high=-1.0, draws=3)
    with pytest.raises(ValueError, match="observation_bounds may name demand"):
        EpisodeEnv(system, tether.data.synthetic_carbon, draws=3, observation_bounds={"wind": (0.0, 1.0)})
    with pytest.raises(ValueError, match="render_mode must be one of"):
        make_env("carbon", draws=3, render_mode="hologram")


def test_without_a_display_a_window_is_refused_with_the_alternatives():
    code = (
        "import tether.adapters.episode_env as g\n"
        "try: g.make_env('carbon', draws=2, render_mode='human')\n"
        "except RuntimeError as error: print(error)"
    )
    out = run_python(code, MPLBACKEND="agg")
    assert "no display here" in out
    assert '"rgb_array" or "ansi"' in out


def test_the_image_shows_what_happened():
    env = make(contract=tether.envs.Carbon().contract(1.0, 1.0), render_mode="rgb_array")
    env.reset(seed=0)
    empty = env.render()
    env.step(env.unwrapped.prior(env.unwrapped.observation_space.sample()))
    image = env.render()
    assert image.shape == empty.shape == (700, 850, 3)
    assert image.dtype == np.uint8
    assert not np.array_equal(image, empty)


def test_the_text_has_a_line_for_each_round():
    env = make("Cooling", contract=tether.Contract(lam=1.0, b=1.0, horizon=24), render_mode="ansi")
    env.reset(options={"episode": 2})
    for _ in range(3):
        env.step([1.0, 2.0])
    title, names, *rows = env.render().splitlines()
    assert title == "Cooling, episode 2, round 3 of 24"
    for name in ("heat_load_1", "price", "action 2", "prior's action 2", "cumulative cost", "bound"):
        assert name in names
    assert [int(row.split()[0]) for row in rows] == [1, 2, 3]


def test_rendering_without_a_mode_warns():
    env = make().unwrapped
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


def test_an_environment_in_the_middle_of_an_episode_can_be_copied(fake_window):
    env = make(render_mode="human").unwrapped
    env.reset(seed=1)
    env.step([2.0])
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert np.array_equal(twin.step([3.0])[0], copy.deepcopy(env).step([3.0])[0])
    env.close()
    env.close()


def test_the_vector_form_has_sub_environments_of_its_own():
    envs = gymnasium.make_vec("tether/Inference-v0", num_envs=3, draws=40)
    observations, infos = envs.reset(seed=3)
    single = [make("Inference").reset(seed=3 + i) for i in range(3)]
    assert np.array_equal(observations, [observation for observation, _ in single])
    assert infos["episode_index"].tolist() == [info["episode_index"] for _, info in single]
    _, rewards, _, _, infos = envs.step(np.ones((3, 1)))
    assert rewards.shape == infos["cost"].shape == (3,)


def test_the_id_can_name_its_module_and_jax_is_not_loaded():
    code = (
        "import gymnasium, sys\n"
        "env = gymnasium.make('tether.adapters.episode_env:tether/Carbon-v0', draws=3)\n"
        "env.reset(seed=0)\n"
        "env.step(env.action_space.sample())\n"
        "print('jax' in sys.modules)"
    )
    assert run_python(code).strip() == "False"


def run_python(code, **variables):
    import os

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | variables
    )
    return done.stdout
