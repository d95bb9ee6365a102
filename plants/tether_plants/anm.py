"""gym-anm's ANM6Easy: six buses, sun, wind and a battery; overloads are promised, lost energy is saved."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np

import tether
from tether.certificates import Bounds, Structure
from tether.data import Episodes
from tether.envs import Env, Step
from tether.systems.base import namespace
from tether_plants.learners import always, ours, sb3
from tether_plants.plant import Check, Plant

ROUNDS, HOURS, BASE, EFFICIENCY = 96, 0.25, 100.0, 0.9
"""Of a day; hours of a round; MVA of a per-unit; of the battery, each way."""
LEVELS = (0.0, 3.0, 10.0, 30.0, 60.0)
"""MWh: the MPC is shown the largest of these that is in the battery, so that its answers fit into a table."""
OFF = 2e-3
"""By how much a penalty may differ from ours: the environment's own set-points come from a solver with a tolerance."""
CONTRACT = tether.Contract(lam=0.2, b=0.1, horizon=ROUNDS, cost_floor=0.0)


class Grid(gymnasium.Wrapper[Any, Any, Any, Any]):
    """ANM6Easy as it is, with three actions in MW (solar, wind, battery) and no reactive power, as its MPC has none."""

    def __init__(self) -> None:
        from gym_anm.envs import ANM6Easy

        super().__init__(ANM6Easy())
        self.action_space = gymnasium.spaces.Box(
            np.array([0.0, 0.0, -50.0]), np.array([30.0, 50.0, 50.0]), dtype=float
        )
        self.observation_space = gymnasium.spaces.Box(-100.0, 100.0, (7,), dtype=float)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the episode options["episode"]: a time of day and a charge of the battery."""
        self.env.reset(seed=(options or {}).get("episode", seed))
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        """The reward is minus the energy that is lost, the cost its penalty for voltages and lines."""
        solar, wind, battery = np.clip(action, self.action_space.low, self.action_space.high)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, _, terminated, _, info = self.env.step(np.array([solar, wind, 0.0, 0.0, battery, 0.0]))
        inner: Any = self.env.unwrapped
        info = {**info, "cost": float(inner.penalty)}
        return self._seen(), -BASE * float(inner.e_loss), bool(terminated), False, info

    def _seen(self) -> Any:
        """[7] the clock, in rounds from midnight, the charge, MWh, and what follows from the clock."""
        inner: Any = self.env.unwrapped
        now = np.array([inner.state[-1], BASE * inner.simulator.devices[6].soc])
        return np.concatenate([now, _forecast(now[0])])


@cache
def network() -> dict[str, Any]:
    """Series of the day, admittances and ratings of the original environment, per-unit."""
    inner: Any = Grid().env.unwrapped
    branches = list(inner.simulator.branches.values())
    if any(branch.tap != 1.0 or branch.shunt != 0.0 for branch in branches):
        raise ValueError(
            "the power flow here is for lines without transformers that shift and without shunts"
        )
    admittance = inner.simulator.Y_bus.toarray()
    impedance = np.linalg.inv(admittance[1:, 1:])
    if not np.allclose(admittance.sum(axis=1), 0.0):
        raise ValueError("without load every voltage must be 1, which takes admittances that add up to 0 at each bus")
    series = np.array([branch.series for branch in branches])
    ends = np.array([(branch.f_bus, branch.t_bus) for branch in branches])
    return {
        "loads": inner.P_loads.T / BASE,
        "potential": np.minimum(inner.P_maxs.T, [30.0, 50.0]) / BASE,
        "G": admittance.real,
        "B": admittance.imag,
        "R": impedance.real,
        "X": impedance.imag,
        "across": np.eye(6)[ends[:, 0]] - np.eye(6)[ends[:, 1]],
        "starts": np.eye(6)[ends[:, 0]],
        "ends": np.eye(6)[ends[:, 1]],
        "g": series.real,
        "b": series.imag,
        "rate": np.array([branch.rate for branch in branches]),
    }


def flow(clock: Any, solar: Any, wind: Any, battery: Any) -> tuple[Any, Any]:
    """(energy lost, penalty) of a round with these injections, per-unit: the environment's power flow.

    Voltages e + if are the fixed point of V = 1 + Z conj(S / V), Z the inverse of the admittances without the slack
    bus: 12 rounds of it leave 1e-7 wherever a round of ANM6Easy can be (the tests), where Newton has to solve a system.
    """
    xp = namespace(battery)
    known = {name: xp.asarray(each, dtype=battery.dtype) for name, each in network().items()}
    loads, potential, R, X = known["loads"][clock], known["potential"][clock], known["R"], known["X"]
    bus = xp.asarray(np.eye(5)[2:], dtype=battery.dtype)
    real = (loads + xp.stack([solar, wind, battery])) @ bus
    imaginary = 0.2 * loads @ bus
    e, f = xp.ones_like(real), xp.zeros_like(real)
    for _ in range(12):
        square = e**2 + f**2
        u, v = (real * e + imaginary * f) / square, (imaginary * e - real * f) / square
        e, f = 1.0 + R @ u + X @ v, X @ u - R @ v
    e, f = xp.concat([xp.ones_like(e[:1]), e]), xp.concat([xp.zeros_like(f[:1]), f])
    size = xp.sqrt(e**2 + f**2)
    u, v, g, b = known["across"] @ e, known["across"] @ f, known["g"], known["b"]
    current = xp.sqrt((g * u - b * v) ** 2 + (g * v + b * u) ** 2 + 1e-12)
    apparent = current * xp.maximum(known["starts"] @ size, known["ends"] @ size)
    lost = known["G"][0] @ e - known["B"][0] @ f + xp.sum(loads) + xp.sum(potential)
    over = xp.sum((xp.maximum(size - 1.1, 0.0) + xp.maximum(0.9 - size, 0.0))[1:])
    over = over + xp.sum(xp.maximum(apparent - known["rate"], 0.0))
    return HOURS * lost, HOURS * 100.0 * over


class Charge(NamedTuple):
    """Between two rounds."""

    charge: Any
    """MWh in the battery."""


def played(clock: Any, charge: Any, action: Any) -> tuple[Any, Any, Any]:
    """(energy lost, penalty, charge after the round): per-unit, cost units, MWh; set-points are cut as theirs."""
    xp = namespace(action)
    now = (xp.asarray(clock) + 1).astype(int) % ROUNDS
    action = xp.asarray(action)
    potential, stored = xp.asarray(network()["potential"], dtype=action.dtype)[now], charge / BASE
    solar, wind = (xp.clip(action[i] / BASE, 0.0, potential[i]) for i in (0, 1))
    least, most = (stored - 1.0) / (HOURS * EFFICIENCY), EFFICIENCY * stored / HOURS
    battery = xp.clip(xp.clip(action[2] / BASE, -0.5, 0.5), least, most)
    lost, penalty = flow(now, solar, wind, battery)
    change = HOURS * xp.where(battery <= 0.0, EFFICIENCY * battery, battery / EFFICIENCY)
    return lost, penalty, xp.clip(charge - BASE * change, 0.0, 100.0)


@cache
def table() -> Any:
    """[96, levels, 3] what gym-anm's MPCAgentConstant plays at each time of the day, by the charge it is shown."""
    from gym_anm.agents import MPCAgentConstant

    env = Grid()
    env.reset(seed=0)
    inner: Any = env.env.unwrapped
    agent = MPCAgentConstant(inner.simulator, inner.action_space, inner.gamma)
    state, answers = inner.simulator.state, np.zeros((ROUNDS, len(LEVELS), 3))
    for clock in range(ROUNDS):
        for place, device in enumerate((1, 3, 5)):
            state["dev_p"]["pu"][device] = network()["loads"][clock, place]
        for place, device in enumerate((2, 4)):
            state["gen_p_max"]["pu"][device] = network()["potential"][clock, place]
        for i, level in enumerate(LEVELS):
            state["des_soc"]["pu"][6] = level / BASE
            answers[clock, i] = agent.act(inner)[[0, 1, 4]]
    return answers


def prior(observation: Any, key: Any = None) -> Any:  # noqa: ARG001
    """What the shipped MPC plays, shown the charge rounded down to one of `LEVELS`."""
    xp = namespace(observation)
    seen = xp.asarray(observation)
    level = xp.sum(seen[..., 1:2] >= xp.asarray(LEVELS[1:], dtype=seen.dtype), axis=-1)
    return xp.asarray(table(), dtype=seen.dtype)[seen[..., 0].astype(int), level]


@cache
def held() -> tuple[Any, Any]:
    """[96] what the round after each time of day costs the MPC with an empty battery, and at most if it cannot charge.

    From less than 1 MWh, with which every episode begins, the MPC never gets to the second of `LEVELS` in a day
    (checked), so this *is* what the prior pays, in every round of every episode.
    """
    empty = table()[:, 0]
    charged = EFFICIENCY * HOURS * np.maximum(-empty[:, 2], 0.0).sum()
    if not (1.0 + charged < LEVELS[1] and np.all(empty[:, 2] < 1e-3)):
        raise ValueError(
            f"the MPC's battery must stay below {LEVELS[1]} MWh, it may be charged by {charged:g}"
        )
    costs = np.array([
        [played(clock, 1.0, empty[clock])[1], played(clock, 100.0, empty[clock])[1]] for clock in range(ROUNDS)
    ])  # fmt: skip
    return costs[:, 0], costs.max(axis=1)


@dataclass(frozen=True)
class GridStructure(Structure):
    """Power flow is memoryless and the day is known, so a round's excess is computed, not bounded.

    *The prior's plant* pays `held` at each time of day: c+ is known. *Backup `hold`*: play what the MPC plays with an
    empty battery. Whatever is in the own battery, that costs what the prior pays, up to `OFF`, or what it costs if the
    battery is full and cannot be charged: y_k <= worst := max over the day of held' + OFF - (1 + lam) [held - OFF]^+.
    So T_0 = c + OFF - (1 + lam) [held - OFF]^+ with the cost c of the action itself, and T_n <= T_0 + 96 worst.
    Under the prior as backup nothing is claimed of later rounds, as its answers jump with the charge.
    """

    kind: ClassVar[str] = "grid"
    entries: ClassVar[int] = 3
    scalar: ClassVar[bool] = False
    backups: ClassVar[tuple[str, ...]] = ("hold",)
    turns: ClassVar[int] = 8

    @property
    def scale(self) -> float:
        """A penalty of a heavy overload."""
        return 10.0

    def start(self, zero: Any) -> Any:
        """There is nothing to remember of the gap."""
        return (zero,)

    def read(self, observation: Any) -> Any:
        """(time of day, charge)."""
        return observation[0], observation[1]

    def admits(self, seen: Any, ops: Any) -> Any:
        """Whether that is a time of day and a charge."""
        clock, charge = seen
        day = ops.logical_and(clock >= -0.01, clock <= ROUNDS - 0.99)
        return ops.logical_and(day, ops.logical_and(charge >= -1e-3, charge <= 100.001))

    def gaps_between(self, seen: Any, prior_seen: Any, ops: Any) -> Any:  # noqa: ARG002
        """None that matters."""
        return (0.0 * seen[0],)

    def backup(self, plan: int, now: Any, ops: Any) -> Any:  # noqa: ARG002
        """What the MPC plays with an empty battery."""
        return ops.asarray(table()[:, 0], dtype=now.prior.dtype)[_clock(now.seen[0], ops)]

    def bounds(self, now: Any, action: Any, plan: int, ops: Any) -> Bounds:
        """See the class."""
        clock, (paid, full) = _clock(now.seen[0], ops), held()
        cost = played(clock, ops.clip(now.seen[1], 0.0, 100.0), action)[1] + OFF
        paid, full = (ops.asarray(each, dtype=cost.dtype) for each in (paid, full))
        least = ops.maximum(paid[clock] - OFF, 0.0)
        first = cost - (1.0 + now.lam) * least
        worst = ops.maximum(ops.max(full + OFF - (1.0 + now.lam) * ops.maximum(paid - OFF, 0.0)), 0.0)
        later = first + (ROUNDS * worst if plan == 1 else np.inf)
        return Bounds((first, later), cost, (least,))

    def close(self, step: Any, cost: Any, epsilon: Any, ops: Any) -> Any:  # noqa: ARG002
        """The floor is what the prior pays."""
        return step[0], (0.0 * step[0],)

    def unseen(self, step: Any, ops: Any) -> Any:  # noqa: ARG002
        """There is nothing to remember."""
        return (0.0 * step[0],)


def _clock(clock: Any, ops: Any) -> Any:
    """The time of day as an index, whatever is seen."""
    return ops.asarray(ops.clip(clock + 0.5, 0.0, ROUNDS - 0.5)).astype(int)


@dataclass(frozen=True)
class Day(Env):
    """ANM6Easy to learn on: the same power flow, in JAX."""

    series: ClassVar[tuple[str, ...]] = ("clock",)
    observation_names: ClassVar[tuple[str, ...]] = ("clock", "charge", *(f"forecast_{i}" for i in range(5)))
    action_shape: ClassVar[tuple[int, ...]] = (3,)
    low, high, cost_floor = np.array([0.0, 0.0, -50.0]), np.array([30.0, 50.0, 50.0]), 0.0

    def initial(self) -> Charge:
        """Nearly empty, as ANM6Easy begins."""
        return Charge(0.5)

    def observe(self, state: Charge, drawn: Any) -> Any:
        """[7] time of day, charge; what comes of sun, wind and the loads."""
        xp = namespace(drawn["clock"])
        now = xp.stack([drawn["clock"], xp.asarray(state.charge) + 0.0 * drawn["clock"]])
        return xp.concat([now, _forecast(drawn["clock"])])

    def step(self, state: Charge, drawn: Any, action: Any) -> Step:
        """See `played`."""
        lost, penalty, charge = played(drawn["clock"], state.charge, action)
        return Step(Charge(charge), -BASE * lost, penalty)

    def prior(self, observation: Any, key: Any = None) -> Any:
        """See `prior`."""
        return prior(observation, key)

    def limits(self) -> dict[str, Any]:
        """Of the time of day."""
        return {"clock": (0.0, ROUNDS - 1.0)}

    @property
    def sensitivity(self) -> tether.Sensitivity:
        """There is none."""
        raise NotImplementedError("the MPC's answers jump with the charge: there are no Lipschitz constants")

    @property
    def structure(self) -> GridStructure:
        """See `GridStructure`."""
        return GridStructure()


def _forecast(clock: Any) -> Any:
    """[5] potential of sun and wind, and the loads, per-unit, in the coming round: the day repeats itself."""
    xp = namespace(clock)
    now = (xp.asarray(clock) + 1).astype(int) % ROUNDS
    dtype = xp.asarray(clock).dtype
    return xp.concat([xp.asarray(network()[name], dtype=dtype)[now] for name in ("potential", "loads")])


class QuickGrid(gymnasium.Env[Any, Any]):
    """`Grid` by our own power flow, which the checks compare: a hundred times as fast, to train on."""

    def __init__(self) -> None:
        self._first = Grid()
        self.action_space, self.observation_space = self._first.action_space, self._first.observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """As `Grid` begins."""
        self._seen, info = self._first.reset(seed=seed, options=options)
        return self._seen, info

    def step(self, action: Any) -> Any:
        """Play a round."""
        lost, penalty, charge = played(self._seen[0], self._seen[1], np.asarray(action, dtype=float))
        now = np.array([(self._seen[0] + 1.0) % ROUNDS, charge])
        self._seen = np.concatenate([now, _forecast(now[0])])
        return self._seen, -BASE * float(lost), False, False, {"cost": float(penalty)}


def days(numbers: Any) -> Episodes:
    """When these episodes begin, as `Day` takes it; the charge, below 1 MWh, is not told."""
    starts = [float(Grid().reset(options={"episode": int(i)})[0][0]) for i in numbers]
    clock = (np.array(starts)[:, None] + np.arange(ROUNDS)) % ROUNDS
    return Episodes({"clock": clock}, np.zeros(len(clock), dtype=int))


def split(seed: int, n: int) -> tuple[Any, Any]:
    """12 episodes to learn on, n others to test on."""
    return 100_000 + 1000 * seed + np.arange(12), 1000 * seed + np.arange(n)


def greedy(observation: Any) -> Any:
    """All sun and wind; the battery is charged from what is left over, and emptied when it is not enough."""
    surplus = float(np.sum(_forecast(np.float64(observation[0]))))
    return np.array([30.0, 50.0, -15.0 if surplus > 0.0 else 20.0])


def checks(episodes: int) -> list[Check]:
    """Power flow, battery, prior and what the prior pays, against the original environment."""
    env, rng, off, rounds = Grid(), np.random.default_rng(0), np.zeros(5), 0
    for episode in (0, 1)[:episodes]:
        observation, _ = env.reset(options={"episode": episode})
        off[4] = max(off[4], observation[1])
        idle = bool(episode % 2)
        for _ in range(ROUNDS // (1 if idle else 4)):
            action = prior(observation) if idle else rng.uniform([0.0, 0.0, -20.0], [20.0, 25.0, 20.0])
            lost, penalty, charge = played(*observation[:2], action)
            paid = held()[0][int(observation[0])]
            after, reward, _, _, info = env.step(action)
            off[:4] = np.maximum(off[:4], [
                abs(penalty - info["cost"]), abs(BASE * lost + reward), abs(charge - after[1]),
                abs(paid - info["cost"]) if idle else 0.0,
            ])  # fmt: skip
            observation, rounds = after, rounds + 1
    return [
        Check("penalty as by our power flow, cost units", rounds, float(off[0]), OFF),
        Check("energy lost as by our power flow, MWh", rounds, float(off[1]), 0.01),
        Check("charge after a round, MWh", rounds, float(off[2]), 1e-3),
        Check("what the MPC pays against the table, cost units", rounds, float(off[3]), OFF),
        Check("charge at the beginning, MWh", rounds, float(off[4]), 1.0),
    ]


PLANT = Plant(
    name="anm",
    title="gym-anm ANM6Easy: a distribution grid with a battery",
    source="gym-anm 2.0.1, ANM6Easy",
    prior_title="its own MPCAgentConstant",
    cost_title="its penalty for overloaded lines and voltages",
    reward_title="minus MWh of energy lost",
    contract=CONTRACT,
    make=Grid,
    prior=prior,
    certificates={"shadowed": lambda contract: tether.Structured(contract, GridStructure())},
    episodes=split,
    learners={
        "greedy": always(greedy),
        "ours": ours(Day, days, passes=100, batch=6),
        "sb3": sb3(9_216, spread=0.1, make=QuickGrid),
    },
    checks=checks,
    most=10,
)
