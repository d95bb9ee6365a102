"""Systems to control: pure functions of an episode, each with a trusted policy and proved constants."""

from tether.envs.base import Env, Step
from tether.envs.carbon import Carbon, CarbonState

__all__ = ["Carbon", "CarbonState", "Env", "Step"]
