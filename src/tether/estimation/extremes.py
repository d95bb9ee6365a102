"""How far the largest value can be from the largest one seen: the tail of a sample, extrapolated with a confidence.

Values above a high threshold u follow a generalised Pareto law, P(V - u > y) = (1 + xi y / sigma)^(-1/xi): the
peaks-over-threshold method (Coles, An Introduction to Statistical Modeling of Extreme Values, 2001, chapter 4). With
xi < 0 there is an endpoint u - sigma / xi (the reversed Weibull case); with xi = 0 there is none, and xi > 0 is
excluded (`SHAPES`). What is reported is the *return level*: the value that operation `times` as long as the sample
exceeds once on average. It is finite for every xi and tends to the endpoint where there is one. Its upper limit is that
of the profile likelihood.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
SHAPES = np.linspace(-1.0, 0.0, 31)
"""Values of xi that are tried. Below -1 the likelihood has no maximum; above 0 tails would be heavier than exponential,
which slopes of a plant that can saturate do not have: that is assumed, not tested."""
MAX_PEAKS = 400
"""Most exceedances that are used: the largest ones."""
MIN_PEAKS = 20
"""Fewer are not extrapolated from."""


class Tail(NamedTuple):
    """The upper tail of a sample."""

    threshold: float
    """u."""
    shape: float
    """xi; NaN if the tail was not fitted."""
    scale: float
    """sigma."""
    peaks: int
    """Exceedances that were used, one for each cluster."""
    seen: float
    """The largest value of the sample."""
    level: float
    """The return level, most likely value."""
    upper: float
    """Its upper confidence limit, at least `seen`."""

    @property
    def endpoint(self) -> float:
        """U - sigma / xi, or infinity if the fitted law has none."""
        return self.threshold - self.scale / self.shape if self.shape < 0.0 else math.inf


def fit_tail(
    values: Floats,
    *,
    order: NDArray[np.int64] | None = None,
    share: float = 0.02,
    times: float = 100.0,
    confidence: float = 0.95,
    peaks: int = MAX_PEAKS,
) -> Tail:
    """The upper tail of a sample, and how far beyond it operation `times` as long will go.

    Args:
        values: [N] the sample.
        order: [N] when each was taken, in rounds; exceedances in successive rounds are one cluster and only its
            largest counts. None: they are independent.
        share: The largest values that are used, as a share of the sample.
        times: The return period, as a multiple of the sample's length.
        confidence: Of the upper limit, one-sided.
        peaks: Most exceedances that are used.

    Example:
        >>> random = np.random.default_rng(0)
        >>> tail = fit_tail(random.uniform(0.0, 1.0, 10_000))
        >>> tail.seen < 1.0 < tail.upper < 1.01
        True
    """
    if not 0.5 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0.5 and 1, got {confidence!r}")
    count = min(max(round(share * values.size), MIN_PEAKS), peaks)
    seen = float(np.max(values))
    if values.size <= 2 * MIN_PEAKS:
        return Tail(seen, math.nan, 0.0, values.size, seen, seen, seen)
    threshold = float(np.partition(values, -count - 1)[-count - 1])
    above = np.flatnonzero(values > threshold)
    heights = values[above] - threshold
    if order is not None and above.size:
        heights = _cluster_peaks(heights, order[above])
    # A tail without width is a bound that is reached: there is nothing to extrapolate.
    if heights.size < MIN_PEAKS // 2 or float(np.ptp(heights)) <= 1e-9 * max(abs(seen), 1e-300):
        return Tail(threshold, math.nan, 0.0, int(heights.size), seen, seen, seen)
    return _fit_peaks(heights, threshold, seen, times, confidence)


def _cluster_peaks(heights: Floats, order: NDArray[np.int64]) -> Floats:
    """The largest of each run of successive rounds."""
    places = np.argsort(order, kind="stable")
    order, heights = order[places], heights[places]
    first = np.flatnonzero(np.concatenate([[True], np.diff(order) > 1]))
    return np.asarray(np.maximum.reduceat(heights, first))


def _fit_peaks(heights: Floats, threshold: float, seen: float, times: float, confidence: float) -> Tail:
    """Maximum likelihood over a grid of (return level, xi), refined, and the profile of the level."""
    top = float(heights.max())
    rate = heights.size * times
    # (return level - threshold) = sigma * growth(xi)
    growth = np.array(
        [math.log(rate) if abs(xi) < 1e-9 else math.expm1(xi * math.log(rate)) / xi for xi in SHAPES]
    )
    levels = top * np.geomspace(0.5, 100.0, 240)
    profile = np.full(levels.size, -np.inf)
    shapes = np.zeros(levels.size)
    for xi, grown in zip(SHAPES, growth, strict=True):
        sigma = levels / grown
        likelihood = _log_likelihood(heights, float(xi), sigma)
        better = likelihood > profile
        profile[better], shapes[better] = likelihood[better], xi
    best = int(np.argmax(profile))
    # One-sided at `confidence`: two-sided at 2 * confidence - 1.
    drop = 0.5 * float(stats.chi2.ppf(2.0 * confidence - 1.0, 1))
    inside = np.flatnonzero(profile >= profile[best] - drop)
    last = int(inside[-1])
    upper = float(levels[min(last + 1, levels.size - 1)])
    shape = float(shapes[best])
    sigma = float(levels[best] / growth[int(np.argmin(np.abs(SHAPES - shape)))])
    level = threshold + float(levels[best])
    return Tail(
        threshold,
        shape,
        sigma,
        int(heights.size),
        seen,
        max(level, seen),
        max(threshold + upper, level, seen),
    )


def _log_likelihood(heights: Floats, xi: float, sigma: Floats) -> Floats:
    """[S] log-likelihood of the generalised Pareto law for each sigma [S]; -inf where a height is beyond its end."""
    scaled = heights[None, :] / sigma[:, None]
    if abs(xi) < 1e-9:
        return np.asarray(-heights.size * np.log(sigma) - scaled.sum(axis=1))
    inside = 1.0 + xi * scaled
    possible = inside.min(axis=1) > 0.0
    logs = np.log(np.where(inside > 0.0, inside, 1.0)).sum(axis=1)
    value = -heights.size * np.log(sigma) - (1.0 + 1.0 / xi) * logs
    return np.where(possible, value, -np.inf)
