"""Exact planning behind the guard: a system with finitely many transition functions, on a grid.

In round h of an episode the state is x_h in an interval, the agent plays a_h, and nature draws one of M known
functions, x_{h+1} = f(x_h, a_h), with the distribution

    g(f) = <phi(f), theta>,    theta on the simplex of dimension d, phi(f) a row of the matrix `mixture` [M, d]

Rewards, costs and the prior are known functions of (h, x, a), as in the paper's Section 3. The guard stands between
the agent and the system, so that the process to plan for has the state (x, what the guard remembers), and with a
geometric perturbation function that memory is two or three numbers. A `Problem` is that process on a grid:

- Its nodes are the product of a grid of x and grids of the guard's coordinates; between nodes every function is
  interpolated multilinearly. Which coordinates there are depends on the rule (`_coordinates`). Those of a round span
  what that round can reach, and end where the guard can never bind again, because there values are constant.
- Everything that does not depend on theta (guard, projection, cost, reward, where one arrives) is tabulated once, by
  the certificate's own code. Value iteration for a batch of thetas is then gathers and sums.
- Interpolation weights are probabilities, so the grid is itself a Markov decision process, in which the values of
  policies are exact. How far it is from the continuous system is measured: by finer grids, and by `play_every_draw`,
  which plays a plan on the continuous system over every possible draw.

Everything computes in float64, in JAX's local context.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tether.certificates import LipschitzCertificate
from tether.certificates.lipschitz import LipschitzState
from tether.core import validate
from tether.core.ops import NUMPY, jax_ops
from tether.core.projection import nearest_safe
from tether.core.run import Run
from tether.core.sensitivity import Geometric
from tether.simulate.trees import as_tree

Floats = NDArray[np.float64]
RoundFunction = Callable[[Any, Any, Any], Any]
"""A function of (round, state, action), scalars, traceable by JAX; the round counts from 1 and may be traced."""

# Guard coordinates have nodes at (i / (n - 1)) ** 2 of their range: dense where little slack is left.
_SPACING = 2


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


@dataclass(frozen=True)
class Resolution:
    """How many nodes the grid has in each direction; those of the guard apply where the rule has the coordinate."""

    states: int = 21
    """Nodes of the state x."""
    actions: int = 25
    """Proposals that a policy chooses from."""
    surplus: int = 11
    """Nodes of the surplus S."""
    memory: int = 5
    """Nodes of the remembered deviations m."""
    allowance: int = 7
    """Nodes of the allowance D (rules `paper` and `released`)."""

    def __post_init__(self) -> None:
        for name in ("states", "actions", "surplus", "memory", "allowance"):
            validate.count(name, getattr(self, name), minimum=2)

    def refined(self, factor: int) -> Resolution:
        """The grid with `factor` times as many intervals in each direction; its nodes contain these."""
        return Resolution(
            **{name: (getattr(self, name) - 1) * factor + 1 for name in self.__dataclass_fields__}
        )


class _Tables(NamedTuple):
    """What happens at each node for each proposal, by round; s stands for (state node, guard node)."""

    next_place: Any
    """[H, M, n_x, n_a] lower state node around x_{h+1}."""
    next_weight: Any
    """[H, M, n_x, n_a] weight of the upper one."""
    place: Any
    """[H, n_a, n_x, n_g] lower corner around (action played, guard's coordinates after it), flat."""
    weights: Any
    """[H, n_a, 1 + C, n_x, n_g] weight of the upper node of the action and of each guard coordinate."""
    reward: Any
    """[H, n_a, n_x, n_g] reward of the action played."""


class Problem(eqx.Module):
    """A system behind a guard, on a grid; made by `prepare`."""

    system: MixtureSystem = eqx.field(static=True)
    resolution: Resolution = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    """Nodes of each guard coordinate; empty without a guard."""
    certificate: LipschitzCertificate | None
    lows: Any
    """[C, H + 1] least value of each guard coordinate before each round, and after the last."""
    highs: Any
    """[C, H + 1] value from which on it is clipped."""
    tables: _Tables

    @property
    def nodes(self) -> int:
        """Number of nodes a round."""
        return self.resolution.states * math.prod(self.sizes)


class Plan(NamedTuple):
    """The result of value iteration for a batch of B thetas."""

    values: Any
    """[H + 1, n_x, n_g, B] V_h at the nodes; the last is 0."""
    greedy: Any
    """[H, n_x, n_g, B] index of the best proposal at each node."""
    starts: Any
    """[I, B] V_1 at each initial state."""
    start: Any
    """[B] its mean over the initial states, E[V_1(x_1)]."""


def prepare(
    system: MixtureSystem,
    certificate: LipschitzCertificate | None = None,
    resolution: Resolution | None = None,
) -> Problem:
    """Put a system on a grid, behind the guard of `certificate`, or without one (None).

    Raises:
        ValueError: If the system and the certificate do not fit together: another horizon, a perturbation function
            that is not geometric (its memory would grow with the horizon), a transition that leaves the interval of
            states, a cost below the contract's floor, a prior outside the box of actions.
    """
    resolution = Resolution() if resolution is None else resolution
    if certificate is not None:
        if certificate.contract.horizon != system.horizon:
            raise ValueError(
                f"the certificate is for a horizon of {certificate.contract.horizon} rounds, "
                f"the system has {system.horizon}"
            )
        if not isinstance(certificate.bounds.perturbation, Geometric):
            raise ValueError(
                "planning needs a guard memory of fixed size: give the perturbation function as "
                f"tether.geometric(rho, scale), got {type(certificate.bounds.perturbation).__name__}"
            )
    with jax.enable_x64(True):
        grid = evaluate_on_grid(system, resolution)
        _check_system(system, certificate, {name: np.asarray(values) for name, values in grid.items()})
        sizes, lows, highs = _axes(system, certificate, resolution, grid)
        # Arrays, so that another (lam, b) compiles nothing anew; NumPy's, which keep their precision outside of here.
        numbers = jax.tree.map(lambda number: np.asarray(number, dtype=float), as_tree(certificate))
        tables = _tabulate(system, resolution, sizes, numbers, lows, highs)
        return Problem(system, resolution, sizes, numbers, lows, highs, tables)


def _states(system: MixtureSystem, resolution: Resolution) -> Any:
    return jnp.linspace(*system.states, resolution.states)


def proposal_grid(system: MixtureSystem, resolution: Resolution) -> Any:
    """The actions [n_a] that a policy may propose."""
    return jnp.linspace(*system.actions, resolution.actions)


def rounds_of(system: MixtureSystem) -> Any:
    """The rounds [H], 1 to H."""
    return jnp.arange(1, system.horizon + 1)


def next_states(system: MixtureSystem, at: Any, state: Any, action: Any) -> Any:
    """Where each transition function leads: [M]."""
    return jnp.stack([jnp.asarray(f(at, state, action), dtype=float) for f in system.transitions])


@eqx.filter_jit
def evaluate_on_grid(system: MixtureSystem, resolution: Resolution) -> dict[str, Any]:
    """The system's functions at every round, state node and proposal: [H, n_x, n_a], prior [H, n_x], next [..., M]."""
    functions = {
        "reward": system.reward,
        "cost": system.cost,
        "next": lambda at, state, action: next_states(system, at, state, action),
    }
    rounds, states, proposals = (
        rounds_of(system),
        _states(system, resolution),
        proposal_grid(system, resolution),
    )

    def over_grid(function: Callable[..., Any]) -> Any:
        mapped: Any = jax.vmap(function, (None, None, 0))
        mapped = jax.vmap(jax.vmap(mapped, (None, 0, None)), (0, None, None))
        return mapped(rounds, states, proposals)

    values = {name: over_grid(function) for name, function in functions.items()}
    mapped_prior: Any = jax.vmap(jax.vmap(system.prior, (None, 0)), (0, None))
    return values | {"prior": mapped_prior(rounds, states), "states": states, "proposals": proposals}


def _check_system(
    system: MixtureSystem, certificate: LipschitzCertificate | None, grid: dict[str, Floats]
) -> None:
    def where(place: Any) -> str:
        h, i, p = place[:3]
        return f"in round {h + 1} at state {grid['states'][i]:g} and action {grid['proposals'][p]:g}"

    for name in ("reward", "cost", "next", "prior"):
        if not np.isfinite(grid[name]).all():
            raise ValueError(f"{name} must be finite on the whole grid, it is not")
    low, high = system.states
    leaving = np.argwhere((grid["next"] < low - 1e-12) | (grid["next"] > high + 1e-12))
    if len(leaving):
        place = tuple(leaving[0])
        raise ValueError(
            f"transition {place[3]} leaves the grid: {where(place)} it leads to {grid['next'][place]:g}, "
            f"outside [{low:g}, {high:g}]; widen `states` or clip the transition"
        )
    out = np.argwhere(
        (grid["prior"] < system.actions[0] - 1e-12) | (grid["prior"] > system.actions[1] + 1e-12)
    )
    if len(out):
        h, i = out[0]
        raise ValueError(
            f"the prior must stay within actions {system.actions}: "
            f"in round {h + 1} at state {grid['states'][i]:g} it plays {grid['prior'][h, i]:g}"
        )
    if certificate is not None:
        floor = certificate.contract.cost_floor
        cheap = np.argwhere(grid["cost"] < floor)
        if len(cheap):
            place = tuple(cheap[0])
            raise ValueError(
                f"the contract promises a cost of at least {floor:g}, but {where(place)} it is {grid['cost'][place]:g}"
            )


# The guard's coordinates.


def _coordinates(certificate: LipschitzCertificate, state: LipschitzState) -> tuple[Any, ...]:
    """The guard's state as the numbers that the rule's safe sets depend on: (surplus, memory[, allowance]).

    Rule `tight` needs no allowance. Except for rule `paper`, which forgets it, the surplus counts the b of past rounds.
    """
    past = 0.0 if certificate.rule == "paper" else state.rounds * certificate.contract.b
    coordinates = (state.surplus + past, state.memory)
    return coordinates if certificate.rule == "tight" else (*coordinates, state.allowance)


def _zero() -> Any:
    """A number of the type that states have."""
    return jnp.zeros(())


def _guard_state(
    certificate: LipschitzCertificate, closed: Any, coordinates: Sequence[Any]
) -> LipschitzState:
    """The inverse of `_coordinates` before round closed + 1; no round-off has been collected."""
    zero = _zero()
    start = certificate.start(jax_ops(), zero)
    past = 0.0 if certificate.rule == "paper" else closed * certificate.contract.b
    allowance = start.allowance if certificate.rule == "tight" else coordinates[2]
    return LipschitzState(
        rounds=zero + closed,
        allowance=allowance,
        surplus=coordinates[0] - past,
        memory=coordinates[1],
        magnitude=zero,
        breached=start.breached,
    )


def _axes(
    system: MixtureSystem,
    certificate: LipschitzCertificate | None,
    resolution: Resolution,
    grid: dict[str, Any],
) -> tuple[tuple[int, ...], Any, Any]:
    """Number of nodes, least and greatest value of each guard coordinate before each round: (), [C, H + 1] twice.

    Surplus (with past b) is never below -earned, because J_h is certified to stay below its bound, and rises by at
    most lam * c + b a round. Where it exceeds all that the deviations of the past and the widest possible ones of
    the future can ever cost, the guard never binds again and values are constant: it is clipped there without error.
    The same holds for the allowance and the future deviations alone. The memory is at most rho times its greatest
    value a round earlier and the widest deviation then.
    """
    rounds = system.horizon
    if certificate is None:
        return (), jnp.zeros((0, rounds + 1)), jnp.zeros((0, rounds + 1))
    contract, bounds, tight = certificate.contract, certificate.bounds, certificate.rule == "tight"
    p = bounds.perturbation
    assert isinstance(p, Geometric)
    prior = np.asarray(grid["prior"])
    widest = float(max((system.actions[1] - prior).max(), (prior - system.actions[0]).max()))
    dearest = float(np.asarray(grid["cost"]).max())
    totals = [float(certificate.total(certificate.start()._replace(rounds=float(h)))) for h in range(rounds)]

    lows, highs = np.zeros((3, rounds + 1)), np.zeros((3, rounds + 1))
    for h in range(rounds + 1):
        past_b = h * contract.b if certificate.rule == "paper" else 0.0
        if h > 0:
            spendable = (highs[0, h - 1] + past_b + contract.earned) / bounds.immediate
            # The allowance of the other rules can exceed what the surplus shows.
            deviation = min(widest, spendable) if tight else widest
            highs[1, h] = p.rho * highs[1, h - 1] + deviation
            lows[0, h] = -contract.earned - past_b
            lows[2, h] = contract.earned
        future = widest * sum(totals[h:])
        charged = bounds.carried * float(p.felt_over(highs[1, h], float(rounds - h), NUMPY)) + future
        highs[0, h] = min(charged, h * (contract.lam * dearest + contract.b))
        highs[2, h] = max(future, contract.earned)
    lows[2, 0] = contract.earned
    # With nothing carried the memory is of no consequence, and one node is enough.
    memory = resolution.memory if bounds.carried > 0.0 else 1
    sizes = (resolution.surplus, memory, resolution.allowance)
    kept = 2 if tight else 3
    # A range of no width still needs a length to divide by.
    highs = np.maximum(highs, lows + 1e-9)
    return sizes[:kept], jnp.asarray(lows[:kept]), jnp.asarray(highs[:kept])


def _place_on_axis(value: Any, low: Any, high: Any, count: int, spacing: int = 1) -> tuple[Any, Any]:
    """The lower of the two nodes around `value`, clipped to the axis, and the weight of the upper one.

    Nodes are at low + (i / (count - 1)) ** spacing * (high - low).
    """
    if count == 1:
        return jnp.zeros_like(value, dtype=jnp.int32), jnp.zeros_like(value)
    share = jnp.clip((value - low) / (high - low), 0.0, 1.0)
    last = count - 1
    lower = jnp.clip(jnp.floor(share ** (1.0 / spacing) * last), 0, last - 1)
    left, right = (lower / last) ** spacing, ((lower + 1.0) / last) ** spacing
    # The root may be rounded to the wrong side of a node; the weight stays a probability.
    weight = jnp.clip((share - left) / (right - left), 0.0, 1.0)
    return lower.astype(jnp.int32), weight


def _place_guard(problem: Problem, closed: Any, state: LipschitzState) -> tuple[Any, list[Any]]:
    """Flat index of the lower corner around the guard's state before round closed + 1, and a weight a coordinate."""
    assert problem.certificate is not None
    return _place_coordinates(
        problem.sizes,
        _coordinates(problem.certificate, state),
        problem.lows[:, closed],
        problem.highs[:, closed],
    )


def _place_coordinates(
    sizes: tuple[int, ...], coordinates: Any, lows: Any, highs: Any
) -> tuple[Any, list[Any]]:
    flat, weights = jnp.zeros((), dtype=jnp.int32), []
    for c, (value, count) in enumerate(zip(coordinates, sizes, strict=True)):
        lower, weight = _place_on_axis(value, lows[c], highs[c], count, _SPACING)
        flat = flat * count + lower
        weights.append(weight)
    return flat, weights


def _corners(sizes: tuple[int, ...], leading: tuple[int, ...] = ()) -> list[tuple[int, tuple[int, ...]]]:
    """The corners of a cell in a flat array of shape (*leading, *sizes): (offset, which upper nodes it takes)."""
    shape = (*leading, *sizes)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    choices = [(0, 1) if count > 1 else (0,) for count in shape]
    return [
        (sum(stride for stride, upper in zip(strides, corner, strict=True) if upper), corner)
        for corner in itertools.product(*choices)
    ]


def _corner_weight(weights: Sequence[Any], corner: tuple[int, ...]) -> Any:
    product: Any = 1.0
    for weight, upper in zip(weights, corner, strict=True):
        product = product * (weight if upper else 1.0 - weight)
    return product


def guarded_decision(
    system: MixtureSystem,
    certificate: LipschitzCertificate | None,
    at: Any,
    state: Any,
    guard: Any,
    proposal: Any,
) -> tuple[Any, Any, Any]:
    """One decision: the action played, its cost, and the guard's state after it."""
    prior = jnp.asarray(system.prior(at, state), dtype=float)
    if certificate is None:
        action = jnp.clip(proposal, *system.actions)
        return action, jnp.asarray(system.cost(at, state, action), dtype=float), None
    radius = certificate.radius(guard, jax_ops())
    action, deviation = nearest_safe(proposal, prior, radius, *system.actions, "l2", jax_ops())
    cost: Any = jnp.asarray(system.cost(at, state, action), dtype=float)
    return action, cost, certificate.close(guard, deviation, cost, jax_ops())


@eqx.filter_jit
def _tabulate(
    system: MixtureSystem,
    resolution: Resolution,
    sizes: tuple[int, ...],
    certificate: LipschitzCertificate | None,
    lows: Any,
    highs: Any,
) -> _Tables:
    states, proposals = _states(system, resolution), proposal_grid(system, resolution)

    def arrive(at: Any, state: Any, action: Any) -> tuple[Any, Any]:
        return _place_on_axis(next_states(system, at, state, action), *system.states, resolution.states)

    def decide(at: Any, state: Any, node: Any, proposal: Any) -> tuple[Any, Any, Any]:
        guard = None
        if certificate is not None:
            fractions = jnp.unravel_index(node, sizes)
            coordinates = [
                lows[c, at - 1]
                + (fractions[c] / max(count - 1, 1)) ** _SPACING * (highs[c, at - 1] - lows[c, at - 1])
                for c, count in enumerate(sizes)
            ]
            guard = _guard_state(certificate, at - 1, coordinates)
        action, _, after = guarded_decision(system, certificate, at, state, guard, proposal)
        place, weight = _place_on_axis(action, *system.actions, resolution.actions)
        weights = [weight]
        if certificate is not None:
            flat, more = _place_coordinates(
                sizes, _coordinates(certificate, after), lows[:, at], highs[:, at]
            )
            place, weights = place * math.prod(sizes) + flat, [weight, *more]
        reward = jnp.asarray(system.reward(at, state, action), dtype=float)
        return place, jnp.stack(weights), reward

    def one_round(at: Any) -> _Tables:
        arriving: Any = jax.vmap(jax.vmap(arrive, (None, None, 0), 1), (None, 0, None), 1)
        deciding: Any = jax.vmap(decide, (None, None, 0, None), (0, 1, 0))
        deciding = jax.vmap(deciding, (None, 0, None, None), (0, 1, 0))
        deciding = jax.vmap(deciding, (None, None, None, 0))
        nodes = jnp.arange(math.prod(sizes))
        return _Tables(*arriving(at, states, proposals), *deciding(at, states, nodes, proposals))

    tables: _Tables = jax.lax.map(one_round, rounds_of(system))
    return tables


# Value iteration.


def expected_values(values: Any, tables: _Tables, chances: Any) -> Any:
    """E_g[V(x', guard)] for each state node, action node and guard node: [n_x, n_a, n_g, B].

    A loop over the transition functions and not a sum: the compiler would merge a sum into what gathers from it, and
    compute each entry anew for each of the many places that need it.

    Args:
        values: [n_x, n_g, B] V of the next round.
        tables: Those of this round.
        chances: [M, B] the distribution over transition functions.
    """

    def add(total: Any, now: Any) -> tuple[Any, None]:
        lower, weight, chance = now
        weight = weight[..., None, None]
        return total + chance * ((1.0 - weight) * values[lower] + weight * values[lower + 1]), None

    zero = jnp.zeros((*tables.next_place.shape[1:], *values.shape[1:]))
    return jax.lax.scan(add, zero, (tables.next_place, tables.next_weight, chances))[0]


def _over_proposals(
    problem: Problem, expected: Any, tables: _Tables, fold: Callable[[Any, Any, Any], Any], start: Any
) -> Any:
    """Fold Q over the proposals: fold(carry, index of the proposal, Q at the nodes [n_x, n_g, B]) -> carry.

    Q is the reward, and `expected` at the action played and the guard's coordinates after it.
    """
    states, actions, guards, batch = expected.shape
    flat = expected.reshape(states * actions * guards, batch)
    first = jnp.arange(states)[:, None] * (actions * guards)

    def one_proposal(carry: Any, now: Any) -> tuple[Any, None]:
        index, place, weights, reward = now
        quality: Any = reward[..., None]
        for offset, corner in _corners(problem.sizes, (actions,)):
            quality = quality + _corner_weight(weights, corner)[..., None] * flat[first + place + offset]
        return fold(carry, index, quality), None

    inputs = (jnp.arange(actions, dtype=jnp.int32), tables.place, tables.weights, tables.reward)
    return jax.lax.scan(one_proposal, start, inputs)[0]


def _no_values(problem: Problem, batch: int) -> Any:
    return jnp.zeros((problem.resolution.states, math.prod(problem.sizes), batch))


def iterate_values(problem: Problem, thetas: Any) -> Plan:
    """Value iteration (the paper's equation for Q-tilde) for thetas [B, d]."""
    chances = jnp.asarray(problem.system.mixture) @ thetas.T

    def better(best: Any, index: Any, quality: Any) -> Any:
        return jnp.maximum(best[0], quality), jnp.where(quality > best[0], index, best[1])

    def backwards(values: Any, tables: _Tables) -> tuple[Any, tuple[Any, Any]]:
        nothing = (jnp.full_like(values, -jnp.inf), jnp.zeros(values.shape, dtype=jnp.int32))
        expected = expected_values(values, tables, chances)
        best, greedy = _over_proposals(problem, expected, tables, better, nothing)
        return best, (best, greedy)

    last = _no_values(problem, thetas.shape[0])
    _, (values, greedy) = jax.lax.scan(backwards, last, problem.tables, reverse=True)
    starts = _at_start(problem, values[0])
    mean = jnp.asarray(problem.system.initial_chances) @ starts
    return Plan(jnp.concat([values, last[None]]), greedy, starts, mean)


def evaluate_policy(problem: Problem, greedy: Any, theta: Any) -> Any:
    """Value [I, B] at each initial state, under theta [d], of policies with the proposals `greedy` [H, n_x, n_g, B]."""
    batch = greedy.shape[-1]
    chances = (jnp.asarray(problem.system.mixture) @ theta)[:, None]
    states, actions, guards = problem.resolution.states, problem.resolution.actions, math.prod(problem.sizes)
    rows, nodes, columns = jnp.arange(states)[:, None, None], jnp.arange(guards)[:, None], jnp.arange(batch)

    def backwards(values: Any, now: tuple[_Tables, Any]) -> tuple[Any, None]:
        tables, choice = now
        expected = expected_values(values, tables, chances).reshape(-1, batch)
        place = tables.place[choice, rows, nodes] + rows * (actions * guards)
        weights = [tables.weights[:, c][choice, rows, nodes] for c in range(tables.weights.shape[1])]
        total: Any = tables.reward[choice, rows, nodes]
        for offset, corner in _corners(problem.sizes, (actions,)):
            total = total + _corner_weight(weights, corner) * expected[place + offset, columns]
        return total, None

    first, _ = jax.lax.scan(backwards, _no_values(problem, batch), (problem.tables, greedy), reverse=True)
    return _at_start(problem, first)


def _at_start(problem: Problem, values: Any) -> Any:
    """The value [I, B] at each initial state, of values [n_x, n_g, B] before the first round."""
    start = None if problem.certificate is None else problem.certificate.start(jax_ops(), _zero())
    at_each: Any = jax.vmap(lambda state: interpolate(problem, values, 0, state, start))
    return at_each(jnp.asarray(problem.system.initial))


def interpolate(problem: Problem, values: Any, closed: Any, state: Any, guard: Any) -> Any:
    """`values` [n_x, n_g, ...] of round closed + 1 at one state and one guard state, off the nodes: [...]."""
    lower, weight = _place_on_axis(state, *problem.system.states, problem.resolution.states)
    flat, weights = (0, []) if guard is None else _place_guard(problem, closed, guard)
    corners = _corners(problem.sizes)
    at = jnp.stack([flat + offset for offset, _ in corners])
    shares = jnp.stack([jnp.asarray(_corner_weight(weights, corner)) for _, corner in corners])
    return shares @ ((1.0 - weight) * values[lower, at] + weight * values[lower + 1, at])


@eqx.filter_jit
def evaluate_random(problem: Problem, theta: Any) -> Any:
    """Value at each initial state, under theta [d], of proposals drawn uniformly: [I]."""
    chances = (jnp.asarray(problem.system.mixture) @ theta)[:, None]

    share = 1.0 / problem.resolution.actions

    def backwards(values: Any, tables: _Tables) -> tuple[Any, None]:
        expected, nothing = expected_values(values, tables, chances), jnp.zeros_like(values)
        mean = _over_proposals(
            problem, expected, tables, lambda total, _, quality: total + share * quality, nothing
        )
        return mean, None

    first, _ = jax.lax.scan(backwards, _no_values(problem, 1), problem.tables, reverse=True)
    return _at_start(problem, first)[:, 0]


_compiled_iterate = eqx.filter_jit(iterate_values)
_compiled_evaluate = eqx.filter_jit(evaluate_policy)


def plan(problem: Problem, theta: Any) -> Plan:
    """The optimal policy for one theta [d], or for each of a batch [B, d], by value iteration on the grid.

    With a certificate this is the optimal policy behind the guard (pi-circ for the true theta), without one the
    optimal unconstrained policy (pi-star).
    """
    thetas = _batch(problem, theta)
    with jax.enable_x64(True):
        return Plan(*(np.asarray(each) for each in _compiled_iterate(problem, jnp.asarray(thetas))))


def evaluate(problem: Problem, policy: Plan, theta: Any) -> Floats:
    """Value at each initial state of the greedy policies of a plan when nature draws with `theta` [d]: [I, B]."""
    with jax.enable_x64(True):
        true = jnp.asarray(problem.system.check_theta(theta))
        return np.asarray(_compiled_evaluate(problem, jnp.asarray(policy.greedy), true))


def random_value(problem: Problem, theta: Any) -> float:
    """Value of proposals drawn uniformly from the action grid, under `theta` [d], mean over the initial states."""
    with jax.enable_x64(True):
        values = np.asarray(evaluate_random(problem, jnp.asarray(problem.system.check_theta(theta))))
        return float(problem.system.initial_chances @ values)


def _batch(problem: Problem, theta: Any) -> Floats:
    thetas = np.atleast_2d(np.asarray(theta, dtype=float))
    return np.stack([problem.system.check_theta(each) for each in thetas])


# Play on the continuous system.


class PlayedRound(NamedTuple):
    """What one played round gave; features and target are those of the value-targeted regression."""

    reward: Any
    cost: Any
    prior_cost: Any
    action: Any
    features: Any
    """[d] E[V(s') | s, a] is <features, theta>."""
    target: Any
    """V(s') of the state that came."""
    spread: Any
    """Largest minus smallest V(s') over the transition functions: known before nature draws."""


def play_episode(
    problem: Problem, values: Any, theta: Any, first: Any, draws: Any, imposed: Any = None
) -> PlayedRound:
    """One episode on the continuous system, through the guard, and the prior replayed on the same draws.

    Args:
        problem: The problem.
        values: [H + 1, n_x, n_g] to be greedy for.
        theta: [d] the model to be greedy for.
        first: Which of the initial states nature draws.
        draws: [H] which transition function nature draws.
        imposed: [H] indices of proposals to play; -1, or no array at all, for the greedy one.
    """
    system, certificate = problem.system, problem.certificate
    mixture = jnp.asarray(system.mixture)
    grid = proposal_grid(system, problem.resolution)

    def one_round(carry: Any, now: Any) -> tuple[Any, PlayedRound]:
        state, guard, prior_state = carry
        at, values_after, draw, index = now

        def look_ahead(proposal: Any) -> Any:
            """Algorithm 1 and one step of the model: what is played, and V after each transition function [M]."""
            action, cost, after = guarded_decision(system, certificate, at, state, guard, proposal)
            reward = jnp.asarray(system.reward(at, state, action), dtype=float)
            arrived = next_states(system, at, state, action)
            here: Any = jax.vmap(lambda each: interpolate(problem, values_after, at, each, after))
            return reward, cost, action, after, arrived, here(arrived)

        options = jax.vmap(look_ahead)(grid)
        best = jnp.argmax(options[0] + options[-1] @ (mixture @ theta))
        chosen = jnp.where(index >= 0, index, best)
        reward, cost, action, after, arrived, ahead = jax.tree.map(lambda each: each[chosen], options)
        trusted = jnp.asarray(system.prior(at, prior_state), dtype=float)
        seen = PlayedRound(
            reward=reward,
            cost=cost,
            prior_cost=jnp.asarray(system.cost(at, prior_state, trusted), dtype=float),
            action=action,
            features=mixture.T @ ahead,
            target=ahead[draw],
            spread=jnp.max(ahead) - jnp.min(ahead),
        )
        return (arrived[draw], after, next_states(system, at, prior_state, trusted)[draw]), seen

    start = None if certificate is None else certificate.start(jax_ops(), _zero())
    initial = jnp.asarray(system.initial)[first]
    imposed = jnp.full(system.horizon, -1) if imposed is None else imposed
    inputs = (rounds_of(system), values[1:], draws, imposed)
    seen: PlayedRound = jax.lax.scan(one_round, (initial, start, initial), inputs)[1]
    return seen


@eqx.filter_jit
def _play_all(problem: Problem, values: Any, theta: Any, firsts: Any, draws: Any) -> PlayedRound:
    played: PlayedRound = jax.lax.map(
        lambda each: play_episode(problem, values, theta, *each), (firsts, draws), batch_size=1024
    )
    return played


class Played(NamedTuple):
    """Episodes that a plan played on the continuous system, and the prior's on the same draws."""

    run: Run
    prior_costs: Floats
    """[N, H] costs of the prior, replayed."""
    firsts: NDArray[np.int64]
    """[N] which initial state each episode began in."""
    chances: Floats
    """[N] probability of each episode's draws; they sum to 1 when all draws were played."""

    @property
    def value(self) -> float:
        """Mean total reward, weighted by the chances."""
        return float(self.run.returns @ self.chances / self.chances.sum())


def play(problem: Problem, policy: Plan, theta: Any, draws: Any, firsts: Any = None) -> Played:
    """Play the first policy of a plan on the continuous system, one episode for each row of `draws` [N, H].

    The greedy action looks one exact step ahead from wherever the system is: nothing is snapped to the grid.

    Args:
        problem: The problem.
        policy: A plan for this problem.
        theta: [d] the model that the plan was made for.
        draws: [N, H] indices of the transition functions that nature draws.
        firsts: [N] indices of the initial states that nature draws; None for the first one in every episode.
    """
    model = problem.system.check_theta(theta)
    began = np.zeros(len(draws), dtype=np.int64) if firsts is None else np.asarray(firsts)
    with jax.enable_x64(True):
        values = jnp.asarray(policy.values[..., 0])
        seen = _play_all(problem, values, jnp.asarray(model), jnp.asarray(began), jnp.asarray(draws))
        run = Run(np.asarray(seen.reward), np.asarray(seen.cost), actions=np.asarray(seen.action))
        return Played(run, np.asarray(seen.prior_cost), began, np.full(len(draws), 1.0 / len(draws)))


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


def play_every_draw(problem: Problem, policy: Plan, theta: Any, true_theta: Any) -> Played:
    """Play a plan on the continuous system over every sequence of draws, weighted as `true_theta` makes them likely.

    Its value is exact: no grid and no sampling.
    """
    every = every_draw(problem.system, true_theta)
    return play(problem, policy, theta, every.draws, every.firsts)._replace(chances=every.chances)
