"""How soon learners get where ours gets, all behind the same guard: `tether bench learners`.

Ours (ACRL) follows gradients through the system, which it has as a program. PPO is told rewards only: that of
Stable-Baselines3 on the Gymnasium environment, and one compiled by JAX (`tether.bench.ppo`). All three see the same
episodes, observations and memory of the guard, are trained through it, and are judged on the same test episodes.

The prior itself earns most of the reward, so what is asked is 95 % of our *gain* over it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tether.bench.speed import Measurement
from tether.certificates.lipschitz import LipschitzCertificate
from tether.core.audit import audit
from tether.core.extras import missing
from tether.data.episodes import Episodes
from tether.learn.learner import Recipe
from tether.learn.train import evaluate, train
from tether.simulate.rollout import rollout
from tether.systems.base import Env
from tether.systems.system import System

SHARE = 0.95
"""Of our gain, which is to be reached."""
BATCH = 50
"""Episodes between two updates, of every learner."""
BOX = 2.0
"""Upper bound of PPO's actions, as a multiple of the largest that the prior usually plays (its 99th percentile)."""


@dataclass(frozen=True)
class Point:
    """A learner on its way."""

    episodes: int
    """That it has played."""
    seconds: float
    """Since it began; without what judging it took, with compilation."""
    reward: float
    """Mean of the test episodes."""


@dataclass(frozen=True)
class _Task:
    """What all learners are given."""

    name: str
    env: Env
    data: Episodes
    test: Episodes
    certificate: LipschitzCertificate
    prior: Any
    """The prior's run of the test episodes."""
    seen: Any
    """[N, H, o] what the prior sees in the training episodes."""
    high: float

    def judged(self, policy: Any) -> float:
        """The mean reward of a policy on the test episodes; no promise may be broken."""
        run = rollout(self.env, policy, self.test, self.certificate, record="outcomes")
        broken = audit(run, self.prior, self.certificate.contract).violation_rate
        if broken > 0.0:
            raise AssertionError(f"a guarded policy broke the promise in {broken:.2%} of the test episodes")
        return float(run.returns.mean())


def bench_learners(
    system: System,
    seeds: int,
    passes: int,
    most: int,
    every: int,
    report: Callable[[str], None] = lambda _line: None,
) -> tuple[list[Measurement], dict[str, Any]]:
    """(the measurements, each learner's way by seed as plain numbers).

    Args:
        system: A system with actions of one number and constants.
        seeds: Of the weights, 0 to seeds - 1; episodes are drawn by 0 (training) and 1 (test).
        passes: Of ours over 1000 training episodes.
        most: Episodes that PPO may play.
        every: Episodes after which it is judged.
        report: Called with a line on what was found.
    """
    env = system.env()
    contract = env.contract(2.0, 2.0)
    data, test = system.draw(0, 1000), system.draw(1, 500)
    first = rollout(env, env.prior, data)
    assert first.observations is not None
    assert first.actions is not None
    task = _Task(
        system.name, env, data, test, LipschitzCertificate(contract, env.sensitivity),
        rollout(env, env.prior, test), first.observations, BOX * float(np.quantile(first.actions, 0.99)),
    )  # fmt: skip
    base = float(task.prior.returns.mean())
    report(f"prior: {base:.1f}")
    ways: dict[str, list[list[Point]]] = {"ours": [], "PPO in JAX": [], "PPO of SB3": []}
    for seed in range(seeds):
        for name, learn in (("ours", _ours), ("PPO in JAX", _compiled), ("PPO of SB3", _sb3)):
            budget = passes if name == "ours" else most
            ways[name].append(list(learn(task, seed, budget, every)))
            report(
                f"{name}, seed {seed}: {ways[name][-1][-1].reward:.1f} after {ways[name][-1][-1].episodes}"
            )
    gain = float(np.mean([way[-1].reward for way in ways["ours"]])) - base
    measured = [Measurement("reward, prior", base, base, base, "")]
    for name, each in ways.items():
        measured += _measured(name, each, base, base + SHARE * gain, gain)
    plain = {name: [[vars(point) for point in way] for way in each] for name, each in ways.items()}
    return measured, {"prior": base, "ways": plain}


def _measured(
    name: str, ways: list[list[Point]], base: float, aim: float, gain: float
) -> Iterator[Measurement]:
    def spread(what: str, values: list[float], unit: str = "") -> Measurement:
        return Measurement(what, float(np.median(values)), min(values), max(values), unit)

    yield spread(f"reward, {name}", [way[-1].reward for way in ways])
    yield spread(f"gain over the prior of ours, {name}", [(way[-1].reward - base) / gain for way in ways])
    reached = [next((point for point in way if point.reward >= aim), None) for way in ways]
    there = [point for point in reached if point is not None]
    yield spread(f"seeds that reach {SHARE:.0%} of our gain, {name}", [float(len(there))], f"of {len(ways)}")
    if there:
        yield spread(f"episodes until then, {name}", [float(point.episodes) for point in there])
        yield spread(f"seconds until then, {name}", [point.seconds for point in there], "s")
    yield spread(f"seconds in all, {name}", [way[-1].seconds for way in ways], "s")


def _ours(task: _Task, seed: int, passes: int, every: int) -> Iterator[Point]:  # noqa: ARG001
    """ACRL; on its way judged by the episodes that it is trained on, in the end by the test episodes."""
    ends: list[float] = []
    start = time.perf_counter()
    trained = train(
        "acrl", task.env, task.data, task.certificate, seeds=[seed],
        recipe=Recipe(passes=passes, batch=BATCH),
        report=lambda _passes, _history: ends.append(time.perf_counter() - start),
    )  # fmt: skip
    # What a pass earns on the training episodes is what the weights of its middle do; the difference between both sets
    # of episodes is taken away, as the prior shows it.
    shift = float(task.prior.returns.mean()) - float(
        rollout(task.env, task.env.prior, task.data, record="outcomes").returns.mean()
    )
    rewards = np.asarray(trained.history.rewards)[:, 0, 0] + shift
    for i, (reward, seconds) in enumerate(zip(rewards[:-1], ends[:-1], strict=True)):
        yield Point((i + 1) * len(task.data), seconds, float(reward))
    score = evaluate(trained, task.env, task.test, task.certificate)[0]
    yield Point(passes * len(task.data), ends[-1], score.reward)


def _compiled(task: _Task, seed: int, most: int, every: int) -> Iterator[Point]:
    """PPO compiled by JAX."""
    import jax

    from tether.bench.ppo import Ppo, fresh

    names = tuple(task.env.drawn_names)
    scale = float(np.std(task.prior.rewards)) * task.data.horizon**0.5
    spent, start = 0.0, time.perf_counter()
    ppo = Ppo(task.env, task.certificate, scale, BATCH)
    learner = fresh(task.env, task.certificate, task.seen, seed, task.high)
    state, key = ppo.start(learner), jax.random.key(seed)
    for i in range(most // BATCH):
        learner, state = ppo.iterate(learner, state, task.data, names, jax.random.fold_in(key, i))
        if (i + 1) * BATCH % every == 0:
            learner.log_std.block_until_ready()
            spent += time.perf_counter() - start
            yield Point((i + 1) * BATCH, spent, task.judged(learner.actor))
            start = time.perf_counter()


def _sb3(task: _Task, seed: int, most: int, every: int) -> Iterator[Point]:
    """PPO of Stable-Baselines3, with its own defaults but for the batch; observations and rewards normalised."""
    try:
        import gymnasium
        from stable_baselines3 import PPO
        from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
    except ModuleNotFoundError as error:
        raise missing("PPO of Stable-Baselines3", error) from None
    from tether.adapters.episode_env import make_env
    from tether.adapters.guarded import Guarded

    def environment() -> Any:
        plant = make_env(task.name, task.env, task.data, action_high=task.high)
        guarded = Guarded(plant, task.certificate, plant.prior, norm=task.env.norm, append_memory=True)
        return gymnasium.wrappers.RescaleAction(guarded, np.float64(-1.0), np.float64(1.0))

    rounds = task.data.horizon
    spent, start = 0.0, time.perf_counter()
    env = VecNormalize(DummyVecEnv([environment]), gamma=0.99)
    model = PPO(
        "MlpPolicy", env, n_steps=BATCH * rounds, batch_size=BATCH * rounds // 8,
        policy_kwargs={"log_std_init": -1.0}, seed=seed, device="cpu",
    )  # fmt: skip
    for played in range(every, most + 1, every):
        model.learn(every * rounds, reset_num_timesteps=played == every)
        spent += time.perf_counter() - start
        yield Point(played, spent, task.judged(_actor_of(model, env, task)))
        start = time.perf_counter()


def _actor_of(model: Any, env: Any, task: _Task) -> Any:
    """The mean of SB3's policy as a policy of ours, so that it is judged by the same rollout."""
    from tether.bench.ppo import Actor

    policy, statistics = model.policy, env.obs_rms
    layers = [layer for layer in policy.mlp_extractor.policy_net if hasattr(layer, "weight")]
    layers.append(policy.action_net)
    return Actor(
        [layer.weight.detach().numpy().T for layer in layers],
        [layer.bias.detach().numpy() for layer in layers],
        np.asarray(statistics.mean),
        np.sqrt(statistics.var + env.epsilon),
        np.asarray(task.certificate.feature_units()),
        np.asarray(task.env.low, dtype=float),
        np.asarray(task.high),
    )
