"""Fit a `tether.Model` to a log: a form of the plant, and ranges for what the form does not explain.

The next state is taken to be form(x, z, a) + w, cut to the limits at which the log shows it to rest, and the cost
that of a form of (x, z, a, next state), plus a draw of its own unless it explains every cost. Forms are fitted by least
squares to the first part of the log. What is left over, the residual, is what is drawn: its range is extrapolated to
operation that is longer than the log (`tether.estimation.extremes`) and widened by a safety factor. The second part
of the log, which no number depends on, says how often that range fails.

**Estimated, not proved.** A promise that rests on such a model holds as far as the ranges do: with the stated
confidence, for operation like the logged one, where the residual does not depend on what an action does to the plant
outside of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.certificates.model import EMPTY, Model, Range, Values
from tether.core import validate
from tether.data.logs import read_blocks
from tether.estimation.estimate import check_claims
from tether.estimation.extremes import fit_tail

Floats = NDArray[np.float64]
MIN_ROWS = 1_000
RESTS = 0.005
"""A share of the rows that have exactly the smallest or largest next state: there it rests."""
EXACT = 1e-6
"""A residual of this share of the values' spread is none."""


@dataclass(frozen=True)
class Fit:
    """How well a model fits the log that it was made from."""

    rows: int
    """That were fitted to."""
    checked: int
    """Later rows, which were held out."""
    outside: int
    """Of these, how many had a residual outside of its range."""
    explained: tuple[float, ...]
    """Share of the variance of each entry of the next state, and of the cost, that the forms explain in held-out
    rows."""
    widths: tuple[float, ...]
    """Of the range of each draw, as a share of the spread (highest minus lowest) of what it is added to."""
    limits: tuple[tuple[float, float], ...]
    """(low, high) at which each entry of the state rests; infinite where it does not."""
    parameters: tuple[float, ...]
    """Of the forms, those of the next state first."""
    confidence: float
    """One-sided, of each end of a range, before the safety factor."""
    safety: float
    times: float
    """How much longer than the log the operation is for which the ranges are."""

    @property
    def proved(self) -> bool:
        """Never: it is fitted."""
        return False

    @property
    def useless(self) -> str | None:
        """Why the model is of no use, or None."""
        wide = [i for i, width in enumerate(self.widths) if width > 0.5]
        if wide:
            return (
                f"useless here, because draw {wide[0]} has a range of {self.widths[wide[0]]:.0%} of the spread of "
                f"what it is added to: the form explains too little; give another one (step=, cost=), or log what "
                f"else the plant sees"
            )
        if self.outside > 0.01 * self.checked:
            return (
                f"useless here, because {self.outside} of {self.checked} held-out rows are outside of the ranges: "
                f"the plant has changed during the log, or the form is wrong where the second part of it goes"
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, fit for JSON."""
        return asdict(self) | {"proved": self.proved, "useless": self.useless}

    def __str__(self) -> str:
        explained = ", ".join(f"{each:.1%}" for each in self.explained)
        lines = [
            f"estimated, not proved: fitted to {self.rows:,} rows, confidence {self.confidence:g}, safety "
            f"{self.safety:g}, for operation {self.times:g} times as long",
            f"  outside of the ranges: {self.outside} of {self.checked:,} held-out rows",
            f"  explained of next state and cost: {explained}",
            f"  ranges of the draws, as a share of what they are added to: "
            f"{', '.join(f'{each:.1%}' for each in self.widths)}",
            *([f"  {self.useless}"] if self.useless else []),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class FittedModel(Model):
    """A `Model` that was fitted to a log; what it rests on is in `fit`."""

    fit: Fit | None = None


class _Rows(NamedTuple):
    """Rows of a log, [N, ...]."""

    state: Floats
    context: Floats
    action: Floats
    cost: Floats
    after: Floats

    def part(self, which: Any) -> _Rows:
        return _Rows(*(each[which] for each in self))


def fit_model(
    logs: Any,
    prior: Callable[[Values, Values], Values],
    *,
    action: Range,
    step: Callable[[Values, Values, Values, Any], Values] | None = None,
    cost: Callable[[Values, Values, Values, Values, Any], Any] | None = None,
    step_parameters: Any = (),
    cost_parameters: Any = (),
    state: Range | None = None,
    context: Range | None = None,
    columns: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    safety: float = 1.2,
    times: float = 20.0,
    held_out: float = 0.3,
    **options: Any,
) -> FittedModel:
    """A model of the plant from its log, with ranges for what it does not explain: estimated, not proved.

    Args:
        logs: As for `tether.estimate`; kept in memory. Actions must vary independently of the state (dither).
        prior: The trusted policy, prior(x, z), written with `jax.numpy`: `tether.compile` needs it as a function.
        action: Range of the actions.
        step: step(x, z, a, theta), written with `jax.numpy` for one round: the next state without noise. By default
            affine in x, z and a.
        cost: cost(x, z, a, after, theta): the round's cost, where `after` is the next state. By default quadratic.
        step_parameters: theta to begin with, [k]; empty if nothing of `step` is to be fitted.
        cost_parameters: The same for `cost`.
        state: Range of the states; by default what was logged, and a quarter more where it does not rest at a limit.
        context: Range of the contexts; by default what was logged.
        columns: See `tether.estimate`.
        confidence: One-sided, of each end of a range of draws.
        safety: Factor on the distance of that end from the middle residual, at least 1.
        times: How much longer than the log the operation is for which the ranges are.
        held_out: Share of the rows, the last ones, by which the fit is judged.
        options: Further fields of the `Model`, such as `backups` or `reward`.

    Example:
        >>> import jax.numpy as jnp
        >>> random = np.random.default_rng(0)
        >>> level, inflow = random.uniform(2.0, 8.0, 4000), random.uniform(0.0, 2.0, 4000)
        >>> valve = np.clip(level + inflow - 5.0 + random.uniform(-0.5, 0.5, 4000), 0.0, 4.0)
        >>> after = level + inflow - 0.9 * valve + random.uniform(-0.1, 0.1, 4000)
        >>> log = {"episode": np.arange(4000), "round": np.zeros(4000), "state": level, "context": inflow}
        >>> log |= {"action": valve, "cost": 1.0 + (after - 5.0) ** 2, "next_state": after}
        >>> model = fit_model(log, lambda x, z: jnp.clip(x + z - 5.0, 0.0, 4.0), action=(0.0, 4.0))
        >>> [round(each, 1) for each in model.fit.parameters[:3]]  # of level, inflow and valve
        [1.0, 1.0, -0.9]
        >>> [round(float(end), 1) for end in model.box("draws")[1]], model.fit.outside, model.fit.useless
        ([0.1], 0, None)
    """
    check_claims(confidence, safety, times)
    if not 0.0 < validate.number("held_out", held_out) < 1.0:
        raise ValueError(f"held_out must be between 0 and 1, got {held_out!r}")
    rows = _read(logs, columns)
    count = round((1.0 - held_out) * len(rows.cost))
    seen = rows.part(slice(None, count))
    limits = _limits(seen.after)
    moved = _Form(
        step or _affine, step_parameters if step else np.zeros(_inputs(rows) + 1), rows.after.shape[1]
    )
    moved = moved.fitted_to(seen, limits)
    paid = _Form(cost or _quadratic, cost_parameters if cost else np.zeros(_terms(rows)), 1, sees_after=True)
    paid = paid.fitted_to(seen, None)
    residuals, widest = _left_over(rows, moved, paid, limits)
    ends = [_extrapolated(each[:count], times, confidence, safety) for each in residuals]
    exact = widest[-1] <= EXACT * max(float(np.ptp(rows.cost)), 1e-300)
    ends = ends[:-1] if exact else ends
    held = residuals[:, count:][: len(ends)]
    outside = np.any(
        [(each < low) | (each > high) for each, (low, high) in zip(held, ends, strict=True)], axis=0
    )
    spreads = [*np.ptp(rows.after, axis=0), np.ptp(rows.cost)]
    fit = Fit(
        rows=count,
        checked=len(rows.cost) - count,
        outside=int(np.sum(outside)),
        explained=_explained(rows.part(slice(count, None)), moved, paid, limits),
        widths=tuple(
            (high - low) / max(float(s), 1e-300) for (low, high), s in zip(ends, spreads, strict=False)
        ),
        limits=tuple((float(low), float(high)) for low, high in limits.T),
        parameters=(*moved.theta.ravel().tolist(), *paid.theta.ravel().tolist()),
        confidence=confidence,
        safety=safety,
        times=times,
    )
    return _made(rows, moved, paid, limits, ends, fit, prior, action, state, context, exact, options)


def _read(logs: Any, columns: Mapping[str, Any] | None) -> _Rows:
    _, blocks = read_blocks(logs, columns)
    parts = [(each.state, each.context, each.action, each.cost, each.next_state) for each in blocks]
    rows = _Rows(*(np.concatenate(each) for each in zip(*parts, strict=True))) if parts else None
    if rows is None or len(rows.cost) < MIN_ROWS:
        found = 0 if rows is None else len(rows.cost)
        raise ValueError(f"{found} rounds are too few to fit a model; log at least {MIN_ROWS}")
    for name in ("state", "action"):
        values = getattr(rows, name)
        if np.any(np.ptp(values, axis=0) <= 0.0):
            raise ValueError(
                f"a column of {name} never varies: log operation in which it does, with a dither on the actions"
            )
    return rows


def _inputs(rows: _Rows) -> int:
    return int(rows.state.shape[1] + rows.context.shape[1] + rows.action.shape[1])


def _terms(rows: _Rows) -> int:
    inputs = _inputs(rows) + int(rows.after.shape[1])
    return 1 + inputs + inputs * (inputs + 1) // 2


def _limits(after: Floats) -> Floats:
    """[2, n] where each entry of the next state rests; infinite where it does not."""
    low, high = after.min(axis=0), after.max(axis=0)
    rests = [np.mean(after == end, axis=0) >= RESTS for end in (low, high)]
    return np.array([np.where(rests[0], low, -np.inf), np.where(rests[1], high, np.inf)])


def _affine(x: Any, z: Any, a: Any, theta: Any) -> Any:
    """Theta is [k + 1, n]."""
    import jax.numpy as jnp

    inputs = jnp.concatenate([jnp.reshape(each, (-1,)) for each in (x, z, a)])
    return inputs @ theta[:-1] + theta[-1]


def _quadratic(x: Any, z: Any, a: Any, after: Any, theta: Any) -> Any:
    """1, the inputs and their products, times theta."""
    import jax.numpy as jnp

    inputs = jnp.concatenate([jnp.reshape(each, (-1,)) for each in (x, z, a, after)])
    pairs = jnp.outer(inputs, inputs)[np.triu_indices(inputs.shape[0])]
    return jnp.concatenate([jnp.ones(1, inputs.dtype), inputs, pairs]) @ jnp.reshape(theta, (-1,))


@dataclass(frozen=True, eq=False)
class _Form:
    """A function of a round with parameters, fitted or to be fitted."""

    function: Callable[..., Any]
    start: Any
    outputs: int
    sees_after: bool = False
    fitted: Floats | None = None

    @property
    def theta(self) -> Floats:
        return np.asarray(self.start, dtype=float) if self.fitted is None else self.fitted

    def of(self, rows: _Rows, theta: Any = None) -> Any:
        """[N, outputs]."""
        import jax
        import jax.numpy as jnp

        theta = jnp.asarray(self.theta if theta is None else theta)

        def one(x: Any, z: Any, a: Any, after: Any) -> Any:
            more = (after,) if self.sees_after else ()
            return jnp.reshape(self.function(x, z, a, *more, theta), (self.outputs,))

        return jax.vmap(one)(
            *(jnp.asarray(_narrow(each)) for each in (rows.state, rows.context, rows.action, rows.after))
        )

    def fitted_to(self, rows: _Rows, limits: Floats | None) -> _Form:
        """By least squares; rows whose fitted value is near a limit at which the state rests say nothing."""
        import jax

        if self.theta.size == 0:
            return self
        target = rows.cost[:, None] if self.sees_after else rows.after
        shape = (len(self.theta), self.outputs) if self.function is _affine else self.theta.shape
        theta = (
            np.broadcast_to(self.theta.reshape(len(self.theta), -1), shape)
            if self.function is _affine
            else self.theta
        )
        used = np.ones(len(target), dtype=bool)
        if limits is not None:
            used = np.all((target > limits[0]) & (target < limits[1]), axis=1)
        with jax.enable_x64(True):
            for _ in range(1 if limits is None or np.all(np.isinf(limits)) else 6):
                part, goal = rows.part(used), target[used]

                theta = self._solved(part, goal, theta)
                if limits is None:
                    break
                value = np.asarray(self.of(rows, theta))
                off = np.max(np.abs(np.asarray(self.of(part, theta)) - goal), axis=0)
                chosen = np.all((value > limits[0] + off) & (value < limits[1] - off), axis=1)
                if np.sum(chosen) < MIN_ROWS // 4 or np.array_equal(chosen, used):
                    break
                used = chosen
        return _Form(self.function, self.start, self.outputs, self.sees_after, theta)

    def _solved(self, rows: _Rows, goal: Floats, theta: Floats) -> Floats:
        """The parameters of least squares, from these on."""
        import jax
        from scipy.optimize import least_squares

        def left(flat: Any) -> Any:
            return (self.of(rows, flat.reshape(theta.shape)) - goal).ravel()

        slopes = jax.jit(jax.jacfwd(left))
        found = least_squares(
            lambda flat: np.asarray(left(flat)), theta.ravel(), jac=lambda flat: np.asarray(slopes(flat))
        )
        solved: Floats = found.x.reshape(theta.shape)
        return solved


def _narrow(values: Floats) -> Floats:
    """Numbers where there is one of them, as in the model."""
    return values[:, 0] if values.shape[1] == 1 else values


def _left_over(rows: _Rows, moved: _Form, paid: _Form, limits: Floats) -> tuple[Floats, Floats]:
    """[n + 1, N] what the forms leave of next state and cost, and the largest of each.

    Where the state rests at its lower limit, any draw of at most (limit - form) explains it: the nearest to 0 counts.
    """
    import jax

    with jax.enable_x64(True):
        value, cost = np.asarray(moved.of(rows)), np.asarray(paid.of(rows))[:, 0]
    left = rows.after - value
    left = np.where(rows.after <= limits[0], np.minimum(left, 0.0), left)
    left = np.where(rows.after >= limits[1], np.maximum(left, 0.0), left)
    residuals = np.concatenate([left.T, (rows.cost - cost)[None]])
    return residuals, np.max(np.abs(residuals), axis=1)


def _extrapolated(values: Floats, times: float, confidence: float, safety: float) -> tuple[float, float]:
    middle = float(np.median(values))
    ends = [fit_tail(sign * values, times=times, confidence=confidence).upper for sign in (1.0, -1.0)]
    return middle - safety * (middle + ends[1]), middle + safety * (ends[0] - middle)


def _explained(rows: _Rows, moved: _Form, paid: _Form, limits: Floats) -> tuple[float, ...]:
    import jax

    with jax.enable_x64(True):
        value, cost = np.asarray(moved.of(rows)), np.asarray(paid.of(rows))
    found = np.concatenate([np.clip(value, *limits), cost], axis=1)
    goal = np.concatenate([rows.after, rows.cost[:, None]], axis=1)
    spread = np.maximum(np.var(goal, axis=0), 1e-300)
    return tuple((1.0 - np.mean((goal - found) ** 2, axis=0) / spread).tolist())


def _made(
    rows: _Rows,
    moved: _Form,
    paid: _Form,
    limits: Floats,
    ends: list[tuple[float, float]],
    fit: Fit,
    prior: Callable[[Values, Values], Values],
    action: Range,
    state: Range | None,
    context: Range | None,
    exact: bool,
    options: Mapping[str, Any],
) -> FittedModel:
    n = rows.state.shape[1]
    both = np.concatenate([rows.state, rows.after])
    low, high = both.min(axis=0), both.max(axis=0)
    quarter = 0.25 * (high - low)
    low = np.where(np.isfinite(limits[0]), limits[0], low - quarter)
    high = np.where(np.isfinite(limits[1]), limits[1], high + quarter)
    shape = () if n == 1 else (n,)
    held = (low.reshape(shape), high.reshape(shape)) if state is None else state
    seen = rows.context
    inside = EMPTY if not seen.shape[1] else (_ends(seen.min(axis=0)), _ends(seen.max(axis=0)))
    drawn = np.array(ends).T
    drawn_range = (drawn[0], drawn[1])
    # Plain numbers of the program, in whatever type it computes.
    after_theta, cost_theta = moved.theta, paid.theta
    bounded = np.isfinite(limits)

    def after(x: Values, z: Values, a: Values, w: Values) -> Values:
        import jax.numpy as jnp

        found = jnp.reshape(moved.function(x, z, a, after_theta), (n,)) + w[:n]
        if np.any(bounded[0]):
            found = jnp.maximum(found, limits[0])
        if np.any(bounded[1]):
            found = jnp.minimum(found, limits[1])
        return jnp.reshape(found, shape)

    def cost(x: Values, z: Values, a: Values, w: Values) -> Any:
        import jax.numpy as jnp

        found = jnp.reshape(paid.function(x, z, a, after(x, z, a, w), cost_theta), ())
        return found if exact else found + w[n]

    return FittedModel(
        step=after,
        cost=cost,
        prior=prior,
        state=held,
        action=action,
        context=inside if context is None else context,
        draws=drawn_range,
        fit=fit,
        **options,
    )


def _ends(values: Floats) -> Any:
    return values if len(values) > 1 else float(values[0])
