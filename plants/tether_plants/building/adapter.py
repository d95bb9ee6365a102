"""SustainGym's BuildingEnv as it is, its reward in two parts; and the prior."""

from __future__ import annotations

import contextlib
import io
from functools import cache
from typing import Any

import gymnasium
import numpy as np

TARGET, GAIN, HORIZON, DAYS = 22.0, 0.15, 288, 365
"""Degrees; of the prior, per degree; rounds of five minutes; days of the year that there is data for."""
UNIT = 8.0 / 12.0
"""kWh: a unit of 8 kW that runs for a round at full power."""


@cache
def parameters() -> dict[str, Any]:
    """Those of the environment's authors for this building and place; they print what they read."""
    from sustaingym.envs.building import ParameterGenerator

    with contextlib.redirect_stdout(io.StringIO()):
        return dict(ParameterGenerator("OfficeSmall", "Hot_Dry", "Tucson"))


class Building(gymnasium.Wrapper[Any, Any, Any, Any]):
    """BuildingEnv as it is; its reward in two parts, and what the weather of the round was."""

    def __init__(self) -> None:
        from sustaingym.envs.building import BuildingEnv

        super().__init__(BuildingEnv(parameters()))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the day options["episode"] of the year, or a random moment of it."""
        day = (options or {}).get("episode", seed)
        observation, info = self.env.reset(seed=day)
        self._discomfort, self._seen = 0.0, observation[6:9].astype(float)
        return observation, info

    def step(self, action: Any) -> Any:
        """The reward is the energy, kWh, and the cost the discomfort, both as the environment counts them."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        total = -float(info["reward_breakdown"]["comfort_level"])
        cost, self._discomfort = total - self._discomfort, total
        # The observation shows the weather of the round that was played: the change to what was seen before it.
        seen = observation[6:9].astype(float)
        revealed, self._seen = {"change": seen - self._seen}, seen
        energy = UNIT / self.env.unwrapped.q_rate * (float(reward) + cost)
        return observation, energy, terminated, truncated, {**info, "cost": cost, "revealed": revealed}


def prior(observation: Any) -> Any:
    """A proportional rule with saturation, zone by zone."""
    return np.clip(GAIN * (TARGET - np.asarray(observation, dtype=float)[..., :6]), -1.0, 1.0)
