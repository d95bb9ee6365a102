"""One pass over a log: what is kept of it, in memory that does not grow with it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.data.logs import Block, Columns
from tether.estimation.estimates import Impulse

Floats = NDArray[np.float64]
LOWEST_COSTS = 2_000
"""So many of the lowest costs are kept."""
LAGS = 24
"""Rounds after a deviation that are looked at."""


class LogSummary:
    """What is kept of the log, in memory that does not grow with it."""

    def __init__(self, columns: Columns, seed: int, sample_rows: int) -> None:
        self.columns = columns
        self.rows = 0
        self.longest_episode = 0
        self.lowest = Smallest(LOWEST_COSTS)
        self.sample = Smallest(sample_rows)
        self._seed = np.uint64(seed)
        self._carry: tuple[Floats, NDArray[np.int64]] | None = None
        self.consecutive = 0
        """Rows that follow the row before them."""
        self.moved = 0
        """Those of them whose state is not the next state of the row before."""
        self._shift: Floats | None = None
        responses = len(columns.state) + 1
        self.deviations = len(columns.prior)
        self._cross = np.zeros((LAGS, self.deviations, responses))
        self._sums = np.zeros((LAGS, self.deviations + responses))
        self._squares = np.zeros((LAGS, self.deviations + responses))
        self._pairs = np.zeros(LAGS, dtype=np.int64)
        self._gram = np.zeros((1 + self.deviations, 1 + self.deviations))
        self._reaction = np.zeros((1 + self.deviations, len(columns.state) + len(columns.context)))
        self._spread = np.zeros((2, len(columns.state) + len(columns.context)))

    def add(self, block: Block) -> None:
        """Take in the next rows."""
        count = len(block.row)
        if not count:
            return
        self.rows += count
        deviation = block.action - block.prior if self.deviations else np.empty((count, 0))
        everything = np.column_stack(
            [block.row, block.cost, block.state, block.context, block.action, block.prior, block.next_state]
        )
        self.sample.add(_hash(block.row, self._seed), everything)
        self.lowest.add(block.cost, np.column_stack([block.cost, block.row]))
        self._check_succession(block)
        self._add_impulse(block, deviation)

    def _check_succession(self, block: Block) -> None:
        follows = block.follows[1:]
        self.consecutive += int(np.count_nonzero(follows))
        gap = np.abs(block.next_state[:-1] - block.state[1:])
        scale = np.abs(block.state).max(axis=0) + 1e-300
        self.moved += int(np.count_nonzero(follows & np.any(gap > 1e-3 * scale, axis=1)))

    def _add_impulse(self, block: Block, deviation: Floats) -> None:
        """Sums of deviation(j) * response(j + n) over rounds of the same episode."""
        rows = np.column_stack([deviation, block.next_state, block.cost])
        place = np.arange(len(rows))
        start = np.maximum.accumulate(np.where(block.follows, -1, place))
        if self._carry is None:
            age = place - np.maximum(start, 0)
            self._shift = np.concatenate([np.zeros(self.deviations), rows[:, self.deviations :].mean(axis=0)])
            known = np.empty((0, rows.shape[1]))
        else:
            known, known_age = self._carry
            age = np.where(start >= 0, place - start, place + known_age[-1] + 1)
        self.longest_episode = max(self.longest_episode, int(age.max()) + 1)
        rows = rows - self._shift
        joined = np.vstack([known, rows])
        if self.deviations:
            for lag in range(LAGS):
                later = np.flatnonzero(age >= lag) + len(known)
                later = later[later >= lag]
                early, late = joined[later - lag, : self.deviations], joined[later, self.deviations :]
                self._cross[lag] += early.T @ late
                both = np.hstack([early, late])
                self._sums[lag] += both.sum(axis=0)
                self._squares[lag] += (both**2).sum(axis=0)
                self._pairs[lag] += later.size
            with_one = np.column_stack([np.ones(len(deviation)), deviation])
            conditions = np.hstack([block.state, block.context])
            self._gram += with_one.T @ with_one
            self._reaction += with_one.T @ conditions
            self._spread += np.vstack([conditions.sum(axis=0), (conditions**2).sum(axis=0)])
        kept = joined[-LAGS:]
        self._carry = (kept, np.concatenate([np.zeros(len(kept), dtype=np.int64), age])[-len(kept) :])

    def impulse(self) -> Impulse | None:
        """The measured responses, or None if there were no deviations."""
        if not self.deviations or self._gram[1, 1] <= 0.0:
            return None
        states = len(self.columns.state)
        used = self._pairs > 100
        if not np.any(used):
            return None
        count = self._pairs[used][:, None]
        mean = self._sums[used] / count
        variance = np.maximum(self._squares[used] / count - mean**2, 0.0)
        early, late = slice(0, self.deviations), slice(self.deviations, None)
        if np.any(variance[:, early] <= 1e-12 * self._squares[used][:, early] / count):
            return None
        covariance = self._cross[used] / count[..., None] - mean[:, early, None] * mean[:, None, late]
        response = covariance / variance[:, early, None]
        error = np.sqrt(variance[:, None, late] / variance[:, early, None] / count[..., None])
        length = np.linalg.norm(response[..., :states], ord=2, axis=(1, 2))
        return Impulse(
            state=length,
            state_error=np.sqrt(np.sum(error[..., :states] ** 2, axis=(1, 2))),
            cost=np.linalg.norm(response[..., states], axis=1),
            cost_error=np.linalg.norm(error[..., states], axis=1),
            pairs=self._pairs[used],
        )

    def dither_follows_state(self) -> float:
        """The largest correlation between a deviation and a column of state or context."""
        mean = self._gram[0, :] / self.rows
        centre, square = self._spread / self.rows
        covariance = self._reaction[1:] / self.rows - np.outer(mean[1:], centre)
        variance = np.diag(self._gram)[1:] / self.rows - mean[1:] ** 2
        scale = np.sqrt(np.maximum(np.outer(variance, square - centre**2), 1e-300))
        return float(np.max(np.abs(covariance / scale)))


class Smallest:
    """The rows with the smallest keys so far; the result does not depend on how the rows were cut into blocks."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys: list[Any] = []
        self._rows: list[Floats] = []
        self._held = 0
        self._limit: Any = None

    def add(self, keys: Any, rows: Floats) -> None:
        """Take in the next rows [n, ...] with their keys [n]."""
        if self._limit is not None:
            chosen = keys < self._limit
            keys, rows = keys[chosen], rows[chosen]
        self._keys.append(keys)
        self._rows.append(rows)
        self._held += len(keys)
        if self._held > 2 * self._size:
            self._compress()

    def _compress(self) -> None:
        keys, rows = np.concatenate(self._keys), np.concatenate(self._rows)
        if len(keys) > self._size:
            kept = np.argsort(keys, kind="stable")[: self._size]
            keys, rows = keys[kept], rows[kept]
            self._limit = keys[-1]
        self._keys, self._rows, self._held = [keys], [rows], len(keys)

    def result(self) -> Floats:
        """[n, ...] the rows, in order of their keys."""
        self._compress()
        return np.asarray(self._rows[0][np.argsort(self._keys[0], kind="stable")])


def _hash(row: NDArray[np.int64], seed: np.uint64) -> NDArray[np.uint64]:
    """A pseudo-random number for each row number (splitmix64): a sample then depends on the log and the seed only."""
    with np.errstate(over="ignore"):
        mixed = (row.astype(np.uint64) + seed * np.uint64(0x632BE59BD9B4E019)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))
