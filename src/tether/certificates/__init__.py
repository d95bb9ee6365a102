"""Certificates turn a contract and knowledge of the system into safe sets of actions."""

from typing import Any

from tether.certificates.base import Box, Certificate, Choice, Outcome
from tether.certificates.cases import Falsified
from tether.certificates.cooling import CoolingStructure
from tether.certificates.falsify import falsify
from tether.certificates.lipschitz import LipschitzCertificate, LipschitzState, Rule
from tether.certificates.shadowing import Shadowing
from tether.certificates.structure import Bounds, Round, Structure
from tether.certificates.structured import Structured, StructuredState
from tether.certificates.systems import STRUCTURES, CarbonStructure, InferenceStructure
from tether.contract import Contract

__all__ = [
    "Bounds",
    "Box",
    "CarbonStructure",
    "Certificate",
    "Choice",
    "CoolingStructure",
    "Falsified",
    "InferenceStructure",
    "LipschitzCertificate",
    "LipschitzState",
    "Outcome",
    "Round",
    "Rule",
    "Shadowing",
    "Structure",
    "Structured",
    "StructuredState",
    "certificate_from_dict",
    "falsify",
]


def certificate_from_dict(description: dict[str, Any]) -> Certificate:
    """The certificate that its `to_dict` described."""
    if description["kind"] == "lipschitz":
        return LipschitzCertificate.from_dict(description)
    numbers = dict(description["system"])
    kind = numbers.pop("kind")
    if description["kind"] != "structured" or kind not in STRUCTURES:
        raise ValueError(f"a certificate ({description['kind']}, {kind}) of your own must be given as it is")
    system = STRUCTURES[kind](**numbers)
    return Structured(Contract(**description["contract"]), system, resolution=description["resolution"])
