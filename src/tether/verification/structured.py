"""What a structured certificate relies on, as claims that a search can attack.

At a point, the own state and the prior's are any two of the region, and the gaps are exactly those between them, which
is the least that a structure may be told. In the first round the own trajectory plays any action, the other one the
prior's; from then on both play the prior. Each claim is an inequality without a constant: effect <= 0.

    step i    the gap i that `close` and `refine` leave bounds the one that there is after the round
    now       c - c+ <= t_0
    later     the sum of c - c+ over this and the next n rounds <= t_n, for n = 1 .. rounds (and t_K beyond K)
    floor     floor <= c+, once c is seen
    ceiling   c <= the largest cost that the round can have
    next      c - floor + t_n(next) <= t_{n+1}: condition (2) of `tether.certificates.structured`
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np

from tether.certificates.falsify import Situation, compare
from tether.certificates.structured import Structure
from tether.envs.base import namespace
from tether.verification.claims import Claim, Point, Sides
from tether.verification.systems import EnvSystem

SAYS = {
    "now": "c - c+ <= t_0",
    "later": "c - c+ summed over n more rounds <= t_n",
    "floor": "floor <= c+",
    "ceiling": "c <= ceiling",
    "next": "c - floor + t_n(next) <= t_(n+1)",
}


def structured_claims(system: EnvSystem, structure: Structure, cost_floor: float, rounds: int) -> list[Claim]:
    """The claims of the module's table about a `tether.envs.Env`."""
    x, a, draw = system.states, system.actions, system.draws
    box = {"state": x, "other state": x, "draw 1": draw, "action": a}
    box |= {f"draw {n}": draw for n in range(2, rounds + 2)}
    seen = structure.read(np.zeros(len(system.env.observation_names)))
    steps = {
        f"step {i}": f"gap {i} after the round bounds what it is"
        for i in range(len(structure.apart(seen, seen, np)))
    }
    return [
        Claim(
            name, says, 0.0, box, eqx.Partial(_sides, system, structure, cost_floor, name),
            near={"other state": _Own()},
        )
        for name, says in {**steps, **SAYS}.items()
    ]  # fmt: skip


class _Own(eqx.Module):
    def __call__(self, point: Point) -> Any:
        return point["state"]


def _sides(system: EnvSystem, structure: Structure, cost_floor: float, name: str, point: Point) -> Sides:
    def played(state: Any, draw: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        wish = system.prior(state, draw)
        after, cost = system.play(state, draw, wish if action is None else action)
        return system.observation(state, draw), wish, cost, after

    def entries(action: Any) -> Any:
        return list(action) if structure.entries else action[0]

    xp = namespace(point["state"])
    own, prior = (system.start(point[name]) for name in ("state", "other state"))
    draws = [point[f"draw {n}"] for n in range(1, len(point) - 2)]
    seen, prior_seen = (structure.read(system.observation(each, draws[0])) for each in (own, prior))
    situation = Situation(own, prior, structure.apart(seen, prior_seen, xp), draws, point["action"])
    found = compare(structure, played, situation, cost_floor, xp, entries)
    size = 1.0 + sum(abs(each) for each in seen) if name.startswith("step") else found.size
    return Sides(found.excess[name], 1.0, size)
