"""Systems to control: a folder and a `System` object each, found by the entry-point group `tether.systems`."""

from tether.systems.modelled import from_model
from tether.systems.system import System

__all__ = ["System", "from_model"]
