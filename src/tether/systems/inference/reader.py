"""Real demand for AI inference: the GPU power of the BLOOM service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tether.data.episodes import Episodes
from tether.systems.inference.synthetic import synthetic_inference
from tether.systems.system import Splits

BLOOM_POWER = "bloom_gpu_power_10min.csv"
"""The file with the power of the GPUs, W."""
MEAN = 3.5
"""Mean of the demand after scaling, energy units, as in `synthetic_inference`."""
TRAINED = 0.6
"""Share of the hours, the first ones, to train on; the rest is to test on."""
HORIZON = 24


def read_bloom_service(folder: Path, seed: int) -> Splits:
    """Windows of 24 hours that slide by one hour, whose demand is real.

    Args:
        folder: Holds `bloom_gpu_power_10min.csv`.
        seed: Of renewables and battery rates, which are generated as in `synthetic_inference`.
    """
    from tether.data.sources.gpu import load_bloom

    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; expected one that holds {BLOOM_POWER}")
    power = load_bloom(folder / BLOOM_POWER).values
    demand = power * (MEAN / power.mean())
    split = int(TRAINED * len(demand))
    return Splits(_episodes(demand[:split], seed), _episodes(demand[split:], seed + 1_000_000))


def _episodes(demand: Any, seed: int) -> Episodes:
    """The windows of an hourly demand [T], with everything else generated."""
    windows = np.lib.stride_tricks.sliding_window_view(demand, HORIZON)
    drawn = synthetic_inference(seed, len(windows))
    series = {name: drawn[name] for name in drawn.names} | {"demand": windows}
    return Episodes(series, drawn.start_hours)
