"""Claims at the exact constant stand, smaller ones are refuted by a counterexample that is real, small and replays."""

from __future__ import annotations

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from evening import Forgetful, Station, StationStructure
from tether.assure.exact_systems import ROUNDS, check_search, exact_system
from tether.assure.verify import (
    Claim,
    Constants,
    Search,
    Sides,
    as_simulator,
    claims_of,
    functions,
    gymnasium_simulator,
    refute,
    replay,
)
from tether.assure.verify.verdict import judge
from tether.certificates import Structured

QUICK = Search(samples=512, steps=20, generations=10)
ROUGH = Search(samples=64, steps=0, generations=15, population=8)


def tank(xp, **options):
    """x' = 0.5 x + a (1 + w), prior -0.25 x, cost 1 + 2 |x| + |a|: every constant is known."""
    return functions(
        lambda x, a, w: 1.0 + 2.0 * xp.abs(x) + xp.abs(a),
        lambda x, a, w: 0.5 * x + a * (1.0 + w),
        lambda x: -0.25 * x,
        states=(-4.0, 4.0),
        actions=(-2.0, 2.0),
        draws=(0.0, 1.0),
        **options,
    )


# |0.5 - 0.25 (1 + w)| is at most 0.25; a deviation is doubled at w = 1 and the cost then has slope 2.25.
TANK = tether.Sensitivity(1.0, 4.5, tether.geometric(0.25))
TANK_LIPSCHITZ = {"cost_floor": 1.0, "L_c": (2.0, 1.0), "L_f": (0.5, 2.0), "L_pi": 0.25}


def test_functions_of_jax_are_searched_with_gradients_and_the_exact_constants_stand():
    some = ["cost floor", "L_f (action)", "p(1)", "carried (0)"]
    found = tether.verify(tank(jnp), TANK, **TANK_LIPSCHITZ, rounds=1, claims=some, search=QUICK)
    assert found.gradients
    assert found.stands, str(found)
    for finding in found.findings:
        assert finding.largest == pytest.approx(finding.claimed, rel=0.02), finding.claim


def test_functions_of_numpy_are_searched_without_gradients_and_smaller_constants_are_refuted():
    system = tank(np)
    assert not system.traceable
    smaller = tether.Sensitivity(0.9, 4.05, tether.geometric(0.225))
    lipschitz = {"cost_floor": 1.1, "L_c": (1.8, 0.9), "L_f": (0.45, 1.8), "L_pi": 0.225}
    found = tether.verify(system, smaller, **lipschitz, rounds=1, search=ROUGH)
    assert len(found.refuted) == len(found.findings) == 9, str(found)
    for finding in found.refuted:
        example = finding.counterexample
        assert (example.effect < example.bound) if example.lower else (example.effect > example.bound)


def test_a_counterexample_is_small_round_inside_the_region_and_replays():
    env = tether.envs.Carbon()
    smaller = tether.Sensitivity(31.0, 2.875, tether.geometric(0.2))
    found = tether.verify(env, smaller, claims=["p(1)"], search=QUICK)
    example = found["p(1)"].counterexample
    numbers = [value for values in example.point.values() for value in values.values()]
    assert all(float(f"{number:.3g}") == number for number in numbers)
    assert example.point["draw 1"]["drop_rate"] == 0.0
    (claim,) = [
        each
        for each in claims_of(as_simulator(env), smaller, Constants(cost_floor=1.0))
        if each.name == "p(1)"
    ]
    again, refuted = replay(claim, example.point)
    assert refuted
    assert again == example
    outside = {**example.point, "state": {"backlog": -1.0}}
    with pytest.raises(ValueError, match="outside the region"):
        replay(claim, outside)
    with pytest.raises(ValueError, match="lacks 'backlog'"):
        replay(claim, {**example.point, "state": {}})


def test_in_a_vector_as_few_entries_as_possible_differ():
    system = functions(
        lambda x, a, w: jnp.sum(jnp.abs(x)) + a,
        lambda x, a, w: 0.5 * x,
        lambda x: 0.0 * x[0],
        states=(-np.ones(3), np.ones(3)),
        actions=(0.0, 1.0),
        norm="l1",
    )
    found = tether.verify(system, L_c=(0.9, None), claims=["L_c (state)"], search=QUICK)
    point = found["L_c (state)"].counterexample.point
    differing = [name for name, value in point["state"].items() if point["other state"][name] != value]
    assert len(differing) == 1


def test_round_off_refutes_nothing():
    """A cost of 1e9 with slope exactly 1: differences of such costs are off by 1e-7."""
    system = functions(
        lambda x, a, w: 1e9 + 0.1 * x + 0.9 * x,
        lambda x, a, w: 0.3 * x,
        lambda x: 0.0 * x,
        states=(0.0, 1.0),
        actions=(0.0, 1.0),
    )
    found = tether.verify(system, L_c=(1.0, None), claims=["L_c (state)"], search=QUICK)
    assert found.stands, str(found)
    smaller = tether.verify(system, L_c=(0.9, None), claims=["L_c (state)"], search=QUICK)
    assert not smaller.stands


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_no_point_refutes_a_random_system_at_its_exact_constants(seed, data):
    """Not even points that are drawn next to where the largest ratios are."""
    system, bounds, constants, _truth = exact_system(seed)
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    for claim in claims_of(system, bounds, constants, ROUNDS):
        point = {}
        for name, box in claim.box.items():
            share = rng.choice([0.0, 0.5, 1.0, rng.uniform()], size=box.size)
            values = box.low + share * box.widths
            if name.startswith("other "):
                first = point[name.removeprefix("other ")]
                values = first + 10.0 ** rng.uniform(-4, 0) * (values - first)
            point[name] = np.clip(values, box.low, box.high)
        assert not judge(claim, point), claim.name


def test_the_search_finds_the_constants_of_a_random_system_and_refutes_nine_tenths_of_them():
    some = ["cost floor", "p(2)", "immediate"]
    study = check_search(1, seed=0, search=Search(samples=2048, steps=80, generations=10), claims=some)
    for row in study["claims"]:
        assert row["refuted_at_truth"] == 0, row
        assert row["refuted_at_90"] == 1, row
        assert 0.9 < row["shares"][0] <= 1.0 + 1e-9, row


class Line(gymnasium.Env):
    """x' = 0.5 x + a + 0.1 noise, cost |x|; the noise is that of the seed."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), dtype=np.float64)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.zeros(1)
        return self.x, {}

    def step(self, action):
        cost = abs(float(self.x[0]))
        self.x = 0.5 * self.x + action + 0.1 * self.np_random.normal()
        return self.x, 0.0, False, False, {"cost": cost}


def test_a_gymnasium_environment_is_checked_with_the_same_noise_on_both_sides():
    def put(env, state):
        env.x = state

    system = gymnasium_simulator(Line(), put, lambda x: -0.25 * x, states=(-np.ones(1), np.ones(1)), seeds=20)
    little = Search(samples=64, steps=0, generations=8, population=8)
    right = tether.Sensitivity(1e-9, 1.0, tether.geometric(0.25))
    found = tether.verify(system, right, cost_floor=0.0, rounds=2, claims=["p(1)", "p(2)"], search=little)
    assert found.stands, str(found)
    assert found["p(1)"].largest == pytest.approx(0.25)
    wrong = tether.Sensitivity(1e-9, 0.9, tether.geometric(0.22))
    assert (
        len(tether.verify(system, wrong, rounds=1, claims=["p(1)", "carried (0)"], search=little).refuted)
        == 2
    )


def test_a_certificate_of_another_kind_brings_its_own_claims():
    class Own:
        def claims(self, system):
            def sides(point):
                state = system.start(point["state"])
                cost = system.play(state, point["draw 1"], point["action"])[1]
                return Sides(cost - 9.0 - 1.0, 1.0, abs(cost))  # says: cost <= 10

            box = {"state": system.states, "action": system.actions, "draw 1": system.draws}
            return [Claim("ceiling", "c <= 10", 0.0, box, sides)]

    found = tether.verify(tank(jnp), Own(), search=QUICK)
    assert [finding.claim for finding in found.refuted] == ["ceiling"]
    assert found["ceiling"].largest == pytest.approx(1.0, rel=0.01)  # 1 + 2 * 4 + 2 = 11


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"region": {"nothing": (0.0, 1.0)}}, "no 'nothing'"),
        ({"region": {"backlog": (2.0, 1.0)}}, "empty"),
        ({"region": {"backlog": (0.0, np.inf)}}, "finite range"),
        ({"claims": ["p(9)"]}, "no claim 'p"),
        ({"bounds": 3.0}, "bounds must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"L_pi": -1.0}, "L_pi must be at least 0"),
    ],
)
def test_a_mistake_is_named(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        tether.verify(tether.envs.Carbon(), **{"search": QUICK} | arguments)


def test_a_system_that_is_not_defined_everywhere_in_its_region_is_refused():
    bad = functions(
        lambda x, a, w: jnp.log(x),
        lambda x, a, w: x,
        lambda x: 0.0 * x,
        states=(-1.0, 3.0),
        actions=(0.0, 1.0),
    )
    with pytest.raises(ValueError, match="not finite at"):
        tether.verify(bad, claims=["cost floor"], cost_floor=0.0, search=QUICK)
    with pytest.raises(ValueError, match="next state"):
        functions(
            lambda x, a, w: x, lambda x, a, w: np.zeros(2), lambda x: x, states=(0.0, 1.0), actions=(0.0, 1.0)
        )
    with pytest.raises(TypeError, match="functions"):
        tether.verify(object())


def test_the_head_room_is_negative_where_a_claim_is_refuted():
    found = refute(tank(jnp), claims_of(tank(jnp), None, Constants(L_pi=0.2))[5:6], QUICK)
    assert found["L_pi"].head_room == pytest.approx(-0.25, rel=0.01)
    assert "refuted" in str(found)
    assert found.as_json()["stands"] is False


FEW = Search(samples=256, steps=0, generations=0)


class Undeclared(Station):
    """Both sides of a comparison may have different hours."""

    shared = ()


def test_a_clock_that_is_declared_is_the_same_on_both_sides_and_true_claims_stand():
    contract = Station().contract(0.5, 0.5)
    right = tether.verify(Station(), Structured(contract, StationStructure()), rounds=1, search=FEW)
    assert right.stands, str(right)
    assert {"gap 0", "floor", "now (prior)", "later (prior)", "promise", "breach"} <= {
        finding.claim for finding in right.findings
    }
    wrong = tether.verify(
        Undeclared(), Structured(contract, StationStructure()), rounds=1, claims=["gap 0"], search=FEW
    )
    assert not wrong.stands
    point = wrong["gap 0"].counterexample.point
    assert point["state"]["hour"] != point["other state"]["hour"]


def test_constants_are_compared_at_the_same_hour_too():
    claims = ["p(1)", "L_f (state)"]
    found = tether.verify(Station(), L_f=1.0, rounds=1, claims=claims, search=FEW)
    assert found.stands, str(found)
    assert list(found["p(1)"].point["state"]) == ["waiting", "hour"]
    assert list(found["p(1)"].point["other state"]) == ["waiting"]
    smaller = tether.Sensitivity(1.0, 1.0, tether.geometric(0.9))
    refuted = tether.verify(Station(), smaller, rounds=1, claims=["p(1)"], search=FEW)
    assert "hour" not in refuted["p(1)"].counterexample.point["other state"]
    assert not tether.verify(Undeclared(), L_f=1.0, rounds=1, claims=claims, search=FEW).stands


def test_what_is_declared_to_be_shared_must_not_depend_on_what_is_played():
    class Mistaken(Station):
        shared = ("waiting",)

    class Misspelt(Station):
        shared = ("clock",)

    with pytest.raises(ValueError, match="waiting is declared to be shared, but after one round it is"):
        as_simulator(Mistaken())
    with pytest.raises(ValueError, match="shared names 'clock', but the state has waiting, hour"):
        as_simulator(Misspelt())
    given = {"states": (np.zeros(2), np.ones(2)), "actions": (0.0, 1.0)}
    pair = (lambda x, a, w: x[0], lambda x, a, w: np.stack([0.5 * x[0] + a, x[1]]), lambda x: 0.0 * x[0])
    assert functions(*pair, **given, shared=[1]).others.names == ("state[0]",)
    for wrong in ([0], [2], [0, 1]):
        with pytest.raises(ValueError, match="shared"):
            functions(*pair, **given, shared=wrong)


def test_a_bound_that_fails_many_rounds_later_is_refuted_by_an_episode():
    contract = Station().contract(0.0, 0.5)
    certificate = Structured(contract, Forgetful())
    quick = Search(samples=2048, steps=0, generations=0)
    # From nine in the morning the two rounds that the search of the region plays cost nothing.
    found = tether.verify(Station(), certificate, rounds=1, search=quick)
    assert {finding.claim for finding in found.refuted} == {"later (prior)", "promise"}
    again = found["promise"].counterexample.replay(Station(), Forgetful())
    assert again.broken
    assert found.as_json()["stands"] is False
    assert "above what was promised" in str(found)
    morning = tether.verify(
        Station(), certificate, region={"waiting": (0.0, 1.0), "hour": (0.0, 9.0)}, rounds=1, search=FEW
    )
    assert morning.stands  # a region is given, which an episode might leave, so none is played


def test_several_lam_may_be_looked_at():
    class Generous(StationStructure):
        """Counts lam twice, which is no mistake where it is 0."""

        def bounds(self, now, action, plan, ops):
            return super().bounds(now._replace(lam=2.0 * now.lam), action, plan, ops)

    certificate = Structured(Station().contract(0.0, 0.5), Generous())
    some = {"claims": ["now (prior)"], "rounds": 1, "search": FEW}
    assert tether.verify(Station(), certificate, **some).stands
    refuted = tether.verify(Station(), certificate, lam=(0.0, 5.0), **some)["now (prior)"]
    assert refuted.counterexample.lam in (0.5, 4.0)  # of an episode
    region = {"waiting": (0.0, 6.0)}  # so that no episode is played
    example = tether.verify(Station(), certificate, lam=(0.0, 5.0), region=region, **some)[
        "now (prior)"
    ].counterexample
    assert 0.0 < example.point["contract"]["lam"] <= 5.0
    made = claims_of(as_simulator(Station(), region), certificate, Constants(), rounds=1, lam=(0.0, 5.0))
    (claim,) = [each for each in made if each.name == "now (prior)"]
    assert replay(claim, example.point) == (example, True)
