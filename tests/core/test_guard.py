from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys
import threading
import warnings
from dataclasses import FrozenInstanceError
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether import (
    AssumptionBreach,
    Contract,
    Guard,
    GuardMisuse,
    PriorFailed,
    Reason,
    Sensitivity,
    geometric,
    table,
)
from tether.systems.cooling.synthetic import synthetic_cooling


def certificate(horizon=4, rule="tight", p=None, **contract):
    promise = Contract(**{"lam": 0.5, "b": 1.0, "cost_floor": 1.0} | contract, horizon=horizon)
    return tether.LipschitzCertificate(promise, Sensitivity(2.0, 1.0, p or geometric(0.5)), rule)


def zero(observation):
    return 0.0


def guard(prior=zero, **options):
    """A guard of a plant that computes in float64, so that actions are what the formulas say to nine digits."""
    return Guard(certificate(), prior, **{"resolution": 0.0} | options)


def test_a_safe_proposal_is_played_unchanged():
    decision = guard().act(None, 0.25)
    assert (decision.action, decision.intervened, decision.reason) == (0.25, False, Reason.SAFE)
    assert decision.deviation == 0.25
    assert decision.margin == pytest.approx(1.5 - 2.0 * 0.25)
    assert decision.round == 1


def test_a_proposal_that_goes_too_far_is_moved_to_the_edge():
    decision = guard().act(None, -9.0)
    assert decision.action == pytest.approx(-0.75)
    assert decision.radius == pytest.approx(0.75)
    assert abs(decision.action) <= decision.radius
    assert decision.deviation <= decision.radius
    assert decision.reason is Reason.TOO_FAR
    assert "replaced (too far)" in str(decision)


def test_the_decision_of_a_kept_proposal_says_so():
    assert "proposal 0.25 kept" in str(guard().act(None, 0.25))


def test_a_proposal_out_of_bounds_becomes_the_nearest_safe_action_and_is_counted():
    each = guard(low=-0.1, high=0.5)
    decision = each.act(None, 0.6)
    assert (decision.action, decision.reason) == (0.5, Reason.OUT_OF_BOUNDS)
    assert each.counts[Reason.OUT_OF_BOUNDS] == 1


@pytest.mark.parametrize(
    "rubbish", [math.nan, math.inf, -math.inf, None, "x", [0.1, 0.2], {}, 10**400, object()]
)
def test_rubbish_becomes_the_priors_action_and_is_counted(rubbish):
    each = guard(prior=lambda observation: 0.125)
    decision = each.act(None, rubbish)
    assert (decision.action, decision.deviation, decision.intervened) == (0.125, 0.0, True)
    assert decision.reason is Reason.INVALID_PROPOSAL
    assert each.counts == {Reason.INVALID_PROPOSAL: 1}


@pytest.mark.parametrize("rubbish", [[0.1], [0.1, math.nan], 0.3, [[0.1, 0.2]], [0.1, 0.2, 0.3], ["a", "b"]])
def test_rubbish_for_a_vector_action_too(rubbish):
    each = guard(prior=lambda observation: np.array([0.5, -0.5]))
    decision = each.act(None, rubbish)
    np.testing.assert_array_equal(decision.action, [0.5, -0.5])
    assert decision.reason is Reason.INVALID_PROPOSAL


def test_vector_actions_keep_their_shape_and_the_norm_of_the_guard():
    for norm, expected in (("l2", [0.45, 0.6]), ("linf", [0.75, 0.75]), ("l1", [0.0, 0.75])):
        decision = guard(prior=lambda observation: np.zeros(2), norm=norm).act(None, [3.0, 4.0])
        np.testing.assert_allclose(decision.action, expected, rtol=1e-6)
        assert decision.deviation <= decision.radius


def test_an_action_of_one_number_comes_back_in_the_shape_of_the_prior():
    decision = guard(prior=lambda observation: np.array([0.0])).act(None, np.array([9.0]))
    assert decision.action.shape == decision.prior_action.shape == (1,)
    assert decision.action[0] == pytest.approx(0.75)
    bounded = guard(prior=lambda observation: [0.0], low=[-0.5], high=[0.5]).act(None, [9.0])
    np.testing.assert_array_equal(bounded.action, [0.5])


@pytest.mark.parametrize(
    "proposal", [9.0, 9, np.float32(9.0), np.array(9.0), np.array([9.0]), [9.0], [[9.0]]]
)
@pytest.mark.parametrize("answer", [0.0, [0.0]])
def test_where_an_action_is_one_number_any_array_of_one_number_will_do(proposal, answer):
    decision = guard(prior=lambda observation: answer).act(None, proposal)
    assert np.shape(decision.action) == np.shape(answer)
    assert np.ravel(decision.action)[0] == pytest.approx(0.75, rel=1e-4 if _single(proposal) else 1e-6)


def _single(proposal):
    return getattr(proposal, "dtype", None) == np.float32


def test_a_guard_can_be_copied_and_pickled():
    each = Guard(certificate(), prior=zero)
    each.act(None, 0.2)
    for copied in (copy.deepcopy(each), pickle.loads(pickle.dumps(each))):
        copied.observe(1.0)
        assert copied.act(None, 9.0).radius > 0.75
    assert each.round == 1


def test_calls_out_of_order_are_refused_and_change_nothing():
    each = guard()
    with pytest.raises(GuardMisuse, match="round 1 has no action yet; call act"):
        each.observe(1.0)
    each.act(None, 0.0)
    with pytest.raises(GuardMisuse, match="round 1 already has an action; call observe"):
        each.act(None, 0.0)
    each.observe(1.0)
    for _ in range(3):
        each.act(None, 0.0)
        each.observe(1.0)
    with pytest.raises(GuardMisuse, match=r"the episode of 4 rounds is over; call reset\(\)"):
        each.act(None, 0.0)
    with pytest.raises(GuardMisuse, match="round 5 has no action yet"):
        each.observe(1.0)
    with pytest.raises(GuardMisuse, match="is over"):
        _ = each.features(None)
    each.reset()
    assert each.act(None, 0.0).round == 1


@pytest.mark.parametrize("cost", [math.nan, math.inf, 0.5, -1.0, "free"])
def test_a_cost_that_cannot_be_is_a_breach_and_the_episode_goes_on_with_the_prior(cost):
    each = guard(prior=lambda observation: 0.125)
    each.act(None, 0.2)
    with pytest.warns(
        AssumptionBreach, match="round 1: the cost was .* not a finite number of at least the floor 1"
    ):
        each.observe(cost)
    assert each.breach.round == 1
    decision = each.act(None, 0.2)
    assert (decision.action, decision.radius, decision.reason) == (0.125, 0.0, Reason.BREACH)
    assert math.isnan(decision.margin)
    each.observe(3.0)
    assert each.act(None, 0.2).reason is Reason.BREACH
    each.reset()
    assert each.breach is None
    assert each.act(None, 0.2).reason is Reason.SAFE


def test_a_prior_that_raises_is_a_breach_and_the_round_can_be_tried_again():
    answers = iter([RuntimeError("no sensor"), 0.125])

    def flaky(observation):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    each = Guard(certificate(), flaky)
    with (
        pytest.warns(AssumptionBreach, match="the prior raised RuntimeError"),
        pytest.raises(PriorFailed, match="no sensor"),
    ):
        each.act(None, 0.0)
    decision = each.act(None, 0.7)
    assert (decision.round, decision.action, decision.reason) == (1, 0.125, Reason.BREACH)


@pytest.mark.parametrize("answer", [math.nan, None, "x", [0.1, math.inf]])
def test_a_prior_that_returns_rubbish_is_a_breach(answer):
    each = Guard(certificate(), lambda observation: answer)
    with (
        pytest.warns(AssumptionBreach, match="the prior returned"),
        pytest.raises(PriorFailed, match="expected a finite"),
    ):
        each.act(None, 0.0)
    assert each.breach.round == 1


def test_a_prior_whose_shape_changes_is_a_breach():
    answers = iter([0.0, [0.0, 0.0]])
    each = Guard(certificate(), lambda observation: next(answers))
    each.act(None, 0.0)
    each.observe(1.0)
    with (
        pytest.warns(AssumptionBreach),
        pytest.raises(PriorFailed, match=r"expected a finite action of shape \(\)"),
    ):
        each.act(None, 0.0)


def test_a_prior_outside_the_bounds_is_a_breach_and_its_nearest_action_is_played():
    each = guard(prior=lambda observation: 7.0, high=1.0)
    with pytest.warns(AssumptionBreach, match="outside the bounds"):
        decision = each.act(None, 0.0)
    assert (decision.action, decision.reason) == (1.0, Reason.BREACH)
    vector = guard(prior=lambda observation: np.array([7.0, 0.0]), high=[1.0, 1.0])
    with pytest.warns(AssumptionBreach, match="outside the bounds"):
        np.testing.assert_array_equal(vector.act(None, [0.0, 0.0]).action, [1.0, 0.0])


@settings(max_examples=60, deadline=None)
@given(
    rule=st.sampled_from(["paper", "released", "tight"]),
    tabled=st.booleans(),
    stop=st.integers(0, 11),
    open_round=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_guard_stopped_anywhere_goes_on_with_identical_decisions(rule, tabled, stop, open_round, seed):
    p = table([1.0, 1.3, 0.2, *[0.1] * 20]) if tabled else geometric(0.6)
    rng = np.random.default_rng(seed)
    proposals, costs = rng.normal(size=(12, 2)), 1.0 + rng.exponential(size=12)
    original = Guard(
        certificate(12, rule, p), lambda x: np.array([0.1, 0.2]), low=[-1.0, -math.inf], high=3.0, norm="l1"
    )
    for h in range(stop):
        original.act(h, proposals[h])
        original.observe(costs[h])
    if open_round:
        original.act(stop, proposals[stop])
    resumed = Guard.from_state_dict(
        json.loads(json.dumps(original.state_dict(), allow_nan=False)), original.prior
    )
    if open_round:
        original.observe(costs[stop])
        resumed.observe(costs[stop])
        stop += 1
    for h in range(stop, 12):
        mine, its = original.act(h, proposals[h]), resumed.act(h, proposals[h])
        np.testing.assert_array_equal(mine.action, its.action)
        assert mine[4:] == its[4:]
        original.observe(costs[h])
        resumed.observe(costs[h])
    assert resumed.counts == original.counts


def test_a_breach_survives_being_saved():
    each = guard()
    each.act(None, 0.2)
    with pytest.warns(AssumptionBreach):
        each.observe(math.nan)
    resumed = Guard.from_state_dict(json.loads(json.dumps(each.state_dict(), allow_nan=False)), zero)
    assert resumed.breach == each.breach
    assert resumed.act(None, 0.3).reason is Reason.BREACH


@pytest.mark.parametrize(
    "damage", [lambda s: s.pop("state"), lambda s: s["state"].pop("surplus"), lambda s: s.clear()]
)
def test_a_damaged_state_is_refused(damage):
    saved = guard().state_dict()
    damage(saved)
    with pytest.raises(ValueError, match="guard state"):
        Guard.from_state_dict(saved, zero)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: Guard("certificate", zero),
            TypeError,
            "certificate must have contract, .*, restore as tether",
        ),
        (lambda: guard(low=math.inf), ValueError, "low must be a number or a vector of numbers, got inf"),
        (lambda: guard(high=[1.0, -math.inf]), ValueError, "high must be a number or a vector of numbers"),
        (lambda: guard(resolution=-1.0), ValueError, "resolution must be at least 0"),
        (lambda: Guard(certificate(), 3.0), TypeError, r"prior must be callable as prior\(observation\)"),
        (lambda: guard(low=1.0, high=0.0), ValueError, "low must not exceed high"),
        (lambda: guard(low=math.nan), ValueError, "low must be a number or a vector of numbers, got nan"),
        (lambda: guard(low=[[0.0]]), ValueError, "low must be a number or a vector"),
        (lambda: guard(norm="l7"), ValueError, "norm must be one of"),
    ],
)
def test_a_guard_that_makes_no_sense_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_features_are_what_may_be_spent_what_is_left_and_what_is_still_felt():
    each = guard()
    assert each.features(None) == pytest.approx((0.75 * 3.75, 1.5, 0.0), rel=1e-6)
    each.act(None, 0.25)
    each.observe(1.5)
    allowance, margin, carried = each.features(None)
    assert carried == 0.25
    assert margin == pytest.approx((1.5 * 1.0 - 1.5) + 1.5 + 1.0 - 0.25)
    assert allowance > 0.0


class Hostile:
    """An object of a stranger's that raises whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")

    def __float__(self):
        raise RuntimeError("no number")

    def __repr__(self):
        raise RuntimeError("no text")


COSTS = {
    "text": "1.5", "text in an array": np.array("1.5"), "bytes": b"1.5", "object": object(),
    "too large": 10**400, "complex": 1.5 + 0.0j, "complex in an array": np.array(1.5 + 1.0j), "list": [1, 2],
    "vector": np.array([1.5, 1.5]), "nothing": np.array([]), "hostile": Hostile(), "class": float,
}  # fmt: skip


@pytest.mark.parametrize("cost", COSTS)
def test_a_cost_that_is_no_number_is_a_breach_and_the_round_is_closed(cost):
    each = guard(prior=lambda observation: 0.125)
    each.act(None, 0.2)
    with pytest.warns(AssumptionBreach, match="not a finite number of at least the floor 1"):
        each.observe(COSTS[cost])
    assert (each.round, each.breach.round, each.breach.seen) == (2, 1, None)
    assert each.act(None, 0.2).action == 0.125
    json.dumps(each.state_dict(), allow_nan=False)


def torch_numbers():
    """The number 2, as torch has it."""
    torch = pytest.importorskip("torch")
    leaf = torch.tensor(2.0, requires_grad=True)
    return [leaf, 1.0 * leaf, torch.tensor([2.0], dtype=torch.bfloat16), torch.tensor(2)]


@pytest.mark.slow
@pytest.mark.parametrize("form", range(4))
def test_tensors_that_require_a_gradient_are_numbers_like_any_other(form):
    value = torch_numbers()[form]
    each = guard(prior=lambda observation: 0.25 * value, high=4.0)
    assert each.act(value, value).prior_action == 0.5
    each.observe(value)
    assert each.breach is None
    coarsest = 2.0**-7 if form == 2 else tether.core.ops.FLOAT32  # a quarter of a whole number is a float32
    assert each._epsilon == coarsest
    vector = guard(prior=lambda observation: value.reshape(1).expand(2))
    np.testing.assert_array_equal(vector.act(None, value.reshape(1).expand(2)).action, [2.0, 2.0])


@pytest.mark.parametrize("proposal", [*COSTS, "tuple of texts"])
def test_a_proposal_that_is_no_action_is_counted_and_the_prior_is_played(proposal):
    each = guard(prior=lambda observation: 0.125)
    decision = each.act(None, COSTS.get(proposal, ("0.1",)))
    assert (decision.action, decision.reason) == (0.125, Reason.INVALID_PROPOSAL)
    each.observe(1.0)
    assert each.breach is None


ANSWERS = COSTS | {"matrix": np.zeros((2, 2)), "vector": [math.nan, 0.1], "list": [[0.1], [0.1, 0.2]]}


STRANGE = {
    "hostile": Hostile(),
    "lock": threading.Lock(),
    "hostile inside": {"x": Hostile()},
    "lock inside": [threading.Lock(), 0.0],
    "iterator": iter([0.0]),
}


@pytest.mark.parametrize("seen", STRANGE)
def test_an_observation_that_cannot_be_copied_is_the_monitors_to_judge_and_wedges_nothing(seen):
    each = guard(prior=lambda observation: 0.125, monitor=tether.Ranges(limits=[(1, 0.0, 1.0, 1.0)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionBreach)
        for _ in range(4):
            assert each.act(STRANGE[seen], 0.2).action in (0.2, 0.125)
            each.observe(1.0)
    assert each.round == 5
    json.dumps(each.state_dict(), allow_nan=False)


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_prior_that_answers_with_no_action_is_a_breach_whatever_it_answers(answer):
    each = guard(prior=lambda observation: ANSWERS[answer])
    for attempt in range(2):
        with (
            pytest.warns(AssumptionBreach),
            pytest.raises(PriorFailed, match="no action is known to be safe"),
        ):
            each.act(None, 0.2)
        assert each.round == 1, attempt
    each.prior = lambda observation: 0.125  # it is back, whatever it said before
    assert each.act(None, 0.2).action == 0.125


@pytest.mark.parametrize(
    ("floor", "cost", "tie"),
    [
        (1.0, 1.0 - 1e-16, True),
        (0.7, np.float32(0.7), True),
        (0.7, np.float16(0.7), True),
        (0.1, np.float16(0.1), True),
        (0.7, float(np.float32(0.7)), True),
        (1.0, 1.0 - 1e-6, False),
        (0.7, np.float64(0.7 - 1e-6), False),
        (0.0, -1e-300, False),
    ],
)
def test_a_cost_below_the_floor_by_round_off_of_its_type_is_no_breach(floor, cost, tie):
    each = Guard(certificate(cost_floor=floor), zero)
    each.act(None, 0.1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        each.observe(cost)
    assert bool(seen) == (each.breach is not None) == (not tie)


def test_asking_what_could_be_reached_plays_nothing_and_breaches_nothing():
    each = guard(prior=lambda observation: 7.0, high=1.0)
    assert each.reach(None, 0.5) == (1.0, 1.0)  # `act` would report that the prior is out of bounds
    assert each.breach is None
    assert each.counts == {}
    each = guard(prior=lambda observation: [0.0])
    before = each.state_dict()
    prior, action = each.reach(None, 9.0)
    assert prior.shape == action.shape == (1,)
    assert action[0] == pytest.approx(0.75)
    assert {**each.state_dict(), "shape": None} == before
    decision = each.act(None, action)
    assert decision.reason is Reason.SAFE
    with pytest.raises(PriorFailed):
        guard(prior=lambda observation: None).reach(None, 0.0)


@pytest.mark.parametrize("kind", ["geometric", "table", "structured"])
def test_after_the_last_round_nothing_is_reached(kind):
    env = tether.envs.Carbon()
    made = {
        "geometric": certificate(2),
        "table": certificate(2, p=table([1.0, 0.5])),
        "structured": tether.Structured(env.contract(1.0, 1.0, 2), env.structure),
    }[kind]
    each = Guard(made, (lambda seen: 5.0) if kind == "structured" else zero)
    for _ in range(2):
        each.act([4.0, 0.0, 0.0, 0.0], 0.1)
        each.observe(1.0)
    for call in (each.features, lambda seen: each.reach(seen, 0.1), lambda seen: each.act(seen, 0.1)):
        with pytest.raises(GuardMisuse, match="the episode of 2 rounds is over"):
            call([4.0, 0.0, 0.0, 0.0])


def test_what_is_reached_is_what_would_be_played_in_every_number_type():
    for wish in (9.0, np.float32(9.0), np.float16(9.0)):
        each = guard()
        _, action = each.reach(np.zeros(2, np.float32), wish)
        assert each.act(np.zeros(2, np.float32), wish).action == action


@pytest.mark.parametrize("kind", ["lipschitz", "structured", "shadowing", "cooling"])
def test_buffers_that_are_overwritten_after_a_call_change_nothing(kind):
    """One plant hands over fresh objects, another overwrites everything that it has handed over or been given."""
    env = tether.envs.Cooling() if kind == "cooling" else tether.envs.Carbon()
    contract = env.contract(0.5, 0.5)
    made = {
        "lipschitz": lambda: tether.LipschitzCertificate(contract, env.sensitivity),
        "structured": lambda: tether.Structured(contract, env.structure),
        "shadowing": lambda: tether.certificates.Shadowing(contract, env.structure, env),
        "cooling": lambda: tether.certificates.Shadowing(contract, env.structure, env),
    }[kind]()
    draw = tether.data.synthetic_carbon if kind != "cooling" else synthetic_cooling
    episodes = draw(seed=0, n=1)
    actions = []
    for overwrites in (False, True):
        buffer = np.empty(np.shape(env.prior(np.ones(len(env.observation_names)))))
        low, high = np.full(buffer.shape or (1,), 0.0), np.full(buffer.shape or (1,), 20.0)

        def prior(observation, buffer=buffer):
            buffer[...] = env.prior(observation)
            return buffer

        monitor = tether.Ranges(
            lambda seen, action, cost: ((cost, cost, 1.0), []), limits=[(0, 0.0, 99.0, 1.0)]
        )
        each = Guard(made, prior, low, high, env.norm, monitor)
        state, played = env.initial(), []
        for h in range(episodes.horizon):
            drawn = {name: np.array(episodes[name][0, h]) for name in env.drawn_names}
            observation = np.array(env.observation(state, drawn))
            proposal = np.array(0.7 * env.prior(observation))
            decision = each.act(observation, proposal)
            action = np.array(decision.action)
            if overwrites:
                for array in (
                    observation,
                    proposal,
                    decision.action,
                    decision.prior_action,
                    buffer,
                    low,
                    high,
                ):
                    np.asarray(array)[...] = 1e3
            state, _, cost = env.step(state, drawn, action if np.ndim(buffer) else action.item())
            revealed = {name: drawn[name] for name in env.hidden} if made.revealed_names else None
            paid = np.array(cost)
            each.observe(paid, revealed)
            if overwrites:
                for array in (paid, *(revealed or {}).values()):
                    array[...] = 1e3
            played.append(action)
        assert each.breach is None
        if made.revealed_names:
            assert each._state.shadow.known
        actions.append(played)
    np.testing.assert_array_equal(*actions)


@pytest.mark.slow
def test_importing_tether_does_not_import_jax():
    code = (
        "import sys, tether; from tether import Guard; from tether.systems.carbon.env import Carbon;"
        "bad = {'jax', 'equinox', 'matplotlib', 'scipy'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class Noting(tether.LipschitzCertificate):
    """Writes down what it is asked with, and may do as it likes."""

    revealed_names = ("noise",)
    epsilons: ClassVar[list] = []
    ops: ClassVar[list] = []
    outcomes: ClassVar[list] = []

    def open(self, state, observation, ops, epsilon=0.0):
        self.epsilons.append(epsilon)
        return super().open(state, observation, ops, epsilon)

    def choose(self, opened, proposal, prior, box, ops):
        self.ops.append(ops)
        return super().choose(opened, proposal, prior, box, ops)

    def update(self, state, taken, outcome, ops):
        self.outcomes.append(outcome)
        return super().update(state, taken, outcome, ops)


def noting(kind=Noting, prior=zero, resolution=0.0, **options):
    """A guard, and the lists that its certificate writes to."""
    notes = {name: [] for name in ("epsilons", "ops", "outcomes")}
    plain = certificate()
    made = type("Notes", (kind,), notes)(plain.contract, plain.bounds)
    return Guard(made, prior, resolution=resolution, **options), notes


HALF, SINGLE = 2.0**-10, tether.core.ops.FLOAT32


@pytest.mark.parametrize(
    ("resolution", "seen", "said", "proposal", "expected"),
    [
        (0.0, 1.0, 0.0, 0.1, tether.core.ops.FLOAT64),
        (1e-9, 1.0, 0.0, 0.1, 1e-9),
        (1e-9, np.float32(1.0), 0.0, 0.1, SINGLE),
        (1e-9, 1.0, np.float32(0.0), 0.1, SINGLE),
        (1e-9, 1.0, 0.0, np.float32(0.1), SINGLE),
        (1e-9, np.float16(1.0), np.float32(0.0), np.float32(0.1), HALF),
        (1e-9, np.float32(1.0), np.float16(0.0), 0.1, HALF),
        (1e-9, np.float32(1.0), 0.0, np.float16(0.1), HALF),
        (1e-9, 1.0, 0.0, np.float16(math.nan), 1e-9),  # what is not played says nothing
        (0.1, np.float16(1.0), np.float16(0.0), np.float16(0.1), 0.1),
    ],
)
def test_the_coarsest_type_of_all_that_was_told_counts_for_the_rest_of_the_episode(
    resolution, seen, said, proposal, expected
):
    each, notes = noting(prior=lambda observation: said, resolution=resolution)
    each.features(seen)
    assert notes["epsilons"] == [max(resolution, tether.core.ops.coarsest(seen))]
    each.reach(seen, proposal)
    each.act(seen, proposal)
    assert notes["epsilons"][1:] == [expected, expected]
    each.observe(1.5)
    each.prior = zero
    each.act(1.0, 0.1)
    each.observe(np.float16(1.5))
    each.act(1.0, 0.1)
    each.observe(1.5, {"noise": 0.0})
    each.act(1.0, 0.1)
    coarse = max(HALF, expected)
    assert notes["epsilons"][3:] == [expected, coarse, coarse]
    assert [outcome.epsilon for outcome in notes["outcomes"]] == [expected, coarse, coarse]
    each.reset()
    each.act(1.0, 0.1)
    each.observe(1.5, {"noise": np.zeros(2, np.float16)})
    assert each._epsilon == coarse if resolution < HALF else resolution
    assert notes["outcomes"][-1].epsilon == max(HALF, resolution)
    each.act(1.0, 0.1)
    each.observe(1.5, {"noise": 0.0})
    assert notes["outcomes"][-1].epsilon == max(HALF, resolution)  # nothing that comes later makes it finer


def test_single_numbers_are_computed_with_as_plain_floats_and_vectors_as_arrays():
    for answer, ops in (
        (0.0, tether.core.ops.FLOATS),
        ([0.0], tether.core.ops.FLOATS),
        ([0.0, 0.0], tether.core.ops.NUMPY),
    ):
        each, notes = noting(prior=lambda observation, answer=answer: answer)
        each.act(None, answer)
        assert notes["ops"] == [ops]


def test_a_certificate_is_told_what_came_of_a_round_and_nothing_that_nobody_said():
    each, notes = noting()
    each.act(None, 0.1)
    each.observe(1.5)
    each.act(None, 0.1)
    each.observe(2, {"noise": [0.5]}, next_observation="later", reward=np.float32(3.0))
    each.act(None, 0.1)
    each.observe(1.5, reward="much")
    assert notes["outcomes"][0][:5] == (1.5, None, None, None, None)
    cost, applied, revealed, after, reward = notes["outcomes"][1][:5]
    assert (cost, applied, after, reward) == (2.0, None, "later", 3.0)
    np.testing.assert_array_equal(revealed["noise"], [0.5])
    assert math.isnan(notes["outcomes"][2].reward)


class Careless(Noting):
    """Plays whatever is proposed, breached or not."""

    claimed: ClassVar[dict] = {}

    def choose(self, opened, proposal, prior, box, ops):
        choice = super().choose(opened, proposal, prior, box, ops)
        return choice._replace(**{"action": proposal, "breached": False} | self.claimed)


def test_after_a_breach_the_prior_is_played_whatever_the_certificate_says_and_it_is_not_asked():
    each, notes = noting(Careless, lambda observation: 0.125)
    assert each.reach(None, 7.0) == (0.125, 7.0)
    assert each.act(None, 7.0).action == 7.0
    with pytest.warns(AssumptionBreach):
        each.observe(math.nan)
    asked = {name: len(note) for name, note in notes.items()}
    assert each.reach(None, 7.0) == (0.125, 0.125)
    assert each.act(None, 7.0).action == 0.125
    each.observe(1.5)
    assert {name: len(note) for name, note in notes.items()} == asked
    assert each.uncertified_from == 1


def test_a_choice_that_is_known_to_be_breached_is_not_played():
    kind = type("Confused", (Careless,), {"claimed": {"breached": True, "action": 0.5}})
    each, _ = noting(kind, lambda observation: 0.125)
    assert each.reach(None, 7.0) == (0.125, 0.125)
    assert each.breach is None
    with pytest.warns(
        AssumptionBreach, match="does not cover the observation None with the prior's action 0.125"
    ):
        assert each.act(None, 7.0).action == 0.125


def test_a_certificate_that_fails_when_it_is_asked_again_is_not_obeyed():
    kind = type(
        "Confused", (Careless,), {"claimed": {"breached": True}}
    )  # and chooses NaN where nothing is proposed
    each, _ = noting(kind, lambda observation: 0.125)
    with pytest.warns(AssumptionBreach, match="it chose nan, not"):
        assert each.act(None, 7.0).action == 0.125


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        ({"action": None}, "it chose None, not a finite action inside the bounds"),
        ({"action": math.nan}, "it chose nan, not"),
        ({"action": 9.5}, "it chose 9.5, not"),
        ({"action": -9.5}, "it chose -9.5, not"),
        ({"backup": -1.0}, r"it chose backup -1.0 and took"),
        ({"backup": 1.0}, r"it chose backup 1.0 and took"),
        ({"taken": [0.0]}, r"it chose backup .* and took \[0.0\], not a tuple"),
    ],
)
def test_a_choice_that_is_none_is_a_breach_that_says_what_was_chosen(claimed, message):
    kind = type("Confused", (Careless,), {"claimed": claimed})
    each, _ = noting(kind, lambda observation: 0.125, low=-9.0, high=9.0)
    assert each.reach(None, 7.0) == (0.125, 0.125)
    with pytest.warns(AssumptionBreach, match=message):
        assert each.act(None, 7.0).action == 0.125


def test_what_is_no_action_becomes_the_priors_where_that_is_zero_too():
    decision = guard().act(None, None)
    assert (decision.action, decision.reason, decision.intervened) == (0.0, Reason.INVALID_PROPOSAL, True)


def test_the_first_breach_of_an_episode_is_the_one_that_is_kept():
    each = guard()
    assert each.uncertified_from == 5
    each.act(None, 0.1)
    each.observe(1.5)
    each.act(None, 0.1)
    with pytest.warns(AssumptionBreach):
        each.observe(0.5)
    first = each.breach
    assert (first.round, first.seen, first.claimed) == (2, 0.5, (1.0, math.inf))
    assert (first.observation, first.action) == (None, None)  # nobody watches
    each.prior = lambda observation: None
    with pytest.warns(AssumptionBreach, match="round 3"), pytest.raises(PriorFailed):
        each.act(None, 0.1)
    assert each.breach is first
    assert each.uncertified_from == 2
    with pytest.raises(FrozenInstanceError):
        each.breach.round = 4


def test_a_cost_that_the_contract_allows_and_the_certificate_does_not_claims_no_range():
    each = guard()
    each.act(None, 0.1)
    with pytest.warns(AssumptionBreach, match="more than the certificate knows to be possible"):
        each.observe(0.9e100)
    assert (each.breach.claimed, each.breach.seen) == (None, 0.9e100)


SAVED = """{"version": 5, "certificate": {"kind": "lipschitz", "rule": "tight", "contract": {"lam": 0.5, "b": 1.0,
"horizon": 4, "cost_floor": 1.0}, "bounds": {"immediate": 2.0, "carried": 1.0, "perturbation": {"kind": "geometric",
"rho": 0.5, "scale": 1.0}, "proved": true}, "resolution": 0.0, "tolerance": 0.0}, "low": null, "high": 3.0,
"norm": "l2", "resolution": 0.0, "epsilon": 2.220446049250313e-16, "shape": [], "state": {"rounds": 3.0,
"allowance": 0.0, "surplus": 0.75, "memory": 0.4375, "magnitude": 17.9375, "breached": false, "overridden": false,
"clipped": 0.0},
"taken": [0.25, 2.40624998731073, 0.0, false], "actuator": [null, null, null],
"decided": 0.25, "overrides": [], "pending": {"most": 4, "given_up": 0, "owed": []}, "missed": false,
"breach": null, "monitored": false, "watched": null, "played": null, "counts": {"safe": 4}}"""
"""Written by a guard in its open last round: files of this version must stay readable."""


def test_a_file_of_this_version_is_read_in_the_last_round_too():
    each = Guard.from_state_dict(json.loads(SAVED), zero)
    assert (each.round, each.counts, each._actions.high) == (4, {Reason.SAFE: 4}, 3.0)
    with pytest.raises(GuardMisuse, match="round 4 already has an action"):
        each.act(None, 0.1)
    assert json.loads(json.dumps(each.state_dict())) == json.loads(SAVED)
    each.observe(1.25)
    assert each.round == 5


@pytest.mark.parametrize(
    ("saved", "came"), [(None, "'NoneType'"), ([4], "'list'"), ({}, "None"), ({"version": 4}, "4")]
)
def test_what_is_no_guard_state_of_this_version_is_refused_by_what_it_is(saved, came):
    with pytest.raises(ValueError, match=f"expected a guard state of version 5, got {came}"):
        Guard.from_state_dict(saved, zero)


def test_a_reason_is_found_by_its_text():
    assert hash(Reason.SAFE) == hash("safe")
    assert {Reason.TOO_FAR: 2}["too far"] == 2
