"""Online training, the paper's protocol: play, fit a model to what was seen, improve in the model, play on.

Every episode is played in the true system, through the guard if the method has one, and is audited in float64. After
each block of episodes the model is fitted again, and the policy follows the gradient of its value through the model,
with the guard inside, while the model's parameters stay as favourable as their confidence set allows. The model is
fitted to disturbances, and not value-targeted as in the paper: `tether.learn.model` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates import Certificate
from tether.core.audit import audit
from tether.core.contract import Contract
from tether.core.run import Run
from tether.learn.learner import Batch, Check, Learner, State, Task, episodes_of, grid_of, series_of
from tether.learn.model import Model, model_of
from tether.learn.policy import NetworkPolicy
from tether.learn.shares import Share, Shares
from tether.simulate.jitted import jitted
from tether.simulate.rollout import play
from tether.systems.base import Env


class Exploration(NamedTuple):
    """What each episode gave while the learner explored, in the order in which they were played."""

    rewards: Any
    """[K, settings, seeds] reward of the episode."""
    costs: Any
    """[K, settings, seeds] its cost."""
    violations: Any
    """[K, settings, seeds] whether it broke the promise in any round."""
    margins: Any
    """[K, settings, seeds] its smallest bound minus cost, cost units."""
    multipliers: Any
    """[K, settings, seeds] weight of the cost in the loss while it was played: CRL's multiplier, 0 for the others."""
    played: Any
    """[K, settings, seeds] which of the data's episodes it was; the same for all settings."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Block after block of `recipe.batch` episodes."""

    compiled: _Compiled
    drawn: dict[str, Any]
    """The data in NumPy, [H, N], float64."""
    prior: Run
    """The prior on the data."""
    contracts: list[Contract]
    """Of all settings."""
    shares: Shares

    @classmethod
    def of(cls, task: Task, contracts: list[Contract]) -> Blocks:
        """Every seed plays the data in an order of its own, and then in another one, until K episodes are played."""
        learner, env, data, seeds = task.learner, task.env, task.data, task.seeds
        recipe = learner.recipe
        orders = []
        for seed in seeds:
            rng = np.random.default_rng([seed, 1])
            laps = [rng.permutation(len(data)) for _ in range(-(-recipe.episodes // len(data)))]
            orders.append(np.concatenate(laps)[: recipe.episodes])
        drawn = series_of(data, env.drawn_names)
        log = play(env, env.prior, drawn, None, jnp.uint32(0), "transitions")
        model = model_of(env, drawn, log, recipe.episodes * data.horizon, recipe.optimism, recipe.failure)
        seen = {name: drawn[name] for name in env.visible}
        checked = series_of(task.validation, env.visible if learner.method.bounds_cost else ())
        compiled = _Compiled(
            learner,
            env,
            model,
            task.certificates,
            seen,
            checked,
            jnp.asarray(seeds),
            jnp.asarray(np.array(orders)),
            learner.long(task.certificates),
        )
        settings = len(task.certificates.contract.lam)
        precise = {name: np.swapaxes(data[name], 0, 1) for name in env.drawn_names}
        return cls(compiled, precise, task.prior, contracts, Shares(settings, len(seeds)))

    def start(self, policies: NetworkPolicy) -> State:
        """Untrained policies [trained settings, seeds, ...] that have seen nothing."""
        state, model = self.compiled.learner.start(policies), self.compiled.model
        shape = grid_of(policies)
        fit = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *jnp.shape(leaf))), model.start())
        return state._replace(fit=fit, slope=jnp.zeros((*shape, model.parameters)))

    def advance(self, state: State, done: int) -> tuple[State, Exploration]:
        """Play the next block, and improve the policy if it was a full one."""
        learner = self.compiled.learner
        batch = learner.recipe.batch
        chosen = np.asarray(self.compiled.played[:, done * batch : (done + 1) * batch])
        rewards, costs, news = self._explore(state.policies, chosen)
        record = self._record(rewards, costs, np.asarray(learner.method.multipliers(state)), chosen)
        if learner.method.learns and chosen.shape[1] == batch:
            news = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), news)
            state = self._improve(state, news, done)
        return state, record

    def _improve(self, state: State, news: Any, done: int) -> State:
        """Update every policy after a block, `done` being the blocks before it."""
        compiled = self.compiled

        def of_share(share: Share) -> State:
            guards = share.of_settings(compiled.certificates)
            seeds, played = share.of_seeds((compiled.seeds, compiled.played))
            return compiled.improve(share.of(state), share.of(news), guards, seeds, played, jnp.asarray(done))

        improved: State = self.shares.map(of_share)
        return improved

    def _explore(self, policies: NetworkPolicy, chosen: Any) -> tuple[Any, Any, Any]:
        """Play in the true system, in float64: rewards [trained settings, seeds, N], costs [..., H, N], the news."""
        if self.compiled.learner.method.plays_prior:
            costs = np.swapaxes(self.prior.costs[chosen], 1, 2)
            return self.prior.returns[chosen][None], costs[None], None
        with jax.enable_x64(True):
            numbers = (policies, self.compiled.certificates, self.drawn)
            mine, guards, drawn = jax.tree.map(
                lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), numbers
            )
            rewards, costs, news = self.compiled.play(mine, guards, drawn, jnp.asarray(chosen))
            return np.asarray(rewards), np.asarray(costs), jax.tree.map(np.asarray, news)

    def _record(self, rewards: Any, costs: Any, multipliers: Any, chosen: Any) -> Exploration:
        """Audit what was played by every setting's contract."""
        settings, (seeds, count) = len(self.contracts), chosen.shape
        violations, margins = (
            np.empty((count, settings, seeds), dtype=bool),
            np.empty((count, settings, seeds)),
        )
        for i, contract in enumerate(self.contracts):
            for j in range(seeds):
                mine = costs[min(i, len(costs) - 1), j].T
                verdict = audit(mine, self.prior.costs[chosen[j]], contract)
                violations[:, i, j] = np.any(verdict.violations, axis=1)
                margins[:, i, j] = np.min(verdict.margins, axis=1)
        shape = (settings, seeds, count)
        each = (rewards, np.sum(costs, axis=2), multipliers[..., None], chosen[None])
        spread = [np.moveaxis(np.broadcast_to(values, shape), 2, 0) for values in each]
        return Exploration(spread[0], spread[1], violations, margins, spread[2], spread[3])


class _Compiled(eqx.Module):
    """The compiled part, for all settings and seeds at once."""

    learner: Learner
    env: Env
    model: Model
    certificates: Certificate
    """Leaves [trained settings], float32."""
    seen: dict[str, jax.Array]
    """The series that are seen before acting, [H, N], float32."""
    checked: dict[str, jax.Array]
    """The same of the validation episodes, if the method bounds the expected cost."""
    seeds: jax.Array
    played: jax.Array
    """[seeds, K] which episode is played when."""
    long: bool
    """See `Learner.long`; `tether.simulate.jitted` asks for it."""

    @jitted
    def play(self, policies: Any, certificates: Any, drawn: dict[str, Any], chosen: Any) -> Any:
        """Play the episodes `chosen` [seeds, N] in the true system, in the precision of the arguments."""
        method = self.learner.method

        def one(policy: NetworkPolicy, certificate: Certificate, chosen: Any) -> Any:
            mine = episodes_of(drawn, chosen)
            guard = certificate if method.guarded else None
            played = play(self.env, policy, mine, guard, jnp.uint32(0), "transitions")
            news = self.model.digest(mine, played) if method.learns else None
            return jnp.sum(played["rewards"], axis=0), played["costs"], news

        over_seeds = jax.vmap(one, in_axes=(0, None, 0))
        return jax.vmap(over_seeds, in_axes=(0, 0, None))(policies, certificates, chosen)

    @jitted
    def improve(
        self, state: State, news: Any, certificates: Any, seeds: Any, played: Any, done: Any
    ) -> State:
        """Update the policies of a share after a block."""
        over_seeds = jax.vmap(self._improve_one, in_axes=(0, 0, None, 0, 0, None))
        over_settings = jax.vmap(over_seeds, in_axes=(0, 0, 0, None, None, None))
        improved: State = over_settings(state, news, certificates, seeds, played, done)
        return improved

    def _improve_one(
        self, state: State, news: Any, certificate: Certificate, seed: Any, played: Any, done: Any
    ) -> State:
        """Fit the model, then follow the policy's gradient through it; keys are the same for all settings."""
        learner, model = self.learner, self.model
        key = jax.random.fold_in(jax.random.key(seed), done)
        fit_key, choose_key, steps_key = jax.random.split(key, 3)
        # Line 10 of Algorithm 2: the model and its confidence set.
        fit = model.learn(state.fit, news, fit_key)
        belief = model.believe(fit)

        def loss(policy: NetworkPolicy, theta: Any, key: Any, candidate: Any, own: Any) -> Any:
            window_key, noise_key = jax.random.split(key)
            size = learner.recipe.batch
            chosen = played[jax.random.randint(window_key, (size,), 0, (done + 1) * size)]
            mine = episodes_of(self.seen, chosen)
            system, drawn = model.imagine(belief, theta, mine, noise_key, candidate)
            prior_costs, check = None, None
            if learner.method.bounds_cost:
                prior_costs = self._prior_costs(system, drawn)
                check = self._check(belief, jax.random.fold_in(key, 1), candidate, size)[1]
            return learner.loss(policy, own, Batch(system, drawn, prior_costs, check), certificate)

        def step(state: State, key: Any) -> tuple[State, None]:
            # Line 4: the most favourable model of the set; line 5: a step towards the best policy for it.
            theta = model.optimistic(belief, state.slope)
            slopes, outcome = jax.grad(loss, argnums=(0, 1), has_aux=True)(
                state.policies, theta, key, best, state.own
            )
            return learner.step(state, slopes[0], outcome.feedback)._replace(slope=-slopes[1]), None

        best = jnp.asarray(0)
        if model.candidates > 1:
            theta = model.optimistic(belief, state.slope)
            values: Any = jax.vmap(lambda each: -loss(state.policies, theta, choose_key, each, state.own)[0])
            best = jnp.argmax(values(jnp.arange(model.candidates)))
        state = state._replace(fit=fit)
        state = jax.lax.scan(step, state, jax.random.split(steps_key, learner.recipe.steps))[0]
        if learner.method.bounds_cost:
            system, check = self._check(belief, choose_key, best, None)
            state = learner.finish_pass(state, system, check, certificate.contract)
        return state

    def _check(self, belief: Any, key: Any, candidate: Any, batch: int | None) -> tuple[Any, Check]:
        """The system as it is believed to be, and validation episodes in it: `batch` of them, or all.

        Without optimism, which is for the reward and would make light of the cost.
        """
        window_key, noise_key = jax.random.split(key)
        theta = self.model.optimistic(belief, jnp.zeros(self.model.parameters))
        mine = self.checked
        if batch is not None:
            count = next(iter(mine.values())).shape[1]
            chosen = jax.random.randint(window_key, (min(batch, count),), 0, count)
            mine = episodes_of(mine, chosen)
        system, drawn = self.model.imagine(belief, theta, mine, noise_key, candidate)
        return system, Check(drawn, self._prior_costs(system, drawn))

    def _prior_costs(self, system: Any, drawn: dict[str, Any]) -> Any:
        """[H, N] cumulative costs of the prior in an imagined system."""
        imagined = play(system, self.env.prior, drawn, None, jnp.uint32(0), "outcomes")
        return jnp.cumsum(imagined["costs"], axis=0)
