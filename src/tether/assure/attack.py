"""Try to break the promise: hostile noise, hostile policies, and what was nearly broken bred further.

An episode is everything that nature draws and a *script*, what a hostile policy proposes. Both are patterns of
extremes: held, mixed, switched in time, alternating, pulsed. So noise can hide a gap first and release it later, and a
policy can save and strike. A script is relative to the prior's action: the ends of the actions, a part of the way to
them or far beyond, what is not a number; the entries of a vector go the same way, contrary ways, or each its own. A
guard moves an extreme proposal to the boundary of its safe set, so that scripts of extremes play on the boundary. Half
of each batch is new; the other half are children of those episodes of the batch before that came nearest to breaking
the promise: spliced in time, with single values drawn again.

What is special about a system comes from its `tether.systems.System`: plants that stress a bound (`variants`), traps
in the draws (`traps`), ranges (`Env.limits`, `Env.search_ranges`), and which bounds can be loosened
(`Structure.loosenable`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.assure.breeding import Range, scripted
from tether.assure.coarse import apart, coarse, trusted
from tether.assure.falsify import series_ranges
from tether.assure.scenarios import ACTUATOR
from tether.certificates import Certificate
from tether.certificates.structure import Bounds, Structure
from tether.core import validate
from tether.core.audit import audit
from tether.core.contract import Contract
from tether.core.ops import Ops, namespace
from tether.data.episodes import Episodes
from tether.simulate.rollout import Precision, rollout
from tether.systems.base import Env
from tether.systems.certified import certificate_of
from tether.systems.system import NO_NUMBER, System

Array = NDArray[np.float64]

BATCH = 10_000
"""Episodes that are played at a time, in one compiled program."""
WAVE = 1_000_000
"""Episodes that are bred from one another and from nobody else: what an engine computes in one piece."""
SCRIPT = "script"
"""The series of what is proposed, which is appended to the observation."""
INFINITE = 1e29
"""In a script this and its opposite stand for infinite proposals."""
TINY = 1e28
"""In a script stands for the smallest proposal above 0, whatever the prior plays; its opposite for that below 0."""
SMALLEST = 5e-324
"""The smallest number above 0; where a compiled program takes it for 0, the script still says what was meant."""


def plants(system: System) -> dict[str, Env]:
    """What is attacked of a system, by what is special about it: the standard plant, and those that stress a bound."""
    made = {"standard": system.env(), **{name: make() for name, make in system.variants.items()}}
    return {name: scripted_plant(env) for name, env in made.items()}


def scripted_plant(env: Env) -> Env:
    """The plant whose observation ends with the script."""
    plant: Env = dataclasses.replace(env, context=(SCRIPT,))
    return plant


def coarse_plants(system: System) -> dict[str, Env]:
    """The standard plant, whose sensors, actuators and meters have fewer digits than the guard."""
    env = scripted_plant(system.env())
    return {
        "float32": coarse(env, "float32", "float32", "float32"),
        "float16": coarse(env, "float16", "float16", "float16"),
        "mixed types": coarse(env, "float64", "float16", "float32"),
    }


def rounded_apart(system: System, env: Env) -> float:
    """What a certificate with Lipschitz constants must tolerate on one of the plants; see `tether.assure.coarse`."""
    if not hasattr(env, "units"):
        return 0.0
    return apart(env, hostile_episodes(system, env, 500, np.random.default_rng(0)))


@cache
def loosened(exact: Structure, bound: str, factor: float = 1.05) -> Structure:
    """The structure with one bound that claims too much, by the share by which `factor` exceeds 1.

    Args:
        exact: The true one, a dataclass.
        bound: One of its `loosenable`: `now` is T_0, `later` the other T_n, `floor` the floor, the others are gaps.
        factor: The floor is multiplied by it; a bound or gap falls by 1 - 1/factor of its size.
    """
    validate.choice("bound", bound, exact.loosenable)
    share = 1.0 - 1.0 / factor
    kind: Any = type(exact)

    class Loosened(kind):  # type: ignore[misc]
        """See `loosened`."""

        straight = vars(kind).get("straight", False)  # it is written down as the true one is

        def refine(self, gaps: Any, seen: Any, epsilon: Any, ops: Ops) -> Any:
            """With a gap too small; a gap may be negative."""
            refined = super().refine(gaps, seen, epsilon, ops)
            if bound not in self.gap_names:
                return refined
            return tuple(
                gap - share * (name == bound) * abs(gap)
                for gap, name in zip(refined, self.gap_names, strict=True)
            )

        def bounds(self, now: Any, action: Any, plan: int, ops: Ops) -> Bounds:
            """With this round's or the later bounds too small."""
            found: Bounds = super().bounds(now, action, plan, ops)
            first, *rest = found.totals
            if bound == "now":
                first = first - share * abs(first)
            if bound == "later":
                rest = [each - share * abs(each) for each in rest]
            return found._replace(totals=(first, *rest))

        def close(self, step: Any, cost: Any, epsilon: Any, ops: Ops) -> Any:
            """With the floor too large."""
            floor, gaps = super().close(step, cost, epsilon, ops)
            return (floor * factor if bound == "floor" else floor), gaps

    changed: Structure = Loosened(
        **{each.name: getattr(exact, each.name) for each in dataclasses.fields(kind)}
    )
    return changed


@dataclass(frozen=True)
class Finding:
    """What an attack on one plant under one contract came to."""

    system: str
    """What is special about the plant."""
    lam: float
    b: float
    episodes: int
    """Guarded episodes that were played."""
    violations: int
    """Those in which the promise was broken in some round."""
    worst_margin: float
    """Smallest bound minus cost, cost units; see `tether.Audit.worst_margin`."""
    nearest: float
    """The same as a share of the bound: how near to it the attack came."""
    unguarded: float
    """Share of the same episodes in which the same policy breaks the promise without a guard."""
    breaches: int
    """Episodes in which the guard took something for an assumption breach; none is one."""


def certify(env: Env, kind: str, contract: Contract, loosen: str | None, factor: float) -> Certificate:
    """The certificate that is attacked; `loosen` is one of the structure's `loosenable`."""
    exact: Any = certificate_of(kind, env, contract, resolution=getattr(env, "resolution", 0.0))
    changed = {} if loosen is None else {"system": loosened(exact.system, loosen, factor)}
    certificate: Certificate = dataclasses.replace(exact, **changed)
    return certificate


def attack(
    system: System,
    name: str,
    env: Env,
    certificate: Certificate,
    episodes: int,
    seed: int,
    *,
    batch: int = BATCH,
    precision: Precision = "float64",
    delay: int = 0,
    missing: float = 0.0,
    wave: int = 0,
    report: Callable[[int], None] = lambda _done: None,
) -> Finding:
    """Attack one certificate.

    The promise compares with the prior on the same plant, see `tether.assure.coarse`.

    Args:
        system: Whose series and traps are drawn.
        name: What to call the plant.
        env: One of its `plants`.
        certificate: What is attacked.
        episodes: At least so many are played, in whole batches.
        seed: Of all that is drawn.
        batch: Episodes at a time.
        precision: Of the rollouts.
        delay: Rounds by which costs are late; see `tether.rollout`.
        missing: Share of the costs that never come.
        wave: Which one it is of several of the same attack (`waves`): each draws on its own.
        report: Called with the number of episodes of each batch that is done.
    """
    rng = np.random.default_rng([seed, wave] if wave else seed)
    contract, hostile = certificate.contract, Hostile(env)
    parents: Episodes | None = None
    played = violations = broken_unguarded = breaches = 0
    worst = nearest = math.inf
    while played < episodes:
        drawn = hostile_episodes(system, env, batch, rng, contract.horizon)
        if parents is not None:
            drawn = bred(parents, drawn, rng)
        prior = rollout(trusted(env), env.prior, drawn, record="outcomes", precision=precision)
        late: Any = {"seed": seed + wave * WAVE + played, "delay": delay, "missing": missing}
        run = rollout(env, hostile, drawn, certificate, precision=precision, **late)
        unguarded = rollout(env, hostile, drawn, record="outcomes", precision=precision)
        verdict = audit(run, prior, contract)
        shares = np.min(verdict.margins / np.maximum(verdict.bounds, 1e-12), axis=1)
        parents = drawn[np.argsort(shares)[: batch // 10]]
        played += batch
        violations += int(np.sum(np.any(verdict.violations, axis=1)))
        breaches += int(np.count_nonzero(np.asarray(run.breached)))
        broken_unguarded += int(np.sum(np.any(audit(unguarded, prior, contract).violations, axis=1)))
        worst, nearest = min(worst, verdict.worst_margin), min(nearest, float(np.min(shares)))
        report(batch)
    rate = broken_unguarded / played
    return Finding(name, contract.lam, contract.b, played, violations, worst, nearest, rate, breaches)


def waves(episodes: int, batch: int) -> list[int]:
    """So many episodes, in whole batches, as waves of at most `WAVE`; one batch at least."""
    batches, each = max(1, -(-episodes // batch)), max(1, WAVE // batch)
    return [min(each, batches - first) * batch for first in range(0, batches, each)]


def joined(findings: Sequence[Finding]) -> Finding:
    """What the waves of one attack came to."""
    first, episodes = findings[0], sum(each.episodes for each in findings)
    return dataclasses.replace(
        first,
        episodes=episodes,
        violations=sum(each.violations for each in findings),
        worst_margin=min(each.worst_margin for each in findings),
        nearest=min(each.nearest for each in findings),
        unguarded=sum(round(each.unguarded * each.episodes) for each in findings) / episodes,
        breaches=sum(each.breaches for each in findings),
    )


@dataclass(frozen=True)
class Hostile:
    """The policy that plays the script; see the module."""

    env: Env
    """Of `plants`."""

    def __call__(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """Observation [o], which ends with the script, to what is proposed."""
        xp, shape = namespace(observation), self.env.action_shape
        size = math.prod(shape)
        script = xp.reshape(observation[observation.shape[0] - size :], shape)
        low, high = (xp.asarray(end) for end in self.env.action_range())
        wish = xp.reshape(xp.asarray(self.env.prior(observation)), shape)
        proposal = scripted(wish, script, low, high)
        for code, meant in ((TINY, SMALLEST), (INFINITE, math.inf)):
            proposal = xp.where(abs(script) >= code, xp.where(script > 0.0, meant, -meant), proposal)
        return xp.where(script >= NO_NUMBER, math.nan, proposal)


def hostile_episodes(
    system: System, env: Env, count: int, rng: np.random.Generator, horizon: int = 24
) -> Episodes:
    """Patterns of extremes for every series of the system, and the scripts of hostile policies."""
    shape = (count, horizon)
    series = {}
    for name, ends in _ranges(system, env, horizon).items():
        low, high = np.ravel(ends.low), np.ravel(ends.high)
        entries = [
            pattern(rng, shape, extremes(rng, least, most, (2, count)))
            for least, most in zip(low.tolist(), high.tolist(), strict=True)
        ]
        series[name] = np.stack(entries, axis=-1).reshape(*shape, *np.shape(ends.low))
    if ACTUATOR in env.context:
        moves = extremes(rng, -1.0, 1.0, (max(1, math.prod(env.action_shape)), 2, count))
        series[ACTUATOR] = np.stack([pattern(rng, shape, each) for each in moves], axis=-1).reshape(
            *shape, *env.action_shape
        )
    series[SCRIPT] = scripts(env.action_shape, shape, rng)
    if system.traps is not None:
        system.traps(env, series, rng)
    return Episodes(series)


def scripts(action_shape: tuple[int, ...], shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """[N, H, *action_shape] what hostile policies propose: a pattern of two values an episode.

    Of a vector all entries follow the same pattern in a third of the episodes, in another some of them the opposite
    one, and in the rest each its own.
    """
    entries = [_script(shape, rng) for _ in range(max(1, math.prod(action_shape)))]
    way = rng.integers(3, size=(shape[0], 1))
    for i, own in enumerate(entries[1:], start=1):
        first = entries[0]
        # What is no number has no opposite.
        opposite = np.where(
            rng.uniform(size=(shape[0], 1)) < 0.5, first, np.where(first < NO_NUMBER, -first, first)
        )
        entries[i] = np.where(way == 0, first, np.where(way == 1, opposite, own))
    return np.stack(entries, axis=-1).reshape(*shape, *action_shape)


def _script(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    ends = (2, shape[0])
    tame = rng.choice([0.0, 0.1, -0.1, 0.25], size=ends)
    wild = rng.choice(
        [-1.0, 1.0, INFINITE, -INFINITE, NO_NUMBER, 1e20, -1e20, TINY, -TINY, 10.0],
        size=ends,
        p=[0.36, 0.31, 0.04, 0.03, 0.05, 0.04, 0.04, 0.03, 0.03, 0.07],
    )
    some = rng.choice([-1.0, 1.0], size=ends) * 10.0 ** rng.uniform(-3.0, 0.0, size=ends)
    values = np.where(rng.uniform(size=ends) < 0.6, wild, tame)
    return pattern(rng, shape, np.where(rng.uniform(size=ends) < 0.2, some, values))


def extremes(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> Array:
    """One of the two ends mostly, else something between."""
    pick = rng.choice(3, size=shape, p=[0.4, 0.4, 0.2])
    between = rng.uniform(low, high, size=shape)
    values: Array = np.where(pick == 0, low, np.where(pick == 1, high, between))
    return values


def pattern(rng: np.random.Generator, shape: tuple[int, int], ends: Array) -> Array:
    """[N, H] of two values an episode, `ends` [2, N]: held, mixed, switched, alternating or pulsed."""
    count, horizon = shape
    rounds = np.arange(horizon)
    when = rng.integers(horizon, size=(count, 1))
    wide = rng.integers(1, 4, size=(count, 1))
    second = np.stack(
        [
            np.zeros(shape, dtype=bool),
            rng.uniform(size=shape) < rng.uniform(size=(count, 1)),
            rounds >= when,
            (rounds // wide) % 2 == when % 2,
            (rounds >= when) & (rounds < when + wide),
        ]
    )[rng.integers(5, size=count), np.arange(count)]
    values: Array = np.where(second, ends[1][:, None], ends[0][:, None])
    return values


def bred(parents: Episodes, new: Episodes, rng: np.random.Generator, child: float = 0.5) -> Episodes:
    """`new`, a share of them replaced by children: two parents spliced at a round, some values taken from `new`."""
    count, horizon = len(new), new.horizon
    first, second = rng.integers(len(parents), size=(2, count))
    late = np.arange(horizon) >= rng.integers(horizon + 1, size=(count, 1))
    share = rng.choice([0.0, 0.02, 0.1, 0.3], size=(count, 1))
    born = rng.uniform(size=(count, 1)) < child
    series = {}
    for name in new.names:
        rooms = [1] * (new[name].ndim - 2)
        inherited = np.where(
            late.reshape(count, horizon, *rooms), parents[name][second], parents[name][first]
        )
        fresh = (rng.uniform(size=(count, horizon)) < share).reshape(count, horizon, *rooms)
        mutated = np.where(fresh, new[name], inherited)
        series[name] = np.where(born.reshape(count, 1, *rooms), mutated, new[name])
    return Episodes(series)


def _ranges(system: System, env: Env, horizon: int) -> dict[str, Range]:
    """What each series can be; where neither limits nor `search_ranges` are finite, as far as everyday ones go."""
    plain = dataclasses.replace(env, context=())
    known = {**plain.limits(), **plain.search_ranges()}
    if all(name in known and np.all(np.isfinite(known[name])) for name in plain.series):
        return series_ranges(plain, None, horizon)
    return series_ranges(plain, system.draw(0, 100, horizon), horizon)
