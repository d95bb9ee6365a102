"""Try to break the promise: hostile noise, hostile policies, and what was nearly broken bred further.

An episode is everything that nature draws and a *script*, what a hostile policy proposes. Both are patterns of
extremes: held, mixed, switched in time, alternating, pulsed. So noise can hide a gap first and release it later, and a
policy can save and strike. A guard moves an extreme proposal to the boundary of its safe set, so that scripts of
extremes play on the boundary. Half of each batch is new; the other half are children of those episodes of the batch
before that came nearest to breaking the promise: spliced in time, with single values drawn anew.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.certificates import Certificate, LipschitzCertificate, Shadowing, Structured
from tether.certificates.structure import Bounds, Structure
from tether.core.audit import audit
from tether.core.contract import Contract
from tether.core.ops import Ops, namespace
from tether.data.episodes import Episodes
from tether.simulate.rollout import Precision, rollout
from tether.systems.base import Env, Step
from tether.systems.carbon.env import Carbon
from tether.systems.cooling.env import Cooling
from tether.systems.inference.env import Inference

Array = NDArray[np.float64]

BATCH = 10_000
"""Episodes that are played at a time, in one compiled program."""
NAN, INFINITE = -1e30, 1e30
"""Script values that stand for what is not a number and for infinity."""
BOUNDS: Mapping[str, tuple[str, ...]] = {
    "carbon": ("now", "floor", "above", "below"),
    "inference": ("now", "floor", "below"),
    "cooling": ("now", "later", "floor", "above", "below"),
}
"""By a structure's kind, the bounds that count in its system."""


@cache
def systems(kind: str) -> dict[str, Env]:
    """The systems to attack, by what is special about them: the paper's parameters, and some that stress a bound."""
    carbon: dict[str, Env] = {
        "the paper's": Carbon(),
        "drops much": Carbon(efficiency_noise_max=0.1, drop_rate_max=0.4, demand_max=1.0),
        "small cap": Carbon(backlog_max=4.0, efficiency_noise_max=0.5),
        "slow to forget": Carbon(
            efficiency_noise_max=0.64, drop_rate_max=0.8, demand_max=60.0, backlog_max=200.0
        ),
    }
    inference: dict[str, Env] = {
        "the paper's": Inference(),
        "large slack": Inference(carbon_slack=4.0, capacity=2.0, discharge_rate_min=0.2),
        "no slack": Inference(carbon_slack=0.0, charge_rate_min=0.4, initial_charge=6.0),
    }
    cooling: dict[str, Env] = {
        "as it is": Cooling(),
        "uneven": Cooling(
            discomfort=(0.5, 3.0), wall=0.3, leak=0.1, band=0.0, gain=1.2, effectiveness_min=0.5
        ),
    }
    chosen = {"carbon": carbon, "inference": inference, "cooling": cooling}[kind]
    return {name: dataclasses.replace(env, context=("script",)) for name, env in chosen.items()}


@cache
def coarse_systems(kind: str) -> dict[str, Env]:
    """The first of the `systems`, whose sensors, actuators and meters have fewer digits than the guard."""
    env = next(iter(systems(kind).values()))
    return {
        "float32": coarse(env, "float32", "float32", "float32"),
        "float16": coarse(env, "float16", "float16", "float16"),
        "mixed types": coarse(env, "float64", "float16", "float32"),
    }


def coarse(env: Env, observation: str, action: str, cost: str) -> Env:
    """The system whose observations, actions and costs are rounded to these types on their way.

    Its attribute `resolution` is the relative round-off of the coarsest.
    """
    kind: Any = type(env)

    class Coarse(kind):  # type: ignore[misc]
        """See `coarse`."""

        resolution = max(float(np.finfo(each).eps) for each in (observation, action, cost))

        def observe(self, state: Any, drawn: Any) -> Any:
            """With the digits of the sensors."""
            return _rounded(super().observe(state, drawn), observation)

        def step(self, state: Any, drawn: Any, played: Any) -> Step:
            """With the digits of actuators and meter."""
            after: Step = super().step(state, drawn, _rounded(played, action))
            return after._replace(cost=_rounded(after.cost, cost))

    plant: Env = Coarse(**{each.name: getattr(env, each.name) for each in dataclasses.fields(kind)})
    return plant


def _rounded(values: Any, dtype: str) -> Any:
    return values.astype(dtype).astype(values.dtype)


@cache
def loosened(exact: Structure, bound: str, factor: float = 1.05) -> Structure:
    """The structure with one bound that claims too much, by the share by which `factor` exceeds 1.

    Args:
        exact: The true one, a dataclass.
        bound: One of `BOUNDS`: `now` is T_0, `later` the other T_n, `above` and `below` are gaps, `floor` is the floor.
        factor: The floor is multiplied by it; a bound or gap falls by 1 - 1/factor of its size.
    """
    share = 1.0 - 1.0 / factor
    kind: Any = type(exact)

    class Loosened(kind):  # type: ignore[misc]
        """See `loosened`."""

        def refine(self, gaps: Any, seen: Any, epsilon: Any, ops: Ops) -> Any:
            """With a gap too small; a gap may be negative."""
            refined = super().refine(gaps, seen, epsilon, ops)
            above, below = (share * (bound == name) for name in ("above", "below"))
            shares = {1: (below,), 2: (above, below), 4: (above, below, above, below)}[len(refined)]
            return tuple(gap - each * abs(gap) for gap, each in zip(refined, shares, strict=True))

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
    """What an attack on one system under one contract came to."""

    system: str
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
    """The certificate that is attacked; `loosen` is one of `BOUNDS`."""
    resolution = getattr(env, "resolution", 0.0)
    if kind == "lipschitz":
        return LipschitzCertificate(contract, env.sensitivity, resolution=resolution)
    if kind == "shadowing":
        return Shadowing(contract, env.structure, env=env, resolution=resolution)
    structure = env.structure if loosen is None else loosened(env.structure, loosen, factor)
    return Structured(contract, structure, resolution=resolution)


def attack(
    name: str,
    env: Env,
    certificate: Certificate,
    episodes: int,
    seed: int,
    *,
    batch: int = BATCH,
    precision: Precision = "float64",
    report: Callable[[int], None] = lambda _done: None,
) -> Finding:
    """Attack one certificate.

    What the meters of a `coarse` system do not resolve, one unit of their round-off of the bound, is a tie.

    Args:
        name: What to call the system.
        env: Of `systems`: its context is the script.
        certificate: What is attacked.
        episodes: At least so many are played, in whole batches.
        seed: Of all that is drawn.
        batch: Episodes at a time.
        precision: Of the rollouts.
        report: Called with the number of episodes of each batch that is done.
    """
    rng = np.random.default_rng(seed)
    contract = certificate.contract
    tie = getattr(env, "resolution", 0.0)
    parents: Episodes | None = None
    played = violations = broken_unguarded = breaches = 0
    worst = nearest = math.inf
    while played < episodes:
        drawn = hostile_episodes(env, batch, rng, contract.horizon)
        if parents is not None:
            drawn = bred(parents, drawn, rng)
        prior = rollout(env, env.prior, drawn, record="outcomes", precision=precision)
        run = rollout(env, hostile, drawn, certificate, precision=precision)
        unguarded = rollout(env, hostile, drawn, record="outcomes", precision=precision)
        verdict = audit(run, prior, contract)
        shares = np.min(verdict.margins / np.maximum(verdict.bounds, 1e-12), axis=1)
        parents = drawn[np.argsort(shares)[: batch // 10]]
        played += batch
        broken = verdict.violations & ~(verdict.margins >= -tie * verdict.bounds)
        violations += int(np.sum(np.any(broken, axis=1)))
        breaches += int(np.count_nonzero(np.asarray(run.breached)))
        broken_unguarded += int(np.sum(np.any(audit(unguarded, prior, contract).violations, axis=1)))
        worst, nearest = min(worst, verdict.worst_margin), min(nearest, float(np.min(shares)))
        report(batch)
    return Finding(
        name,
        contract.lam,
        contract.b,
        played,
        violations,
        worst,
        nearest,
        broken_unguarded / played,
        breaches,
    )


def hostile(observation: Any, key: Any) -> Any:  # noqa: ARG001
    """The policy that plays the script: its value times the work or energy at hand.

    In the cooling system, where electricity is dear, one room is treated contrary to the other.
    """
    xp, script = namespace(observation), observation[-1]
    script = xp.where(script >= INFINITE, math.inf, xp.where(script <= NAN, math.nan, script))
    if observation.shape[0] == 7:
        other = xp.where(observation[3] > 0.5, 10.0 - script, script)
        return xp.stack([script, other]) * (0.4 * observation[:2] + 0.5)
    return script * (observation[0] + observation[3] + 1.0)


def hostile_episodes(env: Env, count: int, rng: np.random.Generator, horizon: int = 24) -> Episodes:
    """Patterns of extremes for every series of the system, and the scripts of hostile policies."""
    shape = (count, horizon)
    series = {}
    for name, (low, high) in _ranges(env).items():
        rooms = [
            pattern(rng, shape, extremes(rng, low, high, (2, count)))
            for _ in range(2 if name in ("heat_load", "effectiveness") else 1)
        ]
        series[name] = np.stack(rooms, axis=-1) if len(rooms) > 1 else rooms[0]
    tame = rng.choice([1.0, 1.1, 0.9, 1.0 / 0.8], size=(2, count))
    wild = rng.choice(
        [0.0, 10.0, INFINITE, NAN, 1e20, 1e-300, 5e-324, -1e20],
        size=(2, count),
        p=[0.4, 0.35, 0.05, 0.05, 0.05, 0.03, 0.03, 0.04],
    )
    ends = np.where(rng.uniform(size=(2, count)) < 0.6, wild, tame)
    ends = np.where(rng.uniform(size=(2, count)) < 0.2, rng.exponential(size=(2, count)), ends)
    series["script"] = pattern(rng, shape, ends)
    if isinstance(env, Inference):
        _set_traps(env, series, rng)
    return Episodes(series)


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


def bred(parents: Episodes, new: Episodes, rng: np.random.Generator) -> Episodes:
    """`new`, half of them replaced by children: two parents spliced at a round, some values taken from `new`."""
    count, horizon = len(new), new.horizon
    first, second = rng.integers(len(parents), size=(2, count))
    late = np.arange(horizon) >= rng.integers(horizon + 1, size=(count, 1))
    share = rng.choice([0.0, 0.02, 0.1, 0.3], size=(count, 1))
    child = rng.uniform(size=(count, 1)) < 0.5
    series = {}
    for name in new.names:
        rooms = [1] * (new[name].ndim - 2)
        inherited = np.where(
            late.reshape(count, horizon, *rooms), parents[name][second], parents[name][first]
        )
        fresh = (rng.uniform(size=(count, horizon)) < share).reshape(count, horizon, *rooms)
        mutated = np.where(fresh, new[name], inherited)
        series[name] = np.where(child.reshape(count, 1, *rooms), mutated, new[name])
    return Episodes(series)


def _ranges(env: Env) -> dict[str, tuple[float, float]]:
    """Ends of what is drawn of each series: its limits, or where there is none what is far beyond everyday."""
    if isinstance(env, Cooling):
        days = {"heat_load": (0.0, 20.0), "outside": (-10.0, 60.0), "price": (0.0, 1.0)}
        return {**env.limits(), **days}
    charged = env.charge_rate_min if isinstance(env, Inference) else 1.0
    most = 1.5 * env.limits()["demand"][1] / charged
    return {name: (low, min(high, most)) for name, (low, high) in env.limits().items()}


def _set_traps(env: Inference, series: dict[str, Array], rng: np.random.Generator) -> None:
    """In a third of the episodes: spend unseen what the battery would have kept, where it is missed most.

    In one round the prior would keep just so much; in the next its own shortfall is the largest possible.
    """
    count, horizon = series["demand"].shape
    trapped = np.flatnonzero(rng.uniform(size=count) < 1.0 / 3.0)[:, None]
    kept = np.exp(rng.uniform(np.log(1e-3), np.log(0.3), size=trapped.shape))
    slack = min(math.sqrt(env.carbon_slack), env.demand_max)
    due = (env.demand_max - slack) / env.structure.charge_rate
    first, second = np.arange(0, horizon, 2)[None, :], np.arange(1, horizon, 2)[None, :]
    half = 0.5 * env.demand_max
    series["demand"][trapped, first], series["demand"][trapped, second] = half, env.demand_max
    series["renewables"][trapped, first] = (half + kept) / env.charge_rate_min
    series["renewables"][trapped, second] = due
    series["charge_rate"][trapped, np.arange(horizon)[None, :]] = env.charge_rate_min
    series["discharge_rate"][trapped, np.arange(horizon)[None, :]] = 1.0
    series["script"][trapped, first], series["script"][trapped, second] = 10.0, NAN
