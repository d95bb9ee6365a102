"""Gymnasium: the guard as a wrapper, and tether's systems as environments."""

from tether.adapters.episode_env import EpisodeEnv, make_env
from tether.adapters.guarded import Guarded
from tether.adapters.guarded_vector import GuardedVector
from tether.adapters.sb3 import policy_from_sb3

__all__ = ["EpisodeEnv", "Guarded", "GuardedVector", "make_env", "policy_from_sb3"]
