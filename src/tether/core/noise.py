"""Noise without bounds, cut where it is unlikely to be: for contracts that hold with probability 1 - delta."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

from tether.core import validate
from tether.core.contract import Contract


@dataclass(frozen=True)
class Cut:
    """Between which ends a noise stays, in all rounds and entries of an episode together, with a probability."""

    low: float
    high: float
    confidence: float
    """1 - delta."""
    rests_on: str
    """In words."""

    def signed(self, contract: Contract) -> Contract:
        """The contract of a certificate whose ranges are these: with their probability, and labelled so."""
        return contract.resting_on(self.rests_on, self.confidence)


def cut_noise(
    delta: float,
    rounds: int,
    entries: int = 1,
    *,
    scale: float | None = None,
    mean: float = 0.0,
    quantile: Callable[[float], float] | None = None,
) -> Cut:
    """Where to cut a noise so that a whole episode stays inside with probability 1 - delta at least.

    An episode draws `rounds` * `entries` numbers, and each has two ends: by the union bound it is enough that each
    number is beyond each end with probability delta / (2 rounds entries). The draws need not be independent.

    Args:
        delta: The probability that is given away, between 0 and 1.
        rounds: Rounds of an episode. There must be a last one: for ever, something beyond any end happens.
        entries: Numbers of noise that a round draws.
        scale: Standard deviation, of a Gaussian noise.
        mean: Its mean.
        quantile: For any other noise its quantile function, such as `scipy.stats.t(5).ppf`.

    Example:
        >>> cut = cut_noise(delta=0.001, rounds=24, scale=0.1)
        >>> round(cut.high, 3)
        0.41
        >>> contract = cut.signed(Contract(lam=1.0, b=0.5, horizon=24))
        >>> round(contract.confidence, 6), contract.certain
        (0.999, False)
    """
    delta = validate.number("delta", delta, above=0.0)
    if delta >= 1.0:
        raise ValueError(f"delta must be below 1, got {delta!r}")
    draws = validate.count("rounds", rounds) * validate.count("entries", entries)
    if (scale is None) == (quantile is None):
        raise ValueError(
            f"give either scale, of a Gaussian noise, or quantile, got {scale!r} and {quantile!r}"
        )
    beyond = delta / (2.0 * draws)
    if quantile is None:
        # From the lower end, where a small probability has all its digits.
        away = -NormalDist().inv_cdf(beyond) * validate.number("scale", scale, above=0.0)
        mean = validate.number("mean", mean)
        low, high, kind = mean - away, mean + away, f"Gaussian noise of standard deviation {scale:g}"
    else:
        low, high = float(quantile(beyond)), float(quantile(1.0 - beyond))
        kind = "noise of the given quantiles"
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"the noise has no finite quantiles at {beyond:g} and its opposite: {low}, {high}")
    return Cut(
        low, high, 1.0 - delta, f"{kind}, {draws} draws an episode, staying within {low:.6g} to {high:.6g}"
    )
