"""The guard around any Gymnasium environment, single or vector."""

from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import Autoreset, RescaleAction, TimeLimit

import tether
import tether.adapters.episode_env
from tether.adapters.guarded import Guarded
from tether.adapters.guarded_vector import GuardedVector
from tether.adapters.sb3 import policy_from_sb3

HORIZON = 6
CONTRACT = tether.Contract(lam=0.5, b=0.2, horizon=HORIZON, cost_floor=0.5)
BOUNDS = tether.Sensitivity(immediate=1.0, carried=0.5, perturbation=tether.geometric(0.5))
CERTIFICATE = tether.LipschitzCertificate(CONTRACT, BOUNDS)


class Drift(gymnasium.Env):
    """x' = x/2 + mean(a) + w: a small system of the user's own, whose steps report as `report` says."""

    def __init__(self, shape=(1,), dtype=np.float64, report="info", rounds=HORIZON, bound=2.0):
        self.action_space = spaces.Box(-bound, bound, shape, dtype)
        self.observation_space = spaces.Box(-10.0, 10.0, (2,), dtype)
        self.report, self.rounds = report, rounds
        self.played = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.left = 0.0, self.rounds
        self.noise = self.np_random.uniform(-0.1, 0.1, 64).tolist()
        return self._observation(), {}

    def _observation(self):
        return np.array([self.x, self.left], self.observation_space.dtype)

    def step(self, action):
        assert action in self.action_space
        self.played.append(np.array(action))
        self.x = 0.5 * self.x + float(np.mean(action)) + self.noise.pop()
        self.left -= 1
        cost = 0.5 + abs(self.x)
        first, last = (self._observation(), float(np.sum(action))), (self.left == 0, False)
        if self.report == "six":
            return *first, cost, *last, {}
        if self.report == "four":
            return *first, self.left == 0, {}
        return (
            *first,
            *last,
            {} if self.report is None else {"cost" if self.report == "info" else self.report: cost},
        )


def prior(observation):
    return np.zeros(1)


def guarded(env=None, policy=prior, **options):
    return Guarded(env or Drift(), CERTIFICATE, policy, **options)


def play(env, proposals, seed=0):
    """The infos of an episode."""
    env.reset(seed=seed)
    infos = []
    for proposal in proposals:
        *_, terminated, truncated, info = env.step(proposal)
        infos.append(info)
        if terminated or truncated:
            break
    return infos


def test_info_tells_what_was_decided_and_what_it_cost():
    env = guarded()
    infos = play(env, [[2.0], [0.0], [np.nan], [9.0], "?", [0.01]])
    reports = [info["tether"] for info in infos]
    assert [report["reason"] for report in reports] == [
        "too far", "safe", "invalid proposal", "out of bounds", "invalid proposal", "safe",
    ]  # fmt: skip
    assert [report["round"] for report in reports] == [1, 2, 3, 4, 5, 6]
    for report, played, info in zip(reports, env.unwrapped.played, infos, strict=True):
        assert np.array_equal(report["action"], played)
        assert np.array_equal(report["prior_action"], [0.0])
        assert report["cost"] == info["cost"]
        assert report["intervened"] == (report["reason"] != "safe")
        assert set(tether.Decision._fields) <= set(report)
    assert reports[0]["proposal"] == [2.0]
    assert 0.0 < reports[0]["deviation"] <= reports[0]["radius"]
    assert reports[-1]["counts"] == {
        "safe": 2, "too far": 1, "out of bounds": 1, "invalid proposal": 2, "breach": 0, "override": 0,
    }  # fmt: skip
    assert reports[-1]["breach"] is None


def test_counts_in_info_are_of_the_episode_and_the_guards_of_all():
    env = guarded()
    for seed in range(3):
        infos = play(env, [[2.0]] * HORIZON, seed)
    assert infos[-1]["tether"]["counts"]["too far"] == HORIZON
    assert env.guard.counts[tether.Reason.TOO_FAR] == 3 * HORIZON


def test_the_reward_is_that_of_the_executed_action():
    env = guarded()
    env.reset(seed=0)
    _, reward, *_, info = env.step([2.0])
    assert reward == info["tether"]["action"][0] < 2.0


@pytest.mark.parametrize(
    ("report", "cost"),
    [
        ("info", None),
        ("six", None),
        ("carbon", "carbon"),
        (None, lambda before, action, after, info: np.array([0.5 + abs(after[0])])),
    ],
)
def test_the_cost_may_come_in_any_of_the_ways(report, cost):
    expected = [info["tether"] for info in play(guarded(), [[2.0]] * HORIZON)]
    infos = play(guarded(Drift(report=report), cost=cost), [[2.0]] * HORIZON)
    for info, reference in zip(infos, expected, strict=True):
        assert info["tether"]["cost"] == info["cost"] == reference["cost"]
        assert np.array_equal(info["tether"]["action"], reference["action"])


def test_a_cost_function_sees_both_observations_and_the_executed_action():
    seen = []

    def cost(*arguments):
        seen.append(arguments)
        return 1.0

    env = guarded(cost=cost)
    first, _ = env.reset(seed=0)
    second, *_, info = env.step([2.0])
    before, action, after, inner = seen[0]
    assert np.array_equal(before, first)
    assert np.array_equal(after, second)
    assert np.array_equal(action, info["tether"]["action"])
    assert inner["cost"] == info["cost"]


def test_a_missing_cost_is_an_error_that_says_what_was_expected():
    env = guarded(Drift(report="carbon"))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected info\['cost'\], but info has 'carbon'; give cost="):
        env.step([0.0])
    env = guarded(Drift(report=None), cost="price")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected info\['price'\], but info has nothing"):
        env.step([0.0])


def test_a_step_of_four_values_is_refused():
    env = guarded(Drift(report="four"))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="returned 4 values"):
        env.step([0.0])


def test_a_cost_below_the_floor_is_a_breach_and_the_prior_goes_on():
    env = guarded(cost=lambda before, action, after, info: 0.0)
    env.reset(seed=0)
    with pytest.warns(tether.AssumptionBreach, match="the cost was 0"):
        *_, info = env.step([0.1])
    assert info["tether"]["breach"]["round"] == 1
    *_, info = guarded_step_after_breach(env)
    assert info["tether"]["reason"] == "breach"
    assert np.array_equal(info["tether"]["action"], [0.0])


def guarded_step_after_breach(env):
    with pytest.warns(tether.AssumptionBreach):
        return env.step([0.1])


def test_an_episode_beyond_the_horizon_is_an_error_when_it_happens():
    env = guarded(Drift(rounds=HORIZON + 1))
    play(env, [[0.0]] * HORIZON)
    with pytest.raises(tether.GuardMisuse, match=r"nothing is promised for round 7; .*TimeLimit\(env, 6\)"):
        env.step([0.0])
    assert len(env.unwrapped.played) == HORIZON
    assert len(play(guarded(TimeLimit(Drift(rounds=99), HORIZON)), [[0.0]] * 99)) == HORIZON


def test_a_shorter_episode_is_fine_but_has_to_be_reset():
    env = guarded(Drift(rounds=2))
    assert len(play(env, [[0.0]] * 9)) == 2
    with pytest.raises(tether.GuardMisuse, match="call reset"):
        env.step([0.0])
    assert len(play(env, [[0.0]] * 9)) == 2


def test_an_autoreset_inside_the_guard_is_refused_and_outside_it_works():
    inner = guarded(Autoreset(Drift()))
    play(inner, [[0.0]] * HORIZON)
    with pytest.raises(tether.GuardMisuse):
        inner.step([0.0])
    outer = Autoreset(guarded())
    outer.reset(seed=0)
    for _ in range(3 * HORIZON):
        outer.step(np.array([1.0]))


def test_stepping_before_the_first_reset_is_refused():
    with pytest.raises(ResetNeeded, match="call reset"):
        guarded().step([0.0])


@pytest.mark.parametrize("space", [spaces.MultiBinary(3), spaces.Box(0, 5, (1,), np.int64)])
def test_actions_that_are_no_box_of_reals_are_refused_at_construction(space):
    env = Drift()
    env.action_space = space
    with pytest.raises(TypeError, match=r"must be a gymnasium\.spaces\.Box of floating-point numbers"):
        guarded(env)


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="prior must be callable"):
        Guarded(Drift(), CERTIFICATE, 3.0)
    with pytest.raises(TypeError, match="cost must be None"):
        guarded(cost=3.0)
    with pytest.raises(ValueError, match="norm must be one of"):
        guarded(norm="l3")
    with pytest.raises(TypeError, match=r"certificate must have .* as tether\.certificates\.Certificate has"):
        Guarded(Drift(), CONTRACT, prior)


def test_a_prior_that_fails_leaves_the_environment_alone():
    env = guarded(policy=lambda observation: [1.0, 2.0])
    env.reset(seed=0)
    with pytest.warns(tether.AssumptionBreach), pytest.raises(tether.PriorFailed, match=r"shape \(1,\)"):
        env.step([0.0])
    assert env.unwrapped.played == []


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
def test_boxes_of_every_shape_work_and_the_prior_may_be_flat(shape):
    size = int(np.prod(shape))
    env = guarded(Drift(shape), lambda observation: np.full(size, 0.25))
    info = play(env, [np.full(shape, 2.0)] * HORIZON)[-1]
    assert info["tether"]["action"].shape == info["tether"]["prior_action"].shape == shape
    assert np.all(info["tether"]["action"] > 0.25)


def test_in_single_precision_the_played_action_is_never_farther_than_allowed():
    rng = np.random.default_rng(0)
    env = guarded(Drift((3,), np.float32, bound=0.7), lambda observation: rng.uniform(-0.7, 0.7, 3))
    for seed in range(50):
        for info in play(env, [rng.uniform(-0.7, 0.7, 3) for _ in range(HORIZON)], seed):
            report = info["tether"]
            assert report["action"].dtype == np.float32
            off = np.linalg.norm(report["action"].astype(float) - report["prior_action"].astype(float))
            assert off <= report["deviation"] * (1.0 + 1e-15) <= report["radius"] * (1.0 + 1e-15)
            assert report["breach"] is None
    env = guarded(
        Drift((1,), np.float32, bound=0.7), lambda observation: 0.7
    )  # above the bound as float32 has it
    assert play(env, [[0.7]] * HORIZON)[-1]["tether"]["breach"] is None


def test_the_prior_gets_the_raw_observation_whatever_the_learner_does_to_its_own():
    seen = []

    def watching(observation):
        seen.append(observation.copy())
        return prior(observation)

    env = guarded(policy=watching, append_memory=True)
    observation, _ = env.reset(seed=0)
    raw = observation[:2].copy()
    observation *= 0.0
    env.step([1.0])
    assert np.array_equal(seen[0], raw)

    env = guarded(policy=watching)
    observation, _ = env.reset(seed=0)
    observation += 1.0
    env.step([1.0])
    assert np.array_equal(seen[1], raw)


def test_the_memory_is_appended_scaled_and_within_the_space():
    env = guarded(append_memory=True)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.shape == (5,)
    unit = CONTRACT.earned
    allowance, margin, carried = env.guard.features(None)
    assert observation[2:] == pytest.approx(np.log1p([allowance / unit, margin / unit, 0.0]))
    observation, *_ = env.step([1.0])
    _, _, carried = env.guard.features(None)
    assert carried > 0.0
    assert observation[4] == pytest.approx(
        np.log1p(carried / (unit / CERTIFICATE.total(CERTIFICATE.start())))
    )
    for _ in range(HORIZON - 1):
        assert observation in env.observation_space
        observation, *_ = env.step([1.0])
    assert observation in env.observation_space
    assert observation[2:].tolist() == [0.0, 0.0, 0.0]


def test_the_memory_works_with_a_table_and_with_nothing_earned_in_single_precision():
    contract = tether.Contract(lam=1.0, b=0.0, horizon=HORIZON)
    bounds = tether.Sensitivity(1.0, 0.5, tether.table([1.0] * HORIZON))
    env = Guarded(
        Drift(dtype=np.float32), tether.LipschitzCertificate(contract, bounds), prior, append_memory=True
    )
    observation, _ = env.reset(seed=0)
    for _ in range(HORIZON):
        assert observation in env.observation_space
        assert np.all(np.isfinite(observation))
        observation, *_ = env.step([1.0])
    assert observation.dtype == np.float32


def test_the_memory_needs_observations_that_are_a_vector():
    env = Drift()
    env.observation_space = spaces.Box(0.0, 1.0, (2, 2))
    with pytest.raises(TypeError, match="FlattenObservation"):
        guarded(env, append_memory=True)


def carbon(**options):
    return gymnasium.make("tether/Carbon-v0", **{"draws": 200} | options)


def carbon_certificate(lam=0.5, b=0.5, rule="tight"):
    system = tether.envs.Carbon()
    return tether.LipschitzCertificate(system.contract(lam, b), system.sensitivity, rule)


def guarded_carbon(**options):
    env = carbon()
    return Guarded(env, carbon_certificate(), env.unwrapped.prior, **options)


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.filterwarnings("ignore:.*we recommend using a symmetric and normalized space")
@pytest.mark.filterwarnings("ignore:.*observation space maximum value is infinity")
@pytest.mark.parametrize("append_memory", [False, True])
def test_a_guarded_environment_passes_gymnasiums_checker(append_memory):
    env = guarded_carbon(append_memory=append_memory)
    check_env(env, skip_render_check=True)
    assert isinstance(env.spec.make(), Guarded)


def test_a_random_policy_keeps_the_promise_and_without_the_guard_does_not():
    env = RescaleAction(guarded_carbon(), -1.0, 1.0)
    free = RescaleAction(carbon(), -1.0, 1.0)
    rates = []
    for one in (env, free):
        one.action_space.seed(0)
        costs = [
            [info["cost"] for info in play(one, (one.action_space.sample() for _ in range(24)), seed)]
            for seed in range(60)
        ]
        plain = one.unwrapped
        indices = [one.reset(seed=seed)[1]["episode_index"] for seed in range(60)]
        replay = tether.rollout(plain.system, plain.system.prior, plain.episodes[indices])
        rates.append(tether.audit(costs, replay, carbon_certificate().contract).violation_rate)
    assert rates[0] == 0.0
    assert rates[1] > 0.5


def test_a_guarded_environment_can_be_copied_in_the_middle_of_an_episode():
    env = guarded_carbon(append_memory=True)
    env.reset(seed=4)
    for _ in range(5):
        env.step([1.0])
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = play_on(env)
    for twin in twins:
        assert play_on(twin) == expected
        assert twin.guard is not env.guard


def play_on(env):
    steps = [env.step([2.0]) for _ in range(10)]
    return [(step[0].tolist(), step[1], step[4]["tether"]["radius"]) for step in steps]


MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


@pytest.mark.parametrize("append_memory", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_the_vector_form_does_what_guarded_sub_environments_do(mode, append_memory):
    certificate, system = carbon_certificate(), tether.envs.Carbon()

    def single():
        return Guarded(carbon(), certificate, system.prior, append_memory=append_memory)

    reference = SyncVectorEnv([single] * 3, autoreset_mode=mode)
    envs = GuardedVector(
        SyncVectorEnv([carbon] * 3, autoreset_mode=mode),
        certificate,
        system.prior,
        append_memory=append_memory,
    )
    assert envs.observation_space == reference.observation_space
    assert envs.single_observation_space == reference.single_observation_space
    rng = np.random.default_rng(0)
    assert np.array_equal(envs.reset(seed=1)[0], reference.reset(seed=1)[0])
    rounds_played = 0
    for step in range(60):
        proposals = rng.uniform(0.0, 10.0, (3, 1))
        if step % 7 == 0:
            proposals[1] = np.nan
        got, expected = envs.step(proposals), reference.step(proposals)
        for mine, theirs in zip(got[:4], expected[:4], strict=True):
            assert np.array_equal(mine, theirs)
        over = got[2] | got[3]
        mask = got[4]["_tether"]
        rounds_played += mask.sum()
        theirs = expected[4].get("tether", {})
        if mode == AutoresetMode.SAME_STEP and over.any():
            theirs = expected[4]["final_info"]["tether"]
            assert np.array_equal(got[4]["final_obs"][0], expected[4]["final_obs"][0])
        assert mask.all() == (mode != AutoresetMode.NEXT_STEP or (step + 1) % 25 != 0)
        if mask.any():
            for name in (
                "action",
                "prior_action",
                "radius",
                "deviation",
                "margin",
                "intervened",
                "round",
                "cost",
            ):
                assert np.array_equal(got[4]["tether"][name], theirs[name])
            assert got[4]["tether"]["reason"].tolist() == theirs["reason"].tolist()
        if mode == AutoresetMode.DISABLED and over.any():
            again = [one.reset(options={"reset_mask": over.copy()})[0] for one in (envs, reference)]
            assert np.array_equal(*again)
    assert rounds_played >= 3 * 57


def test_only_the_masked_guards_begin_a_new_episode():
    envs = GuardedVector(
        SyncVectorEnv([Drift] * 2, autoreset_mode=AutoresetMode.DISABLED), CERTIFICATE, prior
    )
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(np.zeros((2, 1)))
    envs.reset(options={"reset_mask": np.array([True, False])})
    assert [guard.round for guard in envs.guards] == [1, 3]
    envs.reset()
    assert [guard.round for guard in envs.guards] == [1, 1]


def test_a_sub_environment_that_has_to_be_reset_by_hand_is_not_stepped():
    envs = GuardedVector(
        SyncVectorEnv([Drift] * 2, autoreset_mode=AutoresetMode.DISABLED), CERTIFICATE, prior
    )
    envs.reset(seed=0)
    for _ in range(HORIZON):
        envs.step(np.zeros((2, 1)))
    with pytest.raises(tether.GuardMisuse, match="call reset"):
        envs.step(np.zeros((2, 1)))


def test_sub_environments_of_different_lengths_keep_their_own_rounds():
    lengths = (2, 3, HORIZON)
    envs = GuardedVector(SyncVectorEnv([lambda n=n: Drift(rounds=n) for n in lengths]), CERTIFICATE, prior)
    envs.reset(seed=0)
    rounds = []
    for _ in range(14):
        *_, infos = envs.step(np.ones((3, 1)))
        rounds.append(np.where(infos["_tether"], infos["tether"].get("round", 0), 0))
    for column, length in zip(np.array(rounds).T, lengths, strict=True):
        cycle = [*range(1, length + 1), 0]
        assert column.tolist() == (cycle * 14)[:14]


def test_the_vector_form_takes_a_cost_function_of_one_sub_environment():
    def cost(before, action, after, info):
        assert before.shape == after.shape == (2,)
        assert action.shape == (1,)
        return 0.5 + abs(after[0]) + 0.0 * info["carbon"]

    envs = GuardedVector(SyncVectorEnv([lambda: Drift(report="carbon")] * 2), CERTIFICATE, prior, cost=cost)
    envs.reset(seed=0)
    *_, infos = envs.step(np.ones((2, 1)))
    assert np.array_equal(infos["tether"]["cost"], infos["carbon"])
    assert np.array_equal(infos["cost"], infos["carbon"])


class SixValues(SyncVectorEnv):
    """A vector environment whose step returns the costs as Safety-Gymnasium's does."""

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = super().step(actions)
        return observations, rewards, infos.pop("carbon"), terminated, truncated, infos


def test_the_vector_form_takes_steps_of_six_values():
    envs = GuardedVector(SixValues([lambda: Drift(report="carbon")] * 2), CERTIFICATE, prior)
    reference = GuardedVector(SyncVectorEnv([Drift] * 2), CERTIFICATE, prior)
    for one in (envs, reference):
        one.reset(seed=0)
    for _ in range(HORIZON):
        got, expected = envs.step(np.ones((2, 1))), reference.step(np.ones((2, 1)))
        assert len(got) == 5
        assert np.array_equal(got[4]["cost"], expected[4]["cost"])
        assert np.array_equal(got[4]["tether"]["action"], expected[4]["tether"]["action"])


def test_the_vector_form_refuses_what_it_cannot_follow():
    envs = SyncVectorEnv([Drift] * 2)
    ready = GuardedVector(envs, CERTIFICATE, prior)
    ready.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(2, 1\), got \(3, 1\)"):
        ready.step(np.zeros((3, 1)))
    with pytest.raises(ResetNeeded):
        GuardedVector(envs, CERTIFICATE, prior).step(np.zeros((2, 1)))
    envs.metadata = {"autoreset_mode": "sometimes"}
    with pytest.raises(ValueError, match="AutoresetMode, got 'sometimes'"):
        GuardedVector(envs, CERTIFICATE, prior)
    envs.metadata = {}
    with pytest.raises(ValueError, match="AutoresetMode, got None"):
        GuardedVector(envs, CERTIFICATE, prior)


def test_a_model_becomes_a_function():
    class Model:
        def predict(self, observation, deterministic=False):
            return np.array([2.0 if deterministic else 3.0]), None

    assert policy_from_sb3(Model())([1.0]).tolist() == [2.0]
    assert policy_from_sb3(Model(), deterministic=False, shape=())([1.0]).shape == ()
    with pytest.raises(TypeError, match="predict"):
        policy_from_sb3("model.zip")
