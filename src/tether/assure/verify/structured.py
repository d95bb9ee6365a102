"""What a structured certificate relies on, as claims that a search can attack.

At a point, the plant's state and the prior's are any two of the region, and the gaps are exactly those between them,
which is the least that a structure may be told. In the first round the plant plays any action, from then on a backup;
the other one plays the prior throughout. `tether.assure.compare` has the bounds and how each is compared with what
happens; every claim is an inequality without a constant, effect <= 0:

    now (PLAN)      y_1 <= T_0
    later (PLAN)    y_1 + ... + y_{1+n} <= T_n for n = 1 .. rounds
    floor           floor <= c+, once c is seen
    ceiling         c <= ceiling
    cost floor      c >= eps and c+ >= eps
    gap i           the gap i that `close` and `refine` leave bounds the one that there is after the round
    admits, agrees  nothing that is in the region is refused
    backup (PLAN)   its action is one that can be played

Which states can be reached, and what comes after more rounds, is left to the episodes that `tether.verify` plays too
(`tether.assure.falsify`), with the gaps that the structure carries.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np

from tether.assure.compare import Plant, Situation, bound_names, compare
from tether.assure.verify.box import Range, box
from tether.assure.verify.claims import Claim, Point, Sides, both_states, first_state
from tether.assure.verify.simulators import EnvSimulator
from tether.certificates.structure import Structure
from tether.core.ops import NUMPY, Ops, jax_ops, namespace

SAYS = {
    "now": "c - (1 + lam) c+ <= T_0",
    "later": "c - (1 + lam) c+ summed over n more rounds <= T_n",
    "floor": "floor <= c+",
    "ceiling": "c <= ceiling",
    "cost": "c >= eps and c+ >= eps",
    "gap": "the gap that is left bounds the one that there is",
    "admits": "what is seen is not refused",
    "agrees": "the system's prior is not refused",
    "backup": "its action is inside the bounds",
    "promise": "J_h <= (1 + lam) J_h(prior) + h b through the online guard",
    "breach": "the guard takes nothing for an assumption breach",
}
"""By the first word of a bound's name."""


def says(bound: str) -> str:
    """A bound as a formula."""
    return SAYS[bound.split(" ")[0]]


def structured_claims(
    system: EnvSimulator, structure: Structure, cost_floor: float, rounds: int, lam: Range
) -> list[Claim]:
    """The claims of the module's table about a `tether.envs.Env`, for contracts whose lam is in a range."""
    env, draw = system.env, system.draws
    points = {"state": system.states, "other state": system.others, "draw 1": draw, "action": system.actions}
    points |= {f"draw {n}": draw for n in range(2, rounds + 2)}
    points["contract"] = box({"lam": lam})
    first, *rest = structure.plans(env.low, env.high)
    claims: dict[str, Claim] = {}
    for plan in dict.fromkeys((first, 0, *rest)):
        names = bound_names(structure, plan, len(_gaps(system, structure)))
        for i, name in enumerate(names):
            sides = eqx.Partial(_sides, system, structure, cost_floor, plan, names, np.asarray(i))
            near = {"other state": eqx.Partial(first_state, system)}
            claims.setdefault(name, Claim(name, says(name), 0.0, points, sides, near=near))
    return list(claims.values())


def _gaps(system: EnvSimulator, structure: Structure) -> tuple[Any, ...]:
    """The gaps between a state in the middle of the region and itself."""
    values, draw = (0.5 * (each.low + each.high) for each in (system.states, system.draws))
    seen = structure.read(system.observation(system.start(values), draw))
    return structure.gaps_between(seen, seen, NUMPY)


def _sides(
    system: EnvSimulator,
    structure: Structure,
    cost_floor: float,
    plan: int,
    names: tuple[str, ...],
    place: Any,
    point: Point,
) -> Sides:
    """Bound number `place` of `names` at a point; all of them are one compiled program."""

    def look(state: Any, draw: Any) -> tuple[Any, Any]:
        return system.observation(state, draw), shaped(system.prior(state, draw))

    def play(state: Any, draw: Any, action: Any) -> tuple[Any, Any]:
        after, cost = system.play(state, draw, action)
        return cost, after

    def shaped(action: Any) -> Any:
        return namespace(action).reshape(action, system.env.action_shape)

    ops = _ops(point["state"])
    own, prior = (system.start(each) for each in both_states(system, point))
    draws = [point[f"draw {n}"] for n in range(1, len([name for name in point if "draw" in name]) + 1)]
    seen, prior_seen = (structure.read(system.observation(each, draws[0])) for each in (own, prior))
    gaps = structure.gaps_between(seen, prior_seen, ops)
    lam = point["contract"][0]
    situation = Situation(own, prior, gaps, draws, shaped(point["action"]), lam, len(draws))
    plant = Plant(look, play, cost_floor, system.env.low, system.env.high)
    found = compare(structure, plant, situation, plan, ops)
    effect, size = (ops.stack([each[name] for name in names])[place] for each in (found.excess, found.size))
    return Sides(effect, 1.0, size)


def _ops(values: Any) -> Ops:
    return NUMPY if namespace(values) is np else jax_ops()
