"""A system behind a guard, on a grid: what happens at every node, tabulated once.

The guard stands between the agent and the system, so that the process to plan for has the state (x, what the guard
remembers), and with a geometric perturbation function that memory is two or three numbers. A `Problem` is that process
on a grid:

- Its nodes are the product of a grid of x and grids of the guard's coordinates; between nodes every function is
  interpolated multilinearly. Which coordinates there are depends on the rule (`_coordinates`). Those of a round span
  what that round can reach, and end where the guard can never bind again, because there values are constant.
- Everything that does not depend on theta (guard, projection, cost, reward, where one arrives) is tabulated once, by
  the certificate's own code.

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

from tether.certificates import LipschitzCertificate
from tether.certificates.lipschitz import LipschitzState
from tether.core import validate
from tether.core.ops import NUMPY, jax_ops
from tether.core.projection import nearest_safe
from tether.core.sensitivity import Geometric
from tether.exact.mixture import Floats, MixtureSystem, next_states, rounds_of
from tether.simulate.trees import as_tree

# Guard coordinates have nodes at (i / (n - 1)) ** 2 of their range: dense where little slack is left.
_SPACING = 2


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


class Tables(NamedTuple):
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
    tables: Tables

    @property
    def nodes(self) -> int:
        """Number of nodes a round."""
        return self.resolution.states * math.prod(self.sizes)


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
        certificate.contract.require_constant("the exact algorithm")
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
        # Arrays, so that another (lam, b) compiles nothing new; NumPy's, which keep their precision outside of here.
        numbers = jax.tree.map(lambda number: np.asarray(number, dtype=float), as_tree(certificate))
        tables = _tabulate(system, resolution, sizes, numbers, lows, highs)
        return Problem(system, resolution, sizes, numbers, lows, highs, tables)


def _states(system: MixtureSystem, resolution: Resolution) -> Any:
    return jnp.linspace(*system.states, resolution.states)


def proposal_grid(system: MixtureSystem, resolution: Resolution) -> Any:
    """The actions [n_a] that a policy may propose."""
    return jnp.linspace(*system.actions, resolution.actions)


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


def guard_at_start(certificate: LipschitzCertificate | None) -> LipschitzState | None:
    """The guard's state before the first round; None without a guard."""
    zero: Any = jnp.zeros(())
    return None if certificate is None else certificate.start(jax_ops(), zero)


def _coordinates(certificate: LipschitzCertificate, state: LipschitzState) -> tuple[Any, ...]:
    """The guard's state as the numbers that the rule's safe sets depend on: (surplus, memory[, allowance]).

    Rule `tight` needs no allowance. Except for rule `paper`, which forgets it, the surplus counts the b of past rounds.
    """
    past = 0.0 if certificate.rule == "paper" else state.rounds * certificate.contract.b
    coordinates = (state.surplus + past, state.memory)
    return coordinates if certificate.rule == "tight" else (*coordinates, state.allowance)


def _guard_state(
    certificate: LipschitzCertificate, closed: Any, coordinates: Sequence[Any]
) -> LipschitzState:
    """The inverse of `_coordinates` before round closed + 1; no round-off has been collected."""
    zero: Any = jnp.zeros(())
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
        charged = (
            bounds.carried * float(p.carried_deviation_over(highs[1, h], float(rounds - h), NUMPY)) + future
        )
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


def place_on_axis(value: Any, low: Any, high: Any, count: int, spacing: int = 1) -> tuple[Any, Any]:
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
        lower, weight = place_on_axis(value, lows[c], highs[c], count, _SPACING)
        flat = flat * count + lower
        weights.append(weight)
    return flat, weights


def cell_corners(sizes: tuple[int, ...], leading: tuple[int, ...] = ()) -> list[tuple[int, tuple[int, ...]]]:
    """The corners of a cell in a flat array of shape (*leading, *sizes): (offset, which upper nodes it takes)."""
    shape = (*leading, *sizes)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    choices = [(0, 1) if count > 1 else (0,) for count in shape]
    return [
        (sum(stride for stride, upper in zip(strides, corner, strict=True) if upper), corner)
        for corner in itertools.product(*choices)
    ]


def corner_weight(weights: Sequence[Any], corner: tuple[int, ...]) -> Any:
    """The share of one corner of a cell in an interpolation, from the weight of the upper node in each direction."""
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
) -> Tables:
    states, proposals = _states(system, resolution), proposal_grid(system, resolution)

    def arrive(at: Any, state: Any, action: Any) -> tuple[Any, Any]:
        return place_on_axis(next_states(system, at, state, action), *system.states, resolution.states)

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
        place, weight = place_on_axis(action, *system.actions, resolution.actions)
        weights = [weight]
        if certificate is not None:
            flat, more = _place_coordinates(
                sizes, _coordinates(certificate, after), lows[:, at], highs[:, at]
            )
            place, weights = place * math.prod(sizes) + flat, [weight, *more]
        reward = jnp.asarray(system.reward(at, state, action), dtype=float)
        return place, jnp.stack(weights), reward

    def one_round(at: Any) -> Tables:
        arriving: Any = jax.vmap(jax.vmap(arrive, (None, None, 0), 1), (None, 0, None), 1)
        deciding: Any = jax.vmap(decide, (None, None, 0, None), (0, 1, 0))
        deciding = jax.vmap(deciding, (None, 0, None, None), (0, 1, 0))
        deciding = jax.vmap(deciding, (None, None, None, 0))
        nodes = jnp.arange(math.prod(sizes))
        return Tables(*arriving(at, states, proposals), *deciding(at, states, nodes, proposals))

    tables: Tables = jax.lax.map(one_round, rounds_of(system))
    return tables


def interpolate(problem: Problem, values: Any, closed: Any, state: Any, guard: Any) -> Any:
    """`values` [n_x, n_g, ...] of round closed + 1 at one state and one guard state, off the nodes: [...]."""
    lower, weight = place_on_axis(state, *problem.system.states, problem.resolution.states)
    flat, weights = (0, []) if guard is None else _place_guard(problem, closed, guard)
    around = cell_corners(problem.sizes)
    at = jnp.stack([flat + offset for offset, _ in around])
    shares = jnp.stack([jnp.asarray(corner_weight(weights, corner)) for _, corner in around])
    return shares @ ((1.0 - weight) * values[lower, at] + weight * values[lower + 1, at])
