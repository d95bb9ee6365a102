"""tether: let a learning policy run your plant while its cost stays within reach of the policy you trust.

Importing `tether` loads the promise and the online guard only: NumPy, no JAX. `tether.rollout`, `tether.envs`
and what else needs more is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tether.audit import Audit, audit
from tether.certificates import LipschitzCertificate, Structured
from tether.contract import Contract
from tether.guard import AssumptionBreach, Breach, Decision, Guard, GuardMisuse, PriorFailed, Reason
from tether.policy import NetworkPolicy, load_policy
from tether.projection import project
from tether.run import Run
from tether.sensitivity import Sensitivity, geometric, table

if TYPE_CHECKING:
    from tether import data, envs, gym
    from tether.learn.mpc import PlanningPolicy
    from tether.learn.rollout import rollout
    from tether.learn.train import Recipe, Score, Training, evaluate, regrets, train

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
    "NetworkPolicy",
    "PlanningPolicy",
    "PriorFailed",
    "Reason",
    "Recipe",
    "Run",
    "Score",
    "Sensitivity",
    "Structured",
    "Training",
    "audit",
    "data",
    "envs",
    "evaluate",
    "geometric",
    "gym",
    "load_policy",
    "project",
    "regrets",
    "rollout",
    "table",
    "train",
]

# What needs JAX, and where it is.
_LEARNING = {"PlanningPolicy": "tether.learn.mpc", "rollout": "tether.learn.rollout"} | dict.fromkeys(
    ("Recipe", "Score", "Training", "evaluate", "regrets", "train"), "tether.learn.train"
)


def __getattr__(name: str) -> Any:
    if name in _LEARNING:
        return getattr(importlib.import_module(_LEARNING[name]), name)
    if name in ("data", "envs", "gym"):
        return importlib.import_module(f"tether.{name}")
    raise AttributeError(f"module 'tether' has no attribute {name!r}")
