"""What `tether bench monitor` needs to know of the cooling system: where its rounds are at their worst and best."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tether.core.monitor import LipschitzMonitor
from tether.core.ops import namespace
from tether.systems.cooling.env import Cooling, CoolingState


def extremes(
    env: Cooling, state: CoolingState, drawn: Mapping[str, Any], action: Any
) -> Iterator[dict[str, Any]]:
    """The ends of each unit's effectiveness, and where its room comes nearest to the setpoint: discomfort is least."""
    xp = namespace(action)
    ends = [xp.full_like(action, end) for end in env.limits()["effectiveness"]]
    hottest, coldest = (
        env.step(state, {**drawn, "effectiveness": end}, action).state.temperature for end in ends
    )
    way = (hottest - env.setpoint) / xp.maximum(hottest - coldest, 1e-12)
    best = ends[0] + xp.clip(way, 0.0, 1.0) * (ends[1] - ends[0])
    for first, second in itertools.product((*ends, best), repeat=2):
        yield {"effectiveness": xp.stack([first[..., 0], second[..., 1]], axis=-1)}


def constants_monitor(env: Cooling) -> LipschitzMonitor:
    """Constants in the largest entry ("linf").

    Inputs are loads, outside and temperatures. A temperature has slope heating in load and action, leak in the outside
    and at most 1 - leak over both temperatures, if wall + leak <= 1; the effectiveness moves it within heating (1 -
    least) a_max. The cost has slope w_i in each temperature.
    """
    slope = 2.0 * env.heating + 1.0
    width = env.heating * (1.0 - env.effectiveness_min) * env.action_max
    total = sum(env.discomfort)
    return LipschitzMonitor(total * slope, slope, total * width, width, _inputs, _state, norm="linf")


def _inputs(observation: Any) -> list[float]:
    return [*observation[:3], *observation[4:6]]


def _state(observation: Any) -> list[float]:
    return list(observation[4:6])
