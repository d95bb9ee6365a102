"""Raising lam and b while a guard runs."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

import tether
from tether import Contract, Guard, GuardMisuse, LipschitzCertificate, Sensitivity, Structured, geometric
from tether.certificates.surplus import Surplus

BOUNDS = Sensitivity(2.0, 1.0, geometric(0.5))
CARBON = tether.envs.Carbon()
SEEN = [4.0, 3.0, 0.0, 0.0]
FINITE, ENDLESS = Contract(0.5, 0.5, 12, 1.0), Contract(0.5, 0.5, math.inf, 1.0)
CERTIFICATES = {
    f"{rule}, {contract.horizon}": LipschitzCertificate(contract, BOUNDS, rule)
    for rule in ("tight", "released", "paper")
    for contract in (FINITE, ENDLESS)
} | {
    f"structured, {contract.horizon}": Structured(contract, CARBON.structure)
    for contract in (FINITE, ENDLESS)
}


def played(certificate, rounds=4):
    guard = Guard(certificate, CARBON.prior, low=0.0, resolution=0.0)
    for _ in range(rounds):
        guard.act(SEEN, 4.6)
        guard.observe(1.5)
    return guard


@pytest.mark.parametrize("name", CERTIFICATES)
def test_what_was_earned_before_counts_as_it_was_promised_then(name):
    """A guard that was told the schedule from the start knows what is to come, and has earned the same so far."""
    certificate = CERTIFICATES[name]
    guard = played(certificate)
    guard.raise_contract(lam=1.0, b=2.0)
    later = {"lam": [0.5] * 4 + [1.0] * 8, "b": [0.5] * 4 + [2.0] * 8}
    told = replace(certificate, contract=replace(FINITE, **later))
    knowing = played(told)
    for _ in range(3):
        mine, its = (each.act(SEEN, 0.0) for each in (guard, knowing))
        if name.startswith("tight, 12") or name.startswith("structured, 12"):
            assert mine.radius == pytest.approx(its.radius, rel=1e-6)
        assert mine.radius <= its.radius * (1.0 + 1e-6)
        for each in (guard, knowing):
            each.observe(1.5)


@pytest.mark.parametrize("name", CERTIFICATES)
def test_raising_gives_freedom_from_the_coming_round_on_and_is_saved(name):
    guard = played(CERTIFICATES[name])
    before = abs(guard.reach(SEEN, 0.0)[1] - guard.reach(SEEN, 0.0)[0])
    guard.raise_contract(b=2.0)
    saved = json.loads(json.dumps(guard.state_dict(), allow_nan=False))
    for again in (
        Guard.from_state_dict(saved, CARBON.prior),
        Guard.from_state_dict(saved, CARBON.prior, CERTIFICATES[name]),
    ):
        assert again.contract == guard.contract
        assert again.certificate.contract.b == 2.0
        assert again.reach(SEEN, 0.0) == guard.reach(SEEN, 0.0)
        assert abs(again.reach(SEEN, 0.0)[1] - again.reach(SEEN, 0.0)[0]) > before
    guard.reset()
    assert guard.contract == replace(CERTIFICATES[name].contract, b=2.0)


def test_the_contract_of_an_episode_is_what_each_round_promised():
    guard = played(CERTIFICATES["tight, 12"])
    assert guard.contract == FINITE
    guard.raise_contract(lam=1.0)
    guard.act(SEEN, 4.6)
    guard.observe(1.5)
    guard.raise_contract(b=[1.0] * 12)
    assert guard.contract == replace(FINITE, lam=[0.5] * 4 + [1.0] * 8, b=[0.5] * 5 + [1.0] * 7)
    endless = played(CERTIFICATES["tight, inf"])
    endless.raise_contract(b=1.0)
    assert endless.contract == replace(FINITE, horizon=4, lam=[0.5] * 4, b=[0.5] * 4)
    endless.act(SEEN, 4.6)
    endless.observe(1.5)
    assert endless.contract.b == Contract(0.0, [0.5] * 4 + [1.0], 5).b


def test_a_guard_that_was_never_raised_saves_nothing_of_it():
    guard = played(CERTIFICATES["tight, 12"])
    assert "contracts" not in guard.state_dict()
    assert Guard.from_state_dict(guard.state_dict(), CARBON.prior).contract == FINITE


def test_what_is_raised_before_a_round_was_closed_holds_from_the_first():
    guard = played(CERTIFICATES["tight, inf"], rounds=0)
    guard.raise_contract(b=1.0)
    guard.raise_contract(b=2.0)
    assert guard.contract == replace(ENDLESS, b=2.0)


def test_a_contract_is_raised_between_rounds_and_never_lowered():
    guard = played(CERTIFICATES["tight, 12"])
    with pytest.raises(ValueError, match=r"b can only be raised: it is 0\.5, got 0\.4"):
        guard.raise_contract(b=0.4)
    guard.act(SEEN, 4.6)
    with pytest.raises(GuardMisuse, match="round 5 is open"):
        guard.raise_contract(b=1.0)
    guard.observe(1.5)
    assert guard.contract == FINITE


def test_saved_contracts_that_were_lowered_or_begin_late_are_refused():
    guard = played(CERTIFICATES["tight, 12"])
    guard.raise_contract(b=1.0)
    for change, message in (
        (lambda pieces: pieces.reverse(), "rounds that rise from 1"),
        (lambda pieces: pieces[1][1].update(b=0.1), "can only be raised"),
        (lambda pieces: pieces.pop(0), "rounds that rise from 1"),
        (lambda pieces: pieces[1][1].update(cost_floor=0.5), "can only be raised, got"),
        (lambda pieces: pieces.extend([[9, pieces[1][1]], [7, pieces[1][1]]]), "rounds that rise from 1"),
    ):
        saved = json.loads(json.dumps(guard.state_dict()))
        change(saved["contracts"])
        with pytest.raises(ValueError, match=message):
            Guard.from_state_dict(saved, CARBON.prior)


def test_a_certificate_that_cannot_be_raised_says_so(monkeypatch):
    guard = Guard(CERTIFICATES["tight, 12"], CARBON.prior)
    monkeypatch.delattr(Surplus, "rebased")
    with pytest.raises(TypeError, match="has no rebased"):
        guard.raise_contract(b=1.0)
    assert guard.contract == FINITE
