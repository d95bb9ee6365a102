"""Structured certificates: every bound searched for counterexamples, the promise attacked, one code on both sides."""

from __future__ import annotations

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from structures import EPSILON, counterexamples, guarded_costs, prior_costs, sequence_counterexamples
from tether.certificates import Structured
from tether.experiments.attack import BOUNDS, Loosened, attack, hostile, hostile_episodes, systems

KINDS = ("carbon", "inference")  # the vector system is in test_cooling_structure.py
SYSTEMS = {(kind, name): env for kind in KINDS for name, env in systems(kind).items()}
PAPERS = {kind: systems(kind)["the paper's"] for kind in KINDS}
LOOSE = [(kind, bound) for kind in KINDS for bound in BOUNDS[kind]]
CONTRACTS = ((0.0, 2.0), (2.0, 0.3), (10.0, 6.0), (0.0, 0.01), (0.0, 0.0))
PLAIN = {"carbon": tether.envs.Carbon(), "inference": tether.envs.Inference()}
QUICKLY = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""Where compiling would take most of the time."""
FLOAT32 = float(np.finfo(np.float32).eps)


@pytest.mark.parametrize(("kind", "name"), SYSTEMS)
def test_random_search_finds_no_counterexample_to_any_bound(kind, name):
    env = SYSTEMS[kind, name]
    ties = 1e-11 * env.structure.scale  # of round-off; the certificate's own reserve is larger
    for search in (counterexamples, sequence_counterexamples):
        broken = search(env, env.structure, np.random.default_rng(0))
        assert all(worst <= ties for worst in broken.values()), broken


@pytest.mark.parametrize(("kind", "bound"), LOOSE)
def test_the_search_finds_a_counterexample_to_any_bound_loosened_by_five_percent(kind, bound):
    env = PAPERS[kind]
    name = {"above": "step 0", "below": f"step {len(env.structure.start(0.0)) - 1}"}.get(bound, bound)
    broken = counterexamples(env, Loosened(env.structure, bound), np.random.default_rng(1), 50_000)
    assert broken[name] > 0.01
    broken = sequence_counterexamples(env, Loosened(env.structure, bound), np.random.default_rng(1))
    assert broken[name] > 0.001


@pytest.mark.parametrize("kind", PAPERS)
def test_no_hostile_policy_breaks_the_promise_and_unguarded_ones_do(kind):
    env = PAPERS[kind]
    for lam, b in CONTRACTS:
        contract = env.contract(lam, b)
        found = attack(kind, env, Structured(contract, env.structure), 4_000, 0, batch=2_000)
        assert found.violations == found.breaches == 0, found
        assert found.unguarded > 0.3
        if contract.earned > 0.0:
            assert found.nearest < 1e-6  # nothing is kept by being timid


EDGES = [
    tether.Contract(0.0, 0.01, 24),
    tether.Contract(1.0, 0.0, 24),
    tether.Contract(0.5, 0.1, 1),
    tether.Contract(0.0, 1e-6, 60),
]


@pytest.mark.parametrize(("kind", "name"), SYSTEMS)
def test_the_promise_holds_at_the_edges_of_contracts_without_a_cost_floor_and_in_float32(kind, name):
    env = SYSTEMS[kind, name]
    for contract in EDGES:
        count = 60 if contract.horizon == 60 else 500
        episodes = hostile_episodes(env, count, np.random.default_rng(3), contract.horizon)
        prior = prior_costs(env, episodes)
        costs, breached = guarded_costs(env, Structured(contract, env.structure), episodes)
        assert tether.audit(costs, prior, contract).holds
        assert not np.any(breached)
    # Less than the round-off of the plant itself cannot be promised.
    contract = env.contract(0.0, max(0.01, 1e-5 * env.structure.scale))
    episodes = hostile_episodes(env, 1_500, np.random.default_rng(4))
    coarse = Structured(contract, env.structure, resolution=FLOAT32)
    costs, breached = guarded_costs(env, coarse, episodes, to_float32)
    assert tether.audit(costs, prior_costs(env, episodes), contract).holds
    assert not np.any(breached)


def to_float32(values):
    """As a float32 interface would hand it over, the number type no longer to be seen."""
    return np.asarray(values).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("kind", PAPERS)
def test_without_its_resolution_a_float32_plant_breaks_the_promise(kind):
    env = PAPERS[kind]
    contract = env.contract(0.0, 0.01)
    episodes = hostile_episodes(env, 3_000, np.random.default_rng(4))
    costs, breached = guarded_costs(env, Structured(contract, env.structure), episodes, to_float32)
    verdict = tether.audit(costs[~breached], prior_costs(env, episodes)[~breached], contract)
    assert not verdict.holds  # where the guard has not noticed that something is wrong


# A gap below the prior in the carbon system is not caught here: see "Where it is not sharp" in `CarbonStructure`. The
# search above does find it.
ATTACKED = [pair for pair in LOOSE if pair != ("carbon", "below")]


@pytest.mark.parametrize(("kind", "bound"), ATTACKED)
def test_any_bound_loosened_by_five_percent_breaks_the_promise(kind, bound):
    env = PAPERS[kind]
    contract = env.contract(0.0, 0.01)
    episodes = hostile_episodes(env, 2_000, np.random.default_rng(3))
    costs, _ = guarded_costs(env, Structured(contract, Loosened(env.structure, bound)), episodes)
    assert tether.audit(costs, prior_costs(env, episodes), contract).violation_rate > 0.005


def online(env, episodes, i, guard):
    """Play episode i through the online guard; yields (decision, what the certificate knew, cost) of each round."""
    state = env.initial()
    for h in range(episodes.horizon):
        drawn = {name: episodes[name][i, h] for name in env.drawn_names}
        observation = env.observation(state, drawn)
        before = guard._state
        decision = guard.act(observation, float(hostile(observation, None)))
        state, _, cost = env.step(state, drawn, decision.action)
        guard.observe(cost)
        yield decision, observation, before, cost


@pytest.mark.parametrize("kind", PAPERS)
def test_the_online_guard_and_the_compiled_rollout_decide_alike(kind):
    env = PAPERS[kind]
    episodes = hostile_episodes(env, 2_000, np.random.default_rng(2))
    certificate = Structured(env.contract(0.5, 1.0), env.structure)
    run = tether.rollout(env, hostile, episodes, certificate)
    for i in range(12):
        guard = tether.Guard(certificate, env.prior, env.low, env.high)
        rounds = list(online(env, episodes, i, guard))
        played = np.array([decision.action for decision, *_ in rounds])
        assert np.max(np.abs(played - run.actions[i])) < 1e-9
        assert np.max(np.abs([decision.margin for decision, *_ in rounds] - run.margins[i])) < 1e-7
    assert np.max(run.deviations) > 0.1


@pytest.mark.parametrize("kind", PAPERS)
def test_the_prior_stays_safe_whatever_was_played(kind):
    """The lemma of recursive feasibility, with its inequality written out."""
    env = PAPERS[kind]
    episodes = hostile_episodes(env, 40, np.random.default_rng(5))
    for i, (lam, b) in enumerate(CONTRACTS * 8):
        contract = env.contract(lam, b)
        guard = tether.Guard(Structured(contract, env.structure), env.prior, env.low, env.high)
        for decision, observation, before, _ in online(env, episodes, i, guard):
            seen = env.structure.read([float(entry) for entry in observation])
            gaps = env.structure.refine(before.gaps, seen, EPSILON, np)
            prior = decision.prior_action
            totals = env.structure.exposure(gaps, seen, prior, prior, np).totals
            h = decision.round
            for n, total in enumerate(totals[: contract.horizon - h + 1]):
                allowed = before.surplus + (n + 1) * contract.earned + (h - 1) * b
                assert total <= allowed + 1e-8 * (1.0 + before.magnitude)


@pytest.mark.parametrize(
    ("name", "wish", "seen"),
    [("carbon", 0.5, (4.0, 2.0, 0.0, 1.0)), ("inference", 6.0, (5.0, 1.0, 0.0, 2.0))],
)
def test_at_the_boundary_the_gradient_is_that_of_the_boundary(name, wish, seen, monkeypatch):
    monkeypatch.setattr("tether.certificates.structured.SEARCH", 6)
    env = PLAIN[name]
    certificate = Structured(env.contract(0.5, 0.5), env.structure)

    def action(demand, other, surplus, wish):
        observation = jnp.stack([demand, jnp.asarray(seen[1]), jnp.asarray(0.0), other])
        state = certificate.start(jnp, jnp.asarray(0.0))._replace(surplus=surplus)
        opened = certificate.open(state, observation, jnp)
        prior = env.prior(observation)
        return certificate.choose(opened, wish, prior, env.low, env.high, "l2", jnp).action

    with jax.enable_x64(True):
        at = [jnp.asarray(number) for number in (seen[0], seen[3], 0.3, wish)]
        compiled = jax.jit(jax.value_and_grad(action, argnums=(0, 1, 2, 3)), compiler_options=QUICKLY)
        played, slopes = compiled(*at)
        assert played != wish
        for i, slope in enumerate(slopes):
            nudge = [each + 1e-5 * (j == i) for j, each in enumerate(at)]
            back = [each - 1e-5 * (j == i) for j, each in enumerate(at)]
            measured = (compiled(*nudge)[0] - compiled(*back)[0]) / 2e-5
            assert float(slope) == pytest.approx(float(measured), abs=2e-3)
    assert abs(float(slopes[2])) > 0.05  # more slack, more freedom
    assert abs(float(slopes[3])) < 1e-4  # at the boundary the proposal itself does not matter


def carbon_guard():
    env = tether.envs.Carbon()
    return tether.Guard(Structured(env.contract(2.0, 2.0), env.structure), env.prior, low=0.0)


def test_a_saved_guard_goes_on_with_identical_decisions_in_the_middle_of_a_round_too():
    guard = carbon_guard()
    guard.act([4.0, 2.0, 0.0, 0.0], 0.0)
    guard.observe(3.0)
    guard.act([3.0, 2.0, 0.0, 1.0], 0.0)
    copy = tether.Guard.from_state_dict(
        json.loads(json.dumps(guard.state_dict())), tether.envs.Carbon().prior
    )
    for each in (guard, copy):
        each.observe(2.0)
    decision = guard.act([3.0, 2.0, 0.0, 0.6], 0.0)
    assert copy.act([3.0, 2.0, 0.0, 0.6], 0.0) == decision
    assert guard.features([3.0, 2.0, 0.0, 0.6]) == copy.features([3.0, 2.0, 0.0, 0.6])
    assert decision.intervened


def test_what_the_structure_rules_out_is_a_breach_and_leaves_the_prior():
    guard = carbon_guard()
    guard.act([4.0, 2.0, 0.0, 0.0], 0.0)
    with pytest.warns(tether.AssumptionBreach, match="more than the certificate knows to be possible"):
        guard.observe(500.0)
    assert guard.act([4.0, 2.0, 0.0, 15.0], 0.0).reason == tether.Reason.BREACH
    for strange in ([7.0, 2.0, 0.0, 0.0], [4.0, 2.0, 0.0, -1.0], [4.0, 2.0, 0.0, 16.0]):
        guard = carbon_guard()
        with pytest.warns(tether.AssumptionBreach, match="not what the certificate covers"):
            decision = guard.act(strange, 0.0)
        assert decision.action == decision.prior_action
        assert guard.breach is not None


def test_a_prior_that_is_not_the_structures_own_is_a_breach():
    env = tether.envs.Carbon()
    certificate = Structured(env.contract(2.0, 2.0), env.structure)
    for prior in (lambda seen: env.prior(seen) * (1.0 + 1e-6), lambda seen: 5.0):
        guard = tether.Guard(certificate, prior, low=0.0)
        with pytest.warns(tether.AssumptionBreach, match="with the prior's action"):
            decision = guard.act([3.0, 2.0, 0.0, 0.3], 0.0)
        assert decision.action == decision.prior_action


def test_observations_in_float32_are_taken_for_what_they_are():
    """At the edge of a range they may be rounded to beyond it, and the reserve is that of float32."""
    env = tether.envs.Inference(demand_max=5.3, capacity=2.3)
    seen = np.array([5.3, 1.0, 0.0, 2.3], dtype=np.float32)
    assert float(seen[0]) > 5.3
    certificate = Structured(env.contract(0.0, 0.5), env.structure)
    decisions = {}
    for name, each in (
        ("float32", seen),
        ("numbers", list(seen)),
        ("float64", np.array([5.3, 1.0, 0.0, 2.3])),
    ):
        guard = tether.Guard(certificate, env.prior, env.low, env.high)
        decisions[name] = guard.act(each, 6.0)
        assert guard.breach is None
    coarse = tether.Guard(dataclasses.replace(certificate, resolution=FLOAT32), env.prior, env.low, env.high)
    assert decisions["float32"].action == decisions["numbers"].action < decisions["float64"].action
    assert coarse.act([5.3, 1.0, 0.0, 2.3], 6.0).action == pytest.approx(
        decisions["float32"].action, abs=1e-6
    )


def test_a_box_of_float32_actions_sets_the_resolution():
    import gymnasium

    import tether.envs.gym
    import tether.gym

    env = gymnasium.make("tether/Carbon-v0", draws=3)
    system = env.unwrapped.system
    certificate = Structured(system.contract(2.0, 2.0), system.structure)
    assert tether.gym.Guarded(env, certificate, system.prior).guard.certificate.resolution < 1e-15
    env.action_space = gymnasium.spaces.Box(0.0, 27.0, (1,), np.float32)
    guarded = tether.gym.Guarded(env, certificate, system.prior)
    assert guarded.guard.certificate.resolution == FLOAT32
    guarded.reset(seed=0)
    for _ in range(24):
        report = guarded.step([0.0])[4]["tether"]
        assert report["breach"] is None
    assert report["counts"]["too far"] > 0


def test_doing_more_than_the_prior_costs_nothing_and_is_safe():
    env = tether.envs.Carbon()
    guard = tether.Guard(Structured(env.contract(0.0, 0.5), env.structure), env.prior, low=0.0)
    assert guard.act([4.0, 2.0, 0.0, 0.0], 9.0).action == 9.0


def test_a_structure_is_checked_and_described():
    env = tether.envs.Carbon()
    with pytest.raises(TypeError, match=r"system must be a tether\.certificates\.Structure"):
        Structured(env.contract(1.0, 1.0), env.sensitivity)
    with pytest.raises(ValueError, match="gaps must shrink"):
        _ = dataclasses.replace(env, efficiency=0.5, efficiency_noise_max=0.5).structure
    for name, value in (("efficiency", 0.0), ("demand_max", math.nan), ("drop_rate_max", -0.1)):
        with pytest.raises(ValueError, match=name):
            dataclasses.replace(env.structure, **{name: value})
    for name, value in (("charge_rate", 0.5), ("discharge_rate_min", 1.1), ("slack", -1.0)):
        with pytest.raises(ValueError, match=name):
            dataclasses.replace(tether.envs.Inference().structure, **{name: value})
    with pytest.raises(ValueError, match="resolution must be at least 0"):
        Structured(env.contract(1.0, 1.0), env.structure, resolution=-1.0)
    for system in SYSTEMS.values():
        certificate = Structured(system.contract(1.0, 1.0), system.structure, resolution=1e-7)
        assert tether.certificates.certificate_from_dict(certificate.to_dict()) == certificate


@pytest.mark.parametrize("name", ["carbon", "inference"])
def test_training_through_the_certificate_has_finite_gradients(name, monkeypatch):
    from tether.learn.rollout import play

    monkeypatch.setattr("tether.certificates.structured.SEARCH", 1)
    env = PLAIN[name]
    episodes = getattr(tether.data, f"synthetic_{name}")(0, 50)
    drawn = {key: jnp.asarray(np.swapaxes(episodes[key], 0, 1)) for key in env.drawn_names}
    certificate = Structured(env.contract(0.5, 0.5), env.structure)

    def reward(share):
        policy = jax.tree_util.Partial(lambda share, seen, key: share * (seen[0] + seen[3]), share)
        return jnp.mean(play(env, policy, drawn, certificate, jnp.uint32(0), "outcomes")["rewards"])

    slope = jax.jit(jax.grad(reward), compiler_options=QUICKLY)
    slopes = [float(slope(share)) for share in (0.3, 1.0, 3.0)]
    assert all(np.isfinite(slopes))
    assert any(slope != 0.0 for slope in slopes)
