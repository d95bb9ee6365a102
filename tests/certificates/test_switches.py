"""Guards of finite sets of actions: the mask, the nearest safe action, and the same in a compiled program."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import pytest

import chillers
import tether
from tether.core.projection import length
from tether.simulate.eager import eager

LEVELS = [0.0, 1.0, 2.0, 3.0, 4.0]


def lipschitz(lam=0.5, b=1.0, horizon=8):
    bounds = tether.Sensitivity(1.0, 0.8, tether.geometric(0.8))
    return tether.LipschitzCertificate(tether.Contract(lam, b, horizon, 1.0), bounds)


def guarded(actions=None, prior=2, certificate=None, **options):
    certificate = tether.Switches(certificate or lipschitz(), actions or tether.FiniteActions(LEVELS))
    return tether.Guard(certificate, lambda seen: prior, resolution=0.0, **options)


def test_the_mask_has_what_the_radius_allows_and_a_decision_says_which_action():
    guard = guarded()
    assert guard.mask(0.0).tolist() == [False, True, True, True, False]
    decision = guard.act(0.0, 0)
    assert (decision.action, decision.prior_action, decision.proposal, decision.deviation) == (1, 2, 0, 1.0)
    assert (str(decision.reason), decision.intervened, decision.backup) == ("too far", True, "prior")
    guard.observe(1.5)
    assert guard.act(0.0, 3).action == 3


def test_what_is_in_the_mask_is_played_and_what_is_not_is_the_nearest_of_it():
    for horizon in (1, 3, 8):
        guard = guarded(certificate=lipschitz(horizon=horizon))
        for _ in range(horizon):
            mask = guard.mask(0.0)
            assert mask[2]
            for wish in range(5):
                reached = guard.reach(0.0, wish)[1]
                safe = np.flatnonzero(mask)
                assert mask[reached]
                assert abs(reached - wish) == np.min(np.abs(safe - wish))
                assert (reached == wish) == mask[wish]
            guard.act(0.0, 4)
            guard.observe(2.0)


def test_of_equally_near_actions_the_first_is_played():
    actions = tether.FiniteActions(
        [-1.0, 0.0, 1.0, 5.0], points=[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [9.0, 9.0]]
    )
    assert guarded(actions, prior=1).act(0.0, 3).action == 0


@pytest.mark.parametrize("proposal", [None, -1, 5, 0.5, float("nan"), "off", [1, 2]])
def test_what_names_no_action_is_the_priors(proposal):
    decision = guarded().act(0.0, proposal)
    assert (decision.action, str(decision.reason)) == (2, "invalid proposal")


def test_a_prior_that_names_no_action_has_failed():
    with (
        pytest.raises(tether.PriorFailed, match="the prior returned 7, expected an action from 0 to 4"),
        pytest.warns(tether.AssumptionBreach),
    ):
        guarded(prior=7).act(0.0, 1)


def test_distances_say_what_is_near():
    apart = 10.0 * (1.0 - np.eye(4))
    apart[1, 3] = apart[3, 1] = 1.0
    guard = guarded(tether.FiniteActions.with_distances([0, 1, 2, 3], apart), prior=1)
    assert guard.mask(0.0).tolist() == [False, True, False, True]
    assert guard.act(0.0, 0).action == 1


def test_after_a_breach_only_the_priors_action_is_left():
    guard = guarded()
    guard.act(0.0, 1)
    with pytest.warns(tether.AssumptionBreach):
        guard.observe(float("nan"))
    assert guard.mask(0.0).tolist() == [False, False, True, False, False]
    assert guard.act(0.0, 1).action == 2


def test_a_certificate_that_fails_leaves_the_priors_action():
    class Broken(tether.LipschitzCertificate):
        def weigh(self, *given, **options):
            raise RuntimeError("no")

    broken = Broken(lipschitz().contract, lipschitz().bounds)
    guard = guarded(certificate=broken)
    assert guard.mask(0.0).tolist() == [False, False, True, False, False]
    with pytest.warns(tether.AssumptionBreach, match="the certificate raised"):
        assert guard.act(0.0, 1).action == 2


def test_the_end_of_an_episode_has_no_mask_and_bounds_or_other_guards_neither():
    guard = guarded(certificate=lipschitz(horizon=1))
    guard.act(0.0, 1)
    guard.observe(1.0)
    with pytest.raises(tether.GuardMisuse, match="is over"):
        guard.mask(0.0)
    with pytest.raises(TypeError, match=r"tether\.Switches"):
        tether.Guard(lipschitz(), lambda seen: 0.0).mask(0.0)
    with pytest.raises(ValueError, match="a finite set of actions has no bounds, got low="):
        guarded(low=0.0)
    with pytest.raises(TypeError, match=r"actions must be tether\.FiniteActions"):
        tether.Switches(lipschitz(), [0.0, 1.0])
    with pytest.raises(TypeError, match="must have weigh"):
        tether.Switches("certificate", tether.FiniteActions(LEVELS))


def test_a_saved_guard_goes_on_as_if_it_had_never_stopped():
    first = guarded(tether.FiniteActions.grid([0.0, 1.0], [0.0, 0.5, 1.0]), prior=[1, 1])
    first.act(0.0, [0, 0])
    saved = json.loads(json.dumps(first.state_dict()))
    again = tether.Guard.from_state_dict(saved, lambda seen: [1, 1], first.certificate)
    for guard in (first, again):
        guard.observe(1.5)
    assert first.mask(0.0).tolist() == again.mask(0.0).tolist()
    assert first.act(0.0, [1, 2]).action.tolist() == again.act(0.0, [1, 2]).action.tolist()
    assert tether.Switches.from_dict(first.certificate.to_dict()) == first.certificate


def test_several_contracts_and_switches_together():
    certificate = tether.Several({"comfort": lipschitz(), "energy": lipschitz(lam=0.0, b=2.5)})
    guard = guarded(certificate=certificate)
    assert guard.mask(0.0).tolist() == [False, True, True, True, False]
    assert guard.act(0.0, 4).binding == "comfort"
    guard.observe({"comfort": 2.0, "energy": 1.0})
    assert guard.act(0.0, 2).binding is None
    with pytest.warns(tether.AssumptionBreach):
        guard.observe((1.0, 0.0))
    assert guard.breach.contracts == ("energy",)


def test_every_action_of_a_structure_is_weighed_and_those_it_does_not_cover_are_not_safe():
    env = tether.envs.Cooling()
    structure = tether.Structured(env.contract(1.0, 0.5), env.structure)
    actions = tether.FiniteActions.grid([0.0, 2.0, 4.0, 6.0, 9.0], [0.0, 3.0, 6.0], norm="linf")
    guard = tether.Guard(tether.Switches(structure, actions), lambda seen: [2, 1], resolution=0.0)
    seen = [3.6, 2.7, 24.0, 0.1, 24.0, 24.0]  # the thermostat's own action is (4, 3)
    mask = guard.mask(seen).reshape(5, 3)
    assert mask[2, 1]
    assert mask.sum() > 1
    assert not mask[4].any()  # beyond what a unit can do
    alone = tether.Guard(structure, env.prior, 0.0, 8.0, norm="linf", resolution=0.0)
    for number in range(12):
        label = actions.label(number)
        value = actions.value_array[number]
        assert mask[tuple(label)] == (alone.reach(seen, value)[1].tolist() == value.tolist())


class Masked:
    """Plays the largest safe action."""

    masked = True

    def __init__(self, values):
        self.values = values

    def __call__(self, observation, key, mask):
        return jnp.max(jnp.where(mask, self.values, -1.0))


@pytest.mark.slow
def test_a_compiled_rollout_decides_as_the_guard_and_shows_the_mask():
    env = chillers.Chillers(steps=5)
    certificate = tether.Switches(
        tether.LipschitzCertificate(env.contract(0.5, 1.0, 6), env.sensitivity), env.actions
    )
    episodes = chillers.draw(env, 20, 6, np.random.default_rng(0))
    run = tether.rollout(env, chillers.hostile(env), episodes, certificate)
    guard = tether.Guard(certificate, lambda seen: int(env.staging(seen[0])), resolution=0.0)

    def propose(observation):
        script = float(observation[2])
        return None if script > 90.0 else int(np.argmin(np.abs(env.levels - script)))

    class Valued:
        """The guard, for a plant that is told values."""

        reset, observe = guard.reset, guard.observe

        @staticmethod
        def act(observation, proposal):
            decision = guard.act(observation, proposal)
            return decision._replace(action=env.levels[decision.action])

    for i in range(6):
        turns = list(eager(env, episodes[i], propose, Valued))
        assert [turn.action for turn in turns] == run.actions[i].tolist()
    masked = tether.rollout(env, Masked(env.levels), episodes, certificate)
    assert np.array_equal(masked.actions, masked.proposals)  # what is in the mask is played
    assert np.any(masked.deviations > 0.0)
    with pytest.raises(ValueError, match="this policy is masked"):
        tether.rollout(env, Masked(env.levels), episodes, certificate.certificate)
    with pytest.raises(ValueError, match="play it with a certificate"):
        tether.rollout(env, Masked(env.levels), episodes)
    with pytest.raises(ValueError, match="train follows gradients"):
        tether.train("acrl", env, episodes, certificate, seeds=[0])


def test_points_are_as_far_apart_as_their_norm_says():
    actions = tether.FiniteActions.grid([0.0, 1.0], [0.0, 1.0], norm="l1")
    points = actions.point_array
    guard = guarded(actions, prior=[0, 0])
    allowed = [length(point - points[0], "l1") <= 1.4 for point in points]
    assert guard.mask(0.0).tolist() == allowed
