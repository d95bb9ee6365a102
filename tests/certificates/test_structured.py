"""Structured certificates: every bound searched for counterexamples, the promise attacked, one code on both sides."""

from __future__ import annotations

import dataclasses
import functools
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from structures import (
    BOUNDS,
    CONTRACTS,
    SCRIPTED,
    SYSTEMS,
    counterexamples,
    episodes_for,
    hostile,
    loosened,
)
from tether.certificates import CarbonStructure, Structured

TIES = 1e-9
"""What round-off may do to a bound; the certificate's own reserve is larger."""
LOOSE = [(name, bound) for name, bounds in BOUNDS.items() for bound in bounds]


@pytest.mark.parametrize("name", SYSTEMS)
def test_random_search_finds_no_counterexample_to_any_bound(name):
    env = SYSTEMS[name]
    broken = counterexamples(env, env.structure, seed=0)
    assert all(worst <= TIES for worst in broken.values()), broken


@pytest.mark.parametrize(("name", "bound"), LOOSE)
def test_the_search_finds_a_counterexample_to_any_bound_loosened_by_five_percent(name, bound):
    env = SYSTEMS[name]
    broken = counterexamples(env, loosened(env.structure, bound), seed=1, count=50_000)
    assert broken[bound] > 0.01


# The cooling system's costs do not grow as a square: wide contracts are not broken by anyone.
CONTRACTS_OF = {"carbon": CONTRACTS, "inference": CONTRACTS, "cooling": ((0.0, 1.0), (0.5, 0.1))}


@functools.cache
def attack(name):
    """Many hostile episodes; the same ones for each test, so that one program serves them."""
    return episodes_for(SCRIPTED[name], 8_000 if name == "cooling" else 40_000, np.random.default_rng(2))


@pytest.mark.parametrize("name", SCRIPTED)
def test_no_hostile_policy_breaks_the_promise_and_unguarded_ones_do(name):
    env = SCRIPTED[name]
    episodes = attack(name)
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    unguarded = tether.rollout(env, hostile, episodes, record="outcomes")
    for lam, b in CONTRACTS_OF[name]:
        contract = env.contract(lam, b)
        assert tether.audit(unguarded, prior, contract).violation_rate > 0.3
        run = tether.rollout(env, hostile, episodes, Structured(contract, env.structure))
        assert not np.any(run.breached)
        if contract.earned == 0.0:
            assert (
                np.max(run.deviations) < 1e-12
            )  # the prior itself: costs are those of another program, up to round-off
            continue
        verdict = tether.audit(run, prior, contract)
        assert verdict.holds, f"lam={lam}, b={b}: {verdict}"
        assert np.min(verdict.margins / verdict.bounds) < 1e-6  # nothing is kept by being timid


# A gap below enters the carbon system's costs only through the tenth of it that can turn around: 5 % of that has not
# broken the promise in any episode found so far. The search above does find it. Those of the cooling system are left to
# the search too: each takes seconds to compile here.
ATTACKED = [pair for pair in LOOSE if pair[0] != "cooling" and pair != ("carbon", "below")]


@pytest.mark.parametrize(("name", "bound"), ATTACKED)
def test_any_bound_loosened_by_five_percent_breaks_the_promise(name, bound, monkeypatch):
    monkeypatch.setattr(
        "tether.certificates.structured.SEARCH", 4
    )  # near enough to the edge, and quicker to compile
    env = SCRIPTED[name]
    episodes = episodes_for(env, 10_000, np.random.default_rng(3))
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    contract = env.contract(0.0, 0.01)
    certificate = Structured(contract, loosened(env.structure, bound))
    verdict = tether.audit(tether.rollout(env, hostile, episodes, certificate), prior, contract)
    assert verdict.violation_rate > 0.001


def online(env, episodes, i, guard):
    """Play episode i through the online guard; yields (decision, what the certificate knew, cost) of each round."""
    state = env.initial()
    for h in range(episodes.horizon):
        drawn = {name: episodes[name][i, h] for name in env.drawn_names}
        observation = env.observation(state, drawn)
        before = guard._state
        decision = guard.act(observation, hostile(observation, None))
        state, _, cost = env.step(state, drawn, decision.action)
        guard.observe(cost)
        yield decision, observation, before, cost


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_online_guard_and_the_compiled_rollout_decide_alike(name):
    env = SCRIPTED[name]
    episodes = attack(name)
    certificate = Structured(env.contract(0.5, 1.0), env.structure)
    run = tether.rollout(env, hostile, episodes, certificate)
    for i in range(12):
        guard = tether.Guard(certificate, env.prior, env.low, env.high, env.norm)
        rounds = list(online(env, episodes, i, guard))
        played = np.array([decision.action for decision, *_ in rounds])
        assert np.max(np.abs(played - run.actions[i])) < 1e-9
        assert np.max(np.abs([decision.margin for decision, *_ in rounds] - run.margins[i])) < 1e-7
    assert np.max(run.deviations) > 0.1


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_prior_stays_safe_whatever_was_played(name):
    """The lemma of recursive feasibility, with its inequality written out."""
    env = SCRIPTED[name]
    episodes = episodes_for(env, 40, np.random.default_rng(5))
    for i, (lam, b) in enumerate(CONTRACTS * 8):
        contract = env.contract(lam, b)
        guard = tether.Guard(Structured(contract, env.structure), env.prior, env.low, env.high, env.norm)
        for decision, observation, before, _ in online(env, episodes, i, guard):
            seen = env.structure.read([float(entry) for entry in observation])
            gaps = env.structure.refine(before.gaps, seen, np)
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
    monkeypatch.setattr("tether.certificates.structured.SEARCH", 5)
    env = SYSTEMS[name]
    certificate = Structured(env.contract(0.5, 0.5), env.structure)

    def action(demand, other, surplus, wish):
        observation = jnp.stack([demand, jnp.asarray(seen[1]), jnp.asarray(0.0), other])
        state = certificate.start(jnp, jnp.asarray(0.0))._replace(surplus=surplus)
        opened = certificate.open(state, observation, jnp)
        prior = env.prior(observation)
        return certificate.choose(opened, wish, prior, env.low, env.high, "l2", jnp).action

    with jax.enable_x64(True):
        at = [jnp.asarray(number) for number in (seen[0], seen[3], 0.3, wish)]
        compiled = jax.jit(jax.value_and_grad(action, argnums=(0, 1, 2, 3)))
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
    env = SYSTEMS["carbon"]
    return tether.Guard(Structured(env.contract(2.0, 2.0), env.structure), env.prior, low=0.0)


def test_a_saved_guard_goes_on_with_identical_decisions_in_the_middle_of_a_round_too():
    guard = carbon_guard()
    guard.act([4.0, 2.0, 0.0, 0.0], 0.0)
    guard.observe(3.0)
    guard.act([3.0, 2.0, 0.0, 1.0], 0.0)
    copy = tether.Guard.from_state_dict(json.loads(json.dumps(guard.state_dict())), SYSTEMS["carbon"].prior)
    for each in (guard, copy):
        each.observe(2.0)
    decision = guard.act([3.0, 2.0, 0.0, 0.6], 0.0)
    assert copy.act([3.0, 2.0, 0.0, 0.6], 0.0) == decision
    assert guard.features([3.0, 2.0, 0.0, 0.6]) == copy.features([3.0, 2.0, 0.0, 0.6])
    assert decision.intervened


@dataclasses.dataclass(frozen=True)
class Packed(CarbonStructure):
    """The carbon structure with its two gaps in one array."""

    scalar = False

    def start(self, zero):
        return (np.stack(super().start(zero)),)

    def refine(self, gaps, seen, xp):
        return (np.stack(super().refine(tuple(gaps[0]), seen, xp)),)

    def exposure(self, gaps, seen, prior, action, xp):
        exposure = super().exposure(tuple(gaps[0]), seen, prior, action, xp)
        return exposure._replace(step=(np.stack(exposure.step),))

    def close(self, step, cost, epsilon, xp):
        floor, gaps = super().close(tuple(step[0]), cost, epsilon, xp)
        return floor, (np.stack(gaps),)

    def felt(self, gaps, xp):
        return tuple(gaps[0])


def test_gaps_may_be_arrays_and_are_saved_and_restored():
    env, plain = SYSTEMS["carbon"], carbon_guard()
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


def test_the_next_temperatures_tell_what_a_unit_did():
    """While both units run, the gap is known: at its two ends it differs by round-off only."""
    env = SCRIPTED["cooling"]
    episodes = episodes_for(env, 20, np.random.default_rng(6))
    guard = tether.Guard(
        Structured(env.contract(0.5, 0.5), env.structure), env.prior, 1.0, env.high, env.norm
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tether.AssumptionBreach)  # this prior may want less than 1
        rounds = list(online(env, episodes, 0, guard))
    widths, sizes = [], []
    for _, observation, before, _ in rounds:
        gaps = env.structure.refine(before.gaps, env.structure.read(observation), np)
        widths.append(max(gaps[0] + gaps[1], gaps[2] + gaps[3]))
        sizes.append(max(abs(gap) for gap in gaps))
    assert max(sizes) > 0.1
    assert max(widths) < 1e-9


def test_what_the_structure_rules_out_is_a_breach_and_leaves_the_prior():
    guard = carbon_guard()
    guard.act([4.0, 2.0, 0.0, 0.0], 0.0)
    with pytest.warns(tether.AssumptionBreach, match="more than the certificate knows to be possible"):
        guard.observe(500.0)
    assert guard.act([4.0, 2.0, 0.0, 15.0], 0.0).reason == tether.Reason.BREACH
    for strange in ([7.0, 2.0, 0.0, 0.0], [4.0, 2.0, 0.0, -1.0], [4.0, 2.0, 0.0, 16.0]):
        guard = carbon_guard()
        with pytest.warns(tether.AssumptionBreach, match="not one that the certificate covers"):
            decision = guard.act(strange, 0.0)
        assert decision.action == decision.prior_action
        assert guard.breach is not None


def test_a_structure_is_checked_and_described():
    env = SYSTEMS["carbon"]
    with pytest.raises(TypeError, match=r"system must be a tether\.certificates\.Structure"):
        Structured(env.contract(1.0, 1.0), env.sensitivity)
    with pytest.raises(ValueError, match="gaps must shrink"):
        _ = dataclasses.replace(env, efficiency=0.5, efficiency_noise_max=0.5).structure
    with pytest.raises(ValueError, match="a room that is hotter must stay hotter"):
        _ = tether.envs.Cooling(gain=3.2).structure
    for system in SYSTEMS.values():
        certificate = Structured(system.contract(1.0, 1.0), system.structure)
        assert tether.certificates.certificate_from_dict(certificate.to_dict()) == certificate


@pytest.mark.parametrize("name", ["carbon", "inference"])
def test_training_through_the_certificate_has_finite_gradients(name, monkeypatch):
    from tether.learn.rollout import play

    monkeypatch.setattr("tether.certificates.structured.SEARCH", 2)
    env = SYSTEMS[name]
    episodes = getattr(tether.data, f"synthetic_{name}")(0, 50)
    drawn = {key: jnp.asarray(np.swapaxes(episodes[key], 0, 1)) for key in env.drawn_names}
    certificate = Structured(env.contract(0.5, 0.5), env.structure)

    def reward(share):
        policy = jax.tree_util.Partial(lambda share, seen, key: share * (seen[0] + seen[3]), share)
        return jnp.mean(play(env, policy, drawn, certificate, jnp.uint32(0), "outcomes")["rewards"])

    slope = jax.jit(jax.grad(reward))
    assert all(np.isfinite(slope(share)) for share in (0.3, 1.0, 3.0))
