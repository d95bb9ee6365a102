"""What is estimated from a log: constants with their intervals, and what is recommended for the guard."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.certificates.lipschitz import LipschitzCertificate
from tether.core.contract import Contract
from tether.core.sensitivity import EstimatedSensitivity, Geometric, geometric
from tether.data.logs import Columns
from tether.estimation.extremes import Tail

Floats = NDArray[np.float64]
MEANINGS = {
    "immediate": ("slope of a round's cost in its action (L_c in the action)", "cost per action"),
    "carried": (
        "slope of the next round's cost in the action, the prior playing that round",
        "cost per action",
    ),
    "rho": ("what the prior leaves of a gap after one round", "share of the gap"),
    "cost_floor": ("a cost that no round goes below", "cost"),
    "L_c_state": ("slope of the cost in the state, the action held", "cost per state"),
    "L_c_prior": ("slope of the cost in the state, the prior acting", "cost per state"),
    "L_f_action": ("slope of the next state in the action", "state per action"),
    "L_f_state": ("slope of the next state in the state, the action held", "state per state"),
    "L_pi": ("slope of the prior's action in the state", "action per state"),
}
"""Of each constant what it is, and its unit."""
USEFUL = 0.02
"""A safe deviation that is worth something, as a share of the distance between logged actions."""
NEEDED = ("immediate", "carried", "rho")
"""Without these there is nothing to give to a guard."""


@dataclass(frozen=True)
class Estimate:
    """One constant, estimated from a log."""

    name: str
    value: float | None
    """The return level: what operation `times` as long reaches, most likely. None: the log does not identify it."""
    low: float | None
    """Lower end of the confidence interval: what was seen, less its error."""
    high: float | None
    """Upper end (for the cost floor the lower end is the one that matters)."""
    recommended: float | None
    """What to use: the careful end of the interval, with the safety factor."""
    evidence: int
    """Rows that it rests on; for the tail, independent peaks are in `method`."""
    method: str
    warnings: tuple[str, ...] = ()

    @property
    def meaning(self) -> str:
        """What the constant is."""
        return MEANINGS[self.name][0]

    @property
    def unit(self) -> str:
        """In the units of the log."""
        return MEANINGS[self.name][1]

    @property
    def identified(self) -> bool:
        """Whether the log says anything about it."""
        return self.value is not None


class Impulse(NamedTuple):
    """How a unit deviation in one round shows n rounds later, on average, while the logged policy plays on."""

    state: Floats
    """[N] norm of the response of the state after n more rounds; n = 0: the next state."""
    state_error: Floats
    """[N] standard error of it."""
    cost: Floats
    """[N] response of the cost of n rounds later; n = 0: the same round."""
    cost_error: Floats
    """[N]."""
    pairs: NDArray[np.int64]
    """[N] pairs of rounds that it was measured on."""


@dataclass(frozen=True)
class Estimates:
    """Everything that `estimate` found; prints as a table."""

    constants: Mapping[str, Estimate]
    scale: float
    """Of the perturbation function p(n) = scale * rho^n; at least 1."""
    impulse: Impulse | None
    """None if the prior's action was not logged or never deviated from."""
    columns: Columns
    rows: int
    rounds: int
    """The longest episode."""
    confidence: float
    safety: float
    times: float
    warnings: tuple[str, ...]
    mean_cost: float
    """Of a round, cost units."""
    actions: float
    """How far apart logged actions are, action units: the diagonal of their box."""
    slopes: Mapping[str, Floats] = field(repr=False, default_factory=dict)
    """Local slopes of each constant over the sample, for figures."""
    tails: Mapping[str, Tail] = field(repr=False, default_factory=dict)

    def __getitem__(self, name: str) -> Estimate:
        return self.constants[name]

    @property
    def identified(self) -> bool:
        """Whether the log says enough to recommend a `sensitivity`."""
        return all(self.constants[name].identified for name in NEEDED)

    @property
    def perturbation(self) -> Geometric:
        """The recommended p(n) = scale * rho^n."""
        return geometric(self.needed("rho"), self.scale)

    @property
    def sensitivity(self) -> EstimatedSensitivity:
        """What is recommended for the guard. A ValueError if the log does not identify it."""
        return EstimatedSensitivity(
            immediate=self.needed("immediate"),
            carried=self.needed("carried"),
            perturbation=self.perturbation,
            confidence=self.confidence,
            safety=self.safety,
            rows=self.rows,
        )

    def contract(self, lam: float, b: float, horizon: int | None = None) -> Contract:
        """A promise with the estimated cost floor; the horizon is the log's longest episode unless given."""
        return Contract(lam, b, self.rounds if horizon is None else horizon, self.needed("cost_floor"))

    def useless(self, contract: Contract | None = None) -> str | None:
        """Why the estimates are of no use under a contract and what to do, or None if they leave some freedom.

        Of no use are constants with which the guard allows less than 1/50 of the distance between logged actions in the
        first round. Each remedy that is named was tried on these numbers.

        Args:
            contract: The promise; if None, twice the prior's cost and a tenth of the mean cost a round, which is
            generous.
        """
        if not self.identified:
            missing = [name for name in NEEDED if not self.constants[name].identified]
            return f"useless here, because the log does not identify {', '.join(missing)}; the warnings say what to log"
        if contract is None:
            contract = self.contract(lam=1.0, b=0.1 * max(self.mean_cost, 0.0))
        allowed = _first_radius(contract, self.sensitivity)
        if allowed >= USEFUL * self.actions:
            return None
        rho = self.perturbation.rho
        reasons = [
            f"useless here, because with lam = {contract.lam:g} and b = {contract.b:.3g} over {contract.horizon} "
            f"rounds the first action may deviate by {allowed:.2g}, where logged actions are {self.actions:.3g} apart"
        ]
        if rho >= 1.0:
            digits = (contract.horizon - 1) * math.log10(rho)
            grown = f"{10.0**digits:.2g}" if digits < 300.0 else f"10^{digits:.0f}"
            reasons.append(
                f"rho = {rho:.3g} says that a gap grows to {grown} times its size by the last round"
            )
        reasons.append(self._why_steep())
        tried = {
            "rho": 1.0,
            "carried": 0.5 * self.needed("carried"),
            "immediate": 0.5 * self.needed("immediate"),
        }
        for name, value in tried.items():
            if value < self.needed(name):
                better = replace(self, constants={**self.constants, name: _given(name, value)})
                radius = _first_radius(contract, better.sensitivity)
                if radius > max(1.2 * allowed, 0.25 * USEFUL * self.actions):
                    reasons.append(
                        f"with {name} = {value:.3g} it may be {radius:.2g} (known={{{name!r}: ...}}, if you know "
                        f"better)"
                    )
        reasons.append(
            "if you have a model, or can fit one (tether.fit_model), tether.compile needs no constants"
        )
        return "; ".join(each for each in reasons if each)

    def _why_steep(self) -> str:
        """Whether steep places are few, as kinks and limits make them look."""
        slopes = self.slopes.get("rho")
        high = self.constants["rho"].high
        if slopes is None or high is None or high <= 1.0 or not np.median(slopes) <= 1.0:
            return ""
        return (
            f"half of the local slopes are at most {np.median(slopes):.2g} and {np.mean(slopes > 1.0):.1%} above 1: "
            f"kinks and limits (an empty queue, a full tank) look like that, and no local fit can tell them from growth"
        )

    def needed(self, name: str) -> float:
        """The recommended value of a constant. A ValueError if the log does not identify it."""
        found = self.constants[name]
        if found.recommended is None:
            raise ValueError(f"{name} was not identified: {'; '.join(found.warnings) or found.method}")
        return found.recommended

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, fit for JSON."""
        return {
            "proved": False,
            "rows": self.rows,
            "rounds": self.rounds,
            "confidence": self.confidence,
            "safety": self.safety,
            "times": self.times,
            "constants": {name: asdict(each) for name, each in self.constants.items()},
            "perturbation": self.perturbation.to_dict() if self.constants["rho"].identified else None,
            "recommended": {
                "immediate": self.sensitivity.immediate,
                "carried": self.sensitivity.carried,
                "perturbation": self.perturbation.to_dict(),
                "cost_floor": self.constants["cost_floor"].recommended,
            }
            if self.identified
            else None,
            "impulse": None if self.impulse is None else self.impulse._asdict(),
            "useless": self.useless(),
            "columns": asdict(self.columns),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        lines = [
            f"estimated, not proved: {self.rows:,} rows, confidence {self.confidence:g}, safety {self.safety:g}"
        ]
        for name, each in self.constants.items():
            if each.value is None or each.low is None or each.high is None or each.recommended is None:
                lines.append(f"  {name:<11} not identified")
                continue
            lines.append(
                f"  {name:<11} {each.recommended:<10.4g} "
                f"({each.value:.4g}, {each.low:.4g} to {each.high:.4g}; {each.unit})"
            )
        useless = self.useless()
        return "\n".join(
            [
                *lines,
                *(f"  warning: {text}" for text in self.warnings),
                *([f"  {useless}"] if useless else []),
            ]
        )


def _given(name: str, value: float) -> Estimate:
    return Estimate(name, value, value, value, value, 0, "tried")


def _first_radius(contract: Contract, bounds: EstimatedSensitivity) -> float:
    """How far from the prior's the first action may be; 0 if p grows beyond all numbers."""
    try:
        certificate = LipschitzCertificate(contract, bounds)
        return float(certificate.radius(certificate.start()))
    except ValueError:
        return 0.0
