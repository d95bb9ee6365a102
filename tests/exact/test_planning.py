"""Value iteration behind the guard: against closed forms, brute force with the online guard, and itself."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from small_mixture import (
    EXAMPLE,
    GRID,
    KAPPA,
    LAM,
    THETA,
    B,
    guarded,
    two_rounds,
    two_rounds_certificate,
    unguarded,
)
from tether.exact import planning
from tether.exact.example import BacklogMixture
from tether.exact.grid import Resolution, cell_corners, corner_weight, place_on_axis, prepare
from tether.exact.mixture import MixtureSystem, every_draw, next_states
from tether.exact.playing import play_every_draw


@pytest.mark.parametrize("second", [0.1, 0.7])
@pytest.mark.parametrize(("lam", "b"), [(0.2, 0.3), (0.5, 0.0)])
def test_two_rounds_have_the_value_and_the_action_of_the_closed_form(second, lam, b):
    problem = prepare(two_rounds(), two_rounds_certificate(lam, b), GRID)
    assert problem.sizes == (9, 1)  # nothing is carried, so the memory needs no grid
    theta, budget = [1.0 - second, second], lam + b
    plan = planning.plan(problem, theta)
    now, later = budget + KAPPA * second * budget, KAPPA * second * 2.0 * budget
    assert plan.start[0] == pytest.approx(max(now, later), abs=1e-6)
    # The proposals are 0, 0.5, 1, 1.5 and 2; all but the first are projected on the budget of 0.5.
    assert (plan.greedy[0, 0, 0, 0] > 0) == (now > later)


@functools.cache
def compiled():
    """The system's functions of scalars: prior, (reward, cost), next states."""
    system = EXAMPLE.system
    return (
        functools.cache(jax.jit(system.prior)),
        jax.jit(lambda at, x, a: (system.reward(at, x, a), system.cost(at, x, a))),
        jax.jit(lambda at, x, a: next_states(system, at, x, a)),
    )


def brute_force(rule, first=0):
    """The best expected reward over all closed-loop proposals and every draw, through the online guard."""
    system, certificate = EXAMPLE.system, EXAMPLE.certificate(LAM, B, rule)
    prior, gains, arrive = compiled()
    low, high = system.actions
    chances = system.mixture @ THETA
    guard = tether.Guard(certificate, lambda seen: float(prior(*seen)), low, high, resolution=0.0)

    def best(at, state, past):
        values = []
        for proposal in np.linspace(low, high, GRID.actions):
            guard.reset()
            for seen, action, cost in past:
                guard.act(seen, action)
                guard.observe(cost)
            action = float(guard.act((at, state), proposal).action)
            value, cost = map(float, gains(at, state, action))
            if at < system.horizon:
                after = [*past, ((at, state), action, cost)]
                arrived = np.asarray(arrive(at, state, action))
                value += chances @ [best(at + 1, float(each), after) for each in arrived]
            values.append(value)
        return max(values)

    with jax.enable_x64(True):
        return best(1, float(system.initial[first]), [])


def test_a_plan_earns_on_the_continuous_system_what_brute_force_through_the_online_guard_finds():
    problem, theta = guarded(), THETA
    plan = planning.plan(problem, theta)
    played = play_every_draw(problem, plan, theta, theta)
    for first in (0, 1):
        mine, best = played.firsts == first, brute_force("tight", first)
        value = played.run.returns[mine] @ played.chances[mine] / played.chances[mine].sum()
        assert value <= best + 1e-6
        assert value == pytest.approx(best, rel=0.005)
        assert plan.starts[first, 0] == pytest.approx(best, rel=0.03)
    assert plan.start[0] == pytest.approx(plan.starts[:, 0].mean())


def test_rule_paper_has_its_allowance_on_the_grid():
    problem = guarded(rule="paper")
    assert problem.sizes == (9, 4, 7)
    values = planning.plan(problem, THETA).starts[:, 0]
    assert values[0] == pytest.approx(brute_force("paper"), rel=0.03)
    assert (values < planning.plan(guarded(), THETA).starts[:, 0]).all()


@settings(max_examples=60, deadline=None)
@given(
    value=st.floats(-3.0, 5.0),
    low=st.floats(-1.0, 1.0),
    width=st.floats(0.1, 3.0),
    count=st.integers(1, 9),
    spacing=st.sampled_from([1, 2]),
)
def test_interpolation_reproduces_the_clipped_value(value, low, width, count, spacing):
    with jax.enable_x64(True):
        lower, weight = place_on_axis(jnp.asarray(value), low, low + width, count, spacing)
        lower, weight = int(lower), float(weight)
    assert 0 <= lower <= max(count - 2, 0)
    assert 0.0 <= weight <= 1.0
    if count > 1:
        nodes = low + (np.arange(count) / (count - 1)) ** spacing * width
        between = (1.0 - weight) * nodes[lower] + weight * nodes[lower + 1]
        assert between == pytest.approx(np.clip(value, low, low + width), abs=1e-9)


@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3))
def test_corner_weights_are_probabilities(weights):
    corners = cell_corners((4, 1, 3))
    assert len(corners) == 4  # an axis with one node has no upper side
    total = sum(corner_weight([weights[0], 0.0, weights[2]], corner) for _, corner in corners)
    assert total == pytest.approx(1.0)
    assert {offset for offset, _ in corners} == {0, 1, 3, 4}


def test_the_guard_that_never_binds_costs_nothing_and_the_one_without_slack_costs_all():
    theta = THETA
    free = planning.plan(unguarded(), theta).start[0]
    generous, strict = guarded(9.0, 9.0), guarded(0.0, 0.0)
    assert planning.plan(generous, theta).start[0] == pytest.approx(free, abs=1e-9)
    prior = planning.plan(strict, theta).start[0]
    assert prior < free - 0.1
    assert planning.random_value(strict, theta) == pytest.approx(prior, abs=1e-9)
    assert planning.random_value(generous, theta) < prior


def test_a_policy_is_worth_its_plan_under_its_own_theta_and_less_under_another():
    corners = planning.plan(guarded(), np.eye(3))
    for j, theta in enumerate(np.eye(3)):
        values = planning.evaluate(guarded(), corners, theta)
        assert values[:, j] == pytest.approx(corners.starts[:, j], abs=1e-12)
        assert (values <= corners.starts[:, [j]] + 1e-12).all()
    assert (planning.evaluate(guarded(), corners, np.eye(3)[0])[:, 1] < corners.starts[:, 0] - 0.01).all()


def test_the_promise_holds_over_every_draw_and_not_without_the_guard():
    theta = THETA
    contract = EXAMPLE.certificate(0.3, 0.2).contract
    for problem, kept in ((guarded(0.3, 0.2), True), (unguarded(), False)):
        played = play_every_draw(problem, planning.plan(problem, theta), theta, theta)
        assert played.chances.sum() == pytest.approx(1.0)
        assert tether.audit(played.run, played.prior_costs, contract).holds is kept


def test_the_constants_of_the_example_are_proved_and_not_wasteful():
    system, bounds, rng = EXAMPLE.system, EXAMPLE.sensitivity, np.random.default_rng(0)
    largest = {"immediate": 0.0, "carried": 0.0, "rho": 0.0}
    with jax.enable_x64(True):
        x, y = (jnp.asarray(rng.uniform(*system.states, 20_000)) for _ in range(2))
        a = jnp.asarray(rng.uniform(*system.actions, 20_000))
        for at in (1, 2):
            trusted = system.prior(at, x)
            off = jnp.abs(a - trusted) + 1e-12
            now = jnp.abs(system.cost(at, x, a) - system.cost(at, x, trusted)) / off
            largest["immediate"] = max(largest["immediate"], float(now.max()))
            for f in system.transitions:
                one, other = f(at, x, a), f(at, x, trusted)
                costs = [system.cost(at + 1, each, system.prior(at + 1, each)) for each in (one, other)]
                largest["carried"] = max(
                    largest["carried"], float((jnp.abs(costs[0] - costs[1]) / off).max())
                )
                gap = jnp.abs(f(at, x, trusted) - f(at, y, system.prior(at, y))) / (jnp.abs(x - y) + 1e-12)
                largest["rho"] = max(largest["rho"], float(gap.max()))
    proved = {"immediate": bounds.immediate, "carried": bounds.carried, "rho": bounds.perturbation.rho}
    for name, value in proved.items():
        assert 0.95 * value < largest[name] <= value * (1.0 + 1e-6)


def line(**changes):
    whole = {
        "horizon": 2,
        "states": (0.0, 1.0),
        "actions": (0.0, 1.0),
        "initial": 0.0,
        "transitions": (lambda at, x, a: x,),
        "reward": lambda at, x, a: a,
        "cost": lambda at, x, a: 1.0 + a,
        "prior": lambda at, x: 0.0 * x,
    }
    return MixtureSystem(**(whole | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixture": [[0.4], [0.6]]}, "mixture must be \\[M, d\\] with M = 1"),
        ({"mixture": [[0.9]]}, "column 0 of mixture must be on the simplex"),
        ({"states": (1.0, 0.0)}, "states must be \\(lowest, highest\\)"),
        ({"initial": 2.0}, "initial must be within states"),
        ({"initial": (0.5, np.nan)}, "initial must be within states"),
        ({"initial": ()}, "initial must be within states"),
        ({"initial": (0.0, 1.0), "initial_chances": (1.0,)}, "one for each of 2 initial states, got shape"),
        ({"initial": (0.0, 1.0), "initial_chances": (0.9, 0.2)}, "initial_chances must be on the simplex"),
        ({"transitions": ()}, "at least one function"),
        ({"horizon": 0}, "horizon must be at least 1"),
    ],
)
def test_a_system_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        line(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"transitions": (lambda at, x, a: x + a,)},
            "transition 0 leaves the grid: in round 1 at state 0.125 and action 1 it leads to 1.125",
        ),
        ({"prior": lambda at, x: x + 0.5}, "the prior must stay within actions"),
        ({"cost": lambda at, x, a: a}, "promises a cost of at least 1, but in round 1"),
        ({"reward": lambda at, x, a: jnp.log(x)}, "reward must be finite"),
        ({"horizon": 3}, "a horizon of 2 rounds, the system has 3"),
    ],
)
def test_a_system_that_does_not_fit_its_grid_or_contract_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        prepare(line(**changes), two_rounds_certificate(0.1, 0.1), GRID)


def test_memory_that_is_not_geometric_and_thetas_off_the_simplex_are_refused():
    certificate = two_rounds_certificate(0.1, 0.1)
    table = tether.Sensitivity(immediate=1.0, carried=0.5, perturbation=tether.table([1.0, 0.5]))
    with pytest.raises(ValueError, match=r"memory of fixed size.*got Table"):
        prepare(two_rounds(), replace(certificate, bounds=table), GRID)
    problem = prepare(two_rounds(), certificate, GRID)
    for theta, message in (
        ([0.5, 0.6], "theta must be on the simplex"),
        ([1.5, -0.5], "theta must be on the simplex"),
        ([1.0], "theta must have shape"),
        ([np.nan, 1.0], "theta must be on the simplex"),
    ):
        with pytest.raises(ValueError, match=message):
            planning.plan(problem, theta)
    with pytest.raises(ValueError, match="memory must be at least 2"):
        Resolution(memory=1)


def test_too_many_draws_to_try_are_refused():
    with pytest.raises(ValueError, match="8 transition functions over 8 rounds give 2,097,152 sequences"):
        every_draw(BacklogMixture(demand=(1.0,) * 8, renewables=(1.0,) * 8).system, [1.0, 0.0, 0.0])
    drawn = every_draw(two_rounds(), [0.25, 0.75])
    assert drawn.draws.tolist() == [[0, 0], [1, 0]]
    assert drawn.chances.tolist() == [0.25, 0.75]
    begun = every_draw(line(initial=(0.0, 1.0), initial_chances=(0.2, 0.8)), [1.0])
    assert begun.firsts.tolist() == [0, 1]
    assert begun.chances.tolist() == [0.2, 0.8]


def test_the_initial_state_is_drawn_with_its_chances_and_apart_from_the_rest():
    system = line(initial=(0.0, 1.0), initial_chances=(0.2, 0.8))
    firsts = system.draw_initial(0, (4000,))
    assert np.mean(firsts) == pytest.approx(0.8, abs=0.02)
    assert (firsts == system.draw_initial(0, (4000,))).all()
    assert line().draw_initial(3, (5,)).tolist() == [0] * 5


def test_a_finer_grid_contains_the_coarse_one():
    assert GRID.refined(2) == Resolution(states=17, actions=9, surplus=17, memory=7, allowance=13)


def test_an_example_that_makes_no_sense_is_refused_and_equal_ones_share_their_system():
    with pytest.raises(ValueError, match="one value a round each, got 2 and 1"):
        BacklogMixture(demand=(1.0, 1.0), renewables=(1.0,))
    with pytest.raises(ValueError, match="kept within 0 to 1"):
        BacklogMixture(kept=(0.5, 1.5))
    assert BacklogMixture().system is BacklogMixture().system
