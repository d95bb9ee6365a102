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

from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from tether.certificates.structured import Structure
from tether.envs.base import namespace
from tether.verification.claims import Claim, Point, Sides
from tether.verification.systems import EnvSystem

_EPSILON = float(np.finfo(np.float64).eps)


def structured_claims(system: EnvSystem, structure: Structure, cost_floor: float, rounds: int) -> list[Claim]:
    """The claims of the module's table about a `tether.envs.Env`."""
    x, a, draw = system.states, system.actions, system.draws
    box = {"state": x, "other state": x, "draw 1": draw, "action": a}
    box |= {f"draw {n}": draw for n in range(2, rounds + 2)}
    gaps = len(structure.start(0.0)) if structure.kind != "cooling" else 4

    def claim(name: str, says: str, what: str) -> Claim:
        sides = eqx.Partial(_sides, system, structure, cost_floor, rounds, what)
        return Claim(name, says, 0.0, box, sides, near={"other state": _Own()})

    return [
        *(claim(f"step {i}", f"gap {i} after the round bounds what it is", f"step {i}") for i in range(gaps)),
        claim("now", "c - c+ <= t_0", "now"),
        claim("later", f"c - c+ summed over n more rounds <= t_n, n = 1 .. {rounds}", "later"),
        claim("floor", "floor <= c+", "floor"),
        claim("ceiling", "c <= ceiling", "ceiling"),
        claim("next", "c - floor + t_n(next) <= t_(n+1)", "next"),
    ]


class _Own(eqx.Module):
    def __call__(self, point: Point) -> Any:
        return point["state"]


class _Round(NamedTuple):
    seen: tuple[Any, ...]
    wish: Any
    state: Any


def _sides(
    system: EnvSystem, structure: Structure, cost_floor: float, rounds: int, what: str, point: Point
) -> Sides:
    xp = namespace(point["state"])

    def look(state: Any, draw: Any) -> _Round:
        wish = system.prior(state, draw)
        return _Round(structure.read(system.observation(state, draw)), _entries(structure, wish), state)

    def largest(values: list[Any]) -> Any:
        return reduce(xp.maximum, values)

    draws = [point[f"draw {n}"] for n in range(1, rounds + 2)]
    own, prior = (look(system.start(point[name]), draws[0]) for name in ("state", "other state"))
    gaps = structure.apart(own.seen, prior.seen, xp)
    action = _entries(structure, point["action"])
    before = structure.exposure(gaps, own.seen, own.wish, action, xp)
    state, cost = system.play(own.state, draws[0], point["action"])
    prior_state, prior_cost = system.play(prior.state, draws[0], system.prior(prior.state, draws[0]))
    size = abs(cost) + abs(prior_cost) + structure.scale
    if what == "now":
        return Sides(cost - prior_cost - before.totals[0], 1.0, size)
    if what == "ceiling":
        return Sides(cost - before.ceiling, 1.0, size)
    floor, pending = structure.close(before.step, cost, _EPSILON, xp)
    floor = xp.maximum(xp.maximum(floor, cost - before.totals[0]), cost_floor)
    if what == "floor":
        return Sides(floor - prior_cost, 1.0, size)
    last = len(before.totals) - 1
    if what == "later":
        paid, worst = cost - prior_cost, []
        for n, draw in enumerate(draws[1:], start=1):
            state, cost_n = system.play(state, draw, system.prior(state, draw))
            prior_state, prior_n = system.play(prior_state, draw, system.prior(prior_state, draw))
            paid, size = paid + cost_n - prior_n, size + abs(cost_n) + abs(prior_n)
            worst.append(paid - before.totals[min(n, last)])
        return Sides(largest(worst), 1.0, size)
    after, prior_after = look(state, draws[1]), look(prior_state, draws[1])
    left = structure.refine(pending, after.seen, _EPSILON, xp)
    if what == "next":
        totals = structure.exposure(left, after.seen, after.wish, after.wish, xp).totals
        worst = [cost - floor + total - before.totals[min(n + 1, last)] for n, total in enumerate(totals)]
        return Sides(largest(worst), 1.0, size + largest([abs(total) for total in totals]))
    i = int(what.removeprefix("step "))
    there = structure.apart(after.seen, prior_after.seen, xp)
    return Sides(there[i] - left[i], 1.0, 1.0 + sum(abs(each) for each in after.seen))


def _entries(structure: Structure, action: Any) -> Any:
    """The action as a structure takes it: a number, or a list of numbers."""
    return list(action) if structure.entries else action[0]
