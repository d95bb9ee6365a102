"""Sustainable AI inference, the second system of the paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tether.systems.inference.env import Inference, InferenceState
from tether.systems.inference.reader import BLOOM_POWER, read_bloom_service
from tether.systems.inference.structure import InferenceStructure
from tether.systems.inference.synthetic import synthetic_inference
from tether.systems.inference.traps import set_traps
from tether.systems.program import Program
from tether.systems.system import Defaults, Drift, Reader, SafeSetGoal, System
from tether.systems.unforeseen import Unforeseen

__all__ = ["Inference", "InferenceState", "InferenceStructure", "synthetic_inference", "system"]


def _program(env: Inference, horizon: int) -> Program:
    from tether.systems.inference.limit import InferenceProgram

    return InferenceProgram(env, horizon)


def _unforeseen(lam: float, b: float, *, priced: bool) -> Callable[[Any, int], Program]:
    from tether.systems.inference.unforeseen import UnforeseenProgram

    return Unforeseen(UnforeseenProgram, lam, b, priced)


def _observation_bounds(env: Inference, action_high: Any) -> dict[str, tuple[float, float]]:
    return {
        "renewables": (0.0, 100.0),
        "last_action": (0.0, action_high),
        "charge": (0.0, env.capacity),
    }


system = System(
    name="inference",
    title="Sustainable AI inference",
    env=Inference,
    draw=synthetic_inference,
    reader=Reader(
        read_bloom_service,
        origin="demand of BLOOM's GPUs (real), renewables and battery rates generated",
        help=f"the GPU power of the BLOOM service ({BLOOM_POWER})",
        source="authors",
    ),
    program=_program,
    unforeseen=_unforeseen,
    variants={
        "large slack": lambda: Inference(carbon_slack=4.0, capacity=2.0, discharge_rate_min=0.2),
        "no slack": lambda: Inference(carbon_slack=0.0, charge_rate_min=0.4, initial_charge=6.0),
    },
    defaults=Defaults(
        width=50,
        episodes=2160,
        learning_rate=1e-4,
        lams=(5.0, 7.0),
        quick_lams=(5.0, 7.0),
        bs=(6.0,),
        train_episodes=2160,
        random_high=8.0,
    ),
    drifts=(Drift("charge rate", "charge_rate"),),
    axes={
        "demand": "energy",
        "renewables": "energy",
        "action": "energy",
        "reward": "reward, quality of the answers",
        "cost": "cost, energy from the grid",
    },
    traps=set_traps,
    safe_sets=SafeSetGoal(lam=5.0, b=0.1, share=0.9),
    observation_bounds=_observation_bounds,
)
"""The system `inference`."""
