"""Several contracts and finite sets of actions, with what plants really have: what cannot be done is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import tether
from tether import (
    Contract,
    FiniteActions,
    Fleet,
    Guard,
    LipschitzCertificate,
    Sensitivity,
    Several,
    Switches,
    geometric,
    periodic,
)

BOUNDS = Sensitivity(1.0, 0.5, geometric(0.5))
STEPS = FiniteActions([0.0, 1.0, 2.0, 3.0])


def lipschitz(**options):
    return LipschitzCertificate(Contract(0.5, 1.0, 8, 1.0), BOUNDS, **options)


def several():
    return Several({"comfort": lipschitz(), "energy": lipschitz()})


MADE = {
    "several": (several, lambda seen: 2.0, {"comfort": 2.0, "energy": 2.0}),
    "switches": (lambda: Switches(lipschitz(), STEPS), lambda seen: 2, 2.0),
    "several switches": (lambda: Switches(several(), STEPS), lambda seen: 2, [2.0, 2.0]),
}


@pytest.mark.parametrize("kind", MADE)
def test_what_was_applied_must_be_what_was_decided(kind):
    make, prior, cost = MADE[kind]
    guard = Guard(make(), prior)
    decided = guard.act(1.0, 2).action
    with pytest.raises(ValueError, match=r"the plant must play what was decided: .* the round stays open"):
        guard.observe(cost, applied=1, override="operator: maintenance")
    assert (guard.round, guard.breach, guard.overrides) == (1, None, ())
    guard.observe(cost, applied=decided)
    assert (guard.round, guard.breach, guard.rounds_under_override) == (2, None, ())


@pytest.mark.parametrize("kind", MADE)
def test_costs_must_come_in_time(kind):
    make, prior, cost = MADE[kind]
    guard = Guard(make(), prior)
    guard.act(1.0, 2)
    with pytest.raises(ValueError, match="cannot close a round without its cost; the round stays open"):
        guard.observe(None)
    if kind != "switches":
        for part in ({"comfort": 2.0, "energy": None}, [2.0, None], (None, 2.0)):
            with pytest.raises(
                ValueError, match=r"several contracts need all costs in time, got .* stays open"
            ):
                guard.observe(part)
    assert (guard.round, guard.breach, guard.pending) == (1, None, ())
    guard.observe(cost)
    with pytest.raises(ValueError, match="round 1 has its cost already and waits for none"):
        guard.report(1, cost)


@pytest.mark.parametrize("kind", MADE)
def test_actuators_fleets_and_raised_contracts_are_for_single_contracts_of_dials(kind):
    make, prior, _ = MADE[kind]
    for options in ({"tolerance": 0.1}, {"quantum": 0.5}):
        with pytest.raises(
            ValueError, match="has no bounds for an action, or a backup, that is played inexactly"
        ):
            Guard(make(), prior, **options)
    with pytest.raises(TypeError, match="a fleet needs a certificate that decides for many plants"):
        Fleet(make(), prior, n=2)
    guard = Guard(make(), prior)
    with pytest.raises(TypeError, match="cannot be raised while it runs"):
        guard.raise_contract(b=2.0)
    assert guard.contract == Contract(0.5, 1.0, 8, 1.0)


def test_a_finite_set_is_played_as_it_is():
    for inside in (lipschitz(tolerance=0.1), Several([lipschitz(), lipschitz(tolerance=0.1)])):
        with pytest.raises(ValueError, match=r"must have no tolerance, got 0\.1"):
            Switches(inside, STEPS)


def test_a_verdict_on_several_contracts_has_no_overridden_rounds():
    costs = np.ones((1, 2, 2))
    contracts = dict.fromkeys(("a", "b"), Contract(0.0, 1.0, 2))
    assert tether.audit(costs, costs, contracts).holds
    with pytest.raises(ValueError, match="overridden is for one contract"):
        tether.audit(costs, costs, contracts, overridden=[[False, False]])


@pytest.mark.parametrize("horizon", [8, math.inf])
def test_several_contracts_may_have_schedules_and_no_last_round(horizon):
    """Each cost is the worst that deviations can make of it, and each contract keeps its own promise."""
    rates = [[0.0, 2.0], [1.0, 0.0]]
    rates = [periodic(each) if math.isinf(horizon) else (each * 4) for each in rates]
    promises = {
        "first": Contract(rates[0], rates[1], horizon, 1.0),
        "second": Contract(0.5, 0.5, horizon, 1.0),
    }
    made = Several({name: LipschitzCertificate(each, BOUNDS) for name, each in promises.items()})
    guard, memory, costs = Guard(made, lambda seen: 2.0, resolution=0.0), 0.0, []
    bound = set()
    for h in range(8):
        decision = guard.act(1.0, 9.0)
        bound.add(decision.binding)
        costs.append([1.0 + 0.5 * memory + decision.deviation] * 2)
        memory = 0.5 * memory + decision.deviation
        guard.observe(costs[-1])
        if h == 3:
            saved = json.loads(json.dumps(guard.state_dict(), allow_nan=False))
            guard = Guard.from_state_dict(saved, guard.prior, made)
    assert guard.breach is None
    assert bound == {"first", "second"}
    verdict = tether.audit([costs], np.ones((1, 8, 2)), promises)
    assert verdict.holds
    assert verdict.worst_margin < 1e-3  # nothing was given away


def test_a_guard_of_switches_is_saved_in_an_open_round():
    guard = Guard(Switches(lipschitz(), FiniteActions([0.0, 10.0, 20.0])), lambda seen: 2)
    guard.act(1.0, 2)
    saved = json.loads(json.dumps(guard.state_dict(), allow_nan=False))
    assert saved["decided"] == 20.0
    again = Guard.from_state_dict(saved, guard.prior, guard.given_certificate)
    again.observe(2.0, applied=2)
    assert (again.round, again.breach) == (2, None)
