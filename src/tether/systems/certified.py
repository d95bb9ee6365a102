"""The certificates of a system, by name: what a guard can know of it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, cast, get_args

from tether.certificates import Certificate, LipschitzCertificate, Rule, Shadowing, Structured
from tether.core import validate
from tether.core.contract import Contract
from tether.systems.base import Env

Kind = Literal["lipschitz", "structured", "identified", "shadowing", "compiled"]
"""What a certificate can know of a system: three constants; a structure that was derived; the same and what every
reward tells (`Env.identifying`); the same and what every round reveals; or all that its model says (`Env.model`)."""
KINDS: tuple[str, ...] = get_args(Kind)
FAMILY: tuple[str, ...] = (*get_args(Rule), "structured")
"""Guards that make the same promise, from the most timid to the one that knows most: the rules of `lipschitz`, and
`structured`."""


def certificate_of(
    kind: str, env: Env, contract: Contract, rule: Rule = "tight", resolution: float = 0.0
) -> Certificate:
    """The certificate of that kind for a system.

    Args:
        kind: One of `KINDS`.
        env: The system; what is appended to its observations does not matter.
        contract: The promise.
        rule: Of `lipschitz`, the only one that has rules.
        resolution: Relative round-off of the plant's sensors, actuators and meters, see `tether.Guard`.
    """
    validate.choice("certificate", kind, KINDS)
    if kind == "structured":
        return Structured(contract, env.structure, resolution=resolution)
    if kind == "identified":
        return Structured(contract, env.identifying, resolution=resolution)
    if kind == "shadowing":
        return Shadowing(contract, env.structure, env=env, resolution=resolution)
    if kind == "lipschitz":
        return LipschitzCertificate(contract, env.sensitivity, rule, resolution=resolution)
    # One structure for all contracts, so that what JAX compiles for one serves the others.
    plain = replace(getattr(env, "exact", env), context=())
    found = _compiled(plain, contract.horizon, contract.cost_floor)
    certificate: Certificate = replace(found, contract=contract, resolution=resolution)
    return certificate


def family_of(env: Env) -> tuple[str, ...]:
    """The members of `FAMILY` that there are for a system: `structured` needs a structure."""
    try:
        env.structure  # noqa: B018
    except NotImplementedError:
        return get_args(Rule)
    return FAMILY


def member(name: str, env: Env, contract: Contract) -> Certificate:
    """The certificate of a system that is called so in `FAMILY`."""
    validate.choice("certificate", name, FAMILY)
    if name == "structured":
        return certificate_of(name, env, contract)
    return certificate_of("lipschitz", env, contract, cast(Rule, name))


@lru_cache(maxsize=16)
def _compiled(env: Env, horizon: int, cost_floor: float) -> Any:
    from tether.certificates.compiled import compile as compiled

    return compiled(env.model(), Contract(lam=0.0, b=0.0, horizon=horizon, cost_floor=cost_floor))
