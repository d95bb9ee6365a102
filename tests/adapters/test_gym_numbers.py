"""What a Gymnasium environment hands over: revealed disturbances, buffers that it reuses, numbers of any type."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import tether
import tether.adapters.episode_env  # registers tether/Carbon-v0 and others
from tether import AssumptionBreach
from tether.adapters.guarded import Guarded
from tether.adapters.guarded_vector import GuardedVector
from tether.certificates import Shadowing, Structured

SYSTEMS = {
    "Carbon": tether.envs.Carbon(),
    "Inference": tether.envs.Inference(),
    "Cooling": tether.envs.Cooling(),
}
CARBON = SYSTEMS["Carbon"]
SHADOWING = Shadowing(CARBON.contract(0.5, 0.5), CARBON.structure, CARBON)


def make(system="Carbon", **options):
    return gymnasium.make(f"tether/{system}-v0", **{"draws": 20} | options)


@pytest.mark.parametrize(("name", "share"), [("Carbon", 0.6), ("Inference", 1.6), ("Cooling", 0.6)])
def test_what_a_step_reveals_reaches_the_certificate(name, share):
    """The decisions are those of a guard that is told by hand, and not those of one that is told nothing."""
    system = SYSTEMS[name]
    certificate = Shadowing(system.contract(0.5, 0.5), system.structure, system)
    env = make(name)
    guarded = Guarded(env, certificate, system.prior, norm=system.norm)
    space = env.action_space
    guards = [
        tether.Guard(
            certificate,
            guarded.guard.prior,
            space.low,
            space.high,
            system.norm,
            resolution=tether.core.ops.FLOAT32,
        )
        for _ in range(2)
    ]
    observation, _ = guarded.reset(options={"episode": 3})
    alike = []
    for _ in range(24):
        proposal = share * np.atleast_1d(system.prior(observation))
        expected, silent = (guard.act(observation, proposal) for guard in guards)
        observation, *_, info = guarded.step(proposal)
        np.testing.assert_array_equal(info["tether"]["action"], expected.action)
        alike.append(np.allclose(expected.action, silent.action, rtol=1e-9))
        assert set(info["revealed"]) == set(system.hidden)
        guards[0].observe(info["cost"], info["revealed"])
        guards[1].observe(info["cost"])
        assert guarded.guard._state.shadow.known
    assert guards[0].breach is guards[1].breach is guarded.guard.breach is None
    assert not all(alike)


class Silent(gymnasium.Wrapper):
    """An environment that says of its disturbances what `revealed` makes of them."""

    def __init__(self, env, revealed):
        super().__init__(env)
        self.change = revealed

    def step(self, action):
        *rest, info = self.env.step(action)
        told = self.change(info.pop("revealed"))
        return *rest, info if told is None else {**info, "revealed": told}


def test_a_step_that_reveals_nothing_loses_the_shadow_and_keeps_the_promise():
    plain = Structured(SHADOWING.contract, CARBON.structure)
    silent = Guarded(Silent(make(), lambda told: None), SHADOWING, CARBON.prior)
    reference = Guarded(make(), plain, CARBON.prior)
    for env in (silent, reference):
        env.reset(options={"episode": 3})
    for _ in range(24):
        steps = [env.step([2.0]) for env in (silent, reference)]
        np.testing.assert_array_equal(*(step[4]["tether"]["action"] for step in steps))
    assert not silent.guard._state.shadow.known
    assert silent.guard.breach is None


@pytest.mark.parametrize(
    "change",
    [lambda told: {"drop_rate": 0.0}, lambda told: [0.1, 0.0], lambda told: dict.fromkeys(told, "much")],
)
def test_what_is_revealed_in_another_form_is_an_error_that_says_what_is_expected(change):
    env = Guarded(Silent(make(), change), SHADOWING, CARBON.prior)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"revealed must (give efficiency_noise, drop_rate|be numbers)"):
        env.step([4.0])
    more = Guarded(Silent(make(), lambda told: {**told, "weather": 3.0}), SHADOWING, CARBON.prior)
    more.reset(seed=0)
    more.step([4.0])
    assert more.guard._state.shadow.known


@pytest.mark.parametrize(
    "mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.value
)
@pytest.mark.parametrize("name", ["Carbon", "Cooling"])
def test_the_vector_form_reveals_to_each_guard_its_own(name, mode):
    system = SYSTEMS[name]
    certificate = Shadowing(system.contract(0.5, 0.5), system.structure, system)
    envs = GuardedVector(
        SyncVectorEnv([lambda: make(name)] * 3, autoreset_mode=mode),
        certificate,
        system.prior,
        norm=system.norm,
    )
    singles = [Guarded(make(name), certificate, system.prior, norm=system.norm) for _ in range(3)]
    observations, _ = envs.reset(seed=5)
    for i, single in enumerate(singles):
        single.reset(seed=5 + i)
    for _ in range(24):
        proposals = np.stack([0.6 * np.atleast_1d(system.prior(seen)) for seen in observations])
        observations, *_, infos = envs.step(proposals)
        for i, single in enumerate(singles):
            *_, info = single.step(proposals[i])
            np.testing.assert_array_equal(infos["tether"]["action"][i], info["tether"]["action"])
            assert info["tether"]["breach"] is infos["tether"]["breach"][i] is None
    if mode == AutoresetMode.NEXT_STEP:
        assert all(guard._state.shadow.known for guard in envs.guards)


class Reusing(gymnasium.Wrapper):
    """An environment that has one buffer for all of its observations, costs and disturbances, as most simulators do."""

    def reset(self, **options):
        observation, info = self.env.reset(**options)
        self.buffer, self.cost = observation.copy(), np.zeros(1)
        return self.buffer, info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        action[...] = -1.0
        self.buffer[...] = observation
        self.cost[...] = info["cost"]
        return self.buffer, reward, terminated, truncated, {**info, "cost": self.cost}


@pytest.mark.parametrize("certificate", [SHADOWING, Structured(SHADOWING.contract, CARBON.structure)])
def test_an_environment_that_reuses_its_buffers_is_guarded_as_any_other(certificate):
    envs = [
        Guarded(each, certificate, CARBON.prior, monitor=CARBON.monitor())
        for each in (make(), Reusing(make()))
    ]
    for env in envs:
        env.reset(options={"episode": 3})
    reports = []
    for _ in range(24):
        steps = [env.step(np.array([2.0])) for env in envs]
        np.testing.assert_array_equal(*(step[0] for step in steps))
        np.testing.assert_array_equal(*(step[4]["tether"]["action"] for step in steps))
        reports.append((steps[1][4]["tether"], steps[0][4]["tether"]))
    for mine, its in reports:  # what was reported before has not been overwritten
        assert (mine["cost"], mine["margin"], mine["breach"]) == (its["cost"], its["margin"], None)
        np.testing.assert_array_equal(mine["action"], its["action"])


def proposals():
    torch = pytest.importorskip("torch")
    leaf = torch.tensor([2.0], requires_grad=True)
    return {
        "leaf tensor": leaf,
        "tensor of a network": 1.0 * leaf,
        "bfloat16": torch.tensor(2.0, dtype=torch.bfloat16),
        "generator": (each for each in [2.0]),
        "lock": __import__("threading").Lock(),
    }


@pytest.mark.parametrize("kind", ["leaf tensor", "tensor of a network", "bfloat16", "generator", "lock"])
def test_any_proposal_is_played_or_counted(kind):
    env = Guarded(
        make(), tether.LipschitzCertificate(CARBON.contract(0.5, 0.5), CARBON.sensitivity), CARBON.prior
    )
    env.reset(seed=0)
    *_, info = env.step(proposals()[kind])
    tensor = kind not in ("generator", "lock")
    assert info["tether"]["reason"] == ("too far" if tensor else "invalid proposal")
    env.step([2.0])  # the round before is closed


def test_a_prior_of_torch_is_a_prior_like_any_other():
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        network.weight[...] = torch.tensor([[1.25, 0.0, 0.0, 1.25]])
    env = Guarded(
        make(),
        tether.LipschitzCertificate(CARBON.contract(0.5, 0.5), CARBON.sensitivity),
        lambda seen: network(torch.as_tensor(seen, dtype=torch.float32)),
    )
    observation, _ = env.reset(seed=0)
    *_, info = env.step([0.0])
    assert info["tether"]["prior_action"] == pytest.approx(CARBON.prior(observation), rel=1e-6)
    assert info["tether"]["reason"] == "too far"


class Typed(gymnasium.Env):
    """A plant without a memory whose numbers are of one type."""

    def __init__(self, dtype, cost="what is played"):
        self.action_space = spaces.Box(-9.0, 9.0, (1,), dtype)
        self.observation_space = spaces.Box(-9.0, 9.0, (1,), dtype)
        self.cost = cost

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, self.observation_space.dtype), {}

    def step(self, action):
        assert action in self.action_space
        kind = self.observation_space.dtype.type
        cost = kind(1.0) + abs(action[0]) if self.cost == "what is played" else self.cost
        return np.array(action), 0.0, False, False, {"cost": cost}


def typed_certificate(horizon=6):
    bounds = tether.Sensitivity(1.0, 0.0, tether.geometric(0.0))
    return tether.LipschitzCertificate(tether.Contract(0.5, 1.0, horizon, 1.0), bounds)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_in_every_number_type_the_promise_is_kept_and_the_cost_is_reported_as_a_number(dtype):
    env = Guarded(Typed(dtype), typed_certificate(), lambda seen: np.zeros(1))
    vector = GuardedVector(
        SyncVectorEnv([lambda: Typed(dtype)] * 2), typed_certificate(), lambda seen: np.zeros(1)
    )
    env.reset(seed=0)
    vector.reset(seed=0)
    paid = 0.0
    for h in range(1, 7):
        *_, info = env.step([9.0])
        *_, infos = vector.step(np.full((2, 1), 9.0))
        assert type(info["tether"]["cost"]) is float
        assert infos["tether"]["cost"].dtype == np.float64
        np.testing.assert_array_equal(infos["tether"]["cost"], info["tether"]["cost"])
        assert info["tether"]["breach"] is None
        paid += info["tether"]["cost"]
        assert paid <= 1.5 * h + h
    assert paid > 1.2 * 6


def test_proposals_too_large_for_the_box_are_too_far_and_not_invalid():
    vector = GuardedVector(
        SyncVectorEnv([lambda: Typed(np.float32)] * 2), typed_certificate(), lambda seen: np.zeros(1)
    )
    vector.reset(seed=0)
    *_, infos = vector.step(np.array([[1e300], [-1e300]]))
    assert infos["tether"]["reason"].tolist() == ["out of bounds", "out of bounds"]
    assert infos["tether"]["action"].ravel() == pytest.approx([1.5, -1.5], rel=1e-3)
    with pytest.raises(TypeError, match="expected numbers"):
        vector.step([["much"], ["little"]])


@pytest.mark.parametrize("cost", ["free", None, [1.0, 2.0], 10**400, 1.0 + 1.0j])
def test_a_cost_that_is_no_number_is_a_breach_and_the_episode_goes_on(cost):
    env = Guarded(Typed(np.float64, cost), typed_certificate(), lambda seen: np.zeros(1))
    env.reset(seed=0)
    with pytest.warns(AssumptionBreach, match="the cost was"):
        *_, info = env.step([0.5])
    assert np.isnan(info["tether"]["cost"])
    assert info["tether"]["breach"]["round"] == 1
    with pytest.warns(AssumptionBreach):
        *_, info = env.step([0.5])
    assert (info["tether"]["reason"], info["tether"]["action"][0]) == ("breach", 0.0)
