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
from tether.monitor import LipschitzMonitor, Ranges
from tether.policy import NetworkPolicy, load_policy
from tether.projection import project
from tether.run import Run
from tether.sensitivity import EstimatedSensitivity, Sensitivity, geometric, table

if TYPE_CHECKING:
    from tether import data, envs, gym, verification
    from tether.estimation import Estimate, Estimates, estimate
    from tether.learn.mpc import PlanningPolicy
    from tether.learn.rollout import rollout
    from tether.learn.train import Recipe, Score, Training, evaluate, regrets, train
    from tether.verification.verdict import Verification, verify

__version__ = "0.1.0"

__all__ = [
    "AssumptionBreach",
    "Audit",
    "Breach",
    "Contract",
    "Decision",
    "Estimate",
    "EstimatedSensitivity",
    "Estimates",
    "Guard",
    "GuardMisuse",
    "LipschitzCertificate",
    "LipschitzMonitor",
    "NetworkPolicy",
    "PlanningPolicy",
    "PriorFailed",
    "Ranges",
    "Reason",
    "Recipe",
    "Run",
    "Score",
    "Sensitivity",
    "Structured",
    "Training",
    "Verification",
    "audit",
    "data",
    "envs",
    "estimate",
    "evaluate",
    "geometric",
    "gym",
    "load_policy",
    "project",
    "regrets",
    "rollout",
    "table",
    "train",
    "verification",
    "verify",
]

# What needs JAX or SciPy, and where it is.
_LATER = (
    {"PlanningPolicy": "tether.learn.mpc", "rollout": "tether.learn.rollout"}
    | dict.fromkeys(("Recipe", "Score", "Training", "evaluate", "regrets", "train"), "tether.learn.train")
    | dict.fromkeys(("Estimate", "Estimates", "estimate"), "tether.estimation")
    | dict.fromkeys(("Verification", "verify"), "tether.verification.verdict")
)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in ("data", "envs", "gym", "verification"):
        return importlib.import_module(f"tether.{name}")
    raise AttributeError(f"module 'tether' has no attribute {name!r}")
