"""Cooling of two rooms that share a wall: a system whose action is a vector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tether.certificates.model import Model
from tether.core import validate
from tether.core.monitor import EntryRange, Range, Ranges
from tether.core.ops import namespace
from tether.core.projection import Norm
from tether.core.sensitivity import Sensitivity, geometric
from tether.systems.base import Env, Shape, Step
from tether.systems.cooling.structure import CoolingStructure


class CoolingState(NamedTuple):
    """The state between two rounds."""

    temperature: Any
    """[2] temperature of each room, x_{h-1}, in degrees Celsius."""


@dataclass(frozen=True)
class Cooling(Env):
    """Two server rooms with a cooling unit each; heat also flows through the wall and to the outside.

    In hour h the racks of room i give off q_i (kWh), it is T (degrees) outside, electricity costs p_h per
    kWh, and the agent takes the heat a_i out of room i, 0 <= a_i <= a_max (kWh), of which only a share v_i
    has effect. With j the other room and the temperatures in degrees Celsius:

        temperature  x_i' = x_i + wall (x_j - x_i) + leak (T - x_i) + heating (q_i - v_i a_i)
        cost         1 + sum_i w_i [|x_i' - setpoint| - band]^+           (discomfort; floor 1)
        reward       -p_h sum_i (a_i + strain a_i^2)                      (electricity)
        prior        a_i = (q_i + leak (T - setpoint) / heating) / 0.9 + gain (x_i - setpoint)

    The prior is a thermostat, cut to [0, a_max]: it takes out what enters if v_i is 0.9 (the mean of its
    range [0.8, 1]), and more or less in proportion to what is amiss.

    Saving electricity is what makes it pay to deviate: rooms may drift within the band, be cooled when it is
    cheap, and lend each other cold through the wall when one unit would be strained. Series of an episode:
    `heat_load` q [N, H, 2], `outside` T, `price` p, `effectiveness` v [N, H, 2].

    Where the sensitivity comes from; all norms are the largest entry ("linf"), for temperatures as for
    actions: each unit acts on one room, so that only the rows of the closed loop have to be summed.

    - immediate: a deviation moves each temperature by at most heating times itself, and the cost has slope
      w_i in it: heating (w_1 + w_2).
    - rho: under the prior x_i' depends on x_i by the factor 1 - wall - leak - heating v_i gain where the
      thermostat is free, 1 - wall - leak where it is cut, and on x_j by the factor wall. The sum of the two
      sizes, which is the norm of the closed loop, is at most 1 - leak, or 2 wall + leak + heating gain - 1 if
      gain is so large that the thermostat overshoots. So rho is the larger one: a thermostat at its limit
      leaves the gap to the walls alone.
    - carried: a deviation leaves a gap of at most heating times itself, of which rho is left a round later,
      when the cost is taken: rho heating (w_1 + w_2).

    The cost has bounded slope, so no range of temperatures, loads or prices is needed. All three are reached
    when both units are at their limit and both rooms too hot.

    Example:
        >>> env = Cooling()
        >>> env.sensitivity
        Sensitivity(immediate=1.0, carried=0.8, perturbation=Geometric(rho=0.8, scale=1.0))
        >>> env.prior([1.8, 3.6, 24.0, 0.1, 24.0, 25.0]).round(6).tolist()  # room 2 is a degree too hot
        [2.0, 5.0]
    """

    series: ClassVar[tuple[str, ...]] = ("heat_load", "outside", "price", "effectiveness")
    observation_names: ClassVar[tuple[str, ...]] = (
        "heat_load_1", "heat_load_2", "outside", "price", "temperature_1", "temperature_2"
    )  # fmt: skip
    hidden: ClassVar[Mapping[str, Shape]] = {"effectiveness": "uniform"}
    action_shape: ClassVar[tuple[int, ...]] = (2,)
    norm: ClassVar[Norm] = "linf"

    action_max: float = 8.0
    """Most heat that a unit takes out in an hour, a_max, kWh."""
    setpoint: float = 24.0
    """Temperature that the rooms should have, and have before the first round, degrees Celsius."""
    band: float = 0.25
    """Departure from the setpoint that nobody minds, degrees."""
    discomfort: tuple[float, float] = (1.0, 1.0)
    """Cost of a degree beyond the band in each room, w."""
    wall: float = 0.2
    """Share of the difference between the rooms that passes in an hour."""
    leak: float = 0.2
    """Share of the difference to the outside that passes in an hour."""
    heating: float = 0.5
    """Degrees by which a kWh heats a room."""
    gain: float = 1.0
    """Proportional gain of the thermostat, kWh per degree."""
    effectiveness_min: float = 0.8
    """Smallest v; the largest is 1."""
    strain: float = 0.1
    """Additional electricity for a unit that works harder, per kWh."""

    def __post_init__(self) -> None:
        for name in ("action_max", "heating", "leak"):
            validate.number(name, getattr(self, name), above=0.0)
        for name in ("band", "wall", "gain", "effectiveness_min", "strain"):
            validate.number(name, getattr(self, name), minimum=0.0)
        validate.number("setpoint", self.setpoint)
        if len(self.discomfort) != 2:
            raise ValueError(f"discomfort must be two numbers, one for each room, got {self.discomfort!r}")
        for weight in self.discomfort:
            validate.number("discomfort", weight, above=0.0)
        if self.wall + self.leak > 1.0:
            raise ValueError(f"wall + leak must be at most 1, got {self.wall:g} + {self.leak:g}")
        if self.effectiveness_min > 1.0:
            raise ValueError(f"effectiveness_min must be at most 1, got {self.effectiveness_min!r}")

    @property
    def low(self) -> float:
        """A unit is off."""
        return 0.0

    @property
    def high(self) -> float:
        """A unit is at its limit."""
        return self.action_max

    @property
    def cost_floor(self) -> float:
        """The cost of an hour in which both rooms stay in the band."""
        return 1.0

    @property
    def sensitivity(self) -> Sensitivity:
        """See the derivation in the class's documentation."""
        rho = max(1.0 - self.leak, 2.0 * self.wall + self.leak + self.heating * self.gain - 1.0)
        immediate = self.heating * sum(self.discomfort)
        return Sensitivity(immediate=immediate, carried=rho * immediate, perturbation=geometric(rho))

    @property
    def structure(self) -> CoolingStructure:
        """What a `tether.certificates.Structured` certificate knows of this system; its documentation has the proof."""
        return CoolingStructure(
            action_max=self.action_max,
            setpoint=self.setpoint,
            band=self.band,
            discomfort=self.discomfort,
            wall=self.wall,
            leak=self.leak,
            heating=self.heating,
            gain=self.gain,
            effectiveness_min=self.effectiveness_min,
        )

    def monitor(self) -> Ranges:
        """Temperatures and cost of a round, and what is observed, within `limits`.

        x_i' falls with v_i, as a_i is not negative: its ends are at v_i = 1 and the smallest v_i. What a room adds to
        the cost grows with |x_i' - setpoint|, which over an interval is largest at an end and smallest at an end or 0;
        the v_i are independent, so that the ends of the sum are the sums of the ends. The temperatures that follow
        must give the cost that was seen.
        """
        return Ranges(
            self._claims,
            limits=((0, 0.0, math.inf, 1.0), (1, 0.0, math.inf, 1.0)),
            cost_after=self._cost_after,
        )

    def _claims(self, observation: Any, action: Any, cost: float) -> tuple[Range, tuple[EntryRange, ...]]:  # noqa: ARG002
        load_1, load_2, outside, _, first, second = observation[:6]
        rooms: list[EntryRange] = []
        least = most = 1.0
        scale = 1.0
        for room, other, load, taken, weight in (
            (first, second, load_1, action[0], self.discomfort[0]),
            (second, first, load_2, action[1], self.discomfort[1]),
        ):
            uncooled = room + self.wall * (other - room) + self.leak * (outside - room) + self.heating * load
            low = uncooled - self.heating * taken
            high = uncooled - self.heating * self.effectiveness_min * taken
            size = (
                abs(room) + self.wall * abs(other) + self.leak * abs(outside) + self.heating * (load + taken)
            )
            rooms.append((4 + len(rooms), low, high, size))
            scale += weight * (size + abs(self.setpoint))
            below, above = self.setpoint - low, high - self.setpoint
            least += weight * max(-below - self.band, -above - self.band, 0.0)
            most += weight * max(below - self.band, above - self.band, 0.0)
        return (least, most, scale), tuple(rooms)

    def _cost_after(self, observation: Any) -> Range:
        cost, scale = 1.0, 1.0
        for temperature, weight in zip(observation[4:6], self.discomfort, strict=True):
            cost += weight * max(abs(temperature - self.setpoint) - self.band, 0.0)
            scale += weight * (abs(temperature) + abs(self.setpoint))
        return cost, cost, scale

    def limits(self) -> Mapping[str, tuple[float, float]]:
        """For each series the range of values for which `sensitivity` is proved."""
        return {
            "heat_load": (0.0, math.inf),
            "outside": (-math.inf, math.inf),
            "price": (0.0, math.inf),
            "effectiveness": (self.effectiveness_min, 1.0),
        }

    def search_ranges(self) -> Mapping[str, tuple[Any, Any]]:
        """Temperatures within 20 degrees of the setpoint, and loads beyond what the units can take out.

        No cost depends on the price.
        """
        room = np.ones(2)
        return {
            "temperature": ((self.setpoint - 20.0) * room, (self.setpoint + 20.0) * room),
            "heat_load": (0.0 * room, 2.0 * self.action_max * room),
            "outside": (self.setpoint - 40.0, self.setpoint + 40.0),
            "price": (0.0, 0.0),
            "effectiveness": (self.effectiveness_min * room, room),
        }

    def model(self) -> Model:
        """With all temperatures that can be reached from there: the weather's and what the loads and units add to them.

        In them gaps are seen to shrink, by the share that leaks.
        """
        ranges, room = self.search_ranges(), np.ones(2)
        coldest = ranges["outside"][0] - self.heating * self.action_max / self.leak
        hottest = ranges["outside"][1] + self.heating * np.max(ranges["heat_load"][1]) / self.leak
        low, high = ranges["temperature"]
        return replace(
            Model.from_env(self),
            state=(np.minimum(low, coldest * room), np.maximum(high, hottest * room)),
        )

    def initial(self) -> CoolingState:
        """Both rooms at the setpoint."""
        return CoolingState(np.full(2, self.setpoint))

    def observe(self, state: CoolingState, drawn: Mapping[str, Any]) -> Any:
        """(q_1, q_2, T, p_h, x_1, x_2)."""
        xp = namespace(drawn["heat_load"])
        single = [xp.asarray(drawn[name])[..., None] for name in ("outside", "price")]
        return xp.concat([drawn["heat_load"], *single, xp.asarray(state.temperature)], axis=-1)

    def step(self, state: CoolingState, drawn: Mapping[str, Any], action: Any) -> Step:
        """Play one hour; `action` is [2]."""
        xp = namespace(drawn["heat_load"])
        before = xp.asarray(state.temperature)
        outside = xp.asarray(drawn["outside"])[..., None]
        temperatures = (
            before
            + self.wall * (xp.flip(before, axis=-1) - before)
            + self.leak * (outside - before)
            + self.heating * (drawn["heat_load"] - drawn["effectiveness"] * action)
        )
        beyond = xp.maximum(abs(temperatures - self.setpoint) - self.band, 0.0)
        cost = 1.0 + xp.sum(xp.asarray(self.discomfort) * beyond, axis=-1)
        reward = -drawn["price"] * xp.sum(action + self.strain * action**2, axis=-1)
        return Step(CoolingState(temperatures), reward, cost)

    def prior(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """The thermostat: observation [..., 6] to action [..., 2]."""
        xp = namespace(observation)
        seen = observation if hasattr(observation, "ndim") else xp.asarray(observation)
        effectiveness = 0.5 * (self.effectiveness_min + 1.0)
        entering = seen[..., :2] + self.leak / self.heating * (seen[..., 2:3] - self.setpoint)
        wish = entering / effectiveness + self.gain * (seen[..., 4:6] - self.setpoint)
        return xp.minimum(xp.maximum(wish, self.low), self.high)
