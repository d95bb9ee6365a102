"""Check the assumptions: try to refute every constant that a guard relies on (`tether.verify`)."""

from tether.assure.verify.claims import Claim, Constants, Point, Sides, standard_claims
from tether.assure.verify.search import Search
from tether.assure.verify.systems import Box, System, as_system, functions, gymnasium_system
from tether.assure.verify.verdict import (
    Counterexample,
    Finding,
    Verification,
    claims_of,
    refute,
    replay,
    verify,
)

__all__ = [
    "Box",
    "Claim",
    "Constants",
    "Counterexample",
    "Finding",
    "Point",
    "Search",
    "Sides",
    "System",
    "Verification",
    "as_system",
    "claims_of",
    "functions",
    "gymnasium_system",
    "refute",
    "replay",
    "standard_claims",
    "verify",
]
