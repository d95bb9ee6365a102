"""Check the assumptions: try to refute every constant that a guard relies on (`tether.verify`)."""

from tether.assure.verify.box import Box
from tether.assure.verify.claims import Claim, Constants, Point, Sides, standard_claims
from tether.assure.verify.search import Search
from tether.assure.verify.simulators import Simulator, as_simulator, functions, gymnasium_simulator
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
    "Simulator",
    "Verification",
    "as_simulator",
    "claims_of",
    "functions",
    "gymnasium_simulator",
    "refute",
    "replay",
    "standard_claims",
    "verify",
]
