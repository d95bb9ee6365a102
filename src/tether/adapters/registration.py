"""The ids of the systems in Gymnasium; apart from the adapters, so that it needs nothing but Gymnasium."""

from __future__ import annotations


def register_envs() -> None:
    """Register the ids of the installed systems, as far as they are not registered yet.

    Gymnasium 0.29 calls this by itself, through the entry point group `gymnasium.envs`, while it is being imported.
    Gymnasium 1 has no such entry points; there, importing `tether.gym` calls it.
    """
    from gymnasium.envs.registration import register, registry

    from tether.systems import registry as systems

    for name in systems.names():
        gym_id = f"tether/{systems.find(name).env_name}-v0"
        if gym_id not in registry:
            register(gym_id, entry_point="tether.adapters.episode_env:make_env", kwargs={"system": name})
