"""Where nature can do worse to the inference system than extremes, for `tether attack`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tether.systems.inference.env import Inference
from tether.systems.system import NO_NUMBER


def set_traps(env: Inference, series: dict[str, Any], rng: np.random.Generator) -> None:
    """In a third of the episodes: spend unseen what the battery would have kept, where it is missed most.

    In one round the prior would keep just so much; in the next its own shortfall is the largest possible.
    """
    count, horizon = series["demand"].shape
    trapped = np.flatnonzero(rng.uniform(size=count) < 1.0 / 3.0)[:, None]
    kept = np.exp(rng.uniform(np.log(1e-3), np.log(0.3), size=trapped.shape))
    slack = min(math.sqrt(env.carbon_slack), env.demand_max)
    due = (env.demand_max - slack) / env.structure.charge_rate
    first, second = np.arange(0, horizon, 2)[None, :], np.arange(1, horizon, 2)[None, :]
    half = 0.5 * env.demand_max
    series["demand"][trapped, first], series["demand"][trapped, second] = half, env.demand_max
    series["renewables"][trapped, first] = (half + kept) / env.charge_rate_min
    series["renewables"][trapped, second] = due
    series["charge_rate"][trapped, np.arange(horizon)[None, :]] = env.charge_rate_min
    series["discharge_rate"][trapped, np.arange(horizon)[None, :]] = 1.0
    series["script"][trapped, first], series["script"][trapped, second] = 1.0, NO_NUMBER
