"""The cross-entropy method: draw candidates, keep the best, draw around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def cross_entropy(
    score: Callable[[Any], Any],
    start: Any,
    seed: int,
    *,
    generations: int = 20,
    candidates: int = 24,
    elite: int = 6,
) -> Any:
    """Weights [k] with a high score.

    Args:
        score: Of candidates [n, k] the scores [n].
        start: [k] where it begins; the mean of each generation is one of the next candidates.
        seed: Of the draws.
        generations: How often they are drawn.
        candidates: How many.
        elite: How many of them the next ones are drawn around.
    """
    random = np.random.default_rng(seed)
    mean, spread = np.asarray(start, dtype=np.float64), np.ones(len(start))
    for _ in range(generations):
        tried = mean + spread * random.normal(size=(candidates, len(mean)))
        tried[0] = mean
        best = tried[np.argsort(-np.asarray(score(tried)))[:elite]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.03
    return mean
