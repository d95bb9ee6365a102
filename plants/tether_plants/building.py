"""SustainGym's BuildingEnv: a small office in Tucson, six zones, days of 288 rounds; comfort promised, energy saved."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np

import tether
from tether.certificates import Shadowing
from tether.data import Episodes
from tether.envs import Env, Step
from tether.systems.base import namespace
from tether_plants.learners import always, ours, sb3
from tether_plants.linear import LinearStructure
from tether_plants.plant import Check, Plant

TARGET, GAIN, HORIZON, DAYS = 22.0, 0.15, 288, 365
"""Degrees; of the prior, per degree; rounds of five minutes; days of the year that there is data for."""
UNIT = 8.0 / 12.0
"""kWh: a unit of 8 kW that runs for a round at full power."""
TINY = 1e-30
"""A root of 0 has no slope."""
CONTRACT = tether.Contract(lam=2.0, b=2.0, horizon=HORIZON, cost_floor=0.0)


@cache
def parameters() -> dict[str, Any]:
    """Those of the environment's authors for this building and place; they print what they read."""
    from sustaingym.envs.building import ParameterGenerator

    with contextlib.redirect_stdout(io.StringIO()):
        return dict(ParameterGenerator("OfficeSmall", "Hot_Dry", "Tucson"))


class Building(gymnasium.Wrapper[Any, Any, Any, Any]):
    """BuildingEnv as it is; its reward in two parts, and what the weather of the round was."""

    def __init__(self) -> None:
        from sustaingym.envs.building import BuildingEnv

        super().__init__(BuildingEnv(parameters()))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the day options["episode"] of the year, or a random moment of it."""
        day = (options or {}).get("episode", seed)
        observation, info = self.env.reset(seed=day)
        self._discomfort, self._seen = 0.0, observation[6:9].astype(float)
        return observation, info

    def step(self, action: Any) -> Any:
        """The reward is the energy, kWh, and the cost the discomfort, both as the environment counts them."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        total = -float(info["reward_breakdown"]["comfort_level"])
        cost, self._discomfort = total - self._discomfort, total
        # The observation shows the weather of the round that was played: the change to what was seen before it.
        seen = observation[6:9].astype(float)
        revealed, self._seen = {"change": seen - self._seen}, seen
        energy = UNIT / self.env.unwrapped.q_rate * (float(reward) + cost)
        return observation, energy, terminated, truncated, {**info, "cost": cost, "revealed": revealed}


@cache
def plant_of() -> tuple[Any, Any, Any, Any, tuple[Any, Any], tuple[Any, Any]]:
    """(A, B, E, weather [T, 3], range of the weather, range of its change in a round)."""
    env = Building().env.unwrapped
    weather = np.stack([env.out_temp, env.ground_temp, env.ghi], axis=1)
    # What is shown has the digits of float32.
    off = 1e-6 * np.abs(weather).max(axis=0)
    changed = np.abs(np.diff(weather, axis=0)).max(axis=0) + 2.0 * off
    seen = weather.min(axis=0) - off, weather.max(axis=0) + off
    return env.A_d, env.BD_d[:, 3:9], env.BD_d[:, [2, 1, 9]], weather, seen, (-changed, changed)


class Temperatures(NamedTuple):
    """Between two rounds."""

    zones: Any
    """[6] degrees."""


@dataclass(frozen=True)
class Office(Env):
    """BuildingEnv without occupants, as its authors configure it: linear. The weather is seen a round late."""

    series: ClassVar[tuple[str, ...]] = ("weather", "change")
    hidden: ClassVar[dict[str, Any]] = {"change": "uniform"}
    observation_names: ClassVar[tuple[str, ...]] = (
        *(f"zones_{i}" for i in range(1, 7)),
        *(f"weather_{i}" for i in range(1, 4)),
    )
    action_shape: ClassVar[tuple[int, ...]] = (6,)
    low, high, cost_floor = -1.0, 1.0, 0.0

    def initial(self) -> Temperatures:
        """At the target."""
        return Temperatures(np.full(6, TARGET))

    def observe(self, state: Temperatures, drawn: Any) -> Any:
        """[9] temperatures; outside, ground, sun as they were last."""
        return namespace(drawn["weather"]).concat([state.zones, drawn["weather"]])

    def step(self, state: Temperatures, drawn: Any, action: Any) -> Step:
        """The reward is minus the energy, kWh, and the cost the discomfort."""
        xp, (A, B, E, *_) = namespace(drawn["weather"]), plant_of()
        after = A @ state.zones + B @ action + E @ (drawn["weather"] + drawn["change"])
        energy = UNIT * xp.sqrt(xp.sum(action**2) + TINY)
        return Step(Temperatures(after), -energy, 0.999 * xp.sqrt(xp.sum((after - TARGET) ** 2) + TINY))

    def prior(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """A proportional rule with saturation, zone by zone."""
        return namespace(observation).clip(GAIN * (TARGET - observation[..., :6]), -1.0, 1.0)

    def limits(self) -> dict[str, Any]:
        """Of a year's weather, and of its change in five minutes."""
        return dict(zip(self.series, plant_of()[4:], strict=True))

    def search_ranges(self) -> dict[str, Any]:
        """Where bounds are looked for."""
        return {**self.limits(), "zones": (np.full(6, TARGET - 6.0), np.full(6, TARGET + 6.0))}

    @property
    def sensitivity(self) -> tether.Sensitivity:
        """See `lipschitz_constants`."""
        return lipschitz_constants()

    @property
    def structure(self) -> LinearStructure:
        """See `structure_of`."""
        return structure_of()


def days(numbers: Any) -> Episodes:
    """The weather of these days of the year, as `Office` takes it."""
    weather = plant_of()[3]
    starts = [int(day / DAYS * len(weather)) for day in numbers]
    drawn = np.array([weather[(start + np.arange(HORIZON)) % len(weather)] for start in starts])
    # The first observation shows the weather of its own round, each other one that of the round before.
    seen = np.concatenate([drawn[:, :1], drawn[:, :-1]], axis=1)
    return Episodes({"weather": seen, "change": drawn - seen}, np.zeros(len(drawn), dtype=int))


def prior(observation: Any) -> Any:
    """A proportional rule with saturation, zone by zone."""
    return Office().prior(np.asarray(observation, dtype=float))


@cache
def lipschitz_constants() -> tether.Sensitivity:
    """Constants that hold in every state, saturated or not.

    A saturated zone does not correct: a round takes a gap to (A - B S K) e with any S of diag [0, 1]. As A and B have
    no negative entry and k B <= 2 A (checked), |A - B S K| <= A entry by entry, so what a deviation d does to the cost
    n rounds later is at most 0.999 |A^n B| |d| in the spectral norm, which falls like the largest eigenvalue of A.
    """
    A, B, *_ = plant_of()
    if np.any(A < 0.0) or np.any(B < 0.0) or np.any(GAIN * B > 2.0 * A):
        raise ValueError("the entries of A and B are not as the constants of this building need them")
    rho = float(np.abs(np.linalg.eigvals(A)).max())
    later = [np.linalg.norm(np.linalg.matrix_power(A, n) @ B, 2) / rho ** (n - 1) for n in range(1, HORIZON)]
    return tether.Sensitivity(
        immediate=0.999 * float(np.linalg.norm(B, 2)),
        carried=0.999 * float(max(later)),
        perturbation=tether.geometric(rho),
    )


@cache
def structure_of() -> LinearStructure:
    """What is known of the building: its matrices, and how far the weather of a year can push it in a round."""
    A, B, E, _, (low, high), _ = plant_of()
    disturbance = tuple(
        tuple((np.maximum(sign * E, 0.0) @ first - np.maximum(-sign * E, 0.0) @ second).tolist())
        for sign, first, second in ((1.0, low, high), (1.0, high, low))
    )
    rows = (tuple(map(tuple, matrix.tolist())) for matrix in (A, B))
    return LinearStructure(*rows, disturbance, TARGET, GAIN, 0.999)


def lipschitz(contract: tether.Contract) -> tether.LipschitzCertificate:
    """Three numbers."""
    return tether.LipschitzCertificate(contract, lipschitz_constants())


def shadowed(contract: tether.Contract) -> Shadowing:
    """The prior's own day is replayed: the weather of a round is seen once it is over."""
    return Shadowing(contract, structure_of(), Office())


SMOOTH = 0.1
"""Degrees: interval analysis cannot bound the slope of a root at 0, so the compiled guard keeps an account of a cost
that is rounded there, and above the environment's by at most 0.999 of this."""


@cache
def compiled(contract: tether.Contract) -> Any:
    """From the model alone. With c <= s <= c + d, sum s <= (1 + lam) sum s+ + h (b - (1 + lam) d) is the promise."""
    model = replace(Office().model(), play=None, step=_after, cost=_smooth)
    b = contract.b - (1.0 + contract.lam) * 0.999 * SMOOTH
    return tether.compile(model, replace(contract, b=b))


def _after(x: Any, z: Any, a: Any, w: Any) -> Any:
    A, B, E, *_ = plant_of()
    return A @ x + B @ a + E @ (z + w)


def _smooth(x: Any, z: Any, a: Any, w: Any) -> Any:
    import jax.numpy as jnp

    return 0.999 * jnp.sqrt(SMOOTH**2 + jnp.sum((_after(x, z, a, w) - TARGET) ** 2))


def _charged(_observation: Any, _action: Any, _after: Any, info: Any) -> float:
    return float(np.hypot(info["cost"], 0.999 * SMOOTH))


def split(seed: int, n: int) -> tuple[Any, Any]:
    """160 days of the year to learn on, n of the others to test on."""
    order = np.random.default_rng(seed).permutation(DAYS)
    if n > DAYS - 160:
        raise ValueError(f"there are {DAYS - 160} days of the year to test on, got {n}")
    return order[:160], order[160 : 160 + n]


def checks(episodes: int) -> list[Check]:
    """The model, the prior and the ranges against the original environment, under random actions."""
    env, rng, known = Building(), np.random.default_rng(0), Office()
    numbers = rng.permutation(DAYS)[:episodes]
    series, off = days(numbers), np.zeros(4)
    (low, high), (least, most) = plant_of()[4:]
    for i, day in enumerate(numbers):
        observation, _ = env.reset(options={"episode": int(day)})
        for h in range(HORIZON):
            action = rng.uniform(-1.0, 1.0, 6) if h % 2 else prior(observation)
            drawn = {name: series[name][i, h] for name in series.names}
            state = known.initial()._replace(zones=observation[:6].astype(float))
            expected = known.step(state, drawn, action)
            after, reward, _, _, info = env.step(action)
            change = info["revealed"]["change"]
            seen = np.maximum(low - after[6:9], after[6:9] - high)
            off = np.maximum(off, [
                np.abs(expected.state.zones - after[:6]).max(),
                abs(float(expected.cost) - info["cost"]),
                abs(float(expected.reward) - reward),
                max(seen.max(), (least - change).max(), (change - most).max()),
            ])  # fmt: skip
            observation = after
    rounds = episodes * HORIZON
    return [
        Check("next temperatures as in the model (float32), degrees", rounds, float(off[0]), 1e-5),
        Check("discomfort as in the model, cost units", rounds, float(off[1]), 1e-5),
        Check("energy as in the model, kWh", rounds, float(off[2]), 1e-4),
        Check("weather and its change beyond their ranges", rounds, float(off[3]), 0.0),
    ]


PLANT = Plant(
    name="building",
    title="SustainGym BuildingEnv: a small office in Tucson",
    source="sustaingym 0.1.7, BuildingEnv",
    prior_title="a proportional rule with saturation in each zone",
    cost_title="discomfort: distance of six temperatures from 22 °C",
    reward_title="minus kWh of energy",
    contract=CONTRACT,
    make=Building,
    prior=prior,
    certificates={"lipschitz": lipschitz, "compiled": compiled, "shadowed": shadowed},
    episodes=split,
    learners={
        "off": always(lambda _: np.zeros(6)),
        "ours": ours(Office, days, passes=16),
        "sb3": sb3(18_432),
    },
    checks=checks,
    few={"compiled": 2},
    only={"compiled": ["off"]},
    charged={"compiled": _charged},
    measures={"zones_kwh": lambda played: -UNIT * float(np.abs(played.actions).sum(axis=(1, 2)).mean())},
)
