"""The systems that are installed, by name: tether's own and those of anybody's package."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from typing import Any

from tether.certificates.structured import Structured
from tether.core.contract import Contract
from tether.systems.system import System

GROUP = "tether.systems"
"""The entry-point group in which packages name their systems."""


@cache
def _installed() -> Mapping[str, metadata.EntryPoint]:
    return {
        each.name: each for each in sorted(metadata.entry_points(group=GROUP), key=lambda each: each.name)
    }


def names() -> tuple[str, ...]:
    """The names of the systems that are installed."""
    return tuple(_installed())


def find(name: str) -> System:
    """A system by its name, or by `module:object` for one that no package names.

    Args:
        name: One of `names()`, or where to import a `System` from.

    Raises:
        ValueError: There is none, or it is no `System`.
    """
    if ":" in name:
        found = imported(name)
    elif name in _installed():
        try:
            found = _installed()[name].load()
        except (ImportError, AttributeError) as error:
            raise ValueError(f"the system {name!r} is installed but cannot be loaded: {error}") from error
    else:
        raise ValueError(
            f"the system must be one of {', '.join(names())}, or module:object for one of your own, got {name!r}"
        )
    if not isinstance(found, System):
        raise ValueError(f"{name!r} must be a tether.systems.System, got {type(found).__name__}")
    return found


def imported(place: str) -> Any:
    """Whatever stands at `module:object`.

    Raises:
        ValueError: There is no such module or object.
    """
    module, _, path = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"no system at {place!r}: {error}") from error
    return found


def of_env(env: Any) -> System | None:
    """The installed system whose environment this is, if any."""
    for name in names():
        system = find(name)
        if isinstance(system.env, type) and isinstance(env, system.env):
            return system
    return None


def structured_from_dict(description: dict[str, Any]) -> Structured:
    """The `Structured` certificate that its `to_dict` described, if its structure is that of an installed system."""
    numbers = dict(description["system"])
    kind = numbers.pop("kind")
    for structure in _structures():
        if structure.kind == kind:
            contract = Contract.from_dict(description["contract"])
            return Structured(contract, structure(**numbers), resolution=description["resolution"])
    raise ValueError(f"a certificate (structured, {kind}) of your own must be given as it is")


def _structures() -> Iterator[Any]:
    """The classes of the structures of the installed systems, as far as they have one."""
    for name in names():
        with contextlib.suppress(NotImplementedError):
            yield type(find(name).env().structure)
