"""What a structure says beside what happens: both plants played by the system itself, every bound compared.

`tether.assure.falsify` uses this for many cases at once in NumPy, `tether.verify` compiles it, and a case that
was found is played again with it. The bounds by name, where PLAN is `prior` or one of the structure's backups:

    now (PLAN)      y_h <= T_0, if the case's action is played and the structure is asked for this backup
    later (PLAN)    y_h + ... + y_{h+n} <= T_n for n >= 1, if the backup is played from round h + 1 on
    floor           floor <= c+_h, once c_h is seen
    ceiling         c_h <= ceiling
    cost floor      c_h >= eps and c+_h >= eps, which every contract relies on
    gap i           the gap i that `close` and `refine` leave bounds the one that `gaps_between` finds in round h + 1
    admits          what is seen is not refused                                 (1 where it is, which is a false breach)
    agrees          the system's prior is taken for the prior                   (1 where it is not)
    backup (PLAN)   the backup plays a finite action inside the bounds of the actions: how far outside it is
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from tether.certificates.structure import Bounds, Numbers, Round, Structure
from tether.core.certificate import Action, Observation
from tether.core.ops import FLOAT64, Flag, Number, Ops

PlantState: TypeAlias = Any
"""The state of a system, as it has it: a NamedTuple of numbers or arrays."""
Draw: TypeAlias = Any
"""What is drawn in a round, as the system has it."""
HUGE = 1e30
"""Stands for any larger difference, so that a search has numbers to compare."""


class Plant(NamedTuple):
    """A system as it is played: one case, or many at once."""

    look: Callable[[Any, Any], tuple[Any, Any]]
    """`look(state, draw) -> (observation [o, ...], prior's action)`."""
    play: Callable[[Any, Any, Any], tuple[Any, Any]]
    """`play(state, draw, action) -> (cost, next state)`."""
    cost_floor: float
    """Of the contract (eps), cost units."""
    low: Number
    """Lower bounds of the actions, a number or [n]."""
    high: Number
    """Upper bounds of the actions, a number or [n]."""


class Situation(NamedTuple):
    """Where bounds are compared: a round in which the action is not yet played."""

    own: PlantState
    """State of the guarded plant."""
    prior: PlantState
    """State of the plant that the prior has had from the start."""
    gaps: Numbers
    """What is known of how far they are apart, as `Structure.refine` gives it."""
    draws: Sequence[Any]
    """What is drawn, one entry a round from this one on."""
    action: Action
    """What is played in this round, a number or [..., n]."""
    lam: Number
    """Of the contract."""
    remaining: Number
    """Rounds that are left, this one included; later draws count for nothing."""


class Compared(NamedTuple):
    """What a structure says of a round and of those after it, beside what happened."""

    excess: dict[str, Any]
    """By bound, how much more there was than it says, cost, state or action units."""
    size: dict[str, Any]
    """By bound, the size of the numbers that were compared: what their round-off is proportional to."""
    until: Any
    """The n in which `later` is worst."""


def bound_names(structure: Structure, plan: int, gaps: int) -> tuple[str, ...]:
    """The bounds that `compare` looks at, for a structure with so many gaps."""
    name = ("prior", *structure.backups)[plan]
    every = [*(f"gap {i}" for i in range(gaps)), "cost floor", "floor", "ceiling", "admits", "agrees"]
    own = [f"backup ({name})"] if plan else []
    return (*every, *own, f"now ({name})", f"later ({name})")


def compare(structure: Structure, plant: Plant, situation: Situation, plan: int, ops: Ops) -> Compared:
    """Play a round and those after it on both plants, and compare.

    Args:
        structure: What is said.
        plant: What happens.
        situation: Where; single numbers, or one a case.
        plan: Number of the backup that is played from the next round on.
        ops: What the structure computes with.
    """
    name = ("prior", *structure.backups)[plan]
    own, prior, gaps, draws, action, lam, _ = situation
    observation, wish = plant.look(own, draws[0])
    now = round_of(structure, plant, observation, wish, gaps, lam)
    said = structure.bounds(now, entries_of(structure, action), plan, ops)
    cost, own = plant.play(own, draws[0], action)
    prior_cost, prior = _under_prior(plant, prior, draws[0])
    floor, pending = structure.close(said.step, cost, FLOAT64, ops)
    paid = cost - (1.0 + lam) * prior_cost
    costs = abs(cost) + (1.0 + lam) * abs(prior_cost) + structure.scale
    inward = tuple(each * (1.0 - FLOAT64) for each in now.seen)
    excess = {
        "cost floor": _over(plant.cost_floor, ops.minimum(cost, prior_cost), HUGE, ops),
        "floor": _over(floor, prior_cost, -HUGE, ops),
        "ceiling": _over(cost, said.ceiling, HUGE, ops),  # one that is not a number is a breach
        "admits": _refused(structure.admits(inward, ops), costs, ops),
        "agrees": _refused(structure.agrees(now.seen, now.prior, FLOAT64, ops), costs, ops),
        f"now ({name})": _over(paid, said.totals[0], -HUGE, ops),
    }
    units = 1.0 + sum(_one_a_case(abs(each), costs, ops) for each in now.seen)
    size = {**dict.fromkeys(excess, costs), "admits": 1.0 + 0.0 * costs, "agrees": 1.0 + 0.0 * costs}
    if plan:
        played = structure.backup(plan, now, ops)
        excess[f"backup ({name})"] = _outside(structure, plant, played, ops) + 0.0 * costs
        size[f"backup ({name})"] = units
    follow = situation._replace(own=own, prior=prior, gaps=pending, draws=draws[1:])
    gaps_over, worst, until, costs = _follow(structure, plant, follow, plan, said, paid, costs, ops)
    steps = {f"gap {i}": over for i, over in enumerate(gaps_over)}
    size |= {**dict.fromkeys(steps, units), f"later ({name})": costs}
    return Compared({**steps, **excess, f"later ({name})": worst}, size, until)


def _follow(
    structure: Structure,
    plant: Plant,
    situation: Situation,
    plan: int,
    said: Bounds,
    paid: Number,
    costs: Number,
    ops: Ops,
) -> tuple[list[Number], Number, Number, Number]:
    """The rounds after the first: (gaps in the next one, worst of `later`, its n, size of the costs in all)."""
    own, prior, pending, draws, _, lam, remaining = situation
    gaps_over: list[Number] = []
    worst, until = 0.0 * costs - HUGE, 0.0 * costs
    for n, draw in enumerate(draws, start=1):
        left = n < remaining
        observation, wish = plant.look(own, draw)
        action = wish
        if n == 1 or plan:
            gaps = structure.refine(pending, structure.read(observation), FLOAT64, ops)
            now = round_of(structure, plant, observation, wish, gaps, lam)
        if n == 1:
            there = structure.gaps_between(now.seen, structure.read(plant.look(prior, draw)[0]), ops)
            for actual, known in zip(there, gaps, strict=True):
                over = _one_a_case(_over(actual, known, -HUGE, ops), costs, ops)
                gaps_over.append(ops.where(left, over, -HUGE))
        if plan:
            backup = structure.backup(plan, now, ops)
            step = structure.bounds(now, backup, plan, ops).step
            action = packed(backup, wish, ops)
        cost, own = plant.play(own, draw, action)
        prior_cost, prior = _under_prior(plant, prior, draw)
        if plan:
            _, pending = structure.close(step, cost, FLOAT64, ops)
        paid = paid + cost - (1.0 + lam) * prior_cost
        costs = costs + ops.where(left, abs(cost) + (1.0 + lam) * abs(prior_cost), 0.0)
        over = ops.where(left, _over(paid, said.totals[min(n, len(said.totals) - 1)], -HUGE, ops), -HUGE)
        until = ops.where(over > worst, 1.0 * n, until)
        worst = ops.maximum(worst, over)
    return gaps_over, worst, until, costs


def round_of(
    structure: Structure, plant: Plant, observation: Observation, wish: Action, gaps: Numbers, lam: Number
) -> Round:
    """The round as the structure sees it."""
    seen = structure.read(observation)
    return Round(gaps, seen, entries_of(structure, wish), lam, plant.cost_floor, plant.low, plant.high)


def entries_of(structure: Structure, action: Action) -> Action:
    """An action as the structure takes it: a number, an array, or a list of the n entries of [..., n]."""
    if not structure.scalar or structure.entries == 0:
        return action
    return [action[..., i] for i in range(structure.entries)]


def packed(action: Action, like: Action, ops: Ops) -> Action:
    """The opposite of `entries_of`, in the shape of `like`."""
    return 0.0 * like + (ops.stack(action, axis=-1) if isinstance(action, list) else action)


def _under_prior(plant: Plant, state: PlantState, draw: Draw) -> tuple[Number, Any]:
    return plant.play(state, draw, plant.look(state, draw)[1])


def _over(value: Number, bound: Number, unknown: float, ops: Ops) -> Number:
    """By how much the value is above the bound; `unknown` where one of them is not a number."""
    over = value - bound
    return ops.where(over == over, ops.clip(over, -HUGE, HUGE), unknown)


def _refused(allowed: Flag, like: Number, ops: Ops) -> Number:
    return ops.where(allowed, 0.0, 1.0) + 0.0 * like


def _outside(structure: Structure, plant: Plant, action: Action, ops: Ops) -> Number:
    """How far an action is from those that there are and for which the bounds hold."""
    if structure.entries == 0:
        action = [action]
    elif not isinstance(action, list):
        action = [action[..., i] for i in range(structure.entries)]
    far = 0.0
    boxes: list[tuple[Any, Any]] = [(plant.low, plant.high), (structure.low, structure.high)]
    for low, high in boxes:
        for i, entry in enumerate(action):
            least, most = (end[i] if getattr(end, "ndim", 0) else end for end in (low, high))
            far = ops.maximum(far, ops.maximum(_over(least, entry, HUGE, ops), _over(entry, most, HUGE, ops)))
    return far


def _one_a_case(values: Any, like: Number, ops: Ops) -> Number:
    """The largest entry of what may be an array a case."""
    for _ in range(getattr(values, "ndim", 0) - getattr(like, "ndim", 0)):
        values = ops.max(values, axis=-1)
    number: Number = values
    return number
