"""Speed, always as a ratio of two things measured alternately in one run."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.bench.parts import having
from tether.certificates import Certificate, LipschitzCertificate, Rule, Structured
from tether.core import output
from tether.core.decision import Decision
from tether.core.extras import missing
from tether.core.guard import Guard
from tether.data.episodes import Episodes
from tether.learn.train import Recipe, train
from tether.simulate.eager import eager
from tether.simulate.rollout import rollout
from tether.systems import registry
from tether.systems.base import Env
from tether.systems.system import System

MANY = 48
"""Bounds of a structure whose compilation is timed."""
EPISODES, STRUCTURED_EPISODES = 100_000, 20_000
"""Of a rollout whose rounds a second are counted, with constants and through a structure."""
UPDATES = 25
"""Of the eager PyTorch loop, in each repetition."""
COMPILING = 10.0
"""Seconds that the compilation of a training through a structure may take."""


@dataclass(frozen=True)
class Measurement:
    """One line of a benchmark."""

    what: str
    value: float
    """The median of the repetitions."""
    lowest: float
    highest: float
    unit: str
    target: str = ""
    """What it should be, in words; empty if nothing was promised."""
    met: bool | None = None


def table(title: str, measurements: list[Measurement]) -> Table:
    """Measurements for people."""
    grid = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    grid.add_column("measured")
    for name in ("median", "lowest", "highest"):
        grid.add_column(name, justify="right")
    for name in ("unit", "target"):
        grid.add_column(name)
    for each in measurements:
        verdict = {None: "", True: " [green]met", False: " [red]missed"}[each.met]
        numbers = (_text(number) for number in (each.value, each.lowest, each.highest))
        grid.add_row(each.what, *numbers, each.unit, each.target + verdict)
    return grid


def _text(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 10_000.0 else f"{number:.4g}"


def as_json(measurements: list[Measurement]) -> list[dict[str, Any]]:
    """Measurements for machines."""
    return [asdict(each) for each in measurements]


def bench_guard(seed: int, repetitions: int = 9) -> Iterator[Measurement]:
    """The online guard and the compiled rollout against their yardsticks.

    Args:
        seed: Seed of the observations and proposals.
        repetitions: How often each pair is measured, alternately.
    """
    system = yardstick_system()
    env = system.env()
    seen: Any = rollout(env, env.prior, system.draw(seed, 25)).observations
    observations = seen.reshape(-1, seen.shape[-1])[:500]
    proposals = np.random.default_rng(seed).uniform(
        *env.action_range(), (len(observations), *env.action_shape)
    )

    def online(horizon: int) -> Callable[[], float]:
        certificate = LipschitzCertificate(env.contract(2.0, 2.0, horizon), env.sensitivity)
        guard = Guard(certificate, env.prior, env.low, env.high, env.norm)

        def once() -> float:
            start = time.perf_counter()
            for observation, proposal in zip(observations, proposals, strict=True):
                if guard.round > horizon:
                    guard.reset()
                guard.act(observation, proposal)
                guard.observe(env.cost_floor + 0.5)
            return (time.perf_counter() - start) / len(proposals)

        return once

    day, solver = online(24), _convex_program(env, observations, proposals)
    guard_times, solver_times = alternate(repetitions, day, solver)
    yield microseconds("act + observe, H = 24", guard_times)
    yield microseconds("same projection, cvxpy", solver_times)
    yield ratio("cvxpy / guard", solver_times, guard_times, "times", ">= 120", lambda ratio: ratio >= 120.0)

    short_times, long_times = alternate(repetitions, day, online(10_000))
    yield microseconds("act + observe, H = 10,000", long_times)
    yield ratio("H = 10,000 / H = 24", long_times, short_times, "times", "<= 1.5", lambda ratio: ratio <= 1.5)

    yield from _bench_rollout(system, seed, repetitions)
    yield from _bench_structured(seed, repetitions)
    yield from _compiling_many(seed)
    yield from _bench_import()


def bench_train(seed: int, repetitions: int = 5, episodes: int = 1000) -> Iterator[Measurement]:
    """Offline ACRL training against an eager PyTorch loop of the same update, batch 50.

    PyTorch trains one policy, on as many threads as suit it best. At the end, how long trainings through structures
    compile.

    Args:
        seed: Of the synthetic episodes; the first one of the weights.
        repetitions: Passes measured after the first, and rounds of PyTorch updates.
        episodes: Synthetic episodes of a pass.
    """
    import torch

    from tether.bench.torch_yardstick import system, torch_updates

    env, data = system.env(), system.draw(seed, episodes)
    certificate = LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity)
    series = [data[name] for name in env.series]
    rivals: dict[int, list[float]] = {}
    before = torch.get_num_threads()
    for threads in sorted({1, before}):
        torch.set_num_threads(threads)
        rivals[threads] = [
            UPDATES * 50 / torch_updates(*series, lam=2.0, b=2.0, rule="tight", updates=UPDATES, seed=seed)[0]
            for _ in range(repetitions)
        ]
        yield _rate(f"eager PyTorch, {threads} thread{'s' if threads > 1 else ''}", rivals[threads])
    torch.set_num_threads(before)
    rival = max(rivals.values(), key=lambda rates: float(np.median(rates)))
    five = list(range(seed, seed + 5))
    whole = {"lams": [0.0, 2.0, 4.0, 6.0, 8.0, 10.0], "bs": [2.0, 6.0], "seeds": five}
    for name, grid, wanted in (
        ("1 setting, 1 seed", {"seeds": [seed]}, 40.0),
        ("1 setting, 5 seeds", {"seeds": five}, None),
        ("12 settings, 5 seeds", whole, 100.0),
    ):
        with compiling_anew():
            compiling, rates = training_rates(env, data, certificate, grid, repetitions)
        yield Measurement(f"compiling, {name}", compiling, compiling, compiling, "s")
        yield _rate(f"tether, {name}", rates)
        target = "" if wanted is None else f">= {wanted:g}"
        enough = functools.partial(operator.le, wanted or 0.0)
        yield ratio(f"ratio, {name}", rates, rival, "times", target, enough)
    yield from _compiling_structured(seed)
    peak = output.peak_memory()
    yield Measurement("peak memory of all of this", peak, peak, peak, "MB")


@contextmanager
def compiling_anew() -> Iterator[None]:
    """Programs that were kept from an earlier run do not count."""
    import jax

    config: Any = jax.config
    kept = config.jax_enable_compilation_cache
    config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        config.update("jax_enable_compilation_cache", kept)


def _compiling_structured(seed: int) -> Iterator[Measurement]:
    """Seconds of compilation of a training through the structure of each system that has one."""
    for name, system in having("structure").items():
        env = system.env()
        certificate = Structured(env.contract(2.0, 2.0), env.structure)
        with compiling_anew():
            seconds, _ = training_rates(env, system.draw(seed, 100), certificate, {"seeds": [seed]}, 1)
        met = seconds <= COMPILING
        yield Measurement(
            f"compiling, structured, {name}", seconds, seconds, seconds, "s", f"<= {COMPILING:g}", met
        )


def bench_exact(seed: int, repetitions: int = 7) -> Iterator[Measurement]:
    """One value iteration of the small carbon system on its default grid and on larger ones; rule `tight`.

    Args:
        seed: Of the thetas that are planned for.
        repetitions: How often each grid is measured, in turns.
    """
    from tether.exact import planning
    from tether.exact.example import BacklogMixture
    from tether.exact.grid import Problem, Resolution, prepare

    example = BacklogMixture()
    thetas = np.random.default_rng(seed).dirichlet(np.ones(example.system.dimension), size=repetitions + 1)
    grids = [Resolution(surplus=10 * factor + 1, memory=5) for factor in (1, 2, 4, 8)]
    problems: list[Problem] = []
    measures: list[Callable[[], float]] = []
    for resolution in grids:
        problem = prepare(example.system, example.certificate(0.25, 0.25), resolution)

        def once(problem: Problem = problem) -> float:
            start = time.perf_counter()
            planning.plan(problem, thetas[0])
            return time.perf_counter() - start

        first = once()
        if not problems:
            compiling = first - once()
            yield Measurement("compiling", compiling, compiling, compiling, "s")
        problems.append(problem)
        measures.append(once)
    times = alternate(repetitions, *measures)
    for i, (problem, taken) in enumerate(zip(problems, times, strict=True)):
        middle = float(np.median(taken))
        target = ("< 1", middle < 1.0) if i == 0 else ("", None)
        yield Measurement(f"plan, {problem.nodes:,} nodes", middle, min(taken), max(taken), "s", *target)
    nodes = np.log([problem.nodes for problem in problems])
    slopes = [float(np.polyfit(nodes, np.log(taken), 1)[0]) for taken in zip(*times, strict=True)]
    slope = float(np.median(slopes))
    yield Measurement(
        "growth: power of nodes",
        slope,
        min(slopes),
        max(slopes),
        "",
        "0.8 to 1.2",
        0.8 <= slope <= 1.2,
    )


def training_rates(
    env: Env,
    data: Episodes,
    certificate: Certificate,
    grid: dict[str, Any],
    repetitions: int,
) -> tuple[float, list[float]]:
    """Seconds of compilation, and episodes a second in each later pass."""
    recipe = Recipe(passes=repetitions + 1)
    ends = [time.perf_counter()]
    trained = train(
        "acrl", env, data, certificate, **grid, recipe=recipe,
        report=lambda _passes, _history: ends.append(time.perf_counter()),
    )  # fmt: skip
    policies = len(trained.settings) * len(trained.seeds)
    episodes = len(data) // recipe.batch * recipe.batch * policies
    times = np.diff(ends)
    return float(times[0] - np.median(times[1:])), [episodes / seconds for seconds in times[1:]]


def _rate(what: str, rates: list[float]) -> Measurement:
    return Measurement(what, float(np.median(rates)), min(rates), max(rates), "episodes/s")


def _convex_program(env: Env, observations: Any, proposals: Any) -> Callable[[], float]:
    """The same decision as a convex program, set up once and solved with new parameters: seconds a decision."""
    try:
        import cvxpy as cp
    except ModuleNotFoundError as error:
        raise missing("the yardstick of this benchmark", error) from None
    shape, order = env.action_shape, {"l1": 1, "l2": 2, "linf": "inf"}[env.norm]
    action, prior, wish = cp.Variable(shape), cp.Parameter(shape), cp.Parameter(shape)
    radius = cp.Parameter(nonneg=True)
    inside = [cp.norm(action - prior, order) <= radius]
    inside += [action >= env.low] * bool(np.all(np.isfinite(env.low)))
    inside += [action <= env.high] * bool(np.all(np.isfinite(env.high)))
    problem = cp.Problem(cp.Minimize(cp.sum_squares(action - wish)), inside)
    radius.value = 0.2

    def once(count: int = 20) -> float:
        start = time.perf_counter()
        for observation, proposal in zip(observations[:count], proposals[:count], strict=True):
            prior.value, wish.value = env.prior(observation), proposal
            problem.solve(solver=cp.CLARABEL)
        return (time.perf_counter() - start) / count

    once(1)
    return once


def _bench_rollout(system: System, seed: int, repetitions: int) -> Iterator[Measurement]:
    env, episodes = system.env(), system.draw(seed, EPISODES)
    rounds = len(episodes) * episodes.horizon

    def learner(observation: Any, key: Any) -> Any:  # noqa: ARG001
        return 0.5 * env.prior(observation)

    for rule in get_args(Rule):
        certificate = LipschitzCertificate(env.contract(2.0, 2.0), env.sensitivity, rule)

        def once(certificate: LipschitzCertificate = certificate) -> float:
            start = time.perf_counter()
            rollout(env, learner, episodes, certificate, record="outcomes")
            return time.perf_counter() - start

        with compiling_anew():
            first = once()
        (times,) = alternate(repetitions, once)
        compiling = first - float(np.median(times))
        yield Measurement(f"compiling, rule {rule}", compiling, compiling, compiling, "s")
        rates = sorted(rounds / seconds / 1e6 for seconds in times)
        middle = float(np.median(rates))
        yield Measurement(
            f"rounds a second, rule {rule}",
            middle,
            rates[0],
            rates[-1],
            "million",
            ">= 5",
            middle >= 5.0,
        )


def _bench_structured(seed: int, repetitions: int) -> Iterator[Measurement]:
    """Structured certificates of the systems that have one, online against the Lipschitz one, and in a rollout."""
    for name, system in having("structure").items():
        env, episodes = system.env(), system.draw(seed, STRUCTURED_EPISODES)
        contract = env.contract(0.5, 0.5)
        structured = Structured(contract, env.structure)
        simple = LipschitzCertificate(contract, env.sensitivity)
        slow, fast = alternate(
            repetitions, *(playing_online(env, episodes, certificate) for certificate in (structured, simple))
        )
        yield ratio(
            f"structured / Lipschitz, {name}", slow, fast, "times", "<= 4", lambda ratio: ratio <= 4.0
        )

        def learner(observation: Any, key: Any, env: Env = env) -> Any:  # noqa: ARG001
            return 0.5 * env.prior(observation)

        def once(
            env: Env = env,
            episodes: Episodes = episodes,
            structured: Structured = structured,
            learner: Any = learner,
        ) -> float:
            start = time.perf_counter()
            rollout(env, learner, episodes, structured, record="outcomes")
            return time.perf_counter() - start

        once()
        (times,) = alternate(repetitions, once)
        rates = sorted(len(episodes) * episodes.horizon / seconds / 1e6 for seconds in times)
        middle = float(np.median(rates))
        met = middle >= 1.0
        yield Measurement(
            f"rounds a second, structured, {name}", middle, rates[0], rates[-1], "million", ">= 1", met
        )


def yardstick_system() -> System:
    """The system whose guard and rollout are timed: the first that is installed."""
    return registry.find(registry.names()[0])


def _compiling_many(seed: int) -> Iterator[Measurement]:
    """Seconds until a rollout through a structure with 48 bounds is compiled and has played once.

    Of the first system whose structure has a number of bounds to choose, `terms`.
    """
    for system in having("structure").values():
        env = system.env()
        kind: Any = type(env.structure)
        if not hasattr(kind, "terms"):
            continue

        class Detailed(kind):  # type: ignore[misc]
            """The structure that looks 47 rounds ahead with the prior as its only backup."""

            terms = MANY - 1

            def plans(self, low: Any, high: Any) -> tuple[int, ...]:  # noqa: ARG002
                return (0,)

        given: Any = env.structure
        certificate = Structured(env.contract(2.0, 2.0), Detailed(**asdict(given)))
        episodes = system.draw(seed, 1000)
        start = time.perf_counter()
        with compiling_anew():
            rollout(env, lambda seen, _, env=env: 0.5 * env.prior(seen), episodes, certificate)
        seconds = time.perf_counter() - start
        what = f"compiling a rollout, {MANY} bounds"
        yield Measurement(what, seconds, seconds, seconds, "s", "<= 20", seconds <= 20.0)
        return


class _Timed:
    """A guard that counts the seconds of `act` and `observe`."""

    def __init__(self, guard: Guard) -> None:
        self.guard, self.spent = guard, 0.0

    def reset(self) -> None:
        self.guard.reset()

    def act(self, observation: Any, proposal: Any) -> Decision:
        start = time.perf_counter()
        decision = self.guard.act(observation, proposal)
        self.spent += time.perf_counter() - start
        return decision

    def observe(self, cost: Any, revealed: Any = None) -> None:
        start = time.perf_counter()
        self.guard.observe(cost, revealed)
        self.spent += time.perf_counter() - start


def playing_online(
    env: Env, episodes: Episodes, certificate: Certificate, count: int = 10
) -> Callable[[], float]:
    """Plays some episodes through the guard, with half of the prior's action; seconds of act + observe a round."""

    def once() -> float:
        guard = _Timed(Guard(certificate, env.prior, env.low, env.high, env.norm))
        for i in range(count):
            for _ in eager(env, episodes[i], lambda observation: 0.5 * env.prior(observation), guard):
                pass
        return guard.spent / (count * episodes.horizon)

    return once


def _bench_import() -> Iterator[Measurement]:
    code = (
        "import sys, time; start = time.perf_counter(); import tether;"
        "print(time.perf_counter() - start, 'jax' in sys.modules)"
    )
    answers = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    seconds = sorted(float(answer.stdout.split()[0]) for answer in answers)
    middle = seconds[len(seconds) // 2]
    yield Measurement("import tether", middle, seconds[0], seconds[-1], "s", "< 0.5", middle < 0.5)
    loaded = float(any(answer.stdout.split()[1] == "True" for answer in answers))
    yield Measurement("JAX loaded by it (0: no)", loaded, loaded, loaded, "", "0", loaded == 0.0)


def alternate(repetitions: int, *measure: Callable[[], float]) -> tuple[list[float], ...]:
    """Each measured `repetitions` times, in turns, so that a busy machine is busy for all of them."""
    results: tuple[list[float], ...] = tuple([] for _ in measure)
    for _ in range(repetitions):
        for times, once in zip(results, measure, strict=True):
            times.append(once())
    return results


def microseconds(what: str, times: list[float]) -> Measurement:
    """Seconds that were measured, as microseconds."""
    scaled = [1e6 * seconds for seconds in times]
    return Measurement(what, float(np.median(scaled)), min(scaled), max(scaled), "µs")


def ratio(
    what: str, above: list[float], below: list[float], unit: str, target: str, test: Callable[[float], bool]
) -> Measurement:
    """Two things that were measured alternately, one over the other."""
    ratios = [one / other for one, other in zip(above, below, strict=True)]
    middle = float(np.median(ratios))
    return Measurement(what, middle, min(ratios), max(ratios), unit, target, test(middle) if target else None)
