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

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.assure.falsify import series_ranges
from tether.assure.hostile import Uniform
from tether.bench.parts import having
from tether.bench.speed import Measurement, alternate, microseconds, ratio
from tether.certificates import LipschitzCertificate
from tether.core.audit import audit
from tether.core.contract import Contract
from tether.core.decision import Reason
from tether.core.guard import AssumptionBreach, Guard
from tether.core.monitor import Monitor
from tether.data.episodes import Episodes
from tether.simulate.eager import Many, Turn, eager
from tether.simulate.rollout import rollout
from tether.systems.base import Env
from tether.systems.system import Drift, System

Array = NDArray[Any]
Report = Callable[[int, int], None]
SHARES = (0.01, 0.05, 0.2)
"""By which a hidden series falls below its claimed minimum, or the cost grows."""
LARGE = 5.0
"""Small drifts leave the promise intact, because constants have slack; a large one of the cost shows what it is for."""
ACTIONS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Multiples of the prior's action that are played where nothing drifts."""


class PlantDrift(NamedTuple):
    """How a plant leaves its claims from some round on."""

    system: System
    drift: Drift
    """Of the system."""
    share: float
    """By which it is off."""

    @property
    def what(self) -> str:
        """In words, with the share that it is off by."""
        return f"{self.drift.what} {'+' if self.drift.series is None else '-'}{self.share:.0%}"


def drifts() -> list[PlantDrift]:
    """Every way in which an installed system can leave its claims, those of the cost last."""
    found = []
    for grows in (False, True):
        shares = (*SHARES, LARGE) if grows else SHARES
        for system in having("monitor").values():
            kinds = [each for each in system.drifts if (each.series is None) == grows]
            found += [PlantDrift(system, each, share) for each in kinds for share in shares]
    return found


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


class _Told(NamedTuple):
    """What a player's episodes came to."""

    costs: Array
    """[N, H] as the meter shows them."""
    uncertified_from: list[int]
    """[N] the first round that is not certified."""
    evidence: list[float]
    """[N] when the first number came that the claims rule out; half a round more if it was the next observation."""
    flagged: list[float]
    """[N] when the monitor said so; infinite if never, like `evidence`."""


def drift_row(drift: PlantDrift, lam: float, b: float, episodes: int, seed: int, begins: int) -> DriftRow:
    """Play a plant that drifts from round `begins` on, with a learner that proposes anything.

    Evidence is found without the monitor, from the true state: a round is evidence if its cost, or the state after it,
    is not between the smallest and the largest that the environment's own `step` gives when the hidden series take all
    the values that are claimed possible; or, where a state tells the cost, if the cost is another one.
    """
    system, env = drift.system, drift.system.env()
    drawn = system.draw(seed, episodes)
    contract = env.contract(lam, b, drawn.horizon)
    player = _Player(drift, env, _worn(drift, env, drawn, begins), begins, contract, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionBreach)
        prior = player.play("prior").costs
        verdicts = {
            name: audit(player.play(name).costs, prior, contract) for name in ("unguarded", "guarded")
        }
        told = player.play("monitored")
    verdict = audit(told.costs, prior, contract, uncertified_from=told.uncertified_from)
    seen = [at for at in told.evidence if math.isfinite(at)]
    pairs = list(zip(told.evidence, told.flagged, strict=True))
    return DriftRow(
        system.name,
        drift.what,
        seed,
        episodes,
        evident=len(seen),
        at_once=sum(flag == at < math.inf for at, flag in pairs),
        late=sum(at < flag < math.inf for at, flag in pairs),
        missed=sum(at < flag == math.inf for at, flag in pairs),
        early=sum(flag < at for at, flag in pairs),
        mean_wait=float(np.mean([math.ceil(at) - begins for at in seen])) if seen else math.nan,
        violations_unguarded=verdicts["unguarded"].violation_rate,
        violations=verdicts["guarded"].violation_rate,
        violations_monitored=verdict.violation_rate,
        violations_certified=int(np.sum(np.any(verdict.violations & verdict.certified, axis=1))),
    )


def _worn(drift: PlantDrift, env: Env, drawn: Episodes, begins: int) -> Episodes:
    """The episodes, with the series that drifts below its claimed minimum from round `begins` on."""
    series = {name: np.array(drawn[name]) for name in env.series}
    name = drift.drift.series
    if name is not None:
        # The drift is one of what the plant makes of the series, such as a mean and a noise.
        offset, least = drift.drift.offset(env), env.limits()[name][0]
        series[name][:, begins - 1 :] = (1.0 - drift.share) * (offset + least) - offset
    return Episodes(series)


@dataclass(frozen=True)
class _Player:
    """Plays the episodes of a plant that drifts."""

    drift: PlantDrift
    env: Env
    episodes: Episodes
    begins: int
    contract: Contract
    seed: int

    def play(self, kind: str) -> _Told:
        """By the prior, or by the learner `unguarded`, `guarded` or `monitored`."""
        env, count = self.env, len(self.episodes)
        shape = (self.episodes.horizon, count, *env.action_shape)
        proposals = np.random.default_rng(self.seed).uniform(*Uniform.of(env).ends, shape)
        certificate = LipschitzCertificate(self.contract, env.sensitivity)
        monitor = env.monitor() if kind == "monitored" else None
        rounds: list[list[Turn]] = []
        uncertified, flagged = [], []
        for i in range(count):
            guard = None
            if kind in ("guarded", "monitored"):
                guard = Guard(certificate, env.prior, env.low, env.high, env.norm, monitor)
            policy = env.prior if kind == "prior" else _next_of(proposals[:, i])
            rounds.append([])
            flag = math.inf
            for turn in eager(env, self.episodes[i], policy, guard, charge=self._charge):
                rounds[-1].append(turn)
                if guard is not None and guard.breach is not None and flag == math.inf:
                    # A decision that knows of it: the observation told, not the cost.
                    seen = turn.decision is not None and turn.decision.reason is Reason.BREACH
                    flag = turn.round - 0.5 if seen else float(turn.round)
            uncertified.append(self.episodes.horizon + 1 if guard is None else guard.uncertified_from)
            flagged.append(flag)
        costs = np.array([[turn.cost for turn in each] for each in rounds])
        evidence = self._evidence(rounds, costs) if kind == "monitored" else [math.inf] * count
        return _Told(costs, uncertified, evidence, flagged)

    def _charge(self, round_now: int, cost: float) -> float:
        floor, grows = self.env.cost_floor, self.drift.drift.series is None and round_now >= self.begins
        return floor + (1.0 + self.drift.share * grows) * (cost - floor)

    def _evidence(self, rounds: list[list[Turn]], costs: Array) -> list[float]:
        """[N] when the first number came that cannot be by the claims."""
        by_cost, by_state = evident(self.drift.system, self.env, [turn for each in rounds for turn in each])
        found = []
        for tells_cost, tells_state in zip(
            by_cost.reshape(costs.shape), by_state.reshape(costs.shape), strict=True
        ):
            # A state is seen with the next observation, which the last round has none of.
            at = [h + 1.0 for h in np.flatnonzero(tells_cost)] + [
                h + 1.5 for h in np.flatnonzero(tells_state[:-1])
            ]
            found.append(min(at, default=math.inf))
        return found


def _next_of(proposals: Any) -> Callable[[Any], Any]:
    """The policy that proposes one after the other, whatever it sees."""
    left = iter(proposals)
    return lambda _observation: next(left)


def evident(system: System, env: Env, turns: list[Turn]) -> tuple[Array, Array]:
    """[n] whether the cost, and whether the state after it, cannot be by the claims; round-off of float64 apart."""
    many = Many(env)
    state, drawn, actions, after = (
        jax.tree.map(lambda *each: np.stack([np.asarray(one, dtype=np.float64) for one in each]), *values)
        for values in (
            [turn.state for turn in turns],
            [turn.drawn for turn in turns],
            [turn.action for turn in turns],
            [turn.step.state for turn in turns],
        )
    )
    steps = [
        many.step(state, {**drawn, **hidden}, actions)
        for hidden in claimed(system, env, state, drawn, actions)
    ]
    cost, true = np.array([turn.cost for turn in turns]), np.array([float(turn.step.cost) for turn in turns])
    costs, states = np.stack([step.cost for step in steps]), np.stack([_flat(step.state) for step in steps])
    reached = _flat(after)
    off, far = 1e-9 * (1.0 + np.abs(cost)), 1e-9 * (1.0 + np.abs(reached))
    by_cost = (cost < costs.min(axis=0) - off) | (cost > costs.max(axis=0) + off)
    by_state = np.any((reached < states.min(axis=0) - far) | (reached > states.max(axis=0) + far), axis=1)
    return by_cost, by_state | (np.abs(cost - true) > off)


def _flat(state: Any) -> Array:
    """[n, ...] all the entries of states side by side."""
    return np.concatenate([np.reshape(entry, (len(entry), -1)) for entry in state], axis=1)


def claimed(
    system: System, env: Env, state: Any, drawn: Mapping[str, Any], actions: Any
) -> Iterator[Mapping[str, Array]]:
    """Values of the hidden series at which cost and next state are smallest and largest; cases first, [n, ...].

    These are the corners of their ranges, unless the system knows better (`System.extremes`).
    """
    if system.extremes is not None:
        yield from system.extremes(env, state, drawn, actions)
        return
    limits = env.limits()
    for values in itertools.product(*(limits[name] for name in env.hidden)):
        yield {
            name: np.full(np.shape(drawn[name]), value)
            for name, value in zip(env.hidden, values, strict=True)
        }


def alarm_rows(rounds: int, seed: int, report: Report, horizon: int = 24) -> Iterator[AlarmRow]:
    """Systems that keep to their claims, at their ends in half of the draws: every alarm is a false one.

    Each monitor gets `rounds` rounds, half of them with observations in float32.
    """
    cases: list[tuple[System, str, Monitor]] = []
    for system in having("monitor").values():
        cases.append((system, "ranges", system.env().monitor()))
        if system.constants_monitor is not None:
            cases.append((system, "constants", system.constants_monitor(system.env())))
    total = 2 * len(cases)
    for i, (system, kind, monitor) in enumerate(cases):
        for j, precision in enumerate(("float64", "float32")):
            rng = np.random.default_rng([seed, i, j])
            count = math.ceil(rounds / 2 / horizon)
            alarms = false_alarms(system.env(), monitor, rng, count, horizon, precision)
            report(2 * i + j + 1, total)
            yield AlarmRow(system.name, kind, precision, count * horizon, alarms)


def false_alarms(
    env: Env, monitor: Monitor, rng: np.random.Generator, count: int, horizon: int, precision: str
) -> int:
    """Number of contradictions that the monitor finds in conforming episodes."""
    series = {}
    for name, ends in series_ranges(env, None, horizon).items():
        shape = (count, horizon, *np.shape(ends.low))
        end = np.where(rng.random(shape) < 0.5, ends.low, ends.high)
        series[name] = np.where(rng.random(shape) < 0.5, end, rng.uniform(ends.low, ends.high, shape))
    top = env.action_range()[1]

    def policy(observation: Any, key: Any) -> Any:
        which, often = jax.random.split(key)
        prior = jnp.asarray(env.prior(observation))
        action = prior * jax.random.choice(which, jnp.asarray(ACTIONS, prior.dtype), prior.shape)
        return jnp.where(jax.random.uniform(often, prior.shape) < 0.1, top, action)

    run: Any = rollout(env, policy, Episodes(series), seed=int(rng.integers(2**31)))
    told, played, costs = (
        each.tolist() for each in (run.observations.astype(precision), run.actions, run.costs)
    )
    alarms = 0
    for observations, actions, paid in zip(told, played, costs, strict=True):
        memory = monitor.start()
        for observation, action, cost in zip(observations, actions, paid, strict=True):
            memory, first = monitor.arrived(memory, observation)
            memory, second = monitor.paid(memory, observation, action, cost)
            alarms += (first is not None) + (second is not None)
    return alarms


def overhead(seed: int, repetitions: int) -> Iterator[Measurement]:
    """Processor time of act + observe with and without a monitor, alternately, on the first of the systems."""
    system = next(iter(having("monitor").values()))
    env, episodes = system.env(), system.draw(seed, 40)
    certificate = LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity)
    shape = (len(episodes), episodes.horizon, *env.action_shape)
    proposals = np.random.default_rng(seed).uniform(*Uniform.of(env).ends, shape).tolist()
    box = (env.low, env.high, env.norm)
    plain = Guard(certificate, env.prior, *box)
    played: list[list[tuple[Any, Any, float]]] = []
    for e, wishes in enumerate(proposals):
        turns = eager(env, episodes[e], _next_of(wishes), plain)
        played.append([(turn.observation, turn.proposal, turn.cost) for turn in turns])

    def once(guard: Guard) -> float:
        start = time.process_time()
        for rounds in played:
            guard.reset()
            for seen, wish, cost in rounds:
                guard.act(seen, wish)
                guard.observe(cost)
        return (time.process_time() - start) / (len(played) * episodes.horizon)

    monitors: dict[str, tuple[Monitor, str]] = {"ranges": (env.monitor(), "< 1.2")}
    if system.constants_monitor is not None:
        monitors["constants"] = system.constants_monitor(env), ""
    for name, (monitor, target) in monitors.items():
        watched = Guard(certificate, env.prior, *box, monitor=monitor)
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
