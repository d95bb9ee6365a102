"""Where episodes come from: one module a source, all giving the same `Episodes`."""

from tether.data.azure import load_azure
from tether.data.caiso import download_caiso, load_caiso
from tether.data.carbon_mat import load_carbon
from tether.data.episodes import Episodes
from tether.data.gpu import load_bloom, load_codecarbon
from tether.data.series import (
    Forecast,
    HourlySeries,
    add_clock,
    add_forecast,
    align,
    augment,
    build_carbon_episodes,
    build_carbon_splits,
    scale_carbon,
    split_by_date,
    split_by_share,
)
from tether.data.store import load_episodes, save_episodes
from tether.data.synthetic import synthetic_carbon
from tether.data.synthetic_cooling import synthetic_cooling
from tether.data.synthetic_inference import synthetic_inference

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
    "save_episodes",
    "scale_carbon",
    "split_by_date",
    "split_by_share",
    "synthetic_carbon",
    "synthetic_cooling",
    "synthetic_inference",
]
