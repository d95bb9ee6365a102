"""The environments of the systems that come with tether, under the names that the paper's examples use."""

from tether.systems.base import Env, Step
from tether.systems.carbon.env import Carbon, CarbonState
from tether.systems.cooling.env import Cooling, CoolingState
from tether.systems.inference.env import Inference, InferenceState

__all__ = ["Carbon", "CarbonState", "Cooling", "CoolingState", "Env", "Inference", "InferenceState", "Step"]
