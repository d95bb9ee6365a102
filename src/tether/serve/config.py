"""What `tether serve` is told: one TOML file, checked, and the plants that it describes.

The least that is useful:

    [journal]
    path = "journal"                 # a folder; relative paths start at the folder of this file
    durability = "group"             # process, group or power

    [access]
    tokens = "tokens.toml"           # or open = true, on this machine only

    [plants.hall]
    system = "cooling"               # a system by name, or module:object; or certificate = "hall.json"
    lam = 2.0
    b = 1.0
"""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from tether.certificates import LipschitzCertificate, Structured
from tether.core import validate
from tether.core.certificate import Certificate
from tether.core.ops import FLOAT32
from tether.core.projection import Norm
from tether.core.saved import certificate_from_dict
from tether.serve.plant import Plant
from tether.systems import registry
from tether.systems.base import Env

CLIENT = "client"
"""As `prior`: the client computes the prior's action and sends it along."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Of a plant or an episode."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table in which a name that is not known is a mistake."""


class JournalTable(_Struct, frozen=True):
    """`[journal]`: where it is and when an answer counts as written."""

    path: str
    durability: Literal["process", "group", "power"] = "process"
    segment_megabytes: float = 16.0
    """How long a segment may grow before the next one begins."""
    keep: int = 64
    """Segments that are kept; 0 for all."""


class AccessTable(_Struct, frozen=True):
    """`[access]`: who may call."""

    tokens: str | None = None
    open: bool = False


class LimitsTable(_Struct, frozen=True):
    """`[limits]`: how much."""

    body_bytes: int = 65536
    requests_per_second: float = 5000.0
    """Of each token."""
    open_episodes: int = 1000
    """Of each plant."""
    batch: int = 1000
    """Calls in one batch."""
    watchers: int = 50
    """Dashboards that are open at once."""


class PlantTable(_Struct, frozen=True):
    """`[plants.NAME]`: what is promised, and what is known."""

    system: str | None = None
    certificate: str | None = None
    kind: Literal["structured", "lipschitz"] | None = None
    lam: float | None = None
    b: float | None = None
    horizon: int = 24
    prior: str | None = None
    low: float | list[float] | None = None
    high: float | list[float] | None = None
    norm: Norm | None = None
    resolution: float = FLOAT32
    monitor: bool = False
    """Whether the system's own monitor watches each round."""
    policies: dict[str, str] = {}
    """How a client plays each backup by itself, in words that it understands."""


class _File(_Struct, frozen=True):
    plants: dict[str, PlantTable]
    journal: JournalTable | None = None
    access: AccessTable = AccessTable()
    limits: LimitsTable = LimitsTable()


class Config(NamedTuple):
    """A file, checked."""

    path: Path
    plants: dict[str, Plant]
    journal: JournalTable | None
    """With its path as seen from here; None keeps nothing over the end of the process."""
    tokens: Path | None
    """None if everybody on this machine may call."""
    limits: LimitsTable


def load(path: str | Path) -> Config:
    """Read and check a file.

    Raises:
        ValueError: It is not as it should be; one line says where and what was expected.
    """
    file = Path(path)
    try:
        table = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _File)
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} not found; docs/production.md shows what it holds") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{file}: {error}") from error
    try:
        return _checked(file, table)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ValueError(f"{file}: {error}") from error


def _checked(file: Path, table: _File) -> Config:
    if not table.plants:
        raise ValueError("there is no plant; add a table [plants.NAME]")
    if (table.access.tokens is None) != table.access.open:
        raise ValueError('[access] must have either tokens = "FILE" or open = true')
    limits = table.limits
    for name in ("body_bytes", "open_episodes", "batch", "watchers"):
        validate.count(f"[limits] {name}", getattr(limits, name))
    validate.number("[limits] requests_per_second", limits.requests_per_second, above=0.0)
    folder, journal = file.parent, table.journal
    if journal is not None:
        validate.number("[journal] segment_megabytes", journal.segment_megabytes, above=0.0)
        validate.count("[journal] keep", journal.keep, minimum=0)
    return Config(
        file,
        {name: _plant(name, plant, folder, limits) for name, plant in table.plants.items()},
        journal and msgspec.structs.replace(journal, path=str(folder / journal.path)),
        None if table.access.tokens is None else folder / table.access.tokens,
        limits,
    )


def _plant(name: str, table: PlantTable, folder: Path, limits: LimitsTable) -> Plant:
    where = f"[plants.{name}]"
    if not NAME.fullmatch(name):
        raise ValueError(f"{where} must be named by 1 to 64 letters, digits or ._-, got {name!r}")
    if (table.system is None) == (table.certificate is None):
        raise ValueError(f'{where} must have either system = "NAME" or certificate = "FILE"')
    try:
        known = _of_system(table, folder) if table.system is not None else _of_file(table, folder)
        return Plant(
            **known,
            resolution=table.resolution,
            policies=table.policies,
            open_episodes=limits.open_episodes,
        )
    except (TypeError, ValueError, NotImplementedError, OSError) as error:
        raise ValueError(f"{where} {error}") from error


def _of_system(table: PlantTable, folder: Path) -> dict[str, Any]:
    """What is known of an installed system: bounds, norm and prior are its own unless others are given."""
    for name in ("lam", "b"):
        if getattr(table, name) is None:
            raise ValueError(f"needs {name} beside system")
    env = registry.find(str(table.system)).env()
    contract = env.contract(table.lam or 0.0, table.b or 0.0, table.horizon)
    structured = table.kind == "structured" or (table.kind is None and _has_structure(env))
    certificate: Certificate = (
        Structured(contract, env.structure) if structured else LipschitzCertificate(contract, env.sensitivity)
    )
    return {
        "certificate": certificate,
        "prior": env.prior if table.prior is None else prior_of(table.prior, folder),
        "low": env.low if table.low is None else table.low,
        "high": env.high if table.high is None else table.high,
        "norm": table.norm or env.norm,
        "monitor": env.monitor() if table.monitor else None,
    }


def _has_structure(env: Env) -> bool:
    try:
        return env.structure is not None
    except NotImplementedError:
        return False


def _of_file(table: PlantTable, folder: Path) -> dict[str, Any]:
    """What is known of a plant whose certificate was saved: `json.dumps(certificate.to_dict())`."""
    for name in ("kind", "lam", "b"):
        if getattr(table, name) is not None:
            raise ValueError(f"{name} is in the certificate; take it out")
    if table.monitor:
        raise ValueError("monitor = true is for a system, which has one")
    if table.prior is None:
        raise ValueError(f'needs prior = "module:function", "policy.npz" or "{CLIENT}"')
    file = folder / str(table.certificate)
    try:
        certificate = certificate_from_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{file} is not a certificate saved by to_dict: {error!r}") from error
    return {
        "certificate": certificate,
        "prior": prior_of(table.prior, folder),
        "low": table.low,
        "high": table.high,
        "norm": table.norm or "l2",
    }


def prior_of(text: str, folder: Path) -> Callable[[Any], Any] | None:
    """The prior that a file names: `client` (None), a policy file `NAME.npz`, or `module:function`."""
    if text == CLIENT:
        return None
    if text.endswith(".npz"):
        from tether.learn.policy import load_policy

        policy = load_policy(folder / text)
        if getattr(policy, "memory", True) or policy.inside:
            raise ValueError(f"prior {text} needs the guard's memory; a prior sees the observation only")
        plain: Callable[[Any], Any] = policy
        return plain
    module, colon, path = text.partition(":")
    if not colon:
        raise ValueError(f'prior must be "module:function", "policy.npz" or "{CLIENT}", got {text!r}')
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"no prior at {text!r}: {error}") from error
    if not callable(found):
        raise TypeError(f"prior {text!r} must be callable as prior(observation) -> action, got {found!r}")
    function: Callable[[Any], Any] = found
    return function


def require_loopback(config: Config, host: str) -> None:
    """Refuse to let everybody in from elsewhere than this machine."""
    if config.tokens is None and host not in _LOOPBACK:
        raise ValueError(
            f'[access] open = true is for this machine only, got --host {host}; give tokens = "FILE" instead'
        )
