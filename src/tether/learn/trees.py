"""Contracts, certificates and policies as JAX PyTrees: one compiled program serves every (lam, b) and all weights.

The classes themselves know nothing of JAX; importing this module registers them. A copy that JAX makes
while it traces is not validated again: its numbers may be tracers.
"""

from __future__ import annotations

from typing import Any

import jax

from tether.certificates import LipschitzCertificate, Shadowing, Structured
from tether.contract import Contract
from tether.policy import NetworkPolicy
from tether.sensitivity import Geometric, Sensitivity, Table


def _register(cls: type[Any], numbers: tuple[str, ...], fixed: tuple[str, ...]) -> None:
    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(value, name) for name in numbers), tuple(getattr(value, name) for name in fixed)

    def unflatten(fixed_values: tuple[Any, ...], number_values: tuple[Any, ...]) -> Any:
        value: Any = object.__new__(cls)
        for name, field in zip(numbers + fixed, (*number_values, *fixed_values), strict=True):
            object.__setattr__(value, name, field)
        return value

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)


_register(Contract, numbers=("lam", "b", "cost_floor"), fixed=("horizon",))
_register(Geometric, numbers=(), fixed=("rho", "scale", "_log_rho"))
_register(Table, numbers=("values", "sums"), fixed=())
_register(Sensitivity, numbers=("immediate", "carried", "perturbation"), fixed=())
_register(
    NetworkPolicy,
    numbers=("weights", "biases"),
    fixed=("input_mean", "input_scale", "center", "low", "high", "scalar", "memory", "inside"),
)
_register(LipschitzCertificate, numbers=("contract", "bounds"), fixed=("rule",))
_register(Structured, numbers=("contract",), fixed=("system", "resolution"))
_register(Shadowing, numbers=("contract",), fixed=("system", "resolution", "env"))
