"""The ids of tether's systems in Gymnasium; apart from the adapters, so that it needs nothing but Gymnasium."""

from __future__ import annotations


def register_envs() -> None:
    """Register the ids of tether, as far as they are not registered yet.

    Gymnasium 0.29 calls this by itself, through the entry point group `gymnasium.envs`, while it is being imported.
    Gymnasium 1 has no such entry points; there, importing `tether.envs.gym` calls it.
    """
    from gymnasium.envs.registration import register, registry

    for system in ("Carbon", "Inference", "Cooling"):
        if f"tether/{system}-v0" not in registry:
            register(f"tether/{system}-v0", entry_point="tether.envs.gym:make_env", kwargs={"system": system})
