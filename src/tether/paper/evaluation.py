"""What is run: the paper's evaluation of any system, as a list of pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tether.assure import hostile
from tether.certificates import LipschitzCertificate, Rule
from tether.core import validate
from tether.data.episodes import Episodes
from tether.engines.pieces import Piece, Report
from tether.learn.methods import METHODS, method_of
from tether.learn.plant import Plant, augmented, draw_test, load_plant
from tether.learn.train import Exploration, Mode, Training, evaluate, regrets, train
from tether.learn.trial import RecipeName, recipe_of
from tether.paper.studies.published import published_pieces
from tether.simulate.rollout import rollout
from tether.systems.system import System

Scale = Literal["quick", "full"]
BLOCK = 25
"""Episodes over which exploration is averaged."""
CURVE = 500
"""Episodes of the paper's regret curves."""
SHOWN = 3
"""Test episodes, the first ones, that the report's player shows."""


@dataclass(frozen=True)
class Evaluation:
    """Everything that decides what is run, but for the data."""

    system: str
    """Its name."""
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


def evaluation_of(system: System, scale: Scale, **changes: Any) -> Evaluation:
    """The evaluation of a system, `quick` or `full`, with what is changed of it.

    Args:
        system: Its `defaults` are the grid; those of the paper's systems are the paper's.
        scale: `quick` takes about a minute on two cores; `full` is the whole grid, seeds and episodes. With the
            recipe `paper` it is the paper's evaluation.
        changes: Fields of `Evaluation`; those that are None are left as they are.
    """
    full, defaults = scale == "full", system.defaults
    made = Evaluation(
        system=system.name,
        scale=scale,
        lams=defaults.lams if full else defaults.quick_lams,
        bs=defaults.bs,
        seeds=tuple(range(5 if full else 3)),
        methods=tuple(method.name for method in METHODS),
        rules=get_args(Rule),
        trained_rules=get_args(Rule) if full else ("tight",),
        modes=("offline", "online"),
        train_episodes=defaults.train_episodes if full else 480,
        passes=(defaults.paper_passes if changes.get("recipe") == "paper" else 60) if full else 10,
        explored=defaults.episodes if full else 500,
    )
    made = replace(made, **{name: value for name, value in changes.items() if value is not None})
    trained = tuple(rule for rule in made.trained_rules if rule in made.rules)
    return replace(made, trained_rules=trained or made.rules[-1:])


def load_data(evaluation: Evaluation, system: System, data: Path | None) -> Plant:
    """The system with its episodes, as many to learn from as the recipe says."""
    first = evaluation.seeds[0]
    plant = load_plant(system, data, evaluation.train_episodes, first)
    return augmented(plant, evaluation.explored, first) if evaluation.recipe == "paper" else plant


def pieces(
    evaluation: Evaluation, plant: Plant, out: Path, data: Path | None, paper: Path | None
) -> list[Piece]:
    """What is to be computed, in the order of its computation."""
    made = [Piece("guard", lambda report: _guard(evaluation, plant, data, report))]
    made += published_pieces(evaluation.system, paper, data)
    for mode in evaluation.modes:
        # RL first: the others are measured against it, and RL+ACD plays what it learned.
        for method in sorted(evaluation.methods, key=lambda method: method != "rl"):
            rules: Sequence[Rule | None] = [None]
            if method_of(method).sees_memory:
                rules = evaluation.trained_rules
            elif method_of(method).guarded:
                rules = evaluation.rules if mode == "offline" else evaluation.trained_rules[-1:]
            for rule in rules:
                name = "-".join([mode, method.replace("+", "_"), *([rule] if rule else [])])
                made.append(Piece(name, _Learning(evaluation, plant, out, mode, method, rule)))
    return _in_order(made)


def _in_order(pieces: list[Piece]) -> list[Piece]:
    """Pieces that need the same training come after the first of them, and find it in its checkpoint."""
    first: dict[str, str] = {}
    made = []
    for piece in pieces:
        needed = piece.compute.trainings() if isinstance(piece.compute, _Learning) else []
        after = tuple(dict.fromkeys(first[name] for name in needed if name in first))
        for name in needed:
            first.setdefault(name, piece.name)
        made.append(piece._replace(after=after))
    return made


@dataclass(frozen=True)
class _Learning:
    """One method, trained for the whole grid and all seeds, tested and audited."""

    evaluation: Evaluation
    plant: Plant
    out: Path
    mode: Mode
    method: str
    rule: Rule | None

    def __call__(self, report: Report, *_before: Any) -> dict[str, Any]:
        method, training = method_of(self.method), self._train(self.method, report)
        tag = {"mode": self.mode, "method": self.method, "rule": self.rule}
        certificate = self._certificate()
        scores = evaluate(training, self.plant.env, self.plant.test, certificate)
        content: dict[str, Any] = {"scores": [tag | asdict(score) for score in scores]}
        if training.exploration is not None:
            content["exploration"] = [
                tag | row for row in self._explored(training, training.exploration, report)
            ]
        elif method.learns and method.learned_by(self.mode).name == method.name:
            content["exploration"] = [tag | row for row in self._learned(training)]
        if self.mode == "offline":
            content["tracks"] = [tag | track for track in self._tracks(training)]
        return content

    def _certificate(self) -> LipschitzCertificate:
        env = self.plant.env
        lam, b = self.evaluation.lams[0], self.evaluation.bs[0]
        contract = env.contract(lam, b, self.plant.train.horizon)
        return LipschitzCertificate(contract, env.sensitivity, self.rule or "tight")

    def trainings(self) -> list[str]:
        """What must be trained: this method, and online `rl`, whose reward is what could have been."""
        return [self._training(self.method), *([] if self.mode == "offline" else [self._training("rl")])]

    def _training(self, method: str) -> str:
        """What a training is called, and its checkpoint."""
        learned = method_of(method).learned_by(self.mode)
        rule = self.rule if learned.guarded else None
        return "-".join([self.mode, learned.name.replace("+", "_"), *([rule] if rule else [])])

    def _train(self, method: str, report: Report) -> Training:
        """The trained grid; offline, `rl+acd` plays what `rl` learned, and finds it in the checkpoint of `rl`."""
        wanted, plant, name = self.evaluation, self.plant, self._training(method)
        learned = method_of(method).learned_by(self.mode)
        rule = self.rule if learned.guarded else None
        recipe = recipe_of(
            wanted.recipe, plant.system.defaults, passes=wanted.passes, episodes=wanted.explored
        )
        steps = recipe.passes if self.mode == "offline" else -(-recipe.episodes // recipe.batch)
        training = train(
            learned,
            plant.env,
            plant.train,
            replace(self, rule=rule)._certificate(),
            mode=self.mode,
            lams=wanted.lams,
            bs=wanted.bs,
            seeds=wanted.seeds,
            recipe=recipe,
            validation=plant.validation,
            checkpoint=self.out / "checkpoints" / f"{name}.npz",
            report=lambda done, history: report(done, steps, f"reward {np.mean(history.rewards[-1]):.1f}"),
        )
        return replace(training, method=method_of(method))

    def _explored(self, training: Training, seen: Exploration, report: Report) -> list[dict[str, Any]]:
        """What every episode of the exploration gave, averaged over blocks."""
        reference = training if self.method == "rl" else replace(self, rule=None)._train("rl", report)
        lost = regrets(training, self.plant.env, self.plant.train, reference)
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
                "episodes": len(seen.violations) * len(self.plant.train),
                "violation_rate": float(np.mean(seen.violations[:, s, n])),
                "worst_margin": float(np.min(seen.margins[:, s, n])),
            }
            for s, (lam, b) in enumerate(training.settings)
            for n, seed in enumerate(training.seeds)
        ]

    def _tracks(self, training: Training) -> list[dict[str, Any]]:
        """The first test episodes, round by round, played by the first seed's policy for each setting."""
        if method_of(self.method).plays_prior or self.rule not in (None, self.evaluation.trained_rules[-1]):
            return []
        env, seed = self.plant.env, training.seeds[0]
        episodes = self.plant.test[: min(SHOWN, len(self.plant.test))]
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
            curves = {
                "action": run.actions,
                "proposal": run.proposals,
                "prior_action": run.prior_actions,
                "cost": np.cumsum(run.costs, axis=1),
                "bound": contract.bound(prior, np.arange(1, episodes.horizon + 1)),
            }
            if guard is not None:
                # Of a vector: what each entry may be where the others are the prior's.
                radii = run.radii.reshape(*run.radii.shape, *(1 for _ in env.action_shape))
                curves["low"] = np.maximum(run.prior_actions - radii, env.low)
                curves["high"] = np.minimum(run.prior_actions + radii, env.high)
            for i in range(len(episodes)):
                track = {name: rounded(values[i]) for name, values in curves.items()}
                tracks.append({"lam": lam, "b": b, "episode": i, **track})
        return tracks


def _guard(evaluation: Evaluation, plant: Plant, data: Path | None, report: Report) -> dict[str, Any]:
    lam, b = evaluation.shown

    def draw(seed: int) -> Episodes:
        if data is not None:
            return plant.test
        return draw_test(plant.system, evaluation.train_episodes, seed)

    return hostile.guard_study(
        plant.env,
        plant.env.contract(lam, b, plant.test.horizon),
        draw,
        evaluation.seeds,
        evaluation.rules,
        lambda done, total: report(done, total, ""),
    )


def _blocks(values: Any) -> list[float]:
    """[K] to the means of blocks of `BLOCK`, the last one of what is left."""
    return [float(f"{np.mean(values[i : i + BLOCK]):.6g}") for i in range(0, len(values), BLOCK)]


def rounded(values: Any) -> list[Any]:
    """An array as nested lists, for drawing: five significant digits."""
    return [
        rounded(each) if isinstance(each, list) else float(f"{each:.5g}")
        for each in np.asarray(values).tolist()
    ]
