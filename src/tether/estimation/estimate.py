"""Estimate what the guard needs from logs of operation, with a confidence: estimated, not proved.

The promise rests on constants that hold everywhere. A log shows a part: some states, some actions, some draws of the
noise. What is estimated here is the largest slope *over the region that operation like the logged one visits*, for
operation `times` as long as the log; nothing is known of where the log never went.

1. One pass over the log: a random sample of its rows, the lowest costs, and how a deviation shows in later rounds.
2. `tether.local_slopes`: slopes around points of the sample, with the noise told apart.
3. `tether.extremes`: the largest slope seen is below the largest there is; the tail is extrapolated.
4. Each upper confidence limit times a safety factor is recommended.

What no log can tell: two rounds are never played with the same draw, so a draw's slope is only known through level and
spread of the response. Noise that moves the slope but neither of them is invisible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial import cKDTree

from tether.core import validate
from tether.core.contract import Contract
from tether.core.sensitivity import EstimatedSensitivity, Geometric, geometric
from tether.data.logs import BLOCK_ROWS, Block, Columns, read_blocks
from tether.estimation.extremes import Tail, fit_tail
from tether.estimation.local_slopes import (
    Field,
    contraction_norm,
    fit_field,
    fit_noise,
    norms,
    shrink,
    worst_draw,
)

Floats = NDArray[np.float64]
SAMPLE_ROWS = 120_000
"""Rows that slopes are fitted to, drawn evenly from the log."""
LOWEST_COSTS = 2_000
LAGS = 24
"""Rounds after a deviation that are looked at."""
MIN_ROWS = 1_000

_MEANINGS = {
    "immediate": ("slope of a round's cost in its action (L_c in the action)", "cost per action"),
    "carried": (
        "slope of the next round's cost in the action, the prior playing that round",
        "cost per action",
    ),
    "rho": ("what the prior leaves of a gap after one round", "share of the gap"),
    "cost_floor": ("a cost that no round goes below", "cost"),
    "L_c_state": ("slope of the cost in the state, the action held", "cost per state"),
    "L_c_prior": ("slope of the cost in the state, the prior acting", "cost per state"),
    "L_f_action": ("slope of the next state in the action", "state per action"),
    "L_f_state": ("slope of the next state in the state, the action held", "state per state"),
    "L_pi": ("slope of the prior's action in the state", "action per state"),
}
NEEDED = ("immediate", "carried", "rho")


@dataclass(frozen=True)
class Estimate:
    """One constant, estimated from a log."""

    name: str
    value: float | None
    """The return level: what operation `times` as long reaches, most likely. None: the log does not identify it."""
    low: float | None
    """Lower end of the confidence interval: what was seen, less its error."""
    high: float | None
    """Upper end (for the cost floor the lower end is the one that matters)."""
    recommended: float | None
    """What to use: the careful end of the interval, with the safety factor."""
    evidence: int
    """Rows that it rests on; for the tail, independent peaks are in `method`."""
    method: str
    warnings: tuple[str, ...] = ()

    @property
    def meaning(self) -> str:
        """What the constant is."""
        return _MEANINGS[self.name][0]

    @property
    def unit(self) -> str:
        """In terms of the log's own units."""
        return _MEANINGS[self.name][1]

    @property
    def identified(self) -> bool:
        """Whether the log says anything about it."""
        return self.value is not None


class Impulse(NamedTuple):
    """How a unit deviation in one round shows n rounds later, on average, while the logged policy plays on."""

    state: Floats
    """[N] norm of the response of the state after n more rounds; n = 0: the next state."""
    state_error: Floats
    """[N] standard error of it."""
    cost: Floats
    """[N] response of the cost of n rounds later; n = 0: the same round."""
    cost_error: Floats
    """[N]."""
    pairs: NDArray[np.int64]
    """[N] pairs of rounds that it was measured on."""


@dataclass(frozen=True)
class Estimates:
    """Everything that `estimate` found; prints as a table."""

    constants: Mapping[str, Estimate]
    scale: float
    """Of the perturbation function p(n) = scale * rho^n; at least 1."""
    impulse: Impulse | None
    """None if the prior's action was not logged or never deviated from."""
    columns: Columns
    rows: int
    rounds: int
    """The longest episode."""
    confidence: float
    safety: float
    times: float
    warnings: tuple[str, ...]
    slopes: Mapping[str, Floats] = field(repr=False, default_factory=dict)
    """Local slopes of each constant over the sample, for figures."""
    tails: Mapping[str, Tail] = field(repr=False, default_factory=dict)

    def __getitem__(self, name: str) -> Estimate:
        return self.constants[name]

    @property
    def perturbation(self) -> Geometric:
        """The recommended p(n) = scale * rho^n."""
        return geometric(self._needed("rho"), self.scale)

    @property
    def sensitivity(self) -> EstimatedSensitivity:
        """What is recommended for the guard. A ValueError if the log does not identify it."""
        return EstimatedSensitivity(
            immediate=self._needed("immediate"),
            carried=self._needed("carried"),
            perturbation=self.perturbation,
            confidence=self.confidence,
            safety=self.safety,
            rows=self.rows,
        )

    def contract(self, lam: float, b: float, horizon: int | None = None) -> Contract:
        """A promise with the estimated cost floor; the horizon is the log's longest episode unless given."""
        return Contract(lam, b, self.rounds if horizon is None else horizon, self._needed("cost_floor"))

    def _needed(self, name: str) -> float:
        found = self.constants[name]
        if found.recommended is None:
            raise ValueError(f"{name} was not identified: {'; '.join(found.warnings) or found.method}")
        return found.recommended

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, fit for JSON."""
        identified = all(self.constants[name].identified for name in NEEDED)
        return {
            "proved": False,
            "rows": self.rows,
            "rounds": self.rounds,
            "confidence": self.confidence,
            "safety": self.safety,
            "times": self.times,
            "constants": {name: asdict(each) for name, each in self.constants.items()},
            "perturbation": self.perturbation.to_dict() if self.constants["rho"].identified else None,
            "recommended": {
                "immediate": self.sensitivity.immediate,
                "carried": self.sensitivity.carried,
                "perturbation": self.perturbation.to_dict(),
                "cost_floor": self.constants["cost_floor"].recommended,
            }
            if identified
            else None,
            "impulse": None if self.impulse is None else self.impulse._asdict(),
            "columns": asdict(self.columns),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        lines = [
            f"estimated, not proved: {self.rows:,} rows, confidence {self.confidence:g}, safety {self.safety:g}"
        ]
        for name, each in self.constants.items():
            if each.value is None or each.low is None or each.high is None or each.recommended is None:
                lines.append(f"  {name:<11} not identified")
                continue
            lines.append(
                f"  {name:<11} {each.recommended:<10.4g} "
                f"({each.value:.4g}, {each.low:.4g} to {each.high:.4g}; {each.unit})"
            )
        return "\n".join([*lines, *(f"  warning: {text}" for text in self.warnings)])


def estimate(
    logs: Any,
    *,
    columns: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    safety: float = 1.2,
    times: float = 20.0,
    seed: int = 0,
    sample_rows: int = SAMPLE_ROWS,
    block_rows: int = BLOCK_ROWS,
    progress: Callable[[int], None] | None = None,
) -> Estimates:
    """Estimate the guard's constants from logged operation of the prior with a small dither on its actions.

    Args:
        logs: A CSV or Parquet file, or a mapping of column names to arrays, one row a round, the rounds of an episode
            one after the other: `episode`, `round`, `state...`, `action...`, `cost`, and if there are any
            `next_state...`, `prior...` (the prior's action), `context...` (demand, weather: what no action changes).
        columns: Names that differ, by role: {"state": ["level"], "cost": "eur"}.
        confidence: One-sided, of each upper limit.
        safety: Factor on the upper limits, at least 1. For rho it is a factor on 1 / (1 - rho), the time that a gap
            lasts.
        times: How much longer than the log the operation is for which the largest slope is sought.
        seed: Of the sample and of the anchors.
        sample_rows: Rows that slopes are fitted to.
        block_rows: Rows that are read at a time.
        progress: Called with the rows read so far.

    Example:
        >>> random = np.random.default_rng(0)
        >>> state = random.uniform(-1.0, 1.0, 4000)
        >>> prior = -0.5 * state
        >>> action = prior + random.uniform(-0.1, 0.1, 4000)
        >>> log = {
        ...     "episode": np.arange(4000),
        ...     "round": np.zeros(4000),
        ...     "state": state,
        ...     "prior": prior,
        ...     "action": action,
        ...     "cost": 3.0 + 2.0 * action,
        ...     "next_state": 0.8 * state + action,
        ... }
        >>> found = estimate(log, safety=1.0)
        >>> [round(found[name].value, 2) for name in ("immediate", "carried", "rho", "L_pi")]
        [2.0, 1.0, 0.3, 0.5]
    """
    if not 0.5 < validate.number("confidence", confidence) < 1.0:
        raise ValueError(f"confidence must be between 0.5 and 1, got {confidence!r}")
    validate.number("safety", safety, minimum=1.0)
    validate.number("times", times, minimum=1.0)
    validate.count("seed", seed, minimum=0)
    validate.count("sample_rows", sample_rows, minimum=MIN_ROWS)
    names, blocks = read_blocks(logs, columns, validate.count("block_rows", block_rows), progress=progress)
    intake = _Intake(names, seed, sample_rows)
    for block in blocks:
        intake.add(block)
    if intake.rows < MIN_ROWS:
        raise ValueError(f"{intake.rows} rounds are too few to estimate anything; log at least {MIN_ROWS}")
    return _Analysis(intake, confidence, safety, times, seed).run()


# One pass over the log.


class _Intake:
    """What is kept of the log, in memory that does not grow with it."""

    def __init__(self, columns: Columns, seed: int, sample_rows: int) -> None:
        self.columns = columns
        self.rows = 0
        self.longest = 0
        self.lowest = _Smallest(LOWEST_COSTS)
        self.sample = _Smallest(sample_rows)
        self._seed = np.uint64(seed)
        self._carry: tuple[Floats, NDArray[np.int64]] | None = None
        self.consecutive = 0
        self.moved = 0
        self._shift: Floats | None = None
        responses = len(columns.state) + 1
        self.deviations = len(columns.prior)
        self.cross = np.zeros((LAGS, self.deviations, responses))
        self.sums = np.zeros((LAGS, self.deviations + responses))
        self.squares = np.zeros((LAGS, self.deviations + responses))
        self.pairs = np.zeros(LAGS, dtype=np.int64)
        self.gram = np.zeros((1 + self.deviations, 1 + self.deviations))
        self.reaction = np.zeros((1 + self.deviations, len(columns.state) + len(columns.context)))
        self.spread = np.zeros((2, len(columns.state) + len(columns.context)))

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
        own = np.arange(len(rows))
        start = np.maximum.accumulate(np.where(block.follows, -1, own))
        if self._carry is None:
            age = own - np.maximum(start, 0)
            self._shift = np.concatenate([np.zeros(self.deviations), rows[:, self.deviations :].mean(axis=0)])
            known = np.empty((0, rows.shape[1]))
        else:
            known, known_age = self._carry
            age = np.where(start >= 0, own - start, own + known_age[-1] + 1)
        self.longest = max(self.longest, int(age.max()) + 1)
        rows = rows - self._shift
        joined = np.vstack([known, rows])
        if self.deviations:
            for lag in range(LAGS):
                later = np.flatnonzero(age >= lag) + len(known)
                later = later[later >= lag]
                early, late = joined[later - lag, : self.deviations], joined[later, self.deviations :]
                self.cross[lag] += early.T @ late
                both = np.hstack([early, late])
                self.sums[lag] += both.sum(axis=0)
                self.squares[lag] += (both**2).sum(axis=0)
                self.pairs[lag] += later.size
            with_one = np.column_stack([np.ones(len(deviation)), deviation])
            felt = np.hstack([block.state, block.context])
            self.gram += with_one.T @ with_one
            self.reaction += with_one.T @ felt
            self.spread += np.vstack([felt.sum(axis=0), (felt**2).sum(axis=0)])
        kept = joined[-LAGS:]
        self._carry = (kept, np.concatenate([np.zeros(len(kept), dtype=np.int64), age])[-len(kept) :])

    def impulse(self) -> Impulse | None:
        """The measured responses, or None if there were no deviations."""
        if not self.deviations or self.gram[1, 1] <= 0.0:
            return None
        states = len(self.columns.state)
        used = self.pairs > 100
        if not np.any(used):
            return None
        count = self.pairs[used][:, None]
        mean = self.sums[used] / count
        variance = np.maximum(self.squares[used] / count - mean**2, 0.0)
        early, late = slice(0, self.deviations), slice(self.deviations, None)
        if np.any(variance[:, early] <= 1e-12 * self.squares[used][:, early] / count):
            return None
        covariance = self.cross[used] / count[..., None] - mean[:, early, None] * mean[:, None, late]
        response = covariance / variance[:, early, None]
        error = np.sqrt(variance[:, None, late] / variance[:, early, None] / count[..., None])
        length = np.linalg.norm(response[..., :states], ord=2, axis=(1, 2))
        return Impulse(
            state=length,
            state_error=np.sqrt(np.sum(error[..., :states] ** 2, axis=(1, 2))),
            cost=np.linalg.norm(response[..., states], axis=1),
            cost_error=np.linalg.norm(error[..., states], axis=1),
            pairs=self.pairs[used],
        )

    def dither_follows_state(self) -> float:
        """The largest correlation between a deviation and a column of state or context."""
        mean = self.gram[0, :] / self.rows
        centre, square = self.spread / self.rows
        covariance = self.reaction[1:] / self.rows - np.outer(mean[1:], centre)
        variance = np.diag(self.gram)[1:] / self.rows - mean[1:] ** 2
        scale = np.sqrt(np.maximum(np.outer(variance, square - centre**2), 1e-300))
        return float(np.max(np.abs(covariance / scale)))


class _Smallest:
    """The rows with the smallest keys so far; the result does not depend on how the rows were cut into blocks."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys: list[Any] = []
        self._rows: list[Floats] = []
        self._held = 0
        self._limit: Any = None

    def add(self, keys: Any, rows: Floats) -> None:
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


# From what was kept to the constants.


class _Analysis:
    """The estimation proper, on the sample."""

    def __init__(self, intake: _Intake, confidence: float, safety: float, times: float, seed: int) -> None:
        self.intake, self.confidence, self.safety = intake, confidence, safety
        # The sample is a part of the log: the same return period is more of its lengths.
        columns = intake.columns
        rows = intake.sample.result()
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        sizes = [1, 1, len(columns.state), len(columns.context), len(columns.action), len(columns.prior)]
        order, cost, self.state, context, self.action, self.prior, self.next_state = np.split(
            rows, np.cumsum(sizes), axis=1
        )
        self.order, self.cost = order[:, 0].astype(np.int64), cost[:, 0]
        self.times = times * intake.rows / len(rows)
        self.requested_times = times
        self.random = np.random.default_rng(seed)
        self.quantile = float(stats.norm.ppf(confidence))
        self.warnings: list[str] = []
        self.slopes: dict[str, Floats] = {}
        self.tails: dict[str, Tail] = {}
        self.context = context[:, np.ptp(context, axis=0) > 0.0]
        still = np.ptp(self.state, axis=0) <= 0.0
        if np.any(still):
            name = columns.state[int(np.argmax(still))]
            raise ValueError(
                f"state column {name!r} never varies; leave it out, or log operation in which it does"
            )
        surroundings = np.hstack([self.state, self.context])
        self.places = (surroundings - surroundings.mean(axis=0)) / surroundings.std(axis=0)
        self.surroundings = surroundings

    def run(self) -> Estimates:
        """Every constant."""
        X, A = self.state.shape[1], self.action.shape[1]
        prior_field, deviation, dither_missing = self._prior_and_deviation()
        coordinates = self.surroundings if dither_missing else np.hstack([self.surroundings, deviation])
        small = 0 if dither_missing else A
        responses = np.column_stack([self.cost, self.next_state])
        field_ = fit_field(self.places, coordinates, responses, self.random, small)
        level = field_.level(coordinates)
        noises = [fit_noise(coordinates, column, field_.anchors) for column in (responses - level).T]
        noise = np.column_stack([each.level for each in noises])
        standard = np.divide(responses - level, noise, out=np.zeros_like(level), where=noise > 0.0)
        ends = [
            (fit_tail(-column, **self._tail(order=False)), fit_tail(column, **self._tail(order=False)))
            for column in standard.T
        ]
        lowest = np.array([-low.level for low, _ in ends])
        highest = np.array([high.level for _, high in ends])
        mean, mean_error = shrink(field_, field_.slopes.mean, field_.slopes.variance)
        drift = np.stack([each.slopes for each in noises], axis=1)
        drift_error = np.stack([each.errors for each in noises], axis=1)
        reach = np.maximum(np.abs(lowest), highest)[None, :, None]
        bend, bend_error = shrink(field_, field_.slopes.bend, field_.slopes.bend_variance)
        told = np.mean(bend**2, axis=0), np.mean(bend_error**2, axis=0)
        bend *= np.maximum(1.0 - 2.0 * told[1] / np.maximum(told[0], 1e-300), 0.0)
        # The region that is claimed includes the dither: slopes are taken at its corners as well as in its middle.
        # Where the prior acts there is no dither, only the middle.
        width = np.quantile(np.abs(deviation), 0.99, axis=0)[:small]
        corners = [
            np.zeros(small),
            *(np.array(signs) * width for signs in product((-1.0, 1.0), repeat=small)),
        ]
        if not small:
            corners = corners[:1]
        error = np.sqrt(mean_error**2 + (reach * drift_error) ** 2)
        wide_error = np.sqrt(error**2 + bend_error**2 @ width**2)

        W = self.context.shape[1]
        in_state, in_action = slice(0, X), slice(X + W, X + W + A)
        reaction = self._reaction(prior_field, field_)

        def steepest(part: slice, rows: slice, held: bool = False) -> tuple[Floats, Floats]:
            """[K, R, Z] the longest slopes over corners of the dither and ends of the draws, and their errors."""
            found = []
            prior_acts = part == in_state and not held
            for corner in corners[:1] if prior_acts else corners:
                slopes = mean + bend @ corner
                if held:
                    levels, noises_ = (
                        all_[..., in_state] - all_[..., in_action] @ reaction for all_ in (slopes, drift)
                    )
                else:
                    levels, noises_ = slopes[..., part], drift[..., part]
                found.append(worst_draw(levels, noises_, lowest, highest)[:, rows])
            lengths = np.stack([np.linalg.norm(each, ord=2, axis=(1, 2)) for each in found])
            chosen = np.stack(found)[np.argmax(lengths, axis=0), np.arange(len(mean))]
            doubt = error[..., part] if prior_acts else wide_error[..., part]
            if held:
                doubt = np.sqrt(
                    wide_error[..., in_state] ** 2 + wide_error[..., in_action] ** 2 @ reaction**2
                )
            return chosen, doubt[:, rows]

        cost, after = slice(0, 1), slice(1, None)
        found: dict[str, Estimate] = {}
        found["L_c_prior"] = self._supremum("L_c_prior", field_, *steepest(in_state, cost))
        found["L_pi"] = self._prior_slope(prior_field)
        if dither_missing:
            for name in ("immediate", "L_f_action", "L_c_state", "L_f_state", "carried"):
                found[name] = self._unidentified(name, dither_missing)
        else:
            found["immediate"] = self._supremum("immediate", field_, *steepest(in_action, cost))
            found["L_f_action"] = self._supremum("L_f_action", field_, *steepest(in_action, after))
            found["L_c_state"] = self._supremum("L_c_state", field_, *steepest(in_state, cost, held=True))
            found["L_f_state"] = self._supremum("L_f_state", field_, *steepest(in_state, after, held=True))
            found["carried"] = self._carried(found["L_c_prior"], found["L_f_action"])
        impulse = self.intake.impulse()
        found["rho"], scale = self._contraction(
            field_, *steepest(in_state, after), found["L_f_action"], impulse
        )
        deepest = ends[0][0]
        found["cost_floor"] = self._floor(level[:, 0] - deepest.upper * noise[:, 0])
        self._check_log(found)
        return Estimates(
            constants={name: found[name] for name in _MEANINGS},
            scale=scale,
            impulse=impulse,
            columns=self.intake.columns,
            rows=self.intake.rows,
            # Without a column of next states the last round of each episode was left out.
            rounds=self.intake.longest + (0 if self.intake.columns.next_state else 1),
            confidence=self.confidence,
            safety=self.safety,
            times=self.requested_times,
            warnings=tuple(
                dict.fromkeys([*self.warnings, *(text for each in found.values() for text in each.warnings)])
            ),
            slopes=self.slopes,
            tails=self.tails,
        )

    def _tail(self, *, order: bool = True) -> dict[str, Any]:
        options: dict[str, Any] = {"times": self.times, "confidence": self.confidence}
        return options | ({"order": self.order} if order else {})

    def _prior_and_deviation(self) -> tuple[Field, Floats, str]:
        """The prior's local slopes, the deviation of every row, and why actions say nothing if they do not."""
        logged = bool(self.intake.columns.prior)
        target = self.prior if logged else self.action
        prior_field = fit_field(self.places, self.surroundings, target, self.random)
        if logged:
            deviation = self.action - self.prior
        else:
            deviation = self.action - prior_field.level(self.surroundings)
            self.warnings.append(
                "the prior's action is not logged: it was taken to be the mean action at each state, and p(n) could "
                "not be checked against impulse responses; add a column prior"
            )
        spread = self.action.std(axis=0)
        size = np.where(spread > 0.0, spread, np.abs(self.action).mean(axis=0) + 1e-300)
        flat = deviation.std(axis=0) < (1e-6 if logged else 1e-2) * size
        if not np.any(flat):
            return prior_field, deviation, ""
        place = int(np.argmax(flat))
        name = self.intake.columns.action[place]
        return (
            prior_field,
            deviation,
            f"{name} never varies independently of the state, so what an action does cannot be told from what the "
            "state does; add a dither: play the prior's action plus a uniform random number of about "
            f"+-{0.2 * size[place]:.2g} and log both",
        )

    def _reaction(self, prior_field: Field, field_: Field) -> Floats:
        """[K, A, X] the prior's slope in the state at the anchors of another field."""
        slopes = prior_field.slopes.mean[..., : self.state.shape[1]]
        return np.asarray(slopes[prior_field.nearest[field_.anchors]])

    def _unidentified(self, name: str, why: str) -> Estimate:
        return Estimate(name, None, None, None, None, 0, "not identified", (why,))

    def _supremum(self, name: str, field_: Field, matrices: Floats, deviations: Floats) -> Estimate:
        """The largest norm of local slopes, extrapolated."""
        lengths, errors = norms(matrices, deviations)
        return self._extrapolate(name, field_, lengths, errors, self.safety)

    def _extrapolate(
        self, name: str, field_: Field, lengths: Floats, errors: Floats, safety: float
    ) -> Estimate:
        everywhere = field_.interpolate(lengths)
        tail = fit_tail(everywhere, **self._tail())
        steep = lengths >= np.quantile(lengths, 0.95)
        error = float(np.median(errors[steep]))
        self.slopes[name], self.tails[name] = everywhere, tail
        high = tail.upper + self.quantile * error
        warnings = []
        if error > 0.25 * tail.level:
            warnings.append(
                f"{name} is known to +-{100 * error / tail.level:.0f} % only: log more rounds, or, where it is the "
                "slope in an action, a larger dither"
            )
        return Estimate(
            name=name,
            value=tail.level,
            low=max(float(np.max(everywhere)) - self.quantile * error, 0.0),
            high=high,
            recommended=safety * high,
            evidence=len(everywhere),
            method=(
                f"{len(lengths)} local fits of {field_.neighbours} rows; tail of {tail.peaks} peaks, "
                f"shape {tail.shape:.2f}; standard error {error:.2g}"
            ),
            warnings=tuple(warnings),
        )

    def _carried(self, cost: Estimate, push: Estimate) -> Estimate:
        """Slope of the cost in the state under the prior, times that of the next state in the action."""
        numbers = [
            float(one) * float(other)
            for one, other in ((cost.value, push.value), (cost.low, push.low), (cost.high, push.high))
            if one is not None and other is not None
        ]
        value, low, high = numbers
        return Estimate(
            "carried",
            value,
            low,
            high,
            self.safety * high,
            min(cost.evidence, push.evidence),
            "L_c_prior * L_f_action",
            (),
        )

    def _contraction(
        self, field_: Field, jacobians: Floats, errors: Floats, push: Estimate, impulse: Impulse | None
    ) -> tuple[Estimate, float]:
        """p(n) = scale * rho^n from closed-loop slopes of one round, checked against impulse responses."""
        change, condition = contraction_norm(jacobians[: field_.drawn])
        inverse = np.linalg.inv(change)
        turned = change @ jacobians @ inverse
        spread = np.sqrt(change**2 @ errors**2 @ inverse**2)
        lengths, deviations = norms(turned, spread)
        found = self._extrapolate("rho", field_, lengths, deviations, 1.0)
        assert found.high is not None
        assert found.value is not None
        rho = stretch(found.high, self.safety)
        warnings = list(found.warnings)
        if rho >= 1.0:
            warnings.append(
                f"rho is {rho:.3g}: gaps may grow under the prior, or the log is too short or too noisy to see that "
                "they do not; the guard will leave little freedom"
            )
        if impulse is not None and push.recommended is not None:
            needed = slowest(impulse, push.recommended * condition)
            if needed > rho:
                warnings.append(
                    f"deviations last longer than one round's slopes say (rho {rho:.3g}, seen {needed:.3g}): the "
                    "logged state is not the whole state; log what else changes"
                )
                rho = needed
        method = found.method + (
            "" if condition <= 1.0 + 1e-9 else f"; in coordinates of condition {condition:.2f}"
        )
        made = Estimate(
            "rho", found.value, found.low, found.high, rho, found.evidence, method, tuple(warnings)
        )
        return made, max(condition, 1.0)

    def _prior_slope(self, prior_field: Field) -> Estimate:
        """The prior's own slope: exact pairs if its action was logged, else the slope of the mean action."""
        states = self.state.shape[1]
        slopes = prior_field.slopes.mean[..., :states]
        errors = np.sqrt(prior_field.slopes.variance[..., :states])
        if not self.intake.columns.prior:
            mean, left = shrink(prior_field, prior_field.slopes.mean, prior_field.slopes.variance)
            return self._supremum("L_pi", prior_field, mean[..., :states], left[..., :states])
        found = self._supremum("L_pi", prior_field, slopes, errors)
        assert found.value is not None
        assert found.low is not None
        assert found.high is not None
        rate, steepest = self._pairs(found.value)
        if rate > 3.0:
            warning = (
                "the prior's action is not a function of the logged state and context (near states have actions that "
                f"are {rate:.0f} times as far apart as its slope allows): log what else it sees"
            )
            return Estimate(
                **(
                    asdict(found)
                    | {"warnings": (*found.warnings, warning), "method": found.method + "; noisy prior"}
                )
            )
        # A slope between two logged pairs is exact, and no Lipschitz constant is below it.
        value, high = max(found.value, steepest), max(found.high, steepest)
        method = f"{found.method}; steepest of the exact pairs {steepest:.4g}"
        return Estimate(
            "L_pi",
            value,
            max(found.low, steepest),
            high,
            self.safety * high,
            found.evidence,
            method,
            found.warnings,
        )

    def _pairs(self, slope: float) -> tuple[float, float]:
        """How far apart the prior's actions of nearest neighbours are, beside `slope`; and the steepest exact pair."""
        _, near = cKDTree(self.places).query(self.places, k=2)
        other = near[:, 1]
        apart = np.linalg.norm(self.surroundings - self.surroundings[other], axis=1)
        moved = np.linalg.norm(self.prior - self.prior[other], axis=1)
        told = apart > 1e-4 * float(np.linalg.norm(self.surroundings.std(axis=0)))
        if not np.any(told):
            return 0.0, 0.0
        ratios = moved[told] / apart[told]
        rate = float(np.median(ratios)) / slope if slope > 0.0 else 0.0
        # With context the two differ in more than the state, and their slope is not the one in the state.
        return (rate, float(ratios.max())) if not self.context.shape[1] else (0.0, 0.0)

    def _floor(self, reached: Floats) -> Estimate:
        """The lower end of the costs: of those logged, and of the fitted level less the largest draw."""
        lowest = self.intake.lowest.result()
        costs, order = lowest[:, 0], lowest[:, 1].astype(np.int64)
        smallest, median = float(costs[0]), float(np.median(self.cost))
        tied = int(np.count_nonzero(costs <= smallest + 1e-12 * max(abs(smallest), 1.0)))
        if tied >= 20:
            recommended, warnings = self._sound_floor(smallest)
            return Estimate(
                "cost_floor",
                smallest,
                smallest,
                smallest,
                recommended,
                tied,
                f"{tied} rounds cost exactly this",
                warnings,
            )
        share = min(1.0, (len(costs) - 1) / self.intake.rows)
        tail = fit_tail(
            -costs,
            order=order,
            share=1.0,
            times=self.requested_times,
            confidence=self.confidence,
            peaks=min(400, len(costs) - 2),
        )
        worst = fit_tail(-reached, **self._tail())
        low = min(-tail.upper, -worst.upper)
        self.slopes["cost_floor"], self.tails["cost_floor"] = -costs, tail
        recommended, warnings = self._sound_floor(median - self.safety * (median - low))
        return Estimate(
            name="cost_floor",
            value=-tail.level,
            low=low,
            high=smallest,
            recommended=recommended,
            evidence=self.intake.rows,
            method=(
                f"tail of the {tail.peaks} lowest peaks of {share:.2%} of the costs; fitted level less the largest "
                f"draw {-worst.level:.4g}; the depth below the median times {self.safety:g}"
            ),
            warnings=warnings,
        )

    def _sound_floor(self, floor: float) -> tuple[float, tuple[str, ...]]:
        if float(self.cost.min()) < 0.0:
            return 0.0, (
                f"costs go down to {float(self.cost.min()):.4g}: a contract needs costs of at least 0; add a constant "
                "to them",
            )
        return max(floor, 0.0), ()

    def _check_log(self, found: Mapping[str, Estimate]) -> None:
        """Warnings about the log as a whole."""
        intake = self.intake
        if intake.consecutive < 0.2 * intake.rows:
            self.warnings.append(
                f"only {intake.consecutive} of {intake.rows} rows follow the row before them: sort the log by episode "
                "and round so that p(n) can be checked"
            )
        elif intake.moved > 0.01 * intake.consecutive:
            self.warnings.append(
                f"in {intake.moved} rows the next state is not the state of the next row: check the columns"
            )
        if intake.deviations and found["immediate"].identified:
            follows = intake.dither_follows_state()
            if follows > 0.05 + 4.0 / math.sqrt(intake.rows):
                self.warnings.append(
                    f"the deviation from the prior goes with the state (correlation {follows:.2f}): impulse responses "
                    "are then biased; a dither must be drawn independently"
                )


def stretch(rho: float, safety: float) -> float:
    """Rho with its reach 1 / (1 - rho) longer by the factor `safety`; above 1 its growth is.

    Example:
        >>> round(stretch(0.8, 1.25), 3)
        0.84
    """
    return 1.0 - (1.0 - rho) / safety if rho < 1.0 else 1.0 + (rho - 1.0) * safety


def slowest(impulse: Impulse, first: float) -> float:
    """The smallest rho with which first * rho^n stays above every measured response that is told from noise."""
    seen = impulse.state - 3.0 * impulse.state_error
    rates = [(value / first) ** (1.0 / n) for n, value in enumerate(seen) if n > 0 and value > 0.0]
    return max(rates, default=0.0)
