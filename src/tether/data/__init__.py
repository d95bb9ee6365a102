"""Where episodes come from: one module a source, all giving the same `Episodes`."""

from tether.data.carbon_mat import load_carbon
from tether.data.episodes import Episodes
from tether.data.synthetic import synthetic_carbon

__all__ = ["Episodes", "load_carbon", "synthetic_carbon"]
