"""Whether the bounds that were compiled from a model are true, and how near the truth comes to them.

Both plants go through episodes of hostile draws and actions, the prior's beside the own. In every round, what is said
is compared with what happens, by the environment's own functions:

    now (PLAN)      y_h <= T_0
    later (PLAN)    y_h + ... + y_{h+n} <= T_n for n >= 1, if the backup is played from round h + 1 on
    floor           floor <= c+_h, once c_h is seen
    ceiling         c_h <= ceiling
    box             low <= x+_h <= high: where the prior's state is said to be
    round (PLAN)    y <= Y, of a later round from the states that both plants have, the backup playing, ...
    after (PLAN)    ... and where it is said to lead: the own state, the prior's and the gap between them

T_n adds up such rounds, each at its worst, which need not come together: it may be far above the truth. The rounds that
it is made of are looked at by themselves, from states that are known.

A bound that is never exceeded may still be so loose that nothing tells whether it is true. So the *slack* is measured
too: the smallest distance between the truth and a bound, as a share of the bound (for the box: of its width), where the
bound is one that counts: T_n above 0, a floor above the contract's, a box with an inside, a later round's Y whose size
is at least a thousandth of what the prior pays at most (below 0, too: it is what lam earns). Where it is below 5 %, the
same bound drawn in by 5 % is refuted by the same episodes: the check can fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tether.assure.attack import Hostile, bred, hostile_episodes, plants
from tether.certificates.intervals import Interval
from tether.certificates.structure import Round
from tether.core.compiler import compiler_options
from tether.core.contract import Contract
from tether.core.ops import FLOAT64, jax_ops
from tether.data.episodes import Episodes
from tether.systems.base import Env
from tether.systems.system import System

ROUND_OFF = 1e-9
"""Differences below this share of the numbers that are compared are ties."""
NARROW = 1e-6
"""A box whose width is below this share of the range of states counts as a point, which has no inside."""
LOOSEN = 0.05
"""By this share a bound is drawn in to see whether it would be noticed."""
GENERATIONS, PARENTS = 20, 40
"""How often episodes are bred, and from how many, where the truth has not come near to a bound."""


@dataclass(frozen=True)
class Inclusion:
    """What was found of one bound."""

    bound: str
    compared: int
    """How often it said something."""
    broken: int
    """How often it was not true."""
    slack: float
    """Smallest distance of the truth from the bound, as a share of it; infinite where it never counted."""

    def together(self, other: Inclusion | None) -> Inclusion:
        """With what was found in other episodes."""
        if other is None:
            return self
        return Inclusion(
            self.bound,
            self.compared + other.compared,
            self.broken + other.broken,
            min(self.slack, other.slack),
        )

    @property
    def sharp(self) -> bool:
        """Whether the bound drawn in by `LOOSEN` would be refuted."""
        return self.slack < LOOSEN

    @property
    def unnoticed(self) -> bool:
        """Whether drawing it in would go unnoticed: one that counts, and no sum of rounds that count by themselves."""
        return not self.sharp and self.slack < math.inf and not self.bound.startswith("later")


def hostile_inclusions(
    system: System, certificate: Any, episodes: int, seed: int = 0, generations: int = GENERATIONS
) -> dict[str, Inclusion]:
    """Compare every bound, with each backup, in so many episodes of hostile draws and actions.

    Where the truth comes near to no bound of a kind, more episodes are bred from those in which it came nearest.

    Args:
        system: Whose standard plant is played.
        certificate: See `inclusions`.
        episodes: How many are played with each backup, in each generation.
        seed: Of what is drawn.
        generations: How often episodes are bred at most.
    """
    env = plants(system)["standard"]
    found: dict[str, Inclusion] = {}
    for plan in range(1 + len(certificate.system.backups)):
        rng = np.random.default_rng([seed, plan])
        compare = _comparison(env, certificate, Hostile(env), plan)
        nearest: dict[str, _Near] = {}
        for generation in range(1 + generations):
            drawn = hostile_episodes(system, env, episodes, rng, certificate.contract.horizon)
            blunt = [each for name, each in nearest.items() if not found[name].sharp]
            if generation:
                if not blunt:
                    break
                drawn = bred(blunt[generation % len(blunt)].episodes, drawn, rng, child=0.8)
            for name, (each, slacks) in compare(drawn).items():
                found[name] = each.together(found.get(name))
                if each.slack < math.inf:
                    nearest[name] = _Near(drawn, slacks).best(nearest.get(name))
    return found


class _Near(NamedTuple):
    """Episodes, and the slack that they leave to a bound."""

    episodes: Episodes
    slacks: Any
    """[N]"""

    def best(self, other: _Near | None) -> _Near:
        """The `PARENTS` of these and others that leave least."""
        series, slacks = {name: self.episodes[name] for name in self.episodes.names}, self.slacks
        if other is not None:
            series = {name: np.concatenate([series[name], other.episodes[name]]) for name in series}
            slacks = np.concatenate([slacks, other.slacks])
        chosen = np.argsort(slacks, kind="stable")[:PARENTS]
        return _Near(Episodes({name: each[chosen] for name, each in series.items()}), slacks[chosen])


def inclusions(
    env: Env, certificate: Any, episodes: Episodes, policy: Callable[[Any], Any], plan: int = 0
) -> dict[str, Inclusion]:
    """Compare every bound with what happens in these episodes.

    Args:
        env: The system.
        certificate: A compiled one, see `tether.systems.certified.certificate_of`.
        episodes: What is drawn, N of H rounds.
        policy: `policy(observation) -> action`, what is played; cut to the range of actions, and the prior's action
            where it is not a number. `tether.assure.attack.Hostile` is one.
        plan: Number of the backup; 0 is the prior.
    """
    return {name: each for name, (each, _) in _comparison(env, certificate, policy, plan)(episodes).items()}


def _comparison(
    env: Env, certificate: Any, policy: Callable[[Any], Any], plan: int
) -> Callable[[Episodes], dict[str, tuple[Inclusion, Any]]]:
    """From episodes to what is found of every bound, and its slack in each of them [N]; compiled once."""
    look = _Look(env, certificate.system, certificate.contract, policy, plan)
    played = jax.jit(jax.vmap(look.episode), compiler_options=compiler_options(long=True))
    name = ("prior", *certificate.system.backups)[plan]
    least = certificate.contract.cost_floor * (1.0 + 1e-6)
    tiny = 1e-3 * certificate.system.scale

    def compared(episodes: Episodes) -> dict[str, tuple[Inclusion, Any]]:
        env.check(episodes)
        with jax.enable_x64(True):
            drawn = {name: jnp.asarray(episodes[name]) for name in env.drawn_names}
            found = jax.tree.map(np.asarray, played(drawn))
        possible = found["possible"]
        results = [
            _inclusion(f"now ({name})", found["now"], lambda bound: bound > 0.0),
            _inclusion(f"later ({name})", found["later"], lambda bound: bound > 0.0),
            _inclusion("floor", found["floor"], lambda bound: -bound > least),
            _inclusion("ceiling", found["ceiling"], lambda bound: bound > least),
            _inside("box", found["box"], NARROW * look.spans),
            _inclusion(f"round ({name})", found["round"], lambda bound: abs(bound) > tiny),
            _inside(f"after ({name})", found["after"], NARROW * np.tile(look.spans, 3)),
            (Inclusion("possible", possible.size, int(np.sum(~possible)), math.inf), None),
        ]
        return {each.bound: (each, slacks) for each, slacks in results}

    return compared


def _inclusion(
    name: str, sides: Any, counted: Callable[[Any], Any], size: Any = None
) -> tuple[Inclusion, Any]:
    """Of upper bounds and what they bound, NaN where nothing is compared; `counted`: where slack is measured."""
    bound, truth = sides
    said, counts = np.isfinite(bound) & np.isfinite(truth), counted(bound)
    size = np.abs(bound) if size is None else size
    left = np.where(said, bound - truth, np.inf)
    off = ROUND_OFF * (1.0 + np.where(said, np.abs(bound) + np.abs(truth), 0.0))
    shares = np.where(said & counts, left / np.where(said & counts, size, 1.0), np.inf)
    slacks = np.min(shares.reshape(len(shares), -1), axis=1)
    return Inclusion(name, int(np.sum(said)), int(np.sum(left < -off)), float(np.min(slacks))), slacks


def _inside(name: str, sides: Any, narrow: Any) -> tuple[Inclusion, Any]:
    """Of boxes: how far the truth is inside, and their widths; those that are not wider than `narrow` are points."""
    inside, width = sides
    return _inclusion(name, (inside, 0.0 * width), lambda _: width > narrow, width)


def _placed(values: Any, box: Any) -> tuple[Any, Any]:
    """(how far inside of a box values are, its width), entry by entry."""
    return jnp.minimum(values - box.low, box.high - values), box.high - box.low


@dataclass(frozen=True)
class _Look:
    """Both plants beside what is said of them."""

    env: Env
    structure: Any
    contract: Contract
    policy: Callable[[Any], Any]
    plan: int

    @property
    def spans(self) -> Any:
        """[n] widths of the range of states."""
        low, high = self.structure.model.box("state")
        return high - low

    def episode(self, drawn: Any) -> dict[str, Any]:
        """By bound ([H, ...] bound, truth), and what is said of the prior's state."""
        values = next(iter(drawn.values()))
        horizon, zero = len(values), jnp.zeros((), values.dtype)

        def turn(carry: Any, h: Any) -> tuple[Any, dict[str, Any]]:
            return self._turn(carry, h, horizon, lambda n: {name: each[n] for name, each in drawn.items()})

        state = jax.tree.map(lambda each: jnp.asarray(each, values.dtype), self.env.initial())
        start = (state, state, self.structure.start(zero))
        _, found = jax.lax.scan(turn, start, jnp.arange(horizon))
        return dict(found)

    def _turn(
        self, carry: Any, h: Any, horizon: int, draw_of: Callable[[Any], Any]
    ) -> tuple[Any, dict[str, Any]]:
        """One round: what is said of it and of those after it, and what happens."""
        (own, prior, gaps), draw, said_by, ops = carry, draw_of(h), self.structure, jax_ops()
        told = said_by.refine(gaps, said_by.read(self.env.observation(own, draw)), FLOAT64, ops)
        now = self._round(own, draw, told)
        action = self._action(own, draw)
        said = said_by.bounds(now, action, self.plan, ops)
        after, cost = self._play(own, draw, action)
        prior_after, prior_cost = self._under_prior(prior, draw)
        floor, gaps = said_by.close(said.step, cost, FLOAT64, ops)
        paid = self._excess(cost, prior_cost)
        totals = jnp.stack([jnp.asarray(each) for each in said.totals])

        def follow(carry: Any, n: Any) -> tuple[Any, tuple[Any, Any]]:
            own, prior, paid = carry
            later = draw_of(jnp.minimum(h + n, horizon - 1))
            here = self._round(own, later, told)
            own, cost = self._play(
                own, later, said_by.backup(self.plan, here, ops) if self.plan else here.prior
            )
            prior, prior_cost = self._under_prior(prior, later)
            paid = paid + self._excess(cost, prior_cost)
            bound = jnp.where(h + n < horizon, totals[jnp.minimum(n, len(totals) - 1)], jnp.nan)
            return (own, prior, paid), (bound, paid)

        _, later = jax.lax.scan(follow, (after, prior_after, paid), jnp.arange(1, max(2, horizon)))
        box = getattr(told.prior, "state", told)  # the prior's state, in either form of what is refined
        boxes, excess, reached, cost_then = self._one_later(own, prior, draw, now)
        gap = reached - (other := self._x(prior_after, draw))
        return (after, prior_after, gaps), {
            "now": (totals[0], paid),
            "later": later,
            "floor": (-floor, -prior_cost),
            "ceiling": (said.ceiling, cost),
            "box": _placed(self._x(prior, draw), box),
            "round": (excess, self._excess(cost_then, prior_cost)),
            "after": _placed(
                jnp.concatenate([reached, gap, other]),
                Interval(*(jnp.concatenate(ends) for ends in zip(*boxes, strict=True))),
            ),
            # A policy without a guard may leave the range of states, of which the certificate says nothing.
            "possible": told.possible | ~self._covered(own, draw),
        }

    def _one_later(self, own: Any, prior: Any, draw: Any, now: Round) -> tuple[Any, Any, Any, Any]:
        """(boxes and excess that are said of a later round from here, the own state after it, its cost)."""
        said_by = self.structure
        x, z = said_by.read(self.env.observation(own, draw))
        boxes, excess = said_by.round_from(
            self.plan, x, self._x(prior, draw), z, self.contract.lam, self.contract.cost_floor
        )
        after, cost = self._play(
            own, draw, said_by.backup(self.plan, now, jax_ops()) if self.plan else now.prior
        )
        return boxes, excess, self._x(after, draw), cost

    def _x(self, state: Any, draw: Any) -> Any:
        """[n] a state as the model has it."""
        return self.structure.read(self.env.observation(state, draw))[0]

    def _covered(self, state: Any, draw: Any) -> Any:
        """Whether a state is in the model's range."""
        x = self._x(state, draw)
        low, high = self.structure.model.box("state")
        return jnp.all((x >= low) & (x <= high))

    def _excess(self, cost: Any, prior_cost: Any) -> Any:
        return cost - (1.0 + self.contract.lam) * prior_cost

    def _round(self, state: Any, draw: Any, told: Any) -> Round:
        observation = self.env.observation(state, draw)
        ends: list[Any] = [jnp.asarray(end, observation.dtype) for end in (self.env.low, self.env.high)]
        seen, prior = self.structure.read(observation), self.env.prior(observation)
        return Round(told, seen, prior, self.contract.lam, self.contract.cost_floor, *ends)

    def _action(self, state: Any, draw: Any) -> Any:
        observation = self.env.observation(state, draw)
        low, high = (jnp.asarray(end, observation.dtype) for end in (self.env.low, self.env.high))
        wish = jnp.reshape(jnp.asarray(self.policy(observation)), self.env.action_shape)
        return jnp.clip(jnp.where(jnp.isfinite(wish), wish, self.env.prior(observation)), low, high)

    def _play(self, state: Any, draw: Any, action: Any) -> tuple[Any, Any]:
        after = self.env.step(state, draw, jnp.reshape(action, self.env.action_shape))
        return after.state, after.cost

    def _under_prior(self, state: Any, draw: Any) -> tuple[Any, Any]:
        return self._play(state, draw, self.env.prior(self.env.observation(state, draw)))
