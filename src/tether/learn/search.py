"""The largest value of a function of a few numbers, without its derivative."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Found(NamedTuple):
    """The best point that was tried."""

    point: Any
    """[n]"""
    value: float
    """Minus infinity if no value was a number."""


def maximise(
    score: Callable[[Any], Any],
    start: Any,
    *,
    first: Any,
    step: float,
    candidates: int,
    generations: int,
    seed: int,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Found:
    """Search by CMA-ES: a normal distribution follows the better half of what it drew, and takes on its shape.

    Hansen's (mu/mu_w, lambda) strategy with his standard constants, covariance adapted with rank one and rank mu. It
    needs values only, and their order only, so that a function with jumps and flat parts does.

    Args:
        score: [candidates, n] points to [candidates] values; what is not a number counts as the least.
        start: [n] where the distribution begins ...
        first: [candidates, n] points that are tried before; it begins at the best of them instead, if one is finite.
        step: ... and its standard deviation there, in each direction.
        candidates: Drawn at a time, at least 4.
        generations: How many times.
        seed: Of the draws.
        report: Called with (generations done, generations in all).

    Example:
        >>> peak = np.array([1.0, -2.0])
        >>> found = maximise(
        ...     lambda points: -np.sum((points - peak) ** 2, axis=1),
        ...     np.zeros(2), first=np.zeros((8, 2)), step=0.5, candidates=8, generations=60, seed=0,
        ... )
        >>> bool(np.allclose(found.point, peak, atol=1e-3))
        True
    """
    mean = np.asarray(start, dtype=np.float64)
    points = np.asarray(first, dtype=np.float64)
    values = _order(score(points))
    best = Found(points[np.argmax(values)], float(values.max()))
    mean = best.point if math.isfinite(best.value) else mean
    shape, rng = _Shape(mean.size, candidates, step), np.random.default_rng(seed)
    for done in range(generations):
        steps = shape.draw(rng, candidates)
        points = mean + shape.step * steps
        values = _order(score(points))
        if values.max() > best.value:
            best = Found(points[np.argmax(values)], float(values.max()))
        mean = mean + shape.step * shape.learn(steps[np.argsort(-values, kind="stable")])
        report(done + 1, generations)
    return best


def _order(values: Any) -> Any:
    """Values with minus infinity for what is not a number."""
    given = np.asarray(values, dtype=np.float64)
    return np.where(np.isnan(given), -np.inf, given)


class _Shape:
    """Step size and covariance of the distribution, and the paths that adapt them."""

    def __init__(self, size: int, candidates: int, step: float) -> None:
        kept = candidates // 2
        weights = math.log(kept + 0.5) - np.log(np.arange(1, kept + 1))
        self.weights = weights / weights.sum()
        mass = 1.0 / float(np.sum(self.weights**2))
        self.mass, self.step = mass, step
        self.slow = (4.0 + mass / size) / (size + 4.0 + 2.0 * mass / size)
        self.quick = (mass + 2.0) / (size + mass + 5.0)
        self.one = 2.0 / ((size + 1.3) ** 2 + mass)
        self.many = min(1.0 - self.one, 2.0 * (mass - 2.0 + 1.0 / mass) / ((size + 2.0) ** 2 + mass))
        self.damping = 1.0 + 2.0 * max(0.0, math.sqrt((mass - 1.0) / (size + 1.0)) - 1.0) + self.quick
        self.usual = math.sqrt(size) * (1.0 - 1.0 / (4.0 * size) + 1.0 / (21.0 * size**2))
        self.path, self.step_path = np.zeros(size), np.zeros(size)
        self.covariance = np.eye(size)
        self.learned = 0

    def draw(self, rng: np.random.Generator, count: int) -> Any:
        """[count, n] steps, in units of the step size."""
        spread, self.axes = np.linalg.eigh(self.covariance)
        self.lengths = np.sqrt(np.maximum(spread, 1e-20))
        return (rng.normal(size=(count, self.lengths.size)) * self.lengths) @ self.axes.T

    def learn(self, steps: Any) -> Any:
        """Adapt to the steps that were drawn, best first; the mean's step."""
        kept = steps[: len(self.weights)]
        step = self.weights @ kept
        self.learned += 1
        plain = self.axes @ ((self.axes.T @ step) / self.lengths)
        self.step_path = (1.0 - self.quick) * self.step_path + math.sqrt(
            self.quick * (2.0 - self.quick) * self.mass
        ) * plain
        size = float(np.linalg.norm(self.step_path))
        settled = size / math.sqrt(1.0 - (1.0 - self.quick) ** (2 * self.learned))
        moves = settled < (1.4 + 2.0 / (step.size + 1.0)) * self.usual
        self.path = (1.0 - self.slow) * self.path + moves * math.sqrt(
            self.slow * (2.0 - self.slow) * self.mass
        ) * step
        self.covariance = (
            (1.0 - self.one - self.many) * self.covariance
            + self.one * np.outer(self.path, self.path)
            + self.many * (kept.T * self.weights) @ kept
        )
        self.step *= math.exp((self.quick / self.damping) * (size / self.usual - 1.0))
        return step
