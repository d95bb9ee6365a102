"""Late and missing costs, what was really applied, and actuators, through the online guard."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from adversary import HostileSystem, draw, hostile_policy
from tether import AssumptionBreach, Contract, Guard, LipschitzCertificate, Reason, Sensitivity, geometric
from tether.certificates import Shadowing, Structure, Structured
from tether.core.actions import Actions
from tether.core.actuator import Actuator
from tether.core.late import MOST, Pending
from tether.core.overrides import KEPT, Overrides

CONTRACT = Contract(lam=0.5, b=1.0, horizon=12, cost_floor=1.0)
BOUNDS = Sensitivity(immediate=2.0, carried=1.0, perturbation=geometric(0.5))


def guard(rule="tight", **options):
    certificate = LipschitzCertificate(CONTRACT, BOUNDS, rule)
    return Guard(certificate, lambda observation: 0.0, -5.0, 5.0, resolution=0.0, **options)


def again(each):
    """The guard after a restart."""
    return Guard.from_state_dict(json.loads(json.dumps(each.state_dict(), allow_nan=False)), each.prior)


@pytest.mark.parametrize("rule", ["paper", "released", "tight"])
@pytest.mark.parametrize("order", [[1, 2, 3], [3, 1, 2], [2, 3, 1]])
def test_freedom_comes_back_with_the_costs_in_any_order(rule, order):
    in_time, late = guard(rule), guard(rule)
    costs = {1: 4.0, 2: 3.0, 3: 2.5}
    for h in (1, 2, 3):
        for each, cost in ((in_time, costs[h]), (late, None)):
            each.act(None, 0.1)
            each.observe(cost)
    assert late.pending == (1, 2, 3)
    waiting = late.reach(None, 5.0)[1]
    late = again(late)
    for h in order:
        before = late.reach(None, 5.0)[1]
        late.report(h, costs[h])
        assert late.reach(None, 5.0)[1] >= before - 1e-6  # round-off is kept in reserve
    assert late.pending == ()
    assert late._state.surplus == pytest.approx(in_time._state.surplus, rel=1e-12)
    assert waiting < in_time.reach(None, 5.0)[1]
    if rule == "tight":
        assert late.reach(None, 5.0)[1] == pytest.approx(in_time.reach(None, 5.0)[1], rel=1e-6)


def test_a_round_without_its_cost_counts_as_the_worst_that_it_can_have_cost():
    worst, missing = guard(), guard()
    for each in (worst, missing):
        each.act(None, 0.3)
    missing.observe(None)
    moved = 2.0 * 0.3
    worst.observe(1.0 + moved)  # the prior may have paid the floor
    assert missing._state.surplus == pytest.approx(worst._state.surplus)
    assert missing._state.surplus == pytest.approx(0.5 * 1.0 - moved)
    for cost in (1.0, 1.2, 1.6, 3.0, 50.0):
        other = guard()
        other.act(None, 0.3)
        other.observe(cost)
        assert other._state.surplus >= missing._state.surplus - 1e-12


def test_rounds_that_wait_for_nothing_cannot_be_reported():
    each = guard(most_pending=2)
    for cost in (None, 2.0, None, None):
        each.act(None, 0.1)
        each.observe(cost)
    assert each.pending == (3, 4)
    each = again(each)
    for late, said in (
        (
            1,
            "round 1 has its cost already or was given up, as more than 2 waited, and waits for none; waiting: 3, 4",
        ),
        (2, "round 2 has its cost already and waits for none"),
        (5, "round 5 is not closed yet"),
        (0, "round must be at least 1"),
    ):
        with pytest.raises(ValueError, match=said):
            each.report(late, 2.0)
    with pytest.raises(ValueError, match="already waits for its cost"):
        each.report(3, None)
    each.report(3, 2.0)
    with pytest.raises(ValueError, match="waiting: 4"):
        each.report(3, 2.0)
    each.act(None, 0.1)
    each.report(4, 2.0)  # between act and observe
    with pytest.raises(ValueError, match=r"round 5 is not closed yet.*waiting|round 5 is not closed"):
        each.report(5, 2.0)
    each.observe(2.0)
    assert (each.round, each.pending) == (6, ())
    with pytest.raises(ValueError, match="and waits for none; waiting: none"):
        each.report(1, 2.0)
    each.reset()
    with pytest.raises(ValueError, match="not closed"):
        each.report(1, 2.0)


def test_a_breach_in_a_late_cost_is_one_of_its_round():
    each = guard()
    for cost in (2.0, None, None, 2.0):
        each.act(None, 0.1)
        each.observe(cost)
    with pytest.warns(AssumptionBreach, match="round 3: the cost was 0.5, not a finite number"):
        each.report(3, 0.5)
    assert (each.breach.round, each.uncertified_from, each.breach.seen) == (3, 3, 0.5)
    assert each.act(None, 0.1).reason is Reason.BREACH
    with pytest.warns(AssumptionBreach, match="round 2: the cost was nan"):
        each.report(2, math.nan)
    assert (each.breach.round, each.uncertified_from) == (2, 2)
    each.observe(None)  # after a breach a round is closed as ever
    assert each.round == 6


def test_a_certificate_that_cannot_wait_says_so_and_the_round_stays_open():
    class Impatient:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            if name in ("defer", "tolerating"):
                raise AttributeError(name)
            return getattr(self._inner, name)

    each = Guard(Impatient(LipschitzCertificate(CONTRACT, BOUNDS)), lambda observation: 0.0)
    each.act(None, 0.1)
    with pytest.raises(
        ValueError, match="Impatient cannot close a round without its cost; the round stays open"
    ):
        each.observe(None)
    each.observe(2.0)
    assert each.round == 2
    with pytest.raises(ValueError, match="Impatient has no bounds for an action, or a backup"):
        Guard(each.certificate, each.prior, tolerance=0.1)


@pytest.mark.parametrize("make", [Structured, lambda *given: Shadowing(*given, tether.envs.Carbon())])
def test_structures_count_what_was_feared_until_the_cost_comes(make):
    env = tether.envs.Carbon()
    certificate = make(env.contract(lam=1.0, b=1.0), env.structure)
    in_time, late = (Guard(certificate, env.prior, low=0.0, resolution=0.0) for _ in range(2))
    for each in (in_time, late):
        each.act([4.0, 3.0, 0.0, 0.0], 0.0)
    feared = late._taken[0][0] if make is not Structured else late._taken[0]
    in_time.observe(1.5**2 + 1.5 + 1.0)
    late.observe(None)
    assert late._state.account == pytest.approx(feared)
    assert in_time._state.account < late._state.account
    late = Guard.from_state_dict(json.loads(json.dumps(late.state_dict())), env.prior, certificate)
    late.report(1, 1.5**2 + 1.5 + 1.0)
    assert late._state.account == pytest.approx(in_time._state.account)
    # The gaps are true without the cost, so at least those that it tells.
    assert all(wide >= near for wide, near in zip(late._state.gaps, in_time._state.gaps, strict=True))


def test_a_structure_that_cannot_wait_says_so_and_the_round_stays_open():
    env = tether.envs.Carbon()

    class Blind(type(env.structure)):
        unseen = Structure.unseen

    structure = Blind(**vars(env.structure))
    each = Guard(Structured(env.contract(lam=1.0, b=1.0), structure), env.prior, low=0.0)
    each.act([4.0, 3.0, 0.0, 0.0], 0.0)
    with pytest.raises(
        ValueError, match="Blind has no bounds for a round whose cost is missing; write its `unseen`"
    ):
        each.observe(None)
    assert each.round == 1
    each.observe(1.5**2 + 1.5 + 1.0)
    assert (each.round, each.breach) == (2, None)


def test_a_monitor_is_not_shown_a_round_without_a_cost():
    calls = []

    class Log:
        def start(self):
            return 0

        def arrived(self, memory, observation):
            calls.append(("arrived", observation))
            return memory, None

        def paid(self, memory, observation, action, cost):
            calls.append(("paid", observation, action, cost))
            return memory, None

    each = guard(monitor=Log())
    for h, (cost, applied) in enumerate(((2.0, None), (None, None), (2.0, 0.0), (2.0, None))):
        each.act(float(h), 0.1)
        each = Guard.from_state_dict(each.state_dict(), each.prior, monitor=Log())
        each.observe(cost, applied=applied)
    assert calls == [
        ("arrived", 0.0), ("paid", 0.0, 0.1, 2.0), ("arrived", 1.0), ("paid", 2.0, 0.0, 2.0), ("arrived", 3.0),
        ("paid", 3.0, 0.1, 2.0),
    ]  # fmt: skip


def test_an_override_is_recorded_and_the_prior_plays_until_the_promise_holds_again():
    each = guard()
    each.act(None, 0.1)
    each.observe(2.0, applied=0.2, override="operator: a little more")  # safe
    each.act(None, 0.1)
    each.observe(9.0, applied=3.0, override="operator: maintenance")
    reasons, margins = [], []
    for _ in range(8):
        each = again(each)
        decision = each.act(None, 0.1)
        reasons.append(decision.reason)
        margins.append(decision.margin)
        assert decision.action == (0.0 if decision.reason is Reason.OVERRIDE else 0.1)
        each = again(each)
        each.observe(1.0)
    back = reasons.index(Reason.SAFE)
    assert reasons == [Reason.OVERRIDE] * back + [Reason.SAFE] * (8 - back)
    assert 1 <= back < 8
    assert margins[0] < 0.0 < margins[back]
    first, second = each.overrides
    assert (first.round, first.safe, first.until, first.why) == (1, True, 1, "operator: a little more")
    assert (second.round, second.safe, second.until, second.applied) == (2, False, 3 + back, 3.0)
    assert each.rounds_under_override == tuple(range(2, 3 + back))
    assert each.counts[Reason.OVERRIDE] == back
    assert each.breach is None
    each.reset()
    assert (each.overrides, each.rounds_under_override) == ((), ())


def test_what_was_applied_must_be_an_action_and_outside_the_bounds_it_is_a_breach():
    each = guard()
    each.act(None, 0.1)
    for applied, override, said in (
        (math.nan, None, r"applied must be a finite action of shape \(\), got nan; the round stays open"),
        ([1.0, 2.0], None, "applied must be a finite action"),
        (None, "operator", "override says who decided otherwise and why, and needs what was applied"),
        (0.2, 3, "got 3 with applied=0.2"),
    ):
        with pytest.raises(ValueError, match=said):
            each.observe(2.0, applied=applied, override=override)
    assert each.round == 1
    with pytest.warns(AssumptionBreach, match=r"round 1: 5.1 was applied, outside the bounds -5.0 to 5.0"):
        each.observe(2.0, applied=5.1)
    assert (each.breach.round, each.round) == (1, 2)


@pytest.mark.parametrize("cast", [float, np.float32, np.float16])
def test_what_was_decided_and_rounded_on_its_way_is_what_was_decided(cast):
    plain, told = (Guard(LipschitzCertificate(CONTRACT, BOUNDS), lambda observation: 0.3) for _ in range(2))
    for each in (plain, told):
        decision = each.act(None, 4.0)
        assert decision.reason is Reason.TOO_FAR
        each.observe(2.0, **({} if each is plain else {"applied": cast(decision.action)}))
    assert told.overrides == ()
    assert told._state == plain._state
    told.act(None, 0.3)
    told.observe(2.0, applied=0.3, override="operator: on site")  # the same, by somebody else
    assert [(each.why, each.safe) for each in told.overrides] == [("operator: on site", True)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["paper", "released", "tight"]))
def test_after_an_override_nothing_is_above_what_the_margin_says_and_the_promise_comes_back(seed, rule):
    """On systems for which every inequality is an equality, with operators and meters at their worst."""
    rng = np.random.default_rng(seed)
    env = HostileSystem(gains=(float(rng.choice([0.3, 0.8])),) * 16, floor=float(rng.choice([0.0, 1.0])))
    contract = Contract(lam=float(rng.choice([0.0, 0.5])), b=1.0, horizon=16, cost_floor=env.floor)
    episodes = draw(env, 1, rng)
    each = Guard(LipschitzCertificate(contract, env.sensitivity, rule), env.prior, resolution=0.0)
    policy, state, follower = hostile_policy(env), env.initial(), env.initial()
    overridden = set(rng.integers(16, size=2).tolist())
    costs, priors, margins = [], [], []
    for h in range(16):
        drawn = {name: episodes[name][0, h] for name in env.drawn_names}
        seen = env.observation(state, drawn)
        decision = each.act(seen, policy(seen, None))
        applied = decision.action
        if h in overridden:
            applied = decision.prior_action + drawn["push"] * rng.choice([0.05, 1.0, 3.0])
        margins.append(decision.margin if h not in overridden else -math.inf)
        state, _, cost = env.step(state, drawn, applied)
        wish = env.prior(env.observation(follower, drawn))
        follower, _, paid = env.step(follower, drawn, wish)
        costs.append(float(cost))
        priors.append(float(paid))
        late = rng.uniform() < 0.3
        each.observe(None if late else cost, applied=applied if h in overridden else None)
        if late and rng.uniform() < 0.7:
            each.report(h + 1, cost)
    assert each.breach is None
    left = contract.bound(np.cumsum(priors), np.arange(1, 17)) - np.cumsum(costs)
    assert np.all(left >= np.array(margins) - 1e-6)
    under = [[h + 1 in each.rounds_under_override for h in range(16)]]
    assert tether.audit([costs], [priors], contract, overridden=under).holds


def test_overrides_are_told_apart_in_an_audit():
    contract = Contract(lam=0.0, b=1.0, horizon=4)
    costs, prior = [[1.0, 5.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 3.0]]
    assert not tether.audit(costs, prior, contract).holds
    verdict = tether.audit(costs, prior, contract, overridden=[[False, True, True, False]])
    assert verdict.holds
    assert verdict.worst_margin == 1.0
    assert verdict.overridden_violations.tolist() == [[False, True, True, False]]
    assert (
        "under override          2 rounds of 1 episodes, not counted above; costs above the bound in 2"
        in str(verdict)
    )
    other = tether.audit(costs, prior, contract, overridden=[[True, False, False, False]])
    assert other.first_breach == (0, 2)
    assert not other.overridden_violations.any()
    assert not tether.audit(costs, prior, contract).overridden_violations.any()
    for wrong in ([[True, False]], [[0, 1, 1, 0]]):
        with pytest.raises(ValueError, match="overridden must be true or false for each"):
            tether.audit(costs, prior, contract, overridden=wrong)
    every = tether.audit(costs, prior, contract, overridden=np.ones((1, 4), dtype=bool))
    assert every.worst_margin == math.inf


def test_of_very_many_overrides_the_last_are_kept():
    assert KEPT == MOST == 1000  # as documented
    kept = Overrides()
    for h in range(1, KEPT + 11):
        kept.close(h, None, 0.5, overridden=h > KEPT)
    assert len(tuple(kept)) == KEPT
    assert {each.why for each in kept} == {"not said"}
    assert [each.round for each in kept][:: KEPT - 1] == [11, KEPT + 10]
    assert kept.rounds(KEPT + 10) == tuple(range(KEPT + 1, KEPT + 11))
    other = Overrides()
    other.restore(json.loads(json.dumps(kept.to_json())), True, KEPT + 11)
    assert tuple(other) == tuple(kept)
    for change, said in (
        ({"round": 0}, "at least 1"),
        ({"until": 1}, "must lie before"),
        ({"round": KEPT + 12}, "must lie before"),
    ):
        with pytest.raises(ValueError, match=said):
            Overrides().restore([{**kept.to_json()[-1], **change}], True, KEPT + 11)
    with pytest.raises(ValueError, match="an open one if and only if"):
        Overrides().restore(kept.to_json(), False, KEPT + 11)


def test_saved_rounds_that_wait_are_checked():
    pending = Pending(2)
    for h in (2, 5, 6):
        pending.add(h, (float(h),))
    saved = json.loads(json.dumps(pending.to_json()))
    assert saved == {"most": 2, "given_up": 2, "owed": [[5, [5.0]], [6, [6.0]]]}
    other = Pending(2)
    other.restore(saved, tuple, 7)
    assert other.take(6, 7) == (6, (6.0,))
    for change in ({"owed": saved["owed"][::-1]}, {"given_up": 5}, {"owed": [*saved["owed"], [7, [1.0]]]}):
        with pytest.raises(ValueError, match="pending rounds must rise"):
            Pending(2).restore({**saved, **change}, tuple, 7)
    with pytest.raises(ValueError, match="at most 1 rounds are pending, got 2"):
        Pending(1).restore(saved, tuple, 7)


def test_what_is_decided_can_be_played():
    steps = guard(quantum=0.25)
    assert steps.certificate.tolerance == pytest.approx(0.125)
    for h, proposal in enumerate((0.3, 4.0, -0.2, 0.1)):
        decision = steps.act(None, proposal)
        assert decision.action % 0.25 == 0.0
        assert decision.deviation == abs(decision.action) <= decision.radius
        assert decision.reason is (Reason.TOO_FAR if h == 1 else Reason.SAFE)
        steps = again(steps)
        steps.observe(1.0 + 2.0 * decision.deviation)
    assert not steps._state.overridden
    with pytest.raises(
        ValueError, match=r"can cost Gamma \* tolerance = 9\.\d+ a round, more than the .* = 1.5"
    ):
        guard(levels=[-5.0, -0.4, 0.0, 0.1, 0.5, 5.0])
    levels = Guard(steps.given_certificate, steps.prior, -0.6, 0.6, levels=[-0.4, 0.0, 0.1, 0.5])
    assert [levels.act(None, 0.3).action, again(levels).certificate.tolerance] == [0.1, pytest.approx(0.2)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"quantum": 0.0}, "quantum must be greater than 0, got 0.0"),
        ({"quantum": 0.3}, "low must be a multiple of the quantum 0.3, got -5.0"),
        ({"quantum": [[1.0]]}, "quantum must be a number or a vector"),
        ({"tolerance": -0.1}, "tolerance must be a number or a vector of numbers of at least 0, got -0.1"),
        ({"tolerance": math.nan}, "tolerance must be"),
        ({"quantum": 1.0, "levels": [0.0]}, "a quantum or levels, not both"),
        ({"levels": []}, "levels must be a list of numbers"),
        ({"levels": [0.0, math.inf]}, "levels must be a list of numbers"),
        ({"levels": [0.0, 6.0]}, "levels must lie between low=-5.0 and high=5.0"),
        ({"tolerance": 0.6}, "not even the prior keeps the promise"),
    ],
)
def test_actuators_that_cannot_be_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        guard(**options)


def test_an_actuator_is_off_by_its_tolerance_and_half_its_widest_step():
    for given_, bounds, off, wish, playable in (
        ((None, None, None), (None, None), 0.0, 0.3, 0.3),
        ((0.1, None, None), (None, None), 0.1, 0.3, 0.3),
        ((0.1, 0.5, None), (0.0, None), 0.35, 0.3, 0.5),
        ((None, None, [0.0, 0.2, 1.0]), (0.0, 1.0), 0.4, 0.55, 0.2),
        ((None, None, [0.3]), (0.0, 1.0), 0.7, 0.9, 0.3),
        ((None, None, [0.9, 0.5]), (0.0, 1.0), 0.5, 0.8, 0.9),
    ):
        made = Actuator(*given_, Actions(*bounds))
        assert made.off == pytest.approx(off)
        assert made.playable(wish) == playable
        assert isinstance(made.playable(wish), float)
    vector = Actuator([0.1, 0.0], [0.5, 0.25], None, Actions(None, None))
    np.testing.assert_allclose(vector.off, [0.35, 0.125])
    np.testing.assert_array_equal(vector.playable(np.array([0.3, 0.3])), [0.5, 0.25])
    assert vector.shape == (2,)
    with pytest.raises(ValueError, match="levels need finite bounds"):
        Actuator(None, None, [0.0], Actions(0.0, None))
    with pytest.raises(ValueError, match="rule 'tight', got rule 'paper'"):
        LipschitzCertificate(CONTRACT, BOUNDS, "paper", tolerance=0.1)
    env = tether.envs.Carbon()
    with pytest.raises(ValueError, match="Structured has no bounds for an action"):
        Guard(Structured(env.contract(2.0, 2.0), env.structure), env.prior, low=0.0, quantum=0.5)


def test_the_tolerance_of_a_vector_is_measured_in_the_norm():
    for norm, size in (("l1", 0.07), ("l2", 0.05), ("linf", 0.04)):
        certificate = LipschitzCertificate(CONTRACT, BOUNDS)
        each = Guard(certificate, lambda observation: np.zeros(2), norm=norm, tolerance=[0.03, 0.04])
        assert each.certificate.tolerance == pytest.approx(size)
        assert each.act(None, [0.1, 0.1]).action.shape == (2,)


def tolerance_excess(tolerance, factor, seed, episodes=30):
    """How far the promise is exceeded at most, share of the bound, where the plant is off by up to `tolerance`.

    The guard believes it to be `factor` times better. Every inequality is an equality on these systems.
    """
    rng = np.random.default_rng(seed)
    env = HostileSystem(gains=(0.5,) * 6)
    contract = Contract(lam=0.0, b=1.0, horizon=6, cost_floor=1.0)
    certificate = LipschitzCertificate(contract, env.sensitivity)
    off = tolerance * contract.earned / float(certificate.total(certificate.start()))
    drawn = draw(env, episodes, rng, ("worst corner", "spend late", "save and strike"))
    policy, worst = hostile_policy(env), -math.inf
    each = Guard(certificate.tolerating(off / factor), env.prior, resolution=0.0)
    for i in range(episodes):
        each.reset()
        state, follower, excess, told = env.initial(), env.initial(), 0.0, rng.uniform() < 0.3
        for h in range(6):
            now = {name: drawn[name][i, h] for name in env.drawn_names}
            seen = env.observation(state, now)
            decision = each.act(seen, policy(seen, None))
            played = decision.action + off * now["push"]
            state, _, cost = env.step(state, now, played)
            follower, _, paid = env.step(follower, now, env.prior(env.observation(follower, now)))
            each.observe(cost, applied=played if told else None)
            excess += float(cost - paid)
            worst = max(worst, excess - (h + 1) * contract.b)
        assert factor > 1.0 or (each.breach is None and each.rounds_under_override == ())
    return worst


@pytest.mark.parametrize("tolerance", [0.3, 1.0])
def test_whatever_an_actuator_does_within_its_tolerance_is_safe_and_five_percent_more_is_not(tolerance):
    assert tolerance_excess(tolerance, 1.0, seed=1) <= 1e-7
    assert tolerance_excess(tolerance, 1.05, seed=1) > 1e-3
