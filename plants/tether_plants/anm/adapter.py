"""gym-anm's ANM6Easy as it is, with three actions and its penalty apart; and its own MPC as the prior."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import gymnasium
import numpy as np

from tether.systems.base import namespace
from tether_plants.anm import projection

ROUNDS, HOURS, BASE, EFFICIENCY = 96, 0.25, 100.0, 0.9
"""Of a day; hours of a round; MVA of a per-unit; of the battery, each way."""
LEVELS = (0.0, 3.0, 10.0, 30.0, 60.0)
"""MWh: the MPC is shown the largest of these that is in the battery, so that its answers fit into a table."""


class Grid(gymnasium.Wrapper[Any, Any, Any, Any]):
    """ANM6Easy as it is, with three actions in MW (solar, wind, battery) and no reactive power, as its MPC has none."""

    def __init__(self) -> None:
        from gym_anm.envs import ANM6Easy

        projection.use()
        super().__init__(ANM6Easy())
        self.action_space = gymnasium.spaces.Box(
            np.array([0.0, 0.0, -50.0]), np.array([30.0, 50.0, 50.0]), dtype=float
        )
        self.observation_space = gymnasium.spaces.Box(-100.0, 100.0, (7,), dtype=float)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the episode options["episode"]: a time of day and a charge of the battery."""
        self.env.reset(seed=(options or {}).get("episode", seed))
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        """The reward is minus the energy that is lost, the cost its penalty for voltages and lines."""
        solar, wind, battery = np.clip(action, self.action_space.low, self.action_space.high)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, _, terminated, _, info = self.env.step(np.array([solar, wind, 0.0, 0.0, battery, 0.0]))
        inner: Any = self.env.unwrapped
        info = {**info, "cost": float(inner.penalty)}
        return self._seen(), -BASE * float(inner.e_loss), bool(terminated), False, info

    def _seen(self) -> Any:
        """[7] the clock, in rounds from midnight, the charge, MWh, and what follows from the clock."""
        inner: Any = self.env.unwrapped
        now = np.array([inner.state[-1], BASE * inner.simulator.devices[6].soc])
        return np.concatenate([now, forecast(now[0])])


@cache
def series() -> tuple[Any, Any]:
    """([96, 2] what sun and wind could give, [96, 3] the loads) of the day, per-unit; it repeats itself."""
    inner: Any = Grid().env.unwrapped
    return np.minimum(inner.P_maxs.T, [30.0, 50.0]) / BASE, inner.P_loads.T / BASE


def forecast(clock: Any) -> Any:
    """[5] potential of sun and wind, and the loads, per-unit, in the coming round."""
    xp = namespace(clock)
    now = (xp.asarray(clock) + 1).astype(int) % ROUNDS
    return xp.concat([xp.asarray(each, dtype=xp.asarray(clock).dtype)[now] for each in series()])


@cache
def table() -> Any:
    """[96, levels, 3] what gym-anm's MPCAgentConstant plays at each time of the day, by the charge it is shown."""
    from gym_anm.agents import MPCAgentConstant

    (potential, loads), env = series(), Grid()
    env.reset(seed=0)
    inner: Any = env.env.unwrapped
    agent = MPCAgentConstant(inner.simulator, inner.action_space, inner.gamma)
    state, answers = inner.simulator.state, np.zeros((ROUNDS, len(LEVELS), 3))
    for clock in range(ROUNDS):
        for place, device in enumerate((1, 3, 5)):
            state["dev_p"]["pu"][device] = loads[clock, place]
        for place, device in enumerate((2, 4)):
            state["gen_p_max"]["pu"][device] = potential[clock, place]
        for i, level in enumerate(LEVELS):
            state["des_soc"]["pu"][6] = level / BASE
            answers[clock, i] = agent.act(inner)[[0, 1, 4]]
    return answers


def prior(observation: Any, key: Any = None) -> Any:  # noqa: ARG001
    """What the shipped MPC plays, shown the charge rounded down to one of `LEVELS`."""
    xp = namespace(observation)
    seen = xp.asarray(observation)
    level = xp.sum(seen[..., 1:2] >= xp.asarray(LEVELS[1:], dtype=seen.dtype), axis=-1)
    return xp.asarray(table(), dtype=seen.dtype)[seen[..., 0].astype(int), level]
