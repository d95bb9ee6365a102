"""What a guard relies on, claim by claim, as ratios that a search can drive up.

A claim says that `effect <= claimed * cause` at every point of a box. Its ratio is effect / cause; one point with a
larger ratio than what is claimed refutes it. x, x' are states, a, a' actions, y the draw of a round, y_1, y_2, ... of
successive rounds, f the dynamics, c the cost, pi+ the prior; ||.|| is the norm of the system (`Simulator.norm`), the
same for states and actions. Both sides of a comparison see the same draws, and have the same `Simulator.shared`
entries, such as a clock. x_n(x, y) is the state after n rounds under the prior from x. The standard claims:

    cost floor     eps              c(x, a, y) >= eps                                    (a lower bound)
    L_c (state)    cost per state   |c(x, a, y) - c(x', a, y)|                 / ||x - x'||
    L_c (action)   cost per action  |c(x, a, y) - c(x, a', y)|                 / ||a - a'||
    L_f (state)    1                ||f(x, a, y) - f(x', a, y)||               / ||x - x'||
    L_f (action)   state per action ||f(x, a, y) - f(x, a', y)||               / ||a - a'||
    L_pi           action per state ||pi+(x, y) - pi+(x', y)||                 / ||x - x'||
    p(n)           1                ||x_n(x, y) - x_n(x', y)||                 / ||x - x'||
    immediate      cost per action  |c(x, a, y_1) - c(x, pi+(x, y_1), y_1)|    / ||a - pi+(x, y_1)||
    carried (n)    cost per action  |c_{n+2} - c+_{n+2}|                       / (p(n) ||a - pi+(x, y_1)||)

In `carried (n)` one trajectory plays a in round 1, the other pi+(x, y_1), from the same x; both play the prior in
rounds 2, ..., n + 2, and c_{n+2}, c+_{n+2} are their costs in the last. That, with `immediate`, is all that the guard
needs of a `Sensitivity`: between the guarded trajectory and the prior's lie trajectories that follow the guarded one up
to round j and the prior from then on; each differs from the one before it by one deviation, from the same state.

The L constants are not part of a `Sensitivity`. They are checked if they are given, because `from_lipschitz` makes
one of them; if not, the search still measures them.

**A certificate of another kind** brings its own claims: it has a method `claims(system) -> Sequence[Claim]`, which
`tether.verify` then uses instead of the standard ones. A `Claim` needs a name, a sentence, the claimed value, a box for
each entry of its points and a function of a point to `Sides`. An inequality `left <= right` without a constant is the
claim of 0 with effect = left - right and cause = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether.assure.cases import ROUND_OFF
from tether.assure.verify.box import Box
from tether.assure.verify.simulators import Simulator
from tether.core.ops import NUMPY, namespace
from tether.core.projection import length
from tether.core.sensitivity import Perturbation

Lipschitz = float | tuple[float | None, float | None] | None
"""A constant for state and action, or one for each: (state, action)."""
Point = Mapping[str, Any]
"""For each entry of a claim's box its values [k]."""


class Sides(NamedTuple):
    """What a claim compares at one point."""

    effect: Any
    cause: Any
    magnitude: Any
    """Size of the numbers whose difference the effect is: what its round-off is proportional to."""


@dataclass(frozen=True)
class Claim:
    """`effect <= claimed * cause` at every point of a box."""

    name: str
    says: str
    """The claim as a formula."""
    claimed: float | None
    """None: nothing is claimed, the largest ratio is only measured."""
    box: Mapping[str, Box]
    """The entries of a point, each with its ranges."""
    sides: Callable[[Point], Sides]
    """Pure. If it is an `equinox.Partial` (or another PyTree), its arrays are arguments of the compiled search, so that
    systems of one structure share it."""
    near: Mapping[str, Callable[[Point], Any]] = field(default_factory=dict)
    """Entries that are looked for at all distances from something, which a function of the entries before them gives:
    a second state from the first, an action from the prior's."""
    gradient: bool = True
    """Whether JAX can trace `sides`."""
    lower: bool = False
    """Whether it is a lower bound: effect and claimed value are then the negative of what is shown."""
    least_cause: float = 0.0
    """A cause below this counts as none: the ratio would be round-off."""

    def ratio(self, point: Point) -> Any:
        """The effect, less what may be round-off, over the cause; 0 where there is no cause."""
        return ratio(self.sides(point), self.least_cause)

    def refuted_by(self, point: Point) -> bool:
        """Whether the point is in the box and the claim is false there by more than round-off."""
        if self.claimed is None or not all(self.box[name].holds(values) for name, values in point.items()):
            return False
        sides = self.sides(point)
        return float(sides.cause) > self.least_cause and float(ratio(sides, self.least_cause)) > self.claimed


def ratio(sides: Sides, least_cause: Any) -> Any:
    """See `Claim.ratio`; this is what the search drives up, so that it does not chase round-off."""
    xp = namespace(sides.effect)
    there = sides.cause > least_cause
    certain = sides.effect - ROUND_OFF * sides.magnitude
    return xp.where(there, certain / xp.where(there, sides.cause, 1.0), 0.0)


@dataclass(frozen=True)
class Constants:
    """What is claimed; None where nothing is."""

    cost_floor: float | None = None
    immediate: float | None = None
    carried: float | None = None
    perturbation: Perturbation | None = None
    L_c: Lipschitz = None
    L_f: Lipschitz = None
    L_pi: float | None = None


def standard_claims(system: Simulator, constants: Constants, rounds: int) -> list[Claim]:
    """The claims of the module's table, p(n) for n = 1..rounds and carried (n) for n = 0..rounds-1."""
    p = constants.perturbation
    left = None if p is None else p_values(p, rounds + 1)
    return [
        _floor_claim(system, constants),
        *_lipschitz_claims(system, constants),
        *_perturbation_claims(system, left, rounds),
        *_sensitivity_claims(system, constants, left, rounds),
    ]


def _floor_claim(system: Simulator, constants: Constants) -> Claim:
    floor = constants.cost_floor
    return Claim(
        "cost floor",
        "c(x, a, y) >= eps",
        None if floor is None else -floor,
        {"state": system.states, "action": system.actions, "draw 1": system.draws},
        eqx.Partial(_cost_floor, system),
        gradient=system.traceable,
        lower=True,
    )


def _lipschitz_claims(system: Simulator, constants: Constants) -> list[Claim]:
    """L_c and L_f in state and action, and L_pi."""
    x, a, draw = system.states, system.actions, {"draw 1": system.draws}
    of_states, of_actions = (
        _between_states(system),
        {"near": {"other action": _Action()}, **_of_action(system)},
    )
    pair = {"state": x, "other state": system.others}
    claims = []
    for letter, what, norm, given in (("c", "cost", "|", constants.L_c), ("f", "state", "||", constants.L_f)):
        in_state, in_action = given if isinstance(given, tuple) else (given, given)
        claims += [
            Claim(
                f"L_{letter} (state)",
                f"{norm}{letter}(x, a) - {letter}(x', a){norm} <= L_{letter} ||x - x'||",
                in_state,
                {**pair, "action": a, **draw},
                eqx.Partial(_of_states, system, what),
                **of_states,
            ),
            Claim(
                f"L_{letter} (action)",
                f"{norm}{letter}(x, a) - {letter}(x, a'){norm} <= L_{letter} ||a - a'||",
                in_action,
                {"state": x, "action": a, "other action": a, **draw},
                eqx.Partial(_of_actions, system, what),
                **of_actions,
            ),
        ]
    says = "||pi+(x) - pi+(x')|| <= L_pi ||x - x'||"
    prior = Claim("L_pi", says, constants.L_pi, {**pair, **draw}, eqx.Partial(_of_prior, system), **of_states)
    return [*claims, prior]


def _perturbation_claims(system: Simulator, left: Any, rounds: int) -> list[Claim]:
    """p(1) to p(rounds); `left` has what is claimed of them, p(0) first, if anything is."""
    return [
        Claim(
            f"p({n})",
            f"||x_{n} - x'_{n}|| <= p({n}) ||x - x'||",
            None if left is None else float(left[n]),
            {"state": system.states, "other state": system.others, **_draws(system.draws, n)},
            eqx.Partial(_of_trajectories, system, n),
            **_between_states(system),
        )
        for n in range(1, rounds + 1)
    ]


def _sensitivity_claims(system: Simulator, constants: Constants, left: Any, rounds: int) -> list[Claim]:
    """`immediate`, and `carried (n)` if p is claimed: what a deviation from the prior's action does to costs."""
    x, a, draw = {"state": system.states}, {"action": system.actions}, system.draws
    near, common = {"action": eqx.Partial(_prior_action, system)}, _of_action(system)
    immediate = Claim(
        "immediate",
        "|c(x, a) - c(x, pi+(x))| <= immediate ||a - pi+(x)||",
        constants.immediate,
        {**x, "draw 1": draw, **a},
        eqx.Partial(_immediate, system),
        near=near,
        **common,
    )
    if left is None:
        return [immediate]
    return [
        immediate,
        *(
            Claim(
                f"carried ({n})",
                f"|c_{n + 2} - c+_{n + 2}| <= carried p({n}) ||a - pi+(x)||",
                constants.carried,
                {**x, **_draws(draw, 1), **a, **_draws(draw, n + 2, first=2)},
                eqx.Partial(_carried, system, n, np.asarray(left[n])),
                near=near,
                # A p(n) near 0 would make round-off of the costs look like an effect.
                **common | {"least_cause": common["least_cause"] * max(float(left[n]), 1e-6)},
            )
            for n in range(rounds)
        ),
    ]


def _between_states(system: Simulator) -> dict[str, Any]:
    """What claims about two states have in common."""
    near = {"other state": eqx.Partial(first_state, system)}
    return {"near": near, "least_cause": _least(system, system.others), "gradient": system.traceable}


def _of_action(system: Simulator) -> dict[str, Any]:
    """What claims about two actions have in common."""
    return {"least_cause": _least(system, system.actions), "gradient": system.traceable}


def _least(system: Simulator, searched: Box) -> float:
    """A gap below this share of the box counts as none."""
    return 1e-7 * float(length(searched.widths, system.norm))


def p_values(p: Perturbation, count: int) -> Any:
    """[count] p(0), p(1), ...; a table that is shorter claims nothing beyond its end, so it is refused."""
    p.check_horizon(count)
    return np.diff([float(p.sum_over(rounds, NUMPY)) for rounds in range(count + 1)])


def select(claims: Sequence[Claim], names: Sequence[str]) -> list[Claim]:
    """Those of the claims that `names` name."""
    known = [claim.name for claim in claims]
    for name in names:
        if name not in known:
            raise ValueError(f"no claim {name!r}; there are {', '.join(known)}")
    return [claim for claim in claims if claim.name in names]


class _Action(eqx.Module):
    def __call__(self, point: Point) -> Any:
        return point["action"]


def first_state(system: Simulator, point: Point) -> Any:
    """What an `other state` is near to."""
    return system.own_part(point["state"])


def both_states(system: Simulator, point: Point) -> tuple[Any, Any]:
    """The two states of a point, [n] each; entries that are shared are those of the first."""
    return point["state"], system.beside(point["state"], point["other state"])


def _draws(draw: Box, last: int, first: int = 1) -> dict[str, Box]:
    return {f"draw {n}": draw for n in range(first, last + 1)}


def _prior_action(system: Simulator, point: Point) -> Any:
    return system.prior(system.start(point["state"]), point["draw 1"])


def _size(system: Simulator, one: Any, other: Any) -> Any:
    """Of the numbers whose difference a gap is."""
    return system.gap(one, 0.0 * one) + system.gap(other, 0.0 * other)


def _compared(system: Simulator, what: str, one: Any, other: Any, cause: Any) -> Sides:
    """The costs, or the states, of two rounds (state, cost)."""
    if what == "cost":
        return Sides(abs(one[1] - other[1]), cause, abs(one[1]) + abs(other[1]))
    states = system.measure(one[0]), system.measure(other[0])
    return Sides(system.gap(*states), cause, _size(system, *states))


def _cost_floor(system: Simulator, point: Point) -> Sides:
    cost = system.play(system.start(point["state"]), point["draw 1"], point["action"])[1]
    return Sides(-cost, 1.0, abs(cost))


def _of_states(system: Simulator, what: str, point: Point) -> Sides:
    x, other = both_states(system, point)
    one, two = (system.play(system.start(each), point["draw 1"], point["action"]) for each in (x, other))
    return _compared(system, what, one, two, system.gap(x, other))


def _of_actions(system: Simulator, what: str, point: Point) -> Sides:
    a, other = point["action"], point["other action"]
    state = system.start(point["state"])
    one, two = (system.play(state, point["draw 1"], each) for each in (a, other))
    return _compared(system, what, one, two, system.gap(a, other))


def _of_prior(system: Simulator, point: Point) -> Sides:
    x, other = both_states(system, point)
    one, two = (system.prior(system.start(each), point["draw 1"]) for each in (x, other))
    return Sides(system.gap(one, two), system.gap(x, other), _size(system, one, two))


def _under_prior(system: Simulator, pair: tuple[Any, Any], draws: list[Any]) -> tuple[Any, Any]:
    """Two states after the prior has played a round with each of the draws: ((state, cost), (state, cost))."""

    def one_round(states: tuple[Any, Any], draw: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        played = [system.play(state, draw, system.prior(state, draw)) for state in states]
        return (played[0][0], played[1][0]), (played[0][1], played[1][1])

    if isinstance(draws[0], jax.Array):
        # One round is compiled, however many there are.
        pair, costs = jax.lax.scan(one_round, pair, jnp.stack(draws))
        return (pair[0], costs[0][-1]), (pair[1], costs[1][-1])
    for draw in draws:
        pair, last = one_round(pair, draw)
    return (pair[0], last[0]), (pair[1], last[1])


def _of_trajectories(system: Simulator, n: int, point: Point) -> Sides:
    x, other = both_states(system, point)
    draws = [point[f"draw {index}"] for index in range(1, n + 1)]
    rounds = _under_prior(system, (system.start(x), system.start(other)), draws)
    return _compared(system, "state", *rounds, system.gap(x, other))


def _immediate(system: Simulator, point: Point) -> Sides:
    state, draw = system.start(point["state"]), point["draw 1"]
    trusted = system.prior(state, draw)
    rounds = system.play(state, draw, point["action"]), system.play(state, draw, trusted)
    return _compared(system, "cost", *rounds, system.gap(point["action"], trusted))


def _carried(system: Simulator, n: int, p_n: Any, point: Point) -> Sides:
    state, draw = system.start(point["state"]), point["draw 1"]
    trusted = system.prior(state, draw)
    own, other = system.play(state, draw, point["action"]), system.play(state, draw, trusted)
    draws = [point[f"draw {index}"] for index in range(2, n + 3)]
    rounds = _under_prior(system, (own[0], other[0]), draws)
    return _compared(system, "cost", *rounds, p_n * system.gap(point["action"], trusted))
