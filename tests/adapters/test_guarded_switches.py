"""The guard around Gymnasium environments with switches, and around those with several costs."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import tether
from tether.gym import EpisodeEnv, Guarded, GuardedVector
from tether.systems.cooling import synthetic_cooling
from tether.systems.cooling.metered import MeteredCooling

CONTRACT = tether.Contract(0.5, 1.0, 4, 1.0)
BOUNDS = tether.Sensitivity(1.0, 0.8, tether.geometric(0.8))
LIPSCHITZ = tether.LipschitzCertificate(CONTRACT, BOUNDS)
LEVELS = [0.0, 1.0, 2.0, 3.0]


class Pump(gymnasium.Env):
    """Remembers what it was told; every step costs 1, or what `costs` says."""

    def __init__(self, space, costs=1.0):
        self.action_space, self.costs = space, costs
        self.observation_space = spaces.Box(-9.0, 9.0, (1,), np.float64)
        self.played = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.rounds = 0
        return np.zeros(1), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.played.append(np.asarray(action).tolist())
        self.rounds += 1
        return np.zeros(1), 0.0, False, self.rounds == CONTRACT.horizon, {"cost": self.costs}


def switches(*levels, certificate=LIPSCHITZ):
    actions = (
        tether.FiniteActions(levels[0]) if len(levels) == 1 else tether.FiniteActions.grid(*levels, norm="l1")
    )
    return tether.Switches(certificate, actions)


@pytest.mark.parametrize("first", [0, 5])
def test_a_discrete_space_is_guarded_in_its_own_numbers(first):
    pump = Pump(spaces.Discrete(4, start=first))
    env = Guarded(pump, switches(LEVELS), lambda seen: first + 2)
    env.reset()
    assert env.action_masks().tolist() == [False, True, True, True]
    info = env.step(first)[-1]
    assert pump.played == [first + 1]
    assert info["tether"]["action"] == first + 1
    assert info["tether"]["prior_action"] == first + 2
    assert (info["tether"]["reason"], info["tether"]["proposal"]) == ("too far", first)
    env.step(np.array(first + 3))
    env.step(first + 9)  # no such action
    assert pump.played == [first + 1, first + 3, first + 2]
    assert info["tether"]["counts"]["too far"] == 1


def test_the_masks_of_several_switches_have_safe_combinations_only_and_a_step_takes_any_safe_one():
    pump = Pump(spaces.MultiDiscrete([4, 4]))
    env = Guarded(pump, switches(LEVELS, LEVELS), lambda seen: np.array([1, 1]))
    env.reset()
    masks = env.action_masks()
    assert masks.shape == (8,)
    joint = env.guard.mask(np.zeros(1)).reshape(4, 4)
    first, second = masks[:4], masks[4:]
    assert joint[1, 1]
    assert first[1]
    assert second[1]
    assert np.all(joint[np.ix_(first, second)])
    assert joint.sum() > first.sum() * second.sum()  # what a product leaves out ...
    left_out = next((i, j) for i, j in np.argwhere(joint) if not (first[i] and second[j]))
    env.step(np.array(left_out))
    assert pump.played == [list(left_out)]  # ... is played all the same
    info = env.step(np.array([3, 3]))[-1]
    assert info["tether"]["intervened"]


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_a_guarded_environment_of_switches_is_one_as_gymnasium_checks_it():
    check_env(Guarded(Pump(spaces.Discrete(4)), switches(LEVELS), lambda seen: 2), skip_render_check=True)


def test_vectors_of_environments_have_a_mask_each():
    vector = gymnasium.vector.SyncVectorEnv([lambda: Pump(spaces.Discrete(4)) for _ in range(3)])
    envs = GuardedVector(vector, switches(LEVELS), lambda seen: 2)
    envs.reset(seed=0)
    assert envs.action_masks().tolist() == [[False, True, True, True]] * 3
    for _ in range(CONTRACT.horizon + 2):
        *_, infos = envs.step(np.array([0, 2, 3]))
    assert infos["tether"]["action"].tolist() == [1, 2, 3]
    assert vector.envs[0].unwrapped.played[0] == 1


@pytest.mark.parametrize(
    ("space", "certificate", "error", "message"),
    [
        (
            spaces.Discrete(4),
            LIPSCHITZ,
            TypeError,
            r"needs a certificate for a finite set of actions, tether\.Switches",
        ),
        (spaces.Box(0.0, 1.0, (1,)), switches(LEVELS), TypeError, "and only these"),
        (spaces.Discrete(3), switches(LEVELS), ValueError, "for 4 actions"),
        (spaces.MultiDiscrete([4]), switches(LEVELS, LEVELS), ValueError, "for 16 actions"),
        (spaces.MultiBinary(2), LIPSCHITZ, TypeError, "must be a gymnasium.spaces.Box"),
    ],
)
def test_spaces_and_certificates_that_do_not_fit_are_refused(space, certificate, error, message):
    with pytest.raises(error, match=message):
        Guarded(Pump(space), certificate, lambda seen: 2)


def test_masks_need_an_episode_and_switches():
    env = Guarded(Pump(spaces.Discrete(4)), switches(LEVELS), lambda seen: 2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.action_masks()
    boxed = Guarded(Pump(spaces.Box(0.0, 4.0, (1,))), LIPSCHITZ, lambda seen: 2.0)
    boxed.reset()
    with pytest.raises(TypeError, match="there are masks of finite sets of actions only"):
        boxed.action_masks()
    with pytest.raises(TypeError, match="prior must be callable"):
        Guarded(Pump(spaces.Discrete(4)), switches(LEVELS), 2)


@pytest.mark.parametrize("costs", [{"comfort": 1.0, "energy": 2.0}, np.array([1.0, 2.0])])
def test_several_costs_come_in_info_by_name_or_in_order(costs):
    second = tether.LipschitzCertificate(tether.Contract(0.0, 0.4, 4), BOUNDS)
    pump = Pump(spaces.Box(0.0, 9.0, (1,), np.float64), costs)
    env = Guarded(pump, {"comfort": LIPSCHITZ, "energy": second}, lambda seen: 2.0, append_memory=True)
    observation, _ = env.reset()
    assert observation.shape == (1 + 6,)
    info = env.step([9.0])[-1]
    assert info["tether"]["binding"] == "energy"
    assert pump.played[0][0] == pytest.approx(2.4, abs=1e-3)
    assert info["tether"]["breach"] is None
    assert list(info["tether"]["cost"]) == list(costs)


def test_a_vector_of_environments_with_several_costs():
    second = tether.LipschitzCertificate(tether.Contract(0.0, 0.4, 4), BOUNDS)
    box = spaces.Box(0.0, 9.0, (1,), np.float64)
    pumps = [lambda: Pump(box, {"comfort": 1.0, "energy": 2.0}) for _ in range(2)]
    envs = GuardedVector(
        gymnasium.vector.SyncVectorEnv(pumps), {"comfort": LIPSCHITZ, "energy": second}, lambda seen: 2.0
    )
    envs.reset(seed=0)
    *_, infos = envs.step(np.full((2, 1), 9.0))
    assert infos["tether"]["binding"].tolist() == ["energy", "energy"]
    assert envs.guards[0].breach is None


def test_a_system_with_two_costs_is_a_gymnasium_environment():
    system = MeteredCooling()
    env = EpisodeEnv(system, synthetic_cooling, system.contract(1.0, 0.5), draws=3)
    certificates = {
        "discomfort": tether.Structured(system.contract(1.0, 0.5), system.structure),
        "demand": tether.LipschitzCertificate(system.demand_contract(1.0, 4.0), system.demand_sensitivity),
    }
    guarded = Guarded(env, certificates, env.prior, norm="linf")
    guarded.reset(seed=0)
    over = False
    while not over:
        _, _, over, _, info = guarded.step(np.zeros(2))
        assert list(info["cost"]) == ["discomfort", "demand"]
    assert info["tether"]["breach"] is None
    assert info["cumulative_cost"] <= info["bound"]
