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
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tether.assure.nonlinear import NonlinearProgram
from tether.engines.engine import Local, Silent
from tether.engines.pieces import Piece, Report, Store
from tether.systems import registry
from tether.systems.base import Env
from tether.systems.program import Floats, Program

if TYPE_CHECKING:
    from tether.core.contract import Contract
    from tether.data.episodes import Episodes

AT_ONCE = 16
"""Episodes of a piece."""
VERSION = 3
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
    work = Hindsight.of(env, episodes, contract, prior_costs, program, cache)
    pieces = work.pieces()
    total, done = len(work.keys), sum(key in work.known for key in work.keys)
    report(done, total)
    for piece, data in Local(processes or os.cpu_count() or 1).compute(pieces, work.store, Silent()):
        if work.cached:
            work.store.write(piece.name, data)
        solved = _unpacked(data)
        work.known.update(solved)
        done += len(solved)
        report(done, total)
    return work.limit()


@dataclass(frozen=True, eq=False)
class Hindsight:
    """`hindsight_limit` in parts: an engine computes the `pieces`, and the `limit` is found in the folder."""

    made: _Made
    drawn: Sequence[Mapping[str, Floats]]
    """The series of each episode."""
    bounds: Floats
    """[N, H] that its costs must stay below."""
    keys: Sequence[str]
    """By which each is known."""
    store: Store
    """Where solved pieces are kept ..."""
    cached: bool
    """... if they are."""
    known: dict[str, tuple[float, float]]
    """(upper, attained) of what is solved already, by key."""

    @classmethod
    def of(
        cls,
        env: Env,
        episodes: Episodes,
        contract: Contract,
        prior_costs: Any,
        program: Callable[[Any, int], Program] | None,
        cache: str | Path | None,
    ) -> Hindsight:
        """See `hindsight_limit`."""
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
        store = Store(Path(cache or ""), "npz")
        known = {} if cache is None else _known(store.folder, set(keys))
        return cls(made, drawn, bounds, keys, store, cache is not None, known)

    def pieces(self) -> list[Piece]:
        """What is not solved yet, `AT_ONCE` episodes each."""
        missing = [i for i, key in enumerate(self.keys) if key not in self.known]
        made = []
        for first in range(0, len(missing), AT_ONCE):
            chunk = missing[first : first + AT_ONCE]
            keys = [self.keys[i] for i in chunk]
            name = f"limit-{hashlib.sha256(''.join(keys).encode()).hexdigest()[:24]}"
            task = [(self.drawn[i], self.bounds[i]) for i in chunk]
            made.append(Piece(name, partial(_solved, made=self.made, keys=keys, episodes=task)))
        return made

    def limit(self) -> Limit:
        """Once every episode is solved."""
        pairs = np.array([self.known[key] for key in self.keys])
        return Limit(pairs[:, 0], pairs[:, 1], proven=self.made.program is not NonlinearProgram)


@dataclass(frozen=True)
class _Made:
    """A program and what it is made for."""

    env: Env
    horizon: int
    program: Callable[[Any, int], Program]

    def key(self, drawn: Mapping[str, Floats], bounds: Floats) -> str:
        """By which the solution of an episode is known."""
        # A class, or an object that makes programs and says in its repr which.
        name = f"{self.program.__module__}.{getattr(self.program, '__qualname__', repr(self.program))}"
        digest = hashlib.sha256(f"{VERSION} {name} {self.env!r}".encode())
        for series, values in (*drawn.items(), ("bounds", bounds)):
            digest.update(f"{series} {values.shape}".encode() + np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


def _known(folder: Path, wanted: set[str]) -> dict[str, tuple[float, float]]:
    """What a folder holds of these keys."""
    found: dict[str, tuple[float, float]] = {}
    for file in sorted(folder.glob("limit-*.npz")):
        found |= {key: pair for key, pair in _unpacked(file.read_bytes()).items() if key in wanted}
    return found


def _unpacked(data: bytes) -> dict[str, tuple[float, float]]:
    """The content of a solved piece: (upper, attained) by key."""
    with np.load(io.BytesIO(data)) as stored:
        return {
            key: (upper, attained)
            for key, (upper, attained) in zip(stored["keys"].tolist(), stored["values"].tolist(), strict=True)
        }


_compiled: dict[_Made, Program] = {}
"""The programs of this process."""


def _solved(
    report: Report, made: _Made, keys: list[str], episodes: list[tuple[Mapping[str, Floats], Floats]]
) -> bytes:
    """Compute a piece, as the bytes of its file."""
    if made not in _compiled:
        _compiled[made] = made.program(made.env, made.horizon)
    values = []
    for done, each in enumerate(episodes):
        report(done, len(episodes), "")
        values.append(_compiled[made].solve(*each))
    file = io.BytesIO()
    np.savez(file, keys=np.array(keys), values=np.array(values))
    return file.getvalue()
