"""Estimate what the guard needs from logs of operation, with a confidence: estimated, not proved.

The promise rests on constants that hold everywhere. A log shows a part: some states, some actions, some draws of the
noise. What is estimated here is the largest slope *over the region that operation like the logged one visits*, for
operation `times` as long as the log; nothing is known of where the log never went.

1. One pass over the log: a random sample of its rows, the lowest costs, and how a deviation shows in later rounds.
2. `tether.estimation.local_slopes`: slopes around points of the sample, separated from the noise.
3. `tether.estimation.extremes`: the largest slope seen is below the largest there is; the tail is extrapolated.
4. Each upper confidence limit times a safety factor is recommended.

What no log can tell: two rounds are never played with the same draw, so a draw's slope is only known through level and
spread of the response. Noise that moves the slope but neither of them is invisible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tether.core import validate
from tether.data.logs import BLOCK_ROWS, read_blocks
from tether.estimation.analysis import Analysis
from tether.estimation.estimates import MEANINGS, Estimates
from tether.estimation.log_summary import LogSummary

SAMPLE_ROWS = 120_000
"""Rows that slopes are fitted to, drawn evenly from the log."""
MIN_ROWS = 1_000


def check_claims(confidence: float, safety: float, times: float) -> None:
    """Refuse what is no confidence, no safety factor or no length of operation."""
    if not 0.5 < validate.number("confidence", confidence) < 1.0:
        raise ValueError(f"confidence must be between 0.5 and 1, got {confidence!r}")
    validate.number("safety", safety, minimum=1.0)
    validate.number("times", times, minimum=1.0)


def estimate(
    logs: Any,
    *,
    columns: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    safety: float = 1.2,
    times: float = 20.0,
    known: Mapping[str, float] | None = None,
    seed: int = 0,
    sample_rows: int = SAMPLE_ROWS,
    block_rows: int = BLOCK_ROWS,
    progress: Callable[[int], None] | None = None,
) -> Estimates:
    """Estimate the guard's constants from logged operation of the prior with a small dither on its actions.

    Args:
        logs: A CSV or Parquet file, a Minari data set as `minari:ID` (the observation is the state, but for what
            `columns` calls context), or a mapping of column names to arrays, one row a round, the rounds of an episode
            one after the other: `episode`, `round`, `state...`, `action...`, `cost`, and if there are any
            `next_state...`, `prior...` (the prior's action), `context...` (demand, weather: what no action changes).
        columns: Names that differ, by role: {"state": ["level"], "cost": "eur"}.
        confidence: One-sided, of each upper limit.
        safety: Factor on the upper limits, at least 1. For rho it is a factor on 1 / (1 - rho), the time that a gap
            lasts.
        times: How much longer than the log the operation is for which the largest slope is sought.
        known: What needs no estimate, by name: {"rho": 1.0} where no gap can grow under the prior, as in a queue.
        seed: Of the sample and of the anchors.
        sample_rows: Rows that slopes are fitted to.
        block_rows: Rows that are read at a time.
        progress: Called with the rows read so far.

    Example:
        >>> import numpy as np
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
    check_claims(confidence, safety, times)
    for name, value in (known or {}).items():
        validate.choice("known", name, tuple(MEANINGS))
        validate.number(name, value, minimum=0.0)
    validate.count("seed", seed, minimum=0)
    validate.count("sample_rows", sample_rows, minimum=MIN_ROWS)
    names, blocks = read_blocks(logs, columns, validate.count("block_rows", block_rows), progress=progress)
    summary = LogSummary(names, seed, sample_rows)
    for block in blocks:
        summary.add(block)
    if summary.rows < MIN_ROWS:
        raise ValueError(f"{summary.rows} rounds are too few to estimate anything; log at least {MIN_ROWS}")
    return Analysis(summary, confidence, safety, times, seed, known or {}).run()
