"""An EV charging station as a system of tether, in a package of its own."""

from __future__ import annotations

from typing import Any

from tether.systems.program import Program
from tether.systems.system import Defaults, Drift, System
from tether_ev.env import EV, EVState
from tether_ev.structure import EVStructure
from tether_ev.synthetic import synthetic_ev

__all__ = ["EV", "EVState", "EVStructure", "synthetic_ev", "system"]


def _program(env: EV, horizon: int) -> Program:
    from tether_ev.limit import EVProgram

    return EVProgram(env, horizon)


def _observation_bounds(env: EV, _action_high: Any) -> dict[str, tuple[float, float]]:
    return {"price": (0.0, 10.0), "solar": (0.0, 10.0), "hour": (0.0, 24.0), "queue": (0.0, env.queue_max)}


system = System(
    name="ev",
    title="EV charging",
    env=EV,
    draw=synthetic_ev,
    program=_program,
    variants={
        "loyal drivers": lambda: EV(power_max=3.0, queue_max=20.0, plug_out_min=0.005, plug_out_max=0.01),
        "many walk-ins": lambda: EV(walk_in_max=3.0, efficiency_min=0.5, booked_evening=2.5),
    },
    defaults=Defaults(lams=(0.0, 0.5, 1.0, 2.0), quick_lams=(0.5, 1.0), bs=(1.0,), train_episodes=2000),
    axes={
        "booked": "energy, 100 kWh",
        "solar": "energy, 100 kWh",
        "action": "energy, 100 kWh",
        "price": "price, 0.10 EUR/kWh",
    },
    drifts=(Drift("efficiency", "efficiency"), Drift("cost", None)),
    observation_bounds=_observation_bounds,
)
"""The system `ev`."""
