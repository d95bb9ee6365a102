"""The learners: one compiled program trains every (lam, b) and every seed at once.

Offline, as in the authors' released code, the data's own noise is the model: each update plays a batch of training
episodes, with the guard inside for ACRL, and follows the gradient of the reward through all of it.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tether import _validate
from tether._files import complete_file
from tether.audit import audit
from tether.certificates import LipschitzCertificate
from tether.data.episodes import Episodes
from tether.envs.base import Env
from tether.learn.rollout import _play, rollout
from tether.policy import NetworkPolicy

Method = Literal["prior", "random+acd", "rl", "rl+acd", "crl", "acrl"]
GUARDED: tuple[Method, ...] = ("random+acd", "rl+acd", "acrl")
"""The methods that play through the guard."""


@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults serve all systems and settings."""

    passes: int = 100
    """Times that the training episodes are gone through."""
    batch: int = 50
    """Episodes an update."""
    learning_rate: float = 3e-3
    """Of Adam at the start; it falls to 0 along a cosine."""
    width: int = 40
    """Neurons of each of the two hidden layers."""
    penalty: float = 10.0
    """CRL: weight of the squared excess, and step of the multiplier, relative to the allowed cost."""
    reserve: float = 0.03
    """CRL: share of the allowed cost that is aimed to be left, so that the expectation holds despite sampling."""

    def __post_init__(self) -> None:
        for name in ("passes", "batch", "width"):
            _validate.count(name, getattr(self, name))
        for name in ("learning_rate", "penalty"):
            _validate.number(name, getattr(self, name), above=0.0)
        _validate.number("reserve", self.reserve, minimum=0.0)


class History(NamedTuple):
    """What happened in each pass of each training, [passes, settings, seeds]."""

    rewards: Any
    """Mean episode reward of the episodes played in the pass."""
    costs: Any
    """Their mean episode cost."""
    violations: Any
    """Share of them that broke the promise in any round."""
    margins: Any
    """Smallest bound minus cost over all of them and their rounds, relative to the bound."""
    multipliers: Any
    """CRL's multiplier at the end of the pass; 0 for the others."""


@dataclass(frozen=True)
class Training:
    """Trained policies for every setting and seed."""

    method: Method
    settings: list[tuple[float, float]]
    """(lam, b) of each."""
    seeds: list[int]
    policies: NetworkPolicy
    """All of them, stacked: leaves [settings, seeds, ...]."""
    history: History

    def policy(self, lam: float, b: float, seed: int) -> NetworkPolicy:
        """One of the policies, in NumPy."""
        if (lam, b) not in self.settings or seed not in self.seeds:
            raise ValueError(
                f"not trained for lam={lam}, b={b}, seed={seed}; there are {self.settings}, {self.seeds}"
            )
        place = (self.settings.index((lam, b)), self.seeds.index(seed))
        chosen: NetworkPolicy = jax.tree.map(lambda leaf: np.asarray(leaf[place], np.float64), self.policies)
        return chosen


@dataclass(frozen=True)
class Score:
    """How one policy does on episodes that it was not trained on, audited in float64."""

    lam: float
    b: float
    seed: int
    reward: float
    """Mean episode reward."""
    cost: float
    """Mean episode cost."""
    worst_cost: float
    violation_rate: float
    worst_margin: float


def train(
    method: Method,
    env: Env,
    data: Episodes,
    certificate: LipschitzCertificate,
    *,
    lams: Sequence[float] | None = None,
    bs: Sequence[float] | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    recipe: Recipe | None = None,
    checkpoint: str | Path | None = None,
    report: Callable[[int, History], None] = lambda _passes, _history: None,
) -> Training:
    """Train a method for every (lam, b) and every seed, all in one compiled program.

    Args:
        method: `acrl` plays and is trained through the guard and sees its memory. `rl` knows no guard and no cost;
            `crl` bounds the expected cost, E[J_H - (1 + lam) J_H(prior)] <= H b, by an augmented Lagrangian. `rl+acd`
            is `rl`, and `random+acd` an untrained network, with the guard at play time only.
        env: The system.
        data: The training episodes.
        certificate: The contract, the knowledge and the rule; its lam and b are replaced by those of the grid.
        lams: Relative slacks of the grid; the certificate's own if None.
        bs: Slacks a round of the grid; the certificate's own if None.
        seeds: Of the initial weights and of the order of the episodes.
        recipe: How to train.
        checkpoint: File in which the state is saved after each pass. If it is there, training goes on from it, exactly.
        report: Called after each pass with the number of passes done and the history up to then.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> data = tether.data.synthetic_carbon(seed=0, n=100)
        >>> certificate = tether.LipschitzCertificate(env.contract(lam=2.0, b=2.0), env.sensitivity)
        >>> training = train("acrl", env, data, certificate, seeds=[0], recipe=Recipe(passes=2))
        >>> training.history.violations.max()
        np.float32(0.0)
    """
    _validate.choice("method", method, get_args(Method))
    recipe = recipe or Recipe()
    settings = _grid(certificate, lams, bs)
    seeds = [_validate.count("seed", seed, minimum=0) for seed in seeds]
    env.check(data)
    if certificate.contract.horizon != data.horizon:
        raise ValueError(
            f"the certificate is for a horizon of {certificate.contract.horizon} rounds, the data has {data.horizon}"
        )
    if not seeds:
        raise ValueError("seeds must name at least one seed, got none")
    if (0.0, 0.0) in settings and method == "acrl":
        raise ValueError(
            "lam = 0 and b = 0 leave no freedom: the guarded policy is the prior, there is nothing to learn"
        )
    recipe = replace(recipe, batch=min(recipe.batch, len(data)))

    prior = rollout(env, env.prior, data)
    policies = _fresh(env, prior, settings, seeds, recipe, uses_memory=method == "acrl")
    steps = len(data) // recipe.batch
    if method in ("prior", "random+acd"):
        empty = np.zeros((0, len(settings), len(seeds)))
        return Training(method, settings, seeds, policies, History(*[empty] * len(History._fields)))

    certificates = _stack([_with(certificate, lam, b) for lam, b in settings])
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.cosine_decay_schedule(recipe.learning_rate, recipe.passes * steps)),
    )
    drawn = {name: jnp.asarray(np.swapaxes(data[name], 0, 1), dtype=jnp.float32) for name in env.drawn_names}
    prior_costs = jnp.asarray(np.cumsum(prior.costs, axis=1).T, dtype=jnp.float32)
    learner = _Learner(env, method, optimiser, recipe, drawn, prior_costs)
    state = _State(
        policies,
        jax.vmap(jax.vmap(optimiser.init))(policies),
        jnp.zeros((len(settings), len(seeds))),
    )
    history: list[History] = []
    identity = _identity(method, settings, seeds, recipe, certificate, data)
    if checkpoint is not None and Path(checkpoint).exists():
        state, history = _load(Path(checkpoint), state, identity)
    for done in range(len(history), recipe.passes):
        state, seen = learner.one_pass(state, certificates, jnp.asarray(seeds), jnp.asarray(done))
        history.append(History(*(np.asarray(values) for values in seen)))
        if not np.all(np.isfinite(history[-1].rewards)):
            raise FloatingPointError(
                f"the reward became {history[-1].rewards.min()} in pass {done + 1}; a smaller learning rate than "
                f"{recipe.learning_rate:g} may help"
            )
        if checkpoint is not None:
            _save(Path(checkpoint), state, history, identity)
        report(done + 1, _joined(history))
    return Training(method, settings, seeds, state.policies, _joined(history))


def evaluate(
    training: Training, env: Env, episodes: Episodes, certificate: LipschitzCertificate
) -> list[Score]:
    """Play every policy of a training on `episodes`, in float64, and audit it.

    Args:
        training: What `train` gave.
        env: The system.
        episodes: Test episodes.
        certificate: As for `train`.
    """
    prior = rollout(env, env.prior, episodes, record="outcomes")
    scores = []
    for lam, b in training.settings:
        each = _with(certificate, lam, b)
        for seed in training.seeds:
            run = prior
            if training.method != "prior":
                guard = each if training.method in GUARDED else None
                run = rollout(env, training.policy(lam, b, seed), episodes, guard, record="outcomes")
            verdict = audit(run, prior, each.contract)
            scores.append(
                Score(
                    lam,
                    b,
                    seed,
                    float(run.returns.mean()),
                    float(run.total_costs.mean()),
                    float(run.total_costs.max()),
                    verdict.violation_rate,
                    verdict.worst_margin,
                )
            )
    return scores


class _State(NamedTuple):
    """Everything that changes while training, [settings, seeds, ...]."""

    policies: NetworkPolicy
    optimiser: Any
    multipliers: Any


class _Learner(eqx.Module):
    """The compiled part."""

    env: Env
    method: Method
    optimiser: optax.GradientTransformation
    recipe: Recipe
    drawn: dict[str, jax.Array]
    """The training episodes, [H, N]."""
    prior_costs: jax.Array
    """[H, N] the prior's cumulative costs on them."""

    @eqx.filter_jit
    def one_pass(
        self, state: _State, certificates: LipschitzCertificate, seeds: jax.Array, done: Any
    ) -> tuple[_State, History]:
        """Go through the training episodes once, in an order of each seed's own."""
        count = self.prior_costs.shape[1]
        steps = count // self.recipe.batch

        def order(seed: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(seed), done)
            return jax.random.permutation(key, count)[: steps * self.recipe.batch].reshape(steps, -1)

        over_seeds = jax.vmap(self.update, in_axes=(0, 0, None))
        update = jax.vmap(over_seeds, in_axes=(0, None, 0))

        def step(state: _State, chosen: Any) -> tuple[_State, Any]:
            return update(state, chosen, certificates)

        state, seen = jax.lax.scan(step, state, jnp.swapaxes(jax.vmap(order)(seeds), 0, 1))
        rewards, costs, broken, margins = seen
        history = History(
            jnp.mean(rewards, axis=0),
            jnp.mean(costs, axis=0),
            jnp.mean(broken, axis=0),
            jnp.min(margins, axis=0),
            state.multipliers,
        )
        return state, history

    def update(self, state: _State, chosen: Any, certificate: LipschitzCertificate) -> tuple[_State, Any]:
        """One gradient step of one policy on the chosen episodes."""
        (_, seen), slope = jax.value_and_grad(self.loss, has_aux=True)(
            state.policies, state.multipliers, chosen, certificate
        )
        rewards, costs, broken, margins, excess = seen
        changes, optimiser = self.optimiser.update(slope, state.optimiser, state.policies)
        multipliers = state.multipliers
        if self.method == "crl":
            multipliers = jnp.maximum(multipliers + self.recipe.penalty * 0.1 * excess, 0.0)
        policies = optax.apply_updates(state.policies, changes)
        return _State(policies, optimiser, multipliers), (rewards, costs, broken, margins)

    def loss(
        self, policy: NetworkPolicy, multiplier: Any, chosen: Any, certificate: LipschitzCertificate
    ) -> Any:
        """Minus the mean reward a round; for CRL with the augmented Lagrangian of the expected cost."""
        drawn = {name: values[:, chosen] for name, values in self.drawn.items()}
        contract = certificate.contract
        horizon = contract.horizon
        guard = certificate if self.method == "acrl" else None
        played = _play(self.env, policy, drawn, guard, jnp.uint32(0), "outcomes")
        costs = jnp.cumsum(played["costs"], axis=0)
        prior_costs = self.prior_costs[:, chosen]
        bounds = contract.bound(prior_costs, jnp.arange(1, horizon + 1)[:, None])
        margins = jnp.min((bounds - costs) / bounds, axis=0)
        reward = jnp.mean(jnp.sum(played["rewards"], axis=0))
        allowed = jnp.mean((1.0 + contract.lam) * prior_costs[-1]) + horizon * contract.b
        excess = jnp.mean(costs[-1]) / allowed - (1.0 - self.recipe.reserve)
        value = -reward / horizon
        if self.method == "crl":
            penalty = self.recipe.penalty
            value = value + 0.5 * penalty * jnp.maximum(multiplier / penalty + excess, 0.0) ** 2
        # Ties up to round-off are kept, as in `tether.audit`.
        broken = jnp.mean(margins < -64.0 * float(np.finfo(margins.dtype).eps))
        return value, (reward, jnp.mean(costs[-1]), broken, jnp.min(margins), excess)


def _grid(
    certificate: LipschitzCertificate, lams: Sequence[float] | None, bs: Sequence[float] | None
) -> list[tuple[float, float]]:
    contract = certificate.contract
    chosen_lams = (
        [contract.lam] if lams is None else [_validate.number("lam", lam, minimum=0.0) for lam in lams]
    )
    chosen_bs = [contract.b] if bs is None else [_validate.number("b", b, minimum=0.0) for b in bs]
    settings = [(lam, b) for b in chosen_bs for lam in chosen_lams]
    if not settings:
        raise ValueError("lams and bs must name at least one setting, got none")
    return settings


def _with(certificate: LipschitzCertificate, lam: float, b: float) -> LipschitzCertificate:
    return replace(certificate, contract=replace(certificate.contract, lam=lam, b=b))


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.asarray(leaves, dtype=jnp.float32), *trees)


def _fresh(
    env: Env, prior: Any, settings: Sequence[Any], seeds: Sequence[int], recipe: Recipe, *, uses_memory: bool
) -> NetworkPolicy:
    """Untrained policies [settings, seeds, ...], normalised by what the prior saw and did."""
    seen = prior.observations.reshape(-1, prior.observations.shape[-1])
    acted = prior.actions.reshape(-1, *env.action_shape)
    made = [
        NetworkPolicy.fresh(
            seen.mean(axis=0),
            np.maximum(seen.std(axis=0), 1e-3),
            low=env.low,
            high=env.high,
            center=acted.mean(axis=0),
            width=recipe.width,
            seed=seed,
            uses_memory=uses_memory,
        )
        for seed in seeds
    ]
    policies: NetworkPolicy = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (len(settings), *leaf.shape)), _stack(made)
    )
    return policies


def _joined(history: list[History]) -> History:
    return History(*(np.stack(values) for values in zip(*history, strict=True)))


def _identity(
    method: str, settings: Any, seeds: Any, recipe: Recipe, certificate: Any, data: Episodes
) -> str:
    """What must be the same for a checkpoint to fit."""
    sums = {name: math.fsum(np.ravel(data[name])) for name in data.names}
    return json.dumps([method, settings, seeds, asdict(recipe), certificate.to_dict(), len(data), sums])


def _save(file: Path, state: _State, history: list[History], identity: str) -> None:
    leaves: dict[str, Any] = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    seen = {f"history_{name}": values for name, values in _joined(history)._asdict().items()}
    with complete_file(file) as draft, draft.open("wb") as handle:
        np.savez(handle, identity=np.array(identity), **leaves, **seen)


def _load(file: Path, state: _State, identity: str) -> tuple[_State, list[History]]:
    leaves, structure = jax.tree.flatten(state)
    try:
        with np.load(file) as stored:
            found = str(stored["identity"])
            restored = [
                stored[f"leaf_{i}"] for i in range(sum(name.startswith("leaf_") for name in stored.files))
            ]
            seen = [stored[f"history_{name}"] for name in History._fields]
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not a checkpoint of a training: {error!r}") from error
    if found != identity or len(restored) != len(leaves):
        raise ValueError(
            f"{file} is the checkpoint of another training (method, grid, seeds, recipe or data differ); "
            "name another file, or remove it"
        )
    return jax.tree.unflatten(structure, restored), [History(*values) for values in zip(*seen, strict=True)]
