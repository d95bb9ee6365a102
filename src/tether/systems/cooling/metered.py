"""Cooling with a second cost: what the grid connection is charged for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.core import validate
from tether.core.contract import Contract
from tether.core.ops import namespace
from tether.core.sensitivity import Sensitivity, geometric
from tether.systems.base import Step
from tether.systems.cooling.env import Cooling, CoolingState


@dataclass(frozen=True)
class MeteredCooling(Cooling):
    """Two rooms whose discomfort *and* demand of power are under contract: it has two costs, `discomfort` and `demand`.

    The second cost of an hour is the electricity drawn beyond what is included in the connection,

        demand       1 + [sum_i (a_i + strain a_i^2) - included]^+           (floor 1)

    Cooling in advance when it is cheap saves money and spares discomfort, and it is what makes the demand dear;
    drifting later saves both and costs discomfort. So both promises bind, in different hours.

    Where the bounds of the demand (`demand_sensitivity`) come from, in the largest entry ("linf"):

    - immediate: the electricity has slope 1 + 2 strain a_i <= 1 + 2 strain a_max in each a_i: twice that.
    - carried: a deviation leaves a gap of at most heating times itself in each temperature, to which the thermostat
      answers with at most gain times it in each action: immediate * gain * heating.
    - rho: that of the temperatures, as for the discomfort.

    Example:
        >>> env = MeteredCooling()
        >>> env.cost_names, env.demand_sensitivity.immediate
        (('discomfort', 'demand'), 5.2)
    """

    cost_names: ClassVar[tuple[str, ...]] = ("discomfort", "demand")

    included: float = 12.0
    """Electricity of an hour that nothing is charged for, kWh."""

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.number("included", self.included, minimum=0.0)

    @property
    def demand_sensitivity(self) -> Sensitivity:
        """See the derivation in the class's documentation."""
        rho = self.sensitivity.perturbation.rho  # type: ignore[union-attr]
        immediate = 2.0 * (1.0 + 2.0 * self.strain * self.action_max)
        return Sensitivity(immediate, immediate * self.gain * self.heating, geometric(rho))

    def demand_contract(self, lam: float, b: float, horizon: int = 24) -> Contract:
        """The contract on the demand."""
        return Contract(lam=lam, b=b, horizon=horizon, cost_floor=1.0)

    def step(self, state: CoolingState, drawn: Mapping[str, Any], action: Any) -> Step:
        """Play one hour; the cost is [2]."""
        xp = namespace(drawn["heat_load"])
        after = super().step(state, drawn, action)
        power = xp.sum(action + self.strain * action**2, axis=-1)
        demand = 1.0 + xp.maximum(power - self.included, 0.0)
        return after._replace(cost=xp.stack([after.cost, demand], axis=-1))
