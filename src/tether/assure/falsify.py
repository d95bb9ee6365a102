"""A search for counterexamples to the bounds of a structure, from every round of an episode to its end.

A trial is an episode: what nature draws, and what is played. Both plants go through it from the start, so every state
and every round that are looked at can be reached, with the gaps that the structure itself carries or with those that
there are. From the round that is looked at on, an action and one of the structure's backups are played to the horizon,
and `tether.assure.compare` tells what was said beside what happened. The worst trials for each bound are bred
further (`tether.assure.breeding`). Some are then played through `tether.Guard` itself, and audited.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tether.assure.breeding import Array, Breeder, Range, Trials, scripted
from tether.assure.cases import ROUND_OFF, Case, Falsified, GuardedCase, plain, plain_end, play_guarded
from tether.assure.compare import Compared, Draw, Plant, PlantState, Situation, compare, entries_of, round_of
from tether.certificates.structure import Bounds, Numbers, Round, Structure
from tether.core import validate
from tether.core.certificate import Action, Observation
from tether.core.contract import Contract
from tether.core.ops import FLOAT64, NUMPY, Number, Ops, jax_ops
from tether.simulate.eager import Many

if TYPE_CHECKING:
    from tether.data.episodes import Episodes
    from tether.systems.base import Env

LAMS = (0.0, 0.5, 4.0)
"""Of the contracts that are looked at if none is given."""
BATCH = 1024
"""Trials that are played at a time."""
WORST = 32
"""Trials for each bound from which the next ones are bred."""


def falsify(
    env: Env,
    structure: Structure,
    episodes: Episodes | None = None,
    *,
    contract: Contract | None = None,
    low: Number | None = None,
    high: Number | None = None,
    count: int = 40_000,
    guarded: int = 60,
    seed: int = 0,
) -> Falsified:
    """Try to find a case in which something that a structure says is not true.

    A bound for which nothing was found is not proved. Needs JAX, which plays the system; the structure is computed in
    NumPy, many cases at once, and on plain floats by the guard.

    Args:
        env: The system.
        structure: What is said of it.
        episodes: How the series usually are. A series that has limits (`Env.limits`, or `Env.search_ranges` where they
            are infinite) is anything within them in any round; one that has none, such as a clock, is taken from the
            episodes as it is.
        contract: The promise; without it several lam are looked at, and guarded episodes have several b.
        low: Lower bounds of the actions, a number or [n], if they are not those of the system.
        high: Upper bounds of the actions, likewise.
        count: Number of cases.
        guarded: Number of episodes that are played through the online guard as well.
        seed: Of the search.

    Example:
        >>> import tether
        >>> from tether.assure.attack import loosened
        >>> env = tether.envs.Carbon()
        >>> found = falsify(env, loosened(env.structure, "floor"), count=4096, guarded=0)
        >>> found.holds, found.broken
        (False, ('floor',))
    """
    count = validate.count("count", count)
    guarded = validate.count("guarded", guarded, minimum=0)
    rng = np.random.default_rng(validate.count("seed", seed, minimum=0))
    low, high = env.low if low is None else low, env.high if high is None else high
    horizon, lams = _promised(contract, episodes)
    breeder = Breeder(series_ranges(env, episodes, horizon), horizon, env.action_shape, lams, rng)
    import jax

    with jax.enable_x64(True), np.errstate(all="ignore"):
        search = _Search(env, structure, breeder, low, high)
        plans = list(dict.fromkeys((0, *structure.plans(low, high))))
        for plan in plans:
            search.look_at(plan, -(-count // len(plans)))
    cases: dict[str, Case | GuardedCase] = dict(search.cases)
    hard = search.hardest(guarded)
    for i in range(len(hard)):
        for each in _through_guard(search, contract, hard, i):
            if each.bound not in cases or each.amount > cases[each.bound].amount:
                cases[each.bound] = each
    return Falsified(env, structure, cases, search.tried, len(hard))


def _promised(contract: Contract | None, episodes: Episodes | None) -> tuple[int, tuple[float, ...]]:
    """(rounds of an episode, each lam that is looked at)."""
    if contract is None:
        return 24 if episodes is None else episodes.horizon, LAMS
    contract.require_constant("falsify")
    return contract.horizon, (contract.lam,)


def series_ranges(env: Env, episodes: Episodes | None, horizon: int) -> dict[str, Range]:
    """What each series of an environment can be; see `falsify`."""
    if episodes is not None:
        env.check(episodes)
        if episodes.horizon < horizon:
            raise ValueError(f"episodes must have {horizon} rounds as the contract, got {episodes.horizon}")
    known = {**env.limits(), **env.search_ranges()}
    ranges = {}
    for name in env.drawn_names:
        rows = None if episodes is None else episodes[name][:, :horizon]
        low, high = known.get(name, (-np.inf, np.inf))
        if rows is not None:
            shape = np.broadcast_shapes(rows.shape[2:], np.shape(low), np.shape(high))
            least, most = (np.broadcast_to(end(rows, axis=(0, 1)), shape) for end in (np.min, np.max))
            low, high = np.where(np.isfinite(low), low, least), np.where(np.isfinite(high), high, most)
        low, high = np.broadcast_arrays(np.asarray(low, float), np.asarray(high, float))
        if not np.all(np.isfinite(low) & np.isfinite(high)):
            raise ValueError(
                f"the series {name!r} has no finite range: give `episodes` of the system, or write "
                f"{type(env).__name__}.search_ranges"
            )
        ranges[name] = Range(low, high, rows, whole=name not in known)
    return ranges


class _Search:
    """The worst cases so far, by bound."""

    def __init__(self, env: Env, structure: Structure, breeder: Breeder, low: Number, high: Number) -> None:
        self.env, self.structure, self.breeder = env, structure, breeder
        self.many = _many(env)
        self.plant = _plant(self.many, low, high)
        self.cases: dict[str, Case] = {}
        self.tried = 0
        self._said: Any = structure if structure.scalar else _Mapped(structure)
        self._parents: dict[str, Trials] = {}
        self._scores: dict[str, Array] = {}
        self._ends = [np.maximum(low, structure.low), np.minimum(high, structure.high)]

    def look_at(self, plan: int, count: int) -> None:
        """Look at a backup in so many cases, one generation after the other."""
        size = min(BATCH, count)
        bounds: tuple[str, ...] = ()
        for _ in range(-(-count // size)):
            trials = self.breeder.fresh(size)
            if bounds:
                share = -(-3 * size // (4 * len(bounds)))
                for name in bounds:
                    trials = self.breeder.children(self._parents[name], share).join(trials)
            bounds = self._judge(trials.take(slice(size)), plan)
            self.tried += size

    def hardest(self, count: int) -> Trials:
        """So many of the trials that came nearest to breaking a bound, some for each."""
        share = -(-count // len(self._parents))
        first, *rest = (trials.take(slice(share)) for trials in self._parents.values())
        for each in rest:
            first = first.join(each)
        return first.take(self.breeder.rng.permutation(len(first))[:count])

    def action(self, wish: Array, script: Array) -> Array:
        """What a script says, where the prior would play `wish`; ends that are infinite are as far as it is large."""
        far = 1.0 + np.abs(wish)
        low, high = (
            np.where(np.isfinite(end), end, wish + sign * far)
            for end, sign in zip(self._ends, (-1.0, 1.0), strict=True)
        )
        inside: Array = np.clip(scripted(wish, script, low, high), *self._ends)
        return inside

    def _judge(self, trials: Trials, plan: int) -> tuple[str, ...]:
        """Play the trials, and keep what is worse than what is known; the names of the bounds."""
        situation, wish = self._reached(trials, plan)
        found = compare(self._said, self.plant, situation, plan, NUMPY)
        for name, amount in found.excess.items():
            scores = amount / found.size[name]
            order = np.argsort(-scores, kind="stable")[:WORST]
            known = self._scores.get(name, np.empty(0))
            if known.size == 0 or scores[order[0]] > known[0]:
                self.cases[name] = self._case(name, situation, wish, found, plan, int(order[0]))
            together, parents = np.concatenate([scores[order], known]), trials.take(order)
            parents = parents.join(self._parents[name]) if name in self._parents else parents
            best = np.argsort(-together, kind="stable")[:WORST]
            self._parents[name], self._scores[name] = parents.take(best), together[best]
        return tuple(found.excess)

    def _reached(self, trials: Trials, plan: int) -> tuple[Situation, Array]:
        """Both plants in the round that is looked at, and the prior's action there."""
        said, plant, lam = self._said, self.plant, cast(Number, trials.lam)
        count, horizon = trials.script.shape[:2]
        own = self.many.initial(count)
        prior, pending, reached = own, said.start(np.zeros(count)), None
        for h in range(int(trials.start.max()) + 1):
            drawn = {name: values[:, h] for name, values in trials.series.items()}
            observation, wish = plant.look(own, drawn)
            prior_observation, prior_wish = plant.look(prior, drawn)
            seen = said.read(observation)
            gaps = said.refine(pending, seen, FLOAT64, NUMPY)
            there = said.gaps_between(seen, said.read(prior_observation), NUMPY)
            action = self.action(wish, trials.script[:, h])
            # Where a gap that is carried is false already, no other bound is to blame for it.
            told = _chosen(trials.exact | ~_true(there, gaps, seen), there, gaps)
            here = own, prior, told, action, wish
            reached = here if reached is None else _chosen(trials.start == h, here, reached)
            now = round_of(said, plant, observation, wish, gaps, lam)
            step = said.bounds(now, entries_of(said, action), plan, NUMPY).step
            cost, own = plant.play(own, drawn, action)
            _, prior = plant.play(prior, drawn, prior_wish)
            _, pending = said.close(step, cost, FLOAT64, NUMPY)
        assert reached is not None
        own, prior, told, action, wish = reached
        left = cast(Number, horizon - trials.start)
        later = np.minimum(trials.start[:, None] + np.arange(horizon - int(trials.start.min())), horizon - 1)
        drawn = {name: values[np.arange(count)[:, None], later] for name, values in trials.series.items()}
        draws = [{name: values[:, n] for name, values in drawn.items()} for n in range(later.shape[1])]
        return Situation(own, prior, told, draws, action, lam, left), wish

    def _case(self, name: str, situation: Situation, wish: Array, found: Compared, plan: int, i: int) -> Case:
        """Case i of those that were compared, in plain numbers."""
        fields: Any = situation
        own, prior, gaps, draws, action, lam, remaining = fields
        round_now = self.breeder.horizon - int(remaining[i]) + 1
        kind = name.split(" ")[0]
        shown = {"later": int(found.until[i]), "gap": 1}.get(kind, 0)
        return Case(
            bound=name,
            amount=float(found.excess[name][i]),
            round_off=ROUND_OFF * float(found.size[name][i]),
            round=round_now,
            until=round_now + shown,
            lam=float(lam[i]),
            plan=plan,
            own=_entry(own._asdict(), i),
            prior=_entry(prior._asdict(), i),
            gaps=[plain(each[i]) for each in gaps],
            action=plain(action[i]),
            prior_action=plain(wish[i]),
            draws=[_entry(drawn, i) for drawn in draws[: int(remaining[i])]],
            low=plain_end(self.plant.low),
            high=plain_end(self.plant.high),
        )


def _through_guard(
    search: _Search, contract: Contract | None, trials: Trials, i: int
) -> tuple[GuardedCase, GuardedCase]:
    """Play a trial through the guard: its script, in half of the trials only up to the round that was looked at."""
    rng, start, script = search.breeder.rng, int(trials.start[i]), trials.script[i]
    if contract is None:
        b = search.structure.scale * 10.0 ** rng.uniform(-4.0, -0.5)
        contract = Contract(float(trials.lam[i]), b, search.breeder.horizon, search.env.cost_floor)
    series = {name: values[i] for name, values in trials.series.items()}
    quiet = rng.random() < 0.5

    def propose(h: int, wish: Action) -> Any:
        return None if quiet and h > start else search.action(wish, script[h])

    return play_guarded(
        search.env,
        search.structure,
        contract,
        [_entry(series, h) for h in range(contract.horizon)],
        propose,
        (search.plant.low, search.plant.high),
    )


class _Mapped:
    """A structure whose gaps are arrays, for many cases at once: every method mapped over the cases and compiled."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._structure, name)

    def start(self, zero: Any) -> Any:
        return self._map("start", self._structure.start, zero)

    def read(self, observation: Observation) -> Any:
        return self._map("read", self._structure.read, np.moveaxis(observation, -1, 0))

    def gaps_between(self, seen: Numbers, prior_seen: Numbers, ops: Ops) -> Any:  # noqa: ARG002
        return self._with_ops("gaps_between", seen, prior_seen)

    def refine(self, gaps: Numbers, seen: Any, epsilon: Number, ops: Ops) -> Any:  # noqa: ARG002
        return self._with_ops("refine", gaps, seen, np.full(len(seen[0]), epsilon))

    def close(self, step: Numbers, cost: Any, epsilon: Number, ops: Ops) -> Any:  # noqa: ARG002
        return self._with_ops("close", step, cost, np.full(len(cost), epsilon))

    def admits(self, seen: Any, ops: Ops) -> Any:  # noqa: ARG002
        return self._with_ops("admits", seen)

    def agrees(self, seen: Any, prior: Action, epsilon: Number, ops: Ops) -> Any:  # noqa: ARG002
        return self._with_ops("agrees", seen, prior, np.full(len(prior), epsilon))

    def bounds(self, now: Round, action: Action, plan: int, ops: Ops) -> Bounds:  # noqa: ARG002
        def one(gaps: Numbers, seen: Numbers, prior: Action, lam: Number, action: Action) -> Bounds:
            here = Round(gaps, seen, prior, lam, *now[4:])
            return self._structure.bounds(here, action, plan, jax_ops())

        found: Bounds = self._map(("bounds", plan), one, *now[:4], action)
        return found

    def backup(self, plan: int, now: Round, ops: Ops) -> Action:  # noqa: ARG002
        def one(gaps: Numbers, seen: Numbers, prior: Action, lam: Number) -> Any:
            return self._structure.backup(plan, Round(gaps, seen, prior, lam, *now[4:]), jax_ops())

        return self._map(("backup", plan), one, *now[:4])

    def _with_ops(self, name: str, *arguments: Any) -> Any:
        method = getattr(self._structure, name)
        return self._map(name, lambda *each: method(*each, jax_ops()), *arguments)

    def _map(self, key: Any, one: Callable[..., Any], *arguments: Any) -> Any:
        import jax

        if key not in self._compiled:
            self._compiled[key] = jax.jit(jax.vmap(one))
        return jax.tree.map(np.asarray, self._compiled[key](*arguments))


@lru_cache(maxsize=8)
def _many(env: Env) -> Many:
    """What is compiled for an environment, kept for the next search."""
    return Many(env)


def _plant(many: Many, low: Number, high: Number) -> Plant:
    """The `Plant` for many cases at once; an observation is [o, count]."""

    def look(state: PlantState, drawn: Draw) -> tuple[Any, Any]:
        observation, wish = many.look(state, drawn)
        return np.moveaxis(observation, 0, -1), wish

    def play(state: PlantState, drawn: Draw, action: Action) -> tuple[Any, PlantState]:
        step = many.step(state, drawn, action)
        return step.cost, step.state

    return Plant(look, play, many.env.cost_floor, low, high)


def _chosen(condition: Array, if_true: Any, if_false: Any) -> Any:
    """`np.where` case by case, in tuples of arrays and of tuples."""
    if isinstance(if_true, tuple):
        parts = [_chosen(condition, *pair) for pair in zip(if_true, if_false, strict=True)]
        return type(if_true)(*parts) if hasattr(if_true, "_fields") else tuple(parts)
    return np.where(condition[(..., *[None] * (np.ndim(if_true) - 1))], if_true, if_false)


def _true(there: Any, gaps: Numbers, seen: Any) -> Array:
    """[count] whether the gaps bound those that there are, up to round-off."""
    count = len(seen[0])

    def largest(values: Array) -> Array:
        most: Array = np.max(values.reshape(count, -1), axis=1)
        return most

    over = np.max([largest(actual - known) for actual, known in zip(there, gaps, strict=True)], axis=0)
    size = 1.0 + np.sum([largest(np.abs(each)) for each in seen], axis=0)
    true: Array = ~(over > ROUND_OFF * size)
    return true


def _entry(values: dict[str, Any], i: int) -> dict[str, Any]:
    return {name: plain(each[i]) for name, each in values.items()}
