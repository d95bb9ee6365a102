"""Plan instead of learn: a policy that solves the rest of the episode in every round (model-predictive control).

It is the program of `tether.assure.limit` with forecasts in the place of hindsight. In round h, with the visible
series as forecast and the disturbances at their means, it looks for the deviations from the prior's actions that

    maximise    the expected reward of rounds h..H, by the system's own `step`,
    subject to  (**) of `tether.certificates.structured` in each of these rounds, by the certificate itself:
                A_i + T_n <= (i + n) b      for i = h..H, every n and some backup,

and proposes the first action. A_h and the gaps are what the guard has, read from its features; A_i, i > h, follow from
the planned costs and from the floors under the prior's that would be certified then. So the plan is subject to what
the guard will allow, which is less than the promise: the promise would let it count the prior's true costs, which
nobody will see. The guard stays outside and certifies what is proposed, so a plan that is wrong, or was not solved
well, costs reward, never the promise.

The solver is an augmented Lagrangian with Adam inside, a fixed number of steps. What is left of each constraint is
divided by the slack that a round earns, so that one set of numbers serves every (lam, b). The plan starts with the
prior's actions.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tether.certificates import Box, Outcome, Structured
from tether.core import validate
from tether.core.guard import Guard
from tether.core.ops import jax_ops
from tether.data.episodes import Episodes
from tether.learn.policy import with_features
from tether.simulate.trees import as_tree
from tether.systems import registry
from tether.systems.base import Env

FORECAST = "_forecast"
"""What follows a series' name in that of its forecast (`tether.data.add_forecast`)."""
OFF_THE_EDGE = 1e-6
"""Planned actions stay this far above the lowest, action units: rewards may have no derivative there."""


class Plan(NamedTuple):
    """What is intended for the rest of the episode; P rounds, those beyond its end included."""

    deviations: Any
    """[P, *action_shape] from the prior's action, action units."""
    reward: Any
    """Expected sum of the rounds left."""
    left: Any
    """[P] what (**) leaves in each round, expected, in units of the slack that a round earns."""


class PlanningPolicy(eqx.Module):
    """Proposes the first action of the best plan for the rest of the episode.

    It needs to see forecasts of all the visible series (`tether.data.add_forecast`, the environment's `context`) and
    the guard's features, which `tether.rollout` appends; online, `guard.act(observation, policy.propose(guard,
    observation))`. Forecasts that err cost reward only.

    Args:
        env: The system, its `context` with a forecast of each visible series. Its observation must name the entries of
            its state, but for one called `rounds`, and its visible series (see `tether.systems.base.Env.shown`).
        certificate: What it will be played with; the plan knows its constraint.
        episodes: Where the means of the hidden series are taken from, such as the training episodes.
        updates: Of the multipliers.
        steps: Of Adam between two updates.
        rate: Of Adam, action units; as the installed system with this environment says, or a twentieth of
            `env.action_range()`, if None.
        penalty: Of a constraint that is broken by the slack that a round earns, reward units.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon(context=("demand_forecast", "renewables_forecast"))
        >>> episodes = tether.data.synthetic_carbon(seed=0, n=100)
        >>> certificate = tether.Structured(env.contract(lam=2.0, b=2.0), env.structure)
        >>> policy = PlanningPolicy(env, certificate, episodes)
        >>> round(float(policy.disturbances["drop_rate"]), 2)  # docs/train.md has it play
        0.05
    """

    uses_memory: ClassVar[bool] = True

    env: Env = eqx.field(static=True)
    certificate: Structured
    disturbances: dict[str, Any]
    """The mean of each hidden series."""
    updates: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    rate: Any
    penalty: Any

    def __init__(
        self,
        env: Env,
        certificate: Structured,
        episodes: Episodes,
        *,
        updates: int = 15,
        steps: int = 10,
        rate: float | None = None,
        penalty: float = 3.0,
    ) -> None:
        if not isinstance(certificate, Structured):
            raise TypeError(f"a plan needs a tether.Structured certificate, got {certificate!r}")
        _check_system(env, certificate)
        certificate.contract.require_constant("a PlanningPolicy")
        horizon = certificate.contract.horizon
        if episodes.horizon < horizon:
            raise ValueError(
                f"episodes must have at least the certificate's horizon of {horizon} rounds, got {episodes.horizon}"
            )
        self.disturbances = {name: episodes[name].mean(axis=(0, 1)) for name in env.hidden}
        self.env = env
        # Arrays, so that another (lam, b) does not compile again.
        self.certificate = jax.tree.map(np.float64, as_tree(certificate))
        self.updates = validate.count("updates", updates)
        self.steps = validate.count("steps", steps)
        self.rate = _rate(env) if rate is None else np.float64(validate.number("rate", rate, above=0.0))
        self.penalty = np.float64(validate.number("penalty", penalty, above=0.0))

    def __call__(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """Observation [o], followed by the guard's features, to the action to propose."""
        problem = _Problem(self, observation)
        return problem.act(problem.state, problem.first, self._solve(problem)[0])[2]

    def propose(self, guard: Guard, observation: Any) -> Any:
        """The action to propose to `guard` in the coming round: a float, or [n]."""
        with jax.enable_x64(True):
            action = np.asarray(_call(self, jnp.asarray(with_features(guard, observation))))
        return action.item() if action.ndim == 0 else action

    def plan(self, observation: Any) -> Plan:
        """The plan for the rest of the episode, from what `__call__` gets."""
        problem = _Problem(self, observation)
        deviations = self._solve(problem)
        return Plan(deviations, *problem.foresee(deviations))

    def _solve(self, problem: _Problem) -> Any:
        """[P, *action_shape] the deviations of the best plan."""

        def loss(deviations: Any, multipliers: Any) -> tuple[Any, Any]:
            reward, left = problem.foresee(deviations)
            broken = jnp.maximum(multipliers - self.penalty * left, 0.0)
            return jnp.sum(broken**2) / (2.0 * self.penalty) - reward, left

        optimiser = optax.adam(optax.cosine_decay_schedule(1.0, self.updates * self.steps))

        def improve(inner: Any, multipliers: Any) -> tuple[Any, Any]:
            deviations, moments = inner
            slope, left = jax.grad(loss, has_aux=True)(deviations, multipliers)
            slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
            change, moments = optimiser.update(slope, moments)
            return (deviations + self.rate * change, moments), left

        def update(carry: Any, _: Any) -> tuple[Any, None]:
            inner, multipliers = carry
            inner, left = jax.lax.scan(lambda inner, _: improve(inner, multipliers), inner, length=self.steps)
            return (inner, jnp.maximum(multipliers - self.penalty * left[-1], 0.0)), None

        deviations = jnp.zeros((problem.rounds, *self.env.action_shape), problem.remaining.dtype)
        multipliers = jnp.zeros_like(jax.eval_shape(problem.foresee, deviations)[1])
        start = ((deviations, optimiser.init(deviations)), multipliers)
        ((deviations, _), _), _ = jax.lax.scan(update, start, length=self.updates)
        return deviations


_call = eqx.filter_jit(lambda policy, observation: policy(observation))


class _Problem:
    """What an observation says about the rounds to come."""

    def __init__(self, policy: PlanningPolicy, observation: Any) -> None:
        env, certificate = policy.env, policy.certificate
        seen, ahead, features = _split(env, observation, len(certificate.feature_names))
        self.env, self.certificate = env, certificate
        self.remaining = features[-1]
        self.memory = certificate.resume(features)
        state, shown = env.shown(seen)
        self.state = _with_rounds(state, self.memory.rounds)
        leads = next(iter(ahead.values())).shape[0]
        self.rounds = min(leads + 1, certificate.contract.horizon)
        self.visible = {
            name: jnp.concat([shown[name][None], values])[: self.rounds] for name, values in ahead.items()
        }
        self.disturbances = {
            name: jnp.broadcast_to(jnp.asarray(mean, observation.dtype), (self.rounds, *np.shape(mean)))
            for name, mean in policy.disturbances.items()
        }

    @property
    def first(self) -> dict[str, Any]:
        """The visible series of the coming round."""
        return {name: values[0] for name, values in self.visible.items()}

    def act(self, state: Any, drawn: Any, deviation: Any) -> tuple[Any, Any, Any]:
        """(observation, prior's action, action) of a planned round."""
        observation = self.env.observe(state, drawn)
        prior = self.env.prior(observation)
        return observation, prior, jnp.clip(prior + deviation, self.env.low + OFF_THE_EDGE, self.env.high)

    def foresee(self, deviations: Any) -> tuple[Any, Any]:
        """(expected reward, [P] what (**) leaves, in units of what a round earns)."""
        env, certificate = self.env, self.certificate
        ops, box = jax_ops(), Box(env.low, env.high, env.norm)
        unit = jnp.maximum(certificate.contract.earned, 1e-3)

        def play(carry: Any, each: Any) -> Any:
            state, memory = carry
            drawn, deviation, index = each
            observation, prior, action = self.act(state, drawn, deviation)
            opened = certificate.open(memory, observation, ops)
            weighed = certificate.weigh(opened, prior, action, box, ops)
            slack, taken = weighed.left, weighed.taken
            state, reward, cost = env.step(state, drawn, action)
            memory = certificate.update(memory, taken, Outcome(cost), ops)
            binds = (index < self.remaining) & jnp.isfinite(slack)
            reward = jnp.where(index < self.remaining, reward, 0.0)
            # A constraint that does not bind has something left.
            return (state, memory), (reward, jnp.where(binds, slack / unit, 1.0))

        drawn = {**self.visible, **self.disturbances}
        rounds = (drawn, deviations, jnp.arange(self.rounds))
        _, (rewards, left) = jax.lax.scan(play, (self.state, self.memory), rounds)
        return jnp.sum(rewards), left


def _split(env: Env, observation: Any, features: int) -> tuple[Any, dict[str, Any], Any]:
    """(what is seen now, for each visible series its forecast [L, ...], the guard's features) of an observation."""
    count = len(env.observation_names)
    context = observation[count : observation.shape[0] - features]
    _, shown = env.shown(observation[:count])
    shapes = {f"{name}{FORECAST}": values.shape for name, values in shown.items()}
    sizes = {name: math.prod(shapes[name]) for name in env.context if name in shapes}
    # All forecasts have the same number of leads, and other context is single numbers.
    leads, rest = divmod(context.shape[0] - len(env.context) + len(sizes), sum(sizes.values()))
    if rest or leads < 1:
        raise ValueError(
            f"the context {env.context} must be forecasts with the same number of leads and single numbers, "
            f"got {context.shape[0]} numbers"
        )
    ahead, place = {}, 0
    for name in env.context:
        width = leads * sizes[name] if name in sizes else 1
        if name in sizes:
            values = context[place : place + width]
            ahead[name.removesuffix(FORECAST)] = jnp.reshape(values, (leads, *shapes[name]))
        place += width
    return observation[:count], ahead, observation[observation.shape[0] - features :]


def _with_rounds(state: Any, rounds: Any) -> Any:
    """The state, whose number of rounds played is known if it has one."""
    state = state._make(jnp.asarray(entry, dtype=rounds.dtype) for entry in state)
    return state._replace(rounds=rounds) if "rounds" in state._fields else state


def _rate(env: Env) -> Any:
    """Of Adam, action units: a number, or one for each entry of the action."""
    system = registry.of_env(env)
    if system is not None and system.defaults.planning_rate is not None:
        return np.float64(system.defaults.planning_rate)
    low, high = env.action_range()
    return (high - low) / 20.0


def _check_system(env: Env, certificate: Structured) -> None:
    """Refuse a system whose observation does not tell its state, that has no forecasts or whose gaps are not told."""
    name, names = type(env).__name__, env.observation_names
    fields = getattr(env.initial(), "_fields", ())
    if not fields:
        raise ValueError(f"{name}.initial must give a NamedTuple, got {env.initial()!r}")
    entries = {*names, *(each.rpartition("_")[0] for each in names if each.rpartition("_")[2].isdigit())}
    unknown = [each for each in fields if each not in entries and each != "rounds"]
    if unknown:
        raise ValueError(
            f"the observation {names} of {name} does not name {', '.join(unknown)} of its state; a plan cannot "
            "start there"
        )
    visible = [each for each in env.series if each not in env.hidden]
    unseen = [each for each in visible if each not in entries]
    if unseen:
        raise ValueError(
            f"the observation {names} of {name} does not name the series {', '.join(unseen)}; a plan needs to see "
            "what the coming round brings"
        )
    missing = [f"{each}{FORECAST}" for each in visible if f"{each}{FORECAST}" not in env.context]
    if missing or not visible:
        raise ValueError(
            f"a plan needs forecasts: add {', '.join(missing) or 'a visible series'} to the context of {name} "
            "and tether.data.add_forecast to the episodes"
        )
    try:
        certificate.resume(np.zeros(len(certificate.feature_names)))
    except NotImplementedError as error:
        raise ValueError(
            f"a plan goes on from the guard's features: write {type(certificate.system).__name__}."
            f"gaps_from_features ({error})"
        ) from error
