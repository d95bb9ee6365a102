"""Certificates turn a contract and knowledge of the system into safe sets of actions."""

from tether.certificates.lipschitz import LipschitzCertificate, LipschitzState, Rule
from tether.certificates.shadowing import Shadowing
from tether.certificates.structure import Bounds, Round, Structure
from tether.certificates.structured import Structured, StructuredState
from tether.core.certificate import Box, Certificate, Choice, Outcome

__all__ = [
    "Bounds",
    "Box",
    "Certificate",
    "Choice",
    "LipschitzCertificate",
    "LipschitzState",
    "Outcome",
    "Round",
    "Rule",
    "Shadowing",
    "Structure",
    "Structured",
    "StructuredState",
]
