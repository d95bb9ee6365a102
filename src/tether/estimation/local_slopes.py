"""Local slopes of noisy responses, separated from the noise.

A response is c = m(z) + s(z) e: a level m and a noise level s that both vary with z = (state, context, deviation), and
a standardised draw e that is never observed. Around each of many anchors, points that the log visited, m is fitted by a
weighted quadratic over the nearest rows, which gives the slope m_z there and its standard error. The noise level is one
function for all rows, s^2 = exp(a quadratic in z), fitted to the squared residuals (`fit_noise`): its slopes are far
harder to see than those of m, and no local fit would.

Two corrections follow. An anchor's slope is its true slope plus an error of known size, so the steepest anchor is
partly the one with the luckiest error: `shrink` pulls the slopes towards their linear trend until their spread
is what is left when the errors are taken away. And the slope that a single draw sees is m_z + e s_z, so the steepest
draw is steeper than the mean one wherever noise grows with z (multiplicative noise): `worst_draw`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Floats = NDArray[np.float64]
ANCHORS = 300
"""Points drawn from the log at which slopes are fitted."""
DIRECTIONS = 32
"""Directions in which the two outermost points of the log are anchors, too."""


class Slopes(NamedTuple):
    """Slopes with what is known of their errors."""

    mean: Floats
    """[K, R, Z] slope of the level of each response."""
    variance: Floats
    """[K, R, Z] of its error."""
    bend: Floats
    """[K, R, Z, S] how the slope changes with each of the S small deviations: second derivatives."""
    bend_variance: Floats
    """[K, R, Z, S] of its error."""


@dataclass(frozen=True)
class Field:
    """Local fits at K anchors of R responses in Z coordinates."""

    anchors: NDArray[np.int64]
    """[K] rows of the sample; the first `drawn` of them at random, the others outermost."""
    drawn: int
    neighbours: int
    """Rows in each fit."""
    small: int
    """How many of the coordinates, the last ones, are small deviations."""
    coordinates: Floats
    """[K, Z] where the anchors are; the deviation there is 0."""
    scales: Floats
    """[Z] units in which the fits are made: the spread of each coordinate."""
    coefficients: Floats
    """[K, Q, R] of the quadratic, in scaled coordinates relative to the anchor."""
    slopes: Slopes
    nearest: NDArray[np.int64]
    """[M] the anchor nearest to each row of the sample."""
    weights: Floats
    """[M, 3] of the three nearest anchors of each row, for `interpolate`."""
    three: NDArray[np.int64]
    """[M, 3] those anchors."""

    def level(self, coordinates: Floats) -> Floats:
        """[M, R] the fitted level m of every row of the sample."""
        away = (coordinates - self.coordinates[self.nearest]) / self.scales
        level = np.empty((len(away), self.coefficients.shape[2]))
        for part in np.array_split(np.arange(len(away)), max(1, len(away) // 50_000)):
            terms = quadratic_terms(away[part])
            level[part] = np.einsum("mq,mqr->mr", terms, self.coefficients[self.nearest[part]])
        return level

    def interpolate(self, values: Floats) -> Floats:
        """[M] a number at each anchor, carried to every row of the sample."""
        return np.asarray(np.sum(values[self.three] * self.weights, axis=1))


def neighbour_count(rows: int, terms: int) -> int:
    """How many rows a local fit uses: few enough to be local, many enough for its terms."""
    return int(min(rows, max(rows**0.8, 12 * terms)))


def quadratic_terms(points: Floats) -> Floats:
    """[n, Q] of points [n, Z]: 1, the coordinates, and their products."""
    one, other = np.triu_indices(points.shape[1])
    return np.hstack([np.ones((len(points), 1)), points, points[:, one] * points[:, other]])


def fit_field(
    places: Floats, coordinates: Floats, responses: Floats, random: np.random.Generator, small: int = 0
) -> Field:
    """Fit levels, noise levels and their slopes around anchors.

    Args:
        places: [M, P] what nearness is judged by, in units of its spread: state and context.
        coordinates: [M, Z] what slopes are taken in.
        responses: [M, R].
        random: Draws the anchors.
        small: How many of the coordinates, the last ones, are small deviations. Slopes are taken where these are 0, and
            how they bend with them is found as well.
    """
    rows, width = coordinates.shape
    scales = coordinates.std(axis=0)
    terms = 1 + width + width * (width + 1) // 2
    neighbours = neighbour_count(rows, terms)
    anchors, drawn = _choose_anchors(places, random)
    centres = coordinates[anchors].copy()
    centres[:, width - small :] = 0.0
    tree = cKDTree(places)
    size, count = len(anchors), responses.shape[1]
    coefficients = np.empty((size, terms, count))
    mean, variance = np.empty((size, count, width)), np.empty((size, count, width))
    bend, bend_variance = (np.empty((size, count, width, small)) for _ in range(2))
    # Where in the terms the product of two coordinates is; the second derivative of a square is twice its coefficient.
    product = np.zeros((width, width), dtype=np.int64)
    product[np.triu_indices(width)] = np.arange(1 + width, terms)
    product = np.maximum(product, product.T)[:, width - small :]
    factor = np.ones((width, width)) + np.eye(width)
    factor = (factor / scales[:, None] / scales[None, :])[:, width - small :]
    for start in range(0, size, 64):
        batch = slice(start, min(start + 64, size))
        distances, near = tree.query(places[anchors[batch]], k=neighbours)
        for offset, (distance, index) in enumerate(zip(distances, near, strict=True)):
            k = start + offset
            fitted, spread = _fit_one((coordinates[index] - centres[k]) / scales, responses[index], distance)
            coefficients[k] = fitted
            mean[k], variance[k] = fitted[1 : 1 + width].T / scales, spread[1 : 1 + width].T / scales**2
            bend[k] = np.moveaxis(fitted[product], 2, 0) * factor
            bend_variance[k] = np.moveaxis(spread[product], 2, 0) * factor**2
    among = min(3, size)
    distances, three = cKDTree(places[anchors]).query(places, k=among)
    distances, three = distances.reshape(rows, among), three.reshape(rows, among)
    weights = 1.0 / np.maximum(distances, 1e-12)
    weights /= weights.sum(axis=1, keepdims=True)
    return Field(
        anchors=anchors,
        drawn=drawn,
        neighbours=neighbours,
        small=small,
        coordinates=centres,
        scales=scales,
        coefficients=coefficients,
        slopes=Slopes(mean, variance, bend, bend_variance),
        nearest=three[:, 0],
        weights=weights,
        three=three,
    )


def _choose_anchors(places: Floats, random: np.random.Generator) -> tuple[NDArray[np.int64], int]:
    """Random rows, and then the outermost ones in many directions."""
    rows, width = places.shape
    drawn = random.choice(rows, size=min(ANCHORS, rows), replace=False)
    directions = np.vstack([np.eye(width), random.standard_normal((DIRECTIONS, width))])
    if width == 1:
        directions = directions[:1]
    outermost = [place for way in directions for place in _both_ends(places @ way)]
    further = np.setdiff1d(outermost, drawn)
    return np.concatenate([drawn, further]).astype(np.int64), len(drawn)


def _both_ends(along: Floats) -> tuple[int, int]:
    return int(np.argmin(along)), int(np.argmax(along))


def _fit_one(away: Floats, responses: Floats, distance: Floats) -> tuple[Floats, Floats]:
    """One weighted fit: coefficients [Q, R] and their variances [Q, R]."""
    reach = float(distance[-1])
    weight = (1.0 - np.minimum(distance / (reach * 1.000001 + 1e-300), 1.0) ** 3) ** 3
    terms = quadratic_terms(away)
    weighted = terms * weight[:, None]
    inverse = np.linalg.pinv(weighted.T @ terms, rcond=1e-12, hermitian=True)
    coefficients = inverse @ (weighted.T @ responses)
    # Sandwich: var(coefficients) = inverse (X' W^2 X) inverse * s^2.
    spread = np.diag(inverse @ (weighted.T @ weighted) @ inverse)
    residual = responses - terms @ coefficients
    total = float(weight.sum())
    freedom = max(total - float(np.sum(inverse * (weighted.T @ weighted))), 0.1 * total)
    power = (weight @ residual**2) / freedom
    return coefficients, spread[:, None] * power


class Noise(NamedTuple):
    """The noise level s of one response as a function of the coordinates, and its slopes at some points."""

    level: Floats
    """[M] s at every row."""
    slopes: Floats
    """[K, Z] its slopes at the points asked for, shrunk by how well they are told from 0."""
    errors: Floats
    """[K, Z] standard errors of them."""


def fit_noise(coordinates: Floats, residual: Floats, at: NDArray[np.int64]) -> Noise:
    """Fit s^2 = exp(quadratic in the coordinates) to squared residuals: a gamma regression with logarithmic link.

    Args:
        coordinates: [M, Z].
        residual: [M] response less its level.
        at: [K] rows at which slopes are wanted.
    """
    centre, scales = coordinates.mean(axis=0), coordinates.std(axis=0)
    points = (coordinates - centre) / scales
    # Beyond three standard deviations a quadratic in the exponent is not to be trusted.
    terms = quadratic_terms(np.clip(points, -3.0, 3.0))
    width, square = points.shape[1], residual**2
    typical = float(np.mean(square))
    if typical <= 0.0:
        nothing = np.zeros((len(at), width))
        return Noise(np.zeros(len(points)), nothing, nothing)
    inverse = np.linalg.pinv(terms.T @ terms, hermitian=True)
    coefficients = np.zeros(terms.shape[1])
    coefficients[0] = math.log(typical)
    for _ in range(12):
        variance = np.exp(np.clip(terms @ coefficients, math.log(typical) - 6.0, math.log(typical) + 6.0))
        step = inverse @ (terms.T @ (square / variance - 1.0))
        coefficients += np.clip(step, -1.0, 1.0)
        if float(np.max(np.abs(step))) < 1e-6:
            break
    variance = np.exp(np.clip(terms @ coefficients, math.log(typical) - 6.0, math.log(typical) + 6.0))
    level = np.sqrt(variance)
    scatter = float(np.mean((square / variance - 1.0) ** 2))
    # d(log s^2)/dz is linear in the coefficients: [K, Z, Q].
    pairs = np.triu_indices(width)
    there = np.clip(points[at], -3.0, 3.0)
    derivative = np.zeros((len(at), width, terms.shape[1]))
    derivative[:, np.arange(width), 1 + np.arange(width)] = 1.0
    for column, (one, other) in enumerate(zip(*pairs, strict=True), start=1 + width):
        derivative[:, one, column] += there[:, other]
        derivative[:, other, column] += there[:, one]
    half = 0.5 * level[at][:, None] / scales
    slopes = half * (derivative @ coefficients)
    errors = half * np.sqrt(
        np.maximum(np.einsum("kzq,qp,kzp->kz", derivative, inverse * scatter, derivative), 0.0)
    )
    power, doubt = np.mean(slopes**2, axis=0), np.mean(errors**2, axis=0)
    kept = np.maximum(1.0 - 2.0 * doubt / np.maximum(power, 1e-300), 0.0)
    return Noise(level, slopes * kept, errors * kept)


def shrink(field: Field, slopes: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Slopes [K, ...] without the spread that their errors give them, and the standard deviation left, [K, ...].

    Around a linear trend in the coordinates the observed spread is A + error variance. Each slope is pulled towards the
    trend by sqrt(A / (A + its error variance)), which leaves a spread of A (a shrinkage that preserves the ensemble's
    spread, since it is the largest slope that is sought and not the best guess at each).
    """
    size = len(slopes)
    where = field.coordinates[:, : field.coordinates.shape[1] - field.small]
    where = (where - where[: field.drawn].mean(axis=0)) / where[: field.drawn].std(axis=0)
    basis = np.hstack([np.ones((size, 1)), where])
    flat, errors = slopes.reshape(size, -1), np.maximum(variance.reshape(size, -1), 0.0)
    random = slice(0, field.drawn)
    shrunk, left = np.empty_like(flat), np.empty_like(flat)
    # Neighbouring anchors share rows: so many of them are independent.
    independent = max(field.nearest.size / field.neighbours, 1.0)
    for column in range(flat.shape[1]):
        error = errors[:, column]
        typical = float(np.mean(error[random]))
        weight = 1.0 / (error[random] + typical + 1e-300)
        design = basis[random]
        gram = np.linalg.pinv((design * weight[:, None]).T @ design, hermitian=True)
        trend = basis @ (gram @ (design.T @ (weight * flat[random, column])))
        rest = flat[:, column] - trend
        spread = max(float(np.average(rest[random] ** 2 - error[random], weights=weight)), 0.0)
        share = spread / (spread + error + 1e-300)
        shrunk[:, column] = trend + np.sqrt(share) * rest
        leverage = np.einsum("kq,qp,kp->k", basis, gram, basis) * float(weight.mean()) * field.drawn
        trend_variance = typical * leverage / independent
        left[:, column] = np.sqrt(share * error + (1.0 - share) * trend_variance)
    return shrunk.reshape(slopes.shape), left.reshape(slopes.shape)


def worst_draw(mean: Floats, noise: Floats, lowest: Floats, highest: Floats) -> Floats:
    """[K, R, Z] slopes m_z + e s_z at whichever end of the draw's range makes each response's slope longest.

    Args:
        mean: [K, R, Z] slopes of the level.
        noise: [K, R, Z] slopes of the noise level.
        lowest: [R] smallest standardised draw.
        highest: [R] largest.
    """
    ends = [mean + end[None, :, None] * noise for end in (lowest, highest)]
    lengths = [np.linalg.norm(end, axis=2, keepdims=True) for end in ends]
    return np.where(lengths[0] > lengths[1], ends[0], ends[1])


def norms(matrices: Floats, deviations: Floats) -> tuple[Floats, Floats]:
    """[K] spectral norms of matrices [K, R, Z], and their standard deviations from those of the entries."""
    left, values, right = np.linalg.svd(matrices)
    outer = left[:, :, 0, None] * right[:, None, 0, :]
    return values[:, 0], np.sqrt(np.sum((outer * deviations) ** 2, axis=(1, 2)))


def contraction_norm(jacobians: Floats) -> tuple[Floats, float]:
    """A change of coordinates T [X, X] in which successive Jacobians [K, X, X] contract well, and its condition number.

    A gap e has ||T e|| shrink by rho = max ||T J T^-1|| each round, so that ||e_n|| <= cond(T) rho^n ||e_0||. T comes
    from the Lyapunov equation of the mean Jacobian at several decay rates; the one with the smallest
    cond(T) / (1 - rho) is taken, and the identity if nothing is better.
    """
    from scipy.linalg import LinAlgError, cholesky, solve_discrete_lyapunov

    width = jacobians.shape[1]
    best = np.eye(width)
    best_reach = _reach(jacobians, best)
    mean = jacobians.mean(axis=0)
    radius = float(np.max(np.abs(np.linalg.eigvals(mean))))
    for rate in radius + (1.0 - radius) * np.linspace(0.05, 0.95, 10) if radius < 1.0 else ():
        try:
            power = solve_discrete_lyapunov((mean / rate).T, np.eye(width))
            change = np.asarray(cholesky(power))
        except (LinAlgError, ValueError):
            continue
        reach = _reach(jacobians, change)
        if reach < 0.98 * best_reach:
            best, best_reach = change, reach
    return best, float(np.linalg.cond(best))


def _reach(jacobians: Floats, change: Floats) -> float:
    rho = float(np.max(np.linalg.norm(change @ jacobians @ np.linalg.inv(change), ord=2, axis=(1, 2))))
    return (
        float(np.linalg.cond(change)) / (1.0 - rho)
        if rho < 1.0
        else 1e6 * (1.0 + rho)
        if math.isfinite(rho)
        else math.inf
    )
