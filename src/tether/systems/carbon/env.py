"""Carbon-aware workload scheduling: how much energy to spend on deferrable work in each hour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from tether.core import validate
from tether.core.monitor import EntryRange, Range, Ranges
from tether.core.ops import namespace
from tether.core.sensitivity import Sensitivity, geometric
from tether.systems.base import Env, Evidence, Shape, Step
from tether.systems.carbon.structure import CarbonStructure


class CarbonState(NamedTuple):
    """The state between two rounds."""

    backlog: Any
    """Work left over, x_{h-1}."""
    last_action: Any
    """Energy spent in the round before, a_{h-1}; 0 before the first."""
    rounds: Any
    """Number of rounds played."""


@dataclass(frozen=True)
class Carbon(Env):
    """The paper's first system (its appendix A), with the parameters of the authors' published numbers.

    In round h demand mu_h arrives, renewable energy C_h is there for free, and the agent spends the energy a_h >= 0:

        backlog   x_h = min(15, [(1 - n2_h) x_{h-1} + mu_h - (0.8 + n1_h) a_h]^+),    x_0 = 0
        cost      x_h^2 + x_h + 1                        (quality of service; floor 1)
        reward    -([a_h - C_h]^+)^2 - 0.1 (a_h - a_{h-1})^2 [h >= 2] + 16 sqrt((0.8 + n1_h) a_h)
        prior     OPT-QoS: a = (x_{h-1} + mu_h) / 0.8, what clears the backlog if nothing is random

    Series of an episode: `demand` mu, `renewables` C, `efficiency_noise` n1 in [-0.2, 0.2], `drop_rate` n2 in
    [0, 0.1].

    Three numbers are those of the authors' code, and so of every published number, and not of the paper. It has no
    largest backlog (without one the cost has no Lipschitz constant); it prints a revenue weight of gamma_1 = 4 times a
    C_r that it does not print, so that 16 means C_r = 4; and it prints a switching weight of 1. `tether reproduce
    published` shows what each does.

    Where the sensitivity comes from (31, 2.875 and 0.25 by default, as in the authors' code):

    - immediate: a unit of action moves x_h by at most 0.8 + 0.2, and below x = 15 the cost has slope at most 2*15 + 1.
    - rho: under the prior x_h = [-(n2 + n1/0.8) x_{h-1} - mu n1/0.8]^+. For n1 >= 0 that is 0 whatever x_{h-1} was;
      for n1 < 0 the factor of x_{h-1} lies between -0.1 and 0.2/0.8. So a gap shrinks to a quarter (or a tenth).
    - carried: a unit of action leaves a gap of at most 1, of which rho is left a round later, where under the prior
      x is at most rho (15 + 6) because demand is at most 6: rho * (2 * rho * 21 + 1). Later rounds only have
      smaller x, so rho per round bounds the rest. The paper's formula, L_c (1 + L_pi) L_f = 31 * 2.25 * 1 = 69.75,
      knows nothing of this and is 24 times as large.

    With `context=("clock_sin", "demand_forecast")`, for instance, those series of the episodes are appended to the
    observation (see `tether.data.build_carbon_episodes`).

    Example:
        >>> env = Carbon()
        >>> env.sensitivity
        Sensitivity(immediate=31.0, carried=2.875, perturbation=Geometric(rho=0.25, scale=1.0))
        >>> env.prior([4.0, 2.0, 0.0, 0.4])  # demand 4, backlog 0.4
        5.5
    """

    series: ClassVar[tuple[str, ...]] = ("demand", "renewables", "efficiency_noise", "drop_rate")
    observation_names: ClassVar[tuple[str, ...]] = ("demand", "renewables", "last_action", "backlog")
    hidden: ClassVar[Mapping[str, Shape]] = {"efficiency_noise": "normal", "drop_rate": "uniform"}

    backlog_max: float = 15.0
    """Largest backlog; what is above is dropped."""
    demand_max: float = 6.0
    """Largest demand for which the sensitivity is claimed."""
    efficiency: float = 0.8
    """Mean work done per unit of energy."""
    efficiency_noise_max: float = 0.2
    """Largest |n1|."""
    drop_rate_max: float = 0.1
    """Largest n2."""
    revenue_weight: float = 16.0
    """Weight of the square root of the work done."""
    switching_weight: float = 0.1
    """Weight of the squared change of action."""

    def __post_init__(self) -> None:
        for name in ("backlog_max", "demand_max", "efficiency"):
            validate.number(name, getattr(self, name), above=0.0)
        for name in ("efficiency_noise_max", "drop_rate_max", "revenue_weight", "switching_weight"):
            validate.number(name, getattr(self, name), minimum=0.0)
        if self.efficiency_noise_max > self.efficiency or self.drop_rate_max > 1.0:
            raise ValueError(
                f"work done and backlog kept must not be negative: efficiency_noise_max={self.efficiency_noise_max} "
                f"must be at most efficiency={self.efficiency}, drop_rate_max={self.drop_rate_max} at most 1"
            )

    @property
    def low(self) -> float:
        """Energy spent is not negative."""
        return 0.0

    @property
    def high(self) -> float:
        """Energy spent has no upper bound."""
        return math.inf

    @property
    def cost_floor(self) -> float:
        """The cost of an empty backlog."""
        return 1.0

    @property
    def sensitivity(self) -> Sensitivity:
        """See the derivation in the class's documentation."""
        rho = max(self.efficiency_noise_max / self.efficiency, self.drop_rate_max)
        work = self.efficiency + self.efficiency_noise_max
        backlog_under_prior = min(self.backlog_max, rho * (self.backlog_max + self.demand_max))
        return Sensitivity(
            immediate=work * (2.0 * self.backlog_max + 1.0),
            carried=work * rho * (2.0 * backlog_under_prior + 1.0),
            perturbation=geometric(rho),
        )

    @property
    def structure(self) -> CarbonStructure:
        """What a `tether.certificates.Structured` certificate knows of this system; its documentation has the proof."""
        return CarbonStructure(
            efficiency=self.efficiency,
            efficiency_noise_max=self.efficiency_noise_max,
            drop_rate_max=self.drop_rate_max,
            demand_max=self.demand_max,
            backlog_max=self.backlog_max,
        )

    @property
    def identifying(self) -> CarbonStructure:
        """The structure that relies on rewards as well: they tell n1, and with it the next backlog n2."""
        return replace(
            self.structure, revenue_weight=self.revenue_weight, switching_weight=self.switching_weight
        )

    def monitor(self) -> Ranges:
        """Backlog and cost of a round, and what is observed, within `limits`.

        (1 - n2) x + mu - (0.8 + n1) a falls with n1 and n2, as x and a are not negative: its ends are at (nu, d) and
        (-nu, 0), and everything between is possible. Clipping, and x'^2 + x' + 1 on x' >= 0, keep the order.
        The cost tells x' itself, which the next observation must have.
        """
        return Ranges(
            self._claims,
            initial=((3, 0.0, self.backlog_max, self.backlog_max),),
            limits=((0, 0.0, self.demand_max, self.demand_max),),
        )

    def _claims(self, observation: Any, action: float, cost: float) -> tuple[Range, tuple[EntryRange, ...]]:
        # Conditions instead of min and max, which take three times as long.
        backlog, cap = observation[3], self.backlog_max
        work = backlog + observation[0]
        even, noise = work - self.efficiency * action, self.efficiency_noise_max * action
        low, high = even - self.drop_rate_max * backlog - noise, even + noise
        low = 0.0 if low < 0.0 else (low if low < cap else cap)
        high = 0.0 if high < 0.0 else (high if high < cap else cap)
        scale = 1.0 + work + action
        left = 0.5 * (math.sqrt(4.0 * cost - 3.0) - 1.0) if cost > 1.0 else 0.0
        off = 1e-12 * scale  # so that a backlog in float64 is inside at the first glance
        possible = low * low + low + 1.0, high * high + high + 1.0, (2.0 * high + 1.0) * scale
        return possible, ((3, left - off, left + off, scale),)

    def limits(self) -> Mapping[str, tuple[float, float]]:
        """For each series the range of values for which `sensitivity` is proved."""
        return {
            "demand": (0.0, self.demand_max),
            "renewables": (0.0, math.inf),
            "efficiency_noise": (-self.efficiency_noise_max, self.efficiency_noise_max),
            "drop_rate": (0.0, self.drop_rate_max),
        }

    def search_ranges(self) -> Mapping[str, tuple[Any, Any]]:
        """Every backlog, and energies up to the prior's largest; no cost depends on the renewables."""
        largest = (self.backlog_max + self.demand_max) / self.efficiency
        return {"backlog": (0.0, self.backlog_max), "action": (0.0, largest), "renewables": (0.0, 0.0)}

    def initial(self) -> CarbonState:
        """No backlog."""
        return CarbonState(0.0, 0.0, 0.0)

    def observe(self, state: CarbonState, drawn: Mapping[str, Any]) -> Any:
        """(mu_h, C_h, a_{h-1}, x_{h-1})."""
        xp = namespace(drawn["demand"])
        entries = (drawn["demand"], drawn["renewables"], state.last_action, state.backlog)
        return xp.stack([xp.asarray(entry) for entry in entries])

    def shown(self, observation: Any) -> tuple[CarbonState, dict[str, Any]]:
        """See `Env.shown`; where energy was spent before, this is not the first round, and switching counts."""
        state, drawn = super().shown(observation)
        xp = namespace(observation)
        return state._replace(rounds=xp.where(state.last_action > 0.0, 1.0, 0.0)), drawn

    def step(self, state: CarbonState, drawn: Mapping[str, Any], action: Any) -> Step:
        """Play one hour."""
        xp = namespace(drawn["demand"])
        work = (self.efficiency + drawn["efficiency_noise"]) * action
        left = (1.0 - drawn["drop_rate"]) * state.backlog + drawn["demand"] - work
        backlog = xp.minimum(xp.maximum(left, 0.0), self.backlog_max)
        cost = backlog**2 + backlog + 1.0

        reward = self.revenue_weight * xp.sqrt(work) - self._expenses(state, drawn, action)
        return Step(CarbonState(backlog, action, state.rounds + 1.0), reward, cost)

    def _expenses(self, state: CarbonState, drawn: Mapping[str, Any], action: Any) -> Any:
        """What carbon and switching take from the reward."""
        xp = namespace(drawn["demand"])
        carbon = xp.maximum(action - drawn["renewables"], 0.0) ** 2
        switching = self.switching_weight * (action - state.last_action) ** 2
        return carbon + xp.where(state.rounds > 0.0, switching, 0.0)

    def evidence(self, state: CarbonState, drawn: Mapping[str, Any], action: Any, step: Step) -> Evidence:
        """The reward tells the work done, hence n1; what is left of a backlog, if anything is, then tells n2.

        Whether something is left depends a little on n2 itself, so its estimate is slightly low.
        """
        xp = namespace(drawn["demand"])
        work = ((step.reward + self._expenses(state, drawn, action)) / self.revenue_weight) ** 2
        left = step.state.backlog
        told = xp.where((left > 0.0) & (left < self.backlog_max), state.backlog, 0.0)
        dropped = state.backlog + drawn["demand"] - work - left
        none = xp.zeros_like(work)
        rows = [xp.stack([action, none], axis=-1), xp.stack([none, told], axis=-1)]
        targets = [work - self.efficiency * action, xp.where(told > 0.0, dropped, 0.0)]
        return Evidence(xp.stack(rows, axis=-2), xp.stack(targets, axis=-1))

    def prior(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """OPT-QoS: the energy that clears backlog and demand at the mean efficiency."""
        if getattr(observation, "ndim", 1) == 1:  # one observation, in half the time
            return (observation[0] + observation[3]) / self.efficiency
        return (observation[..., 0] + observation[..., 3]) / self.efficiency
