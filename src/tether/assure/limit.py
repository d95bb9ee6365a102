"""The yardstick: the largest reward that any action sequence can have that keeps the promise, in hindsight.

All disturbances of an episode are known here, which no policy can know. What a policy reaches of the way from the
prior to this limit is its *share*, (V - V_prior) / (V_limit - V_prior).

Each episode is a convex program (cvxpy with Clarabel, extra `limit`). Write bound_h for (1 + lam) J_h(prior) + h b and

    maximise    the episode's reward, concave in the actions
    subject to  cost_1 + ... + cost_h <= bound_h for every h, and the dynamics, relaxed as each
                program says (`tether.systems.carbon.limit`, for instance).

How far an upper bound can be from the truth is measured: the actions found are replayed in the system itself. If they
keep the promise their reward is *attained*; if not, the case of each round is fixed as the replay had it, which
leaves a convex program whose solutions all keep the promise, and its reward is what is attained.
The true limit of an episode lies between the two; a share of the upper bound is never too high.

A system without a convex program gets a search by gradients (`tether.assure.nonlinear`). It only attains: the limit is
then the best that was found, `Limit.proven` is False, and a share of it may be too high.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tether.assure.nonlinear import NonlinearProgram
from tether.core.files import complete_file
from tether.systems import registry
from tether.systems.base import Env
from tether.systems.program import Floats, Program

if TYPE_CHECKING:
    from tether.core.contract import Contract
    from tether.data.episodes import Episodes

VERSION = 2
"""Of the programs; results cached by another version are not used."""


@dataclass(frozen=True)
class Limit:
    """The hindsight limit of N episodes under one contract."""

    upper: Floats
    """[N] no anytime-competitive action sequence has a larger reward, if that is `proven`; else what is attained."""
    attained: Floats
    """[N] the reward of a sequence that keeps the promise; NaN where none was found."""
    proven: bool = True
    """Whether `upper` is an upper bound, by a convex program; if not it is the best that a search has found."""

    def share(self, returns: Any, prior_returns: Any) -> float:
        """(V - V_prior) / (V_limit - V_prior), of mean rewards [N] over the episodes."""
        gained = float(np.mean(returns) - np.mean(prior_returns))
        return gained / float(np.mean(self.upper) - np.mean(prior_returns))


def hindsight_limit(
    env: Env,
    episodes: Episodes,
    contract: Contract,
    prior_costs: Any,
    *,
    program: Callable[[Any, int], Program] | None = None,
    processes: int | None = None,
    cache: str | Path | None = None,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Limit:
    """The largest reward of any anytime-competitive action sequence, for each episode.

    Args:
        env: The system.
        episodes: What was drawn.
        contract: The promise.
        prior_costs: [N, H] the prior's cost in each round of each episode, as `tether.rollout` gives them.
        program: `program(env, horizon)`, the system's convex one (`tether.systems.System.program`). If None that of the
            installed system with this environment, and if there is none a search by gradients.
        processes: How many solve at the same time; as many as there are processors if None, in this process if 1.
        cache: A folder that keeps what was solved, by a hash of environment, contract, episode and bounds.
        report: Called with (episodes done, episodes in all).

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> episodes = tether.data.synthetic_carbon(seed=0, n=3)
        >>> prior = tether.rollout(env, env.prior, episodes)
        >>> limit = hindsight_limit(env, episodes, env.contract(2.0, 2.0), prior.costs, processes=1)
        >>> bool(np.all(limit.upper > prior.returns)), bool(np.all(limit.attained <= limit.upper + 1e-3))
        (True, True)
    """
    env.check(episodes)
    if program is None:
        system = registry.of_env(env)
        program = NonlinearProgram if system is None or system.program is None else system.program
    if np.shape(prior_costs) != (len(episodes), episodes.horizon):
        raise ValueError(
            f"prior_costs must be [{len(episodes)}, {episodes.horizon}], got {np.shape(prior_costs)}"
        )
    bounds = contract.bounds(prior_costs)
    drawn = [{name: episodes[name][i] for name in env.series} for i in range(len(episodes))]
    made = _Made(env, episodes.horizon, program)
    keys = [made.key(each, bound) for each, bound in zip(drawn, bounds, strict=True)]
    store = _Store(cache)
    known = store.read(keys)
    missing = [i for i, key in enumerate(keys) if key not in known]
    done = len(keys) - len(missing)
    report(done, len(keys))
    chunks = [missing[i : i + 16] for i in range(0, len(missing), 16)]
    tasks: list[Task] = [(made, [(drawn[i], bounds[i]) for i in chunk]) for chunk in chunks]
    for chunk, solved in zip(chunks, _solve_all(tasks, processes), strict=True):
        fresh = {keys[i]: pair for i, pair in zip(chunk, solved, strict=True)}
        known |= fresh
        store.write(fresh)
        done += len(chunk)
        report(done, len(keys))
    pairs = np.array([known[key] for key in keys])
    return Limit(pairs[:, 0], pairs[:, 1], proven=program is not NonlinearProgram)


@dataclass(frozen=True)
class _Made:
    """A program and what it is made for."""

    env: Env
    horizon: int
    program: Callable[[Any, int], Program]

    def key(self, drawn: Mapping[str, Floats], bounds: Floats) -> str:
        """By which the solution of an episode is known."""
        name = f"{self.program.__module__}.{self.program.__qualname__}"
        digest = hashlib.sha256(f"{VERSION} {name} {self.env!r}".encode())
        for series, values in (*drawn.items(), ("bounds", bounds)):
            digest.update(f"{series} {values.shape}".encode() + np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


class _Store:
    """Solved episodes on disk: (upper, attained) by key, in files that are written once."""

    def __init__(self, folder: str | Path | None) -> None:
        self._folder = None if folder is None else Path(folder)

    def read(self, keys: Sequence[str]) -> dict[str, tuple[float, float]]:
        """What is known of these keys."""
        wanted, found = set(keys), {}
        for file in sorted(self._folder.glob("limit-*.npz")) if self._folder is not None else ():
            with np.load(file) as stored:
                for key, pair in zip(stored["keys"].tolist(), stored["values"].tolist(), strict=True):
                    if key in wanted:
                        found[key] = (pair[0], pair[1])
        return found

    def write(self, solved: Mapping[str, tuple[float, float]]) -> None:
        """Keep these."""
        if self._folder is None or not solved:
            return
        name = hashlib.sha256("".join(solved).encode()).hexdigest()[:24]
        with complete_file(self._folder / f"limit-{name}.npz") as draft, draft.open("wb") as file:
            np.savez(file, keys=np.array(list(solved)), values=np.array(list(solved.values())))


Task = tuple[_Made, list[tuple[Mapping[str, Floats], Floats]]]


def _solve_all(tasks: list[Task], processes: int | None) -> Iterator[list[tuple[float, float]]]:
    """The tasks' results in order, by worker processes if there is more than one of both."""
    workers = min(processes or os.cpu_count() or 1, len(tasks))
    if workers <= 1 or not _sendable(tasks[0]):
        yield from map(_solve_chunk, tasks)
        return
    # A fresh interpreter each: forking a process that runs JAX's threads can hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(_solve_chunk, tasks)


def _sendable(task: Task) -> bool:
    """Whether another process can be given it; a system made of somebody's own functions stays in this one."""
    try:
        pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


_compiled: dict[_Made, Program] = {}
"""The programs of this process."""


def _solve_chunk(task: Task) -> list[tuple[float, float]]:
    made, episodes = task
    if made not in _compiled:
        _compiled[made] = made.program(made.env, made.horizon)
    return [_compiled[made].solve(*each) for each in episodes]
