"""Do monitors see a system that leaves its claims, at once, and are they silent about one that does not?"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.bench.speed import Measurement, alternate, microseconds, ratio
from tether.certificates import LipschitzCertificate
from tether.core.audit import audit
from tether.core.guard import AssumptionBreach, Guard
from tether.core.monitor import LipschitzMonitor, Monitor
from tether.data.episodes import Episodes
from tether.systems.base import Env, Step
from tether.systems.carbon.env import Carbon
from tether.systems.carbon.synthetic import synthetic_carbon
from tether.systems.cooling.env import Cooling
from tether.systems.cooling.synthetic import synthetic_cooling
from tether.systems.inference.env import Inference
from tether.systems.inference.synthetic import synthetic_inference

Array = NDArray[Any]
Report = Callable[[int, int], None]
SYSTEMS: dict[str, tuple[Env, Callable[[int, int], Episodes]]] = {
    "carbon": (Carbon(), synthetic_carbon),
    "inference": (Inference(), synthetic_inference),
    "cooling": (Cooling(), synthetic_cooling),
}


class Drift(NamedTuple):
    """How a plant leaves its claims from some round on."""

    system: str
    what: str
    """In words, with the share that it is off by."""
    share: float
    worn: str | None
    """The hidden series that is below its claimed minimum by the share; None if it is the cost that
    changes: what it has above the floor grows by the share."""


SHARES = (0.01, 0.05, 0.2)
DRIFTS = [
    Drift(system, f"{words} {'+' if worn is None else '-'}{share:.0%}", share, worn)
    for system, words, worn, shares in (
        ("carbon", "efficiency", "efficiency_noise", SHARES),
        ("inference", "charge rate", "charge_rate", SHARES),
        ("cooling", "effectiveness", "effectiveness", SHARES),
        # Small drifts leave the promise intact, because constants have slack; a large one shows what it is about.
        ("carbon", "cost", None, (*SHARES, 5.0)),
        ("cooling", "cost", None, (*SHARES, 5.0)),
    )
    for share in shares
]


@dataclass(frozen=True)
class DriftRow:
    """What came of one drift in the episodes of one seed."""

    system: str
    drift: str
    seed: int
    episodes: int
    evident: int
    """Episodes in which a cost or a next state lay outside of what the claims allow."""
    at_once: int
    """Of these, flagged by the very call that brought the first such number."""
    late: int
    """Flagged by a later call, because the first such number was outside by less than the tolerance for round-off."""
    missed: int
    early: int
    """Flagged before there was evidence: false alarms."""
    mean_wait: float
    """Rounds from the drift to the first evidence, on average."""
    violations_unguarded: float
    """Share of the episodes in which the promise was broken, without a guard."""
    violations: float
    """The same with the guard, no monitor."""
    violations_monitored: float
    """The same with the guard and the monitor."""
    violations_certified: int
    """Of the latter, episodes in which it was broken in a round that the audit calls certified."""


@dataclass(frozen=True)
class AlarmRow:
    """Rounds of a system that keeps to its claims."""

    system: str
    monitor: str
    observed: str
    rounds: int
    alarms: int


class _Batch:
    """Episodes side by side: the environment's own functions on arrays, the state of every episode in one."""

    def __init__(self, env: Env, episodes: Mapping[str, Array]) -> None:
        self.env, self._series = env, episodes
        self.count, self.horizon = next(iter(episodes.values())).shape[:2]
        self.state = type(env.initial())(
            *(np.broadcast_to(np.asarray(each), (self.count, *np.shape(each))) for each in env.initial())
        )

    def drawn(self, round_now: int) -> dict[str, Array]:
        return {name: values[:, round_now] for name, values in self._series.items()}

    def observed(self, drawn: Mapping[str, Array]) -> Array:
        """What is seen in every episode, [N, o]."""
        seen = np.asarray(self.env.observe(self.state, drawn))
        # One entry after the other, unless entries are vectors themselves.
        return seen if isinstance(self.env, Cooling) else seen.T


def drift_row(drift: Drift, lam: float, b: float, episodes: int, seed: int, begins: int) -> DriftRow:
    """Play a plant that drifts from round `begins` on, with a learner that proposes anything.

    Evidence is found without the monitor, from the true state: a round is evidence if its cost, or the state after it,
    is not between the smallest and the largest that the environment's own `step` gives when the hidden series take all
    the values that are claimed possible; or, where a state tells the cost, if the cost is another one.
    """
    env, synthetic = SYSTEMS[drift.system]
    drawn = synthetic(seed, episodes)
    series = {name: np.array(drawn[name]) for name in env.series}
    if drift.worn is not None:
        # The efficiency of Carbon is a mean and a noise; the drift is one of their sum.
        mean = env.efficiency if isinstance(env, Carbon) else 0.0
        least = env.limits()[drift.worn][0]
        series[drift.worn][:, begins - 1 :] = (1.0 - drift.share) * (mean + least) - mean
    factor = 1.0 + (drift.share if drift.worn is None else 0.0)
    contract = env.contract(lam, b, drawn.horizon)
    certificate = LipschitzCertificate(contract, env.sensitivity)
    ceiling = env.high if math.isfinite(env.high) else 8.0
    proposals = np.random.default_rng(seed).uniform(
        0.0, ceiling, (drawn.horizon, episodes, *env.action_shape)
    )

    def play(kind: str) -> tuple[Array, list[int], list[float], list[float]]:
        """Costs [N, H], and for each episode the round that is not certified any more, and when evidence and flag came.

        A time is the round, or half a round more if it is the next observation that tells.
        """
        monitor = env.monitor() if kind == "monitored" else None
        guards = [
            Guard(certificate, env.prior, env.low, env.high, env.norm, monitor) for _ in range(episodes)
        ]
        batch, costs = _Batch(env, series), np.zeros((episodes, drawn.horizon))
        evidence, flagged = [math.inf] * episodes, [math.inf] * episodes
        beyond = np.zeros(episodes, dtype=bool)
        for h in range(drawn.horizon):
            now = batch.drawn(h)
            seen = batch.observed(now)
            evidence = [min(at, h + 0.5) if tells else at for at, tells in zip(evidence, beyond, strict=True)]
            if kind == "prior":
                actions = np.asarray(env.prior(seen))
            elif kind == "unguarded":
                actions = proposals[h]
            else:
                actions = np.array(
                    [guard.act(*each).action for guard, *each in zip(guards, seen, proposals[h], strict=True)]
                )
                flagged = [
                    min(at, h + 0.5) if g.breach else at for at, g in zip(flagged, guards, strict=True)
                ]
            step = env.step(batch.state, now, actions)
            grown = factor if h + 1 >= begins else 1.0
            cost = env.cost_floor + grown * (step.cost - env.cost_floor)
            tells, beyond = _evident(env, batch.state, now, actions, cost, step)
            evidence = [min(at, h + 1.0) if each else at for at, each in zip(evidence, tells, strict=True)]
            if kind in ("guarded", "monitored"):
                for guard, each in zip(guards, cost.tolist(), strict=True):
                    guard.observe(each)
                flagged = [
                    min(at, h + 1.0) if g.breach else at for at, g in zip(flagged, guards, strict=True)
                ]
            batch.state, costs[:, h] = step.state, cost
        return costs, [guard.uncertified_from for guard in guards], evidence, flagged

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionBreach)
        prior = play("prior")[0]
        verdicts = {name: audit(play(name)[0], prior, contract) for name in ("unguarded", "guarded")}
        costs, uncertified_from, evidence, flagged = play("monitored")
    verdict = audit(costs, prior, contract, uncertified_from=uncertified_from)
    told = [at for at in evidence if math.isfinite(at)]
    pairs = list(zip(evidence, flagged, strict=True))
    return DriftRow(
        drift.system,
        drift.what,
        seed,
        episodes,
        evident=len(told),
        at_once=sum(flag == at < math.inf for at, flag in pairs),
        late=sum(at < flag < math.inf for at, flag in pairs),
        missed=sum(at < flag == math.inf for at, flag in pairs),
        early=sum(flag < at for at, flag in pairs),
        mean_wait=float(np.mean([math.ceil(at) - begins for at in told])) if told else math.nan,
        violations_unguarded=verdicts["unguarded"].violation_rate,
        violations=verdicts["guarded"].violation_rate,
        violations_monitored=verdict.violation_rate,
        violations_certified=int(np.sum(np.any(verdict.violations & verdict.certified, axis=1))),
    )


def _evident(
    env: Env, state: Any, drawn: Mapping[str, Array], actions: Array, cost: Array, true: Step
) -> tuple[Array, Array]:
    """[N] whether the cost, and whether the state after it, cannot be by the claims; round-off of float64 apart."""
    steps = [env.step(state, {**drawn, **hidden}, actions) for hidden in _claimed(env, state, drawn, actions)]
    costs = np.stack([step.cost for step in steps])
    states = np.stack([np.reshape(step.state[0], (len(cost), -1)) for step in steps])
    reached = np.reshape(true.state[0], (len(cost), -1))
    off, far = 1e-9 * (1.0 + np.abs(cost)), 1e-9 * (1.0 + np.abs(reached))
    by_cost = (cost < costs.min(axis=0) - off) | (cost > costs.max(axis=0) + off)
    by_state = np.any((reached < states.min(axis=0) - far) | (reached > states.max(axis=0) + far), axis=1)
    if not isinstance(env, Inference):
        by_state |= np.abs(cost - true.cost) > off
    return by_cost, by_state


def _claimed(env: Env, state: Any, drawn: Mapping[str, Array], actions: Array) -> Iterator[dict[str, Array]]:
    """Values of the hidden series at which cost and next state are smallest and largest.

    These are the corners of their ranges. In a room, the discomfort is least where the setpoint is reached, if it can
    be.
    """
    if isinstance(env, Cooling):
        ends = [np.full(actions.shape, end) for end in env.limits()["effectiveness"]]
        hottest, coldest = (
            env.step(state, {**drawn, "effectiveness": end}, actions).state.temperature for end in ends
        )
        way = (hottest - env.setpoint) / np.maximum(hottest - coldest, 1e-12)
        best = ends[0] + np.clip(way, 0.0, 1.0) * (ends[1] - ends[0])
        for first, second in itertools.product((*ends, best), repeat=2):
            yield {"effectiveness": np.stack([first[:, 0], second[:, 1]], axis=1)}
        return
    limits = env.limits()
    for values in itertools.product(*(limits[name] for name in env.hidden)):
        yield {
            name: np.full(np.shape(drawn[name]), value)
            for name, value in zip(env.hidden, values, strict=True)
        }


def constants_of_cooling(env: Cooling) -> LipschitzMonitor:
    """What a user who has only constants would claim of `Cooling`, in the largest entry ("linf").

    Inputs are loads, outside and temperatures. A temperature has slope heating in load and action, leak in the outside
    and at most 1 - leak over both temperatures, if wall + leak <= 1; the effectiveness moves it within heating (1 -
    least) a_max. The cost has slope w_i in each temperature.
    """
    slope = 2.0 * env.heating + 1.0
    width = env.heating * (1.0 - env.effectiveness_min) * env.action_max
    total = sum(env.discomfort)
    return LipschitzMonitor(
        total * slope, slope, total * width, width, _cooling_inputs, _cooling_state, norm="linf"
    )


def _cooling_inputs(observation: Any) -> list[float]:
    return [*observation[:3], *observation[4:6]]


def _cooling_state(observation: Any) -> list[float]:
    return list(observation[4:6])


def alarm_rows(rounds: int, seed: int, report: Report, horizon: int = 24) -> Iterator[AlarmRow]:
    """Systems that keep to their claims, at their ends in half of the draws: every alarm is a false one.

    Each monitor gets `rounds` rounds, half of them with observations in float32.
    """
    cases: list[tuple[str, str, Monitor]] = [
        (name, "ranges", env.monitor()) for name, (env, _) in SYSTEMS.items()
    ]
    cases.append(("cooling", "constants", constants_of_cooling(Cooling())))
    total = 2 * len(cases)
    for i, (system, kind, monitor) in enumerate(cases):
        for j, precision in enumerate(("float64", "float32")):
            rng = np.random.default_rng([seed, i, j])
            count = math.ceil(rounds / 2 / horizon)
            alarms = _false_alarms(SYSTEMS[system][0], monitor, rng, count, horizon, precision)
            report(2 * i + j + 1, total)
            yield AlarmRow(system, kind, precision, count * horizon, alarms)


def _false_alarms(
    env: Env, monitor: Monitor, rng: np.random.Generator, count: int, horizon: int, precision: str
) -> int:
    """Number of contradictions that the monitor finds in conforming episodes."""
    largest = {"renewables": 10.0, "heat_load": 6.0, "price": 1.0}
    series = {}
    for name in env.series:
        low, high = env.limits()[name]
        low, high = max(low, -20.0), min(high, largest.get(name, 45.0))
        shape = (
            (count, horizon, *env.action_shape)
            if name in ("heat_load", "effectiveness")
            else (count, horizon)
        )
        ends = np.where(rng.random(shape) < 0.5, low, high)
        series[name] = np.where(rng.random(shape) < 0.5, ends, rng.uniform(low, high, shape))
    batch = _Batch(env, series)
    memories = [monitor.start()] * count
    alarms = 0
    for h in range(horizon):
        drawn = batch.drawn(h)
        seen = batch.observed(drawn)
        told = seen.astype(precision).tolist()
        prior = np.asarray(env.prior(seen))
        actions = np.clip(prior * rng.choice([0.0, 0.5, 1.0, 1.5, 2.0], prior.shape), env.low, env.high)
        actions = np.where(rng.random(prior.shape) < 0.1, min(env.high, 40.0), actions)
        step = env.step(batch.state, drawn, actions)
        played = actions.tolist()
        for i, cost in enumerate(step.cost.tolist()):
            memory, first = monitor.arrived(memories[i], told[i])
            memories[i], second = monitor.paid(memory, told[i], played[i], cost)
            alarms += (first is not None) + (second is not None)
        batch.state = step.state
    return alarms


def overhead(seed: int, repetitions: int) -> Iterator[Measurement]:
    """Processor time of act + observe on the carbon system, with and without a monitor, alternately."""
    env = Carbon()
    episodes = synthetic_carbon(seed, 40)
    certificate = LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity)
    proposals = np.random.default_rng(seed).uniform(0.0, 8.0, (len(episodes), episodes.horizon)).tolist()
    plain = Guard(certificate, env.prior, low=0.0)
    played: list[list[tuple[Any, float, float]]] = []
    for e, wishes in enumerate(proposals):
        plain.reset()
        state: Any = env.initial()
        played.append([])
        for h, wish in enumerate(wishes):
            drawn = {name: episodes[name][e, h] for name in env.series}
            seen = env.observe(state, drawn)
            state, _, cost = env.step(state, drawn, plain.act(seen, wish).action)
            plain.observe(float(cost))
            played[-1].append((seen, wish, float(cost)))

    def once(guard: Guard) -> float:
        start = time.process_time()
        for rounds in played:
            guard.reset()
            for seen, wish, cost in rounds:
                guard.act(seen, wish)
                guard.observe(cost)
        return (time.process_time() - start) / (len(played) * episodes.horizon)

    monitors: dict[str, tuple[Monitor, str]] = {
        "ranges": (env.monitor(), "< 1.2"),
        "constants": (LipschitzMonitor(31.0, 1.0, 500.0, 16.0), ""),
    }
    for name, (monitor, target) in monitors.items():
        watched = Guard(certificate, env.prior, low=0.0, monitor=monitor)
        without, with_it = alternate(repetitions, partial(once, plain), partial(once, watched))
        yield microseconds("act + observe", without)
        yield microseconds(f"with {name}", with_it)
        yield ratio(f"ratio, {name}", with_it, without, "times", target, lambda each: each < 1.2)


def drift_tables(rows: list[DriftRow], begins: int) -> list[Table]:
    """Drifts for people: what was seen of them, and what became of the promise."""
    seen = Table(
        title=f"Plants that leave their claims from round {begins} on", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    kept = Table(title="Episodes in which the promise was broken", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for grid in (seen, kept):
        grid.add_column("system", no_wrap=True)
        grid.add_column("drift", no_wrap=True)
    for name in ("evident", "at once", "late", "missed", "early", "wait"):
        seen.add_column(name, justify="right", no_wrap=True)
    for name in ("no guard", "guard", "monitor", "certified"):
        kept.add_column(name, justify="right", no_wrap=True)
    for (system, drift), group in itertools.groupby(rows, lambda row: (row.system, row.drift)):
        seeds = list(group)
        total = {
            name: sum(getattr(row, name) for row in seeds)
            for name in ("evident", "at_once", "late", "missed", "early", "violations_certified")
        }
        waits = [row.mean_wait for row in seeds if not math.isnan(row.mean_wait)]
        counts = [str(total[name]) for name in ("evident", "at_once", "late", "missed", "early")]
        seen.add_row(system, drift, *counts, _spread(waits, ".1f"))
        rates = (
            [getattr(row, name) for row in seeds]
            for name in ("violations_unguarded", "violations", "violations_monitored")
        )
        kept.add_row(
            system, drift, *(_spread(each, ".0%") for each in rates), str(total["violations_certified"])
        )
    seen.caption = (
        f"of {sum(row.episodes for row in rows) // len(seen.rows)} episodes; evident: a number outside of the claims "
        "was seen; at once: flagged by the call that brought it; early: flagged before; wait: rounds from the drift to "
        "the evidence, mean of each seed"
    )
    kept.caption = "spread over the seeds; certified: number of episodes that broke it while it was certified"
    return [seen, kept]


def _spread(values: list[float], form: str) -> str:
    """Smallest to largest, or the one value."""
    if not values:
        return "-"
    low, high = (format(value, form) for value in (min(values), max(values)))
    return low if low == high else f"{low}-{high}"


def alarm_table(rows: list[AlarmRow]) -> Table:
    """False alarms for people."""
    grid = Table(title="Systems that keep to their claims", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("system", "monitor", "observations"):
        grid.add_column(name, no_wrap=True)
    for name in ("rounds", "false alarms"):
        grid.add_column(name, justify="right")
    for row in rows:
        grid.add_row(row.system, row.monitor, row.observed, f"{row.rounds:,}", str(row.alarms))
    return grid


def as_json(rows: list[DriftRow] | list[AlarmRow]) -> list[dict[str, Any]]:
    """Rows for machines; a wait that is not known is null."""
    return [{name: None if value != value else value for name, value in asdict(row).items()} for row in rows]
