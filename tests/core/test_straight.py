"""What is written down as straight lines gives the numbers of the certificate's own functions, to the last digit."""

from __future__ import annotations

import copy
import math
import pickle
import random
import warnings

import numpy as np
import pytest

import tether
from tether.core import straight
from tether.core.certificate import Box, Outcome
from tether.core.ops import FLOAT64, FLOATS, Ops
from tether.simulate.eager import eager
from tether.systems import registry

RULES = ("tight", "released", "paper")
PRIORS = (0.0, 0.25, 0.97, 1.0, 1.02)
HORIZONS = (1, 2, 24, 400, math.inf)
BOXES = ((-math.inf, math.inf), (0.0, math.inf), (-2.0, 3.0))


def certificates():
    for rule in RULES:
        for rho in PRIORS:
            for horizon in HORIZONS:
                if horizon == math.inf and rho >= 1.0:
                    continue
                for lam, b, floor in ((2.0, 2.0, 1.0), (0.0, 0.3, 0.0), (0.5, 0.0, 0.7)):
                    tolerance = 1e-3 if rule == "tight" and lam == 2.0 and rho < 0.9 else 0.0
                    yield tether.LipschitzCertificate(
                        tether.Contract(lam=lam, b=b, horizon=horizon, cost_floor=floor),
                        tether.Sensitivity(3.1, 2.9, tether.geometric(rho, 1.3 if rho == 0.25 else 1.0)),
                        rule,
                        tolerance=tolerance,
                    )


def same(first, second):
    """Equal to the last digit and the sign of zero; what is not a number is equal to itself."""
    return repr(first) == repr(second)


ALL = list(certificates())


@pytest.mark.parametrize("certificate", ALL, ids=range(len(ALL)))
def test_every_digit_of_a_round_is_that_of_the_certificate_itself(certificate):
    draw = random.Random(1)
    box = Box(*draw.choice(BOXES), "l2")
    state = certificate.start(FLOATS, 0.0)
    written: dict[str, dict] = {"choose": {}, "update": {}}
    assert certificate.straight
    for _ in range(int(min(certificate.contract.horizon, 30))):
        epsilon = draw.choice([FLOAT64, 1.2e-7, 1e-3])
        prior = draw.choice([0.0, draw.uniform(-2.0, 3.0), 1e-30])
        prior = FLOATS.clip(prior, box.low, box.high)
        proposal = draw.choice([math.nan, math.inf, 1e300, prior, prior + draw.gauss(0.0, 0.5)])
        opened = certificate.open(state, None, FLOATS, epsilon)
        expected = certificate.choose(opened, proposal, prior, box, FLOATS)
        if epsilon not in written["choose"]:
            written["choose"][epsilon] = straight.choosing(certificate, state, box, epsilon)
        chosen = written["choose"][epsilon](state, proposal, prior)
        assert same(chosen, expected)
        cost = draw.choice([certificate.contract.cost_floor, draw.uniform(0.0, 9.0), 2.0, 0.1, 1e101])
        cost = math.nan if draw.random() < 0.03 else cost
        outcome = Outcome(cost, epsilon=epsilon)
        if epsilon not in written["update"]:
            written["update"][epsilon] = straight.updating(certificate, state, expected.taken, epsilon)
        state = certificate.update(state, expected.taken, outcome, FLOATS)
        assert same(written["update"][epsilon](*_before(opened), expected.taken, cost), state)


def _before(opened):
    return (opened.state,)


def played(certificate, seed: int, plain: bool, rounds: int = 30, **options):
    """What a guard decides in some rounds with hostile numbers; `plain`: by the certificate's own functions."""
    draw = random.Random(seed)
    guard = tether.Guard(certificate, prior=lambda seen: seen, low=-2.0, high=3.0, **options)
    if plain:
        object.__setattr__(certificate, "straight", False)
    decisions = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tether.AssumptionBreach)
        for _ in range(int(min(certificate.contract.horizon, rounds))):
            seen = draw.uniform(-2.0, 3.0)
            near = seen + draw.gauss(0.0, 0.3)
            odd = [None, math.nan, "no", 1e300, [near], np.float64(math.inf), np.float32(near)]
            wish = draw.choice(odd) if draw.random() < 0.3 else draw.choice([seen, near, np.float64(near)])
            decisions.append(guard.act(draw.choice([seen, np.float64(seen)]), wish))
            # A cost below the floor now and then, an operator, a missing cost.
            cost = draw.choice([1.0, 1.3, 4.0]) if draw.random() < 0.97 else -1.0
            cost = draw.choice([float] * 9 + [np.float64] * 9 + [np.float32])(cost)
            what = draw.random()
            if what < 0.1:
                guard.observe(cost, applied=0.5, override="operator")
            elif what < 0.2 and certificate.contract.horizon != 1:
                guard.observe(None)
                for late in guard.pending:  # none after a breach
                    guard.report(late, cost)
            else:
                guard.observe(cost)
            decisions.append({**guard.state_dict(), "certificate": None})
    return decisions, guard.counts, guard.breach, guard.overrides


@pytest.mark.parametrize("certificate", ALL[::7], ids=range(len(ALL[::7])))
@pytest.mark.parametrize("seed", range(3))
def test_a_guard_decides_and_remembers_the_same(certificate, seed):
    fast = played(copy.deepcopy(certificate), seed, plain=False)
    assert same(fast, played(copy.deepcopy(certificate), seed, plain=True))


@pytest.mark.parametrize("options", [{"quantum": 0.01}, {"tolerance": 1e-3}, {"monitor": True}], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_a_guard_with_an_actuator_or_a_monitor_decides_the_same(options, seed):
    if "monitor" in options:
        options = {"monitor": tether.Ranges(lambda seen, action, cost: ((1.0, 3.5, 1.0), ()))}
    fast = played(copy.deepcopy(ALL[6]), seed, plain=False, **options)
    assert same(fast, played(copy.deepcopy(ALL[6]), seed, plain=True, **options))


def test_an_ordinary_round_is_decided_and_closed_in_the_short_way(monkeypatch):
    guard = tether.Guard(ALL[6], prior=lambda seen: seen, low=-2.0, high=3.0)
    monkeypatch.setattr(guard, "_decide", None)
    monkeypatch.setattr(guard, "_close_round", None)
    for proposal in (0.5, np.float64(9.0), 0.51):
        guard.act(0.5, proposal)
        guard.observe(np.float64(1.3))
    with pytest.raises(TypeError):
        guard.act(0.5, "no")  # which is not ordinary


def searched(system, lam: float, b: float, written: bool, monkeypatch):
    """What a structured guard decides in an episode with hostile proposals; by lines that are `written`, or not."""
    env, draw = system.env(), random.Random(0)
    episode = system.draw(0, 1)
    with monkeypatch.context() as patched:
        calls = []
        of = straight.Written.of
        patched.setattr(
            straight.Written, "of", lambda *given: calls.append(of(*given) if written else None) or calls[-1]
        )
        guard = tether.Guard(
            tether.Structured(env.contract(lam, b), env.structure), env.prior, env.low, env.high
        )

        def proposal(observation):
            prior = float(env.prior(observation))
            return draw.choice(
                [math.nan, 1e6, 0.0, 0.5 * prior, prior, 1.01 * prior, prior + draw.gauss(0.0, 1.0)]
            )

        rounds = list(eager(env, episode[0], proposal, guard))
    assert calls
    assert (None not in calls) == written
    return [each.action for each in rounds], guard.counts, guard.breach, guard.state_dict()["state"]


@pytest.mark.parametrize("name", ["carbon", "inference"])
@pytest.mark.parametrize(("lam", "b"), [(2.0, 2.0), (0.0, 0.1), (0.5, 0.0)])
def test_a_search_by_written_lines_ends_where_that_of_the_structure_ends(name, lam, b, monkeypatch):
    system = registry.find(name)
    fast, slow = (searched(system, lam, b, written, monkeypatch) for written in (True, False))
    assert same(fast, slow)


def test_what_decides_on_a_value_is_not_written_down_and_called_as_it_is():
    assert straight.evaluating(lambda numbers, number, ops: max(numbers[0], number), 1) is None
    assert straight.evaluating(lambda numbers, number, ops: 1.0 if number == 0.0 else numbers[0], 1) is None
    assert straight.evaluating(lambda numbers, number, ops: math.sqrt(number), 1) is None
    written = straight.evaluating(lambda numbers, number, ops: ops.clip(number, *numbers), 2)
    assert [written((0.0, 2.0), each) for each in (-1.0, 1.0, 3.0)] == [0.0, 1.0, 2.0]


def test_what_is_not_needed_is_not_computed():
    lines = straight._Lines()
    x = straight.Name("x", lines)
    x / 0.0  # would raise
    assert lines.function("x", x + 1.0)(2.0) == 3.0


def test_written_functions_are_not_kept_without_end_and_a_copy_writes_its_own():
    kept = straight.Written()
    for i in range(3 * straight.MOST):
        kept.of(i, lambda numbers, number, ops: numbers[0] + number, 1)
    assert 0 < len(kept._functions) <= straight.MOST
    assert not pickle.loads(pickle.dumps(kept))._functions


def test_written_functions_may_be_dropped_by_another_guard_at_any_time():
    class Shared(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            self.clear()  # as another thread may do

    kept = straight.Written()
    kept._functions = Shared()
    written = kept.of(0, lambda numbers, number, ops: numbers[0] + number, 1)
    assert written((1.0,), 2.0) == 3.0


def test_what_has_tables_or_is_of_another_class_is_not_written_down():
    bounds = tether.Sensitivity(2.0, 1.0, tether.geometric(0.5))
    contract = tether.Contract(lam=1.0, b=1.0, horizon=3, cost_floor=1.0)

    class Own(tether.LipschitzCertificate):
        pass

    assert tether.LipschitzCertificate(contract, bounds).straight
    assert not Own(contract, bounds).straight
    table = tether.Sensitivity(2.0, 1.0, tether.table([1.0, 0.5, 0.2]))
    assert not tether.LipschitzCertificate(contract, table).straight
    scheduled = tether.Contract(lam=1.0, b=[1.0, 2.0, 1.0], horizon=3, cost_floor=1.0)
    assert not tether.LipschitzCertificate(scheduled, bounds).straight


def test_a_decision_on_a_value_is_refused_when_it_is_written_down():
    lines = straight._Lines()
    with pytest.raises(TypeError, match=r"use Ops\.where"):
        bool(straight.Name("x", lines) > 0.0)


def test_operations_on_names_are_those_of_floats():
    numbers = (math.nan, -math.inf, -2.0, -0.0, 0.0, 1.0, 3.5, math.inf)
    cases = {
        "maximum": lambda ops, x, y: ops.maximum(x, y),
        "minimum": lambda ops, x, y: ops.minimum(x, y),
        "beyond": lambda ops, x, y: ops.maximum(ops.minimum(2.0, x), -math.inf),
        "idle": lambda ops, x, y: ops.minimum(x, math.inf),
        "where": lambda ops, x, y: ops.where(x > y, x - y, 1.0 * y),
        "unless": lambda ops, x, y: ops.unless(x <= y, x, lambda: 2.0 - y),
        "flags": lambda ops, x, y: ops.logical_or(ops.logical_and(x < 1.0, y >= 0.0), ops.logical_not(x > y)),
        "finite": lambda ops, x, y: ops.where(ops.isfinite(x), abs(x) + -y, ops.sqrt(y)),
        "constants": lambda ops, x, y: ops.maximum(math.nan, 1.0) * x + ops.minimum(1.0, 2.0) * y,
        "no number": lambda ops, x, y: ops.where(
            x > y, ops.maximum(1.0, math.nan), ops.minimum(1.0, math.nan)
        ),
        "powers": lambda ops, x, y: (
            ops.expm1_multiple(ops.minimum(abs(x), 9.0), -0.5) + ops.expm1_multiple(y, 2.0)
        ),
    }
    for name, case in cases.items():
        lines = straight._Lines()
        first, second = straight.Name("x", lines), straight.Name("y", lines)
        function = lines.function("x, y", case(lines, first, second))
        for x in numbers:
            for y in numbers:
                assert same(function(x, y), case(FLOATS, x, y)), (name, x, y)


@pytest.mark.parametrize("last", [1.0, 2.0, 3.0, 7.0, 30.0])
def test_the_turning_point_is_found_wherever_it_is(last):
    def found(ops: Ops, turn, most: int = 30):
        return ops.turning(lambda k: k < turn, last, most)

    lines = straight._Lines()
    function = lines.function("turn", found(lines, straight.Name("turn", lines)))
    for turn in range(40):
        expected = min(max(1.0, turn), last)
        assert function(float(turn)) == found(FLOATS, float(turn)) == expected
        assert float(found(tether.core.ops.NUMPY, float(turn))) == expected


def test_a_guard_with_written_functions_can_be_copied_and_pickled():
    bounds = tether.Sensitivity(2.0, 1.0, tether.geometric(0.5))
    contract = tether.Contract(lam=1.0, b=1.0, horizon=3, cost_floor=1.0)
    guard = tether.Guard(tether.LipschitzCertificate(contract, bounds), prior=abs)
    guard.act(1.0, 2.0)
    guard.observe(1.5)
    other, third = copy.deepcopy(guard), pickle.loads(pickle.dumps(guard))
    assert guard.act(1.0, 2.0) == other.act(1.0, 2.0) == third.act(1.0, 2.0)


def test_functions_are_written_again_for_a_raised_contract_and_not_kept_without_end():
    bounds = tether.Sensitivity(2.0, 1.0, tether.geometric(0.5))
    contract = tether.Contract(lam=1.0, b=1.0, horizon=3, cost_floor=1.0)
    guard = tether.Guard(tether.LipschitzCertificate(contract, bounds), prior=lambda seen: 0.0)
    before = guard.act(0.0, 9.0).radius
    guard.observe(1.0)
    guard.raise_contract(b=5.0)
    assert guard.act(0.0, 9.0).radius > before + 1.0
    kept, certificate = straight.Straight(), guard.certificate
    state, box = certificate.start(FLOATS, 0.0), Box(0.0, 1.0, "l2")
    for i in range(3 * straight.MOST):
        kept.choosing(certificate, state, box, FLOAT64 * (1.0 + i))
    assert len(kept._choose) <= straight.MOST


def test_the_guards_of_a_fleet_translate_the_same_lines_once_and_others_their_own():
    def code(lam, epsilon=FLOAT64):
        contract = tether.Contract(lam=lam, b=0.5, horizon=24, cost_floor=1.0)
        certificate = tether.LipschitzCertificate(
            contract, tether.Sensitivity(3.1, 2.9, tether.geometric(0.5))
        )
        state = certificate.start(FLOATS, 0.0)
        return straight.choosing(certificate, state, Box(0.0, 4.0, "l2"), epsilon).__code__

    assert code(0.5) is code(0.5)
    assert code(0.5) != code(0.6)
    assert code(0.5) != code(0.5, 1e-3)
