"""The power flow and the battery of ANM6Easy, as the checks compare them with the original; NumPy or JAX."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tether.systems.base import namespace
from tether_plants.anm.adapter import BASE, HOURS, LEVELS, ROUNDS, Grid, series, table

EFFICIENCY = 0.9
"""Of the battery, each way."""
OFF = 2e-3
"""By how much a penalty may differ from ours: the environment's own set-points come from a solver with a tolerance."""


@cache
def network() -> dict[str, Any]:
    """Series of the day, admittances and ratings of the original environment, per-unit."""
    inner: Any = Grid().env.unwrapped
    potential, loads = series()
    branches = list(inner.simulator.branches.values())
    if any(branch.tap != 1.0 or branch.shunt != 0.0 for branch in branches):
        raise ValueError(
            "the power flow here is for lines without transformers that shift and without shunts"
        )
    admittance = inner.simulator.Y_bus.toarray()
    impedance = np.linalg.inv(admittance[1:, 1:])
    if not np.allclose(admittance.sum(axis=1), 0.0):
        raise ValueError(
            "without load every voltage must be 1, which takes admittances that add up to 0 at each bus"
        )
    lines = np.array([branch.series for branch in branches])
    ends = np.array([(branch.f_bus, branch.t_bus) for branch in branches])
    return {
        "loads": loads,
        "potential": potential,
        "G": admittance.real,
        "B": admittance.imag,
        "R": impedance.real,
        "X": impedance.imag,
        "across": np.eye(6)[ends[:, 0]] - np.eye(6)[ends[:, 1]],
        "starts": np.eye(6)[ends[:, 0]],
        "ends": np.eye(6)[ends[:, 1]],
        "g": lines.real,
        "b": lines.imag,
        "rate": np.array([branch.rate for branch in branches]),
    }


def flow(clock: Any, solar: Any, wind: Any, battery: Any) -> tuple[Any, Any]:
    """(energy lost, penalty) of a round with these injections, per-unit: the environment's power flow.

    Voltages e + if are the fixed point of V = 1 + Z conj(S / V), Z the inverse of the admittances without the slack
    bus: 12 rounds of it leave 1e-7 wherever a round of ANM6Easy can be (the tests), where Newton has to solve a system.
    """
    xp = namespace(battery)
    known = {name: xp.asarray(each, dtype=battery.dtype) for name, each in network().items()}
    loads, potential, R, X = known["loads"][clock], known["potential"][clock], known["R"], known["X"]
    bus = xp.asarray(np.eye(5)[2:], dtype=battery.dtype)
    real = (loads + xp.stack([solar, wind, battery])) @ bus
    imaginary = 0.2 * loads @ bus
    e, f = xp.ones_like(real), xp.zeros_like(real)
    for _ in range(12):
        square = e**2 + f**2
        u, v = (real * e + imaginary * f) / square, (imaginary * e - real * f) / square
        e, f = 1.0 + R @ u + X @ v, X @ u - R @ v
    e, f = xp.concat([xp.ones_like(e[:1]), e]), xp.concat([xp.zeros_like(f[:1]), f])
    size = xp.sqrt(e**2 + f**2)
    u, v, g, b = known["across"] @ e, known["across"] @ f, known["g"], known["b"]
    current = xp.sqrt((g * u - b * v) ** 2 + (g * v + b * u) ** 2 + 1e-12)
    apparent = current * xp.maximum(known["starts"] @ size, known["ends"] @ size)
    lost = known["G"][0] @ e - known["B"][0] @ f + xp.sum(loads) + xp.sum(potential)
    over = xp.sum((xp.maximum(size - 1.1, 0.0) + xp.maximum(0.9 - size, 0.0))[1:])
    over = over + xp.sum(xp.maximum(apparent - known["rate"], 0.0))
    return HOURS * lost, HOURS * 100.0 * over


def played(clock: Any, charge: Any, action: Any) -> tuple[Any, Any, Any]:
    """(energy lost, penalty, charge after the round): per-unit, cost units, MWh; set-points are cut as theirs."""
    xp = namespace(action)
    now = (xp.asarray(clock) + 1).astype(int) % ROUNDS
    action = xp.asarray(action)
    potential, stored = xp.asarray(network()["potential"], dtype=action.dtype)[now], charge / BASE
    solar, wind = (xp.clip(action[i] / BASE, 0.0, potential[i]) for i in (0, 1))
    least, most = (stored - 1.0) / (HOURS * EFFICIENCY), EFFICIENCY * stored / HOURS
    battery = xp.clip(xp.clip(action[2] / BASE, -0.5, 0.5), least, most)
    lost, penalty = flow(now, solar, wind, battery)
    change = HOURS * xp.where(battery <= 0.0, EFFICIENCY * battery, battery / EFFICIENCY)
    return lost, penalty, xp.clip(charge - BASE * change, 0.0, 100.0)


@cache
def held() -> tuple[Any, Any]:
    """[96] what the round after each time of day costs the MPC with an empty battery, and at most if it cannot charge.

    From less than 1 MWh, with which every episode begins, the MPC never gets to the second of `LEVELS` in a day
    (checked), so this *is* what the prior pays, in every round of every episode.
    """
    empty = table()[:, 0]
    charged = EFFICIENCY * HOURS * np.maximum(-empty[:, 2], 0.0).sum()
    if not (1.0 + charged < LEVELS[1] and np.all(empty[:, 2] < 1e-3)):
        raise ValueError(
            f"the MPC's battery must stay below {LEVELS[1]} MWh, it may be charged by {charged:g}"
        )
    costs = np.array([
        [played(clock, 1.0, empty[clock])[1], played(clock, 100.0, empty[clock])[1]] for clock in range(ROUNDS)
    ])  # fmt: skip
    return costs[:, 0], costs.max(axis=1)
