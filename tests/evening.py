"""A charging station whose cars come in the evening: a gap costs nothing for hours, and then it does.

Energy x waits to be charged. In hour t (the state's `hour`) demand u(t) w comes, w in [0, 1] seen before acting, with u
= 0.5 until 17 o'clock and 3 from then on; a is charged, and more than 2 waiting at the end of the hour is a cost. The
prior charges what comes and an eighth of what waits, with a power of 1 at most.

    x' = [x + u(t) w - a]^+            cost   1 + [x' - 2]^+            prior   pi(x) = min(u w + x/8, 1)

In the evening both plants run at full power, so a gap e >= x - x+ stays as it is and costs e in every hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tether
from tether.certificates import Bounds, Structure
from tether.envs import Env, Step
from tether.systems.base import namespace

EVENING = 17.0


class StationState(NamedTuple):
    waiting: float
    hour: float


@dataclass(frozen=True)
class Station(Env):
    series = ("cars",)
    observation_names = ("demand", "hour", "waiting")
    shared = ("hour",)
    low, high, cost_floor = 0.0, 4.0, 1.0
    sensitivity = tether.Sensitivity(immediate=1.0, carried=1.0, perturbation=tether.geometric(1.0))

    def limits(self):
        return {"cars": (0.0, 1.0)}

    def search_ranges(self):
        return {"waiting": (0.0, 6.0), "hour": (0.0, 19.0)}

    def initial(self):
        return StationState(0.0, 0.0)

    def demand(self, state, drawn):
        xp = namespace(drawn["cars"])
        return xp.where(xp.asarray(state.hour) >= EVENING, 3.0, 0.5) * drawn["cars"]

    def observe(self, state, drawn):
        xp = namespace(drawn["cars"])
        entries = (self.demand(state, drawn), state.hour, state.waiting)
        return xp.stack([xp.asarray(entry) for entry in entries])

    def step(self, state, drawn, action):
        xp = namespace(drawn["cars"])
        waiting = xp.maximum(state.waiting + self.demand(state, drawn) - action, 0.0)
        cost = 1.0 + xp.maximum(waiting - 2.0, 0.0)
        return Step(StationState(waiting, state.hour + 1.0), 0.0 * cost, cost)

    def prior(self, observation, key=None):
        xp = namespace(observation)
        return xp.minimum(observation[..., 0] + 0.125 * observation[..., 2], 1.0)


@dataclass(frozen=True)
class StationStructure(Structure):
    """One gap, e >= x - x+; what it costs later is e in each of the hours that are left of 24."""

    kind = "station"
    low, high, scale = 0.0, 4.0, 10.0

    def start(self, zero):
        return (zero,)

    def read(self, observation):
        return observation[2], observation[0], observation[1]  # waiting, demand, hour

    def gaps_between(self, seen, prior_seen, ops):
        return (ops.maximum(seen[0] - prior_seen[0], 0.0),)

    def refine(self, gaps, seen, epsilon, ops):
        return (ops.minimum(gaps[0], seen[0]),)

    def bounds(self, now, action, plan, ops):
        (gap,), (waiting, demand, hour) = now.gaps, now.seen
        after = ops.maximum(gap + now.prior - action, 0.0)
        most = ops.maximum(ops.maximum(waiting + demand - action, 0.0) - 2.0, 0.0)
        first = ops.minimum(after, most) - now.lam
        return Bounds((first, *self.later(first, after, hour, now.lam)), 1.0 + most, (after,))

    def later(self, first, after, hour, lam):
        return (first + (23.0 - hour) * after - lam,)

    def close(self, step, cost, epsilon, ops):
        return ops.maximum(cost - step[0], 1.0), step


@dataclass(frozen=True)
class Forgetful(StationStructure):
    """Takes what a gap costs now for all that it will ever cost."""

    def later(self, first, after, hour, lam):
        return (first - lam,)


@dataclass(frozen=True)
class Sleepy(StationStructure):
    """Believes that after 20 o'clock half of a gap is gone."""

    def refine(self, gaps, seen, epsilon, ops):
        gap = ops.minimum(gaps[0], seen[0])
        return (ops.where(seen[2] > 20.0, 0.5 * gap, gap),)
