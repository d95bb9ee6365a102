"""Trials for `falsify`: whole episodes of draws and actions, made of extremes, and bred from the worst so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Trials:
    """Many episodes, each with one round that is looked at; cases first."""

    series: Mapping[str, Array]
    """What is drawn, by name, [count, H, ...]."""
    script: Array
    """[count, H, *action] what is played up to that round: 0 is the prior's action, -1 the lowest, 1 the highest."""
    start: Array
    """[count] the round that is looked at, counted from 0."""
    lam: Array
    """[count] of the contract."""
    exact: Array
    """[count] whether the gaps are taken to be those that there are, or those that the structure carries."""

    def __len__(self) -> int:
        return len(self.start)

    def take(self, places: Any) -> Trials:
        """Some of them, by index or mask."""
        return self._made(lambda values: values[places])

    def join(self, other: Trials) -> Trials:
        """These, and others after them."""
        return self._made(lambda mine, others: np.concatenate([mine, others]), other)

    def _made(self, function: Callable[..., Array], *others: Trials) -> Trials:
        every = (self, *others)
        series = {name: function(*(each.series[name] for each in every)) for name in self.series}
        rest = ("script", "start", "lam", "exact")
        return Trials(series, *(function(*(getattr(each, name) for each in every)) for name in rest))


def scripted(wish: Any, script: Any, low: Any, high: Any) -> Any:
    """What a script says where the prior would play `wish`: 0 is that, -1 is `low`, 1 is `high`; beyond is farther."""
    rest = script * ((script > 0.0) * (high - wish) - (script < 0.0) * (low - wish))
    return wish + rest


@dataclass(frozen=True)
class Range:
    """What a series can be."""

    low: Array
    """Least value in a round, a number or [n]."""
    high: Array
    """Largest value in a round, a number or [n]."""
    rows: Array | None = None
    """[N, H, ...] values of episodes; None if there are none."""
    whole: bool = False
    """Whether it is taken from one episode as it is, because it has no limits of its own: a clock, a forecast."""


@dataclass(frozen=True)
class Breeder:
    """Draws trials and breeds them."""

    ranges: Mapping[str, Range]
    """Of every series."""
    horizon: int
    """H."""
    action_shape: tuple[int, ...]
    """Of an action."""
    lams: Sequence[float]
    """Of the contracts that are looked at."""
    rng: np.random.Generator
    """Where luck comes from."""

    def fresh(self, count: int) -> Trials:
        """Trials of extremes: each value is an end of its range or something between, and is held for some rounds."""
        rng, shape = self.rng, (count, self.horizon)
        row = rng.integers(2**31, size=count)
        series = {name: self._series(each, row) for name, each in self.ranges.items()}
        pick = rng.choice(4, size=(*shape, *self.action_shape), p=[0.25, 0.25, 0.25, 0.25])
        some = rng.choice([-1.0, 1.0], size=pick.shape) * 10.0 ** rng.uniform(-3.0, 0.0, size=pick.shape)
        script = np.select([pick == 0, pick == 1, pick == 2], [0.0, -1.0, 1.0], some)
        return Trials(
            series,
            self._held(script),
            rng.integers(self.horizon, size=count),
            rng.choice(np.asarray(self.lams, dtype=np.float64), size=count),
            rng.random(count) < 0.5,
        )

    def children(self, parents: Trials, count: int) -> Trials:
        """Children of the parents: two spliced in time, moved in time, with some values drawn anew or nudged."""
        rng, new = self.rng, self.fresh(count)
        first, second = (parents.take(rng.integers(len(parents), size=count)) for _ in range(2))
        cut = np.where(rng.random(count) < 0.5, rng.integers(self.horizon, size=count), self.horizon)
        shift = np.where(rng.random(count) < 0.2, rng.integers(-3, 4, size=count), 0)
        rounds = np.arange(self.horizon)
        late = rounds >= cut[:, None]
        place = np.clip(rounds - shift[:, None], 0, self.horizon - 1)
        anew = rng.choice([0.0, 0.02, 0.1, 0.3], size=count)
        nudged = rng.choice([0.0, 0.1, 0.5], size=count)
        far = 10.0 ** rng.uniform(-4.0, 0.0, size=count)

        def bred(mine: Array, other: Array, fresh: Array, low: Any, high: Any) -> Array:
            there = (..., *[None] * (mine.ndim - 2))
            inherited = np.where(late[there], other, mine)
            inherited = inherited[np.arange(count)[:, None], place]
            width = np.where(np.isfinite(high - low), high - low, 0.0)
            moved = inherited + far[:, None][there] * width * rng.uniform(-1.0, 1.0, size=mine.shape)
            moved = np.clip(moved, low, high)
            inherited = np.where(rng.random(mine.shape) < nudged[:, None][there], moved, inherited)
            return np.where(rng.random(mine.shape) < anew[:, None][there], fresh, inherited)

        series = {}
        for name, each in self.ranges.items():
            mine, other, fresh = (trials.series[name] for trials in (first, second, new))
            if each.whole:
                there = (..., *[None] * (mine.ndim - 1))
                series[name] = np.where((rng.random(count) < 0.1)[there], fresh, mine)
            else:
                series[name] = bred(mine, other, fresh, each.low, each.high)
        start = np.clip(
            first.start + shift + rng.choice([-1, 0, 0, 0, 0, 1], size=count), 0, self.horizon - 1
        )
        other = rng.random((3, count)) < 0.1
        return Trials(
            series,
            bred(first.script, second.script, new.script, -1.0, 1.0),
            np.where(other[0], new.start, start),
            np.where(other[1], new.lam, first.lam),
            np.where(other[2], new.exact, first.exact),
        )

    def _series(self, each: Range, row: Array) -> Array:
        """[count, H, ...] values; `row` picks the episode of those that are taken as a whole."""
        rng, count = self.rng, len(row)
        if each.whole:
            assert each.rows is not None
            whole: Array = each.rows[row % len(each.rows)]
            return whole
        shape = (count, self.horizon, *np.shape(each.low))
        usual = rng.uniform(size=shape) * (each.high - each.low) + each.low
        if each.rows is not None:
            picked = each.rows[rng.integers(len(each.rows), size=shape[:2]), np.arange(self.horizon)]
            usual = np.where(rng.random(shape) < 0.5, picked, usual)
        place = rng.random(shape)
        return self._held(np.where(place < 0.35, each.low, np.where(place > 0.65, each.high, usual)))

    def _held(self, values: Array) -> Array:
        """Each value kept for some rounds, with a probability that is different for each case."""
        count, horizon = values.shape[:2]
        hold = self.rng.choice([0.0, 0.5, 0.9, 1.0], size=(count, 1))
        kept = self.rng.random((count, horizon)) < hold
        last = np.maximum.accumulate(np.where(kept, 0, np.arange(horizon)), axis=1)
        held: Array = values[np.arange(count)[:, None], last]
        return held
