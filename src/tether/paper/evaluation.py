"""What is run: the paper's evaluation of a system, as a list of pieces, and the results that they add up to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tether.assure import hostile
from tether.certificates import LipschitzCertificate, Rule
from tether.core import output, validate
from tether.data.episodes import Episodes
from tether.data.sources.gpu import load_bloom
from tether.learn.methods import METHODS, method_of
from tether.learn.train import Exploration, Mode, Training, evaluate, regrets, train
from tether.paper.engines import Piece
from tether.paper.learners import RecipeName, System, augmented, is_episode_file, load_system, recipe_of
from tether.paper.published import play_idle, play_published, play_rl, read_published
from tether.paper.results import SCHEMA
from tether.simulate.rollout import rollout
from tether.systems.inference.synthetic import synthetic_inference

Report = Callable[[int, int, str], None]
Scale = Literal["quick", "full"]
SYSTEMS = ("carbon", "inference")
BLOCK = 25
"""Episodes over which exploration is averaged."""
CURVE = 500
"""Episodes of the paper's regret curves."""
SHOWN = 3
"""Test episodes, the first ones, that the report's player shows."""
BLOOM_POWER = "bloom_gpu_power_10min.csv"
BLOOM_MEAN = 3.5
"""Mean of the demand after scaling, as in `synthetic_inference`."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is run, but for the data."""

    system: str
    scale: Scale
    lams: tuple[float, ...]
    """Relative slacks of the grid."""
    bs: tuple[float, ...]
    """Slacks a round of the grid, cost units."""
    seeds: tuple[int, ...]
    methods: tuple[str, ...]
    rules: tuple[Rule, ...]
    """Of the guard. What needs no training of its own is played with all of them ..."""
    trained_rules: tuple[Rule, ...]
    """... and ACRL is trained with these; other guarded methods play online with the last of them."""
    modes: tuple[Mode, ...]
    train_episodes: int
    """Synthetic episodes to train on; two thirds as many to test on."""
    passes: int
    """Offline: times that the training episodes are gone through."""
    explored: int
    """Online: episodes that are played while learning, K."""
    recipe: RecipeName = "tether"
    """How learners are trained; with `paper` also on the paper's K episodes, made by augmentation."""

    def __post_init__(self) -> None:
        validate.choice("system", self.system, SYSTEMS)
        for method in self.methods:
            method_of(method)
        for name, kind in (("rules", Rule), ("trained_rules", Rule), ("modes", Mode)):
            for each in getattr(self, name):
                validate.choice(name.removesuffix("s"), each, get_args(kind))
        for name in ("lams", "bs"):
            for each in getattr(self, name):
                validate.number(name.removesuffix("s"), each, minimum=0.0)
        for name in ("seeds", "lams", "bs", "methods", "rules", "modes"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} must be at least one and all different, got {list(values)}")
        validate.choice("recipe", self.recipe, get_args(RecipeName))
        for name in ("train_episodes", "passes", "explored"):
            validate.count(name, getattr(self, name))

    @property
    def shown(self) -> tuple[float, float]:
        """The contract (lam, b) of the study of hostile learners: the tightest of the grid that leaves freedom."""
        return next((lam for lam in self.lams if lam > 0.0), self.lams[0]), self.bs[0]


def plan_for(system: str, scale: Scale, **changes: Any) -> Plan:
    """The plan of a system, `quick` or `full` (the paper's grid), with what is changed of it.

    Args:
        system: `carbon` or `inference`.
        scale: `quick` takes about a minute on two cores; `full` is the paper's grid, seeds and episodes. With the
            recipe `paper` it is the paper's evaluation.
        changes: Fields of `Plan`; those that are None are left as they are.
    """
    validate.choice("system", system, SYSTEMS)
    full = scale == "full"
    carbon = system == "carbon"
    lams = ((0.0, 2.0, 4.0, 6.0, 8.0, 10.0) if full else (0.0, 2.0, 6.0)) if carbon else (5.0, 7.0)
    planned = Plan(
        system=system,
        scale=scale,
        lams=lams,
        bs=(2.0, 6.0) if carbon else (6.0,),
        seeds=tuple(range(5 if full else 3)),
        methods=tuple(method.name for method in METHODS),
        rules=get_args(Rule),
        trained_rules=get_args(Rule) if full else ("tight",),
        modes=("offline", "online"),
        train_episodes=(2136 if carbon else 2160) if full else 480,
        # The paper's recipe has nearly twice as many episodes in a pass.
        passes=(30 if carbon and changes.get("recipe") == "paper" else 60) if full else 10,
        explored=(4000 if carbon else 2160) if full else 500,
    )
    planned = replace(planned, **{name: value for name, value in changes.items() if value is not None})
    trained = tuple(rule for rule in planned.trained_rules if rule in planned.rules)
    return replace(planned, trained_rules=trained or planned.rules[-1:])


def load_data(plan: Plan, folder: Path | None) -> System:
    """The system with its episodes, as many to learn from as the plan's recipe says."""
    system = _load_data(plan, folder)
    return augmented(system, plan.explored, plan.seeds[0]) if plan.recipe == "paper" else system


def _load_data(plan: Plan, folder: Path | None) -> System:
    """Generated episodes, those of an episode file, or those of the authors' data.

    Of a folder for inference only the demand is real, the GPU power of the BLOOM service: the first 60 % of its hours
    to train on, the rest to test on. Renewables and battery rates are generated as for embedded data.
    """
    first = plan.seeds[0]
    if folder is None or is_episode_file(folder) or plan.system == "carbon":
        return load_system(plan.system, folder, plan.train_episodes, first)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; expected one that holds {BLOOM_POWER}")
    power = load_bloom(folder / BLOOM_POWER).values
    demand = power * (BLOOM_MEAN / power.mean())
    split = int(0.6 * len(demand))
    env = load_system(plan.system, None, 1, first).env

    def episodes(values: Any, seed: int) -> Episodes:
        windows = np.lib.stride_tricks.sliding_window_view(values, 24)
        drawn = synthetic_inference(seed, len(windows))
        series = {name: drawn[name] for name in drawn.names} | {"demand": windows}
        return Episodes(series, drawn.start_hours)

    return System(env, episodes(demand[:split], first), episodes(demand[split:], first + 1_000_000))


def identity(
    plan: Plan, system: System, command: str, folder: Path | None, paper: Path | None
) -> dict[str, Any]:
    """All that decides the results; a run goes on only in a folder of the same identity."""
    return {
        **asdict(plan),
        "data": _describe_data(plan, system, folder),
        "paper": None if paper is None else read_published(paper),
        "code": _digest_of_code(),
        "machine": {key: value for key, value in output.provenance(command).items() if key != "command"},
        "command": command,
    }


def pieces(plan: Plan, system: System, out: Path, folder: Path | None, paper: Path | None) -> list[Piece]:
    """What is to be computed, in the order of its computation."""
    made = [Piece("guard", lambda report: _guard(plan, system, folder, report))]
    if paper is not None and folder is not None and folder.is_dir() and plan.system == "carbon":
        made.append(Piece("published", lambda report: _published(paper, folder, report)))
    for mode in plan.modes:
        # RL first: the others are measured against it, and RL+ACD plays what it learned.
        for method in sorted(plan.methods, key=lambda method: method != "rl"):
            rules: Sequence[Rule | None] = [None]
            if method_of(method).sees_memory:
                rules = plan.trained_rules
            elif method_of(method).guarded:
                rules = plan.rules if mode == "offline" else plan.trained_rules[-1:]
            for rule in rules:
                name = "-".join([mode, method.replace("+", "_"), *([rule] if rule else [])])
                made.append(Piece(name, _Learning(plan, system, out, mode, method, rule)))
    return made


@dataclass(frozen=True)
class _Learning:
    """One method, trained for the whole grid and all seeds, tested and audited."""

    plan: Plan
    system: System
    out: Path
    mode: Mode
    method: str
    rule: Rule | None

    def __call__(self, report: Report) -> dict[str, Any]:
        training = self._train(self.method, report)
        tag = {"mode": self.mode, "method": self.method, "rule": self.rule}
        certificate = self._certificate()
        scores = evaluate(training, self.system.env, self.system.test, certificate)
        content: dict[str, Any] = {"scores": [tag | asdict(score) for score in scores]}
        if training.exploration is not None:
            content["exploration"] = [
                tag | row for row in self._explored(training, training.exploration, report)
            ]
        elif self.method in ("rl", "crl", "acrl"):
            content["exploration"] = [tag | row for row in self._learned(training)]
        if self.mode == "offline":
            content["tracks"] = [tag | track for track in self._tracks(training)]
        return content

    def _certificate(self) -> LipschitzCertificate:
        env = self.system.env
        contract = env.contract(self.plan.lams[0], self.plan.bs[0], self.system.train.horizon)
        return LipschitzCertificate(contract, env.sensitivity, self.rule or "tight")

    def _train(self, method: str, report: Report) -> Training:
        """The trained grid; offline, `rl+acd` plays what `rl` learned, and finds it in the checkpoint of `rl`."""
        plan = self.plan
        learned = method_of(method).learned_by(self.mode)
        rule = self.rule if learned.guarded else None
        name = "-".join([self.mode, learned.name.replace("+", "_"), *([rule] if rule else [])])
        recipe = recipe_of(plan.recipe, plan.system, passes=plan.passes, episodes=plan.explored)
        steps = recipe.passes if self.mode == "offline" else -(-recipe.episodes // recipe.batch)
        training = train(
            learned,
            self.system.env,
            self.system.train,
            replace(self, rule=rule)._certificate(),
            mode=self.mode,
            lams=plan.lams,
            bs=plan.bs,
            seeds=plan.seeds,
            recipe=recipe,
            validation=self.system.validation,
            checkpoint=self.out / "checkpoints" / f"{name}.npz",
            report=lambda done, history: report(done, steps, f"reward {np.mean(history.rewards[-1]):.1f}"),
        )
        return replace(training, method=method_of(method))

    def _explored(self, training: Training, seen: Exploration, report: Report) -> list[dict[str, Any]]:
        """What every episode of the exploration gave, averaged over blocks."""
        reference = training if self.method == "rl" else replace(self, rule=None)._train("rl", report)
        lost = regrets(training, self.system.env, self.system.train, reference)
        rows = []
        for s, (lam, b) in enumerate(training.settings):
            for n, seed in enumerate(training.seeds):
                rows.append(
                    {
                        "lam": lam,
                        "b": b,
                        "seed": seed,
                        "episodes": len(lost),
                        "violation_rate": float(np.mean(seen.violations[:, s, n])),
                        "worst_margin": float(np.min(seen.margins[:, s, n])),
                        "mean_regret": float(np.mean(lost[:, s, n])),
                        "regret": _blocks(lost[:CURVE, s, n]),
                    }
                )
        return rows

    def _learned(self, training: Training) -> list[dict[str, Any]]:
        """What was broken while learning offline."""
        seen = training.history
        return [
            {
                "lam": lam,
                "b": b,
                "seed": seed,
                "episodes": len(seen.violations) * len(self.system.train),
                "violation_rate": float(np.mean(seen.violations[:, s, n])),
                "worst_margin": float(np.min(seen.margins[:, s, n])),
            }
            for s, (lam, b) in enumerate(training.settings)
            for n, seed in enumerate(training.seeds)
        ]

    def _tracks(self, training: Training) -> list[dict[str, Any]]:
        """The first test episodes, round by round, played by the first seed's policy for each setting."""
        if method_of(self.method).plays_prior or self.rule not in (None, self.plan.trained_rules[-1]):
            return []
        env, seed = self.system.env, training.seeds[0]
        episodes = self.system.test[: min(SHOWN, len(self.system.test))]
        prior = np.cumsum(rollout(env, env.prior, episodes, record="outcomes").costs, axis=1)
        tracks = []
        for lam, b in training.settings:
            contract = env.contract(lam, b, episodes.horizon)
            guard = (
                replace(self._certificate(), contract=contract) if method_of(self.method).guarded else None
            )
            run = rollout(env, training.policy(lam, b, seed), episodes, guard)
            assert run.prior_actions is not None
            assert run.radii is not None
            bounds = contract.bound(prior, np.arange(1, episodes.horizon + 1))
            for i in range(len(episodes)):
                track: dict[str, Any] = {
                    "lam": lam,
                    "b": b,
                    "episode": i,
                    "action": run.actions[i],  # type: ignore[index]
                    "proposal": run.proposals[i],  # type: ignore[index]
                    "prior_action": run.prior_actions[i],
                    "cost": np.cumsum(run.costs[i]),
                    "bound": bounds[i],
                }
                if guard is not None:
                    track["low"] = np.maximum(run.prior_actions[i] - run.radii[i], env.low)
                    track["high"] = np.minimum(run.prior_actions[i] + run.radii[i], env.high)
                tracks.append(
                    {
                        key: _rounded(value) if isinstance(value, np.ndarray) else value
                        for key, value in track.items()
                    }
                )
        return tracks


def _guard(plan: Plan, system: System, folder: Path | None, report: Report) -> dict[str, Any]:
    lam, b = plan.shown

    def draw(seed: int) -> Episodes:
        if folder is not None:
            return system.test
        return load_system(plan.system, None, plan.train_episodes, seed).test

    return hostile.guard_study(
        system.env,
        system.env.contract(lam, b, system.test.horizon),
        draw,
        plan.seeds,
        plan.rules,
        lambda done, total: report(done, total, ""),
    )


def _published(paper: Path, folder: Path, report: Report) -> dict[str, Any]:
    rows = play_published(paper, folder, lambda done, total: report(done, total, ""))
    return {
        "published": [asdict(row) for row in rows],
        "rl_network": [asdict(row) for row in play_rl(paper, folder)],
        "idle_regret": list(play_idle(paper, folder)),
    }


def assemble(plan: Plan, system: System, known: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
    """`results.json`: the pieces put together, with regrets and bounds.

    Args:
        plan: What was run.
        system: On what.
        known: The run's `identity`.
        done: The content of each piece by its name.
    """
    env, test = system.env, system.test
    recipe = recipe_of(plan.recipe, plan.system)
    scores = _gathered(done, "scores")
    reference = {
        (each["mode"], each["lam"], each["b"], each["seed"]): each["reward"]
        for each in scores
        if each["method"] == "rl"
    }
    for each in scores:
        best = reference.get((each["mode"], each["lam"], each["b"], each["seed"]))
        each["regret"] = None if best is None else best - each["reward"]
    prior = rollout(env, env.prior, test, record="outcomes")
    shown = test[: min(SHOWN, len(test))]
    prior_costs = np.cumsum(prior.costs, axis=1)
    return {
        "schema": SCHEMA,
        "system": plan.system,
        "scale": plan.scale,
        "grid": {
            name: list(getattr(plan, name))
            for name in ("lams", "bs", "seeds", "methods", "rules", "trained_rules", "modes")
        },
        "training": {
            "recipe": plan.recipe,
            "passes": plan.passes,
            "explored": plan.explored,
            "block": BLOCK,
            **{
                name: getattr(recipe, name)
                for name in ("learning_rate", "schedule", "batch", "steps", "width")
            },
        },
        "data": known["data"],
        "prior": {
            "reward": float(prior.returns.mean()),
            "cost": float(prior.total_costs.mean()),
            "worst_cost": float(prior.total_costs.max()),
        },
        "bounds": [
            {
                "lam": lam,
                "b": b,
                "cost": float((1.0 + lam) * prior.total_costs.mean() + test.horizon * b),
                "worst_cost": float((1.0 + lam) * prior.total_costs.max() + test.horizon * b),
            }
            for b in plan.bs
            for lam in plan.lams
        ],
        "scores": scores,
        "exploration": _gathered(done, "exploration"),
        "guard": done["guard"],
        "episodes": [
            {
                "demand": _rounded(shown["demand"][i]),
                "renewables": _rounded(shown["renewables"][i]),
                "prior_cost": _rounded(prior_costs[i]),
                "start_hour": None if shown.start_hours is None else int(shown.start_hours[i]),
            }
            for i in range(len(shown))
        ],
        "tracks": _gathered(done, "tracks"),
        "published": done.get("published", {}).get("published", []),
        "rl_network": done.get("published", {}).get("rl_network", []),
        "idle_regret": done.get("published", {}).get("idle_regret"),
        "paper": known["paper"],
        "provenance": {"command": known["command"], **known["machine"]},
    }


def _gathered(done: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [
        dict(row)
        for name, content in done.items()
        if name.startswith(get_args(Mode))
        for row in content.get(part, [])
    ]


def _origin(plan: Plan, folder: Path | None) -> str:
    """Which series are real."""
    if folder is None:
        return "embedded data"
    if is_episode_file(folder):
        return "own data"
    if plan.system == "carbon":
        return "authors' data"
    return "demand of BLOOM's GPUs (real), renewables and battery rates generated"


def _describe_data(plan: Plan, system: System, folder: Path | None) -> dict[str, Any]:
    digest = hashlib.sha256()
    for episodes in (system.train, system.test, *([] if system.validation is None else [system.validation])):
        for name in sorted(episodes.names):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(episodes[name]).tobytes())
    source = "file" if is_episode_file(folder) else "authors"
    return {
        "source": "embedded" if folder is None else source,
        "origin": _origin(plan, folder),
        "train_episodes": len(system.train),
        "test_episodes": len(system.test),
        "horizon": system.test.horizon,
        "sha256": digest.hexdigest(),
    }


def _digest_of_code() -> str:
    """Of all modules that results depend on: other code is another run."""
    root = Path(__file__).resolve().parents[1]
    apart = (
        "bench.py",
        "bench_data.py",
        "calibration.py",
        "data_cli.py",
        "figures.py",
        "report.py",
        "cli.py",
    )
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        if file.name not in apart:
            digest.update(file.relative_to(root).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _blocks(values: Any) -> list[float]:
    """[K] to the means of blocks of `BLOCK`, the last one of what is left."""
    return [float(f"{np.mean(values[i : i + BLOCK]):.6g}") for i in range(0, len(values), BLOCK)]


def _rounded(values: Any) -> list[float]:
    """For drawing: five significant digits."""
    return [float(f"{value:.5g}") for value in np.asarray(values).tolist()]
