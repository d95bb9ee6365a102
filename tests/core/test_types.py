"""Number types and magnitudes under attack: digits that are not there, numbers that are hardly any or too large."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from adversary import HostileSystem, draw
from online import play
from structures import hostile_draws
from tether import Guard
from tether.assure.attack import Hostile, plants
from tether.certificates import Shadowing, Structured
from tether.core.ops import FLOAT32, FLOAT64, round_off
from tether.systems import registry

RULES = ("paper", "released", "tight")


def through_float32(number):
    """A number that has lost its digits, and does not say so."""
    return float(np.float32(number))


def broken(env, certificate, episodes, guard_options, **options):
    """Yields the share of the bound by which each episode of a script breaks the promise."""
    for i in range(len(episodes)):
        guard = Guard(certificate, env.prior, env.low, env.high, env.norm, **guard_options)
        yield play(env, episodes, i, guard, lambda seen, h: Hostile(env)(seen), **options).excess(
            certificate.contract
        )


def test_costs_in_single_precision_do_not_deceive_set_membership():
    """The plant computes in float64; what it costs is told in float32, as Gymnasium and torch users do."""
    env = plants(registry.find("carbon"))["standard"]
    episodes = hostile_draws(env, 600, np.random.default_rng(0))[290:330]  # one of them deceives
    certificate = Structured(env.contract(5.0, 0.3), env.structure)
    assert max(broken(env, certificate, episodes, {}, paid=np.float32)) < 0.0
    assert max(broken(env, certificate, episodes, {}, paid=through_float32)) < 0.0
    typed = broken(env, certificate, episodes, {"resolution": 0.0}, paid=np.float32)
    assert max(typed) < 0.0  # the type says it
    deceived = broken(env, certificate, episodes, {"resolution": 0.0}, paid=through_float32)
    assert any(excess > 0.1 for excess in deceived)  # nobody says it: so the test can fail


def single_plant(env, certificate, i, episodes, **guard_options):
    """An episode of a plant that computes in float32 and hands everything over as float64."""

    def prior(seen):
        return env.prior(seen.astype(np.float32)).astype(float)

    guard = Guard(certificate, prior, env.low, env.high, env.norm, **guard_options)
    return play(
        env,
        episodes,
        i,
        guard,
        lambda seen, h: (env.prior(seen) + env.split(seen)[3]).astype(float),
        plant=np.float32,
        seen=lambda seen: seen.astype(float),
        paid=float,
    ).excess(certificate.contract)


@pytest.mark.parametrize("rule", RULES)
def test_a_plant_in_single_precision_keeps_the_promise_of_exact_constants(rule):
    env = HostileSystem(gains=(0.4,) * 12, dead_band=0.0)
    episodes = draw(env, 60, np.random.default_rng(1), policies=("worst corner", "spend late", "random"))
    for lam, b in ((0.0, 1.0), (0.5, 0.0), (2.0, 2.0)):
        certificate = tether.LipschitzCertificate(env.contract(lam, b, 12), env.sensitivity, rule)
        assert max(single_plant(env, certificate, i, episodes) for i in range(60)) < 0.0
        assert any(single_plant(env, certificate, i, episodes, resolution=0.0) > 0.0 for i in range(60))


def whole(numbers):
    """As whole numbers, where that is what they are."""
    array = np.asarray(numbers)
    fits = np.all(np.isfinite(array)) and np.all(array == np.rint(array)) and np.all(abs(array) < 2.0**62)
    return (array.astype(np.int64) if array.ndim else int(array)) if fits else numbers


def listed(numbers):
    """As a list of NumPy's own numbers, of several types."""
    array = np.asarray(numbers)
    mixed = [
        kind(each) for each, kind in zip(array.ravel(), 9 * [np.float64, np.float16, float], strict=False)
    ]
    return mixed if array.ndim else mixed[0]


CASTS = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "int": whole,
    "python": lambda numbers: np.asarray(numbers).tolist(),
    "mixed": listed,
}
EXACT = {
    "contracting": HostileSystem(gains=(0.4,) * 8, dead_band=0.0),
    "fading": HostileSystem(gains=(0.9,) * 8, states=1, actions=1, ball="l1", dead_band=0.0),
    "integrating": HostileSystem(gains=(1.0,) * 8, prior_slope=0.0, states=1, actions=1, dead_band=0.0),
    "any p": HostileSystem(
        gains=(0.5, 1.6, 1.3, 0.2, 0.9, 0.1), actions=3, bound=2.0, ball="linf", dead_band=0.0
    ),
}
SIZES = (5e-324, 1e-320, 1e-308, 1e-300, 1e-120, 1e-12, 1.0, 1e12, 1e80, 1e99, 1e154, 1e300)
TYPES = st.sampled_from(sorted(CASTS))


def told(cast, numbers):
    return CASTS[cast](numbers)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(EXACT)),
    rule=st.sampled_from(RULES),
    contract=st.sampled_from([(0.0, 1.0), (0.5, 0.0), (2.0, 2.0)]),
    size=st.sampled_from(SIZES),
    observation=TYPES,
    action=TYPES,
    cost=TYPES,
    seed=st.integers(0, 2**32 - 1),
)
def test_in_any_types_and_at_any_cost_the_promise_of_exact_constants_is_kept_or_a_breach_is_reported(
    name, rule, contract, size, observation, action, cost, seed
):
    unit = EXACT[name]
    env = dataclasses.replace(unit, floor=size * unit.floor, cost_slope=size * unit.cost_slope)
    promise = env.contract(contract[0], size * contract[1], len(env.gains))
    try:
        certificate = tether.LipschitzCertificate(promise, env.sensitivity, rule)
    except ValueError as refused:
        assert "beyond the 1e+100 that is computed with" in str(refused)  # noqa: PT017
        assert size > 1e90
        return
    episodes = draw(env, 1, np.random.default_rng(seed))
    guard = Guard(
        certificate, lambda seen: told(action, env.prior(np.asarray(seen))), env.low, env.high, env.norm
    )
    played = play(
        env,
        episodes,
        0,
        guard,
        lambda seen, h: told(action, env.prior(seen) + env.split(seen)[3]),
        seen=functools.partial(told, observation),
        paid=functools.partial(told, cost),
    )
    assert played.excess(promise) <= 0.0
    if guard.breach is None:
        assert np.max(played.costs) <= 1e100
    for decision in played.decisions[guard.uncertified_from :]:
        np.testing.assert_array_equal(decision.action, decision.prior_action)


PROPOSALS = (0.0, 5e-324, 1e-300, 1e-12, 1.0, 7.5, 1e12, 1e154, 1e308, -1.0, math.inf, math.nan)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    system=st.sampled_from(["standard", "small cap", "slow to forget", "drops much"]),
    kind=st.sampled_from(["structured", "shadowing", "tight"]),
    contract=st.sampled_from([(0.0, 0.5), (2.0, 0.3), (5.0, 2.0)]),
    observation=TYPES,
    action=TYPES,
    cost=TYPES,
    sizes=st.lists(st.sampled_from(PROPOSALS), min_size=12, max_size=12),
    seed=st.integers(0, 2**32 - 1),
)
def test_in_any_types_and_for_any_proposals_the_carbon_system_keeps_its_promise_or_reports_a_breach(
    system, kind, contract, observation, action, cost, sizes, seed
):
    env = plants(registry.find("carbon"))[system]
    promise = env.contract(*contract, 12)
    certificate = {
        "structured": lambda: Structured(promise, env.structure),
        "shadowing": lambda: Shadowing(promise, env.structure, env),
        "tight": lambda: tether.LipschitzCertificate(promise, env.sensitivity),
    }[kind]()
    episodes = hostile_draws(env, 1, np.random.default_rng(seed), horizon=12)
    guard = Guard(certificate, lambda seen: told(action, env.prior(np.asarray(seen))), env.low, env.high)
    played = play(
        env,
        episodes,
        0,
        guard,
        lambda seen, h: told(action, sizes[h] if seed % 2 else Hostile(env)(seen)),
        seen=functools.partial(told, observation),
        paid=functools.partial(told, cost),
        reveals=kind == "shadowing",
    )
    assert played.excess(promise) <= 0.0


def test_without_the_guard_these_scripts_break_the_promise():
    for env in EXACT.values():
        episodes = draw(env, 200, np.random.default_rng(0))
        policy = lambda seen, key, env=env: env.prior(seen) + env.split(seen)[3]  # noqa: E731
        prior = tether.rollout(env, env.prior, episodes, record="outcomes")
        free = tether.rollout(env, policy, episodes, record="outcomes")
        assert tether.audit(free, prior, env.contract(2.0, 2.0, len(env.gains))).violation_rate > 0.5


def test_types_that_numpy_does_not_know_count_as_the_coarsest_of_their_size():
    torch = pytest.importorskip("torch")
    for kind, expected in (
        (torch.float64, FLOAT64),
        (torch.float32, FLOAT32),
        (torch.bfloat16, 2.0**-7),
        (torch.float16, 2.0**-7),
        (torch.uint8, FLOAT64),
        (torch.bool, FLOAT64),
        (torch.int64, FLOAT64),
    ):
        assert round_off(torch.ones(2, dtype=kind)) == expected, kind
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert round_off(np.ones(2, ml_dtypes.bfloat16)) == 2.0**-7
    assert round_off(np.ones(2, ml_dtypes.float8_e4m3fn)) == 0.25
