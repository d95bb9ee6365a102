"""What the compiler found out about a model, in numbers that a control engineer knows: slopes, gains, contraction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates.cells import cut
from tether.certificates.explain import finite
from tether.certificates.explain_model import looked_at
from tether.certificates.intervals import Interval
from tether.certificates.model import Model, Range

PIECES = 512
"""Of the ranges of a model, over which slopes are taken."""


@dataclass(frozen=True)
class Found:
    """What holds anywhere in the ranges of a model."""

    sizes: tuple[int, int, int, int]
    """Numbers in state, context, action and draw."""
    invariant: bool
    """Whether the prior keeps the state in its range."""
    rate: float | None
    """rho, by which gaps shrink a round under the prior in the norm max |e_i| / weights_i; None if they need not."""
    weights: tuple[float, ...] | None
    """[n] of that norm."""
    slopes: tuple[tuple[float, ...], ...]
    """[to][from] largest slope of the next state in the state, the prior playing: a gap of 1 becomes at most this."""
    cost_slopes: tuple[float, ...]
    """[n] largest slope of the cost in the state, the prior playing, cost units a state unit."""
    cost_gains: tuple[float, ...]
    """[m] largest slope of the cost in the action, cost units an action unit."""
    state_gains: tuple[tuple[float, ...], ...]
    """[m][n] largest slope of the next state in the action."""
    least_cost: float
    """No round costs less, whoever acts; a bound, which need not be reached."""
    largest_cost: float
    """No round of the prior costs more."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, fit for JSON; what is infinite is None."""
        plain: dict[str, Any] = finite(asdict(self))
        return plain


def found(certificate: Any, action: Range | None = None) -> Found:
    """What is known of the model of a compiled certificate.

    Args:
        certificate: As `tether.compile` gives it.
        action: Finite range of actions, where the model's is not.
    """
    structure = certificate.system
    survey, contraction = structure._survey, structure.contraction
    least, cost_gains, state_gains = _gains(structure.model, action)
    return Found(
        sizes=structure.model.sizes,
        invariant=bool(survey.invariant),
        rate=None if contraction is None else float(contraction.rate),
        weights=None if contraction is None else tuple(map(float, contraction.weights)),
        slopes=_rows(np.asarray(survey.slopes).T),
        cost_slopes=tuple(np.asarray(survey.cost_slopes).tolist()),
        cost_gains=tuple(cost_gains.tolist()),
        state_gains=_rows(state_gains),
        least_cost=least,
        largest_cost=float(survey.largest_cost),
    )


def least_cost(model: Model, action: Range | None = None) -> float:
    """A cost that no round goes below, whoever acts, at least 0: what a contract's floor can be.

    Args:
        model: The plant.
        action: Finite range of actions, where the model's is not.

    Example:
        >>> tank = Model(
        ...     step=lambda x, z, a, w: x - a,
        ...     cost=lambda x, z, a, w: 1.0 + (x - a) ** 2,
        ...     prior=lambda x, z: 0.5 * x,
        ...     state=(0.0, 1.0),
        ...     action=(0.0, 1.0),
        ... )
        >>> round(least_cost(tank), 6)
        1.0
    """
    return _gains(model, action)[0]


def _gains(model: Model, action: Range | None) -> tuple[float, Any, Any]:
    """(least cost, [m] slopes of the cost in the action, [m, n] of the next state)."""
    n, nz, m, _ = model.sizes
    parts = [model.box("state"), model.box("context"), model.box("action"), model.box("draws")]
    if action is not None:
        parts[2] = tuple(np.broadcast_to(np.asarray(end, dtype=float), (m,)) for end in action)  # type: ignore[assignment]
    low, high = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    if not np.all(np.isfinite([low, high])):
        return 0.0, np.full(m, np.inf), np.full((m, n), np.inf)

    def played(u: Any) -> Any:
        places = np.cumsum([n, nz, m])
        x, z, a, w = (
            jnp.reshape(each, shape) for each, shape in zip(jnp.split(u, places), model.shapes, strict=True)
        )
        cost = jnp.reshape(jnp.asarray(model.cost(x, z, a, w), u.dtype), (1,))
        return jnp.concatenate([cost, jnp.reshape(jnp.asarray(model.step(x, z, a, w), u.dtype), (-1,))])

    @jax.jit
    def survey(pieces: Interval) -> Any:
        found, sizes = jax.vmap(lambda piece: looked_at(played, piece))(pieces)
        return jnp.min(found.low[:, 0]), jnp.max(sizes, axis=0)

    pieces = cut(low, high, PIECES, np.ones(len(low)))
    with jax.enable_x64(True):
        least, sizes = survey(Interval(jnp.asarray(pieces.low), jnp.asarray(pieces.high)))
    steep = np.asarray(sizes)[n + nz : n + nz + m]
    return max(float(least), 0.0) if np.isfinite(least) else 0.0, steep[:, 0], steep[:, 1:]


def _rows(matrix: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in np.asarray(matrix).tolist())
