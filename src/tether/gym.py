"""Gymnasium: the guard as a wrapper, and tether's systems as environments."""

from tether.core.extras import missing

try:
    from tether.adapters.episode_env import EpisodeEnv, make_env
    from tether.adapters.guarded import Guarded
    from tether.adapters.guarded_vector import GuardedVector
    from tether.adapters.minari_log import MinariLog
    from tether.adapters.sb3 import policy_from_sb3
except ModuleNotFoundError as error:
    raise missing("tether.gym", error) from None

__all__ = ["EpisodeEnv", "Guarded", "GuardedVector", "MinariLog", "make_env", "policy_from_sb3"]
