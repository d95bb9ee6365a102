"""Late costs and overrides with schedules, raised contracts and no last round, at their worst together."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from adversary import HostileSystem, draw, hostile_policy
from structures import hostile_draws
from tether import Contract, Guard, LipschitzCertificate, Sensitivity, Structured, geometric, periodic
from tether.assure.breeding import scripted
from tether.certificates.structured import Taken
from tether.certificates.surplus import Owed
from tether.core.certificate import Outcome
from tether.core.ops import FLOATS, NUMPY

ROUNDS = 14
CARBON = tether.envs.Carbon()


def wavering(rng, horizon, floor):
    """A contract whose lam and b change from round to round, with many that earn nothing."""
    lam, b = (rng.choice([0.0, 0.0, 0.5, 3.0], size=ROUNDS).tolist() for _ in range(2))
    rates = (periodic(lam), periodic(b)) if math.isinf(horizon) else (lam, b)
    return Contract(*rates, horizon, floor)


def hostile_episode(env, guard, wish, rng, episodes, *, overriding):
    """(costs, the prior's costs) of an episode with late meters, operators and a contract that is raised."""
    state, follower = env.initial(), env.initial()
    raised = int(rng.integers(2, ROUNDS))
    overridden = set(rng.integers(ROUNDS, size=2).tolist()) if overriding else set()
    costs, priors = [], []
    for h in range(ROUNDS):
        if h == raised:
            guard.raise_contract(lam=2.0, b=1.0)
        drawn = {name: episodes[name][0, h] for name in env.drawn_names}
        seen = env.observation(state, drawn)
        decision = guard.act(seen, wish(seen, h))
        applied = decision.action
        if h in overridden:
            pushed = applied + rng.choice([-3.0, -1.0, 0.05, 3.0]) * np.ones(np.shape(applied))
            applied = np.maximum(pushed, env.low)
        state, _, cost = env.step(state, drawn, applied)
        follower, _, paid = env.step(follower, drawn, env.prior(env.observation(follower, drawn)))
        costs.append(float(cost))
        priors.append(float(paid))
        late = rng.uniform() < 0.5
        guard.observe(None if late else float(cost), applied=applied if h in overridden else None)
        for waiting in rng.permutation(guard.pending).tolist():
            if rng.uniform() < 0.3:
                guard.report(waiting, costs[waiting - 1])
        if h == ROUNDS // 2:
            saved = json.loads(json.dumps(guard.state_dict(), allow_nan=False))
            guard = Guard.from_state_dict(saved, env.prior, guard.given_certificate)
    assert guard.breach is None
    under = [[h + 1 in guard.rounds_under_override for h in range(ROUNDS)]]
    verdict = tether.audit([costs], [priors], guard.contract, overridden=under)
    assert verdict.holds, verdict
    return costs, priors


@settings(max_examples=90, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rule=st.sampled_from(["paper", "released", "tight"]),
    horizon=st.sampled_from([ROUNDS, math.inf]),
    overriding=st.booleans(),
)
def test_late_costs_and_overrides_keep_a_promise_that_changes(seed, rule, horizon, overriding):
    """On systems for which every inequality is an equality."""
    rng = np.random.default_rng(seed)
    gain, floor = float(rng.choice([0.3, 0.8])), float(rng.choice([0.0, 1.0]))
    env = HostileSystem(gains=(gain,) * ROUNDS, floor=floor)
    certificate = LipschitzCertificate(wavering(rng, horizon, floor), env.sensitivity, rule)
    guard, policy = Guard(certificate, env.prior, resolution=0.0), hostile_policy(env)
    hostile_episode(
        env, guard, lambda seen, h: policy(seen, None), rng, draw(env, 1, rng), overriding=overriding
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), horizon=st.sampled_from([ROUNDS, math.inf]), overriding=st.booleans())
def test_so_do_structures(seed, horizon, overriding):
    rng = np.random.default_rng(seed)
    certificate = Structured(wavering(rng, horizon, CARBON.cost_floor), CARBON.structure)
    guard = Guard(certificate, CARBON.prior, low=0.0, resolution=0.0)
    episodes = hostile_draws(CARBON, 1, rng, ROUNDS)
    script = np.clip(np.nan_to_num(episodes["script"][0], nan=9.0), -9.0, 9.0)

    def wish(seen, h):
        return scripted(CARBON.prior(seen), script[h], *CARBON.action_range())

    hostile_episode(CARBON, guard, wish, rng, episodes, overriding=overriding)


BOUNDS = Sensitivity(3.0, 1.5, geometric(0.5))
STEP = st.tuples(st.floats(0.0, 1.0), st.floats(-1.0, 1.0), st.booleans(), st.floats(0.0, 1.0))


@settings(max_examples=80, deadline=None)
@given(st.lists(STEP, min_size=4, max_size=12), st.sampled_from(["tight", "released"]))
def test_without_an_end_late_costs_never_give_back_more_than_was_feared(steps, rule):
    """The exact slack in fractions; the prior's cost is as far from what is seen as the deviations can move it."""
    contract = Contract(periodic([0.3, 0.0, 2.0]), periodic([0.1, 1.0]), math.inf, 1.0)
    certificate = LipschitzCertificate(contract, BOUNDS, rule)
    state, memory, left, waiting = certificate.start(FLOATS), Fraction(0), Fraction(0), []
    for h, (share, sign, late, comes) in enumerate(steps):
        opened = certificate.open(state, None, FLOATS)
        taken = certificate.choose(opened, share * opened.radius, 0.0, (None, None, "l2"), FLOATS).taken
        moved = float(Fraction(1.5) * memory + Fraction(3) * Fraction(taken.deviation))
        cost, paid = (1.0 + moved, 1.0) if sign > 0.0 else (1.0, 1.0 + moved * -sign)
        lam, b = (Fraction(each(float(h), NUMPY)) for each in (contract.lam_at, contract.b_at))
        left += (1 + lam) * Fraction(paid) + b - Fraction(cost)
        memory = memory / 2 + Fraction(taken.deviation)
        if late:
            state, owed = certificate.defer(state, taken, Outcome(math.nan), FLOATS)
            waiting.append((owed, cost))
        else:
            state = certificate.update(state, taken, Outcome(cost), FLOATS)
        if waiting and comes > 0.5:
            owed, then = waiting.pop(int(comes * 100.0) % len(waiting))
            state = certificate.settle(state, owed, Outcome(then), FLOATS)
        assert left >= 0
        assert state.surplus <= left + Fraction(1e-12)
        assert not state.breached


@pytest.mark.parametrize("kind", ["lipschitz", "structured"])
def test_what_a_kept_promise_gave_already_does_not_come_back_with_a_late_cost(kind):
    contract = Contract(0.5, 0.1, math.inf, 1.0)
    certificate = {
        "lipschitz": LipschitzCertificate(contract, BOUNDS),
        "structured": Structured(contract, CARBON.structure),
    }[kind]
    guard = Guard(certificate, CARBON.prior, low=0.0)
    guard.act([4.0, 3.0, 0.0, 0.0], 0.0)
    guard.observe(None)
    before, (owed,) = guard._state, guard._pending._owed.values()

    def freed(clipped):
        after = guard.certificate.settle(before._replace(clipped=clipped), owed, Outcome(1.5), FLOATS)
        assert after.magnitude == before.magnitude
        return after.surplus - before.surplus if kind == "lipschitz" else before.account - after.account

    whole = freed(0.0)
    assert whole > 0.05
    assert freed(0.25 * whole) == pytest.approx(0.75 * whole, rel=1e-9)
    assert freed(2.0 * whole) == 0.0


@pytest.mark.parametrize("kind", ["lipschitz", "structured"])
def test_a_late_cost_counts_with_the_lam_of_its_round(kind):
    contract = Contract([0.0, 3.0, 3.0], [1.0] * 3, 3, 1.0)
    certificate = {
        "lipschitz": LipschitzCertificate(contract, BOUNDS),
        "structured": Structured(contract, CARBON.structure),
    }[kind]
    late, seen = (Guard(certificate, CARBON.prior, low=0.0) for _ in range(2))
    for guard in (late, seen):
        guard.act([4.0, 3.0, 0.0, 0.0], 4.9)
        guard.observe(None if guard is late else 1.2)
        guard.act([4.0, 3.0, 0.0, 0.0], 5.0)
        guard.observe(1.0)
        guard.raise_contract(lam=5.0, b=9.0)
    late.report(1, 1.2)
    account = "surplus" if kind == "lipschitz" else "account"
    first, second = (getattr(guard._state, account) for guard in (late, seen))
    assert first == pytest.approx(second, rel=1e-9, abs=1e-9)


def test_a_fleet_is_for_plants_that_nobody_overrides():
    certificate = LipschitzCertificate(Contract(0.5, 0.1, 8, 1.0), BOUNDS)
    fleet = tether.Fleet(certificate, lambda seen: seen[:, 0], n=2)
    fleet.act(np.ones((2, 1)), [1.0, 1.0])
    with pytest.raises(ValueError, match="costs must be 2 numbers"):
        fleet.observe(None)
    saved = fleet.state_dict()
    saved["plants"][1]["state"]["overridden"] = True
    with pytest.raises(ValueError, match="under an override, got plant 1; use"):
        tether.Fleet.from_state_dict(saved, fleet.prior)


@pytest.mark.parametrize("rule", ["paper", "released", "tight"])
def test_a_late_cost_pays_for_its_own_round_off_without_an_end(rule):
    made = LipschitzCertificate(Contract(2.0, 1.0, math.inf, 1.0), BOUNDS, rule, resolution=1e-6)
    state = made.start(FLOATS)._replace(rounds=3.0, surplus=-(2.0**60), allowance=0.5, clipped=0.75)
    owed = Owed(0.5, 2.0, 0.5)
    for outcome, eps in ((Outcome(1.25, epsilon=1e-5), 1e-5), (Outcome(1.25), 1e-6)):
        small = state._replace(surplus=4.0)
        kept = made._unit_round_off(eps) * (4.0 * 1.25 + 0.5) + 16.0 * FLOATS.epsilon(0.0)
        settled = made.settle(small, owed, outcome, FLOATS)
        # 3 max(1, 1.25 - 0.5) - 1.25 = 1.75 was seen and 2 - 0.5 = 1.5 counted; 0.25 of that was given already.
        assert settled.surplus == 4.0
        more = made.settle(small, owed._replace(clipped=0.625), outcome, FLOATS).surplus - 4.0
        assert more == pytest.approx(0.25 - 0.125 - kept, rel=1e-6)
        assert settled.magnitude == small.magnitude
        if rule != "tight":
            assert settled.allowance == pytest.approx(3.0 + 4.0 - kept, rel=1e-12)
            rich = made.settle(small._replace(allowance=9.0), owed, outcome, FLOATS)
            assert rich.allowance == 9.0
    large = made.settle(state, Owed(1e6, 2.0, 0.75), Outcome(1.25, epsilon=1e-5), FLOATS)
    gained = 1e6 - 0.25 - made._unit_round_off(1e-5) * (5.0 + 1e6) - 1024.0
    assert large.surplus + 2.0**60 == pytest.approx(gained, abs=512.0)


def test_what_was_given_already_is_never_too_small():
    made = LipschitzCertificate(Contract(0.5, 0.25, math.inf, 1.0), BOUNDS)
    state = made.start(FLOATS)._replace(clipped=2.0**60)
    assert made._settle(state, False, -1.25, 0.0, 0.0, 0.0, FLOATS)[2] == 2.0**60 + 1024.0
    assert made._settle(state._replace(clipped=4.0), False, -1.25, 0.0, 0.0, 0.0, FLOATS)[2] == pytest.approx(
        5.0
    )


@pytest.mark.parametrize(("rule", "shift"), [("paper", 0.0), ("released", 12.0), ("tight", 12.0)])
def test_a_raised_contract_moves_the_account_by_the_b_of_the_past(rule, shift):
    made = LipschitzCertificate(Contract(0.5, 1.0, 8, 2.0), BOUNDS, rule)
    state = made.start(FLOATS)._replace(rounds=4.0, surplus=5.0, allowance=3.0, magnitude=50.0)
    moved = made.rebased(state, Contract(1.0, 4.0, 8, 2.0))
    assert moved.surplus == 5.0 - shift
    assert moved.allowance == 3.0 + (0.0 if rule == "tight" else 4.0)
    assert moved.magnitude == 50.0 + 12.0 + 5.0 * 4.0
    endless = LipschitzCertificate(Contract(0.5, 1.0, math.inf, 2.0), BOUNDS, rule)
    onward = endless.rebased(state, Contract(1.0, 4.0, math.inf, 2.0))
    assert (onward.surplus, onward.magnitude) == (5.0, 50.0 + 4.0)


@pytest.mark.parametrize(
    ("name", "wrong"), [("overridden", 1.0), ("clipped", -0.5), ("clipped", math.nan), ("surplus", -0.5)]
)
def test_a_saved_account_without_an_end_is_checked(name, wrong):
    made = LipschitzCertificate(Contract(0.5, 1.0, math.inf, 1.0), BOUNDS)
    state = made.start(FLOATS)._asdict()
    assert made.restore(state, None)[0] == made.start(FLOATS)
    assert made.restore({**state, "surplus": -0.5, "overridden": True}, None)[0].surplus == -0.5
    with pytest.raises(ValueError, match=f"{name} must be"):
        made.restore({**state, name: wrong}, None)


def test_a_structures_account_without_an_end_pays_for_each_round_and_for_each_late_cost():
    made = Structured(Contract(0.5, 0.25, math.inf, 1.0), CARBON.structure)
    start = made.start(FLOATS)
    unit, taken = made._unit_round_off(1e-5), Taken(1.0, 9.0, (), 0.0, False, 1e-5)
    huge = start._replace(account=-(2.0**60), clipped=2.0**60)
    after = made._closed(huge, taken, 4096.0, start.gaps, 3.0, FLOATS)
    assert (after.account + 2.0**60, after.clipped) == (4096.0 + 1024.0, 2.0**60 + 1024.0)
    small = start._replace(rounds=2.0, account=-4.0, magnitude=100.0, clipped=0.5)
    after = made._closed(small, taken, 1.5, start.gaps, 3.0, FLOATS)
    assert after.account == pytest.approx(-4.0 + 1.5 - 0.25 + unit * (100.0 + 3.0 + 0.75 + 1.0), rel=1e-12)
    assert after.magnitude == 0.75 + CARBON.structure.scale
    assert made._closed(small, taken, 9.0, start.gaps, 3.0, FLOATS).clipped == pytest.approx(
        0.5 + 9.0 - 4.25 + unit * 104.75, rel=1e-12
    )
    guard = Guard(made, CARBON.prior, low=0.0)
    guard.act([4.0, 3.0, 0.0, 0.0], 0.0)
    guard.observe(None)
    (owed,) = guard._pending._owed.values()
    finite = Structured(Contract(0.5, 0.25, 8, 1.0), CARBON.structure)
    late = Outcome(1.5, epsilon=1e-6)
    counted, settled = (
        each.settle(small, owed._replace(clipped=0.5), late, FLOATS) for each in (finite, made)
    )
    reserve = made._unit_round_off(1e-6) * (2.5 * 1.5 + abs(owed.now))
    assert settled.account - counted.account == pytest.approx(reserve, rel=1e-6)
    for wrong in (owed._replace(clipped=-1.0), owed._replace(lam=-1.0), owed._replace(lam=math.nan)):
        with pytest.raises(ValueError, match="clipped and lam must be"):
            made.restored_owed([*wrong[:2], list(wrong.step), *wrong[3:]])
