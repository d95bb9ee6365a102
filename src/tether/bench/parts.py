"""Which of the installed systems have what a benchmark needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tether.systems import registry
from tether.systems.base import Env
from tether.systems.system import System

NEEDED: dict[str, Callable[[Env], Any]] = {
    "structure": lambda env: env.structure,
    "monitor": lambda env: env.monitor(),
}
"""What an environment may lack, and how it is asked for it."""


def having(part: str) -> dict[str, System]:
    """The installed systems whose standard plant has a part of `NEEDED`, by name."""
    found = {name: registry.find(name) for name in registry.names()}
    return {name: system for name, system in found.items() if _has(system, part)}


def skipped(part: str) -> list[str]:
    """A line for each of the others."""
    return [f"{name} has no {part}: skipped" for name in registry.names() if name not in having(part)]


def _has(system: System, part: str) -> bool:
    try:
        NEEDED[part](system.env())
    except NotImplementedError:
        return False
    return True
