"""The yardstick: the largest reward that any action sequence can have that keeps the promise, in hindsight.

All disturbances of an episode are known here, which no policy can know. What a policy reaches of the way from the
prior to this limit is its *share*, (V - V_prior) / (V_limit - V_prior).

Each episode is a convex program (cvxpy with Clarabel, extra `limit`). Write bound_h for (1 + lam) J_h(prior) + h b and

    maximise    the episode's reward, concave in the actions
    subject to  cost_1 + ... + cost_h <= bound_h for every h, and the dynamics, relaxed as follows.

**Carbon.** With y_h = (1 - n2_h) x_{h-1} + mu_h - w_h a_h and w_h = 0.8 + n1_h the backlog is min(15, [y_h]^+). Take
x_h as a variable with x_h >= y_h, x_h >= 0. If the cap of 15 is out of play this is *exact*: for given actions the
true backlog is the least of all such x (by induction, since y_h grows with x_{h-1}), the costs grow with x and the
rewards do not depend on it. The cap is out of play where even the cheapest way to reach it, a = 0 for as long as
needed, costs more than the bounds; that is checked. Elsewhere the cap lets work be dropped, u_h = [y_h - 15]^+, in
rounds with x_h = 15 only. The program then has the convex hull of the two cases, {u = 0, 0 <= x <= 15, cost x^2 + x
+ 1} and {x = 15, 0 <= u <= d_h, cost 241}: with the weight t_h of the second, x_h >= y_h - u_h, u_h <= d_h t_h and
cost_h = 1 + x_h + 225 t_h + (x_h - 15 t_h)^2 / (1 - t_h). That holds for every true trajectory: an *upper bound*.

**Inference.** With y_h = x_{h-1} + v_e e_h - v_a a_h the charge is min(capacity, [y_h]^+), the cost [-y_h]^+ squared.
Energy can be wasted without harm (more charge never costs more), but not bought ahead of need: either the battery
keeps something or fossil energy is bought. That "or" is not convex; the program has the convex hull of the two cases,
{x + waste = y, nothing bought} and {x = 0, bought f = -y}: with the weight t_h of the second,
y_h = x_h + waste_h - f_h, x_h <= (1 - t_h) capacity, x_h + waste_h <= (1 - t_h) (capacity + v_e e_h),
f_h <= t_h f_max and cost_h = f_h^2 / t_h. An *upper bound*.

How far an upper bound can be from the truth is measured: the actions found are replayed in the system itself. If they
keep the promise their reward is *attained*; if not, the case of each round is fixed as the replay had it (the cap left
out for carbon), which leaves a convex program whose solutions all keep the promise, and its reward is what is attained.
The true limit of an episode lies between the two; a share of the upper bound is never too high.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tether._files import complete_file
from tether.envs.base import Env
from tether.envs.carbon import Carbon
from tether.envs.inference import Inference

if TYPE_CHECKING:
    from tether.contract import Contract
    from tether.data.episodes import Episodes

Floats = NDArray[np.float64]

TOLERANCE = 1e-5
"""A replay keeps the promise if no cumulative cost exceeds its bound by more than this share of it."""
VERSION = 1
"""Of the programs; results cached by another version are not used."""


@dataclass(frozen=True)
class Limit:
    """The hindsight limit of N episodes under one contract."""

    upper: Floats
    """[N] no anytime-competitive action sequence has a larger reward."""
    attained: Floats
    """[N] the reward of a sequence that keeps the promise; NaN where none was found."""

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
    processes: int | None = None,
    cache: str | Path | None = None,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Limit:
    """The largest reward of any anytime-competitive action sequence, for each episode.

    Args:
        env: `tether.envs.Carbon` or `tether.envs.Inference`.
        episodes: What was drawn.
        contract: The promise.
        prior_costs: [N, H] the prior's cost in each round of each episode, as `tether.rollout` gives them.
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
    _require_cvxpy()
    if type(env) not in _PROGRAMS:
        raise TypeError(f"the hindsight program is known for Carbon and Inference, not for {env!r}")
    if np.shape(prior_costs) != (len(episodes), episodes.horizon):
        raise ValueError(
            f"prior_costs must be [{len(episodes)}, {episodes.horizon}], got {np.shape(prior_costs)}"
        )
    bounds = contract.bound(np.cumsum(prior_costs, axis=1), np.arange(1, episodes.horizon + 1))
    drawn = np.stack([episodes[name] for name in env.series], axis=1)
    keys = [_key(env, drawn[i], bounds[i]) for i in range(len(episodes))]
    store = _Store(cache)
    known = store.read(keys)
    missing = [i for i, key in enumerate(keys) if key not in known]
    done = len(keys) - len(missing)
    report(done, len(keys))
    chunks = [missing[i : i + 16] for i in range(0, len(missing), 16)]
    tasks = [(env, drawn[chunk], bounds[chunk]) for chunk in chunks]
    for chunk, solved in zip(chunks, _solve_all(tasks, processes), strict=True):
        fresh = {keys[i]: pair for i, pair in zip(chunk, solved, strict=True)}
        known |= fresh
        store.write(fresh)
        done += len(chunk)
        report(done, len(keys))
    pairs = np.array([known[key] for key in keys])
    return Limit(pairs[:, 0], pairs[:, 1])


def _require_cvxpy() -> Any:
    try:
        import cvxpy
    except ModuleNotFoundError:
        raise ModuleNotFoundError("the hindsight limit needs cvxpy: pip install 'tether-rl[limit]'") from None
    return cvxpy


def _key(env: Env, drawn: Floats, bounds: Floats) -> str:
    digest = hashlib.sha256(f"{VERSION} {env!r} {drawn.shape}".encode())
    digest.update(np.ascontiguousarray(drawn).tobytes() + np.ascontiguousarray(bounds).tobytes())
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


Task = tuple[Env, Floats, Floats]


def _solve_all(tasks: list[Task], processes: int | None) -> Iterator[list[tuple[float, float]]]:
    """The tasks' results in order, by worker processes if there is more than one of both."""
    workers = min(processes or os.cpu_count() or 1, len(tasks))
    if workers <= 1:
        yield from map(_solve_chunk, tasks)
        return
    # A fresh interpreter each: forking a process that runs JAX's threads can hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(_solve_chunk, tasks)


_compiled: dict[tuple[Env, int], Any] = {}
"""The programs of this process, by environment and horizon."""


def _solve_chunk(task: Task) -> list[tuple[float, float]]:
    env, drawn, bounds = task
    key = (env, drawn.shape[-1])
    if key not in _compiled:
        _compiled[key] = _PROGRAMS[type(env)](env, drawn.shape[-1])
    program = _compiled[key]
    named = [dict(zip(env.series, each, strict=True)) for each in drawn]
    return [program.solve(each, bound) for each, bound in zip(named, bounds, strict=True)]


class _CarbonProgram:
    """See the module's documentation; `_build(capped=False)` leaves the cap out."""

    def __init__(self, env: Carbon, horizon: int) -> None:
        self.env, self.horizon = env, horizon
        cp = _require_cvxpy()
        names = ("keep", "demand", "efficiency", "root", "renewables", "bounds", "droppable")
        self.given = {name: cp.Parameter(horizon, name=name, nonneg=True) for name in names}
        self.exact, self.capped = self._build(False), self._build(True)

    def _build(self, capped: bool) -> Any:
        cp, env, given = _require_cvxpy(), self.env, self.given
        a, x = cp.Variable(self.horizon, nonneg=True), cp.Variable(self.horizon, nonneg=True)
        y = given["demand"] - cp.multiply(given["efficiency"], a)
        y += cp.hstack([0.0, cp.multiply(given["keep"][1:], x[:-1])])
        if capped:
            t, cap = cp.Variable(self.horizon), env.backlog_max
            dropped = cp.multiply(given["droppable"], t)
            squares = cp.hstack(
                [cp.quad_over_lin(x[h] - cap * t[h], 1.0 - t[h]) for h in range(self.horizon)]
            )
            costs = 1.0 + x + cap**2 * t + squares
            constraints = [
                x >= y - dropped,
                t >= 0.0,
                t <= 1.0,
                x <= cap,
                cp.cumsum(costs) <= given["bounds"],
            ]
        else:
            constraints = [x >= y, cp.cumsum(1.0 + x + cp.square(x)) <= given["bounds"]]
        reward = (
            env.revenue_weight * cp.sum(cp.multiply(given["root"], cp.sqrt(a)))
            - cp.sum_squares(cp.pos(a - given["renewables"]))
            - env.switching_weight * cp.sum_squares(cp.diff(a))
        )
        return cp.Problem(cp.Maximize(reward), constraints), a

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        efficiency = self.env.efficiency + drawn["efficiency_noise"]
        keep = 1.0 - drawn["drop_rate"]
        self.given["keep"].value = keep
        self.given["demand"].value = drawn["demand"]
        self.given["efficiency"].value = efficiency
        self.given["root"].value = np.sqrt(efficiency)
        self.given["renewables"].value = drawn["renewables"]
        self.given["bounds"].value = bounds
        droppable = np.maximum(keep * self.env.backlog_max + drawn["demand"] - self.env.backlog_max, 0.0)
        self.given["droppable"].value = droppable
        if not self._cap_is_reachable(drawn["demand"], keep, bounds):
            upper, actions = _optimum(self.exact)
            return upper, _kept(self.env, drawn, actions, bounds)
        upper, actions = _optimum(self.capped)
        attained = _kept(self.env, drawn, actions, bounds)
        if np.isnan(attained):
            attained = _kept(self.env, drawn, _optimum(self.exact)[1], bounds)
        return upper, attained

    def _cap_is_reachable(self, demand: Floats, keep: Floats, bounds: Floats) -> bool:
        """Whether the cheapest way to a backlog at the cap fits the bound, for any round."""
        least = np.zeros(
            self.horizon
        )  # [H] least backlog in the present round from which the cap is met at h
        cost = np.zeros(self.horizon)
        for h in range(self.horizon):
            backlog, cost[h], i = self.env.backlog_max, 0.0, h
            while i >= 0:
                cost[h] += backlog**2 + backlog + 1.0
                backlog = max((backlog - demand[i]) / keep[i], 0.0) if keep[i] > 0.0 else 0.0
                i -= 1
            least[h] = backlog
        # Whoever would have to start with a backlog cannot reach the cap in this round.
        return bool(np.any((cost <= bounds) & (least <= 0.0)))


class _InferenceProgram:
    """See the module's documentation; `_build(free=False)` has the case of each round fixed."""

    def __init__(self, env: Inference, horizon: int) -> None:
        self.env, self.horizon = env, horizon
        cp = _require_cvxpy()
        names = ("demand", "charged", "discharge_rate", "bounds", "most_bought", "most_kept", "short")
        self.given = {name: cp.Parameter(horizon, name=name, nonneg=True) for name in names}
        self.relaxed, self.fixed = self._build(True), self._build(False)

    def _build(self, free: bool) -> Any:
        cp, env, given, horizon = _require_cvxpy(), self.env, self.given, self.horizon
        a, x, waste, bought = (cp.Variable(horizon, nonneg=True) for _ in range(4))
        before = cp.hstack([env.initial_charge, x[:-1]])
        constraints = [
            before + given["charged"] - cp.multiply(given["discharge_rate"], a) == x + waste - bought,
            a <= env.action_max,
        ]
        if free:
            short: Any = cp.Variable(horizon)
            costs = cp.hstack([cp.quad_over_lin(bought[h], short[h]) for h in range(horizon)])
            constraints += [
                short >= 0.0,
                short <= 1.0,
                bought <= cp.multiply(given["most_bought"], short),
                x + waste <= cp.multiply(given["most_kept"], 1.0 - short),
            ]
        else:
            short = given["short"]
            costs = cp.square(bought)
            # What a battery that is empty has left over may be wasted, so `waste` is free.
            constraints += [cp.multiply(1.0 - short, bought) == 0.0]
        constraints += [x <= env.capacity * (1.0 - short), cp.cumsum(costs) <= given["bounds"]]
        reward = (
            env.performance_weight * cp.sum(cp.log1p(env.performance_scale * a))
            - env.demand_weight * cp.sum_squares(cp.pos(given["demand"] - a))
            - env.switching_weight * cp.sum_squares(cp.diff(a))
            - env.carbon_weight * cp.sum(costs)
        )
        return cp.Problem(cp.Maximize(reward), constraints), a

    def solve(self, drawn: Mapping[str, Floats], bounds: Floats) -> tuple[float, float]:
        charged = drawn["charge_rate"] * drawn["renewables"]
        most = np.maximum(drawn["discharge_rate"] * self.env.action_max - charged, 0.0)
        self.given["demand"].value = drawn["demand"]
        self.given["charged"].value = charged
        self.given["discharge_rate"].value = drawn["discharge_rate"]
        self.given["bounds"].value = bounds
        self.given["most_bought"].value = np.minimum(
            most, np.sqrt(bounds)
        )  # no single cost exceeds the bound
        self.given["most_kept"].value = self.env.capacity + charged
        upper, actions = _optimum(self.relaxed)
        costs, _ = _replay(self.env, drawn, actions)
        attained = _kept(self.env, drawn, actions, bounds)
        if np.isnan(attained):
            self.given["short"].value = np.where(costs > 1e-9, 1.0, 0.0)
            attained = _kept(self.env, drawn, _optimum(self.fixed)[1], bounds)
        return upper, attained


_PROGRAMS: dict[type[Env], Callable[[Any, int], Any]] = {Carbon: _CarbonProgram, Inference: _InferenceProgram}


def _optimum(problem_and_actions: tuple[Any, Any]) -> tuple[float, Floats]:
    """The optimal value and the actions [H]; NaN where the solver found none."""
    problem, actions = problem_and_actions
    cp = _require_cvxpy()
    with warnings.catch_warnings():
        # The last digits may be lost in an episode; the replay measures what that does.
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        problem.solve(solver=cp.CLARABEL)
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        return np.nan, np.full(actions.shape, np.nan)
    return float(problem.value), np.clip(actions.value, 0.0, None)


def _replay(env: Env, drawn: Mapping[str, Floats], actions: Floats) -> tuple[Floats, Floats]:
    """[H] costs and rewards of the actions in the system itself."""
    state, costs, rewards = env.initial(), np.empty(len(actions)), np.empty(len(actions))
    for h, action in enumerate(actions):
        now = {name: np.asarray(values[h]) for name, values in drawn.items()}
        state, rewards[h], costs[h] = env.step(state, now, np.clip(action, env.low, env.high))
    return costs, rewards


def _kept(env: Env, drawn: Mapping[str, Floats], actions: Floats, bounds: Floats) -> float:
    """The reward of the actions in the system itself, NaN if they break the promise."""
    costs, rewards = _replay(env, drawn, actions)
    kept = np.all(np.cumsum(costs) <= bounds * (1.0 + TOLERANCE) + TOLERANCE)
    return float(np.sum(rewards)) if kept else np.nan
