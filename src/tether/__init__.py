"""tether: let a learning policy run your plant while its cost stays within reach of the policy you trust.

Importing `tether` loads the promise and the online guard only: NumPy, no reader of data, no environment, no JAX. What
needs more is loaded when it is first used, and says which extra of the package brings it if that is not installed.

What is used every day is in `__all__`. Further names can be taken from here as well; each lives in its own room:
results and errors of the guard in `tether.core`, monitors in `tether.core.monitor`, networks and recipes in
`tether.learn`, what `estimate` and `verify` return in `tether.estimation` and `tether.assure`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tether.certificates import FiniteActions as FiniteActions
from tether.certificates import LipschitzCertificate, Structured
from tether.certificates import Several as Several
from tether.certificates import Switches as Switches
from tether.core.audit import audit
from tether.core.contract import Contract
from tether.core.extras import missing
from tether.core.fleet import Fleet as Fleet
from tether.core.guard import Guard
from tether.core.noise import cut_noise as cut_noise
from tether.core.schedule import periodic as periodic
from tether.core.sensitivity import Sensitivity, geometric, table

if TYPE_CHECKING:
    from tether import data, envs, gym, systems
    from tether.assure.safe_sets import SafeSets as SafeSets
    from tether.assure.safe_sets import safe_sets as safe_sets
    from tether.assure.verify.verdict import Verification as Verification
    from tether.assure.verify.verdict import verify
    from tether.certificates.compiled import compile  # noqa: A004
    from tether.certificates.compiled_structure import Precision as Precision
    from tether.certificates.explain import Explanation as Explanation
    from tether.certificates.explain import explain as explain
    from tether.certificates.model import Model
    from tether.core.audit import Audit as Audit
    from tether.core.audit import Audits as Audits
    from tether.core.guard import AssumptionBreach as AssumptionBreach
    from tether.core.guard import Breach as Breach
    from tether.core.guard import Decision as Decision
    from tether.core.guard import GuardMisuse as GuardMisuse
    from tether.core.guard import Override as Override
    from tether.core.guard import PriorFailed as PriorFailed
    from tether.core.guard import Reason as Reason
    from tether.core.monitor import LipschitzMonitor as LipschitzMonitor
    from tether.core.monitor import Ranges as Ranges
    from tether.core.projection import project as project
    from tether.core.run import Run as Run
    from tether.core.sensitivity import EstimatedSensitivity as EstimatedSensitivity
    from tether.estimation.estimate import estimate
    from tether.estimation.estimates import Estimate as Estimate
    from tether.estimation.estimates import Estimates as Estimates
    from tether.estimation.fit_model import FittedModel as FittedModel
    from tether.estimation.fit_model import fit_model as fit_model
    from tether.learn.mpc import PlanningPolicy as PlanningPolicy
    from tether.learn.pace import pace
    from tether.learn.paced import PacedPolicy as PacedPolicy
    from tether.learn.policy import NetworkPolicy as NetworkPolicy
    from tether.learn.policy import load_policy
    from tether.learn.train import Recipe as Recipe
    from tether.learn.train import Score as Score
    from tether.learn.train import Training as Training
    from tether.learn.train import evaluate as evaluate
    from tether.learn.train import regrets as regrets
    from tether.learn.train import train
    from tether.serve.client import AsyncClient as AsyncClient
    from tether.serve.client import Client as Client
    from tether.simulate.batched import BatchedPolicy as BatchedPolicy
    from tether.simulate.rollout import rollout

__version__ = "0.1.0"

__all__ = [
    "Contract",
    "Guard",
    "LipschitzCertificate",
    "Model",
    "Sensitivity",
    "Structured",
    "audit",
    "compile",
    "data",
    "envs",
    "estimate",
    "geometric",
    "gym",
    "load_policy",
    "pace",
    "rollout",
    "systems",
    "table",
    "train",
    "verify",
]

_MODULES = ("data", "envs", "gym", "systems")
_LATER = {
    name: module
    for module, names in {
        "tether.assure.safe_sets": ("SafeSets", "safe_sets"),
        "tether.assure.verify.verdict": ("Verification", "verify"),
        "tether.certificates.compiled": ("compile",),
        "tether.certificates.compiled_structure": ("Precision",),
        "tether.certificates.explain": ("Explanation", "explain"),
        "tether.certificates.model": ("Model",),
        "tether.core.audit": ("Audit", "Audits"),
        "tether.core.guard": (
            "AssumptionBreach",
            "Breach",
            "Decision",
            "GuardMisuse",
            "Override",
            "PriorFailed",
            "Reason",
        ),
        "tether.core.monitor": ("LipschitzMonitor", "Ranges"),
        "tether.core.projection": ("project",),
        "tether.core.run": ("Run",),
        "tether.core.sensitivity": ("EstimatedSensitivity",),
        "tether.estimation.estimate": ("estimate",),
        "tether.estimation.estimates": ("Estimate", "Estimates"),
        "tether.estimation.fit_model": ("FittedModel", "fit_model"),
        "tether.learn.mpc": ("PlanningPolicy",),
        "tether.learn.pace": ("pace",),
        "tether.learn.paced": ("PacedPolicy",),
        "tether.learn.policy": ("NetworkPolicy", "load_policy"),
        "tether.learn.train": ("Recipe", "Score", "Training", "evaluate", "regrets", "train"),
        "tether.simulate.batched": ("BatchedPolicy",),
        "tether.serve.client": ("AsyncClient", "Client"),
        "tether.simulate.rollout": ("rollout",),
    }.items()
    for name in names
}
"""Where each name that is loaded when it is first used lives."""


def __getattr__(name: str) -> Any:
    if name not in _LATER and name not in _MODULES:
        raise AttributeError(f"module 'tether' has no attribute {name!r}")
    try:
        if name in _MODULES:
            return importlib.import_module(f"tether.{name}")
        return getattr(importlib.import_module(_LATER[name]), name)
    except ModuleNotFoundError as error:
        raise missing(f"tether.{name}", error) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_LATER})
