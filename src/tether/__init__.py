"""tether: let a learning policy run your plant while its cost stays within reach of the policy you trust.

Importing `tether` loads the promise and the online guard only: NumPy, no JAX. `tether.rollout`, `tether.envs`
and what else needs more is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tether.certificates import LipschitzCertificate, Structured
from tether.core.audit import Audit, audit
from tether.core.contract import Contract
from tether.core.guard import AssumptionBreach, Breach, Decision, Guard, GuardMisuse, PriorFailed, Reason
from tether.core.monitor import LipschitzMonitor, Ranges
from tether.core.projection import project
from tether.core.run import Run
from tether.core.sensitivity import EstimatedSensitivity, Sensitivity, geometric, table
from tether.learn.policy import NetworkPolicy, load_policy

if TYPE_CHECKING:
    from tether import data, envs, gym
    from tether.assure.verify.verdict import Verification, verify
    from tether.estimation.estimate import estimate
    from tether.estimation.estimates import Estimate, Estimates
    from tether.learn.mpc import PlanningPolicy
    from tether.learn.train import Recipe, Score, Training, evaluate, regrets, train
    from tether.simulate.rollout import rollout

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
    "verify",
]

# What needs JAX or SciPy, and where it is.
_LATER = (
    {"PlanningPolicy": "tether.learn.mpc", "rollout": "tether.simulate.rollout"}
    | dict.fromkeys(("Recipe", "Score", "Training", "evaluate", "regrets", "train"), "tether.learn.train")
    | {"estimate": "tether.estimation.estimate"}
    | dict.fromkeys(("Estimate", "Estimates"), "tether.estimation.estimates")
    | dict.fromkeys(("Verification", "verify"), "tether.assure.verify.verdict")
)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in ("data", "envs", "gym"):
        return importlib.import_module(f"tether.{name}")
    raise AttributeError(f"module 'tether' has no attribute {name!r}")
