"""Cooling of two rooms: a system with vector actions that is not in the paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tether.systems.cooling.env import Cooling, CoolingState
from tether.systems.cooling.structure import CoolingStructure
from tether.systems.cooling.synthetic import synthetic_cooling
from tether.systems.cooling.watching import constants_monitor, extremes
from tether.systems.program import Program
from tether.systems.system import Defaults, Drift, System
from tether.systems.unforeseen import Unforeseen

__all__ = ["Cooling", "CoolingState", "CoolingStructure", "synthetic_cooling", "system"]


def _program(env: Cooling, horizon: int) -> Program:
    from tether.systems.cooling.limit import CoolingProgram

    return CoolingProgram(env, horizon)


def _unforeseen(lam: float, b: float, *, priced: bool) -> Callable[[Any, int], Program]:
    from tether.systems.cooling.unforeseen import UnforeseenProgram

    return Unforeseen(UnforeseenProgram, lam, b, priced)


def _observation_bounds(_env: Cooling, _action_high: Any) -> dict[str, tuple[float, float]]:
    return {
        "heat_load_1": (0.0, 100.0),
        "heat_load_2": (0.0, 100.0),
        "outside": (-100.0, 100.0),
        "price": (0.0, 100.0),
        "temperature_1": (-1000.0, 1000.0),
        "temperature_2": (-1000.0, 1000.0),
    }


system = System(
    name="cooling",
    title="Cooling of two rooms",
    env=Cooling,
    draw=synthetic_cooling,
    program=_program,
    unforeseen=_unforeseen,
    variants={
        "uneven": lambda: Cooling(
            discomfort=(0.5, 3.0), wall=0.3, leak=0.1, band=0.0, gain=1.2, effectiveness_min=0.5
        ),
    },
    defaults=Defaults(lams=(0.0, 0.5, 1.0, 2.0), quick_lams=(0.5, 1.0, 2.0), bs=(0.5, 1.0)),
    drifts=(Drift("effectiveness", "effectiveness"), Drift("cost", None)),
    axes={
        "heat_load": "heat, kWh",
        "action": "heat, kWh",
        "outside": "temperature, °C",
        "price": "price of a kWh",
        "reward": "reward, minus the electricity bill",
        "cost": "cost, discomfort",
    },
    extremes=extremes,
    constants_monitor=constants_monitor,
    observation_bounds=_observation_bounds,
)
"""The system `cooling`."""
