"""tether: let a learning policy run your plant while its cost stays within reach of the policy you trust.

Importing `tether` loads the promise and the online guard only: NumPy, no JAX. `tether.rollout`, `tether.envs`
and what else needs more is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tether.audit import Audit, audit
from tether.certificates import LipschitzCertificate
from tether.contract import Contract
from tether.guard import AssumptionBreach, Breach, Decision, Guard, GuardMisuse, PriorFailed, Reason
from tether.projection import project
from tether.run import Run
from tether.sensitivity import Sensitivity, geometric, table

if TYPE_CHECKING:
    from tether import data, envs, gym
    from tether.learn.rollout import rollout

__version__ = "0.1.0"

__all__ = [
    "AssumptionBreach",
    "Audit",
    "Breach",
    "Contract",
    "Decision",
    "Guard",
    "GuardMisuse",
    "LipschitzCertificate",
    "PriorFailed",
    "Reason",
    "Run",
    "Sensitivity",
    "audit",
    "data",
    "envs",
    "geometric",
    "gym",
    "project",
    "rollout",
    "table",
]


def __getattr__(name: str) -> Any:
    if name == "rollout":
        return importlib.import_module("tether.learn.rollout").rollout
    if name in ("data", "envs", "gym"):
        return importlib.import_module(f"tether.{name}")
    raise AttributeError(f"module 'tether' has no attribute {name!r}")
