"""An EV charging station: how much energy to draw in each hour for the cars that wait."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

from tether.core import validate
from tether.core.monitor import EntryRange, Range, Ranges
from tether.core.ops import FLOATS, namespace
from tether.core.sensitivity import Sensitivity, geometric
from tether.systems.base import Env, Evidence, Shape, Step
from tether_ev.structure import EVStructure, ceiling

BOOKED, PRICE, SOLAR, HOUR, QUEUE = range(5)
"""Places of the entries of an observation."""


class EVState(NamedTuple):
    """The state between two rounds."""

    queue: Any
    """Energy that plugged-in cars still want, x_{h-1}."""
    hour: Any
    """Hour of the clock of the round that comes, 0 to 23."""


@dataclass(frozen=True)
class EV(Env):
    """A charging station behind one transformer. Energies are in 100 kWh, prices in 0.10 EUR/kWh, money in 10 EUR.

    In hour h booked cars bring the demand m_h, which is known before, walk-ins bring w_h, which is not; a share d_h of
    what waits unplugs and leaves. The agent sets the energy a_h that the chargers may draw, 0 <= a_h <= A (the
    transformer); a share v_h of it reaches the batteries. Cars take no more than they want.

        wanted   n_h = (1 - d_h) x_{h-1} + m_h + w_h,       m_h = min(booked_h, ceiling of the hour)
        drawn    u_h = min(a_h, n_h / v_h),                  bought from the grid: g_h = [u_h - solar_h]^+
        queue    x_h = min(x_max, [n_h - v_h a_h]^+),        x_0 = 0; who finds no free place drives on
        cost     1 + x_h^2                                   (delay; floor 1)
        reward   tariff v_h u_h - price_h g_h - peak_weight g_h^2
        prior    as fast as possible: a = min(A, (x_{h-1} + m_h + w_max) / v_min)

    The prior commands what serves everybody even if the most walk-ins come and the chargers are at their worst, and the
    transformer's limit if that is less. Evenings (17 to 21 o'clock) have a higher ceiling of bookings than other hours,
    so high that the transformer can be too small for it. Series of an episode: `booked` in [0, booked_evening], `price`
    and `solar` (seen), `walk_in` in [0, w_max], `efficiency` v in [v_min, 1], `plug_out` d in [d_min, d_max] (hidden).
    An episode begins at `start_hour`.

    Where the sensitivity comes from (16, 15.2 and 0.95 by default):

    - The prior's closed loop is x' = min(x_max, [(1 - d) x + m + w - v A]^+), *as if it always drew A*: where its
      action is below A it serves everybody, and so would A. That never falls with x and has slope at most 1 - d_min:
      rho = 1 - d_min. While the transformer is at its limit a gap shrinks by nothing else than the cars that leave.
    - Z = min(x_max, [(1 - d_min) x_max + booked_evening + w_max - v_min A]^+) is the largest queue after a round
      under the prior.
    - immediate: a unit of action moves x' by at most v <= 1 (an action above the prior's moves nothing: either it is
      above A or nobody is left to be served). Between two queues the squares have the mean slope x' + x+', one of them
      at most x_max, the other, the prior's, at most Z: x_max + Z.
    - carried: a unit of action leaves a gap of at most 1, of which 1 - d_min is left a round later, where both queues
      are at most Z: 2 Z (1 - d_min).

    Example:
        >>> env = EV()
        >>> env.sensitivity
        Sensitivity(immediate=16.0, carried=15.2, perturbation=Geometric(rho=0.95, scale=1.0))
        >>> float(env.prior([4.0, 3.0, 0.0, 18.0, 2.0]))  # at 18 o'clock more is wanted than the transformer gives
        5.0
    """

    series: ClassVar[tuple[str, ...]] = ("booked", "price", "solar", "walk_in", "efficiency", "plug_out")
    observation_names: ClassVar[tuple[str, ...]] = ("booked", "price", "solar", "hour", "queue")
    hidden: ClassVar[Mapping[str, Shape]] = {
        "walk_in": "uniform",
        "efficiency": "uniform",
        "plug_out": "uniform",
    }
    shared: ClassVar[tuple[str, ...]] = ("hour",)

    power_max: float = 5.0
    """A, what the transformer gives in an hour; 500 kW."""
    queue_max: float = 8.0
    """x_max, energy that can wait at all places together."""
    booked_evening: float = 5.0
    """Most that can be booked for an hour of the evening ..."""
    booked_else: float = 2.5
    """... and for any other."""
    evening_begins: float = 17.0
    """First hour of the evening ..."""
    evening_ends: float = 21.0
    """... and the first after it."""
    walk_in_max: float = 0.5
    """w_max, most that walk-ins bring in an hour."""
    efficiency_min: float = 0.85
    """v_min, smallest share of the energy drawn that reaches a battery; the largest is 1."""
    plug_out_min: float = 0.05
    """d_min, smallest share of what waits that leaves in an hour; above 0 ..."""
    plug_out_max: float = 0.15
    """... and d_max, the largest."""
    start_hour: float = 6.0
    """Hour of the clock in which an episode begins."""
    tariff: float = 6.0
    """What drivers pay for energy, money/energy."""
    peak_weight: float = 0.15
    """Weight of the squared energy bought, the grid's charge for power, money/energy^2."""

    def __post_init__(self) -> None:
        for name in ("power_max", "queue_max", "efficiency_min", "plug_out_min", "tariff"):
            validate.number(name, getattr(self, name), above=0.0)
        for name in ("booked_evening", "booked_else", "walk_in_max", "peak_weight", "start_hour"):
            validate.number(name, getattr(self, name), minimum=0.0)
        at_most = {
            "booked_else": self.booked_evening,
            "evening_begins": self.evening_ends,
            "evening_ends": 24.0,
            "start_hour": 23.0,
            "efficiency_min": 1.0,
            "plug_out_min": self.plug_out_max,
            "plug_out_max": 1.0,
        }
        for name, highest in at_most.items():
            if not getattr(self, name) <= highest:
                raise ValueError(f"{name} must be at most {highest:g}, got {getattr(self, name)!r}")

    @property
    def low(self) -> float:
        """Nothing is drawn."""
        return 0.0

    @property
    def high(self) -> float:
        """The transformer's limit."""
        return self.power_max

    @property
    def cost_floor(self) -> float:
        """The cost of an hour after which nobody waits."""
        return 1.0

    @property
    def sensitivity(self) -> Sensitivity:
        """See the derivation in the class's documentation."""
        keep = 1.0 - self.plug_out_min
        arrivals = self.booked_evening + self.walk_in_max
        left = keep * self.queue_max + arrivals - self.efficiency_min * self.power_max
        under_prior = min(self.queue_max, max(left, 0.0))
        return Sensitivity(
            immediate=self.queue_max + under_prior,
            carried=2.0 * under_prior * keep,
            perturbation=geometric(keep),
        )

    @property
    def structure(self) -> EVStructure:
        """What a `tether.certificates.Structured` certificate knows of this system; its documentation has the proof."""
        return EVStructure(**{each.name: getattr(self, each.name) for each in fields(EVStructure)})

    def monitor(self) -> Ranges:
        """Queue and cost of a round, and what is observed, within `limits`.

        n - v a falls with v and d and grows with w: its ends are at (1, d_max, 0) and (v_min, d_min, w_max). The cost
        tells the queue, which the next observation must have.
        """
        return Ranges(
            self._claims,
            initial=((QUEUE, 0.0, 0.0, 1.0), (HOUR, self.start_hour, self.start_hour, 1.0)),
            limits=((BOOKED, 0.0, self.booked_evening, 1.0), (HOUR, 0.0, 24.0, 1.0)),
        )

    def _claims(self, observation: Any, action: float, cost: float) -> tuple[Range, tuple[EntryRange, ...]]:
        queue, hour = observation[QUEUE], observation[HOUR]
        arrivals = min(observation[BOOKED], float(ceiling(self, hour, FLOATS)))
        least = (1.0 - self.plug_out_max) * queue + arrivals - action
        most = (1.0 - self.plug_out_min) * queue + arrivals + self.walk_in_max - self.efficiency_min * action
        low, high = (min(max(each, 0.0), self.queue_max) for each in (least, most))
        scale = 1.0 + queue + arrivals + action
        left = math.sqrt(max(cost - 1.0, 0.0))
        off = 1e-8 * scale  # the root of a difference has half of the digits
        clock = (hour + 1.0) % 24.0
        possible = 1.0 + low * low, 1.0 + high * high, (1.0 + 2.0 * high) * scale
        return possible, ((QUEUE, left - off, left + off, scale), (HOUR, clock, clock, 24.0))

    def limits(self) -> Mapping[str, tuple[float, float]]:
        """For each series the range of values for which `sensitivity` is proved."""
        return {
            "booked": (0.0, self.booked_evening),
            "price": (0.0, math.inf),
            "solar": (0.0, math.inf),
            "walk_in": (0.0, self.walk_in_max),
            "efficiency": (self.efficiency_min, 1.0),
            "plug_out": (self.plug_out_min, self.plug_out_max),
        }

    def search_ranges(self) -> Mapping[str, tuple[Any, Any]]:
        """Every queue at every hour; no cost depends on price and sun."""
        return {
            "queue": (0.0, self.queue_max),
            "hour": (0.0, 23.0),
            "price": (0.0, 0.0),
            "solar": (0.0, 0.0),
        }

    def initial(self) -> EVState:
        """Nobody waits."""
        return EVState(0.0, self.start_hour)

    def observe(self, state: EVState, drawn: Mapping[str, Any]) -> Any:
        """(booked_h, price_h, solar_h, hour, x_{h-1})."""
        xp = namespace(drawn["booked"])
        entries = (drawn["booked"], drawn["price"], drawn["solar"], state.hour, state.queue)
        return xp.stack([xp.asarray(entry) for entry in entries])

    def step(self, state: EVState, drawn: Mapping[str, Any], action: Any) -> Step:
        """Play one hour."""
        xp = namespace(drawn["booked"])
        arrivals = xp.minimum(drawn["booked"], ceiling(self, state.hour, xp)) + drawn["walk_in"]
        wanted = (1.0 - drawn["plug_out"]) * state.queue + arrivals
        energy = xp.minimum(action, wanted / drawn["efficiency"])
        queue = xp.minimum(xp.maximum(wanted - drawn["efficiency"] * action, 0.0), self.queue_max)
        reward = self.tariff * drawn["efficiency"] * energy - self._expenses(drawn, energy)
        following = xp.asarray(state.hour) + 1.0
        hour = xp.where(following >= 24.0, following - 24.0, following)
        return Step(EVState(queue, hour), reward, 1.0 + queue**2)

    def _expenses(self, drawn: Mapping[str, Any], energy: Any) -> Any:
        """What the grid takes for the energy drawn, money."""
        xp = namespace(drawn["booked"])
        bought = xp.maximum(energy - drawn["solar"], 0.0)
        return drawn["price"] * bought + self.peak_weight * bought**2

    def evidence(self, state: EVState, drawn: Mapping[str, Any], action: Any, step: Step) -> Evidence:
        """Where a queue is left all of the action was drawn: the reward tells v a, the queue w - d x."""
        xp = namespace(drawn["booked"])
        left = step.state.queue
        told = (left > 0.0) & (left < self.queue_max)
        served = (step.reward + self._expenses(drawn, action)) / self.tariff
        booked = xp.minimum(drawn["booked"], ceiling(self, state.hour, xp))
        none = xp.zeros_like(served)
        rows = [
            xp.stack([none, xp.where(told, action, 0.0), none], axis=-1),
            xp.stack([xp.where(told, 1.0, 0.0), none, xp.where(told, -state.queue, 0.0)], axis=-1),
        ]
        targets = [served, left + served - booked - state.queue]
        return Evidence(
            xp.stack(rows, axis=-2), xp.stack([xp.where(told, each, 0.0) for each in targets], axis=-1)
        )

    def prior(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """Charge as fast as possible."""
        xp = namespace(observation)
        seen = observation if hasattr(observation, "ndim") else xp.asarray(observation)
        booked = xp.minimum(seen[..., BOOKED], ceiling(self, seen[..., HOUR], xp))
        wanted = seen[..., QUEUE] + booked + self.walk_in_max
        return xp.minimum(wanted / self.efficiency_min, self.power_max)
