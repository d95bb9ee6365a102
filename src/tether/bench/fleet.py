"""How fast a fleet decides, whether it decides as single guards do, and whether a guard without a last round tires."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.bench.parts import having
from tether.bench.speed import Measurement
from tether.certificates import Certificate, LipschitzCertificate, Structured
from tether.core.contract import Contract
from tether.core.fleet import Fleet
from tether.core.guard import Guard
from tether.core.sensitivity import Sensitivity, geometric
from tether.systems.base import Env

HORIZON = 24
STRUCTURED = 2000
"""Plants of a fleet with a structured certificate, whose plants are stepped one by one."""
ALONE = 200
"""Of them those that single guards are compared with."""
BOUNDS = Sensitivity(immediate=31.0, carried=2.875, perturbation=geometric(0.25))


def bench_fleet(seed: int, plants: int = 10_000, repetitions: int = 9) -> Iterator[Measurement]:
    """Guarded rounds a second of a fleet, and how many of its decisions differ from those of single guards.

    Args:
        seed: Of observations and proposals.
        plants: How many.
        repetitions: Episodes of 24 rounds that are timed.
    """
    for horizon, name in ((HORIZON, "H = 24"), (math.inf, "no last round")):
        certificate = LipschitzCertificate(Contract(2.0, 2.0, horizon, 1.0), BOUNDS)
        walls, processor = zip(
            *(_rates(certificate, plants, seed + i) for i in range(repetitions)), strict=True
        )
        what = f"fleet of {plants:,}, Lipschitz, tight, {name}"
        target, met = (">= 2e6", float(np.median(processor)) >= 2e6) if horizon == HORIZON else ("", None)
        yield _rounds(f"{what}, by the clock", walls)
        yield _rounds(f"{what}, of processor time", processor, target, met)
        # Twice round, so that episodes end at different times.
        differing = _differing(certificate, plants, 30, seed)
        what = f"decisions that differ from {plants:,} single guards, {name}"
        yield Measurement(what, differing, differing, differing, "of all", "0", differing == 0)
    for name, system in having("structure").items():
        env = system.env()
        structured = Structured(env.contract(2.0, 2.0, HORIZON), env.structure)
        if structured.fleets:
            drawn = system.draw(seed, min(plants, STRUCTURED))
            yield from _structured(name, env, structured, drawn, repetitions)


def _rates(certificate: Certificate, plants: int, seed: int) -> tuple[float, float]:
    """Guarded rounds a second in one episode, by the clock and of processor time, which is that of an idle machine."""
    rng = np.random.default_rng(seed)
    fleet = Fleet(certificate, _prior, plants, low=0.0)
    observations = rng.uniform(1.0, 5.0, size=(HORIZON, plants, 4))
    wishes = 0.8 * observations[..., 0] + rng.normal(size=(HORIZON, plants))
    costs = rng.uniform(1.0, 3.0, size=(HORIZON, plants))
    start, used = time.perf_counter(), time.process_time()
    for seen, wish, cost in zip(observations, wishes, costs, strict=True):
        fleet.act(seen, wish)
        fleet.observe(cost)
    played = HORIZON * plants
    return played / (time.perf_counter() - start), played / (time.process_time() - used)


def _prior(observations: Any) -> Any:
    return 0.8 * observations[..., 0]


def _differing(certificate: Certificate, plants: int, rounds: int, seed: int) -> int:
    """Decisions of a fleet that are not, digit for digit, those of as many guards; some proposals are rubbish."""
    rng = np.random.default_rng(seed)
    fleet = Fleet(certificate, _prior, plants, low=0.0)
    guards = [Guard(certificate, _prior, low=0.0) for _ in range(plants)]
    differing = 0
    for _ in range(rounds):
        seen = rng.uniform(1.0, 5.0, size=(plants, 4))
        wishes = 0.8 * seen[:, 0] + rng.normal(size=plants) * np.exp(rng.normal(-1.0, 2.0, size=plants))
        wishes[rng.random(plants) < 0.01] = math.nan
        costs = rng.uniform(1.0, 3.0, size=plants)
        differing += _compare(fleet, guards, seen, wishes)
        fleet.observe(costs)
        for guard, cost in zip(guards, costs.tolist(), strict=True):
            guard.observe(cost)
        over = fleet.over | (rng.random(plants) < 0.02)
        fleet.reset(over)
        for plant in np.flatnonzero(over):
            guards[plant].reset()
    return differing


def _compare(fleet: Fleet, guards: list[Guard], seen: NDArray[Any], wishes: NDArray[Any]) -> int:
    """How many decisions of a round differ."""
    decided = fleet.act(seen, wishes)
    columns = zip(
        decided.actions.tolist(), decided.deviations.tolist(), decided.radii.tolist(),
        decided.margins.tolist(), decided.reasons.tolist(), strict=True,
    )  # fmt: skip
    differing = 0
    for guard, own, wish, column in zip(guards, seen, wishes, columns, strict=True):
        single = guard.act(own, wish)
        action = single.action if isinstance(single.action, float) else single.action.tolist()
        alone = (action, single.deviation, single.radius, single.margin, str(single.reason))
        differing += alone != column
    return differing


def _structured(
    name: str, env: Env, certificate: Structured, episodes: Any, repetitions: int
) -> Iterator[Measurement]:
    """A structured certificate in a fleet: its plants are the system's own, and learners propose at random."""
    plants, rates, differing = len(episodes), [], 0
    for repetition in range(min(repetitions, 3)):
        fleet = Fleet(certificate, _prior_of(env), plants, env.low, env.high, env.norm)
        count = min(plants, ALONE) if repetition == 0 else 0
        guards = [Guard(certificate, env.prior, env.low, env.high, env.norm) for _ in range(count)]
        spent, odd = _play(env, fleet, guards, episodes, repetition)
        rates.append(plants * HORIZON / spent)
        differing += odd
    yield _rounds(f"fleet of {plants:,}, structured, {name}", rates)
    what = f"decisions that differ from {min(plants, ALONE)} single guards, structured, {name}"
    yield Measurement(what, differing, differing, differing, "of all", "0", differing == 0)


def _prior_of(env: Env) -> Callable[[Any], Any]:
    """The system's prior for many plants at once, or one by one where it does not know how."""

    def prior(seen: Any) -> Any:
        said = np.asarray(env.prior(seen))
        return (
            said
            if said.shape == (len(seen), *env.action_shape)
            else np.array([env.prior(each) for each in seen])
        )

    return prior


def _play(env: Env, fleet: Fleet, guards: list[Guard], episodes: Any, seed: int) -> tuple[float, int]:
    """(seconds in the fleet, decisions that differ from the first guards') over an episode of a system's plants."""
    rng = np.random.default_rng(seed)
    low, high = (np.asarray(end, dtype=float) for end in env.action_range())
    states = [env.initial() for _ in range(fleet.n)]
    spent, differing = 0.0, 0
    for h in range(HORIZON):
        drawn = [{name: episodes[name][i, h] for name in env.series} for i in range(fleet.n)]
        seen = np.array(
            [env.observation(state, each) for state, each in zip(states, drawn, strict=True)], dtype=float
        )
        wishes = rng.uniform(low, high, size=(fleet.n, *env.action_shape))
        start = time.perf_counter()
        decided = fleet.act(seen, wishes)
        spent += time.perf_counter() - start
        for plant, guard in enumerate(guards):
            single = guard.act(seen[plant], wishes[plant])
            same = (
                np.array_equal(single.action, decided.actions[plant])
                and single.margin == decided.margins[plant]
            )
            differing += not same
        steps = [env.step(*each) for each in zip(states, drawn, decided.actions, strict=True)]
        states, costs = [step.state for step in steps], np.array([float(step.cost) for step in steps])
        start = time.perf_counter()
        fleet.observe(costs)
        spent += time.perf_counter() - start
        for plant, guard in enumerate(guards):
            guard.observe(float(costs[plant]))
    return spent, differing


def _rounds(what: str, rates: Sequence[float], target: str = "", met: bool | None = None) -> Measurement:
    return Measurement(what, float(np.median(rates)), min(rates), max(rates), "rounds/s", target, met)


def bench_continuing(seed: int, rounds: int, parts: int = 10) -> Iterator[Measurement]:
    """One guard without a last round: what it allows, how long it takes and what it remembers, part by part.

    The plant pays between 1 and 3 and for every deviation what it can cost at worst in its round; the learner saves for
    50 rounds and then strikes, again and again, so that what it is allowed is used up each time.

    Args:
        seed: Of costs.
        rounds: In all.
        parts: Into which they are divided.
    """
    rng = np.random.default_rng(seed)
    guard = Guard(LipschitzCertificate(Contract(0.5, 0.1, math.inf, 1.0), BOUNDS), lambda _: 2.0, low=0.0)
    length = max(rounds // parts, 100)
    for part in range(parts):
        costs = rng.uniform(1.0, 3.0, size=length).tolist()
        radii, spent, start = 0.0, 0.0, time.perf_counter()
        for i, cost in enumerate(costs):
            decision = guard.act(0.0, 1e6 if i % 50 == 49 else 2.0)
            spent += decision.deviation
            guard.observe(cost + BOUNDS.immediate * decision.deviation)
            radii += decision.radius
        seconds = (time.perf_counter() - start) / length
        name = f"rounds {part * length + 1:,} to {(part + 1) * length:,}"
        size = len(json.dumps(guard.state_dict()["state"]))
        yield _one(f"{name}: mean radius", radii / length, "action units")
        yield _one(f"{name}: mean deviation", spent / length, "action units")
        yield _one(f"{name}: what is remembered", size, "characters")
        yield _one(f"{name}: act + observe", 1e6 * seconds, "us")


def _one(what: str, value: float, unit: str) -> Measurement:
    return Measurement(what, value, value, value, unit)
