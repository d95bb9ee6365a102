"""What a guard saved is what another goes on with; numbers that no episode can have led to are refused by name."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest

import tether
from tether import AssumptionBreach, Guard, Reason, geometric, table
from tether.certificates import Shadowing, Structured
from tether.core.sensitivity import EstimatedSensitivity

CARBON = tether.envs.Carbon()
CONTRACT = CARBON.contract(2.0, 2.0)
P = {"geometric": geometric(0.25), "table": table([0.25**n for n in range(24)])}
CERTIFICATES = {
    **{
        f"{rule}, {name}": tether.LipschitzCertificate(CONTRACT, tether.Sensitivity(31.0, 2.875, p), rule)
        for rule in ("paper", "released", "tight")
        for name, p in P.items()
    },
    "structured": Structured(CONTRACT, CARBON.structure),
    "shadowing": Shadowing(CONTRACT, CARBON.structure, CARBON),
}
OBSERVATION = [4.0, 3.0, 0.0, 0.0]


def played(certificate, rounds=3, opened=True, cost=1.2):
    """A guard in the middle of its fourth round."""
    guard = Guard(certificate, CARBON.prior, low=0.0)
    for h in range(rounds + opened):
        guard.act(OBSERVATION, 4.9)
        if h < rounds:
            guard.observe(cost)
    return guard


def saved_of(certificate, **options):
    return json.loads(json.dumps(played(certificate, **options).state_dict(), allow_nan=False))


def restored(saved, certificate):
    given = certificate if isinstance(certificate, Shadowing) else None
    return Guard.from_state_dict(saved, CARBON.prior, given)


@pytest.mark.parametrize("name", CERTIFICATES)
@pytest.mark.parametrize("opened", [False, True])
def test_what_was_saved_is_accepted_and_goes_on(name, opened):
    guard = played(CERTIFICATES[name], opened=opened)
    again = restored(saved_of(CERTIFICATES[name], opened=opened), CERTIFICATES[name])
    for each in (guard, again):
        if opened:
            each.observe(1.3)
    for _ in range(3):
        mine, its = guard.act(OBSERVATION, 4.0), again.act(OBSERVATION, 4.0)
        assert mine == its
        guard.observe(1.1)
        again.observe(1.1)
    assert json.dumps(guard.state_dict()) == json.dumps(again.state_dict())


def state(**values):
    return lambda saved: saved["state"].update(values)


def taken(place, value):
    def change(saved):
        entry = saved["taken"]
        for step in place[:-1]:
            entry = entry[step]
        entry[place[-1]] = value

    return change


def top(**values):
    return lambda saved: saved.update(values)


ANY = {
    "rounds negative": (state(rounds=-1.0), "rounds"),
    "rounds fractional": (state(rounds=2.5), "rounds"),
    "rounds too many": (state(rounds=25.0), "rounds"),
    "rounds over": (state(rounds=24.0, magnitude=1e3), "taken must be null after the last of 24 rounds"),
    "rounds NaN": (state(rounds=math.nan), "rounds"),
    "rounds text": (state(rounds="3"), "rounds"),
    "rounds true": (state(rounds=True), "rounds"),
    "magnitude negative": (state(magnitude=-1.0), "magnitude"),
    "magnitude NaN": (state(magnitude=math.nan), "magnitude"),
    "magnitude too small": (state(magnitude=1e-3), "magnitude"),
    "magnitude text": (state(magnitude="9"), "magnitude"),
    "magnitude enormous": (state(magnitude=10**400), "magnitude"),
    "breached a number": (state(breached=0.0), "breached"),
    "a field too many": (state(luck=1.0), "luck"),
    "epsilon too small": (top(epsilon=0.0), "epsilon"),
    "epsilon NaN": (top(epsilon=math.nan), "epsilon"),
    "resolution negative": (top(resolution=-1.0), "resolution"),
    "shape a matrix": (top(shape=[2, 2]), "shape"),
    "shape empty": (top(shape=[0]), "shape"),
    "shape fractional": (top(shape=[1.5]), "shape"),
    "counts negative": (top(counts={"safe": -1}), "counts"),
    "counts fractional": (top(counts={"safe": 1.5}), "counts"),
    "counts of what is no reason": (top(counts={"luck": 1}), "luck"),
    "breach without a breach": (top(breach={"round": 1, "detail": ""}), "breach"),
    "breached without a breach": (state(breached=True), "breach"),
    "low above high": (top(low=5.0, high=4.0), "low must not exceed high"),
    "norm": (top(norm="l7"), "norm"),
    "taken too long": (lambda saved: saved["taken"].append(1.0), "taken|unpack"),
}
LIPSCHITZ = {
    "surplus NaN": (state(surplus=math.nan), "surplus"),
    "surplus infinite": (state(surplus=math.inf), "surplus"),
    "surplus more than was paid": (state(surplus=1e6), "surplus"),
    "surplus a list": (state(surplus=[1.0]), "surplus"),
    "allowance NaN": (state(allowance=math.nan), "allowance"),
    "allowance more than was earned": (state(allowance=1e6), "allowance"),
    "memory NaN": (state(memory=math.nan), "memory"),
    "memory negative": (state(memory=-0.1), "memory"),
    "memory too short": (state(memory=[0.0] * 7), "memory"),
    "memory of texts": (state(memory=["0"] * 24), "memory"),
    "deviation negative": (taken([0], -0.1), "deviation"),
    "deviation beyond the radius": (taken([0], 9.0), "deviation"),
    "radius infinite": (taken([1], math.inf), "radius"),
    "prior NaN": (taken([2], math.nan), "prior"),
}
STRUCTURED = {
    "account NaN": (state(account=math.nan), "account"),
    "account infinite": (state(account=-math.inf), "account"),
    "account above what was earned": (state(account=6.1), "account"),
    "gaps NaN": (state(gaps=[math.nan, 0.0]), "gaps"),
    "gaps too many": (state(gaps=[0.0, 0.0, 0.0]), "gaps"),
    "gaps of another shape": (state(gaps=[[0.0], [0.0]]), "gaps"),
    "backup unknown": (state(backup=2.0), "backup"),
    "backup fractional": (state(backup=0.5), "backup"),
    "backup NaN": (state(backup=math.nan), "backup"),
}
INNER = {
    "T_0 NaN": ([0], math.nan, "taken"),
    "ceiling text": ([1], "high", "taken"),
    "backup unknown": ([3], 7.0, "backup"),
    "breached a number": ([4], 1.0, "breached"),
}
SHADOWING = {
    "shadow of another shape": (state(shadow=[[0.0, [1.0], 2.0], True]), "shadow state"),
    "shadow too short": (state(shadow=[[0.0, 1.0], True]), "shadow state"),
    "shadow NaN": (state(shadow=[[math.nan, 0.0, 0.0], True]), "shadow state"),
    "shadow known a number": (state(shadow=[[0.0, 0.0, 0.0], 1.0]), "shadow known"),
    "shadow alone": (state(shadow=[True]), "shadow"),
    "observation NaN": (taken([1], [math.nan] * 4), "observation"),
    "action NaN": (taken([2], math.nan), "action"),
    "taken shadow NaN": (taken([3], [[math.nan, 0.0, 0.0], True]), "shadow state"),
}


def cases():
    for name in CERTIFICATES:
        changes = dict(ANY)
        if name == "shadowing":
            changes |= STRUCTURED | SHADOWING
            changes |= {
                f"taken {k}": (taken([0, *place], v), field) for k, (place, v, field) in INNER.items()
            }
        elif name == "structured":
            changes |= STRUCTURED
            changes |= {f"taken {k}": (taken(place, v), field) for k, (place, v, field) in INNER.items()}
        else:
            changes |= LIPSCHITZ
        for what, (change, field) in changes.items():
            yield pytest.param(name, change, field, id=f"{name}: {what}")


@pytest.mark.parametrize(("name", "change", "field"), list(cases()))
def test_numbers_that_no_episode_led_to_are_refused_by_name(name, change, field):
    saved = saved_of(CERTIFICATES[name])
    change(saved)
    with pytest.raises(ValueError, match=field):
        restored(saved, CERTIFICATES[name])


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_guard_in_breach_is_saved_and_goes_on_with_the_prior(name):
    for cost in (math.nan, 1e308, 9e99):
        guard = played(CERTIFICATES[name], opened=True)
        with pytest.warns(AssumptionBreach):
            guard.observe(cost)
        for _ in range(3):
            saved = json.loads(json.dumps(guard.state_dict(), allow_nan=False))
            guard = restored(saved, CERTIFICATES[name])
            assert guard.breach.round == 4
            decision = guard.act(OBSERVATION, 4.0)
            assert (decision.action, decision.reason) == (5.0, Reason.BREACH)
            guard = restored(json.loads(json.dumps(guard.state_dict(), allow_nan=False)), CERTIFICATES[name])
            guard.observe(1.5)


@pytest.mark.parametrize("change", [{"round": 0}, {"round": 9}, {"round": 1.5}, {"place": "here"}])
def test_a_breach_that_cannot_be_is_refused(change):
    guard = played(CERTIFICATES["tight, geometric"])
    with pytest.warns(AssumptionBreach):
        guard.observe(math.nan)
    saved = guard.state_dict()
    saved["breach"] |= change
    with pytest.raises(ValueError, match=next(iter(change))):
        restored(saved, None)


@pytest.mark.parametrize("revealed", [None, {"efficiency_noise": math.nan, "drop_rate": 0.0}])
def test_a_shadow_that_was_lost_is_saved_and_stays_lost(revealed):
    guard = played(CERTIFICATES["shadowing"], rounds=2)
    guard.observe(1.2, revealed)
    saved = json.loads(json.dumps(guard.state_dict(), allow_nan=False))
    again = restored(saved, CERTIFICATES["shadowing"])
    assert not again._state.shadow.known
    assert again.act(OBSERVATION, 4.0) == guard.act(OBSERVATION, 4.0)


@pytest.mark.parametrize("p", P)
def test_estimated_constants_come_back_as_estimates(p):
    bounds = EstimatedSensitivity(31.0, 2.875, P[p], confidence=0.9, safety=1.5, rows=480)
    guard = played(tether.LipschitzCertificate(CONTRACT, bounds))
    again = restored(json.loads(json.dumps(guard.state_dict())), None)
    assert again.certificate == guard.certificate
    assert type(again.certificate.bounds) is EstimatedSensitivity
    assert not again.certificate.bounds.proved
    assert again.certificate.bounds.rows == 480
    plain = tether.LipschitzCertificate(CONTRACT, tether.Sensitivity(31.0, 2.875, P[p]))
    assert plain != guard.certificate
    with pytest.raises(ValueError, match="saved with another certificate"):
        Guard.from_state_dict(guard.state_dict(), CARBON.prior, plain)


def test_a_copied_guard_has_a_life_of_its_own():
    for name, certificate in CERTIFICATES.items():
        guard = played(certificate)
        twin = copy.deepcopy(guard)
        assert twin._ops is guard._ops, name
        twin.observe(1.2)
        assert (twin.round, guard.round) == (5, 4)
        guard.observe(1.2)
        assert twin.act(OBSERVATION, 4.0) == guard.act(OBSERVATION, 4.0)


def test_a_guard_restored_with_a_monitor_that_it_did_not_have_watches_from_the_next_round_on():
    saved = saved_of(CERTIFICATES["tight, geometric"])
    guard = Guard.from_state_dict(saved, CARBON.prior, monitor=CARBON.monitor())
    guard.observe(1.2)
    assert guard.breach is None
    seen = np.array(OBSERVATION)
    guard.act(seen, 5.0)
    with pytest.warns(AssumptionBreach, match="the cost"):
        guard.observe(99.0)
