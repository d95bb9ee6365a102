"""The learners: one compiled program trains every (lam, b) and every seed at once.

Offline, as in the authors' released code, the data's own noise is the model (`tether.learn.offline`). Online, which is
the paper's protocol, the system is explored episode by episode and a model is fitted to what was seen
(`tether.learn.online`). Either way an update plays a batch of episodes, with the guard inside for ACRL, and follows the
gradient of the reward through all of it (`tether.learn.learner`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates import Certificate
from tether.core import validate
from tether.core.audit import audit
from tether.core.run import Run
from tether.data.episodes import Episodes
from tether.learn import checkpoint as checkpoints
from tether.learn.learner import Method, Mode, Recipe, State, Task, learner_of
from tether.learn.methods import method_of
from tether.learn.offline import History, Passes
from tether.learn.online import Blocks, Exploration
from tether.learn.policy import NetworkPolicy
from tether.simulate.rollout import check_costs, rollout
from tether.simulate.trees import as_tree, register
from tether.systems.base import Env

__all__ = [
    "Exploration", "History", "Method", "Mode", "Recipe", "Score", "Training", "evaluate", "regrets", "train"
]  # fmt: skip

register(NetworkPolicy)


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
    exploration: Exploration | None = None
    """Online: every episode that was played while learning."""

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
    method: str | Method,
    env: Env,
    data: Episodes,
    certificate: Certificate,
    *,
    mode: Mode = "offline",
    lams: Sequence[float] | None = None,
    bs: Sequence[float] | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    recipe: Recipe | None = None,
    validation: Episodes | None = None,
    checkpoint: str | Path | None = None,
    report: Callable[[int, History], None] = lambda _passes, _history: None,
) -> Training:
    """Train a method for every (lam, b) and every seed, all in one compiled program.

    Args:
        method: A name, or a `Method` (`tether.learn.methods` has ours). `acrl` plays and is trained through the guard
            and sees its memory. `rl` knows no guard and no cost; `crl` bounds the expected cost, E[J_H - (1 + lam)
            J_H(prior)] <= H b, by an augmented Lagrangian. `rl+acd` is `rl`, and `random+acd` an untrained network,
            with the guard at play time only. `rl` knows neither lam nor b: it is trained once, and judged by all of
            them.
        env: The system.
        data: The training episodes.
        certificate: The contract, the knowledge and the rule; its lam and b are replaced by those of the grid. One for
            several contracts is taken as it is: there is no grid, and lam, b and the costs that are reported are those
            of the first, while a promise that is broken is one of any.
        mode: `offline` learns from the training episodes as they are, disturbances included. `online` plays
            `recipe.episodes` of them one after the other, through the guard if the method has one, and learns from what
            it sees on the way; `exploration` in the result tells what each episode gave.
        lams: Relative slacks of the grid; the certificate's own if None.
        bs: Slacks a round of the grid; the certificate's own if None.
        seeds: Of the initial weights and of the order of the episodes.
        recipe: How to train.
        validation: CRL: episodes on which it is measured, while it learns, how much cost must be left for other months
            than those it is trained on; online only their visible series are used. The training episodes if None.
        checkpoint: File in which the state is saved after each pass (online: block of episodes). If it is there,
            training goes on from it, exactly.
        report: Called after each pass (online: block) with the number of them done and the history up to then.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> data = tether.data.synthetic_carbon(seed=0, n=100)
        >>> certificate = tether.LipschitzCertificate(env.contract(lam=2.0, b=2.0), env.sensitivity)
        >>> training = train("acrl", env, data, certificate, seeds=[0], recipe=Recipe(passes=2))
        >>> training.history.violations.max()
        np.float32(0.0)
    """
    # Above 60 lines for its arguments' documentation; the work is in what it calls.
    method, recipe = method_of(method), recipe or Recipe()
    validation = data if validation is None else validation
    settings = _grid(certificate, lams, bs)
    seeds = [validate.count("seed", seed, minimum=0) for seed in seeds]
    for episodes in (data, validation):
        env.check(episodes)
    recipe = replace(recipe, batch=min(recipe.batch, len(data)))
    _check_request(method, env, data.horizon, certificate, mode, settings, seeds, recipe)
    loop, state, total = _prepare(method, env, data, validation, certificate, mode, settings, seeds, recipe)
    records: list[Any] = []
    identity = checkpoints.identity_of(
        method.name, mode, settings, seeds, recipe, certificate, [data, validation]
    )
    if checkpoint is not None and Path(checkpoint).exists():
        kind = History if mode == "offline" else Exploration
        state, records = checkpoints.load(Path(checkpoint), state, identity, kind)
    for done in range(len(records), total):
        state, record = loop.advance(state, done)
        _check_finite(state, record, f"{'pass' if mode == 'offline' else 'block'} {done + 1}", recipe)
        records.append(record)
        if checkpoint is not None:
            checkpoints.save(Path(checkpoint), state, records, identity)
        report(done + 1, _history(records, len(settings), len(seeds)))
    policies = jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (len(settings), *leaf.shape[1:])), method.result(state)
    )
    exploration = None
    if mode == "online":
        exploration = Exploration(*(np.concatenate(values) for values in zip(*records, strict=True)))
    return Training(
        method, settings, seeds, policies, _history(records, len(settings), len(seeds)), exploration
    )


def _check_request(
    method: Method,
    env: Env,
    horizon: int,
    certificate: Certificate,
    mode: Mode,
    settings: list[tuple[float, float]],
    seeds: list[int],
    recipe: Recipe,
) -> None:
    """Refuse what cannot be trained, before any work."""
    validate.choice("mode", mode, get_args(Mode))
    certificate.contract.require_constant("tether.train")
    if certificate.contract.horizon != horizon:
        raise ValueError(
            f"the certificate is for a horizon of {certificate.contract.horizon} rounds, the data has {horizon}"
        )
    check_costs(env, certificate)
    if hasattr(certificate, "actions"):
        raise ValueError(
            "train follows gradients, which a finite set of actions has none of; see docs/switches.md"
        )
    own = [(certificate.contract.lam, certificate.contract.b)]
    if len(env.cost_names) > 1 and (settings != own or mode == "online" or method.bounds_cost):
        raise ValueError(
            f"several contracts are trained for as they are, without a grid of lams and bs, offline, and not by "
            f"crl, which bounds one cost; got {method.name!r}, mode {mode!r}, (lam, b) of {settings}"
        )
    if not seeds:
        raise ValueError("seeds must name at least one seed, got none")
    if (0.0, 0.0) in settings and method.sees_memory:
        raise ValueError(
            "lam = 0 and b = 0 leave no freedom: the guarded policy is the prior, there is nothing to learn"
        )
    if mode == "online" and recipe.episodes < recipe.batch:
        raise ValueError(
            f"online training needs at least one block of {recipe.batch} episodes, got episodes={recipe.episodes}"
        )


def _check_finite(state: State, record: Any, place: str, recipe: Recipe) -> None:
    """Refuse to go on with rewards or weights that are not finite.

    Behind a guard nobody would notice bad weights: an action that is not a number is replaced by the prior's.
    """
    remedy = f"a smaller learning rate than {recipe.learning_rate:g} may help"
    if not np.all(np.isfinite(record.rewards)):
        raise FloatingPointError(f"the reward became {record.rewards.min()} in {place}; {remedy}")
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(state.policies)):
        raise FloatingPointError(f"weights are not finite after {place}; {remedy}")


def regrets(training: Training, env: Env, data: Episodes, reference: Training) -> Any:
    """Reward that each episode of an exploration missed, [K, settings, seeds].

    Args:
        training: An online training.
        env: The system.
        data: The episodes that it was given.
        reference: The training whose final policies earn what could have been: `rl`, with the same seeds (the paper's
            regret is that against RL after all episodes).
    """
    if training.exploration is None:
        raise ValueError("regret is that of an exploration, but this training was offline")
    missing = sorted(set(training.seeds) - set(reference.seeds))
    if missing:
        raise ValueError(f"the reference has no policies for the seeds {missing}; it has {reference.seeds}")
    if reference.method.guarded:
        raise ValueError(f"the reference must play unguarded, as rl does, got {reference.method.name!r}")
    best = [
        rollout(env, reference.policy(*reference.settings[0], seed), data, record="outcomes").returns
        for seed in training.seeds
    ]
    earned, played = training.exploration.rewards, training.exploration.played
    return np.stack([best[i][played[..., i]] for i in range(len(best))], axis=-1) - earned


def evaluate(training: Training, env: Env, episodes: Episodes, certificate: Certificate) -> list[Score]:
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
            if not training.method.plays_prior:
                guard = each if training.method.guarded else None
                run = rollout(env, training.policy(lam, b, seed), episodes, guard, record="outcomes")
            verdict = audit(run, prior, getattr(each, "contracts", None) or each.contract)
            costs = run.total_costs.reshape(len(run), -1)[:, 0]
            scores.append(
                Score(
                    lam,
                    b,
                    seed,
                    float(run.returns.mean()),
                    float(costs.mean()),
                    float(costs.max()),
                    verdict.violation_rate,
                    verdict.worst_margin,
                )
            )
    return scores


def _prepare(
    method: Method,
    env: Env,
    data: Episodes,
    validation: Episodes,
    certificate: Certificate,
    mode: Mode,
    settings: list[tuple[float, float]],
    seeds: list[int],
    recipe: Recipe,
) -> tuple[Passes | Blocks, State, int]:
    """The loop of a mode, the state it starts from, and how often it is to advance."""
    prior = rollout(env, env.prior, data)
    once = method.trained_once(mode)
    certificates = [as_tree(_with(certificate, lam, b)) for lam, b in settings]
    contracts = [_promises(each) for each in certificates]
    guide = certificate if method.sees_memory else None
    policies = _fresh(env, prior, 1 if once else len(settings), seeds, recipe, guide)
    trained = _stack(certificates[:1] if once else certificates)
    updates = {
        "offline": recipe.passes * (len(data) // recipe.batch),
        "online": recipe.episodes // recipe.batch * recipe.steps,
    }
    learner = learner_of(method, recipe, updates[mode])
    task = Task(learner, env, data, prior, trained, seeds, validation)
    if mode == "offline":
        judged = jax.tree.map(lambda leaf: leaf[None] if once else leaf[:, None], _stack(contracts))
        return Passes.of(task, judged), learner.start(policies), recipe.passes if method.learns else 0
    blocks = Blocks.of(task, contracts)
    return blocks, blocks.start(policies), -(-recipe.episodes // recipe.batch)


def _grid(
    certificate: Certificate, lams: Sequence[float] | None, bs: Sequence[float] | None
) -> list[tuple[float, float]]:
    contract = certificate.contract
    chosen_lams = (
        [contract.lam] if lams is None else [validate.number("lam", lam, minimum=0.0) for lam in lams]
    )
    chosen_bs = [contract.b] if bs is None else [validate.number("b", b, minimum=0.0) for b in bs]
    settings = [(lam, b) for b in chosen_bs for lam in chosen_lams]
    if not settings:
        raise ValueError("lams and bs must name at least one setting, got none")
    return settings


def _promises(certificate: Certificate) -> Any:
    """The contract, or a tuple of several."""
    several = getattr(certificate, "contracts", None)
    return certificate.contract if several is None else tuple(several.values())


def _with(certificate: Certificate, lam: float, b: float) -> Certificate:
    if (lam, b) == (certificate.contract.lam, certificate.contract.b):
        return certificate
    changed: Any = certificate  # a dataclass, as `Certificate` says
    return cast(Certificate, replace(changed, contract=replace(certificate.contract, lam=lam, b=b)))


def _stack(trees: Sequence[Any]) -> Any:
    numbers = map(as_tree, trees)
    return jax.tree.map(lambda *leaves: jnp.asarray(leaves, dtype=jnp.float32), *numbers)


def _fresh(
    env: Env, prior: Run, settings: int, seeds: Sequence[int], recipe: Recipe, guide: Certificate | None
) -> NetworkPolicy:
    """Untrained policies [settings, seeds, ...], normalised by what the prior saw and did.

    With the certificate `guide` they see the guard's features, and act inside its safe set if the recipe says so.
    """
    assert prior.observations is not None
    assert prior.actions is not None
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
            memory=0 if guide is None else len(guide.feature_names),
            inside=guide is not None and recipe.head == "inside",
        )
        for seed in seeds
    ]
    policies: NetworkPolicy = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (settings, *leaf.shape)), _stack(made)
    )
    return policies


def _history(records: list[Any], settings: int, seeds: int) -> History:
    """The records of all passes; of blocks of episodes, what they come to."""
    if not records:
        return History(*[np.zeros((0, settings, seeds))] * len(History._fields))
    if isinstance(records[0], Exploration):
        records = [
            History(
                np.mean(block.rewards, axis=0),
                np.mean(block.costs, axis=0),
                np.mean(block.violations, axis=0),
                np.min(block.margins, axis=0),
                block.multipliers[-1],
            )
            for block in records
        ]
    return History(*(np.stack(values) for values in zip(*records, strict=True)))
