"""Certificates turn a contract and knowledge of the system into safe sets of actions."""

from tether.certificates.lipschitz import LipschitzCertificate, LipschitzState, Rule
from tether.certificates.shadowing import Shadowing
from tether.certificates.structure import Bounds, Round, Structure
from tether.certificates.structured import Structured, StructuredState
from tether.certificates.switches import Switches
from tether.core.certificate import Box, Certificate, Choice, Outcome, Weighed, Weighing
from tether.core.finite import FiniteActions
from tether.core.several import Several

__all__ = [
    "Bounds",
    "Box",
    "Certificate",
    "Choice",
    "FiniteActions",
    "LipschitzCertificate",
    "LipschitzState",
    "Outcome",
    "Round",
    "Rule",
    "Several",
    "Shadowing",
    "Structure",
    "Structured",
    "StructuredState",
    "Switches",
    "Weighed",
    "Weighing",
]
