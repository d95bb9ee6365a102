"""The search for the largest ratio of a claim: random points, gradient ascent, differential evolution.

It runs in a unit cube that is mapped into the claim's box, in float64. An entry that is to be `near` something is
looked for at all distances from it: one more coordinate is the logarithm of the share of the way that is gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import differential_evolution

from tether.assure.verify.box import Box
from tether.assure.verify.claims import Claim, Point, ratio
from tether.core import validate

LEAST_SHARE = 1e-4
"""The smallest share of the way to another point that the search looks at."""
EVOLUTIONS = 2
"""Independent runs of the evolution."""
PATIENCE = 150
"""Generations in which the evolution must gain a thousandth, or it ends."""


@dataclass(frozen=True)
class Search:
    """How hard to look."""

    samples: int = 16384
    """Random points."""
    steps: int = 200
    """Steps of gradient ascent from `population` of the best samples; where JAX can trace the system."""
    generations: int = 1000
    """Of differential evolution, which goes on from the best points; it ends earlier when it finds nothing better."""
    population: int = 64
    """Points that climb, and that evolve, together."""

    def __post_init__(self) -> None:
        for name in ("samples", "steps", "generations"):
            validate.count(name, getattr(self, name), minimum=0)
        validate.count("population", self.population, minimum=8)
        if self.samples < self.population:
            raise ValueError(f"samples must be at least population={self.population}, got {self.samples}")


class Found(NamedTuple):
    """The best point of a search."""

    point: dict[str, Any]
    ratio: float
    stage: str
    """Which part of the search found it: random, ascent or evolution."""
    evaluations: int


def largest(claim: Claim, search: Search, seed: int) -> Found:
    """The point with the largest ratio that the search finds; call it with JAX in float64.

    Args:
        claim: What to refute.
        search: How hard.
        seed: Of the random points and of the evolution.
    """
    in_cube = _Ratio(
        claim.sides,
        dict(claim.box),
        dict(claim.near),
        np.asarray(claim.least_cause),
        tuple(claim.box),
    )
    ratios = _compiled_ratios if claim.gradient else _looped_ratios
    rng = np.random.default_rng(seed)
    chunks = -(-search.samples // search.population)
    points = _random_points(rng, chunks * search.population, in_cube.size)
    values = np.concatenate([ratios(in_cube, chunk) for chunk in np.split(points, chunks)])
    _refuse_nonsense(claim, in_cube, points, values)
    evaluations = values.size
    best, stage = points[np.argmax(values)], "random"
    largest_value = float(values.max())

    # The best of each chunk: good points, in different places.
    by_chunk = values.reshape(chunks, -1).argmax(axis=1) + np.arange(chunks) * search.population
    starts = points[by_chunk[np.argsort(-values[by_chunk])][: search.population]]
    if claim.gradient and search.steps:
        starts, reached = _ascend(in_cube, starts, search.steps)
        evaluations += len(starts) * search.steps
        if reached.max() > largest_value:
            best, stage, largest_value = starts[reached.argmax()], "ascent", float(reached.max())
        starts = starts[np.argsort(-reached)]
    order = np.argsort(-values)
    for turn in range(EVOLUTIONS if search.generations else 0):
        # Each begins with other climbers and other samples, so that not both end in the same place.
        taken = [each[turn::EVOLUTIONS][: search.population // 2] for each in (starts, points[order])]
        population = np.concatenate([*taken, points[order[-search.population :]]])[: search.population]
        evolved = _evolve(lambda units: ratios(in_cube, units), population, search.generations, [seed, turn])
        evaluations += search.population * (evolved.nit + 1)
        if -float(evolved.fun) > largest_value:
            best, stage, largest_value = evolved.x, "evolution", -float(evolved.fun)
    point = {name: np.asarray(values) for name, values in in_cube.place(np.asarray(best)).items()}
    return Found(point, largest_value, stage, evaluations)


class _Ratio(eqx.Module):
    """A claim's ratio as a function of the unit cube."""

    sides: Callable[[Point], Any]
    box: dict[str, Box]
    near: dict[str, Callable[[Point], Any]]
    least_cause: Any
    order: tuple[str, ...] = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return sum(each.size for each in self.box.values()) + len(self.near)

    def place(self, unit: Any) -> dict[str, Any]:
        """The point of the claim's box that a point of the cube [d] stands for."""
        xp = jnp if isinstance(unit, jax.Array) else np
        point: dict[str, Any] = {}
        begin = len(self.near)
        shares = dict(zip([name for name in self.order if name in self.near], unit[:begin], strict=True))
        for name in self.order:
            box = self.box[name]
            share = unit[begin : begin + box.size]
            begin += box.size
            values = box.low + share * box.widths
            if name in self.near:
                base = xp.clip(self.near[name](point), box.low, box.high)
                values = base + xp.exp(math.log(LEAST_SHARE) * (1.0 - shares[name])) * (values - base)
            point[name] = xp.clip(values, box.low, box.high)
        return point

    def __call__(self, unit: Any) -> Any:
        """The claim's ratio."""
        return ratio(self.sides(self.place(unit)), self.least_cause)


@eqx.filter_jit
def _batched(ratio: _Ratio, units: Any) -> Any:
    return jax.vmap(ratio)(units)


def _compiled_ratios(ratio: _Ratio, units: Any) -> Any:
    return np.asarray(_batched(ratio, jnp.asarray(units)))


def _looped_ratios(ratio: _Ratio, units: Any) -> Any:
    return np.array([float(ratio(unit)) for unit in units])


def _ascend(ratio: _Ratio, starts: Any, steps: int) -> tuple[Any, Any]:
    """Projected Adam from each start [s, d]: the best point on each way, and its ratio."""
    units = jnp.asarray(starts)
    memory = _adam(steps).init(units)
    best, largest_values = np.array(starts), np.full(len(starts), -np.inf)
    for _ in range(steps):
        values, slopes = _values_and_slopes(ratio, units)
        better = np.asarray(values) > largest_values
        best[better], largest_values[better] = np.asarray(units)[better], np.asarray(values)[better]
        units, memory = _climb(units, slopes, memory, steps)
    return best, largest_values


def _adam(steps: int) -> Any:
    return optax.adam(optax.cosine_decay_schedule(0.05, steps, alpha=0.01))


# Compiled in two parts, and the loop is not: that compiles far faster, and runs nearly as fast.
@eqx.filter_jit
def _climb(units: Any, slopes: Any, memory: Any, steps: int) -> tuple[Any, Any]:
    change, memory = _adam(steps).update(jnp.nan_to_num(-slopes), memory)
    return jnp.clip(units + change, 0.0, 1.0), memory


@eqx.filter_jit
def _values_and_slopes(ratio: _Ratio, units: Any) -> tuple[Any, Any]:
    return jax.vmap(jax.value_and_grad(ratio))(units)


def _evolve(ratios: Callable[[Any], Any], population: Any, generations: int, seed: list[int]) -> Any:
    """Differential evolution that starts from `population` [s, d]; what SciPy returns, for the negative ratio."""
    reached, idle = -math.inf, 0

    def stuck(intermediate_result: Any) -> bool:
        nonlocal reached, idle
        value = -float(intermediate_result.fun)
        progress = not value <= reached + 1e-3 * abs(reached)
        reached, idle = (value, 0) if progress else (reached, idle + 1)
        return idle >= PATIENCE

    return differential_evolution(
        lambda columns: -ratios(np.ascontiguousarray(columns.T)),
        [(0.0, 1.0)] * population.shape[1],
        init=population,
        maxiter=generations,
        tol=0.0,
        polish=False,
        vectorized=True,
        updating="deferred",
        callback=stuck,
        rng=np.random.default_rng(seed),
    )


def _random_points(rng: np.random.Generator, count: int, size: int) -> Any:
    """[count, size] uniform, and with a probability that is different for each point at the ends of the ranges."""
    inside = rng.uniform(size=(count, size))
    ends = rng.integers(2, size=(count, size)).astype(np.float64)
    return np.where(
        rng.uniform(size=(count, size)) < rng.choice([0.0, 0.5, 0.9], size=(count, 1)), ends, inside
    )


def _refuse_nonsense(claim: Claim, ratio: _Ratio, points: Any, values: Any) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        point = {name: np.asarray(each).tolist() for name, each in ratio.place(points[bad[0]]).items()}
        raise ValueError(
            f"the system gives a number that is not finite at {point} (claim {claim.name}); its region must be one "
            "where it is defined: make it smaller"
        )
