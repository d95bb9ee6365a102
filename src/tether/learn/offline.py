"""Offline training: the data's own noise is the model, as in the authors' released code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates import Certificate
from tether.core.run import Run
from tether.data.episodes import Episodes
from tether.learn.learner import Batch, Check, Learner, State, Task, episodes_of, judge, series_of
from tether.learn.shares import Share, Shares
from tether.simulate.jitted import jitted
from tether.simulate.rollout import rollout
from tether.systems.base import Env


class History(NamedTuple):
    """What happened in each pass (online: in each block of episodes), [passes, settings, seeds]."""

    rewards: Any
    """Mean episode reward of the episodes played in the pass."""
    costs: Any
    """Their mean episode cost."""
    violations: Any
    """Share of them that broke the promise in any round."""
    margins: Any
    """Smallest bound minus cost over all of them and their rounds, cost units."""
    multipliers: Any
    """Weight of the cost in the loss at the end of the pass: CRL's multiplier, 0 for the others."""


@dataclass(frozen=True, eq=False)
class Passes:
    """Each pass goes through the training episodes in an order of each seed's own."""

    compiled: _Compiled
    certificates: Certificate
    """Leaves [trained settings]."""
    judged: Any
    """Contracts, or tuples of several, that each trained setting is judged by, leaves [trained settings, contracts]."""
    seeds: jax.Array
    shares: Shares

    @classmethod
    def of(cls, task: Task, judged: Any) -> Passes:
        """Of NumPy data, in float32."""
        env, validation = task.env, task.validation
        check = None
        if task.learner.method.bounds_cost:
            check = Check(*_series(env, validation, rollout(env, env.prior, validation, record="outcomes")))
        series = _series(env, task.data, task.prior)
        compiled = _Compiled(task.learner, env, *series, check, task.learner.long(task.certificates))
        shares = Shares(len(jax.tree.leaves(judged)[0]), len(task.seeds))
        return cls(compiled, task.certificates, judged, jnp.asarray(task.seeds), shares)

    def advance(self, state: State, done: int) -> tuple[State, History]:
        """One pass, after `done` of them."""

        def of_share(share: Share) -> tuple[State, History]:
            guards, contracts = share.of_settings((self.certificates, self.judged))
            seeds = share.of_seeds(self.seeds)
            return self.compiled.one_pass(share.of(state), guards, contracts, seeds, jnp.asarray(done))

        state, seen = self.shares.map(of_share)
        return state, History(*(np.asarray(values) for values in seen))


def _series(env: Env, episodes: Episodes, prior: Run) -> tuple[dict[str, jax.Array], jax.Array]:
    """The drawn series and the prior's cumulative costs, [H, N], float32; of several costs [H, N, m]."""
    costs = np.swapaxes(np.cumsum(prior.costs, axis=1), 0, 1)
    return series_of(episodes, env.drawn_names), jnp.asarray(costs, jnp.float32)


class _Compiled(eqx.Module):
    """The compiled part, for a share of the settings and seeds."""

    learner: Learner
    env: Env
    drawn: dict[str, jax.Array]
    """The training episodes, [H, N]."""
    prior_costs: jax.Array
    """[H, N] the prior's cumulative costs on them."""
    check: Check | None
    """The validation episodes, if the method bounds the expected cost."""
    long: bool
    """See `Learner.long`; `tether.simulate.jitted` asks for it."""

    @jitted
    def one_pass(
        self, state: State, certificates: Any, judged: Any, seeds: Any, done: Any
    ) -> tuple[State, History]:
        """Go through the episodes once."""
        count, batch = self.prior_costs.shape[1], self.learner.recipe.batch
        steps = count // batch

        def order(seed: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(seed), done)
            chosen = jax.random.permutation(key, count)[: steps * batch].reshape(steps, batch)
            return chosen, self._checks(key, steps)

        update = jax.vmap(
            jax.vmap(self._update, in_axes=(0, 0, 0, None, None)), in_axes=(0, None, None, 0, 0)
        )

        def step(state: State, of_step: Any) -> tuple[State, Any]:
            chosen, checked = of_step
            return update(state, chosen, checked, certificates, judged)

        orders = jax.tree.map(lambda each: jnp.swapaxes(each, 0, 1), jax.vmap(order)(seeds))
        state, seen = jax.lax.scan(step, state, orders)
        if self.check is not None:
            over_seeds = jax.vmap(self.learner.finish_pass, in_axes=(0, None, None, None))
            finish = jax.vmap(over_seeds, in_axes=(0, None, None, 0))
            state = finish(state, self.env, self.check, certificates.contract)
        rewards, costs, broken, margins = seen
        each = (
            jnp.mean(rewards, axis=0),
            jnp.mean(costs, axis=0),
            jnp.mean(broken, axis=0),
            jnp.min(margins, axis=0),
            jnp.broadcast_to(self.learner.method.multipliers(state)[..., None], broken.shape[1:]),
        )
        # [trained settings, seeds, contracts] to [settings, seeds].
        shape = (-1, len(seeds))
        return state, History(*(jnp.swapaxes(values, 1, 2).reshape(shape) for values in each))

    def _checks(self, key: Any, steps: int) -> Any:
        """Validation episodes for each gradient step, [steps, N]."""
        if self.check is None:
            return jnp.zeros((steps, 0), int)
        count = self.check.prior_costs.shape[1]
        size = min(self.learner.recipe.batch, count)
        return jax.random.randint(jax.random.fold_in(key, 1), (steps, size), 0, count)

    def _update(
        self, state: State, chosen: Any, checked: Any, certificate: Any, judged: Any
    ) -> tuple[State, Any]:
        """One gradient step of one policy on the chosen episodes."""
        prior_costs = self.prior_costs[:, chosen]
        check = None if self.check is None else jax.tree.map(lambda leaf: leaf[:, checked], self.check)
        batch = Batch(self.env, episodes_of(self.drawn, chosen), prior_costs, check)
        (_, outcome), slope = jax.value_and_grad(self.learner.loss, has_aux=True)(
            state.policies, state.own, batch, certificate
        )
        broken, margins = jax.vmap(judge, in_axes=(0, None, None))(judged, outcome.costs, prior_costs)
        first = outcome.costs[-1].reshape(len(chosen), -1)[:, 0]
        rewards, costs = (jnp.broadcast_to(x, broken.shape) for x in (outcome.reward, jnp.mean(first)))
        return self.learner.step(state, slope, outcome.feedback), (rewards, costs, broken, margins)
