"""Carbon-aware workload scheduling, the first system of the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tether.core.monitor import LipschitzMonitor
from tether.data.episodes import Episodes
from tether.data.periods import Borders
from tether.data.series import HourlySeries
from tether.systems.carbon.build import build_carbon_episodes, build_carbon_splits
from tether.systems.carbon.env import Carbon, CarbonState
from tether.systems.carbon.reader import is_carbon_folder, load_carbon
from tether.systems.carbon.structure import CarbonStructure
from tether.systems.carbon.synthetic import synthetic_carbon
from tether.systems.program import Program
from tether.systems.system import Builder, Defaults, Drift, Reader, SafeSetGoal, Splits, System

__all__ = ["Carbon", "CarbonState", "CarbonStructure", "load_carbon", "synthetic_carbon", "system"]


def _read(folder: Path, _seed: int) -> Splits:
    return Splits(*(load_carbon(folder, split) for split in ("train", "test", "val")))


def _build(series: Mapping[str, HourlySeries], seed: int, **options: Any) -> Episodes:
    return build_carbon_episodes(series["demand"], series["renewables"], seed, **options)


def _build_splits(
    series: Mapping[str, HourlySeries], seed: int, borders: Borders, **options: Any
) -> dict[str, Episodes]:
    return build_carbon_splits(series["demand"], series["renewables"], seed, borders, **options)


def _program(env: Carbon, horizon: int) -> Program:
    from tether.systems.carbon.limit import CarbonProgram

    return CarbonProgram(env, horizon)


def _unforeseen(lam: float, b: float, *, priced: bool) -> Callable[[Any, int], Program]:
    from tether.systems.carbon.unforeseen import Unforeseen

    return Unforeseen(lam, b, priced)


def _without_noise(env: Carbon) -> Carbon:
    # With a range of exactly 0 some slopes of the certificate are 0/0.
    return replace(env, efficiency_noise_max=1e-3, drop_rate_max=1e-3)


def _constants_monitor(env: Carbon) -> LipschitzMonitor:
    """The backlog (1 - n2) x + mu - (0.8 + n1) a moves by at most |x| + |mu| + |a|; noise moves it within its cap."""
    cap, slope = env.backlog_max, 2.0**0.5
    width = cap**2 + cap
    return LipschitzMonitor(slope * (2.0 * cap + 1.0), slope, width, cap, _inputs, _state)


def _inputs(observation: Any) -> list[float]:
    return [observation[0], observation[3]]


def _state(observation: Any) -> list[float]:
    return [observation[3]]


def _action_high(env: Carbon) -> float:
    """The prior's largest action, at the largest demand and backlog; 26.25 by default."""
    return float(env.prior([env.demand_max, 0.0, 0.0, env.backlog_max]))


def _observation_bounds(env: Carbon, action_high: Any) -> dict[str, tuple[float, float]]:
    return {
        "renewables": (0.0, 100.0),
        "last_action": (0.0, action_high),
        "backlog": (0.0, env.backlog_max),
    }


system = System(
    name="carbon",
    title="Carbon-aware scheduling",
    env=Carbon,
    draw=synthetic_carbon,
    reader=Reader(
        _read,
        origin="authors' data",
        help="the authors' carbon windows (.mat)",
        source="authors",
        recognises=is_carbon_folder,
    ),
    builder=Builder(
        series={
            "demand": "work that arrives, any unit (Azure, CodeCarbon or BLOOM data)",
            "renewables": "renewable energy, any unit (CAISO data)",
        },
        build=_build,
        build_splits=_build_splits,
        help="Scaled into the range of the authors' data: demand has mean 3.45 and is at most 5.9, renewables have "
        "mean 2.3. Noise is drawn for each window.",
    ),
    program=_program,
    unforeseen=_unforeseen,
    variants={
        "drops much": lambda: Carbon(efficiency_noise_max=0.1, drop_rate_max=0.4, demand_max=1.0),
        "small cap": lambda: Carbon(backlog_max=4.0, efficiency_noise_max=0.5),
        "slow to forget": lambda: Carbon(
            efficiency_noise_max=0.64, drop_rate_max=0.8, demand_max=60.0, backlog_max=200.0
        ),
    },
    without_noise=_without_noise,
    # The paper's recipe has nearly twice as many episodes in a pass.
    defaults=Defaults(paper_passes=30, random_high=8.0, planning_rate=0.3),
    drifts=(
        Drift("efficiency", "efficiency_noise", offset=lambda env: float(env.efficiency)),
        Drift("cost", None),
    ),
    axes={
        "demand": "energy",
        "renewables": "energy",
        "action": "energy",
        "reward": "reward, work done less the price of energy",
        "cost": "cost, work left waiting",
    },
    constants_monitor=_constants_monitor,
    safe_sets=SafeSetGoal(lam=2.0, b=2.0, share=0.95),
    action_high=_action_high,
    observation_bounds=_observation_bounds,
)
"""The system `carbon`."""
