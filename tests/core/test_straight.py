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
from tether.assure.attack import loosened
from tether.core import straight
from tether.core.certificate import Box, Outcome
from tether.core.lines import Lines, Name
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
        chosen = written["choose"][epsilon](state, (), proposal, prior)
        assert same(chosen, expected)
        cost = draw.choice([certificate.contract.cost_floor, draw.uniform(0.0, 9.0), 2.0, 0.1, 1e101])
        cost = math.nan if draw.random() < 0.03 else cost
        outcome = Outcome(cost, epsilon=epsilon)
        if epsilon not in written["update"]:
            written["update"][epsilon] = straight.updating(certificate, state, expected.taken, epsilon)
        state = certificate.update(state, expected.taken, outcome, FLOATS)
        assert same(written["update"][epsilon](*_before(opened), expected.taken, cost), state)
        if state.breached:  # the guard asks no more
            break


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


def searched(system, lam: float, b: float, way: str, proposals: str = "hostile", loosen: str | None = None):
    """What a structured guard decides in an episode; `plain` asks the certificate itself, `lines` writes its search."""
    env, draw = system.env(), random.Random(0)
    episode = system.draw(0, 1)
    structure = env.structure if loosen is None else loosened(env.structure, loosen)
    certificate = tether.Structured(env.contract(lam, b), structure)
    assert certificate._said_straight
    if way != "straight":
        for name in ("straight", "_said_straight"):
            object.__setattr__(certificate, name, False)
    calls = []
    of = certificate.written.of
    certificate.written.of = lambda *given: calls.append(None if way == "plain" else of(*given)) or calls[-1]
    guard = tether.Guard(certificate, env.prior, env.low, env.high)

    def proposal(observation):
        prior = env.prior(observation)
        if proposals == "ordinary":
            return draw.choice([0.0, 0.5, 0.9, 1.0, 1.01, 3.0]) * prior
        number = draw.choice([math.nan, 1e6, 0.0, draw.gauss(0.0, 1.0)])
        return draw.choice([number + 0.0 * prior, 0.5 * prior, prior, 1.01 * prior, number + prior])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rounds = list(eager(env, episode[0], proposal, guard))
    if way == "straight" or isinstance(rounds[0].action, float):
        assert calls
        assert (None not in calls) == (way != "plain")
    return (
        [each.decision._replace(proposal=None) for each in rounds],
        guard.counts,
        guard.state_dict()["state"],
    )


@pytest.mark.parametrize("name", ["carbon", "cooling", "inference"])
@pytest.mark.parametrize(("lam", "b"), [(2.0, 2.0), (0.0, 0.1), (0.5, 0.0)])
@pytest.mark.parametrize("proposals", ["hostile", "ordinary"])
def test_every_digit_of_a_structured_guard_is_that_of_its_own_functions(name, lam, b, proposals):
    system = registry.find(name)
    plain = searched(system, lam, b, "plain", proposals)
    for way in ("lines", "straight"):
        assert same(searched(system, lam, b, way, proposals), plain)


@pytest.mark.parametrize("name", ["carbon", "cooling", "inference"])
def test_a_structure_that_claims_too_much_is_written_down_as_it_is(name):
    system = registry.find(name)
    true = searched(system, 0.5, 0.5, "straight", "ordinary")
    for bound in system.env().structure.loosenable:
        plain, lines = (searched(system, 0.5, 0.5, way, "ordinary", bound) for way in ("plain", "straight"))
        assert same(plain, lines)
        assert not same(lines, true) or bound == "later"


def test_an_ordinary_structured_round_is_decided_and_closed_in_the_short_way(monkeypatch):
    env = tether.envs.Carbon()
    guard = tether.Guard(tether.Structured(env.contract(0.5, 0.5), env.structure), env.prior, low=0.0)
    monkeypatch.setattr(guard, "_decide", None)
    monkeypatch.setattr(guard, "_close_round", None)
    for observation in (
        np.array([2.0, 3.0, 0.0, 1.0]),
        [2.0, 3.0, 0.0, 0.0],
        np.float32([2.0, 3.0, 0.0, 0.0]),
    ):
        guard.act(observation, 0.5)
        guard.observe(1.3)
    with pytest.raises(TypeError):
        guard.act([2, 3, 0, 0], 0.5)  # whole numbers, which are not ordinary


@pytest.mark.parametrize(
    "odd", ["seen", "out of range", "prior", "proposal", "applied", "reward", "missing", "late"]
)
def test_what_is_out_of_the_ordinary_is_decided_and_closed_by_the_certificate_itself(odd):
    """Each in its turn, and the rounds after it, as a guard without straight lines has them."""
    env = tether.envs.Carbon()

    def play(straight_lines):
        structure = tether.systems.carbon.structure.CarbonStructure(
            **{**vars(env.structure), "revenue_weight": 4.0}
        )
        certificate = tether.Structured(env.contract(0.5, 0.5), structure)
        if not straight_lines:
            object.__setattr__(certificate, "straight", False)
        prior = (
            (lambda seen: env.prior(seen) + (odd == "prior" and seen[0] == 3.0))
            if odd == "prior"
            else env.prior
        )
        guard = tether.Guard(certificate, prior, low=0.0)
        decisions = []
        for i in range(9):
            seen = np.array([3.0 if i == 4 else 2.0, 3.0, 0.0, 0.1 * i])
            if i == 4 and odd == "seen":
                seen = seen[:2]
            if i == 4 and odd == "out of range":
                seen[3] = 99.0
            if len(seen) < 4:
                guard.prior = lambda _: 2.0
            wish = math.nan if i == 4 and odd == "proposal" else 0.5 * i
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", tether.AssumptionBreach)
                decisions.append(guard.act(seen, wish))
                named = {"applied": 0.0} if i == 4 and odd == "applied" else {}
                named |= {"reward": 3.0} if i == 4 and odd == "reward" else {}
                cost = None if i == 4 and odd in ("missing", "late") else 1.2 + 0.01 * i
                guard.observe(cost, **named)
                if i == 6 and odd == "late":
                    guard.report(5, 1.3)
            guard.prior = prior
        return decisions, guard.state_dict()["state"], guard.counts, guard.overrides, guard.breach

    assert same(play(True), play(False))


def test_a_structure_that_is_derived_from_another_speaks_for_itself():
    env = tether.envs.Carbon()

    class Own(type(env.structure)):
        def read(self, observation):
            return max(observation[3], 0.0), float(observation[0])  # which only numbers can

    assert tether.Structured(env.contract(0.5, 0.5), env.structure).straight
    own = Own(**vars(env.structure))
    assert not tether.Structured(env.contract(0.5, 0.5), own).straight
    Own.straight = True  # which is not true: it is asked itself all the same
    decided = []
    for structure in (own, env.structure):
        guard = tether.Guard(tether.Structured(env.contract(0.5, 0.5), structure), env.prior, low=0.0)
        decided.append(guard.act(np.array([2.0, 3.0, 0.0, 1.0]), 0.5))
    assert same(*decided)


def test_what_decides_on_a_value_is_not_written_down_and_called_as_it_is():
    def written(function, count):
        return straight.Written().of(0, lambda: straight.evaluating(function, count))

    assert written(lambda numbers, number, ops: max(numbers[0], number), 1) is None
    assert written(lambda numbers, number, ops: 1.0 if number == 0.0 else numbers[0], 1) is None
    assert written(lambda numbers, number, ops: math.sqrt(number), 1) is None
    clipped = written(lambda numbers, number, ops: ops.clip(number, *numbers), 2)
    assert [clipped((0.0, 2.0), each) for each in (-1.0, 1.0, 3.0)] == [0.0, 1.0, 2.0]


def test_what_is_not_needed_is_not_computed():
    lines = Lines()
    x = Name("x", lines)
    x / 0.0  # would raise
    assert lines.function("x", x + 1.0)(2.0) == 3.0


def test_written_functions_are_not_kept_without_end_and_a_copy_writes_its_own():
    kept = straight.Written()
    for i in range(3 * straight.MOST):
        kept.of(i, lambda: abs)
    assert 0 < len(kept._functions) <= straight.MOST
    assert not pickle.loads(pickle.dumps(kept))._functions


def test_written_functions_may_be_dropped_by_another_guard_at_any_time():
    class Shared(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            self.clear()  # as another thread may do

    kept = straight.Written()
    kept._functions = Shared()
    written = kept.of(0, lambda: straight.evaluating(lambda numbers, number, ops: numbers[0] + number, 1))
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
    lines = Lines()
    with pytest.raises(TypeError, match=r"use Ops\.where"):
        bool(Name("x", lines) > 0.0)


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
        "branches": lambda ops, x, y: ops.branch(
            x > y, lambda: x * y, lambda: ops.branch(x == 0.0, lambda: y, lambda: ops.where(x == 0.0, 1.0, x))
        ),
        "pairs": lambda ops, x, y: (lambda pair: pair[0] - pair[1][0])(
            ops.branch(y > 0.0, lambda: (x, [y]), lambda: (x + y, [1.0]))
        ),
        "loop": lambda ops, x, y: ops.loop(
            5, lambda c: (c[1], c[0] + c[1] * (x + 1.0)), (y, 0.5), lambda c: c[0] > 3.0
        )[1],
        "known": lambda ops, x, y: ops.where(
            ops.logical_or(ops.logical_and(True, x > y), ops.logical_and(x < y, False)), 1.0, y
        ),
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
        lines = Lines()
        first, second = Name("x", lines), Name("y", lines)
        function = lines.function("x, y", case(lines, first, second))
        for x in numbers:
            for y in numbers:
                assert same(function(x, y), case(FLOATS, x, y)), (name, x, y)


@pytest.mark.parametrize("last", [1.0, 2.0, 3.0, 7.0, 30.0])
def test_the_turning_point_is_found_wherever_it_is(last):
    def found(ops: Ops, turn, most: int = 30):
        return ops.turning(lambda k: k < turn, last, most)

    lines = Lines()
    function = lines.function("turn", found(lines, Name("turn", lines)))
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
        kept.chosen(certificate, state, box, None, 0.5, 0.4, FLOAT64 * (1.0 + i))
    assert len(kept._choose) <= straight.MOST
    assert len(certificate.written._functions) <= straight.MOST


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
