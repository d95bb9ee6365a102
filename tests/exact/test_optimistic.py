"""Algorithm 2: the regression, the confidence set, the optimistic choice and the loop."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from small_mixture import EXAMPLE, THETA, guarded, surface, unguarded
from tether.exact import optimistic, planning
from tether.exact.playing import play
from tether.exact.simplex import fit_theta, simplex_lattice

pytestmark = pytest.mark.usefixtures("compiled_quickly")

EPISODES = 60
BETA = 15.0
choose = eqx.filter_jit(optimistic._most_optimistic)


@pytest.fixture(scope="module")
def learnt():
    return {
        variant: optimistic.learn(
            guarded(), THETA, EPISODES, [0, 1], variant=variant, beta=BETA, surface=surface()
        )
        for variant in ("optimistic", "certainty-equivalent", "counting", "random")
    }


@pytest.mark.parametrize("case", ["inside", "on the border", "few data", "no data"])
def test_the_regression_agrees_with_an_independent_solver(case):
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    rows = {"inside": 60, "on the border": 60, "few data": 2, "no data": 0}[case]
    X = rng.normal(size=(rows, 4))
    truth = {"inside": [0.1, 0.2, 0.3, 0.4], "on the border": [1.4, -0.5, 0.3, -0.2]}.get(case, [0.25] * 4)
    y = X @ np.array(truth) + 0.1 * rng.normal(size=rows)
    theta = fit_theta(X, y)
    assert theta.sum() == pytest.approx(1.0)
    assert (theta >= 0.0).all()
    if case == "no data":
        assert theta == pytest.approx([0.25] * 4)
        return
    variable = cp.Variable(4)
    loss = cp.sum_squares(X @ variable - y)
    cp.Problem(cp.Minimize(loss), [variable >= 0.0, cp.sum(variable) == 1.0]).solve(solver=cp.CLARABEL)
    assert np.sum((X @ theta - y) ** 2) == pytest.approx(float(loss.value), abs=1e-6)
    if rows > 4:
        assert theta == pytest.approx(variable.value, abs=1e-5)
        assert (theta == 0.0).any() == (case == "on the border")


def test_ill_shaped_data_are_refused():
    with pytest.raises(ValueError, match=r"features must be \[N, d\] and targets \[N\]"):
        fit_theta(np.zeros((3, 2)), np.zeros(4))
    with pytest.raises(ValueError, match="at most 12 entries"):
        fit_theta(np.zeros((3, 13)), np.zeros(3))


def test_the_printed_radius_is_the_printed_formula():
    beta = optimistic.confidence_radius(2.0, 3, 2, 10, 0.1)
    alpha = 1.0 / (30.0 * math.log(300.0))
    count = math.ceil(2 * 2.0 / (4.0 * alpha)) + 1  # points of the lattice in one dimension
    constant = 2.0 * (2.0 + math.sqrt(math.log(4.0 * 900.0 / 0.1))) / math.log(300.0)
    assert beta == pytest.approx(2.0 * 36.0 * math.log(2.0 * count / 0.1) + constant * 6.0)
    # By hand: alpha = 1 / (30 * 5.703782) = 0.00584408, 172 steps of the lattice cover, so N = 173;
    # C = 2 (2 + sqrt(10.491274)) / 5.703782 = 1.837035; 2 * 4 * log(3460) + 2 C = 8 * 8.149024 + 3.674070.
    corrected = optimistic.confidence_radius(2.0, 3, 2, 10, 0.1, form="corrected")
    assert count == 173
    assert corrected == pytest.approx(68.866261, abs=1e-5)
    with pytest.raises(ValueError, match="delta must be between 0 and 1, got 1"):
        optimistic.confidence_radius(2.0, 3, 2, 10, 1)
    with pytest.raises(ValueError, match="form must be one of 'printed', 'corrected'"):
        optimistic.confidence_radius(2.0, 3, 2, 10, 0.1, form="exact")


def test_the_lattice_counted_by_the_covering_number_covers():
    alpha, value_range, dimension = 0.05, 1.0, 3
    denominator = math.ceil(dimension * value_range / (4.0 * alpha))
    lattice = simplex_lattice(dimension, denominator)
    assert math.exp(optimistic.log_covering_number(value_range, dimension, alpha)) == pytest.approx(
        len(lattice)
    )
    rng = np.random.default_rng(0)
    thetas = rng.dirichlet(np.ones(dimension), size=500)
    nearest = np.abs(thetas[:, None] - lattice).sum(axis=2).min(axis=1)
    assert 0.5 * value_range * nearest.max() <= alpha  # |<features, difference>| for features in [0, 1]


def test_the_surface_has_the_plans_values_at_its_points_and_nearly_so_between_them():
    points = np.asarray(surface().points)
    between = (points[3] + points[10]) / 2.0
    tried = np.stack([*points[::5], between])
    starts = planning.plan(guarded(), tried).starts
    look_up = eqx.filter_jit(lambda each, first: jax.vmap(lambda theta: surface()(theta, first))(each))
    for first, values in enumerate(starts):
        with jax.enable_x64(True):
            found = np.asarray(look_up(jnp.asarray(tried), first))
        assert found[:-1] == pytest.approx(values[:-1], abs=1e-12)
        assert found[-1] == pytest.approx(values[-1], abs=0.02)


@pytest.mark.parametrize("beta", [1e-3, 1.0, 1e9])
def test_the_optimistic_theta_is_in_the_set_and_nearly_the_best_of_it(beta):
    gram, estimate = np.diag([30.0, 5.0, 10.0]), np.array([0.5, 0.3, 0.2])
    with jax.enable_x64(True):
        numbers = (jnp.asarray(each) for each in (gram, estimate, beta))
        chosen = np.asarray(choose(surface(), *numbers, 0))
    step = chosen - estimate
    assert step @ gram @ step <= beta * (1.0 + 1e-9)
    assert chosen.sum() == pytest.approx(1.0)
    assert (chosen >= -1e-12).all()
    gap = optimistic.optimism_gap(guarded(), gram, estimate, beta, chosen, points=60)
    assert 0.0 <= gap < 0.01
    if beta == 1e9:
        best = planning.plan(guarded(), np.asarray(surface().points)).starts[0].max()
        assert planning.plan(guarded(), chosen).starts[0, 0] == pytest.approx(best, abs=1e-9)
        assert optimistic.optimism_gap(guarded(), gram, estimate, beta, estimate, points=60) > 0.1


@pytest.mark.parametrize("variant", ["optimistic", "random"])
def test_learning_never_breaks_a_promise_that_is_broken_without_the_guard(variant):
    contract, theta = EXAMPLE.certificate(0.1, 0.1).contract, THETA
    learning = optimistic.learn(
        guarded(0.1, 0.1), theta, EPISODES, [0, 1], variant=variant, beta=BETA, surface=surface()
    )
    costs, prior_costs = (each.reshape(-1, 3) for each in (learning.costs, learning.prior_costs))
    assert tether.audit(costs, prior_costs, contract).holds
    draws = EXAMPLE.system.draw(theta, 0, (16, 3))
    free = play(unguarded(), planning.plan(unguarded(), theta), theta, draws)
    assert not tether.audit(free.run, free.prior_costs, contract).holds


def test_the_optimistic_plan_promises_itself_at_least_the_optimum_while_theta_is_covered(learnt):
    starts = planning.plan(guarded(), THETA).starts[:, 0]
    hopeful, sober = learnt["optimistic"], learnt["certainty-equivalent"]
    assert set(hopeful.firsts.ravel()) == {0, 1}  # both initial states come
    assert hopeful.covered.all()
    assert (hopeful.optimistic_values >= starts[hopeful.firsts] - 0.01).all()
    assert not (sober.optimistic_values >= starts[sober.firsts] - 0.01).all()
    for learning in learnt.values():
        assert (learning.values <= starts[learning.firsts] + 1e-9).all()


def test_learning_closes_the_gap_and_random_play_does_not(learnt):
    starts = planning.plan(guarded(), THETA).starts[:, 0]
    lost = {name: starts[learning.firsts] - learning.values for name, learning in learnt.items()}
    assert lost["optimistic"][:, -5:].mean() < 0.5 * lost["optimistic"][:, :5].mean()
    assert lost["random"].min() > lost["optimistic"].max()
    assert len(set(lost["random"].ravel())) == 2  # one for each initial state, whatever was seen
    greedy = starts[learnt["random"].firsts] - learnt["random"].greedy_values  # though it learns the model
    assert greedy[:, -1].max() < 0.1 * lost["random"].min()


def test_theta_hat_is_the_regression_on_what_was_seen_and_the_first_is_the_centre(learnt):
    for learning in learnt.values():
        assert learning.estimates[:, 0] == pytest.approx(np.full((2, 3), 1.0 / 3.0))
        assert (learning.grams[:, 0] == 0.0).all()
        assert (np.trace(learning.grams[:, -1], axis1=1, axis2=2) > 0.0).all()
    late = learnt["certainty-equivalent"].estimates[:, -1]
    assert np.abs(late - THETA).max() < 0.25


def test_counting_fits_the_shares_of_the_functions_that_were_drawn(learnt):
    system = EXAMPLE.system
    drawn = system.draw(THETA, 0, (EPISODES, 3))[:-1]
    shares = np.bincount(drawn.ravel(), minlength=4) / drawn.size
    fitted = system.mixture @ learnt["counting"].estimates[0, -1]
    best = system.mixture @ fit_theta(system.mixture, shares)
    assert fitted == pytest.approx(best, abs=1e-6)
    assert (learnt["counting"].estimates[:, -1] != learnt["optimistic"].estimates[:, -1]).any()
    assert optimistic.counting_radius(3, 0.1) == pytest.approx(
        0.5 * 4.605170
    )  # chi^2 with 2 degrees of freedom


def test_the_noise_that_is_met_was_foreseen(learnt):
    assert learnt["optimistic"].largest_spread <= float(surface().noise_range) * 1.05


def test_the_same_seed_learns_the_same_whatever_the_other_seeds_are(learnt):
    again = optimistic.learn(guarded(), THETA, EPISODES, [1, 0], beta=BETA, surface=surface())
    assert again.costs[0] == pytest.approx(learnt["optimistic"].costs[1])
    assert again.chosen[1] == pytest.approx(learnt["optimistic"].chosen[0])
    assert (again.costs[0] != again.costs[1]).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"theta": [0.5, 0.5, 0.5]}, "theta must be on the simplex"),
        (
            {"variant": "greedy"},
            "variant must be one of 'optimistic', 'certainty-equivalent', 'counting', 'random'",
        ),
        ({"beta": 0.0}, "beta must be greater than 0"),
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"problem": None}, "prepare the problem with a certificate"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_played(changes, message):
    options = {"problem": guarded(), "theta": THETA, "episodes": 5, "seeds": [0], "beta": 1.0} | changes
    options["problem"] = options["problem"] or unguarded()
    with pytest.raises(ValueError, match=message):
        optimistic.learn(**options)
