"""Where episodes come from: one module a source, all giving the same `Episodes`."""

from tether.data.carbon_mat import load_carbon
from tether.data.episodes import Episodes
from tether.data.synthetic import synthetic_carbon
from tether.data.synthetic_cooling import synthetic_cooling
from tether.data.synthetic_inference import synthetic_inference

__all__ = ["Episodes", "load_carbon", "synthetic_carbon", "synthetic_cooling", "synthetic_inference"]
