"""What a learner believes about the system while it explores: fitted to what was seen, optimistic where unsure.

This is not the paper's regression, which is value-targeted: its model is the one that best predicts V_{h+1}(s_{h+1}),
in the values of the policy of the time, and its confidence set holds the models that predict nearly the same values.
That needs a value function at every state that was visited, which Algorithm 2 gets from value iteration
(`tether.exact.optimistic` has it so, exactly). The deep learner iterates no values: it follows the gradient of the
reward of whole imagined episodes, and there is nothing to target. A critic would have to be trained beside the
policy, and its error would enter the model. So the model is fitted to what the rounds reveal of the disturbances,
which for these systems is nearly everything, and the confidence set is one of their means. What remains of the
paper's scheme is that the parameters are chosen in the set as favourable as possible for the value. `docs/train.md`
has both measured.

`NoiseModel` serves systems that say what a round reveals about their disturbances (`Env.evidence`), `EnsembleModel`
all others. Both hand out a system and episodes to imagine with, so that the same compiled rollout, with the same
guard inside, plays in the model as in the world.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from tether.systems.base import Env, Step

Series = dict[str, jax.Array]


class Model(Protocol):
    """What online training needs of a model."""

    @property
    def candidates(self) -> int:
        """How many models there are to choose from."""

    @property
    def parameters(self) -> int:
        """How many numbers `optimistic` sets, d."""

    def start(self) -> Any:
        """A fit that has seen nothing."""

    def digest(self, drawn: Series, played: dict[str, Any]) -> Any:
        """What the played rounds [H, N] tell; of `drawn` only what is visible may be used."""

    def learn(self, fit: Any, news: Any, key: Any) -> Any:
        """The fit with the news of another block."""

    def believe(self, fit: Any) -> Any:
        """What follows from a fit, as far as it does not depend on the policy."""

    def optimistic(self, belief: Any, slope: Any) -> Any:
        """[d] the parameters in the confidence set that are best for a value with this slope in them."""

    def imagine(self, belief: Any, theta: Any, seen: Series, key: Any, candidate: Any) -> tuple[Any, Series]:
        """A system, and episodes [H, N] to play in it, with the exogenous series `seen`."""


class NoiseFit(NamedTuple):
    """Sums over all equations f @ n = y seen so far, n the d hidden values of a round."""

    gram: Any
    """[d, d] f f'."""
    moment: Any
    """[d] f y."""
    squares: Any
    """[d, d] f_i^2 f_j^2."""
    spread: tuple[Any, Any, Any]
    """[d] f_i^2 y^2, [d, d] f_i^2 f_j y and [d, d, d] f_i^2 f_j f_k: the squared residuals, whatever the mean is."""
    largest: Any
    """The largest |f| @ half_range: no equation is further off than that."""


class NoiseBelief(NamedTuple):
    """What follows from a fit."""

    means: Any
    """[d] the fitted means of the hidden values."""
    deviations: Any
    """[d] their fitted standard deviations."""
    widths: Any
    """[d] how far each true mean may be from the fitted one."""


class NoiseModel(eqx.Module):
    """Mean and spread of each hidden series by least squares, with a confidence set for the means.

    With features f and targets y of all equations, the means are m = G^-1 (sum f y + r c), G = sum f f' + r I, where c
    is the middle of the series' limits. The values are bounded, so the self-normalised bound of linear bandits holds:
    with probability 1 - delta the true means lie, at all times, in

        |theta - m|_G <= R sqrt(log det(G / r) + 2 log(1 / delta)) + sqrt(r) |half range|,

    R the largest |f| @ half_range of any equation. The confidence set is the box around this ellipsoid, cut to the
    series' limits; the optimistic theta maximises a value's linearisation over it.
    """

    env: Env = eqx.field(static=True)
    optimism: float = eqx.field(static=True)
    """Factor on the set's widths; 1 is the bound above, 0 believes the estimate."""
    failure: float = eqx.field(static=True)
    """delta, the probability with which the bound may fail."""

    RIDGE = 1.0

    @property
    def _range(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Lower and upper limits of the hidden values, [d] each."""
        limits = self.env.limits()
        low, high = zip(*(limits[name] for name in self.env.hidden), strict=True)
        return np.array(low), np.array(high)

    def start(self) -> NoiseFit:
        """The fit before the first episode: no equation has been seen."""
        d = len(self.env.hidden)
        zeros = jnp.zeros
        return NoiseFit(
            zeros((d, d)), zeros(d), zeros((d, d)), (zeros(d), zeros((d, d)), zeros((d, d, d))), zeros(())
        )

    def digest(self, drawn: Series, played: dict[str, Any]) -> Any:
        """Sums over the equations that the played rounds [H, N] revealed."""
        if not self.env.hidden:
            return self.start()
        seen = {name: drawn[name] for name in self.env.visible}
        steps = Step(played["next_states"], played["rewards"], played["costs"])
        told: Any = jax.vmap(jax.vmap(self.env.evidence))(played["states"], seen, played["actions"], steps)
        d = len(self.env.hidden)
        f, y = told.features.reshape(-1, d), told.targets.reshape(-1)
        squared = f**2
        low, high = self._range
        return NoiseFit(
            f.T @ f,
            f.T @ y,
            squared.T @ squared,
            (squared.T @ y**2, squared.T @ (f * y[:, None]), jnp.einsum("ni,nj,nk->ijk", squared, f, f)),
            jnp.max(jnp.abs(f) @ (0.5 * (high - low))),
        )

    def learn(self, fit: NoiseFit, news: NoiseFit, key: Any) -> NoiseFit:  # noqa: ARG002
        """Add what a block of episodes revealed."""
        added: NoiseFit = jax.tree.map(jnp.add, fit, news)
        return added._replace(largest=jnp.maximum(fit.largest, news.largest))

    def estimate(self, fit: NoiseFit) -> tuple[Any, Any]:
        """Fitted means and standard deviations, [d] each."""
        low, high = self._range
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        ridge = self.RIDGE * jnp.eye(len(middle))
        means = jnp.clip(jnp.linalg.solve(fit.gram + ridge, fit.moment + self.RIDGE * middle), low, high)
        yy, fy, ff = fit.spread
        residuals = yy - 2.0 * fy @ means + jnp.einsum("ijk,j,k->i", ff, means, means)
        variances = jnp.linalg.solve(fit.squares + ridge, residuals + self.RIDGE * half**2 / 3.0)
        return means, jnp.sqrt(jnp.clip(variances, 0.0, half**2))

    def believe(self, fit: NoiseFit) -> NoiseBelief:
        """What follows from the fit, as far as it does not depend on the policy."""
        if not self.env.hidden:
            return NoiseBelief(fit.moment, fit.moment, fit.moment)
        means, deviations = self.estimate(fit)
        low, high = self._range
        matrix = fit.gram + self.RIDGE * jnp.eye(len(low))
        log_det = jnp.linalg.slogdet(matrix / self.RIDGE)[1]
        bound = fit.largest * jnp.sqrt(log_det + 2.0 * math.log(1.0 / self.failure))
        radius = bound + math.sqrt(self.RIDGE) * float(np.linalg.norm(0.5 * (high - low)))
        widths = self.optimism * radius * jnp.sqrt(jnp.diag(jnp.linalg.inv(matrix)))
        return NoiseBelief(means, deviations, widths)

    def optimistic(self, belief: NoiseBelief, slope: Any) -> Any:
        """The means in the confidence set that are best for a value with this `slope` in them, [d]."""
        if not self.env.hidden:
            return slope
        return jnp.clip(belief.means + jnp.sign(slope) * belief.widths, *self._range)

    @property
    def candidates(self) -> int:
        """How many models there are to choose from."""
        return 1

    @property
    def parameters(self) -> int:
        """How many numbers `optimistic` sets."""
        return len(self.env.hidden)

    def imagine(self, belief: NoiseBelief, theta: Any, seen: Series, key: Any, candidate: Any) -> Any:  # noqa: ARG002
        """The system itself, and episodes with the exogenous series `seen` [H, N] and drawn disturbances."""
        if not self.env.hidden:
            return self.env, seen
        low, high = self._range
        shape = next(iter(seen.values())).shape[:2]
        drawn = dict(seen)
        for i, (name, kind) in enumerate(self.env.hidden.items()):
            each = jax.random.fold_in(key, i)
            if kind == "normal":
                unit = jax.random.normal(each, shape)
            else:
                unit = jax.random.uniform(each, shape, minval=-math.sqrt(3.0), maxval=math.sqrt(3.0))
            drawn[name] = jnp.clip(theta[i] + belief.deviations[i] * unit, low[i], high[i])
        return self.env, drawn


class EnsembleFit(NamedTuple):
    """Networks, their optimiser, and every transition seen so far."""

    networks: Any
    """Leaves [members, ...]."""
    optimiser: Any
    inputs: Any
    """[capacity, o + n] observation and action of each transition."""
    outputs: Any
    """[capacity, s + 2] next state, reward and cost."""
    count: Any
    """How many of them are filled."""


class _Networks(eqx.Module):
    """One member: a distribution of the next state, and reward and cost once it is known; all normalised."""

    dynamics: eqx.nn.MLP
    outcome: eqx.nn.MLP

    def __init__(self, inputs: int, states: int, width: int, key: Any) -> None:
        first, second = jax.random.split(key)
        self.dynamics = eqx.nn.MLP(inputs, 2 * states, width, 2, key=first)
        self.outcome = eqx.nn.MLP(inputs + states, 2, width, 2, key=second)

    def next_state(self, inputs: Any) -> tuple[Any, Any]:
        """Mean and standard deviation, [s] each."""
        mean, spread = jnp.split(self.dynamics(inputs), 2)
        return mean, 0.01 + jax.nn.softplus(spread - 1.0)

    def loss(self, inputs: Any, outputs: Any) -> Any:
        """Negative log-likelihood of the next state, and squared error of reward and cost."""
        state, outcome = outputs[:-2], outputs[-2:]
        mean, deviation = self.next_state(inputs)
        unlikely = 0.5 * jnp.sum(((state - mean) / deviation) ** 2) + jnp.sum(jnp.log(deviation))
        return unlikely + jnp.sum((self.outcome(jnp.concat([inputs, state])) - outcome) ** 2)


class _Scale(NamedTuple):
    """Mean and spread that inputs and outputs are normalised by."""

    mean: Any
    spread: Any

    @classmethod
    def of(cls, rows: Any) -> _Scale:
        return cls(jnp.mean(rows, axis=0), jnp.maximum(jnp.std(rows, axis=0), 1e-3))


class Imagined(eqx.Module):
    """The environment with its step replaced by one member's prediction."""

    env: Env = eqx.field(static=True)
    networks: _Networks
    inputs: _Scale
    outputs: _Scale

    @property
    def low(self) -> Any:
        """As in the world."""
        return self.env.low

    @property
    def high(self) -> Any:
        """As in the world."""
        return self.env.high

    @property
    def norm(self) -> Any:
        """As in the world."""
        return self.env.norm

    @property
    def action_shape(self) -> tuple[int, ...]:
        """As in the world."""
        return self.env.action_shape

    def initial(self) -> Any:
        """As in the world."""
        return self.env.initial()

    def observation(self, state: Any, drawn: Any) -> Any:
        """As in the world."""
        return self.env.observation(state, drawn)

    def prior(self, observation: Any, key: Any = None) -> Any:
        """As in the world."""
        return self.env.prior(observation, key)

    def step(self, state: Any, drawn: Any, action: Any) -> Step:
        """One round as this member imagines it; `drawn["imagined"]` [s] is standard normal."""
        raw = jnp.concat([self.env.observation(state, drawn), jnp.reshape(action, (-1,))])
        inputs = (raw - self.inputs.mean) / self.inputs.spread
        mean, deviation = self.networks.next_state(inputs)
        following = mean + deviation * drawn["imagined"]
        outcome = self.networks.outcome(jnp.concat([inputs, following]))
        outputs = jnp.concat([following, outcome]) * self.outputs.spread + self.outputs.mean
        _, shaped = ravel_pytree(state)
        return Step(
            shaped(outputs[:-2]), outputs[-2], jnp.maximum(outputs[-1], jnp.float32(self.env.cost_floor))
        )


class EnsembleModel(eqx.Module):
    """A few small networks, each of which predicts a whole round; the most promising one is believed.

    The members differ by their first weights and by what they are shown.
    """

    env: Env = eqx.field(static=True)
    inputs: _Scale
    outputs: _Scale
    capacity: int = eqx.field(static=True)
    """Transitions that are kept."""
    members: int = eqx.field(static=True, default=4)
    width: int = eqx.field(static=True, default=32)
    steps: int = eqx.field(static=True, default=200)
    """Updates of each member after a block of episodes."""
    batch: int = eqx.field(static=True, default=256)

    @property
    def candidates(self) -> int:
        """How many models there are to choose from."""
        return self.members

    @property
    def parameters(self) -> int:
        """How many numbers `optimistic` sets: none."""
        return 0

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-3))

    def start(self) -> EnsembleFit:
        """Untrained members, nothing seen yet."""
        inputs, outputs = len(self.inputs.mean), len(self.outputs.mean)
        keys = jax.random.split(jax.random.key(0), self.members)
        networks = eqx.filter_vmap(lambda key: _Networks(inputs, outputs - 2, self.width, key))(keys)
        weights = eqx.filter(networks, eqx.is_array)
        return EnsembleFit(
            weights,
            jax.vmap(self._optimiser.init)(weights),
            jnp.zeros((self.capacity, inputs)),
            jnp.zeros((self.capacity, outputs)),
            jnp.asarray(0),
        )

    def digest(self, drawn: Series, played: dict[str, Any]) -> Any:
        """The played rounds [H, N] as rows (inputs, outputs), in float32."""
        return _rows(self.env, drawn, played)

    def learn(self, fit: EnsembleFit, news: Any, key: Any) -> EnsembleFit:
        """Remember a block of transitions and train every member on all of them."""
        inputs = jax.lax.dynamic_update_slice(
            fit.inputs, (news[0] - self.inputs.mean) / self.inputs.spread, (fit.count, 0)
        )
        outputs = jax.lax.dynamic_update_slice(
            fit.outputs, (news[1] - self.outputs.mean) / self.outputs.spread, (fit.count, 0)
        )
        count = fit.count + len(news[0])

        def train_member(weights: Any, optimiser: Any, key: Any) -> tuple[Any, Any]:
            def update(carry: Any, key: Any) -> tuple[Any, None]:
                weights, optimiser = carry
                chosen = jax.random.randint(key, (self.batch,), 0, count)

                def loss(weights: Any) -> Any:
                    return jnp.mean(jax.vmap(self._member(weights).loss)(inputs[chosen], outputs[chosen]))

                changes, optimiser = self._optimiser.update(jax.grad(loss)(weights), optimiser, weights)
                return (optax.apply_updates(weights, changes), optimiser), None

            carry, _ = jax.lax.scan(update, (weights, optimiser), jax.random.split(key, self.steps))
            return carry

        networks, optimiser = jax.vmap(train_member)(
            fit.networks, fit.optimiser, jax.random.split(key, self.members)
        )
        return EnsembleFit(networks, optimiser, inputs, outputs, count)

    def _member(self, weights: Any) -> _Networks:
        inputs, outputs = len(self.inputs.mean), len(self.outputs.mean)
        shape = eqx.filter_eval_shape(
            lambda key: _Networks(inputs, outputs - 2, self.width, key), jax.random.key(0)
        )
        _, fixed = eqx.partition(shape, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        member: _Networks = eqx.combine(weights, fixed)
        return member

    def believe(self, fit: EnsembleFit) -> Any:
        """The networks of the ensemble; each of them is a model that is possible."""
        return fit.networks

    def optimistic(self, belief: Any, slope: Any) -> Any:  # noqa: ARG002
        """Nothing to set: optimism is in the choice of the member."""
        return slope

    def imagine(self, belief: Any, theta: Any, seen: Series, key: Any, candidate: Any) -> Any:  # noqa: ARG002
        """A member as system, and episodes with the exogenous series `seen` [H, N] and standard normal noise."""
        networks = self._member(jax.tree.map(lambda leaf: leaf[candidate], belief))
        shape = next(iter(seen.values())).shape[:2]
        noise = jax.random.normal(key, (*shape, len(self.outputs.mean) - 2))
        return Imagined(self.env, networks, self.inputs, self.outputs), {**seen, "imagined": noise}


def _rows(env: Env, drawn: Series, played: dict[str, Any]) -> tuple[Any, Any]:
    """Transitions [H, N] as rows: observation and action; next state, reward and cost."""
    seen = {name: drawn[name] for name in env.visible}
    observations = jax.vmap(jax.vmap(env.observation))(played["states"], seen)
    count = played["costs"].size
    flat = [
        jnp.reshape(leaf, (count, -1))
        for leaf in (*jax.tree.leaves(played["next_states"]), played["rewards"], played["costs"])
    ]
    inputs = jnp.concat(
        [jnp.reshape(observations, (count, -1)), jnp.reshape(played["actions"], (count, -1))], axis=1
    )
    return inputs.astype(jnp.float32), jnp.concat(flat, axis=1).astype(jnp.float32)


def model_of(
    env: Env, drawn: Series, prior_played: dict[str, Any], capacity: int, optimism: float, failure: float
) -> Model:
    """The model that fits the system.

    Args:
        env: The system.
        drawn: Series of episodes [H, N] ...
        prior_played: ... and the transitions of the prior on them: the scales of an ensemble's inputs and outputs.
        capacity: Transitions that an ensemble keeps.
        optimism: Factor on the confidence set's radius.
        failure: Probability with which the confidence set may miss the truth.
    """
    if not env.hidden or type(env).evidence is not Env.evidence:
        return NoiseModel(env, optimism, failure)
    inputs, outputs = _rows(env, drawn, prior_played)
    return EnsembleModel(env, _Scale.of(inputs), _Scale.of(outputs), capacity)
