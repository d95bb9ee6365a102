"""Systems to control: pure functions of an episode, each with a trusted policy and proved constants."""

from tether.envs.base import Env, Step
from tether.envs.carbon import Carbon, CarbonState
from tether.envs.cooling import Cooling, CoolingState
from tether.envs.inference import Inference, InferenceState

__all__ = ["Carbon", "CarbonState", "Cooling", "CoolingState", "Env", "Inference", "InferenceState", "Step"]
