"""The simplest counterexample: as few entries as possible differ, and numbers are round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tether.assure.verify.claims import Claim, Point


def shrink(claim: Claim, point: Point) -> dict[str, Any]:
    """A simpler point that refutes the claim as well; call it with JAX in float64.

    Entry by entry, as long as the claim stays refuted: a second state or action becomes equal to the first, a number
    becomes 0 (or the end of its range that is nearest to 0), an end of its range, or is rounded to as few digits as
    possible.
    """
    current = {name: np.array(values, dtype=np.float64) for name, values in point.items()}
    for _ in range(4):
        before = {name: values.copy() for name, values in current.items()}
        for name, box in claim.box.items():
            twin = name.removeprefix("other ") if name.startswith("other ") else None
            for index, label in enumerate(box.names):
                value = float(current[name][index])
                for simpler in _simpler(value, float(box.low[index]), float(box.high[index])):
                    _try(claim, current, name, index, simpler)
                    if current[name][index] != value:
                        break
                if twin is not None:
                    _try(
                        claim, current, name, index, float(current[twin][claim.box[twin].names.index(label)])
                    )
        if all(np.array_equal(before[name], current[name]) for name in current):
            break
    return current


def _try(claim: Claim, current: dict[str, Any], name: str, index: int, value: float) -> None:
    kept = current[name][index]
    current[name][index] = value
    if not claim.refuted_by(current):
        current[name][index] = kept


def _simpler(value: float, low: float, high: float) -> list[float]:
    """Simpler numbers than `value`, the simplest first."""
    least = min(max(0.0, low), high)
    candidates = [least, *sorted((low, high), key=abs)]
    candidates += [float(f"{value:.{digits}g}") for digits in range(1, 9)]
    kept: list[float] = []
    for each in candidates:
        if each == value:
            break
        if low <= each <= high and each not in kept and math.isfinite(each):
            kept.append(each)
    return kept
