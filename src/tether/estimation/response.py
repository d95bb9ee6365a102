"""Cost and next state as functions of state, context and deviation, fitted to a sample: their steepest slopes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tether.estimation.extremes import fit_tail
from tether.estimation.local_slopes import Field, fit_field, fit_noise, shrink, worst_draw

Floats = NDArray[np.float64]
Direction = Literal["action", "state", "state, action held"]
"""In what a slope is taken: the action; the state, the prior acting; the state, the action held."""
COST, NEXT_STATE = slice(0, 1), slice(1, None)
"""Which responses a slope is of."""


@dataclass(frozen=True)
class Response:
    """Local fits at K anchors: R = 1 + X responses (cost, next state) in Z coordinates (state, context, deviation)."""

    field: Field
    mean: Floats
    """[K, R, Z] slopes of the level ..."""
    noise: Floats
    """[K, R, Z] ... and of the noise level."""
    bend: Floats
    """[K, R, Z, S] how the slopes of the level change with the deviation."""
    error: Floats
    """[K, R, Z] standard error of the slopes where the prior acts ..."""
    error_dithered: Floats
    """[K, R, Z] ... and anywhere in the dither."""
    lowest: Floats
    """[R] smallest standardised draw, the return level ..."""
    highest: Floats
    """[R] ... and the largest."""
    corners: list[Floats]
    """Deviations [S] at which slopes are taken: the middle of the dither first, then its corners."""
    reaction: Floats
    """[K, A, X] slope of the prior's action in the state."""
    in_state: slice
    in_action: slice
    least_costs: Floats
    """[M] fitted cost of each row less the largest draw."""

    def steepest(self, direction: Direction, of: slice) -> tuple[Floats, Floats]:
        """[K, R, Z] the longest slopes over corners of the dither and ends of the draws, and their errors."""
        found = []
        for corner in self.corners[:1] if direction == "state" else self.corners:
            level = self._along(direction, self.mean + self.bend @ corner)
            noise = self._along(direction, self.noise)
            found.append(worst_draw(level, noise, self.lowest, self.highest)[:, of])
        lengths = np.stack([np.linalg.norm(each, ord=2, axis=(1, 2)) for each in found])
        chosen = np.stack(found)[np.argmax(lengths, axis=0), np.arange(len(self.mean))]
        return chosen, self._error_along(direction)[:, of]

    def _along(self, direction: Direction, slopes: Floats) -> Floats:
        if direction == "action":
            return slopes[..., self.in_action]
        if direction == "state":
            return slopes[..., self.in_state]
        return np.asarray(slopes[..., self.in_state] - slopes[..., self.in_action] @ self.reaction)

    def _error_along(self, direction: Direction) -> Floats:
        if direction == "state":
            return self.error[..., self.in_state]
        wide = self.error_dithered
        if direction == "action":
            return wide[..., self.in_action]
        return np.asarray(
            np.sqrt(wide[..., self.in_state] ** 2 + wide[..., self.in_action] ** 2 @ self.reaction**2)
        )


def fit_response(
    places: Floats,
    conditions: Floats,
    deviation: Floats,
    responses: Floats,
    prior_field: Field,
    random: np.random.Generator,
    *,
    states: int,
    dithered: bool,
    tail: dict[str, Any],
) -> Response:
    """Fit level, noise and slopes of the responses.

    Args:
        places: [M, P] what nearness is judged by.
        conditions: [M, X + W] state and context.
        deviation: [M, A] of the action from the prior's.
        responses: [M, 1 + X] cost and next state.
        prior_field: Local fits of the prior's action.
        random: Draws the anchors.
        states: X.
        dithered: Whether the deviation varies; if not, no slope in the action is found.
        tail: Options of `fit_tail` for the draws.
    """
    coordinates = np.hstack([conditions, deviation]) if dithered else conditions
    actions = deviation.shape[1]
    small = actions if dithered else 0
    field = fit_field(places, coordinates, responses, random, small)
    level = field.level(coordinates)
    noises = [fit_noise(coordinates, column, field.anchors) for column in (responses - level).T]
    noise = np.column_stack([each.level for each in noises])
    standard = np.divide(responses - level, noise, out=np.zeros_like(level), where=noise > 0.0)
    ends = [(fit_tail(-column, **tail), fit_tail(column, **tail)) for column in standard.T]
    lowest, highest = np.array([-low.level for low, _ in ends]), np.array([high.level for _, high in ends])
    mean, mean_error = shrink(field, field.slopes.mean, field.slopes.variance)
    noise_error = np.stack([each.errors for each in noises], axis=1)
    largest_draw = np.maximum(np.abs(lowest), highest)[None, :, None]
    error = np.sqrt(mean_error**2 + (largest_draw * noise_error) ** 2)
    bend, bend_error = _told_from_zero(*shrink(field, field.slopes.bend, field.slopes.bend_variance))
    # The region that is claimed includes the dither: slopes are taken at its corners as well as in its middle.
    # Where the prior acts there is no dither, only the middle.
    width = np.quantile(np.abs(deviation), 0.99, axis=0)[:small]
    signs = product((-1.0, 1.0), repeat=small) if small else ()
    return Response(
        field=field,
        mean=mean,
        noise=np.stack([each.slopes for each in noises], axis=1),
        bend=bend,
        error=error,
        error_dithered=np.sqrt(error**2 + bend_error**2 @ width**2),
        lowest=lowest,
        highest=highest,
        corners=[np.zeros(small), *(np.array(each) * width for each in signs)],
        reaction=np.asarray(prior_field.slopes.mean[..., :states][prior_field.nearest[field.anchors]]),
        in_state=slice(0, states),
        in_action=slice(conditions.shape[1], conditions.shape[1] + actions),
        least_costs=level[:, 0] - ends[0][0].upper * noise[:, 0],
    )


def _told_from_zero(bend: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Second derivatives, shrunk by how well they are told from 0, and their errors."""
    power, doubt = np.mean(bend**2, axis=0), np.mean(error**2, axis=0)
    return bend * np.maximum(1.0 - 2.0 * doubt / np.maximum(power, 1e-300), 0.0), error
