"""What is run: the paper's evaluation of any system, as a list of pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tether.assure import hostile
from tether.assure.limit import hindsight_limit
from tether.assure.safe_sets import safe_sets
from tether.certificates import Certificate
from tether.core import validate
from tether.data.episodes import Episodes
from tether.engines.pieces import Piece, Report
from tether.learn.methods import METHODS, method_of
from tether.learn.plant import Plant, augmented, draw_test, load_plant
from tether.learn.train import Exploration, Mode, Training, evaluate, regrets, train
from tether.learn.trial import RecipeName, recipe_of
from tether.paper.studies.published import published_pieces
from tether.simulate.eager import eager
from tether.simulate.rollout import rollout
from tether.systems.certified import FAMILY, family_of, member
from tether.systems.system import System

Scale = Literal["quick", "full"]
BLOCK = 25
"""Episodes over which exploration is averaged."""
CURVE = 500
"""Episodes of the paper's regret curves."""
SHOWN = 3
"""Test episodes, the first ones, that the report's player shows."""
LIMITED = 100
"""Test episodes, at most, whose hindsight limit is found."""


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
    rules: tuple[str, ...]
    """Certificates of the guard (`tether.systems.certified.FAMILY`), the best last. What needs no training of its own
    is played with all of them ..."""
    trained_rules: tuple[str, ...]
    """... and ACRL is trained with these; other guarded methods play online with the last of them."""
    modes: tuple[Mode, ...]
    train_episodes: int
    """Synthetic episodes to train on; two thirds as many to test on."""
    passes: int
    """Offline: times that the training episodes are gone through."""
    explored: int
    """Online: episodes that are played while learning, K."""
    explorers: tuple[str, ...]
    """The methods that explore, if there is a mode `online`."""
    recipe: RecipeName = "tether"
    """How learners are trained; with `paper` also on the paper's K episodes, made by augmentation."""

    def __post_init__(self) -> None:
        for method in (*self.methods, *self.explorers):
            method_of(method)
        for name, known in (("rules", FAMILY), ("trained_rules", FAMILY), ("modes", get_args(Mode))):
            for each in getattr(self, name):
                validate.choice(name.removesuffix("s"), each, known)
        for name in ("lams", "bs"):
            for each in getattr(self, name):
                validate.number(name.removesuffix("s"), each, minimum=0.0)
        for name in ("seeds", "lams", "bs", "methods", "rules", "modes"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} must be at least one and all different, got {list(values)}")
        validate.choice("recipe", self.recipe, ("tether", "paper"))  # the third needs other episodes
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
    full, defaults, family = scale == "full", system.defaults, family_of(system.env())
    names = tuple(method.name for method in METHODS)
    made = Evaluation(
        system=system.name,
        scale=scale,
        lams=defaults.lams if full else defaults.quick_lams,
        bs=defaults.bs if full else defaults.bs[:1],
        seeds=tuple(range(5 if full else 3)),
        methods=names,
        rules=family,
        trained_rules=family if full else tuple(rule for rule in family if rule not in ("paper", "released")),
        modes=("offline", "online"),
        train_episodes=defaults.train_episodes if full else 480,
        passes=(defaults.paper_passes if changes.get("recipe") == "paper" else 60) if full else 25,
        explored=defaults.episodes if full else 300,
        explorers=names if full or changes.get("methods") else tuple(filter(_explores, names)),
    )
    made = replace(made, **{name: value for name, value in changes.items() if value is not None})
    missing = [rule for rule in made.rules if rule not in family]
    if missing:
        raise ValueError(
            f"{system.name} has no structure, which the rule {missing[0]!r} needs; it has {family}"
        )
    trained = tuple(rule for rule in made.trained_rules if rule in made.rules)
    return replace(made, trained_rules=trained or made.rules[-1:])


def _explores(name: str) -> bool:
    """Whether a method explores in the quick run: not CRL, nor what learns offline as another method does."""
    method = method_of(name)
    return not method.bounds_cost and method.learned_by("offline").name == name


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
            if mode == "online" and method not in evaluation.explorers:
                continue
            rules: Sequence[str | None] = [None]
            if method_of(method).guarded:
                rules = evaluation.trained_rules if method_of(method).sees_memory else evaluation.rules
                if mode == "online" and not (method_of(method).sees_memory and evaluation.scale == "full"):
                    rules = evaluation.trained_rules[-1:]
            for rule in rules:
                name = "-".join([mode, method.replace("+", "_"), *([rule] if rule else [])])
                made.append(Piece(name, _Learning(evaluation, plant, out, mode, method, rule)))
    made.append(Piece("limit", lambda report: _limit(evaluation, plant, report)))
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
    rule: str | None

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
        content["limited"] = [tag | row for row in self._limited(training)]
        if self.mode == "offline":
            content["tracks"] = [tag | track for track in self._tracks(training)]
        return content

    def _certificate(self, lam: float | None = None, b: float | None = None) -> Certificate:
        """Of a setting, by default the first; where there is no guard, one that holds the contract."""
        env, wanted = self.plant.env, self.evaluation
        lam, b = wanted.lams[0] if lam is None else lam, wanted.bs[0] if b is None else b
        return member(self.rule or "tight", env, env.contract(lam, b, self.plant.train.horizon))

    def _limited(self, training: Training) -> list[dict[str, Any]]:
        """What each seed's policy earns on the episodes whose hindsight limit is known."""
        env, (lam, b) = self.plant.env, self.evaluation.shown
        if training.method.plays_prior:
            return []
        guard = self._certificate(lam, b) if training.method.guarded else None
        chosen, rows = limited(len(self.plant.test)), []
        for seed in training.seeds:
            run = rollout(env, training.policy(lam, b, seed), self.plant.test, guard, record="outcomes")
            rows.append({"lam": lam, "b": b, "seed": seed, "reward": float(run.returns[chosen].mean())})
        return rows

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
        seed, tracks = training.seeds[0], []
        for lam, b in training.settings:
            policy = training.policy(lam, b, seed)
            for i in range(min(SHOWN, len(self.plant.test))):
                track = self._track(policy, self.plant.test[i : i + 1], lam, b)
                track = {name: rounded(values) for name, values in track.items()}
                tracks.append({"lam": lam, "b": b, "episode": i, **track})
        return tracks

    def _track(self, policy: Any, episode: Episodes, lam: float, b: float) -> dict[str, Any]:
        """One episode, round by round: what the player draws."""
        env = self.plant.env
        if method_of(self.method).guarded:
            seen = safe_sets(env, episode, self._certificate(lam, b), policy)
            return {
                "action": seen.played,
                "proposal": seen.wish,
                "prior_action": seen.prior,
                "cost": np.cumsum(seen.costs),
                "bound": seen.bounds,
                "low": seen.low,
                "high": seen.high,
            }
        turns, trusted = (list(eager(env, episode, each)) for each in (policy, env.prior))
        costs = np.cumsum([turn.cost for turn in trusted])
        return {
            "action": np.array([turn.action for turn in turns]),
            "proposal": np.array([turn.proposal for turn in turns]),
            "prior_action": np.array([env.prior(turn.observation) for turn in turns]),
            "cost": np.cumsum([turn.cost for turn in turns]),
            "bound": env.contract(lam, b, episode.horizon).bound(costs, np.arange(1, episode.horizon + 1)),
        }


def limited(count: int) -> Any:
    """Which of so many test episodes the hindsight limit is found for: `LIMITED` of them, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(LIMITED, count)).round().astype(int))


def _limit(evaluation: Evaluation, plant: Plant, report: Report) -> dict[str, Any] | None:
    """How much anybody could have earned who keeps the promise and knows all draws; None if nothing can solve it."""
    if find_spec("cvxpy") is None or plant.system.program is None:
        return None
    env, (lam, b) = plant.env, evaluation.shown
    episodes = plant.test[limited(len(plant.test))]
    prior = rollout(env, env.prior, plant.test, record="outcomes")
    chosen = limited(len(plant.test))
    found = hindsight_limit(
        env,
        episodes,
        env.contract(lam, b, episodes.horizon),
        prior.costs[chosen],
        program=plant.system.program,
        processes=1,
        report=lambda done, total: report(done, total, ""),
    )
    return {
        "lam": lam,
        "b": b,
        "episodes": len(episodes),
        "prior": float(prior.returns[chosen].mean()),
        "attained": float(found.attained.mean()),
        "upper": float(found.upper.mean()),
    }


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
