"""What certificates compiled from a model take: online, in a rollout, and until rollouts and trainings are compiled."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tether.bench.speed import (
    Measurement,
    alternate,
    compiling_anew,
    microseconds,
    playing_online,
    training_rates,
)
from tether.certificates import Certificate
from tether.simulate.rollout import rollout
from tether.systems.base import Env
from tether.systems.certified import certificate_of
from tether.systems.system import System

EPISODES = 10_240
"""Of a rollout whose rounds a second are counted."""
LIMITS = {"microseconds": 500.0, "rounds": 200_000.0}
"""What was promised of the first system."""
COMPILING = {"rollout": 20.0, "training": 60.0}
"""Seconds that were promised of every system."""


def bench_compiled(systems: Sequence[System], seed: int, repetitions: int) -> Iterator[Measurement]:
    """Compiled certificates of systems at lam = b = 2.

    Args:
        systems: The first is that of which a speed was promised.
        seed: Of the episodes.
        repetitions: How often each is measured.
    """
    for place, system in enumerate(systems):
        env, name = system.env(), system.name
        certificate = certificate_of("compiled", env, env.contract(2.0, 2.0))
        once = playing_online(env, system.draw(seed, 10), certificate)
        once()
        (times,) = alternate(repetitions, once)
        online = microseconds(f"act + observe, compiled, {name}", times)
        yield online if place else _judged(online, LIMITS["microseconds"], below=True)
        yield from _rollout(env, system.draw(seed, EPISODES), certificate, name, repetitions, place == 0)
        with compiling_anew():
            seconds, _ = training_rates(env, system.draw(seed, 100), certificate, {"seeds": [seed]}, 1)
        yield _seconds("training", name, seconds)


def _rollout(
    env: Env, episodes: Any, certificate: Certificate, name: str, repetitions: int, judged: bool
) -> Iterator[Measurement]:
    def learner(observation: Any, key: Any) -> Any:  # noqa: ARG001
        return 0.5 * env.prior(observation)

    def once() -> float:
        start = time.perf_counter()
        rollout(env, learner, episodes, certificate, record="outcomes")
        return time.perf_counter() - start

    with compiling_anew():
        first = once()
    (times,) = alternate(repetitions, once)
    yield _seconds("rollout", name, first - float(np.median(times)))
    rates = sorted(len(episodes) * episodes.horizon / seconds for seconds in times)
    middle = float(np.median(rates))
    found = Measurement(f"rounds a second, compiled, {name}", middle, rates[0], rates[-1], "")
    yield _judged(found, LIMITS["rounds"], below=False) if judged else found


def _seconds(what: str, name: str, seconds: float) -> Measurement:
    found = Measurement(f"compiling a {what}, compiled, {name}", seconds, seconds, seconds, "s")
    return _judged(found, COMPILING[what], below=True)


def _judged(found: Measurement, limit: float, below: bool) -> Measurement:
    met = found.value <= limit if below else found.value >= limit
    return replace(found, target=f"{'<=' if below else '>='} {limit:,.0f}", met=met)
