"""What if the constants are wrong? Reward and violations when the guard is told too small or too large ones.

Each constant is scaled alone, then `immediate`, `carried` and rho together; the system stays as it is. Too large must
keep the promise and cost reward. Too small may break it, and does where the constants are tight. Hostile learners play
on everyday draws, and on hostile ones: every series at an end of its range, drawn in each round or held all day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from tether.assure.hostile import Greedy
from tether.assure.verify.simulators import EnvSimulator, as_simulator
from tether.certificates import LipschitzCertificate
from tether.core import drawing
from tether.core.audit import audit
from tether.core.contract import Contract
from tether.core.sensitivity import Geometric, Sensitivity, table
from tether.data.episodes import Episodes
from tether.simulate.rollout import Policy, play, rollout
from tether.systems import registry
from tether.systems.base import Env
from tether.systems.system import Draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = tuple(float(2.0**power) for power in np.linspace(-2.0, 2.0, 9))
DRAWS = ("everyday", "hostile")
TOGETHER = "together"
KEYS = ("draws", "learner", "constant", "scale")
"""What tells the rows of a study apart."""


class Learner(eqx.Module):
    """A hostile learner: `idle` (the lowest action), `full` (the highest), `random`, or `strike` (idle at times)."""

    env: Env = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    low: Any
    high: Any

    def __call__(self, observation: Any, key: Any) -> Any:
        """The action that it proposes."""
        if self.kind == "idle":
            return self.low
        if self.kind == "full":
            return self.high
        share = jax.random.uniform(key, self.low.shape, dtype=self.low.dtype)
        if self.kind == "random":
            return self.low + share * (self.high - self.low)
        strikes = jax.random.bernoulli(key, 1.0 / 8.0)
        return jnp.where(strikes, self.low, self.env.prior(observation))


def learners(env: Env) -> dict[str, Policy]:
    """By name; `greedy` maximises each round's reward."""
    low, high = env.action_range()
    made: dict[str, Policy] = {
        kind: Learner(env, kind, low, high) for kind in ("idle", "full", "random", "strike")
    }
    return made | {"greedy": Greedy(env)}


def hostile_draws(env: Env, everyday: Episodes, seed: int) -> Episodes:
    """Episodes whose values are at the ends of the ranges that `tether.verify` searches.

    For each entry of a series and each episode: at the lower end all day long, at the upper one, or at either, in each
    round; a third of the episodes each. What has no range because no cost depends on it stays as it was.
    """
    system = as_simulator(env)
    assert isinstance(system, EnvSimulator)
    rng = np.random.default_rng(seed)
    shape = (len(everyday), everyday.horizon, system.draws.size)
    kind = rng.integers(3, size=(shape[0], 1, shape[2]))
    upper = np.where(kind == 2, rng.integers(2, size=shape), kind)
    values = np.where(upper == 1, system.draws.high, system.draws.low)
    before = np.concatenate([everyday[name].reshape(*shape[:2], -1) for name, _ in system.series], axis=-1)
    values = np.where(system.draws.widths > 0.0, values, before)
    ends = np.cumsum([int(np.prod(each)) for _, each in system.series])
    parts = np.split(values, ends[:-1], axis=-1)
    return Episodes(
        {
            name: part.reshape(*shape[:2], *each)
            for (name, each), part in zip(system.series, parts, strict=True)
        }
    )


def scaled(bounds: Sensitivity, contract: Contract, constant: str, scale: float) -> LipschitzCertificate:
    """The certificate of a guard that is told a wrong constant; p is a table, so that all compile once."""
    p = bounds.perturbation
    if not isinstance(p, Geometric):
        raise ValueError(f"rho can be scaled of a geometric perturbation only, this system has {p!r}")
    factor = {
        name: scale if constant in (name, TOGETHER) else 1.0 for name in ("immediate", "carried", "rho")
    }
    floor = contract.cost_floor * (scale if constant == "cost floor" else 1.0)
    rho = p.rho * factor["rho"]
    told = Sensitivity(
        bounds.immediate * factor["immediate"],
        bounds.carried * factor["carried"],
        table([p.scale * rho**n for n in range(contract.horizon)]),
    )
    return LipschitzCertificate(Contract(contract.lam, contract.b, contract.horizon, floor), told, "tight")


class Part(NamedTuple):
    """What one seed gave on one kind of draws."""

    seed: int
    draws: str
    played: dict[str, list[tuple[float, float, float]]]
    """For each learner, and then each (constant, scale): mean reward, violation rate, worst margin."""


@dataclass(frozen=True, eq=False)
class Study:
    """Plays every learner with every wrong constant, all certificates in one compiled program."""

    env: Env
    """The system; its `sensitivity` must be geometric."""
    contract: Contract
    """The promise that is audited."""
    episodes: int
    """Of each kind of draws and each seed."""
    scales: Sequence[float] = SCALES
    """What the constants are multiplied by."""
    policies: Mapping[str, Policy] | None = None
    """Who plays, by name; `learners(env)` without it."""
    everyday: Episodes | Draw | None = None
    """What each seed draws its episodes from, without replacement; or how it draws them, (seed, number, horizon).
    Without it as the installed system does that has this environment."""

    def __post_init__(self) -> None:
        scaled(self.env.sensitivity, self.contract, TOGETHER, 1.0)

    @property
    def constants(self) -> list[str]:
        """Which are wrong, one after the other."""
        floor = ["cost floor"] if self.contract.cost_floor > 0.0 else []
        return ["immediate", "carried", "rho", *floor, TOGETHER]

    @property
    def told(self) -> list[tuple[str, float]]:
        """Every (constant, scale)."""
        return [(constant, scale) for constant in self.constants for scale in self.scales]

    def part(
        self, seed: int, draws: str, report: Callable[[int, int], None] = lambda _done, _total: None
    ) -> Part:
        """All learners, with the draws of one seed; `report` is called with (learners done, learners in all)."""
        env, contract = self.env, self.contract
        told = [scaled(env.sensitivity, contract, *each) for each in self.told]
        drawn = _draw(env, draws, seed, self.episodes, contract.horizon, self.everyday)
        prior = rollout(env, env.prior, drawn, record="outcomes")
        policies = self.policies or learners(env)
        played = {}
        for done, (learner, policy) in enumerate(policies.items()):
            report(done, len(policies))
            rewards, costs = _play(env, policy, drawn, told, seed)
            verdicts = [audit(cost, prior, contract) for cost in costs]
            played[learner] = [
                (float(reward.sum(axis=1).mean()), verdict.violation_rate, verdict.worst_margin)
                for reward, verdict in zip(rewards, verdicts, strict=True)
            ]
        report(len(policies), len(policies))
        return Part(seed, draws, played)

    def assemble(self, parts: Sequence[Part]) -> dict[str, Any]:
        """What the parts of all seeds and draws come to.

        Returns:
            `rows`: one for each (draws, learner, constant, scale), with the mean reward and the violation rate of each
            seed, and the worst margin.
        """
        rows: dict[tuple[str, str, str, float], dict[str, Any]] = {}
        for part in parts:
            for learner, played in part.played.items():
                for (constant, scale), (reward, rate, margin) in zip(self.told, played, strict=True):
                    empty = {"rewards": [], "violation_rates": [], "worst_margin": np.inf}
                    row = rows.setdefault((part.draws, learner, constant, scale), empty)
                    row["rewards"].append(reward)
                    row["violation_rates"].append(rate)
                    row["worst_margin"] = min(row["worst_margin"], margin)
        return {
            "system": type(self.env).__name__,
            "lam": self.contract.lam,
            "b": self.contract.b,
            "episodes": self.episodes,
            "seeds": list(dict.fromkeys(part.seed for part in parts)),
            "scales": list(self.scales),
            "constants": self.constants,
            "learners": list(parts[0].played),
            "rows": [dict(zip(KEYS, key, strict=True)) | row for key, row in rows.items()],
        }


def study_tables(results: dict[str, Any]) -> list[Table]:
    """For each kind of draws the violation rate at every scale, over all learners and seeds, the largest."""
    tables = []
    for kind in DRAWS:
        made = Table(
            "constant",
            *(f"x{scale:.3g}" for scale in results["scales"]),
            "broken at",
            title=f"{results['system']}: worst violation rate of any learner, {kind} draws "
            f"(lam = {results['lam']:g}, b = {results['b']:g})",
        )
        for constant in results["constants"]:
            rates = [worst_rate(results, kind, constant, scale) for scale in results["scales"]]
            bad = [scale for scale, rate in zip(results["scales"], rates, strict=True) if rate > 0.0]
            small = (
                [f"x{max(each for each in bad if each < 1.0):.3g} and less"]
                if min(bad, default=1.0) < 1.0
                else []
            )
            large = (
                [f"x{min(each for each in bad if each > 1.0):.3g} and more"]
                if max(bad, default=1.0) > 1.0
                else []
            )
            broken = ", ".join(small + large) or "never: slack"
            made.add_row(constant, *(f"{rate:.1%}" for rate in rates), broken)
        tables.append(made)
    return tables


def worst_rate(results: dict[str, Any], draws: str, constant: str, scale: float) -> float:
    """The largest violation rate over learners and seeds."""
    wanted = (draws, constant, scale)
    rates = [
        max(row["violation_rates"])
        for row in results["rows"]
        if (row["draws"], row["constant"], row["scale"]) == wanted
    ]
    return float(max(rates))


@drawing.styled
def study_figure(results: dict[str, Any], draws: str) -> Figure:
    """Reward (above) and violation rate (below) against the scale, a column a constant, a line a learner."""
    constants = results["constants"]
    figure, axes = drawing.new_figure(2.3 * len(constants), 4.6, len(constants), 2, sharex=True, sharey="row")
    colors = (drawing.BLUE, drawing.ORANGE, drawing.GREEN, drawing.PURPLE, drawing.RED)
    marks = "osv^D"
    for column, constant in enumerate(constants):
        for learner, color, mark in zip(results["learners"], colors, marks, strict=False):
            rows = [
                row
                for row in results["rows"]
                if (row["draws"], row["learner"], row["constant"]) == (draws, learner, constant)
            ]
            scales = [row["scale"] for row in rows]
            for axis, name, factor in (
                (axes[0][column], "rewards", 1.0),
                (axes[1][column], "violation_rates", 100.0),
            ):
                values = factor * np.array([row[name] for row in rows])
                axis.plot(
                    scales, values.mean(axis=1), color=color, marker=mark, markersize=3, lw=1.2, label=learner
                )
                axis.fill_between(
                    scales, values.min(axis=1), values.max(axis=1), color=color, alpha=0.2, lw=0
                )
        axes[0][column].set_title(constant)
        axes[1][column].set_xscale("log", base=2)
        axes[1][column].set_xticks([0.25, 0.5, 1.0, 2.0, 4.0], labels=["1/4", "1/2", "1", "2", "4"])
        axes[1][column].set_xlabel("claimed / proved")
        for axis in (axes[0][column], axes[1][column]):
            axis.axvline(1.0, color=drawing.GREY, lw=0.8, ls="--")
    axes[0][0].set_ylabel("reward of an episode")
    axes[1][0].set_ylabel("episodes in violation (%)")
    axes[1][0].set_ylim(-3.0, 103.0)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(
        f"{results['system']}, {draws} draws: the guard is told wrong constants "
        f"(lam = {results['lam']:g}, b = {results['b']:g}; {len(results['seeds'])} seeds)"
    )
    return figure


def _draw(
    env: Env, kind: str, seed: int, episodes: int, horizon: int, given: Episodes | Draw | None
) -> Episodes:
    if given is None:
        system = registry.of_env(env)
        if system is None:
            raise ValueError(f"no installed system has the environment {env!r}; give everyday=...")
        given = system.draw
    if isinstance(given, Episodes):
        everyday = given[np.random.default_rng(seed).permutation(len(given))[:episodes]]
    else:
        everyday = given(seed, episodes, horizon)
    return everyday if kind == "everyday" else hostile_draws(env, everyday, seed)


def _play(
    env: Env, policy: Policy, episodes: Episodes, certificates: list[LipschitzCertificate], seed: int
) -> tuple[Any, Any]:
    """Rewards and costs [C, N, H] of all the certificates, in float64."""
    env.check(episodes)
    with jax.enable_x64(True):
        drawn = {name: jnp.asarray(np.swapaxes(episodes[name], 0, 1)) for name in env.drawn_names}
        stacked = jax.tree.map(lambda *each: jnp.stack([jnp.asarray(one) for one in each]), *certificates)
        played = _play_all(env, policy, drawn, stacked, jnp.asarray(seed, dtype=jnp.uint32))
        return tuple(np.swapaxes(np.asarray(played[name]), 1, 2) for name in ("rewards", "costs"))  # type: ignore[return-value]


@eqx.filter_jit
def _play_all(env: Env, policy: Policy, drawn: Any, certificates: Any, seed: Any) -> Any:
    return jax.vmap(lambda certificate: play(env, policy, drawn, certificate, seed, "outcomes"))(certificates)
