"""Generated days of the charging station: bookings, prices and sun by the clock, and what nobody sees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tether.core import validate
from tether.data.episodes import Episodes

START_HOUR = 6
"""Hour of the clock in which every day begins; that of `tether_ev.EV`."""

_CLOCK = np.arange(24)
_BOOKED = np.interp(
    _CLOCK,
    [0, 5, 7, 9, 12, 15, 17, 18, 19, 20, 21, 23],
    [0.3, 0.2, 0.9, 1.4, 1.2, 1.3, 3.2, 4.0, 3.6, 2.6, 1.2, 0.6],
)
"""Mean bookings by the clock, 100 kWh an hour: commuters in the morning, everybody in the evening."""
_PRICE = np.interp(
    _CLOCK,
    [0, 5, 7, 9, 11, 14, 16, 18, 20, 22, 23],
    [1.6, 1.5, 2.6, 2.8, 1.8, 1.5, 2.6, 4.6, 4.4, 2.6, 1.9],
)
"""Mean price by the clock, 0.10 EUR/kWh: cheap at night and at noon, dear in the evening."""
_SUN = np.maximum(np.sin(np.pi * (_CLOCK - 6.0) / 13.0), 0.0) * (_CLOCK > 6) * (_CLOCK < 19)
"""Clear sky by the clock, a share of the panels' power."""
PANELS = 2.0
"""Power of the panels, 100 kW."""
EVENING, ELSE = 5.0, 2.5
"""Most that can be booked for an hour of the evening (17 to 21 o'clock), and for any other."""


def synthetic_ev(seed: int, n: int, horizon: int = 24) -> Episodes:
    """Episodes for `tether_ev.EV` that begin at 6 o'clock; the same seed, n and horizon give the same ones.

    Every day has a level of demand, of prices and of sun, and hours depart from it. Of what is hidden every hour draws
    walk-ins in [0, 0.5], charging efficiencies in [0.85, 1] and plug-outs in [0.05, 0.15], each uniformly.

    Args:
        seed: At least 0.
        n: Number of days, at least 1.
        horizon: Hours of an episode, at least 1.

    Example:
        >>> synthetic_ev(seed=0, n=10)
        Episodes(10 of 24 rounds: booked, price, solar, walk_in, efficiency, plug_out)
    """
    seed = validate.count("seed", seed, minimum=0)
    n, horizon = validate.count("n", n), validate.count("horizon", horizon)
    rng = np.random.default_rng(seed)
    clock = (START_HOUR + np.arange(horizon)) % 24
    ceiling = np.where((clock >= 17) & (clock < 21), EVENING, ELSE)

    def around(mean: NDArray[np.float64], by_day: float, by_hour: float) -> NDArray[np.float64]:
        """[n, H] log-normal departures from a mean day, with standard deviations of the logarithm."""
        return mean[clock] * np.exp(
            by_day * rng.normal(size=(n, 1)) + by_hour * rng.normal(size=(n, horizon))
        )

    clouds = rng.uniform(0.3, 1.0, (n, 1)) * rng.uniform(0.7, 1.0, (n, horizon))
    series = {
        "booked": np.minimum(around(_BOOKED, 0.12, 0.15), ceiling),
        "price": np.clip(around(_PRICE, 0.15, 0.1), 0.3, 9.0),
        "solar": PANELS * _SUN[clock] * clouds,
        "walk_in": rng.uniform(0.0, 0.5, (n, horizon)),
        "efficiency": rng.uniform(0.85, 1.0, (n, horizon)),
        "plug_out": rng.uniform(0.05, 0.15, (n, horizon)),
    }
    return Episodes(series, start_hours=np.full(n, START_HOUR))
