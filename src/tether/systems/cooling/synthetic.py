"""Generated episodes of two cooled rooms: plausible, and calibrated to nothing."""

from __future__ import annotations

import numpy as np

from tether.data.episodes import Episodes
from tether.data.synthesis import Daily, Harmonic, checked_generator, sliding_episodes

EFFECTIVENESS_MIN = 0.8
"""Smallest share of the cooling that has effect; the largest is 1."""


HEAT_LOADS = (
    Daily(mean=3.0, shape=Harmonic(1.0, 15.0), std=0.6, hours=4.0, lowest=0.2, softness=0.1),
    Daily(mean=2.5, shape=Harmonic(0.8, 2.0), std=0.6, hours=4.0, lowest=0.2, softness=0.1),
)
"""Heat of the racks in kWh an hour: room 1 serves users by day, room 2 runs batch jobs at night."""
OUTSIDE = Daily(mean=27.0, shape=Harmonic(5.0, 15.0), std=2.0, hours=24.0, lowest=10.0, softness=0.5)
"""Temperature outside in degrees Celsius: a summer."""
PRICE = Daily(mean=0.20, shape=Harmonic(0.08, 19.0), std=0.03, hours=6.0, lowest=0.02, softness=0.01)
"""Price of electricity per kWh: dear in the evening."""


def synthetic_cooling(seed: int, n: int, horizon: int = 24) -> Episodes:
    """Episodes for `tether.envs.Cooling`.

    The episodes are windows that slide by one hour over a single series of n + horizon - 1 hours, while the
    effectiveness is uniform on [0.8, 1], drawn for each window, hour and room. Another n gives another series.

    Args:
        seed: At least 0; the same seed, n and horizon give the same episodes.
        n: Number of windows, at least 1.
        horizon: Hours in a window, at least 1.

    Returns:
        Episodes with `heat_load` [N, H, 2], `outside`, `price` and `effectiveness` [N, H, 2]; window i starts
        at hour i mod 24 of the clock.

    Example:
        >>> episodes = synthetic_cooling(seed=0, n=48)
        >>> episodes["heat_load"].shape, episodes["outside"].shape
        ((48, 24, 2), (48, 24))
    """
    rng = checked_generator(seed, n, horizon)
    hours = n + horizon - 1
    series = {
        "heat_load": np.stack([room.draw(rng, hours) for room in HEAT_LOADS], axis=-1),
        "outside": OUTSIDE.draw(rng, hours),
        "price": PRICE.draw(rng, hours),
    }
    drawn = {"effectiveness": rng.uniform(EFFECTIVENESS_MIN, 1.0, (n, horizon, len(HEAT_LOADS)))}
    return sliding_episodes(series, drawn, horizon)
