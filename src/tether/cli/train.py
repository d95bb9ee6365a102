"""The command `tether train`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import numpy as np
import typer
from rich.progress import TextColumn

from tether.cli import shell
from tether.core import output, validate
from tether.core.files import complete_file

if TYPE_CHECKING:
    from tether.certificates import Certificate
    from tether.learn.plant import Plant
    from tether.learn.train import History, Recipe
    from tether.learn.trial import Result


@dataclass(frozen=True)
class Options:
    """What `tether train` can be asked for."""

    system: shell.SystemName
    methods: Annotated[
        str, typer.Option(help="Any of prior, random+acd, rl, rl+acd, crl, acrl; comma-separated.")
    ] = "prior,rl+acd,acrl"
    mode: Annotated[
        str,
        typer.Option(
            help="offline: the training episodes' own noise is the model. online: explore episode by episode, through "
            "the guard where there is one, and fit a model to what was seen."
        ),
    ] = "offline"
    lams: shell.Lams = "0,2,10"
    bs: shell.Bs = "2"
    certificate: Annotated[
        str,
        typer.Option(
            help="What the guard knows: lipschitz (global constants); structured (how this system works: the same "
            "promise from a much larger safe set); shadowing (the same, and what every round reveals); or compiled "
            "(all that its model says)."
        ),
    ] = "lipschitz"
    rule: Annotated[
        str, typer.Option(help="Rule of the lipschitz certificate: paper, released or tight.")
    ] = "tight"
    inputs: Annotated[
        str, typer.Option(help="What learners see beside the system's observation: any of clock, forecast.")
    ] = ""
    head: Annotated[
        str,
        typer.Option(
            help="acrl: proposal (the guard moves it into the safe set) or inside (acts inside it)."
        ),
    ] = "proposal"
    copies: Annotated[
        int,
        typer.Option(help="Train on so many times the episodes, the further ones at other levels.", min=1),
    ] = 1
    without: Annotated[
        str,
        typer.Option(
            help="shift: train on the test episodes themselves, to see what the difference between the months takes."
        ),
    ] = ""
    width: Annotated[
        int | None, typer.Option(help="Neurons of a hidden layer; those of the system by default.", min=1)
    ] = None
    seeds: Annotated[int, typer.Option(help="Number of seeds, trained together.", min=1)] = 5
    seed: shell.Seed = 0
    recipe: Annotated[
        str,
        typer.Option(
            help="tether: Adam at 3e-3, falling to 0. paper: the paper's constant rate, on as many episodes as are "
            "explored in the paper, made by augmentation."
        ),
    ] = "tether"
    steps: Annotated[
        int | None,
        typer.Option(help="Online: gradient steps of an update, every 50 episodes; 50 by default.", min=1),
    ] = None
    passes: Annotated[
        int, typer.Option(help="Offline: times to go through the training episodes.", min=1)
    ] = 30
    explore: Annotated[
        int | None,
        typer.Option(help="Online: episodes to play; as many as the system says by default.", min=1),
    ] = None
    optimism: Annotated[
        float,
        typer.Option(
            help="Online: factor on the confidence set of the fitted model; 0 believes the estimate.", min=0.0
        ),
    ] = 1.0
    episodes: Annotated[int, typer.Option(help="Synthetic training episodes.", min=1)] = 2136
    data: shell.Data = None
    paper: Annotated[
        Path | None,
        typer.Option(help="Folder with the authors' published.json, to show their rewards beside."),
    ] = None
    tensorboard: Annotated[
        bool,
        typer.Option(help="Also write metrics for TensorBoard, to OUT/tensorboard (extra `tensorboard`)."),
    ] = False
    out: Annotated[Path, shell.out_option("results.json and the policies")] = Path("out/train")


def train(options: Options) -> None:
    """Train learners, all settings and seeds in one compiled program, and audit them.

    Writes `results.json`, each policy as `METHOD-lamL-bB-seedS.npz` (for `tether.load_policy`), online also what every
    explored episode gave (`METHOD.exploration.npz`), and a checkpoint of each method: the same command goes on from
    where it was stopped, Ctrl-C included.

    For instance `tether train carbon --methods rl,crl,rl+acd,acrl --lams 0,2,4,6,8,10 --bs 2,6 --passes 100`, or
    `tether train inference --mode online --methods rl,acrl --lams 5,7 --bs 6`, or, on episodes of your own,
    `tether train carbon --data carbon.npz`.
    """
    from tether.learn.trial import explorations
    from tether.paper import tables

    start = time.perf_counter()
    job = _Job.of(options)
    known = _published_rewards(options.paper) if options.paper is not None else {}
    folder = output.prepare_folder(options.out)
    results = _train(job, folder)
    name = job.plant.system.name
    shell.console.print(tables.results_table(name, results, known))
    explored = explorations(job.plant, results)
    if explored:
        shell.console.print(tables.exploration_table(name, explored))
    names = ("mode", "certificate", "rule", "head", "optimism", "recipe")
    content = {
        "system": name,
        **{each: getattr(options, each) for each in names},
        "inputs": shell.listed(options.inputs),
        "without": shell.listed(options.without),
        "scores": {
            result.training.method.name: [asdict(score) for score in result.scores] for result in results
        },
        "violations_in_training": {
            result.training.method.name: result.training.history.violations.mean(axis=(0, 2)).tolist()
            for result in results
            if len(result.training.history.violations)
        },
        "exploration": [each._asdict() for each in explored],
    }
    shell.write_results(folder, content)
    minutes, seconds = divmod(round(time.perf_counter() - start), 60)
    shell.console.print(
        f"Policies and results: {folder} ({minutes} min {seconds} s, {output.peak_memory():.0f} MB at most)"
    )


@dataclass(frozen=True)
class _Job:
    """What is trained, after all options were checked."""

    options: Options
    plant: Plant
    guide: Certificate
    recipe: Recipe
    methods: list[str]
    lams: list[float]
    bs: list[float]

    @classmethod
    def of(cls, options: Options) -> _Job:
        from tether.learn.methods import METHODS
        from tether.learn.plant import augmented, load_plant
        from tether.learn.train import Mode
        from tether.learn.trial import recipe_of
        from tether.systems import registry
        from tether.systems.certified import certificate_of

        validate.choice("--mode", options.mode, get_args(Mode))
        methods = shell.listed(options.methods)
        for method in methods:
            validate.choice("--methods", method, tuple(each.name for each in METHODS))
        lams, bs = shell.numbers("--lams", options.lams), shell.numbers("--bs", options.bs)
        for each in shell.listed(options.without):
            validate.choice("--without", each, ("shift",))
        plant = load_plant(
            registry.find(options.system),
            options.data,
            options.episodes,
            options.seed,
            shell.listed(options.inputs),
            options.copies,
            shell.listed(options.without),
        )
        contract = plant.env.contract(lams[0], bs[0], plant.train.horizon)
        chosen: Any = options  # checked by the functions that take its words
        guide = certificate_of(chosen.certificate, plant.env, contract, chosen.rule)
        recipe = recipe_of(
            chosen.recipe,
            plant.system.defaults,
            passes=options.passes,
            episodes=options.explore,
            steps=options.steps,
            width=options.width,
            head=options.head,
            optimism=options.optimism,
        )
        if options.recipe == "paper":
            plant = augmented(plant, recipe.episodes, options.seed)
        return cls(options, plant, guide, recipe, methods, lams, bs)

    @property
    def seeds(self) -> list[int]:
        return shell.seeds_from(self.options.seed, self.options.seeds)


def _train(job: _Job, folder: Path) -> list[Result]:
    """Train one method after the other, and write each one's policies as soon as they are there."""
    from tether.learn.methods import method_of
    from tether.learn.train import Mode
    from tether.learn.trial import run_method

    mode = cast(Mode, job.options.mode)
    settings = [(lam, b) for b in job.bs for lam in job.lams]
    board = folder / "tensorboard" if job.options.tensorboard else None
    rounds = job.recipe.passes if mode == "offline" else -(-job.recipe.episodes // job.recipe.batch)
    played = len(job.plant.train) if mode == "offline" else job.recipe.batch
    results: list[Result] = []
    with _Display(job.plant, settings, job.seeds, board) as display:
        # `rl` comes first, so that the regret of the others can be shown.
        for method in sorted(job.methods, key=lambda method: method != "rl"):
            checkpoint = folder / f"{method_of(method).learned_by(mode)}.{mode}.checkpoint.npz"
            result = run_method(
                method, job.plant, job.guide, job.lams, job.bs, job.seeds, job.recipe, checkpoint,
                display.task(method, rounds, played), mode,
            )  # fmt: skip
            results.append(result)
            display.finished(result)
            _write_policies(folder, result)
    return results


class _Display:
    """Progress of one method after the other: reward, regret, margin, violations, episodes a second, time left."""

    def __init__(
        self, plant: Plant, settings: list[tuple[float, float]], seeds: list[int], tensorboard: Path | None
    ) -> None:
        self._progress = shell.progress(TextColumn("{task.fields[rate]}"), bar_width=20)
        self._plant, self._settings, self._seeds, self._tensorboard = plant, settings, seeds, tensorboard
        self._best: float | None = None
        """Mean reward of `rl` on the training episodes, once it is known."""

    def __enter__(self) -> _Display:
        self._progress.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._progress.stop()
        if kind is KeyboardInterrupt:
            self._progress.console.print("Stopped. The same command goes on from the last checkpoint.")

    def task(self, method: str, steps: int, episodes: int) -> Callable[[int, History], None]:
        """A `report` for a method that takes so many steps, each of so many episodes a setting and seed."""
        from tether.learn.tensorboard import TensorBoard

        name = self._progress.add_task(f"{method}: compiling", total=steps, rate="")
        board = None
        if self._tensorboard is not None:
            board = TensorBoard(self._tensorboard / method, method, self._settings)
        each = episodes * len(self._settings) * len(self._seeds)
        last = time.perf_counter()

        def report(done: int, history: History) -> None:
            nonlocal last
            rate, last = each / (time.perf_counter() - last), time.perf_counter()
            reward, margin = float(history.rewards[-1].mean()), float(history.margins[-1].min())
            regret = "" if self._best is None else f", regret {self._best - reward:.1f}"
            text = f"{method}: reward {reward:.1f}{regret}, margin {margin:.2g}"
            self._progress.update(name, completed=done, description=text, rate=f"{rate:,.0f} episodes/s")
            if board is not None:
                board.write(done, history)
                if done == steps:
                    board.close()

        return report

    def finished(self, result: Result) -> None:
        """Remember what `rl` earns."""
        from tether.simulate.rollout import rollout

        if result.training.method.name == "rl":
            setting = result.training.settings[0]
            policies = [result.training.policy(*setting, seed) for seed in self._seeds]
            runs = [
                rollout(self._plant.env, policy, self._plant.train, record="outcomes") for policy in policies
            ]
            self._best = float(np.mean([run.returns.mean() for run in runs]))


def _write_policies(folder: Path, result: Result) -> None:
    """Each policy as a file of its own, and what was explored."""
    training = result.training
    if training.exploration is not None:
        explored: dict[str, Any] = training.exploration._asdict()
        with complete_file(folder / f"{training.method}.exploration.npz") as draft, draft.open("wb") as file:
            np.savez_compressed(file, settings=training.settings, seeds=training.seeds, **explored)
    if training.method.name in ("prior", "rl+acd"):
        return
    for lam, b in training.settings:
        for seed in training.seeds:
            name = f"{training.method}-lam{lam:g}-b{b:g}-seed{seed}.npz"
            training.policy(lam, b, seed).save(folder / name)


def _published_rewards(paper: Path) -> dict[tuple[str, float, float], float]:
    """The authors' mean rewards by (method, lam, b)."""
    from tether.paper.studies.published import read_published

    content = read_published(paper)
    return {
        (method, float(lam), float(content["b"])): content[f"{key}_mean_reward"][i]
        for method, key in (("acrl", "acrl"), ("rl+acd", "rl_acd"))
        for i, lam in enumerate(content["lambda"])
    }
