"""What people would write in the place of a guard: how often it breaks the promise, and what it earns.

All of them play the same learner, RL, or learn themselves; none has a certificate. What the prior has spent is not
seen while a plant runs, so where they need it they simulate it: a *twin*, which plays the prior in the same system with
the hidden disturbances in the middle of their ranges. J_h is what was spent, J~_h what the twin has spent, and

    bound_h = (1 + lam) J~_h + h b.

- `shield`: the learner until J_{h-1} is above `NEAR` of bound_{h-1}, then the prior.
- `blend`: prior + w (learner - prior), w the largest of ten for which no training episode breaks the promise.
- `filter`: as far from the prior towards the learner as J_{h-1} plus the worst cost of this round, over the corners of
  what can be drawn, stays within bound_h; it looks one round ahead.
- `mpc`: the actions of the next rounds that earn most without disturbances, subject to J_i <= bound_i in each of them
  (a penalty, Adam); the series to come are known.
- `penalty`: RL that sees the account of the guard beside the state and pays for every round above its bound, as Saute
  RL does; in training it is told what the prior really spent.
- `crl`: the Lagrangian, see `tether.learn.crl`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tether.assure.hostile import middles
from tether.assure.limit import Limit, hindsight_limit
from tether.certificates import Certificate, LipschitzCertificate
from tether.core.audit import audit
from tether.core.certificate import Action, Box, Choice
from tether.core.contract import Contract
from tether.core.ops import NUMPY, Ops
from tether.core.projection import length
from tether.core.run import Run
from tether.data.episodes import Episodes
from tether.learn.learner import Batch, Method, Outcome, Recipe, play_batch
from tether.learn.plant import Plant
from tether.learn.policy import NetworkPolicy
from tether.learn.train import Training, train
from tether.simulate.rollout import rollout
from tether.systems.base import Env
from tether.systems.certified import member

Written = Literal["shield", "blend", "filter", "mpc"]
NEAR = 0.9
"""Share of the bound from which on the shield plays the prior."""
WEIGHTS = np.linspace(0.0, 1.0, 11)
"""Of the learner in the blend."""
SHARES = 17
"""Points on the way from the prior to the proposal that the filter looks at."""
AHEAD, STEPS = 6, 80
"""Rounds that the plan has, and steps of Adam in which it is found."""
PRICE = 100.0
"""Of a round that is above its bound by the bound itself, reward units."""


class Ledger(LipschitzCertificate):
    """Keeps the guard's account, and lets everything through."""

    def choose(self, opened: Any, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:
        """The proposal."""
        choice = super().choose(opened, proposal, prior, box, ops)
        action = ops.clip(proposal, box.low, box.high)
        deviation = length(action - prior, box.norm, ops)
        return choice._replace(
            action=action, deviation=deviation, taken=choice.taken._replace(deviation=deviation)
        )


class Penalty(Method):
    """RL that sees an account and pays for every round above its bound; nothing stops it."""

    name = "penalty"
    title = "Penalty"
    guarded = True
    sees_memory = True
    bounds_cost = True

    def loss(
        self, policy: NetworkPolicy, own: Any, batch: Batch, certificate: Certificate, recipe: Recipe
    ) -> tuple[Any, Outcome]:
        """Minus the mean reward a round, plus what is paid; `certificate` is a `Ledger`."""
        del own, recipe
        reward, costs = play_batch(policy, batch, certificate)
        contract = certificate.contract
        bounds = contract.bound(batch.prior_costs, jnp.arange(1, contract.horizon + 1)[:, None])
        over = jnp.maximum(costs / bounds - 1.0, 0.0)
        return -reward / contract.horizon + PRICE * jnp.mean(over), Outcome(reward, costs)


class _Carry(eqx.Module):
    """Where the plant and the twin are, and what they have spent, cost units."""

    state: Any
    twin: Any
    spent: Any
    twin_spent: Any
    rounds: Any


class _Player(eqx.Module):
    """Plays episodes by a rule that somebody wrote, without a guard."""

    env: Env = eqx.field(static=True)
    written: Written = eqx.field(static=True)
    learner: NetworkPolicy
    weight: Any
    """Of the learner in a blend."""
    lam: Any
    b: Any

    @eqx.filter_jit
    def play(self, drawn: dict[str, Any]) -> tuple[Any, Any]:
        """Rewards and costs [H, N] on series [H, N]."""

        def one(series: dict[str, Any]) -> tuple[Any, Any]:
            zero = jnp.zeros(())
            start = jax.tree.map(lambda number: jnp.asarray(number, zero.dtype), self.env.initial())
            carry = _Carry(start, start, zero, zero, zero)
            ahead = [jax.tree.map(lambda each, k=k: _later(each, k), series) for k in range(AHEAD)]
            # Not the method itself, which JAX would try to hash with all its numbers.
            _, seen = jax.lax.scan(lambda at, given: self._round(at, given), carry, (series, ahead))
            rewards, costs = seen
            return rewards, costs

        return jax.vmap(one, in_axes=1, out_axes=1)(drawn)

    def _round(self, carry: _Carry, given: Any) -> tuple[_Carry, Any]:
        drawn, ahead = given
        env = self.env
        observation = env.observation(carry.state, drawn)
        prior = jnp.asarray(env.prior(observation), carry.spent.dtype)
        twin, cost = self._twin(carry.twin, drawn)
        bound = (1.0 + self.lam) * (carry.twin_spent + cost) + (carry.rounds + 1.0) * self.b
        wish = prior if self.written == "mpc" else self.learner(observation)
        wish = jnp.clip(jnp.reshape(wish, prior.shape), env.low, env.high)
        if self.written == "shield":
            near = NEAR * ((1.0 + self.lam) * carry.twin_spent + carry.rounds * self.b)
            action = jnp.where((carry.rounds > 0.0) & (carry.spent > near), prior, wish)
        elif self.written == "blend":
            action = prior + self.weight * (wish - prior)
        elif self.written == "filter":
            action = self._filtered(carry, drawn, prior, wish, bound)
        else:
            action = self._planned(carry, ahead, prior)
        step = env.step(carry.state, drawn, action)
        after = _Carry(step.state, twin, carry.spent + step.cost, carry.twin_spent + cost, carry.rounds + 1.0)
        return after, (step.reward, step.cost)

    def _still(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """A round as it is drawn, but for what is hidden."""
        return {**drawn, **{name: jnp.asarray(each) for name, each in middles(self.env).items()}}

    def _twin(self, state: Any, drawn: dict[str, Any]) -> tuple[Any, Any]:
        """The twin's next state and cost."""
        still = self._still(drawn)
        step = self.env.step(state, still, self.env.prior(self.env.observation(state, still)))
        return step.state, step.cost

    def _filtered(self, carry: _Carry, drawn: dict[str, Any], prior: Any, wish: Any, bound: Any) -> Any:
        known = {**self.env.limits(), **self.env.search_ranges()}
        hidden = list(self.env.hidden)
        corners = [
            dict(zip(hidden, map(jnp.asarray, ends), strict=True))
            for ends in itertools.product(*(known[name] for name in hidden))
        ]

        def worst(share: Any) -> Any:
            action = prior + share * (wish - prior)
            costs = [self.env.step(carry.state, {**drawn, **each}, action).cost for each in corners]
            return jnp.max(jnp.stack(costs))

        shares = jnp.linspace(0.0, 1.0, SHARES)
        fits = carry.spent + jax.vmap(worst)(shares) <= bound
        return prior + jnp.max(jnp.where(fits, shares, 0.0)) * (wish - prior)

    def _planned(self, carry: _Carry, ahead: list[dict[str, Any]], prior: Any) -> Any:
        env, (low, high) = self.env, self.env.action_range()

        def loss(moves: Any) -> Any:
            state, twin, spent, twin_spent = carry.state, carry.twin, carry.spent, carry.twin_spent
            total = jnp.zeros(())
            for k, drawn in enumerate(ahead):
                still = self._still(drawn)
                twin, cost = self._twin(twin, drawn)
                twin_spent = twin_spent + cost
                action = env.prior(env.observation(state, still)) + moves[k]
                step = env.step(state, still, jnp.clip(action, env.low + 1e-6, env.high))
                state, spent = step.state, spent + step.cost
                bound = (1.0 + self.lam) * twin_spent + (carry.rounds + k + 1.0) * self.b
                total += PRICE * jnp.maximum(spent / bound - 1.0, 0.0) - step.reward
            return total

        adam = optax.adam(0.05 * jnp.max(jnp.asarray(high - low)))
        moves = jnp.zeros((AHEAD, *prior.shape))

        def better(_: int, at: Any) -> Any:
            moves, memory = at
            change, memory = adam.update(jax.grad(loss)(moves), memory)
            return optax.apply_updates(moves, change), memory

        moves, _ = jax.lax.fori_loop(0, STEPS, better, (moves, adam.init(moves)))
        return jnp.clip(prior + moves[0], env.low, env.high)


def _later(series: Any, rounds: int) -> Any:
    """A series [H, ...] so many rounds later; the last value stays."""
    return series[jnp.minimum(jnp.arange(len(series)) + rounds, len(series) - 1)]


class Study:
    """The alternatives for one system, and the guard beside them; seeds are those of the networks.

    Args:
        plant: The system and its episodes.
        contract: The promise.
        seeds: Of the learners.
        passes: Over the training episodes.
        limited: Test episodes whose hindsight limit is found, at most; a system without a convex program has none.
    """

    def __init__(self, plant: Plant, contract: Contract, seeds: list[int], passes: int, limited: int) -> None:
        self.plant, self.contract, self.seeds = plant, contract, seeds
        self._recipe = Recipe(passes=passes, width=plant.system.defaults.width)
        self._limited = limited
        self.prior = rollout(plant.env, plant.env.prior, plant.test, record="outcomes")

    def rows(self, report: Callable[[int, int, str], None]) -> list[dict[str, Any]]:
        """One row for each way, as plain data: reward, share of the limit, violations, worst cost over its bound."""
        env, test, lam, b = self.plant.env, self.plant.test, self.contract.lam, self.contract.b
        limit, made = self._limit(), [self._row("prior", [self.prior], None)]
        learner = self._train("rl")
        networks = [learner.policy(lam, b, seed) for seed in self.seeds]
        ways: dict[str, Callable[[], list[Run]]] = {
            "learner alone": lambda: [rollout(env, each, test, record="outcomes") for each in networks],
            "shield": lambda: self._written("shield", networks),
            "blend": lambda: self._written("blend", networks),
            "filter": lambda: self._written("filter", networks),
            "mpc": lambda: self._written("mpc", networks[:1]),
            "penalty": lambda: self._learned(Penalty(), self._ledger()),
            "crl": lambda: self._learned("crl", None),
            "guard, tight": lambda: self._learned("acrl", member("tight", env, self.contract)),
            "guard, structured": lambda: self._learned("acrl", member("structured", env, self.contract)),
        }
        for done, (name, runs) in enumerate(ways.items()):
            report(done, len(ways), name)
            made.append(self._row(name, runs(), limit))
        return made

    def _ledger(self) -> Ledger:
        return Ledger(self.contract, self.plant.env.sensitivity, "tight")

    def _train(self, method: str | Method, certificate: Certificate | None = None) -> Training:
        plant = self.plant
        guide = member("tight", plant.env, self.contract) if certificate is None else certificate
        return train(
            method, plant.env, plant.train, guide, seeds=self.seeds, recipe=self._recipe,
            validation=plant.validation,
        )  # fmt: skip

    def _learned(self, method: str | Method, certificate: Certificate | None) -> list[Run]:
        """The test episodes, played by what each seed learned, through `certificate` if there is one."""
        training = self._train(method, certificate)
        return [
            rollout(
                self.plant.env,
                training.policy(self.contract.lam, self.contract.b, seed),
                self.plant.test,
                certificate,
                record="outcomes",
            )
            for seed in self.seeds
        ]

    def _written(self, written: Written, networks: list[NetworkPolicy]) -> list[Run]:
        weights = [self._weight(each) if written == "blend" else 1.0 for each in networks]
        return [
            self._play(written, each, weight, self.plant.test)
            for each, weight in zip(networks, weights, strict=True)
        ]

    def _weight(self, network: NetworkPolicy) -> float:
        """The largest weight for which no training episode breaks the promise."""
        train = self.plant.train
        prior = rollout(self.plant.env, self.plant.env.prior, train, record="outcomes")
        kept = 0.0
        for weight in WEIGHTS[1:]:
            run = self._play("blend", network, float(weight), train)
            if audit(run, prior, self.contract).violation_rate > 0.0:
                break
            kept = float(weight)
        return kept

    def _play(self, written: Written, network: NetworkPolicy, weight: float, episodes: Episodes) -> Run:
        env = self.plant.env
        with jax.enable_x64(True):
            drawn = {name: jnp.asarray(np.swapaxes(episodes[name], 0, 1)) for name in env.drawn_names}
            numbers = (jnp.asarray(each) for each in (weight, self.contract.lam, self.contract.b))
            player = _Player(env, written, jax.tree.map(jnp.asarray, network), *numbers)
            rewards, costs = (np.asarray(each).T for each in player.play(drawn))
        return Run(rewards=rewards, costs=costs)

    def _limit(self) -> Limit | None:
        """The hindsight limit of the first test episodes."""
        program = self.plant.system.program
        if program is None or find_spec("cvxpy") is None:
            return None
        first = self.plant.test[: self._limited]
        costs = self.prior.costs[: self._limited]
        return hindsight_limit(self.plant.env, first, self.contract, costs, program=program)

    def _row(self, name: str, runs: list[Run], limit: Limit | None) -> dict[str, Any]:
        audits = [audit(run, self.prior, self.contract) for run in runs]
        shares = None
        if limit is not None:
            shares = [
                limit.share(run.returns[: self._limited], self.prior.returns[: self._limited]) for run in runs
            ]
        return {
            "way": name,
            "rewards": [float(run.returns.mean()) for run in runs],
            "shares": shares,
            "violation_rates": [each.violation_rate for each in audits],
            "worst": max(float(np.max(each.cumulative_costs / each.bounds)) for each in audits),
        }
