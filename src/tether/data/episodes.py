"""Episodes: the part of an environment that is drawn before the first action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Episodes:
    """N draws of everything random or exogenous in an episode (the paper's y_{1:H}), by name.

    Given its episode, an environment is deterministic, so that any policy, the prior included, can be
    replayed on the same draw.

    Args:
        series: For each name an array [N, H] (or [N, H, n]): its value in each round of each episode.
        start_hours: [N] hour of the clock, 0 to 23, in which each episode's first round lies, if known.

    Example:
        >>> episodes = Episodes({"demand": np.ones((5, 24)), "renewables": np.zeros((5, 24))})
        >>> len(episodes), episodes.horizon, len(episodes[:2])
        (5, 24, 2)
        >>> episodes["demand"].shape
        (5, 24)
    """

    def __init__(self, series: Mapping[str, Any], start_hours: Any = None) -> None:
        if not series:
            raise ValueError("episodes need at least one series, got none")
        self._series: dict[str, NDArray[np.float64]] = {}
        for name, values in series.items():
            array = np.asarray(values, dtype=np.float64)
            if array.ndim < 2 or array.shape[0] == 0 or array.shape[1] == 0:
                raise ValueError(f"series {name!r} must have shape [N, H] with N, H >= 1, got {array.shape}")
            first = next(iter(self._series.values()), array)
            if array.shape[:2] != first.shape[:2]:
                raise ValueError(
                    f"all series must have the same [N, H]: {name!r} has {array.shape[:2]}, "
                    f"{next(iter(self._series))!r} has {first.shape[:2]}"
                )
            bad = np.argwhere(~np.isfinite(array))
            if bad.size:
                place = tuple(int(i) for i in bad[0])
                raise ValueError(f"series {name!r} must be finite; at {place} it is {array[place]}")
            self._series[name] = array
        self.start_hours = None if start_hours is None else np.asarray(start_hours, dtype=np.int64)
        if self.start_hours is not None and self.start_hours.shape != (len(self),):
            raise ValueError(f"start_hours must have shape [{len(self)}], got {self.start_hours.shape}")

    def __len__(self) -> int:
        return len(next(iter(self._series.values())))

    @property
    def horizon(self) -> int:
        """Number of rounds H."""
        return int(next(iter(self._series.values())).shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the series."""
        return tuple(self._series)

    def __getitem__(self, key: Any) -> Any:
        """A series by its name; or some of the episodes, by a number, a slice or an index array."""
        if isinstance(key, str):
            if key not in self._series:
                raise KeyError(f"no series {key!r}; there are {', '.join(self._series)}")
            return self._series[key]
        if isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"episode {key} of {len(self)}")
            key = [int(key)]
        hours = None if self.start_hours is None else self.start_hours[key]
        return Episodes({name: values[key] for name, values in self._series.items()}, hours)

    def __repr__(self) -> str:
        return f"Episodes({len(self)} of {self.horizon} rounds: {', '.join(self._series)})"
