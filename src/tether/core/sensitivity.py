"""How strongly a deviation from the prior can move the cost, now and later.

A deviation d_j = ||a_j - prior(x_j)|| at round j changes the cost of round i by at most q_{j,i} d_j:

    q_{j,j} = immediate
    q_{j,i} = carried * p(i - 1 - j)   for i > j

where p is the prior's perturbation function: under the prior, two trajectories that differ by e at
one round differ by at most p(n) * e after n more rounds, and p(0) = 1.

The past enters the guard only through sums of p-weighted deviations. A perturbation therefore also
knows how to remember them: `Geometric` in one number, whatever the horizon; `Table` in a vector.
Every function that takes `ops` is pure and works on floats, NumPy and JAX arrays (see `tether.core.ops`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from tether.core import validate
from tether.core.contract import Contract
from tether.core.ops import Flag, Number, Ops
from tether.core.schedule import Horizon


@dataclass(frozen=True)
class Geometric:
    """The perturbation function p(n) = scale * rho**n; made by `geometric`.

    Its memory is one number, m_h = sum_{j<h} rho**(h-1-j) d_j, in units of action.
    """

    rho: float
    scale: float = 1.0
    _log_rho: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", validate.number("rho", self.rho, minimum=0.0))
        # p(n) = 1e-300**n stands for 0**n: an over-estimate, so it is sound, and it has a logarithm.
        object.__setattr__(self, "_log_rho", math.log(max(self.rho, 1e-300)))
        object.__setattr__(self, "scale", validate.number("scale", self.scale))
        if self.scale < 1.0:
            raise ValueError(f"scale must be at least 1 because p(0) = 1, got {self.scale!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers that describe it, fit for JSON."""
        return {"kind": "geometric", "rho": self.rho, "scale": self.scale}

    @cached_property
    def settled(self) -> int:
        """For rho < 1 the number of rounds after which p has faded to round-off: all of it together is below eps/8."""
        return 2 + math.ceil(math.log(sys.float_info.epsilon * (1.0 - self.rho) / 8.0) / self._log_rho)

    def check_horizon(self, horizon: Horizon, *, scheduled: bool = False) -> None:
        """Refuse a horizon over which p leaves the range of floating-point numbers, or which it does not end.

        Args:
            horizon: Number of rounds, or `math.inf`.
            scheduled: Whether the contract has a schedule, so that rounds are looked at one by one.
        """
        if horizon == math.inf and self.rho >= 1.0:
            raise ValueError(
                f"horizon=math.inf needs a prior that forgets, rho < 1, got geometric({self.rho:g}): what one "
                "deviation can cost has no bound; use a horizon that ends"
            )
        if scheduled and self.rounds_ahead(horizon) > 1_000_000:
            raise ValueError(
                f"with a schedule {self.rounds_ahead(horizon)} rounds are looked at one by one for geometric("
                f"{self.rho:g}), more than 1000000; use one lam and one b, a larger rate of forgetting or a shorter "
                "horizon"
            )
        if self._log_rho * horizon + math.log(self.scale) > 700.0:
            raise ValueError(
                f"geometric({self.rho:g}) grows to about 1e{int(self._log_rho * horizon / math.log(10))} "
                f"over a horizon of {horizon}, beyond floating point; with such a prior no deviation is "
                "safe over that horizon: use a shorter horizon or a prior that contracts"
            )

    def rounds_ahead(self, horizon: Horizon) -> int:
        """How many rounds to look at one by one: beyond them no round is the first to break the promise."""
        return int(horizon if self.rho >= 1.0 else min(horizon, self.settled))

    def round_off_growth(self, horizon: Horizon) -> float:
        """How many units of round-off the evaluation of p, or the memory, can add over the horizon.

        Without a last round: a deviation of k rounds ago was multiplied by rho and rounded k times, so that the memory
        is off by at most eps times the mean age of what is in it, 1 / (1 - rho).
        """
        if horizon == math.inf:
            return 1.0 / (1.0 - self.rho)
        return float(horizon * max(self._log_rho, 0.0))

    def empty(self, horizon: int, ops: Ops, zero: Number) -> Number:  # noqa: ARG002
        """The memory before any deviation."""
        return zero

    def remember(self, memory: Number, deviation: Number, ops: Ops) -> Number:  # noqa: ARG002
        """The memory one round later, after `deviation`."""
        return self.rho * memory + deviation

    def carried_deviation(self, memory: Number) -> Number:
        """sum_{j<h} p(h-1-j) d_j: the past deviations as they act on the cost of this round."""
        return self.scale * memory

    def sum_over(self, rounds: Number, ops: Ops) -> Number:
        """sum_{n<rounds} p(n): how long a unit deviation lasts over so many later rounds."""
        if self.rho == 1.0:
            return self.scale * rounds
        return self.scale * ops.expm1_multiple(rounds, self._log_rho) / (self.rho - 1.0)

    def carried_deviation_over(self, memory: Number, rounds: Number, ops: Ops) -> Number:
        """The past deviations as they act on the costs of this and the following rounds, `rounds` in all."""
        return memory * self.sum_over(rounds, ops)

    def least_ratio(
        self,
        base: Number,
        slope: Number,
        immediate: Number,
        carried: Number,
        memory: Number,
        remaining: Number,
        horizon: int,
        ops: Ops,
    ) -> Number:
        """The smallest ratio of slack to weight over the rounds to come.

        Of k = 1..remaining, the smallest

            (base + k*slope - carried*carried_deviation_over(k)) / (immediate + carried*sum_over(k-1))

        For rho < 1 the numerator is convex in k and the denominator concave, so the ratio falls and then
        rises, and bisection on its sign of change finds the turning point. For rho >= 1 the numerator is
        concave and the denominator convex: the smallest ratio is at an end. Both ends are always looked at.
        """
        rho, log_rho, reach = self.rho, self._log_rho, carried * self.scale
        pull = reach * memory

        def parts(rounds: Number) -> tuple[Number, Number, Number]:
            """(numerator, denominator, p of the last of these rounds over the scale)."""
            faded = ops.expm1_multiple(rounds - 1.0, log_rho)
            reached = rounds - 1.0 if rho == 1.0 else faded / (rho - 1.0)
            weight = 1.0 + faded
            return base + rounds * slope - pull * (reached + weight), immediate + reach * reached, weight

        numerator, denominator, _ = parts(remaining)
        least = ops.minimum((base + slope - pull) / immediate, numerator / denominator)
        if rho >= 1.0:
            return least

        faded_pull = pull * rho
        # Relative to the larger of the two, so that products of small costs with small constants do not vanish.
        unit = ops.maximum(immediate, reach)
        far = reach / unit
        settled = self.settled  # beyond it the ratio only rises, or is flat
        last = ops.minimum(remaining, settled)

        def falls(rounds: Number) -> Flag:
            numerator, denominator, weight = parts(rounds)
            return (slope - faded_pull * weight) * (denominator / unit) < numerator * far * weight

        turn = ops.turning(falls, last, min(horizon, settled))

        def turned() -> Number:
            numerator, denominator, _ = parts(turn)
            return ops.minimum(least, numerator / denominator)

        return ops.unless(turn <= 1.0, least, turned)  # the first round was looked at already

    def least_ratio_ahead(
        self,
        base: Number,
        earned: Any,
        immediate: Number,
        carried: Number,
        memory: Number,
        remaining: Number,
        ops: Ops,
    ) -> Number:
        """See `least_ratio`; here `earned` [..., K] has what the next k rounds earn in place of k*slope.

        Every k = 1..K is looked at; K is `rounds_ahead`. For rho < 1 and k beyond it the numerator only grows, since
        no round earns less than nothing, and the denominator stays what it is.
        """
        rounds = ops.arange(1, earned.shape[-1] + 1)
        carried_over = self.carried_deviation_over(ops.asarray(memory)[..., None], rounds, ops)
        numerator = ops.asarray(base)[..., None] + earned - carried * carried_over
        denominator = immediate + carried * self.sum_over(rounds - 1, ops)
        counted = rounds <= ops.asarray(remaining)[..., None]
        least: Number = ops.min(ops.where(counted, numerator / denominator, math.inf), axis=-1)
        return least


@dataclass(frozen=True, eq=False)
class Table:
    """A perturbation function given value by value, p(0), p(1), ...; made by `table`.

    Its memory is the vector of sum_{j<h} p(h-1-j+t) d_j for t = 0, 1, ..., in units of action: what
    the past deviations still amount to in this round, the next, and so on.
    """

    values: Any
    """[P + 1] p(0), p(1), ..., p(P-1), and a closing 0."""
    sums: Any
    """[P + 1] sums[k] = p(0) + ... + p(k-1)."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(tuple(np.asarray(self.values).tolist()))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers that describe it, fit for JSON."""
        return {"kind": "table", "values": np.asarray(self.values)[:-1].tolist()}

    def check_horizon(self, horizon: Horizon, *, scheduled: bool = False) -> None:  # noqa: ARG002
        """Refuse a horizon that needs more values than there are."""
        if horizon == math.inf:
            raise ValueError(
                "horizon=math.inf needs a perturbation function that fades for ever, and a table ends; use "
                "geometric(rho, scale) with rho < 1"
            )
        if len(self.values) < horizon:
            raise ValueError(
                f"a horizon of {horizon} needs p(0) to p({horizon - 2}), {horizon - 1} values, but the table has "
                f"{len(self.values) - 1}; add values, or use geometric(rho, scale) for a bound at every n"
            )

    def rounds_ahead(self, horizon: int) -> int:
        """How many rounds to look at one by one: all."""
        return horizon

    def round_off_growth(self, horizon: int) -> float:
        """How many units of round-off the evaluation of p can add over the horizon."""
        return float(horizon)

    def empty(self, horizon: int, ops: Ops, zero: Number) -> Any:
        """The memory before any deviation."""
        return ops.zeros(horizon) + zero

    def remember(self, memory: Any, deviation: Number, ops: Ops) -> Any:
        """The memory one round later, after `deviation`."""
        later = ops.concat([memory[..., 1:], ops.zeros_like(memory[..., :1])], axis=-1)
        return later + ops.asarray(deviation)[..., None] * ops.asarray(self.values)[: memory.shape[-1]]

    def carried_deviation(self, memory: Any) -> Any:
        """sum_{j<h} p(h-1-j) d_j: the past deviations as they act on the cost of this round."""
        return memory[..., 0]

    def sum_over(self, rounds: Number, ops: Ops) -> Any:
        """sum_{n<rounds} p(n): how long a unit deviation lasts over so many later rounds."""
        return ops.asarray(self.sums)[ops.asarray(rounds, dtype="int32")]

    def carried_deviation_over(self, memory: Any, rounds: Number, ops: Ops) -> Any:
        """The past deviations as they act on the costs of this and the following rounds, `rounds` in all."""
        counted = ops.arange(memory.shape[-1]) < ops.asarray(rounds)[..., None]
        return ops.sum(ops.where(counted, memory, 0.0), axis=-1)

    def least_ratio(
        self,
        base: Number,
        slope: Number,
        immediate: Number,
        carried: Number,
        memory: Any,
        remaining: Number,
        horizon: int,
        ops: Ops,
    ) -> Any:
        """See `Geometric.least_ratio`; here every k is looked at."""
        rounds = ops.arange(1, horizon + 1)
        return self.least_ratio_ahead(base, rounds * slope, immediate, carried, memory, remaining, ops)

    def least_ratio_ahead(
        self,
        base: Number,
        earned: Any,
        immediate: Number,
        carried: Number,
        memory: Any,
        remaining: Number,
        ops: Ops,
    ) -> Any:
        """See `Geometric.least_ratio_ahead`; `earned` is [..., H]."""
        rounds = ops.arange(1, earned.shape[-1] + 1)
        numerator = ops.asarray(base)[..., None] + earned - carried * ops.cumulative_sum(memory, axis=-1)
        denominator = immediate + carried * ops.asarray(self.sums)[: earned.shape[-1]]
        counted = rounds <= ops.asarray(remaining)[..., None]
        return ops.min(ops.where(counted, numerator / denominator, math.inf), axis=-1)


Perturbation = Geometric | Table


def geometric(rho: float, scale: float = 1.0) -> Geometric:
    """The perturbation function p(n) = scale * rho**n.

    Args:
        rho: How much of a perturbation is left after one round under the prior. Below 1 the prior
            forgets; 1 and above is allowed (an integrator, an unstable prior) and leaves little freedom.
        scale: At least 1. Any p dominated by scale * rho**n may be given as such.

    Example:
        >>> from tether.core.ops import NUMPY
        >>> p = geometric(0.5)
        >>> float(p.sum_over(3, NUMPY))  # p(0) + p(1) + p(2)
        1.75
    """
    return Geometric(rho, scale)


def table(values: Sequence[float]) -> Table:
    """A perturbation function given value by value: p(0), p(1), p(2), ...

    Args:
        values: At least horizon - 1 values, each finite and at least 0, the first at least 1.

    Example:
        >>> from tether.core.ops import NUMPY
        >>> p = table([1.0, 1.5, 0.5])  # grows for a round, then fades
        >>> float(p.sum_over(3, NUMPY))
        3.0
    """
    p = np.asarray(values, dtype=float)
    if p.ndim != 1 or p.size == 0:
        raise ValueError(f"a perturbation table is a non-empty list of numbers, got shape {p.shape}")
    bad = np.flatnonzero(~(np.isfinite(p) & (p >= 0.0)))
    if bad.size:
        raise ValueError(f"p({bad[0]}) must be finite and at least 0, got {p[bad[0]]}")
    if p[0] < 1.0:
        raise ValueError(f"p(0) must be at least 1 (a perturbation is itself after no rounds), got {p[0]}")
    return Table(values=np.append(p, 0.0), sums=np.append(0.0, np.cumsum(p)))


def perturbation_from_dict(description: dict[str, Any]) -> Perturbation:
    """The perturbation function that `to_dict` described."""
    if description["kind"] == "geometric":
        return geometric(description["rho"], description["scale"])
    if description["kind"] == "table":
        return table(description["values"])
    raise ValueError(f"perturbation kind must be 'geometric' or 'table', got {description['kind']!r}")


@dataclass(frozen=True)
class Sensitivity:
    """What is known of the system under its prior: the guard needs these numbers and no model.

    Over-estimates are sound; they only cost reward.

    Args:
        immediate: Largest change of a round's cost per unit of deviation in that round (the paper's L_c),
            in cost per action. Greater than 0.
        carried: Largest change of the next round's cost per unit of deviation, when the prior plays that
            round (the paper's L_c (1 + L_pi) L_f), in cost per action. At least 0.
        perturbation: `geometric(rho)` or `table([...])`: how it fades (or grows) after that.

    Example:
        >>> Sensitivity(immediate=31.0, carried=2.875, perturbation=geometric(0.25))
        Sensitivity(immediate=31.0, carried=2.875, perturbation=Geometric(rho=0.25, scale=1.0))
    """

    immediate: float
    carried: float
    perturbation: Perturbation

    def __post_init__(self) -> None:
        object.__setattr__(self, "immediate", validate.number("immediate", self.immediate, above=0.0))
        object.__setattr__(self, "carried", validate.number("carried", self.carried, minimum=0.0))
        if not isinstance(self.perturbation, Geometric | Table):
            raise TypeError(
                f"perturbation must be tether.geometric(rho) or tether.table([...]), got {self.perturbation!r}"
            )

    @classmethod
    def from_lipschitz(cls, L_c: float, L_f: float, L_pi: float, p: Perturbation) -> Sensitivity:
        """The two numbers from Lipschitz constants, as in the paper's Proposition 4.1.

        Args:
            L_c: Lipschitz constant of the cost, in state and in action.
            L_f: Lipschitz constant of the dynamics in the action.
            L_pi: Lipschitz constant of the prior.
            p: The prior's perturbation function.

        Example:
            >>> Sensitivity.from_lipschitz(L_c=2.0, L_f=0.5, L_pi=1.0, p=geometric(0.9)).carried
            2.0
        """
        L_c = validate.number("L_c", L_c, above=0.0)
        L_f = validate.number("L_f", L_f, minimum=0.0)
        L_pi = validate.number("L_pi", L_pi, minimum=0.0)
        return cls(immediate=L_c, carried=L_c * (1.0 + L_pi) * L_f, perturbation=p)

    @property
    def proved(self) -> bool:
        """Whether the numbers are bounds rather than estimates; the promise holds as far as they do."""
        return True

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe it exactly, fit for JSON."""
        numbers = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**numbers, "perturbation": self.perturbation.to_dict(), "proved": self.proved}


@dataclass(frozen=True)
class EstimatedSensitivity(Sensitivity):
    """A `Sensitivity` whose numbers are estimates: the promise holds as far as they do.

    Args:
        immediate: See `Sensitivity`.
        carried: See `Sensitivity`.
        perturbation: See `Sensitivity`.
        confidence: One-sided confidence of each estimate, before its safety factor.
        safety: That factor.
        rows: Rows of the log.
    """

    confidence: float = 0.95
    safety: float = 1.0
    rows: int = 0

    @property
    def proved(self) -> bool:
        """Whether the constants are proved: never, as they are estimates."""
        return False

    def signed(self, contract: Contract) -> Contract:
        """The contract with the probability that it has with these constants.

        There are three estimates, `immediate`, `carried` and the perturbation function, and each may fail; they are
        made once, so that the probability is that of the log, for all later episodes together. The safety factor is
        not counted: it makes up for what the estimate's own model of the log leaves out.

        Args:
            contract: The promise, without these constants.

        Example:
            >>> from tether import Contract
            >>> bounds = EstimatedSensitivity(2.0, 1.0, geometric(0.5), confidence=0.99, rows=1000)
            >>> print(bounds.signed(Contract(lam=1.0, b=0.5, horizon=24)))  # doctest: +NORMALIZE_WHITESPACE
            J_h <= (1 + 1) J_h(prior) + 0.5 h, with probability 0.97 an episode,
            which rests on three constants estimated from 1000 rows at 0.99 each
        """
        what = f"three constants estimated from {self.rows} rows at {self.confidence:g} each"
        return contract.resting_on(what, 1.0 - 3.0 * (1.0 - self.confidence))


def sensitivity_from_dict(description: dict[str, Any]) -> Sensitivity:
    """The sensitivity that `to_dict` described; estimates stay estimates."""
    numbers = dict(description)
    kind = Sensitivity if numbers.pop("proved") else EstimatedSensitivity
    return kind(**{**numbers, "perturbation": perturbation_from_dict(numbers["perturbation"])})
