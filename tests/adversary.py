"""Systems whose constants are exact by construction, and hostile policies for them.

In every round the gap between two trajectories under the prior is multiplied by exactly `gains[h]`, a deviation moves
the next state by exactly `L_f` times its size, the prior turns a gap into an action difference of exactly `L_pi` times
it, and the cost is a sum of distances with slope exactly `L_c`. With the directions aligned, as they are drawn here,
every inequality in the proof is an equality: the promise is kept with nothing to spare, and any slack given away shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

import tether
from tether.core.projection import length
from tether.envs import Env, Step
from tether.systems.base import namespace

POLICIES = ("worst corner", "bang-bang", "spend early", "spend late", "save and strike", "random", "rubbish")


class HostileState(NamedTuple):
    x: Any


@dataclass(frozen=True)
class HostileSystem(Env):
    """x' = gain Q x + L_f u' w^T (a - prior(x)) + noise, cost = eps + L_c (||x - ref|| + ||a - a_ref||)."""

    series: ClassVar[tuple[str, ...]] = (
        "turn", "kick", "noise", "reference", "action_reference", "feel", "push", "script", "gain"
    )  # fmt: skip
    observation_names: ClassVar[tuple[str, ...]] = ()

    states: int = 2
    actions: int = 2
    cost_slope: float = 3.0
    action_gain: float = 0.7
    prior_slope: float = 0.5
    floor: float = 1.0
    gains: tuple[float, ...] = (0.5,)
    bound: float = math.inf
    ball: str = "l2"
    dead_band: float = 1e-10

    @property
    def action_shape(self):
        return (self.actions,)

    @property
    def norm(self):
        return self.ball

    @property
    def low(self):
        return -self.bound

    @property
    def high(self):
        return self.bound

    @property
    def cost_floor(self):
        return self.floor

    @property
    def perturbation(self):
        """p(n): the largest product of n consecutive gains."""
        if len(set(self.gains)) == 1:
            return tether.geometric(self.gains[0])
        rounds = len(self.gains)
        return tether.table(
            [max(math.prod(self.gains[s : s + n]) for s in range(rounds - n + 1)) for n in range(rounds)]
        )

    @property
    def sensitivity(self):
        return tether.Sensitivity.from_lipschitz(
            self.cost_slope, self.action_gain, self.prior_slope, self.perturbation
        )

    def limits(self) -> Mapping[str, tuple[float, float]]:
        return {}

    def initial(self):
        return HostileState(np.zeros(self.states))

    def observe(self, state, drawn):
        xp = namespace(drawn["feel"])
        return xp.concat([state.x, drawn["feel"], drawn["push"], drawn["script"]])

    def split(self, observation):
        n, m = self.states, self.actions
        x, feel = observation[..., :n], observation[..., n : 2 * n]
        push, script = observation[..., 2 * n : 2 * n + m], observation[..., 2 * n + m :]
        return x, feel, push, script

    def prior(self, observation, key=None):
        xp = namespace(observation)
        x, feel, push, _ = self.split(observation)
        wish = self.prior_slope * push * xp.sum(feel * x, axis=-1, keepdims=True)
        return xp.minimum(xp.maximum(wish, self.low), self.high)

    def step(self, state, drawn, action):
        xp = namespace(action)
        observation = self.observe(state, drawn)
        excess = action - self.prior(observation)
        away = length(state.x - drawn["reference"], "l2", xp)
        off = length(action - drawn["action_reference"], self.ball, xp)
        # Distances that are round-off of the simulation itself count as none; the slope stays L_c.
        distance = xp.maximum(away - self.dead_band, 0.0) + xp.maximum(off - self.dead_band, 0.0)
        cost = self.floor + self.cost_slope * distance
        x = drawn["gain"][0] * (drawn["turn"] @ state.x) + drawn["kick"] @ excess + drawn["noise"]
        return Step(HostileState(x), -cost, cost)


@dataclass(frozen=True)
class TwoCosts(HostileSystem):
    """The same with two costs, which are felt in some rounds each: in a round only one of them, both or none."""

    series: ClassVar[tuple[str, ...]] = (*HostileSystem.series, "felt")
    cost_names: ClassVar[tuple[str, ...]] = ("first", "second")

    second_slope: float = 5.0

    @property
    def second_sensitivity(self):
        return tether.Sensitivity.from_lipschitz(
            self.second_slope, self.action_gain, self.prior_slope, self.perturbation
        )

    def step(self, state, drawn, action):
        xp = namespace(action)
        after = super().step(state, drawn, action)
        distance = (after.cost - self.floor) / self.cost_slope
        slopes = xp.asarray([self.cost_slope, self.second_slope])
        return after._replace(cost=self.floor + slopes * drawn["felt"] * distance)


def draw_two(env: TwoCosts, count: int, rng: np.random.Generator, policies=POLICIES) -> tether.data.Episodes:
    """Episodes of `draw`, with a pattern of which costs are felt when."""
    drawn = draw(env, count, rng, policies)
    shape = (count, len(env.gains), 2)
    often = rng.choice([0.0, 0.5, 1.0], size=(count, 1, 2))
    felt = (rng.uniform(size=shape) < often).astype(float)
    return tether.data.Episodes({**{name: drawn[name] for name in drawn.names}, "felt": felt})


def hostile_policy(env: HostileSystem):
    """Plays what the episode's script says, relative to the prior's action; absurd values become NaN and infinity."""

    def policy(observation, key):
        xp = namespace(observation)
        script = env.split(observation)[3]
        script = xp.where(script > 1e29, math.inf, xp.where(script < -1e29, math.nan, script))
        return env.prior(observation) + script

    return policy


def draw(env: HostileSystem, count: int, rng: np.random.Generator, policies=POLICIES) -> tether.data.Episodes:
    """Episodes at the edge of what the constants allow, each with the script of one hostile policy."""
    horizon, n, m = len(env.gains), env.states, env.actions
    turn = np.linalg.qr(rng.normal(size=(count, horizon, n, n)))[0]
    feel = np.empty((count, horizon + 1, n))
    first = rng.normal(size=(count, n))
    feel[:, 0] = first / np.linalg.norm(first, axis=-1, keepdims=True)
    for h in range(horizon):
        feel[:, h + 1] = np.einsum("bij,bj->bi", turn[:, h], feel[:, h])
    push, dual = _aligned(env.ball, (count, horizon, m), rng)
    kick = env.action_gain * feel[:, 1:, :, None] * dual[:, :, None, :]
    noise = rng.normal(size=(count, horizon, n)) * rng.choice([0.0, 1.0, 10.0], size=(count, 1, 1))
    series = {
        "turn": turn,
        "kick": kick,
        "noise": noise,
        "feel": feel[:, :-1],
        "push": push,
        "gain": np.broadcast_to(np.array(env.gains)[:, None], (count, horizon, 1)).copy(),
        "script": _scripts(count, horizon, push, rng, policies),
    }
    # The prior's own trajectory; where the reference is on it, the prior's cost is the floor exactly.
    x = np.zeros((count, n))
    reference, action_reference = np.empty((count, horizon, n)), np.empty((count, horizon, m))
    for h in range(horizon):
        reference[:, h] = x
        observation = np.concatenate([x, feel[:, h], push[:, h], push[:, h]], axis=-1)
        action_reference[:, h] = env.prior(observation)
        x = env.gains[h] * np.einsum("bij,bj->bi", turn[:, h], x) + noise[:, h]
    off = rng.exponential(size=(count, horizon, 1)) * rng.choice([0.0, 0.0, 1.0], size=(count, 1, 1))
    series["reference"] = reference + off * rng.normal(size=reference.shape)
    series["action_reference"] = action_reference + off * rng.normal(size=action_reference.shape)
    return tether.data.Episodes(series)


def _aligned(ball: str, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Any, Any]:
    """Vectors of norm 1 and functionals of dual norm 1 that give 1 on them."""
    signs = rng.choice([-1.0, 1.0], size=shape)
    corner = np.zeros(shape)
    place = rng.integers(shape[-1], size=shape[:-1])[..., None]
    np.put_along_axis(corner, place, np.take_along_axis(signs, place, axis=-1), axis=-1)
    if ball == "l1":
        return corner, signs
    if ball == "linf":
        return signs, corner
    vector = rng.normal(size=shape)
    vector /= np.linalg.norm(vector, axis=-1, keepdims=True)
    return vector, vector


def _scripts(count, horizon, push, rng, policies):
    rounds = np.arange(horizon)
    size = np.exp(rng.normal(0.0, 3.0, size=(count, 1)))  # from far too small to far too large
    kind = rng.integers(len(policies), size=count)
    strike = rng.integers(horizon, size=(count, 1))
    weight = {
        "worst corner": np.full((count, horizon), 1e3),
        "bang-bang": 1e3 * (-1.0) ** rounds + np.zeros((count, 1)),
        "spend early": np.where(rounds < strike + 1, 1e3, 0.0),
        "spend late": np.where(rounds >= strike, 1e3, 0.0),
        "save and strike": np.where(rounds == strike, 1e3, 0.0),
        "random": size * rng.normal(size=(count, horizon)),
        "rubbish": rng.choice([1e3, 1e20, 1e30, -1e30], size=(count, horizon)),
    }
    scripts = np.stack([weight[policies[k]][i] for i, k in enumerate(kind)])[..., None] * push
    skewed = np.array([policies[k] == "random" for k in kind])
    scripts[skewed] = (size[:, :, None] * rng.normal(size=scripts.shape))[skewed]
    return scripts
