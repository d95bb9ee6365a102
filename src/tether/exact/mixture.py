"""Systems with finitely many transition functions, of which nature draws one each round (linear-mixture models).

In round h of an episode the state is x_h in an interval, the agent plays a_h, and nature draws one of M known
functions, x_{h+1} = f(x_h, a_h), with the distribution

    g(f) = <phi(f), theta>,    theta on the simplex of dimension d, phi(f) a row of the matrix `mixture` [M, d]

Rewards, costs and the prior are known functions of (h, x, a), as in the paper's Section 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tether.core import validate

Floats = NDArray[np.float64]
RoundFunction = Callable[[Any, Any, Any], Any]
"""A function of (round, state, action), scalars, traceable by JAX; the round counts from 1 and may be traced."""


@dataclass(frozen=True, eq=False)
class MixtureSystem:
    """A system with finitely many transition functions, of which nature draws one each round.

    Args:
        horizon: Rounds of an episode (H).
        states: Lowest and highest state; no transition leaves this interval.
        actions: Lowest and highest action.
        initial: The state of the first round, x_1; several, [I], if it is drawn from them.
        transitions: The functions f_1..f_M.
        reward: r_h(x, a).
        cost: c_h(x, a), cost units.
        prior: The trusted policy, (round, state) -> action within `actions`.
        mixture: [M, d] phi: column j is a distribution over the transition functions; None for the identity.
        initial_chances: [I] how likely each initial state is; None if all are equally likely.
    """

    horizon: int
    states: tuple[float, float]
    actions: tuple[float, float]
    initial: Any
    transitions: tuple[RoundFunction, ...]
    reward: RoundFunction
    cost: RoundFunction
    prior: Callable[[Any, Any], Any]
    mixture: Any = None
    initial_chances: Any = None

    def __post_init__(self) -> None:
        validate.count("horizon", self.horizon)
        for name in ("states", "actions"):
            low, high = (validate.number(name, value) for value in getattr(self, name))
            if low >= high:
                raise ValueError(f"{name} must be (lowest, highest), got {getattr(self, name)!r}")
        self._set_initial()
        count = len(self.transitions)
        if count == 0:
            raise ValueError("transitions must hold at least one function, got none")
        mixture = np.eye(count) if self.mixture is None else np.asarray(self.mixture, dtype=float)
        if mixture.ndim != 2 or mixture.shape[0] != count or mixture.shape[1] == 0:
            raise ValueError(
                f"mixture must be [M, d] with M = {count} transitions, got shape {mixture.shape}"
            )
        for j, column in enumerate(mixture.T):
            check_distribution(f"column {j} of mixture", column)
        object.__setattr__(self, "mixture", mixture)

    def _set_initial(self) -> None:
        first = np.atleast_1d(np.asarray(self.initial, dtype=float))
        if (
            first.ndim != 1
            or not len(first)
            or not self.states[0] <= first.min() <= first.max() <= self.states[1]
        ):
            raise ValueError(f"initial must be within states {self.states}, got {self.initial!r}")
        equal = np.full(len(first), 1.0 / len(first))
        chances = equal if self.initial_chances is None else np.asarray(self.initial_chances, dtype=float)
        if chances.shape != first.shape:
            raise ValueError(
                f"initial_chances must be one for each of {len(first)} initial states, got shape {chances.shape}"
            )
        check_distribution("initial_chances", chances)
        object.__setattr__(self, "initial", first)
        object.__setattr__(self, "initial_chances", chances)

    @property
    def dimension(self) -> int:
        """Dimension of theta (d)."""
        return int(self.mixture.shape[1])

    def check_theta(self, theta: Any) -> Floats:
        """`theta` as an array [d], or an error if it is not on the simplex."""
        array = np.asarray(theta, dtype=float)
        if array.shape != (self.dimension,):
            raise ValueError(f"theta must have shape ({self.dimension},), got {array.shape}")
        check_distribution("theta", array)
        return array

    def draw(self, theta: Any, seed: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Indices of transition functions, drawn with the distribution of `theta`."""
        chances = self.mixture @ self.check_theta(theta)
        return np.random.default_rng(seed).choice(
            len(self.transitions), size=shape, p=chances / chances.sum()
        )

    def draw_initial(self, seed: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Indices of initial states; their draws are others than those of `draw` for the same seed."""
        chances = self.initial_chances / self.initial_chances.sum()
        return np.random.default_rng([2, seed]).choice(len(chances), size=shape, p=chances)


def check_distribution(name: str, values: Floats) -> None:
    """Refuse values that are not on the simplex."""
    if not (np.isfinite(values).all() and (values >= -1e-9).all() and abs(values.sum() - 1.0) <= 1e-9):
        raise ValueError(
            f"{name} must be on the simplex (entries at least 0 that sum to 1), "
            f"got {np.array2string(values, precision=6)} with sum {values.sum():.9g}"
        )


def rounds_of(system: MixtureSystem) -> Any:
    """The rounds [H], 1 to H."""
    return jnp.arange(1, system.horizon + 1)


def next_states(system: MixtureSystem, at: Any, state: Any, action: Any) -> Any:
    """Where each transition function leads: [M]."""
    return jnp.stack([jnp.asarray(f(at, state, action), dtype=float) for f in system.transitions])


class Draws(NamedTuple):
    """Everything that nature can draw in an episode."""

    firsts: NDArray[np.int64]
    """[N] index of the initial state."""
    draws: NDArray[np.int64]
    """[N, H] index of each round's transition function."""
    chances: Floats
    """[N] their probability."""


def every_draw(system: MixtureSystem, theta: Any) -> Draws:
    """All initial states with all sequences of draws, and their probabilities under `theta`.

    The last round's draw changes no reward and no cost, so that M ** (H - 1) sequences are enough for each initial
    state; more than 300,000 are refused.
    """
    count, free = len(system.transitions), system.horizon - 1
    if count**free > 300_000:
        raise ValueError(
            f"{count} transition functions over {system.horizon} rounds give {count**free:,} sequences of draws, "
            "more than 300,000; draw a sample with `system.draw` and play it with `play`"
        )
    draws = np.zeros((count**free, system.horizon), dtype=np.int64)
    draws[:, :free] = np.array(list(itertools.product(range(count), repeat=free))).reshape(-1, free)
    chances = np.prod((system.mixture @ system.check_theta(theta))[draws[:, :free]], axis=1)
    starts = len(system.initial)
    return Draws(
        np.repeat(np.arange(starts), len(draws)),
        np.tile(draws, (starts, 1)),
        np.outer(system.initial_chances, chances).ravel(),
    )
