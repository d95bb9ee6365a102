"""Both theorems' bounds: closed forms, and that they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from small_mixture import EXAMPLE, GRID, KAPPA, THETA, guarded, two_rounds, two_rounds_certificate
from tether.exact import optimistic, planning, theory
from tether.exact.playing import play_every_draw


def test_theorem_1_of_the_instance_that_can_be_solved_by_hand():
    second, lam, b = 0.4, 0.2, 0.3
    star = theory.solve_unconstrained(two_rounds(), [1.0 - second, second], GRID)
    assert star.value == pytest.approx(2.0 + 2.0 * KAPPA * second)
    assert star.eta == 2.0
    assert star.lipschitz == pytest.approx([1.0, 2.0 * KAPPA])  # the greatest x is 2
    cost = theory.promise_cost(star, two_rounds_certificate(lam, b))
    assert cost.totals == pytest.approx([1.0, 1.0])
    # pi-perp spends all of E at once: R_1 = lam - E < 0 earns nothing, and D_2 = E.
    assert cost.gains == pytest.approx([0.0, 0.0])
    budget = lam + b
    assert cost.bound == pytest.approx((1.0 + 2.0 * KAPPA) * (2.0 - budget))
    assert cost.projected == pytest.approx(star.value - (budget + KAPPA * second * budget), abs=1e-6)


def test_theorem_1_holds_and_both_sides_fall_to_zero():
    star = theory.solve_unconstrained(EXAMPLE.system, THETA, GRID)
    costs, regrets = [], []
    for lam in (0.0, 0.6, 2.0, 20.0):
        problem = guarded(lam, 0.2)
        plan = planning.plan(problem, THETA)
        played = play_every_draw(problem, plan, THETA, THETA)
        costs.append(theory.promise_cost(star, EXAMPLE.certificate(lam, 0.2)))
        regrets.append(star.value - played.value)
    bounds = np.array([cost.bound for cost in costs])
    assert (np.array(regrets) <= bounds + 1e-9).all()
    assert (np.array([cost.projected for cost in costs]) <= bounds + 1e-9).all()
    assert [cost.bounds.mean() for cost in costs] == pytest.approx(bounds)  # of the two initial states
    assert costs[1].bounds[0] != costs[1].bounds[1]
    assert (np.diff(bounds) < 0.0).all()
    assert regrets[0] > 0.1
    assert regrets[-1] == pytest.approx(0.0, abs=1e-9)
    assert bounds[-1] == 0.0
    assert costs[2].gains[1] > costs[1].gains[1] >= 0.0


def test_theorem_2_as_printed_and_corrected():
    vbar, horizon, dimension, episodes, delta = 10.0, 4, 3, 100, 0.1
    d_q = (
        6.0 * math.e / (math.e - 1.0) * math.log(3.0 + 3.0 * (2.0 * math.sqrt(2.0) * vbar * 400.0) ** 2) + 1.0
    )
    assert theory.eluder_dimension(vbar, dimension, 1.0 / 400.0) == pytest.approx(d_q)
    sizes = (vbar, horizon, dimension, episodes, delta)
    printed = optimistic.confidence_radius(*sizes)
    assert theory.regret_bound(*sizes) == pytest.approx(
        1.0 + d_q * 40.0 + 4.0 * math.sqrt(d_q * printed * 400.0) + 4.0 * math.sqrt(800.0 * math.log(10.0))
    )
    assert theory.regret_bound(*sizes, form="corrected", beta=7.0) == pytest.approx(
        1.0 + d_q * 40.0 + 4.0 * math.sqrt(d_q * 7.0 * 400.0) + 10.0 * math.sqrt(800.0 * math.log(20.0))
    )
    assert theory.regret_bound(*sizes, form="corrected") < theory.regret_bound(*sizes)
    with pytest.raises(ValueError, match="form must be one of 'printed', 'corrected'"):
        theory.regret_bound(*sizes, form="exact")


def test_sequences_of_independent_features_are_as_long_as_they_can_be_shown_to_be():
    epsilon = 0.01
    # The last coordinate is eliminated: these are one direction, two directions, and one direction at many scales.
    assert theory.independent_features([[1.0, 0.0]], epsilon) == 1
    assert theory.independent_features([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], epsilon) == 2
    assert theory.independent_features([[0.5, 0.5], [3.0, 3.0]], epsilon) == 0  # no model tells them apart
    assert theory.independent_features([[1.0]], epsilon) == 0
    ladder = epsilon * 1.5 * 2.0 ** np.arange(7)
    rungs = np.stack([ladder, np.zeros(7)], axis=1)
    # Each is larger than the root of the sum of the squares of those below it.
    assert theory.independent_features(rungs, epsilon) == 7
    assert theory.independent_features(rungs, 10.0 * epsilon) < 7
    assert theory.eluder_dimension(float(ladder[-1]), 2, epsilon) > 7


def test_the_bound_on_the_eluder_dimension_sees_the_contract_through_a_logarithm_only():
    small, large = (theory.eluder_dimension(reach, 3, 1.0 / 3000.0) for reach in (4.0, 8.0))
    assert small < large < 1.1 * small
