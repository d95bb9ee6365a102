"""gym-anm's ANM6Easy behind the guard."""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest

import tether
from tether.certificates.structure import Round
from tether.core.ops import NUMPY
from tether_plants.anm import greedy, projection
from tether_plants.anm.adapter import LEVELS, ROUNDS, Grid, prior, table
from tether_plants.anm.flow import OFF, held, network, played
from tether_plants.anm.model import QuickGrid
from tether_plants.anm.structure import GridStructure
from tether_plants.plant import find

PLANT = find("anm")
BOX = np.array([0.0, 0.0, -20.0]), np.array([30.0, 50.0, 20.0])


def test_our_power_flow_is_that_of_the_original_environment():
    env, rng = Grid(), np.random.default_rng(1)
    observation, _ = env.reset(options={"episode": 5})
    for _ in range(12):
        action = rng.uniform(*BOX)
        lost, penalty, charge = played(*observation[:2], action)
        observation, reward, _, _, info = env.step(action)
        assert penalty == pytest.approx(info["cost"], abs=OFF)
        assert 100.0 * lost == pytest.approx(-reward, abs=0.01)
        assert charge == pytest.approx(observation[1], abs=1e-3)


def test_the_stand_in_for_cvxpy_gives_the_solver_the_same_numbers(monkeypatch):
    from gym_anm.simulator.components import devices

    def played(cp):
        env, rng, told = Grid(), np.random.default_rng(3), []  # a `Grid` brings the stand-in
        monkeypatch.setattr(devices, "cp", cp)
        env.reset(options={"episode": 4})
        for _ in range(10):
            seen, reward, _, _, info = env.step(rng.uniform([0.0, 0.0, -50.0], [30.0, 50.0, 50.0]))
            told.append([*seen, reward, info["cost"]])
        return np.array(told)

    np.testing.assert_array_equal(played(projection.STAND_IN), played(cvxpy))


def test_the_fixed_point_is_one_wherever_a_round_can_be():
    known, rng = network(), np.random.default_rng(2)
    admittance, bus = known["G"] + 1j * known["B"], np.eye(5)[2:]
    for _ in range(200):
        clock = int(rng.integers(96))
        own = np.array([*(rng.uniform(0.0, 1.0, 2) * known["potential"][clock]), rng.choice([-0.5, 0.5])])
        power = (known["loads"][clock] + own + 0.2j * known["loads"][clock]) @ bus
        voltage = np.ones(6, dtype=complex)
        for _ in range(12):
            voltage[1:] = 1.0 + (known["R"] + 1j * known["X"]) @ np.conj(power / voltage[1:])
        np.testing.assert_allclose((voltage * np.conj(admittance @ voltage))[1:], power, atol=1e-6)


def test_the_prior_is_the_shipped_mpc():
    from gym_anm.agents import MPCAgentConstant

    env = Grid()
    for episode in range(3):
        observation, _ = env.reset(options={"episode": episode})
        inner = env.env.unwrapped
        inner.simulator.state["des_soc"]["pu"][6] = 0.0  # what it is shown of less than 3 MWh
        shipped = MPCAgentConstant(inner.simulator, inner.action_space, inner.gamma).act(inner)
        np.testing.assert_allclose(prior(observation), shipped[[0, 1, 4]], atol=1e-3)
        np.testing.assert_allclose(shipped[[2, 3, 5]], 0.0, atol=1e-6)


def test_what_the_prior_pays_is_known_in_advance():
    env = QuickGrid()
    for episode in range(4):
        observation, _ = env.reset(options={"episode": episode})
        assert observation[1] < 1.0
        for _ in range(ROUNDS):
            paid = held()[0][int(observation[0])]
            observation, _, _, _, info = env.step(prior(observation))
            assert info["cost"] == pytest.approx(paid, abs=OFF)
            assert observation[1] < LEVELS[1]


def test_the_bounds_of_holding_hold_from_any_charge():
    structure, rng = GridStructure(), np.random.default_rng(0)
    for _ in range(20):
        clock, charge, action = float(rng.integers(96)), rng.uniform(0.0, 100.0), rng.uniform(*BOX)
        now = Round((0.0,), (clock, charge), action, 0.2, 0.0, *BOX)
        bounds, total = structure.bounds(now, action, 1, NUMPY), 0.0
        for n in range(40):
            _, cost, charge = played(clock, charge, action)
            total += cost - 1.2 * held()[0][int(clock)]
            clock = (clock + 1.0) % 96
            assert total <= bounds.totals[min(n, 1)]
            action = table()[int(clock), 0]


def test_greed_breaks_the_promise_and_behind_the_guard_it_does_not():
    contract, env = PLANT.contract, QuickGrid()
    guard = tether.Guard(PLANT.certificates["shadowed"](contract), prior, *BOX)
    free, kept, earned = [], [], 0.0
    observation, _ = env.reset(options={"episode": 2})
    prior_costs = [held()[0][int((observation[0] + h) % 96)] for h in range(96)]
    for _ in range(96):
        observation, _, _, _, info = env.step(greedy(observation))
        free.append(info["cost"])
    observation, _ = env.reset(options={"episode": 2})
    for _ in range(96):
        decision = guard.act(observation, greedy(observation))
        observation, reward, _, _, info = env.step(decision.action)
        guard.observe(info["cost"])
        kept.append(info["cost"])
        earned += reward
    assert tether.audit([free], [prior_costs], contract).violation_rate == 1.0
    assert tether.audit([kept], [prior_costs], contract).violation_rate == 0.0
    assert guard.breach is None
    assert earned > -255.0  # the MPC loses 260 MWh
