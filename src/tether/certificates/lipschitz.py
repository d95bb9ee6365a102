"""The guard's mathematics: how far from the prior an action may be, given everything seen so far.

Notation, with the paper's symbols in brackets. At the start of round h (rounds count from 1):

    deviation   d_j = ||a_j - prior(x_j)||, action units
    floor       max(eps, c_i - sum_{j<=i} q_{j,i} d_j): a lower bound on the prior's cost   [c-hat_i]
    surplus     S = sum_{i<h} ((1 + lam) floor_i - c_i), cost units
    earned      lam*eps + b, cost units a round
    total       Gamma = immediate + carried * (p(0) + ... + p(H-h-1)): all that a unit deviation in
                this round can ever cost   [Gamma_{h,h}]
    allowance   D, cost units; an action is safe when Gamma * d <= D   (rules `paper` and `released`)

Every method takes an array namespace `xp` and is pure, so that the online guard (plain floats) and
the compiled rollout (`jax.numpy`) run this same code.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from tether import _validate
from tether.certificates.choice import Choice
from tether.contract import Contract
from tether.projection import Norm, nearest_safe
from tether.sensitivity import Geometric, Sensitivity, perturbation_from_dict

Rule = Literal["paper", "released", "tight"]


class LipschitzState(NamedTuple):
    """What the certificate remembers between rounds; of fixed size when p is geometric."""

    rounds: Any
    """Number of closed rounds, h - 1."""
    allowance: Any
    """The paper's D_h, cost units. Rule `tight` does not use it and leaves it at 0."""
    surplus: Any
    """S_h, cost units."""
    memory: Any
    """The past deviations as the perturbation function remembers them, action units."""
    magnitude: Any
    """Sum of the absolute values added up so far, cost units: what round-off is proportional to."""
    breached: Any
    """Whether a cost contradicted the contract; from then on only the prior is safe."""


class Opened(NamedTuple):
    """A round before the action is known."""

    state: LipschitzState
    radius: Any
    """The largest safe deviation, action units."""


@dataclass(frozen=True)
class LipschitzCertificate:
    """Safe sets that are balls around the prior's action, from a contract and a `Sensitivity`.

    Args:
        contract: The promise.
        bounds: What a deviation can do to the cost.
        rule: `"tight"` (default), the largest ball that this knowledge allows; `"released"`, the authors'
            published code; `"paper"`, Corollary 4.2 as printed. All three keep the promise, and for the
            same history their balls are nested: paper within released within tight.

    Example:
        >>> from tether import Contract, Sensitivity, geometric
        >>> certificate = LipschitzCertificate(
        ...     Contract(lam=2.0, b=2.0, horizon=24, cost_floor=1.0),
        ...     Sensitivity(immediate=31.0, carried=2.875, perturbation=geometric(0.25)),
        ... )
        >>> state = certificate.start()
        >>> round(float(certificate.radius(state)), 4)  # 4 units of cost over a sensitivity of 31
        0.129
        >>> state = certificate.update(state, deviation=0.1, cost=2.0)
        >>> round(float(certificate.radius(state)), 4)
        0.2165
    """

    contract: Contract
    bounds: Sensitivity
    rule: Rule = "tight"

    feature_names: ClassVar[tuple[str, ...]] = ("allowance", "margin", "carried deviation")

    def __post_init__(self) -> None:
        if not isinstance(self.contract, Contract):
            raise TypeError(f"contract must be a tether.Contract, got {self.contract!r}")
        if not isinstance(self.bounds, Sensitivity):
            raise TypeError(f"bounds must be a tether.Sensitivity, got {self.bounds!r}")
        _validate.choice("rule", self.rule, get_args(Rule))
        self.bounds.perturbation.check_horizon(self.contract.horizon)

    @property
    def scalar(self) -> bool:
        """Whether the state is single numbers."""
        return isinstance(self.bounds.perturbation, Geometric)

    def start(self, xp: Any = np, zero: Any = 0.0) -> LipschitzState:
        """The state before the first round; `zero` carries the number type that later states have."""
        earned = zero + self.contract.earned
        memory = self.bounds.perturbation.empty(self.contract.horizon, xp, zero)
        allowance = zero if self.rule == "tight" else earned
        return LipschitzState(zero, allowance, zero, memory, earned, zero > 0.0)

    def total(self, state: LipschitzState, xp: Any = np) -> Any:
        """Gamma_{h,h}, cost per action: all that a unit deviation in the coming round can ever cost."""
        later = self.contract.horizon - state.rounds - 1.0
        return self.bounds.immediate + self.bounds.carried * self.bounds.perturbation.reach(later, xp)

    def radius(self, state: LipschitzState, xp: Any = np) -> Any:
        """The largest safe deviation in the coming round, action units; at least 0, rounded inward."""
        contract, bounds = self.contract, self.bounds
        unit = self._unit_round_off(state.surplus)
        round_off = unit * state.magnitude
        if self.rule == "tight":
            # After k more rounds the prior has paid at least k*eps more and k*b more has been earned.
            radius = bounds.perturbation.least_ratio(
                base=state.surplus + state.rounds * contract.b * (1.0 - unit) - round_off,
                slope=contract.earned * (1.0 - unit),
                immediate=bounds.immediate,
                carried=bounds.carried,
                memory=state.memory,
                remaining=contract.horizon - state.rounds,
                horizon=contract.horizon,
                xp=xp,
            )
        else:
            radius = (state.allowance - round_off) / self.total(state, xp)
        return xp.where(state.breached, 0.0, xp.maximum(radius * (1.0 - unit), 0.0))

    def margin(self, state: LipschitzState, deviation: Any) -> Any:
        """How far below its bound J_h stays if `deviation` is played now, whatever happens; cost units."""
        contract, bounds = self.contract, self.bounds
        spent = bounds.carried * bounds.perturbation.felt(state.memory) + bounds.immediate * deviation
        return state.surplus + contract.earned + state.rounds * contract.b - spent

    def open(self, state: Any, observation: Any, xp: Any = np) -> Opened:  # noqa: ARG002
        """Begin a round; the safe ball does not depend on what is seen."""
        return Opened(state, self.radius(state, xp))

    def choose(
        self, opened: Any, proposal: Any, prior: Any, low: Any, high: Any, norm: Norm, xp: Any = np
    ) -> Choice:
        """The safe action nearest to the proposal; see `tether.projection.nearest_safe`."""
        action, deviation = nearest_safe(proposal, prior, opened.radius, low, high, norm, xp)
        margin = self.margin(opened.state, deviation)
        return Choice(action, deviation, opened.radius, margin, deviation, opened.state.breached)

    def features(self, opened: Any, xp: Any = np) -> tuple[Any, ...]:
        """The state as a learner can use it, in a round that was opened: (allowance, margin, carried deviation).

        The allowance is what may be spent on this round's deviation, radius * Gamma, cost units; the margin is how far
        below its bound J_h stays if the prior is played; the carried deviation is what earlier deviations are felt as
        now, action units. Together with the round they determine the safe set of rules `paper` and `released`.
        """
        state = opened.state
        allowance = opened.radius * self.total(state, xp)
        return allowance, self.margin(state, 0.0), self.bounds.perturbation.felt(state.memory)

    def feature_units(self) -> tuple[float, ...]:
        """Typical sizes of the features."""
        earned = self.contract.earned
        if earned <= 0.0:
            return 1.0, 1.0, 1.0
        return earned, earned, earned / float(self.total(self.start()))

    def accepts(self, cost: Any, xp: Any = np) -> Any:
        """Whether a cost is one that the contract allows at all: finite and not below the floor."""
        return xp.logical_and(xp.isfinite(cost), cost >= self.contract.cost_floor)

    def update(self, state: Any, deviation: Any, cost: Any, xp: Any = np) -> LipschitzState:
        """Close a round in which `deviation` was played and `cost` was seen."""
        contract, bounds = self.contract, self.bounds
        p = bounds.perturbation
        accepted = self.accepts(cost, xp)
        cost = xp.where(accepted, cost, contract.cost_floor)

        moved = bounds.carried * p.felt(state.memory) + bounds.immediate * deviation
        floor = xp.maximum(contract.cost_floor, cost - moved)
        surplus = state.surplus + (1.0 + contract.lam) * floor - cost
        memory = p.remember(state.memory, deviation, xp)
        spent = self.total(state, xp) * deviation
        closed = state.rounds + 1.0

        allowance = state.allowance
        if self.rule != "tight":
            # The authors' code also counts the b of every past round; Corollary 4.2 as printed does not.
            past = closed * contract.b if self.rule == "released" else 0.0
            later = bounds.carried * p.felt_over(memory, contract.horizon - closed, xp)
            allowance = contract.earned + xp.maximum(allowance - spent, surplus - later + past)
        magnitude = state.magnitude + (2.0 + contract.lam) * cost + contract.earned + spent
        breached = xp.logical_or(state.breached, xp.logical_not(accepted))
        return LipschitzState(closed, allowance, surplus, memory, magnitude, breached)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate exactly, fit for JSON."""
        contract, bounds = self.contract, self.bounds
        return {
            "kind": "lipschitz",
            "rule": self.rule,
            "contract": {
                "lam": contract.lam,
                "b": contract.b,
                "horizon": contract.horizon,
                "cost_floor": contract.cost_floor,
            },
            "bounds": {
                "immediate": bounds.immediate,
                "carried": bounds.carried,
                "perturbation": bounds.perturbation.to_dict(),
            },
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> LipschitzCertificate:
        """The certificate that `to_dict` described."""
        bounds = dict(description["bounds"])
        bounds["perturbation"] = perturbation_from_dict(bounds["perturbation"])
        return cls(Contract(**description["contract"]), Sensitivity(**bounds), description["rule"])

    def restore(self, state: dict[str, Any], taken: Any) -> tuple[LipschitzState, Any]:
        """The state and the open round's deviation that were saved as plain numbers and lists."""
        restored = LipschitzState(**state)
        return (restored if self.scalar else restored._replace(memory=np.array(restored.memory))), taken

    def _unit_round_off(self, number: Any) -> float:
        """How far off a sum of costs may be, relative to the magnitudes in it, by floating-point arithmetic.

        It covers the guard's own sums over the horizon, and a plant whose states are up to about 10^5 times larger than
        its costs, so that its costs are differences of large numbers: 1e-9 in float64, 2e-5 in float32.
        """
        epsilon = float(np.finfo(number.dtype).eps) if hasattr(number, "dtype") else sys.float_info.epsilon
        horizon = self.contract.horizon
        own = epsilon * (4.0 * (horizon + 16.0) + self.bounds.perturbation.round_off_growth(horizon))
        return max(own, math.sqrt(epsilon) / 16.0)
