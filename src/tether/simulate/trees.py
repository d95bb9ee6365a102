"""Contracts, certificates and policies as JAX PyTrees: one compiled program serves every (lam, b) and all weights.

The classes themselves know nothing of JAX. `as_tree` registers the class of what it is given when it first meets it, a
subclass or a certificate of somebody else like one of ours: a dataclass is split into the fields that are numbers and
those that are fixed. A copy that JAX makes while it traces is not validated again: its numbers may be tracers.
"""

from __future__ import annotations

import contextlib
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import jax

from tether.certificates.lipschitz import LipschitzCertificate
from tether.certificates.shadowing import Shadowing
from tether.certificates.structured import Structured
from tether.core.contract import Contract
from tether.core.schedule import Schedule
from tether.core.sensitivity import EstimatedSensitivity, Geometric, Sensitivity, Table

Value = TypeVar("Value")

_NUMBERS: dict[type[Any], tuple[str, ...]] = {
    Contract: ("lam", "b", "cost_floor"),
    Schedule: ("values", "sums", "least"),
    Geometric: (),
    Table: ("values", "sums"),
    Sensitivity: ("immediate", "carried", "perturbation"),
    LipschitzCertificate: ("contract", "bounds"),
}
"""By class, for it and its subclasses, the fields that are numbers.

Of any other dataclass those that it names in `tree_numbers`, or else the contract, if there is one."""
_REGISTERED: set[type[Any]] = set()


def as_tree(value: Value) -> Value:
    """`value` itself, its class and those of its numbers registered as PyTrees.

    So are a tuple's entries. What is no dataclass is left as it is: a leaf, which a compiled program takes as fixed.
    """
    if isinstance(value, tuple):
        for each in value:
            as_tree(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for name in _numbers(type(value)):
            as_tree(getattr(value, name))
        register(type(value))
    return value


def _numbers(cls: type[Any]) -> tuple[str, ...]:
    for base in cls.__mro__:
        if base in _NUMBERS:
            return _NUMBERS[base]
    if hasattr(cls, "tree_numbers"):
        return tuple(cls.tree_numbers)
    return ("contract",) if any(each.name == "contract" for each in fields(cls)) else ()


def register(cls: type[Any]) -> None:
    """Make a class of dataclasses known to JAX as a PyTree; again does nothing."""
    if cls in _REGISTERED:
        return
    numbers = _numbers(cls)
    fixed = tuple(each.name for each in fields(cls) if each.name not in numbers)

    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(value, name) for name in numbers), tuple(getattr(value, name) for name in fixed)

    def unflatten(fixed_values: tuple[Any, ...], number_values: tuple[Any, ...]) -> Any:
        value: Any = object.__new__(cls)
        for name, field in zip(numbers + fixed, (*number_values, *fixed_values), strict=True):
            object.__setattr__(value, name, field)
        return value

    with contextlib.suppress(ValueError):  # its author may have registered it already
        jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    _REGISTERED.add(cls)


for _known in (*_NUMBERS, EstimatedSensitivity, Structured, Shadowing):
    register(_known)
