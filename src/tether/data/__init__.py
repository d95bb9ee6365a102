"""Where episodes come from: one module a source, all giving the same `Episodes`.

The names of the systems that come with tether are loaded from their folders when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tether.data.enrich import Forecast, add_clock, add_forecast, augment
from tether.data.episodes import Episodes
from tether.data.periods import align, split_by_date, split_by_share
from tether.data.series import HourlySeries
from tether.data.store import load_episodes, save_episodes

if TYPE_CHECKING:
    from tether.data.sources.azure import load_azure
    from tether.data.sources.caiso import download_caiso, load_caiso
    from tether.data.sources.gpu import load_bloom, load_codecarbon
    from tether.data.sources.minari import load_minari
    from tether.systems.carbon.build import build_carbon_episodes, build_carbon_splits, scale_carbon
    from tether.systems.carbon.reader import load_carbon
    from tether.systems.carbon.synthetic import synthetic_carbon
    from tether.systems.cooling.synthetic import synthetic_cooling
    from tether.systems.inference.synthetic import synthetic_inference

__all__ = [
    "Episodes",
    "Forecast",
    "HourlySeries",
    "add_clock",
    "add_forecast",
    "align",
    "augment",
    "build_carbon_episodes",
    "build_carbon_splits",
    "download_caiso",
    "load_azure",
    "load_bloom",
    "load_caiso",
    "load_carbon",
    "load_codecarbon",
    "load_episodes",
    "load_minari",
    "save_episodes",
    "scale_carbon",
    "split_by_date",
    "split_by_share",
    "synthetic_carbon",
    "synthetic_cooling",
    "synthetic_inference",
]

_LATER = {
    "build_carbon_episodes": "tether.systems.carbon.build",
    "build_carbon_splits": "tether.systems.carbon.build",
    "scale_carbon": "tether.systems.carbon.build",
    "load_azure": "tether.data.sources.azure",
    "download_caiso": "tether.data.sources.caiso",
    "load_caiso": "tether.data.sources.caiso",
    "load_bloom": "tether.data.sources.gpu",
    "load_codecarbon": "tether.data.sources.gpu",
    "load_carbon": "tether.systems.carbon.reader",
    "load_minari": "tether.data.sources.minari",
    "synthetic_carbon": "tether.systems.carbon.synthetic",
    "synthetic_cooling": "tether.systems.cooling.synthetic",
    "synthetic_inference": "tether.systems.inference.synthetic",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'tether.data' has no attribute {name!r}")
